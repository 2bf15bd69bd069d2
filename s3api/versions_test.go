package s3api_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// serveObjects is a server of a store in memory, with bodies in a directory.
func serveObjects(t *testing.T) (s *server, bodies fs.FS) {
	return serveObjectsBy(t, func(*s3api.Options) {})
}

// serveObjectsBy is serveObjects with other options.
func serveObjectsBy(t *testing.T, change func(*s3api.Options)) (s *server, bodies fs.FS) {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	blobs, err := fileblobs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, blobs.Close()) })
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(t, err)
	options := s3api.Options{SoleWriter: true, Objects: o}
	change(&options)
	s = serve(t, s3api.Over(c), options)
	s.buckets = c
	return s, os.DirFS(dir)
}

// files counts the files below a directory of bodies, but for its mark.
func files(t *testing.T, dir fs.FS) (n int) {
	t.Helper()
	require.NoError(t, fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && name != ".unfinished" {
			n++
		}
		return err
	}))
	return n
}

// keptVersion is a version as S3's rules have it.
type keptVersion struct {
	id, body string
	marker   bool
}

// keptBucket has the versions of keys, newest first.
type keptBucket struct {
	status string // "", Enabled or Suspended
	keys   map[string][]keptVersion
}

func (k *keptBucket) add(key string, v keptVersion) {
	versions := k.keys[key]
	if k.status != "Enabled" {
		v.id = "null"
		versions = slices.DeleteFunc(versions, func(old keptVersion) bool { return old.id == "null" })
	}
	k.keys[key] = append([]keptVersion{v}, versions...)
}

type versionsDocument struct {
	Truncated   bool   `xml:"IsTruncated"`
	NextKey     string `xml:"NextKeyMarker"`
	NextVersion string `xml:"NextVersionIdMarker"`
	Lines       []struct {
		XMLName        xml.Name
		Key, VersionId string
		Latest         bool `xml:"IsLatest"`
		Size           int
	} `xml:",any"`
}

// TestVersionsAgainstAModel makes and deletes versions at random, and compares what is read and
// listed with S3's rules.
func TestVersionsAgainstAModel(t *testing.T) {
	rnd := seed.New(t)
	for range race.Fewer(3) {
		s, _ := serveObjects(t)
		s.want(200, "", "PUT", "/abc", "")
		k := &keptBucket{keys: map[string][]keptVersion{}}
		keys := []string{"a", "a/b", "ab", "b c", "ü", "a\x00", "a\x00\x01"}
		for i := range 250 {
			key := keys[rnd.IntN(len(keys))]
			uri := "/abc/" + url.PathEscape(key)
			switch rnd.IntN(10) {
			case 0:
				if rnd.IntN(3) == 0 {
					k.status = []string{"Enabled", "Suspended"}[rnd.IntN(2)]
					s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>"+k.status+
						"</Status></VersioningConfiguration>")
					require.Contains(t, s.want(200, "", "GET", "/abc?versioning", "").body, "<Status>"+k.status+"<")
				}
			case 1, 2, 3, 4:
				body := fmt.Sprint(i, strings.Repeat("x", rnd.IntN(3)*4000))
				id := s.want(200, "", "PUT", uri, body).header.Get("x-amz-version-id")
				if k.status == "Suspended" {
					require.Empty(s.t, id)
					id = "null"
				}
				s.checkID(k, id)
				k.add(key, keptVersion{id, body, false})
			case 5, 6:
				a := s.want(204, "", "DELETE", uri, "")
				s.checkID(k, a.header.Get("x-amz-version-id"))
				require.Equal(t, k.status != "", a.header.Get("x-amz-delete-marker") == "true")
				k.add(key, keptVersion{a.header.Get("x-amz-version-id"), "", true})
			case 7:
				if versions := k.keys[key]; k.status != "" && len(versions) > 0 {
					at := rnd.IntN(len(versions))
					v := versions[at]
					a := s.want(204, "", "DELETE", uri+"?versionId="+v.id, "")
					require.Equal(t, v.id, a.header.Get("x-amz-version-id"))
					require.Equal(t, v.marker, a.header.Get("x-amz-delete-marker") == "true")
					k.keys[key] = slices.Delete(slices.Clone(versions), at, at+1)
					s.want(204, "", "DELETE", uri+"?versionId="+v.id, "")
				}
			case 8:
				s.checkReads(k, uri, k.keys[key])
			case 9:
				s.checkVersions(rnd, k)
			}
		}
		s.checkVersions(rnd, k)
		for _, key := range keys {
			s.checkReads(k, "/abc/"+url.PathEscape(key), k.keys[key])
		}
	}
}

