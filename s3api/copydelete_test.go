package s3api_test

import (
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func TestCopyObject(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abd", "")
	s.want(200, "", "PUT", "/abc/a%20b+%C3%BC", "hello", "Content-Type", "text/x", "x-amz-meta-a", "1", "Cache-Control",
		"no-cache")
	for _, source := range []string{"/abc/a%20b%2B%C3%BC", "abc/a%20b%2B%C3%BC", "abc/a b%2Bü", "/abc/a+b%2Bü",
		"/abc/a%20b%2B%C3%BC?versionId=null"} {
		a := s.want(200, "", "PUT", "/abd/k", "", "x-amz-copy-source", source)
		require.Contains(t, a.body, "<ETag>&quot;"+helloETag+"&quot;</ETag>")
		require.Contains(t, a.body, "<CopyObjectResult xmlns=")
		a = s.want(200, "", "GET", "/abd/k", "")
		require.Equal(t, []string{"hello", "text/x", "1", "no-cache"}, []string{a.body, a.header.Get("Content-Type"),
			a.header.Get("x-amz-meta-a"), a.header.Get("Cache-Control")})
	}
	const from = "/abc/a%20b%2B%C3%BC"
	s.want(200, "", "PUT", "/abd/k", "", "x-amz-copy-source", from, "x-amz-metadata-directive", "REPLACE",
		"x-amz-meta-b",
		"2")
	a := s.want(200, "", "GET", "/abd/k", "")
	require.Equal(t, []string{"hello", "binary/octet-stream", "", "2"}, []string{a.body, a.header.Get("Content-Type"),
		a.header.Get("x-amz-meta-a"), a.header.Get("x-amz-meta-b")})
	s.want(400, "InvalidRequest", "PUT", from, "", "x-amz-copy-source", from)
	s.want(200, "", "PUT", from, "", "x-amz-copy-source", from, "x-amz-metadata-directive", "REPLACE", "Content-Type",
		"text/y")
	require.Equal(t, "text/y", s.want(200, "", "GET", from, "").header.Get("Content-Type"))

	for _, bad := range []string{"abc", "/abc/", "/ABC/k", "abc/" + strings.Repeat("k", 1025), "abc/%zz",
		from + "?versionId=1", from + "?versionId=", from + "?%zz"} {
		s.want(400, "InvalidArgument", "PUT", "/abd/bad", "", "x-amz-copy-source", bad)
	}
	s.want(501, "NotImplemented", "PUT", "/abd/bad", "", "x-amz-copy-source",
		"arn:aws:s3:us-east-1:1:accesspoint/x/object/k")
	s.want(501, "NotImplemented", "PUT", "/abd/bad", "", "x-amz-copy-source", from, "x-amz-tagging-directive",
		"REPLACE",
		"x-amz-tagging", "a=b")
	s.want(400, "InvalidArgument", "PUT", "/abd/bad", "", "x-amz-copy-source", from, "x-amz-metadata-directive", "MOVE")
	s.want(404, "NoSuchKey", "PUT", "/abd/bad", "", "x-amz-copy-source", "/abc/none")
	require.Contains(t, s.want(404, "NoSuchBucket", "PUT", "/abd/bad", "", "x-amz-copy-source", "/none/k").body, "none")
	s.want(404, "NoSuchBucket", "PUT", "/none/bad", "", "x-amz-copy-source", from)
	for header, status := range map[string]int{
		"if-match: " + helloETag: 200, "if-match: other": 412, "if-none-match: other": 200,
		"if-none-match: " + helloETag: 412,
		"if-modified-since: " + past:  200, "if-modified-since: " + future: 200, "if-unmodified-since: " + past: 412,
		"if-unmodified-since: " + future: 200,
	} {
		name, value, _ := strings.Cut(header, ": ")
		s.want(status, "", "PUT", "/abd/k", "", "x-amz-copy-source", from, "x-amz-copy-source-"+name, value)
	}
	s.want(412, "PreconditionFailed", "PUT", "/abd/k", "", "x-amz-copy-source", from, "If-None-Match", "*")
	s.want(200, "", "PUT", "/abd/k2", "", "x-amz-copy-source", from, "If-None-Match", "*")

	// Where only the metadata is, it can be changed, and not the bytes copied.
	s.want(200, "", "PUT", "/abc/big", "", "x-evenkeel-size", "1048576", "x-evenkeel-etag", "e")
	s.want(409, "ObjectBodyElsewhere", "PUT", "/abd/big", "", "x-amz-copy-source", "/abc/big")
	s.want(200, "", "PUT", "/abc/big", "", "x-amz-copy-source", "/abc/big", "x-amz-metadata-directive", "REPLACE",
		"x-amz-meta-c", "3")
	a = s.want(200, "", "HEAD", "/abc/big", "")
	require.Equal(t, []string{"1048576", `"e"`, "3"}, []string{a.header.Get("Content-Length"), a.header.Get("ETag"),
		a.header.Get("x-amz-meta-c")})
	s.want(404, "NoSuchKey", "GET", "/abd/bad", "")
}

func TestCopiesAreLimitedToo(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	for _, b := range []string{"photos", "logs", "other"} {
		s.as("ADMIN").want(200, "", "PUT", "/"+b, "")
		s.as("ADMIN").want(200, "", "PUT", "/"+b+"/2024/a", "v")
	}
	s.as("LOGS").want(200, "", "PUT", "/photos/p/a", "", "x-amz-copy-source", "logs/2024/a")
	s.as("LOGS").want(403, "AccessDenied", "PUT", "/photos/p/a", "", "x-amz-copy-source", "other/2024/a")
	s.as("LOGS").want(403, "AccessDenied", "PUT", "/photos/q/a", "", "x-amz-copy-source", "logs/2024/a")
	s.as("READER").want(403, "AccessDenied", "PUT", "/photos/p/a", "", "x-amz-copy-source", "logs/2024/a")
	s.as("ADMIN").want(200, "", "PUT", "/logs/2023", "v")
	a := s.as("LOGS").deleteObjects(200, "", "logs", false, "2024/a", "2023", "2024/none")
	require.Equal(t, []string{"2024/a", "2024/none"}, a.deleted())
	require.Equal(t, map[string]string{"2023": "AccessDenied"}, a.errors())
	s.as("READER").deleteObjects(403, "AccessDenied", "logs", false, "2024/a")
	s.as("LOGS").deleteObjects(403, "AccessDenied", "other", false, "2024/a")
	s.as("ADMIN").want(200, "", "GET", "/logs/2023", "")
}

type deleteResult struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ DeleteResult"`
	Deleted []struct{ Key, VersionId string }
	Error   []struct{ Key, VersionId, Code, Message string }
}

