package s3api_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
	"github.com/evenkeel/evenkeel/s3api"
)

// resourceV2 is what a signature of version 2 covers of a target: the path, and a few parameters.
func resourceV2(target string) string {
	path, query, _ := strings.Cut(target, "?")
	var signed []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		value, _ = url.QueryUnescape(value)
		switch name {
		case "acl", "delete", "lifecycle", "location", "policy", "tagging", "uploads", "versioning", "versions":
			signed = append(signed, name)
		case "partNumber", "uploadId", "versionId", "response-content-type":
			signed = append(signed, name+"="+value)
		}
	}
	if slices.Sort(signed); len(signed) > 0 {
		path += "?" + strings.Join(signed, "&")
	}
	return path
}

// as2 is the server seen with a key that signs requests by version 2, in a header.
func (s *server) as2(id string) *server {
	other := *s
	other.sign = func(r *sigv4.Request, _ string) {
		r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		var headers []string
		for name, values := range r.Header {
			headers = append(headers, name, strings.Join(values, ","))
		}
		signature := presign.SignatureV2("the secret of the "+strings.ToLower(id), r.Method, r.Header.Get("Date"),
			resourceV2(r.Path+"?"+r.Query), headers...)
		r.Header.Set("Authorization", "AWS "+id+":"+signature)
	}
	return &other
}

// presignV2 is a URL that is good for so long. Headers, as pairs, become parameters, as botocore makes them.
func presignV2(id, method, target string, good time.Duration, headers ...string) string {
	expires := fmt.Sprint(time.Now().Add(good).Unix())
	signature := presign.SignatureV2("the secret of the "+strings.ToLower(id), method, expires, resourceV2(target),
		headers...)
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	target += separator + "AWSAccessKeyId=" + id + "&Signature=" + url.QueryEscape(signature) + "&Expires=" + expires
	for i := 0; i < len(headers); i += 2 {
		target += "&" + headers[i] + "=" + url.QueryEscape(headers[i+1])
	}
	return target
}

// serveObjectsWithKeys serves buckets of objects to whoever has a key.
func serveObjectsWithKeys(t *testing.T, change func(*s3api.Options)) *server {
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	s, _ := serveObjectsBy(t, func(o *s3api.Options) {
		o.Keys = keys
		if change != nil {
			change(o)
		}
	})
	return s
}

func TestSignaturesOfVersion2(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	admin := s.as2("ADMIN")
	admin.want(200, "", "PUT", "/photos", "")
	admin.want(200, "", "PUT", "/photos?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	first := admin.want(200, "", "PUT", "/photos/a%20b", "one", "Content-Type", "text/x", "x-amz-meta-a", "b",
		"x-amz-tagging", "k=v").header.Get("x-amz-version-id")
	admin.want(200, "", "PUT", "/photos/a%20b", "two", "x-amz-content-sha256", sigv4.PayloadOf([]byte("two")))
	admin.want(400, "XAmzContentSHA256Mismatch", "PUT", "/photos/a%20b", "two", "x-amz-content-sha256",
		sigv4.PayloadOf([]byte("three")))
	require.Equal(t, "two", admin.want(200, "", "GET", "/photos/a%20b", "").body)
	a := admin.want(200, "", "GET", "/photos/a%20b?versionId="+first+"&response-content-type=text%2Fother", "")
	require.Equal(t, "one", a.body)
	require.Equal(t, "text/other", a.header.Get("Content-Type"))
	require.Equal(t, "b", a.header.Get("x-amz-meta-a"))
	admin.want(200, "", "HEAD", "/photos/a%20b", "")
	admin.want(200, "", "GET", "/photos?list-type=2&prefix=a", "")
	admin.want(200, "", "GET", "/photos/a%20b?tagging&versionId="+first, "")
	admin.want(200, "", "GET", "/photos?location", "")
	require.Contains(t, admin.want(200, "", "PUT", "/photos/copy", "", "x-amz-copy-source", "photos%2Fa%20b").body,
		"CopyObjectResult")
	var up struct{ UploadId string }
	require.NoError(t, xml.Unmarshal([]byte(admin.want(200, "", "POST", "/photos/u?uploads=", "").body), &up))
	tag := admin.want(200, "", "PUT", "/photos/u?partNumber=1&uploadId="+up.UploadId, "part").header.Get("ETag")
	admin.want(200, "", "POST", "/photos/u?uploadId="+up.UploadId,
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+tag+
			"</ETag></Part></CompleteMultipartUpload>")
	sum := md5.Sum([]byte("<Delete><Object><Key>u</Key></Object></Delete>"))
	admin.want(200, "", "POST", "/photos?delete", "<Delete><Object><Key>u</Key></Object></Delete>",
		"Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	admin.want(204, "", "DELETE", "/photos/copy", "")

	s.as2("NOBODY").want(403, "InvalidAccessKeyId", "GET", "/photos/a%20b", "")
	s.as2("READER").want(403, "AccessDenied", "PUT", "/photos/a%20b", "x")
	s.as2("LOGS").want(403, "AccessDenied", "GET", "/photos/a%20b", "")
	wrong := *admin
	wrong.sign = func(r *sigv4.Request, body string) {
		admin.sign(r, body)
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "ADMIN", "READER", 1))
	}
	wrong.want(403, "SignatureDoesNotMatch", "GET", "/photos/a%20b", "")
	late := s.want(403, "RequestTimeTooSkewed", "GET", "/photos/a%20b", "", "Authorization", "AWS ADMIN:x", "Date",
		time.Now().Add(-16*time.Minute).UTC().Format(http.TimeFormat))
	require.Contains(t, late.body, "<MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>")
}