func (s *server) checkID(k *keptBucket, id string) {
	s.t.Helper()
	switch k.status {
	case "":
		require.Empty(s.t, id)
	case "Suspended":
		require.Equal(s.t, "null", id)
	default:
		require.Len(s.t, id, 28)
	}
}

// checkReads compares reads of all versions of a key.
func (s *server) checkReads(k *keptBucket, uri string, versions []keptVersion) {
	s.t.Helper()
	if len(versions) == 0 || versions[0].marker {
		a := s.want(404, "NoSuchKey", "GET", uri, "")
		require.Equal(s.t, len(versions) > 0 && k.status != "", a.header.Get("x-amz-delete-marker") == "true")
	} else {
		a := s.want(200, "", "GET", uri, "")
		require.Equal(s.t, versions[0].body, a.body)
		require.Equal(s.t, k.status != "", a.header.Get("x-amz-version-id") == versions[0].id)
	}
	if k.status == "" {
		return
	}
	for _, v := range versions {
		if v.marker {
			a := s.want(405, "MethodNotAllowed", "GET", uri+"?versionId="+v.id, "")
			require.Equal(s.t, "true", a.header.Get("x-amz-delete-marker"))
			continue
		}
		require.Equal(s.t, v.body, s.want(200, "", "GET", uri+"?versionId="+v.id, "").body)
		require.Equal(s.t, v.body[:1], s.want(206, "", "GET", uri+"?versionId="+v.id, "", "Range", "bytes=0-0").body)
	}
	s.want(404, "NoSuchVersion", "GET", uri+"?versionId=fff99f153bb5b5195e63ebe03c47", "")
	s.want(400, "InvalidArgument", "GET", uri+"?versionId=x", "")
}

// checkVersions compares the listing of versions, by pages of a random size.
func (s *server) checkVersions(rnd *rand.Rand, k *keptBucket) {
	s.t.Helper()
	var want, got []string
	names := make([]string, 0, len(k.keys))
	for key := range k.keys {
		names = append(names, key)
	}
	slices.Sort(names)
	for _, key := range names {
		versions := k.keys[key]
		if k.status == "" { // the newest, or nothing
			versions = slices.DeleteFunc(slices.Clone(versions), func(v keptVersion) bool { return v.marker })
		}
		for i, v := range versions {
			want = append(want, fmt.Sprintf("%q %s %d %t %t", key, v.id, len(v.body), v.marker, i == 0))
		}
	}
	size := 1 + rnd.IntN(5)
	marker, version := "", ""
	for {
		q := url.Values{"versions": {""}, "max-keys": {fmt.Sprint(size)}, "encoding-type": {"url"}}
		if marker != "" {
			q.Set("key-marker", marker)
		}
		if version != "" {
			q.Set("version-id-marker", version)
		}
		var d versionsDocument
		require.NoError(s.t, xml.Unmarshal([]byte(s.want(200, "", "GET", "/abc?"+q.Encode(), "").body), &d))
		n := 0
		for _, l := range d.Lines {
			if kind := l.XMLName.Local; kind == "Version" || kind == "DeleteMarker" {
				n++
				key, err := url.PathUnescape(l.Key)
				require.NoError(s.t, err)
				got = append(got, fmt.Sprintf("%q %s %d %t %t", key, l.VersionId, l.Size, kind == "DeleteMarker", l.Latest))
			}
		}
		if !d.Truncated {
			break
		}
		require.Equal(s.t, size, n, "only the last page is short")
		var err error
		marker, err = url.PathUnescape(d.NextKey)
		require.NoError(s.t, err)
		version = d.NextVersion
	}
	require.Equal(s.t, want, got)
}