func (d deleteResult) deleted() (keys []string) {
	for _, k := range d.Deleted {
		keys = append(keys, k.Key)
	}
	return keys
}

func (d deleteResult) errors() map[string]string {
	all := map[string]string{}
	for _, e := range d.Error {
		all[e.Key] = e.Code
	}
	return all
}

// deleteObjects asks for the deletion of keys.
func (s *server) deleteObjects(status int, code, bucket string, quiet bool, keys ...string) (d deleteResult) {
	s.t.Helper()
	var body strings.Builder
	fmt.Fprintf(&body, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>%v</Quiet>", quiet)
	for _, k := range keys {
		body.WriteString("<Object><Key>" + s3api.XMLText(k) + "</Key></Object>")
	}
	body.WriteString("</Delete>")
	a := s.want(status, code, "POST", "/"+bucket+"?delete", body.String(), "Content-MD5", md5Of(body.String()))
	if status == 200 {
		require.NoError(s.t, xml.Unmarshal([]byte(a.body), &d))
	}
	return d
}

func md5Of(s string) string {
	sum := md5.Sum([]byte(s))
	return b64(sum[:])
}

func TestDeleteObjects(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("%s%03d", []string{"k", "a b", "ü&<>", " x ", "a\tb\n", "//"}[i%6], i))
		require.NoError(t, s.buckets.Bucket("abc").Put(t.Context(), []byte(keys[i]), []byte("v")))
	}
	s.want(200, "", "PUT", "/abc/stays", "v")
	require.Equal(t, keys, s.deleteObjects(200, "", "abc", false, keys...).deleted(), "in the order in which they came")
	require.Equal(t, []string{"stays"}, keysOf(t, s.want(200, "", "GET", "/abc?list-type=2", "").body))
	d := s.deleteObjects(200, "", "abc", true, keys[:10]...)
	require.Empty(t, d.Deleted)
	require.Empty(t, d.Error)
	d = s.deleteObjects(200, "", "abc", true, "none", strings.Repeat("k", 1025), "")
	require.Equal(t, map[string]string{strings.Repeat("k", 1025): "KeyTooLongError", "": "UserKeyMustBeSpecified"},
		d.errors())
	s.deleteObjects(400, "MalformedXML", "abc", false, append(keys, "one more")...)
	s.deleteObjects(400, "MalformedXML", "abc", false)
	s.deleteObjects(404, "NoSuchBucket", "none", false, "k")

	post := func(status int, code, body string, headers ...string) answer {
		t.Helper()
		return s.want(status, code, "POST", "/abc?delete", body, headers...)
	}
	const one = "<Delete><Object><Key>stays</Key></Object></Delete>"
	post(400, "InvalidRequest", one)
	post(400, "BadDigest", one, "Content-MD5", md5Of("other"))
	post(400, "InvalidDigest", one, "Content-MD5", "other")
	post(400, "BadDigest", one, "x-amz-checksum-crc32", "AAAAAA==")
	for code, body := range map[string]string{
		"MalformedXML":   "<Delete><Object><Key>stays</Key></Object>",
		"NotImplemented": "<Delete><Object><Key>stays</Key><Other>5</Other></Object></Delete>",
	} {
		status := map[string]int{"MalformedXML": 400, "NotImplemented": 501}[code]
		post(status, code, body, "Content-MD5", md5Of(body))
	}
	for _, body := range []string{"", "x", "<Other/>", "<Delete><Unknown/><Object><Key>stays</Key></Object></Delete>",
		"<Delete><Quiet>perhaps</Quiet><Object><Key>stays</Key></Object></Delete>",
		"<!DOCTYPE d [<!ENTITY e \"stays\">]><Delete><Object><Key>&e;</Key></Object></Delete>"} {
		post(400, "MalformedXML", body, "Content-MD5", md5Of(body))
	}
	versions := "<Delete><Object><Key>stays</Key><VersionId>1</VersionId></Object></Delete>"
	require.Contains(t, post(200, "", versions, "Content-MD5", md5Of(versions)).body,
		"<Error><Key>stays</Key><VersionId>1</VersionId><Code>NoSuchVersion</Code>")
	s.want(200, "", "GET", "/abc/stays", "")
	versions = strings.Replace(versions, ">1<", ">null<", 1)
	require.Contains(t, post(200, "", versions, "Content-MD5", md5Of(versions)).body,
		"<Deleted><Key>stays</Key><VersionId>null</VersionId></Deleted>")
	s.want(404, "NoSuchKey", "GET", "/abc/stays", "")

	// If the store fails, the client is told to send it all again.
	f := &faulty{err: store.Errorf(store.Unavailable, "away")}
	f.pages = append(f.pages, pageOf("k"))
	serve(t, f, s3api.Options{}).deleteObjects(503, "ServiceUnavailable", "abc", false, "a", "b")
}