// TestPresignedByVersion2: URLs are good for what they were signed for.
func TestPresignedByVersion2(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	hour := time.Hour
	s.want(200, "", "PUT", presignV2("ADMIN", "PUT", "/photos/k", hour), "body")
	get := presignV2("READER", "GET", "/photos/k", hour)
	require.Equal(t, "body", s.want(200, "", "GET", get, "").body)
	s.want(403, "", "HEAD", get, "")
	s.want(200, "", "HEAD", presignV2("READER", "HEAD", "/photos/k", hour), "")
	s.want(403, "SignatureDoesNotMatch", "GET", presignV2("READER", "HEAD", "/photos/k", hour), "")
	s.want(403, "SignatureDoesNotMatch", "PUT", get, "x")
	s.want(403, "SignatureDoesNotMatch", "DELETE", get, "")
	s.want(403, "SignatureDoesNotMatch", "GET", strings.Replace(get, "/k", "/j", 1), "")
	s.want(403, "SignatureDoesNotMatch", "GET", strings.Replace(get, "READER", "ADMIN", 1), "")
	for _, added := range []string{"acl", "tagging", "versionId=null", "response-content-type=text/html", "uploadId=x",
		"x-amz-checksum-mode=ENABLED", "content-type=text/html"} {
		s.want(403, "SignatureDoesNotMatch", "GET", get+"&"+added, "")
	}
	s.want(501, "NotImplemented", "GET", get+"&x-other=1&foo", "")
	s.want(403, "SignatureDoesNotMatch", "GET", get, "", "x-amz-checksum-mode", "ENABLED")
	s.want(403, "AccessDenied", "GET", get, "", "x-evenkeel-key-bytes", "any")
	s.want(400, "InvalidArgument", "GET", get, "", "Authorization", "AWS READER:x")
	s.want(400, "InvalidArgument", "GET", get+"&X-Amz-Signature=x", "")
	s.want(403, "AccessDenied", "GET", presignV2("READER", "GET", "/photos/k", 0), "")
	s.want(403, "AccessDenied", "GET", presignV2("READER", "GET", "/photos/k", -hour), "")
	s.want(403, "AccessDenied", "GET", presignV2("READER", "GET", "/photos/k", 8*24*hour), "")
	s.want(200, "", "GET", presignV2("READER", "GET", "/photos/k", 7*24*hour), "")
	s.want(403, "AccessDenied", "PUT", presignV2("READER", "PUT", "/photos/k", hour), "x")
	s.want(403, "AccessDenied", "GET", presignV2("LOGS", "GET", "/photos/k", hour), "")

	// A listing's prefix is not signed. The key's own limits hold.
	list := presignV2("LOGS", "GET", "/photos", hour)
	s.want(200, "", "GET", list+"&prefix=p/", "")
	s.want(403, "AccessDenied", "GET", list, "")
	s.want(403, "AccessDenied", "GET", list+"&prefix=k", "")

	// Parameters that stand for headers count like headers.
	s.want(200, "", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, "content-type", "text/x", "x-amz-meta-a", "b c",
		"x-amz-acl", "private"), "h")
	a := s.want(200, "", "GET", presignV2("READER", "GET", "/photos/h", hour), "")
	require.Equal(t, "text/x", a.header.Get("Content-Type"))
	require.Equal(t, "b c", a.header.Get("x-amz-meta-a"))
	s.want(200, "", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, "Content-Type", "text/y"), "h", "Content-Type",
		"text/y")
	s.want(403, "SignatureDoesNotMatch", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, "content-type", "text/y"),
		"h", "Content-Type", "text/z")
	s.want(501, "NotImplemented", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, "x-amz-acl", "public-read"), "h")
	sum := md5.Sum([]byte("signed"))
	digest := []string{"content-md5", base64.StdEncoding.EncodeToString(sum[:])}
	s.want(200, "", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, digest...), "signed")
	s.want(400, "BadDigest", "PUT", presignV2("ADMIN", "PUT", "/photos/h", hour, digest...), "another")
	source := []string{"x-amz-copy-source", "/photos/k"}
	require.Contains(t, s.want(200, "", "PUT", presignV2("ADMIN", "PUT", "/photos/c", hour, source...), "").body,
		"CopyObjectResult")
	s.want(403, "AccessDenied", "PUT", presignV2("LOGS", "PUT", "/photos/p/c", hour, source...), "")
}