// A body of any size is seen only once all that was said of it has turned out to be true; else
// nothing of it stays.
func TestLargeBodiesThatAreRefusedLeaveNothing(t *testing.T) {
	s, bodies := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "before")
	large := strings.Repeat("0123456789abcdef", 20_000)
	sum := func(text string) []byte { d := sha256.Sum256([]byte(text)); return d[:] }
	for _, c := range []struct {
		code   string
		body   string
		header []string
	}{
		{"XAmzContentSHA256Mismatch", large, []string{"x-amz-content-sha256", hex.EncodeToString(sum("other"))}},
		{"BadDigest", large, []string{"x-amz-checksum-sha256", base64.StdEncoding.EncodeToString(sum("other"))}},
		{"BadDigest", large, []string{"Content-MD5", md5Of("other")}},
		{"InvalidDigest", large, []string{"Content-MD5", "x"}},
		{"NotImplemented", large, []string{"x-amz-checksum-xxhash", "x"}},
		{"BadDigest", chunked(large, []int{100_000}, false, "x-amz-checksum-crc32:AAAAAA=="), []string{
			"Content-Encoding", "aws-chunked", "x-amz-decoded-content-length", fmt.Sprint(len(large)),
			"x-amz-trailer", "x-amz-checksum-crc32"}},
		{"MalformedTrailerError", chunked(large, []int{100_000}, false), []string{"Content-Encoding", "aws-chunked",
			"x-amz-decoded-content-length", fmt.Sprint(len(large)), "x-amz-trailer", "x-amz-checksum-crc32"}},
		{"IncompleteBody", chunked(large, []int{100_000}, false), []string{"Content-Encoding", "aws-chunked",
			"x-amz-decoded-content-length", fmt.Sprint(len(large) + 1)}},
		{"EntityTooLarge", chunked("x", nil, false), []string{"Content-Encoding", "aws-chunked",
			"x-amz-decoded-content-length", fmt.Sprint(int64(5<<30 + 1))}},
		{"PreconditionFailed", large, []string{"If-None-Match", "*"}},
		{"PreconditionFailed", large, []string{"If-Match", "other"}},
		{"NotImplemented", large, []string{"x-evenkeel-size", "5", "x-evenkeel-etag", "e"}},
	} {
		a := s.do("PUT", "/abc/k", c.body, c.header...)
		require.Equal(t, c.code, a.code(), "%q", c.header)
		require.Equal(t, "before", s.want(200, "", "GET", "/abc/k", "").body)
	}
	require.Zero(t, files(t, bodies))
	a := s.want(200, "", "PUT", "/abc/k", large, "x-amz-checksum-sha256", base64.StdEncoding.EncodeToString(sum(large)))
	require.Equal(t, base64.StdEncoding.EncodeToString(sum(large)), a.header.Get("x-amz-checksum-sha256"))
	a = s.want(200, "", "GET", "/abc/k", "", "x-amz-checksum-mode", "ENABLED")
	require.Equal(t, large, a.body)
	require.Equal(t, base64.StdEncoding.EncodeToString(sum(large)), a.header.Get("x-amz-checksum-sha256"))
	require.Equal(t, 1, files(t, bodies))
	a = s.want(200, "", "PUT", "/abc/small", "hello", "x-amz-checksum-sha256", base64.StdEncoding.EncodeToString(sum("hello")))
	require.Equal(t, base64.StdEncoding.EncodeToString(sum("hello")), a.header.Get("x-amz-checksum-sha256"))
	s.stop()
	slots, small, rest, askers := s.handler.(*s3api.Handler).Held()
	require.Equal(t, []int64{0, 0, 0, 0}, []int64{int64(slots), small, rest, int64(askers)})
}