// Entries with an ETag are deleted if the object has it, whatever becomes of the others.
func TestDeleteObjectsOnConditions(t *testing.T) {
	objectsServed, _ := serveObjects(t)
	for name, s := range map[string]*server{"plain": serveStore(t, memstore.New()), "objects": objectsServed} {
		t.Run(name, func(t *testing.T) {
			s.want(200, "", "PUT", "/abc", "")
			tag := s.want(200, "", "PUT", "/abc/a", "v").header.Get("ETag")
			s.want(200, "", "PUT", "/abc/b", "other")
			s.want(200, "", "PUT", "/abc/c", "v")
			entry := func(key, tag string) string {
				return "<Object><Key>" + key + "</Key><ETag>" + s3api.XMLText(tag) + "</ETag></Object>"
			}
			body := "<Delete>" + entry("a", tag) + entry("b", tag) + entry("c", "*") + entry("none", "*") + "</Delete>"
			var d deleteResult
			require.NoError(t, xml.Unmarshal([]byte(s.want(200, "", "POST", "/abc?delete", body, "Content-MD5",
				md5Of(body)).body), &d))
			require.Equal(t, []string{"a", "c"}, d.deleted())
			require.Equal(t, map[string]string{"b": "PreconditionFailed", "none": "NoSuchKey"}, d.errors())
			require.Equal(t, []string{"b"}, keysOf(t, s.want(200, "", "GET", "/abc?list-type=2", "").body))
		})
	}
	// Other servers may write between the look and the delete: nothing of such a request is done.
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	s := serve(t, s3api.Over(c), s3api.Options{})
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "v")
	body := "<Delete><Object><Key>k</Key></Object><Object><Key>l</Key><ETag>x</ETag></Object></Delete>"
	s.want(501, "NotImplemented", "POST", "/abc?delete", body, "Content-MD5", md5Of(body))
	s.want(200, "", "GET", "/abc/k", "")
}