// TestWhatVersion2DoesNotSign: nobody makes a write of something else by a parameter that the signature leaves out.
func TestWhatVersion2DoesNotSign(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	admin := s.as2("ADMIN")
	admin.want(200, "", "PUT", "/photos", "")
	admin.want(200, "", "PUT", "/photos/k", "v")
	for _, c := range []struct{ method, target string }{
		{"POST", "/photos?evenkeel-delete-range"}, {"POST", "/photos?evenkeel-delete-range&prefix=k"},
		{"PUT", "/cuts?evenkeel-cuts"},
	} {
		a := admin.want(400, "InvalidRequest", c.method, c.target, "k\n")
		require.Contains(t, a.body, "please use AWS4-HMAC-SHA256")
	}
	admin.want(501, "NotImplemented", "PUT", "/photos/k?renameObject", "")
	admin.want(501, "NotImplemented", "PUT", "/photos/k?encryption", "")
	admin.want(200, "", "GET", "/photos/k?attributes", "", "x-amz-object-attributes", "ETag")
	require.Equal(t, "v", admin.want(200, "", "GET", "/photos/k", "").body)
	s.as("ADMIN").want(404, "NoSuchBucket", "HEAD", "/cuts", "")
	admin.want(403, "AccessDenied", "PUT", "/photos/%FF", "v", "x-evenkeel-key-bytes", "any")
}

// TestVersion2IsRefused where the server or the key says so.
func TestVersion2IsRefused(t *testing.T) {
	keys := "keys:\n- {id: ADMIN, secret: the secret of the admin, access: read-write, everything: true, " +
		"signatures: v4}\n" +
		"- {id: READER, secret: the secret of the reader, access: read-only, everything: true}\ncomplete: true\n"
	set, err := s3api.ParseKeys([]byte(keys))
	require.NoError(t, err)
	require.True(t, set["ADMIN"].V4Only)
	require.False(t, set["READER"].V4Only)
	s := serveObjectsWithKeys(t, func(o *s3api.Options) { o.Keys = set })
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	refused := func(s *server, id string) {
		a := s.as2(id).want(400, "InvalidRequest", "GET", "/photos", "")
		require.Contains(t, a.body, "Please use AWS4-HMAC-SHA256")
		s.want(400, "InvalidRequest", "GET", presignV2(id, "GET", "/photos", time.Hour), "")
	}
	refused(s, "ADMIN")
	s.as2("READER").want(200, "", "GET", "/photos", "")
	s = serveObjectsWithKeys(t, func(o *s3api.Options) { o.RefuseSignatureV2 = true })
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	refused(s, "ADMIN")
	refused(s, "READER")
	refused(s, "NOBODY")
}

// TestBodiesOfVersion2: no signature of version 2 covers a body, but one may cover its digest.
func TestBodiesOfVersion2(t *testing.T) {
	s := serveObjectsWithKeys(t, func(o *s3api.Options) { o.HostSuffixes = []string{"s3.example.test"} })
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	sum := md5.Sum([]byte("v"))
	b64 := base64.StdEncoding.EncodeToString(sum[:])
	for _, c := range []struct {
		from, body string
		headers    []string
		status     int
	}{
		{"127.0.0.1:1", "v", nil, 200}, {"192.0.2.9:1", "v", nil, 403},
		{"192.0.2.9:1", "v", []string{"content-md5", b64}, 200},
		{"192.0.2.9:1", "w", []string{"content-md5", b64}, 400},
		{"192.0.2.9:1", "v", []string{"x-amz-content-sha256", sigv4.PayloadOf([]byte("v"))}, 200},
		{"192.0.2.9:1", "v", []string{"x-amz-content-sha256", sigv4.UnsignedPayload}, 403},
		{"127.0.0.1:1", "v", []string{"x-amz-content-sha256", sigv4.SignedChunks}, 400},
	} {
		for _, host := range []string{"photos.s3.example.test:81", "127.0.0.1"} {
			r := httptest.NewRequest("PUT", "http://"+host+"/k", strings.NewReader(c.body))
			if host == "127.0.0.1" {
				r = httptest.NewRequest("PUT", "http://"+host+"/photos/k", strings.NewReader(c.body))
			}
			r.RemoteAddr = c.from
			r.Header.Set("Date", time.Now().UTC().Format(time.RFC1123Z))
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			r.Header.Set("Authorization", "AWS ADMIN:"+presign.SignatureV2("the secret of the admin", "PUT",
				r.Header.Get("Date"), "/photos/k", c.headers...))
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, "%+v: %s", c, w.Body)
		}
	}
}