// Headers that mean nothing where nothing is locked are accepted: teardowns of test suites send them.
func TestHeadersThatMeanNothing(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "", "x-amz-bucket-object-lock-enabled", "false")
	s.want(200, "", "PUT", "/abc/k", "v", "x-amz-object-lock-legal-hold", "OFF", "x-amz-storage-class", "STANDARD")
	doc := "<Delete><Object><Key>k</Key><VersionId>null</VersionId></Object></Delete>"
	for _, header := range []string{"x-amz-bypass-governance-retention", "x-amz-mfa"} {
		s.want(200, "", "POST", "/abc?delete", doc, "Content-MD5", md5Of(doc), header, "true")
		s.want(204, "", "DELETE", "/abc/k?versionId=null", "", header, "true")
		s.want(204, "", "DELETE", "/abc/k", "", header, "true")
	}
	s.want(204, "", "DELETE", "/abc", "")
}

// Buckets of either kind keep their kind, whatever the server makes by default.
func TestKindsOfBuckets(t *testing.T) {
	s, _ := serveObjects(t)
	for kind, header := range map[string][]string{
		"objects": nil, "plain": {"x-evenkeel-bucket-kind", "plain"},
	} {
		s.want(200, "", "PUT", "/a-"+kind, "", header...)
		require.Equal(t, kind, s.want(200, "", "HEAD", "/a-"+kind, "").header.Get("x-evenkeel-bucket-kind"))
	}
	s.want(400, "InvalidArgument", "PUT", "/other", "", "x-evenkeel-bucket-kind", "other")
	s.want(501, "NotImplemented", "PUT", "/a-plain?versioning", "")
	s.want(200, "", "PUT", "/a-plain/k", "plain")
	s.want(200, "", "PUT", "/a-plain/elsewhere", "", "x-evenkeel-size", "5", "x-evenkeel-etag", "e")
	s.want(409, "ObjectBodyElsewhere", "PUT", "/a-objects/k", "", "x-amz-copy-source", "/a-plain/elsewhere")
	s.want(200, "", "PUT", "/a-objects/k", "", "x-amz-copy-source", "/a-plain/k")
	require.Equal(t, "plain", s.want(200, "", "GET", "/a-objects/k", "").body)
	s.want(200, "", "PUT", "/a-plain/back", "", "x-amz-copy-source", "/a-objects/k")
	require.Equal(t, "plain", s.want(200, "", "GET", "/a-plain/back", "").body)
	s.want(200, "", "PUT", "/a-objects/large", strings.Repeat("x", 5000))
	s.want(400, "EntityTooLarge", "PUT", "/a-plain/large", "", "x-amz-copy-source", "/a-objects/large")

	// A server without objects leaves them alone.
	without := serve(t, s3api.Over(s.buckets), s3api.Options{})
	require.Equal(t, "plain", without.want(200, "", "GET", "/a-plain/k", "").body)
	for _, call := range []string{"GET /a-objects/k", "PUT /a-objects/k", "DELETE /a-objects/k", "GET /a-objects?list-type=2",
		"DELETE /a-objects", "HEAD /a-objects"} {
		method, uri, _ := strings.Cut(call, " ")
		without.want(501, "NotImplemented", method, uri, "")
	}
	without.want(501, "NotImplemented", "PUT", "/other", "", "x-evenkeel-bucket-kind", "objects")

	// Nor does any server touch what a newer one has made.
	require.NoError(t, door.Client(s.buckets).CreateWith(t.Context(), "newer", []byte("o\x02\x00")))
	for _, call := range []string{
		"GET /newer/k", "PUT /newer/k", "DELETE /newer/k", "POST /newer/k?uploads", "GET /newer",
		"HEAD /newer", "DELETE /newer",
		"GET /newer?versioning", "PUT /newer?versioning", "GET /newer?versions", "GET /newer?uploads",
		"GET /newer?evenkeel-splits=2",
	} {
		method, uri, _ := strings.Cut(call, " ")
		s.want(503, "ServiceUnavailable", method, uri, "")
	}
}