// What has its place in the document, and what not.
func TestDeleteDocuments(t *testing.T) {
	const object = "<Object><Key>k</Key></Object>"
	for doc, code := range map[string]string{
		"<Delete>" + object + "</Delete>":                                           "",
		"<!-- c --><Delete> " + object + " <!-- c --></Delete>":                     "",
		"<Delete><Quiet/>" + object + "</Delete>":                                   "",
		"<Delete><Quiet> </Quiet>" + object + "</Delete>":                           "",
		"<Delete><Quiet> true </Quiet>" + object + "</Delete>":                      "",
		"<Delete>" + object + "<Quiet>0</Quiet></Delete>":                           "",
		"<Delete><Quiet>yes</Quiet>" + object + "</Delete>":                         "MalformedXML",
		"<Delete>" + object + "<Quiet><a/></Quiet></Delete>":                        "MalformedXML",
		"<Delete><Quiet><a/></Quiet>" + object + "</Delete>":                        "MalformedXML",
		"<Remove>" + object + "</Remove>":                                           "MalformedXML",
		"<Delete><Object><Key>k<a/></Key></Object></Delete>":                        "MalformedXML",
		"<Delete><Object><Key>k</Key><a/></Object></Delete>":                        "NotImplemented",
		"<Delete><Object><Key>k</Key><VersionId/></Object></Delete>":                "",
		"<Delete><Object><Key>k</Key><VersionId><a/></VersionId></Object></Delete>": "MalformedXML",
		"<Delete><a/>" + object + "</Delete>":                                       "MalformedXML",
		"<Delete>" + object:                                                         "MalformedXML",
		"<Delete>" + object[:20]:                                                    "MalformedXML",
		"<Delete><Object></Object></Delete>":                                        "",
		"<Delete></Delete>":                                                         "MalformedXML",
		"<Delete/>":                                                                 "MalformedXML",
		"":                                                                          "MalformedXML",
	} {
		keys, got := s3api.ParseDelete([]byte(doc))
		require.Equal(t, code, got, doc)
		require.Equal(t, code == "", len(keys) == 1, doc)
	}
}

func FuzzParseDelete(f *testing.F) {
	f.Add([]byte("<Delete><Quiet>true</Quiet><Object><Key>a</Key><VersionId>null</VersionId></Object></Delete>"))
	f.Add([]byte("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>&#x9;&amp;" +
		"</Key></Object></Delete>"))
	f.Add([]byte("<Delete><Quiet></Quiet><Object><Key>a</Key></Object></Delete>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, code := s3api.ParseDelete(body)
		if code == "" && (len(keys) == 0 || len(keys) > 1000) || code != "" && keys != nil {
			t.Fatal(len(keys), code)
		}
	})
}

func FuzzCopySource(f *testing.F) {
	f.Add("/abc/k?versionId=null")
	f.Add("abc/%2F%zz")
	f.Fuzz(func(t *testing.T, value string) {
		bucket, key, code := s3api.CopySource(value)
		if code == "" && (s3api.BadBucketName(bucket) != "" || key == "" || len(key) > 1024) {
			t.Fatalf("%q: %q %q", value, bucket, key)
		}
	})
}

// FuzzRequestLine: whatever a request line and its host say, the request has a name,
// a bucket by S3's rules or none, and a key of at most 1,024 bytes.
func FuzzRequestLine(f *testing.F) {
	f.Add("GET", "/abc/k?list-type=2", "127.0.0.1:9000")
	f.Add("PUT", "http://h/abc//k?uploadId=1&partNumber=2", "h")
	f.Add("POST", "/abc?delete&acl=%zz", "")
	f.Add("GET", "/k?versionId=null", "abc.s3.example.com:9000")
	f.Fuzz(func(t *testing.T, method, uri, host string) {
		r := &http.Request{Method: method, RequestURI: uri, URL: &url.URL{}, Host: host, Header: http.Header{}}
		name, served := s3api.OperationName(r)
		for _, suffixes := range [][]string{nil, {"s3.example.com", "example.com"}} {
			bucket, key, code := s3api.ParseTarget(r, suffixes...)
			if name == "" && method != "" || code == "" && bucket != "" && s3api.BadBucketName(bucket) != "" ||
				len(key) > 1024 || code == "" && key != "" && bucket == "" || suffixes == nil && code != "" && served {
				t.Fatalf("%q %q at %q: bucket %q, key %q, %s, %s", method, uri, host, bucket, key, code, name)
			}
		}
	})
}