// A null version answers to "null" only. Like all others it has an id, which the package objects tells.
func TestANullVersionHasNoOtherName(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	id, etags := s.upload("/abc/k", []string{"the body"}, "")
	s.want(200, "", "POST", "/abc/k?uploadId="+id, completion(etags))
	o, err := objects.New(s.buckets, nil, objects.Options{})
	require.NoError(t, err)
	in, _, err := o.Open(t.Context(), "abc")
	require.NoError(t, err)
	info, err := in.Head(t.Context(), []byte("k"), objects.Latest)
	require.NoError(t, err)
	id = info.ID.String()
	hidden := "/abc/k?versionId=" + id
	for _, status := range []string{"", "Enabled", "Suspended"} {
		if status != "" {
			s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>"+status+
				"</Status></VersioningConfiguration>")
		}
		s.want(404, "NoSuchVersion", "GET", hidden, "")
		s.want(404, "NoSuchVersion", "GET", hidden+"&partNumber=1", "")
		s.want(404, "NoSuchVersion", "PUT", "/abc/copy", "", "x-amz-copy-source", hidden)
		s.want(404, "NoSuchVersion", "PUT", hidden+"&tagging", "<Tagging><TagSet></TagSet></Tagging>")
		s.want(204, "", "DELETE", hidden, "")
		doc := "<Delete><Object><Key>k</Key><VersionId>" + id + "</VersionId></Object></Delete>"
		s.want(200, "", "POST", "/abc?delete", doc, "Content-MD5", md5Of(doc))
		require.Equal(t, "the body", s.want(200, "", "GET", "/abc/k", "").body)
	}
	s.want(204, "", "DELETE", "/abc/k?versionId=null", "")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")
}

// Uploads in parts, and the ways in which they are refused.
func TestUploadsInParts(t *testing.T) {
	s, bodies := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	var begun struct{ UploadId string }
	create := func(key string) string {
		t.Helper()
		a := s.want(200, "", "POST", "/abc/"+key+"?uploads", "", "Content-Type", "text/x", "x-amz-meta-a", "1")
		require.NoError(t, xml.Unmarshal([]byte(a.body), &begun))
		return "/abc/" + key + "?uploadId=" + begun.UploadId
	}
	part := func(n int, etag string) string {
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, etag)
	}
	complete := func(parts ...string) string {
		return "<CompleteMultipartUpload>" + strings.Join(parts, "") + "</CompleteMultipartUpload>"
	}
	big, last := bytes.Repeat([]byte("0123456789"), 530_000), "the end"
	up := create("k")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")
	require.NotContains(t, s.want(200, "", "GET", "/abc?list-type=2", "").body, "<Key>")
	one := s.want(200, "", "PUT", up+"&partNumber=1", string(big)).header.Get("ETag")
	s.want(200, "", "PUT", up+"&partNumber=3", "wrong")
	two := s.want(200, "", "PUT", up+"&partNumber=3", last).header.Get("ETag")
	s.want(400, "BadDigest", "PUT", up+"&partNumber=3", last, "Content-MD5", md5Of("other"))
	for _, bad := range []string{"0", "10001", "x", ""} {
		s.want(400, "InvalidArgument", "PUT", up+"&partNumber="+bad, "")
	}
	s.want(404, "NoSuchUpload", "PUT", "/abc/k?uploadId=x&partNumber=1", "")
	s.want(404, "NoSuchUpload", "PUT", "/abc/other?uploadId="+begun.UploadId+"&partNumber=1", "x")
	listed := s.want(200, "", "GET", up+"&max-parts=1", "").body
	require.Contains(t, listed, "<NextPartNumberMarker>1</NextPartNumberMarker>")
	require.Contains(t, listed, "<IsTruncated>true</IsTruncated>")
	require.Contains(t, s.want(200, "", "GET", up+"&part-number-marker=1", "").body, "<Size>7</Size>")
	for doc, code := range map[string]string{
		"":                     "MalformedXML",
		complete():             "MalformedXML",
		complete(part(0, one)): "MalformedXML",
		complete(part(2, one)): "InvalidPart",
		complete(part(1, "x")): "InvalidPart",
		"<CompleteMultipartUpload><Part><Other/></Part></CompleteMultipartUpload>": "MalformedXML",
		complete(part(3, two), part(1, one)):                                       "InvalidPartOrder",
		complete(part(1, one), part(3, two), part(1, one)):                         "InvalidPartOrder",
		complete(part(1, one), part(1, "x"), part(3, two)):                         "InvalidPart",
	} {
		s.want(400, code, "POST", up, doc)
	}
	small := create("small")
	tiny := s.want(200, "", "PUT", small+"&partNumber=1", "x").header.Get("ETag")
	s.want(404, "NoSuchKey", "PUT", small+"&partNumber=2", "", "x-amz-copy-source", "/abc/none")
	s.want(200, "", "PUT", small+"&partNumber=2", "x")
	s.want(400, "EntityTooSmall", "POST", small, complete(part(1, tiny), part(2, tiny)))
	pages := s.want(200, "", "GET", "/abc?uploads&max-uploads=1", "").body
	require.Contains(t, pages, "<NextKeyMarker>k</NextKeyMarker>")
	require.Contains(t, s.want(200, "", "GET", "/abc?uploads&key-marker=k", "").body, "<Key>small</Key>")
	whole := string(big) + last
	a := s.want(200, "", "POST", up, complete(part(1, "before"), part(1, one), part(3, two))) // the last 1 counts
	require.Contains(t, a.body, "-2&quot;</ETag>")
	a = s.want(200, "", "GET", "/abc/k", "")
	require.Equal(t, whole, a.body)
	require.Equal(t, []string{"text/x", "1"}, []string{a.header.Get("Content-Type"), a.header.Get("x-amz-meta-a")})
	from := len(big) - 3
	require.Equal(t, whole[from:from+6], s.want(206, "", "GET", "/abc/k", "",
		"Range", fmt.Sprintf("bytes=%d-%d", from, from+5)).body)
	require.Equal(t, last, s.want(206, "", "GET", "/abc/k?partNumber=3", "").body)
	require.Equal(t, "2", s.want(206, "", "HEAD", "/abc/k?partNumber=1", "").header.Get("x-amz-mp-parts-count"))
	for _, none := range []string{"2", "4"} {
		s.want(http.StatusBadRequest, "InvalidPart", "GET", "/abc/k?partNumber="+none, "")
	}
	s.want(200, "", "POST", up, complete(part(1, one), part(3, two)))
	s.want(404, "NoSuchUpload", "PUT", up+"&partNumber=4", "late")

	copied := create("copied")
	s.want(400, "InvalidArgument", "PUT", copied+"&partNumber=1", "", "x-amz-copy-source", "/abc/k",
		"x-amz-copy-source-range", "bytes=5-")
	s.want(416, "InvalidRange", "PUT", copied+"&partNumber=1", "", "x-amz-copy-source", "/abc/k",
		"x-amz-copy-source-range", fmt.Sprintf("bytes=5-%d", len(whole)))
	var result struct{ ETag string }
	a = s.want(200, "", "PUT", copied+"&partNumber=1", "", "x-amz-copy-source", "/abc/k",
		"x-amz-copy-source-range", fmt.Sprintf("bytes=10-%d", len(whole)-1))
	require.NoError(t, xml.Unmarshal([]byte(a.body), &result))
	s.want(200, "", "POST", copied, complete(part(1, result.ETag)))
	require.Equal(t, whole[10:], s.want(200, "", "GET", "/abc/copied", "").body)
	s.want(204, "", "DELETE", small, "")
	s.want(404, "NoSuchUpload", "GET", small, "")
	require.NotContains(t, s.want(200, "", "GET", "/abc?uploads", "").body, "<Upload>")

	for _, key := range []string{"k", "copied"} {
		s.want(204, "", "DELETE", "/abc/"+key, "")
	}
	s.want(204, "", "DELETE", "/abc", "")
	require.Zero(t, files(t, bodies))
}