// private is S3's document of the only access control list that there is here.
const private = `<?xml version="1.0" encoding="UTF-8"?>
<AccessControlPolicy xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Owner><ID>evenkeel</ID><DisplayName>evenkeel</DisplayName></Owner>` +
	`<AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>evenkeel</ID><DisplayName>evenkeel</DisplayName></Grantee>` +
	`<Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>`

func TestVersionsAndACLs(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "hello")
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		s.want(400, "InvalidArgument", method, "/abc/k?versionId=1", "")
		s.want(400, "InvalidArgument", method, "/abc/k?versionId=", "")
	}
	s.want(400, "InvalidArgument", "PUT", "/abc/k?versionId=null", "x")
	require.Equal(t, "hello", s.want(200, "", "GET", "/abc/k?versionId=null", "").body)
	s.want(200, "", "HEAD", "/abc/k?versionId=null", "")
	for _, what := range []string{"/abc?acl", "/abc/k?acl"} {
		s.want(200, "", "PUT", what, "", "x-amz-acl", "private")
		s.want(501, "NotImplemented", "PUT", what, "", "x-amz-acl", "public-read")
		s.want(501, "NotImplemented", "PUT", what, "")
		s.want(501, "NotImplemented", "PUT", what, "<AccessControlPolicy/>", "x-amz-acl", "private")
		s.want(501, "NotImplemented", "PUT", what, "", "x-amz-acl", "private", "x-amz-grant-read", "id=x")
		require.Equal(t, private, s.want(200, "", "GET", what, "").body)
		s.want(200, "", "PUT", what, private)
		s.want(501, "NotImplemented", "PUT", what, private, "x-amz-acl", "private")
		s.want(400, "MalformedACLError", "PUT", what, private[:200])
		for _, other := range []struct{ old, new string }{
			{"<ID>evenkeel</ID>", "<ID>other</ID>"}, {"FULL_CONTROL", "READ"}, {"<Grant>", "<Grant></Grant><Grant>"},
			{"<Grant>", "<Other/><Grant>"},
			{"<Grantee ", "<URI/><Grantee "}, {"</Grantee>",
				"<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>"},
			{"</AccessControlPolicy>", "<Other/></AccessControlPolicy>"}, {"CanonicalUser\"><ID>evenkeel",
				"CanonicalUser\"><ID>other"},
		} {
			require.Contains(t, private, other.old)
			s.want(501, "NotImplemented", "PUT", what, strings.Replace(private, other.old, other.new, 1))
		}
	}
	s.want(404, "NoSuchBucket", "GET", "/none?acl", "")
	s.want(404, "NoSuchKey", "GET", "/abc/none?acl", "")
	s.want(200, "", "GET", "/abc/k?acl&versionId=null", "")
	s.want(400, "InvalidArgument", "GET", "/abc/k?acl&versionId=1", "")
	s.want(404, "NoSuchBucket", "PUT", "/none?acl", "", "x-amz-acl", "private")
	s.want(404, "NoSuchKey", "PUT", "/abc/none?acl", "", "x-amz-acl", "private")
	s.want(204, "", "DELETE", "/abc/k?versionId=null", "")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")

	s.want(200, "", "PUT", "/abc/k", "hello", "Cache-Control", "no-cache", "x-amz-expected-bucket-owner", "evenkeel")
	s.want(403, "AccessDenied", "PUT", "/abc/k", "x", "x-amz-expected-bucket-owner", "111122223333")
	const override = "/abc/k?response-content-type=text/z&response-cache-control=max-age%3D1&" +
		"response-content-disposition=attachment"
	a := s.want(200, "", "GET", override, "")
	got := []string{a.header.Get("Content-Type"), strings.Join(a.header.Values("Cache-Control"), "|"), a.body}
	require.Equal(t, []string{"text/z", "max-age=1", "hello"}, got)
	a = s.want(400, "InvalidArgument", "GET", override+"%0D%0AX:%20y", "")
	require.Empty(t, a.header.Get("X"))
}