// TestDeletesOfASizeOrTime: the version that shall be deleted must have both; where there is none nothing is to do.
func TestDeletesOfASizeOrTime(t *testing.T) {
	s, _ := serveObjects(t)
	const size, modified = "x-amz-if-match-size", "x-amz-if-match-last-modified-time"
	const longAgo = "Thu, 01 Jan 2015 00:00:00 GMT"
	remove := func(key, version, header, value string) answer {
		uri := "/abc/" + key
		if version != "" {
			uri += "?versionId=" + version
		}
		return s.do("DELETE", uri, "", header, value)
	}
	removeMany := func(key, version, element string) string {
		doc := "<Delete><Object><Key>" + key + "</Key>"
		if version != "" {
			doc += "<VersionId>" + version + "</VersionId>"
		}
		doc += element + "</Object></Delete>"
		return s.want(200, "", "POST", "/abc?delete", doc, "Content-MD5", md5Of(doc)).body
	}
	for _, status := range []string{"", "Enabled", "Suspended"} {
		t.Run("versioning "+status, func(t *testing.T) {
			if s.do("HEAD", "/abc", "").status == 404 {
				s.want(200, "", "PUT", "/abc", "")
			}
			if status != "" {
				s.want(200, "", "PUT", "/abc?versioning", "<VersioningConfiguration><Status>"+status+
					"</Status></VersioningConfiguration>")
			}
			s.want(200, "", "PUT", "/abc/k", "12345")
			at := s.want(200, "", "HEAD", "/abc/k", "").header.Get("Last-Modified")
			for _, c := range []struct{ header, value, element string }{
				{size, "4", "<Size>4</Size>"},
				{modified, longAgo, "<LastModifiedTime>" + longAgo + "</LastModifiedTime>"},
			} {
				require.Equal(t, 412, remove("k", "", c.header, c.value).status)
				require.Contains(t, removeMany("k", "", c.element), "<Code>PreconditionFailed</Code>")
				require.Equal(t, 204, remove("never"+c.header+status, "null", c.header, c.value).status)
				require.Equal(t, 204, remove("none"+c.header+status, "", c.header, c.value).status)
			}
			for header, bad := range map[string]string{size: "-1", modified: "yesterday"} {
				require.Equal(t, "InvalidArgument", remove("k", "", header, bad).code())
			}
			require.Equal(t, 204, remove("k", "", modified, at).status)
			want := 412 // its newest version is a delete marker
			if status == "" {
				want = 204
			}
			require.Equal(t, want, remove("k", "", size, "4").status)
			if status != "" {
				require.Equal(t, 412, remove("k", "", "If-Match", "*").status)
				require.Contains(t, removeMany("k", "", "<ETag>e</ETag>"), "<Code>PreconditionFailed</Code>")
			} else {
				require.Equal(t, "NoSuchKey", remove("k", "", "If-Match", "*").code())
			}
			s.want(404, "", "GET", "/abc/k", "")

			a := s.want(200, "", "PUT", "/abc/k", "12345")
			id := a.header.Get("x-amz-version-id")
			if id == "" {
				id = "null"
			}
			if status == "Enabled" {
				s.want(200, "", "PUT", "/abc/k", "a newer one")
			}
			require.Equal(t, 412, remove("k", id, size, "11").status)
			require.Contains(t, removeMany("k", id, "<Size>5</Size>"), "<Deleted>")
			require.Contains(t, removeMany("k", id, "<Size>4</Size>"), "<Deleted>")
			if status == "Enabled" {
				require.Equal(t, "a newer one", s.want(200, "", "GET", "/abc/k", "").body)
			}
		})
	}
	doc := "<Delete><Object><Key>k</Key><Size>1</Size><Size>2</Size></Object></Delete>"
	s.want(400, "MalformedXML", "POST", "/abc?delete", doc, "Content-MD5", md5Of(doc))
	s.want(501, "NotImplemented", "PUT", "/abc/k", "x", size, "1")
}

// TestETagsOfLargeBodies: a body that is too long for its MD5 to be taken has it as ETag where the client sends it, and
// it is right; a copy has the same. Nothing is stored where it is wrong.
func TestETagsOfLargeBodies(t *testing.T) {
	race.Skip(t)
	s, bodies := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	body := strings.Repeat("0123456789abcdef", 1<<20) + "x"
	sum := md5.Sum([]byte(body))
	whole := fmt.Sprintf("%q", hex.EncodeToString(sum[:]))

	with := s.want(200, "", "PUT", "/abc/with", body, "Content-MD5", md5Of(body))
	require.Equal(t, whole, with.header.Get("ETag"))
	without := s.want(200, "", "PUT", "/abc/without", body)
	require.Regexp(t, `^"[0-9a-f]{28}-1"$`, without.header.Get("ETag"))
	s.want(200, "", "GET", "/abc/without", "", "If-Match", without.header.Get("ETag"))
	for key, etag := range map[string]string{"with": whole, "without": ""} {
		s.want(200, "", "PUT", "/abc/copy", "", "X-Amz-Copy-Source", "/abc/"+key)
		got := s.want(200, "", "HEAD", "/abc/copy", "").header.Get("ETag")
		require.True(t, got == etag || etag == "" && strings.HasSuffix(got, `-1"`), "%s: %s", key, got)
	}
	before := files(t, bodies)
	s.want(400, "BadDigest", "PUT", "/abc/wrong", body, "Content-MD5", md5Of(body+"y"))
	s.want(404, "", "HEAD", "/abc/wrong", "")
	require.Equal(t, before, files(t, bodies))
}

// TestConditionsOfAborts: an upload stays if its abort has a condition that does not hold.
func TestConditionsOfAborts(t *testing.T) {
	g := newParameterGround(t)
	refused := g.want(412, "PreconditionFailed", "DELETE", "/kept/k?uploadId="+g.up, "",
		"x-amz-if-match-initiated-time", "Thu, 01 Jan 2015 00:00:00 GMT")
	require.Contains(t, refused.body, "X-Amz-If-Match-Initiated-Time")
	require.Equal(t, g.before, g.all())
}

// TestACompletedUploadIsNewerThanADeleteBefore, as programs rely on that write an object in parts, delete what had its
// name, and then complete it.
func TestACompletedUploadIsNewerThanADeleteBefore(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc/k", "before")
	id, etags := s.upload("/abc/k", []string{"the body"}, "")
	s.want(204, "", "DELETE", "/abc/k", "")
	first := s.want(200, "", "POST", "/abc/k?uploadId="+id, completion(etags)).body
	require.Equal(t, "the body", s.want(200, "", "GET", "/abc/k", "").body)
	require.Equal(t, first, s.want(200, "", "POST", "/abc/k?uploadId="+id, completion(etags)).body, "once more")
	s.want(204, "", "DELETE", "/abc/k", "")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "")
}
