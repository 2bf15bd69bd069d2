package s3api_test

import (
	"crypto/md5"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
)

// serveFrom serves a request that comes from an address, with headers as they are.
func (s *server) serveFrom(from, method, target, body string, headers http.Header) answer {
	r := httptest.NewRequest(method, "http://example.com"+target, strings.NewReader(body))
	r.RemoteAddr, r.Header = from, headers
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// presignV4 is a URL with a signature of version 4, with the headers as parameters.
func presignV4(t *testing.T, method, target string, headers ...string) string {
	now := time.Now().UTC()
	path, query, _ := strings.Cut(target, "?")
	if query != "" {
		query += "&"
	}
	query += "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=" + now.Format("20060102T150405Z") +
		"&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Credential=" +
		url.QueryEscape("ADMIN/"+now.Format("20060102")+"/us-east-1/s3/aws4_request")
	for i := 0; i < len(headers); i += 2 {
		query += "&" + headers[i] + "=" + url.QueryEscape(headers[i+1])
	}
	r := &sigv4.Request{Method: method, Path: path, Query: query, Host: "example.com", Header: http.Header{}}
	signature, err := presign.Signature(r, "the secret of the admin", "us-east-1", now)
	require.NoError(t, err)
	return path + "?" + query + "&X-Amz-Signature=" + signature
}

// TestSignedHeadersCannotBeChanged by whoever holds a presigned URL, or has seen a request.
func TestSignedHeadersCannotBeChanged(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	admin := s.as2("ADMIN")
	admin.want(200, "", "PUT", "/photos", "")
	for _, key := range []string{"a", "a,b", "k", "k%20", "k%C2%A0", "a:b"} {
		admin.want(200, "", "PUT", "/photos/"+key, "of "+key)
	}
	const near = "127.0.0.1:1"
	sum := sha256.Sum256([]byte("v"))
	digest := []string{"x-amz-checksum-sha256", b64(sum[:])}
	tagged := []string{"x-amz-tagging", "k=v"}
	source := []string{"x-amz-copy-source", "/photos/k"}
	hour := time.Hour
	for _, c := range []struct {
		name          string
		signed        []string
		old, new      string // in the URL
		header, value string
		status        int
		body          string // that is there then
	}{
		{"digest", digest, "", "", "", "", 400, ""},
		{"no digest", digest, "checksum", "chec%E2%84%AAsum", "", "", 400, ""},
		{"other tags", tagged, "tagging", "tagg%C4%B0ng", "X-Amz-Tagging", "evil=1", 400, ""},
		{"tags", tagged, "", "", "", "", 200, "w"},
		{"tags in capitals", tagged, "tagging", "TAGGING", "", "", 200, "w"},
		{"copy", source, "", "", "", "", 200, "of k"},
		{"copy of a blank", source, "photos%2Fk", "photos%2Fk%20", "", "", 200, "of k"},
		{"copy of a no-break space", source, "photos%2Fk", "photos%2Fk%C2%A0", "", "", 403, ""},
		{"copy by half a name", source, "copy-source=%2F", "copy-source%3A%2F=", "", "", 400, ""},
		{"two in one", append([]string{"x-amz-acl", "private"}, source...), "=private&x-amz-copy-source=",
			"%3Aprivate%0Ax-amz-copy-source=", "", "", 400, ""},
	} {
		target := presignV2("ADMIN", "PUT", "/photos/to", hour, c.signed...)
		require.Contains(t, target, c.old)
		head, tail, _ := strings.Cut(target, "&Expires=")
		headers := http.Header{}
		if c.header != "" {
			headers[c.header] = []string{c.value}
		}
		a := s.serveFrom(near, "PUT", head+"&Expires="+strings.Replace(tail, c.old, c.new, 1), "w", headers)
		assert.Equal(t, c.status, a.status, "%s: %s", c.name, a.body)
		got := admin.do("GET", "/photos/to", "")
		if c.body == "" {
			assert.Equal(t, 404, got.status, "%s: %s", c.name, got.body)
		} else {
			assert.Equal(t, c.body, got.body, c.name)
		}
		admin.want(204, "", "DELETE", "/photos/to", "")
	}

	// One header line as two.
	for _, version := range []int{2, 4} {
		h := http.Header{"X-Amz-Copy-Source": {"/photos/a,b"}}
		if version == 2 {
			date := time.Now().UTC().Format(http.TimeFormat)
			h.Set("Date", date)
			h.Set("Authorization", "AWS ADMIN:"+presign.SignatureV2("the secret of the admin", "PUT", date, "/photos/to",
				"x-amz-copy-source", "/photos/a,b"))
		} else {
			require.NoError(t, sigv4.Sign(&sigv4.Request{Method: "PUT", Path: "/photos/to", Host: "example.com", Header: h},
				"ADMIN", "the secret of the admin", "us-east-1", sigv4.PayloadOf(nil), time.Now()))
		}
		h["X-Amz-Copy-Source"] = []string{"/photos/a", "b"}
		a := s.serveFrom(near, "PUT", "/photos/to", "", h)
		assert.Equal(t, 200, a.status, "%d: %s", version, a.body)
		assert.Equal(t, "of a,b", admin.want(200, "", "GET", "/photos/to", "").body, "version %d", version)
	}

	// Names of other parameters, of version 4.
	a := s.serveFrom(near, "PUT", presignV4(t, "PUT", "/photos/to4", "x-amz-tagg%C4%B0ng", "k=v"), "w", http.Header{})
	assert.Equal(t, "InvalidArgument", a.code(), a.body)
	// net/http lets no names pass that are no tokens.
	for _, name := range []string{"X-Amz-Tagg\u0130ng", "X-Amz-Tag\u212A", "X-Amz-A b", "X-Amz-A\x00", "X-Amz-A "} {
		got := s.raw("PUT /photos/k HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" + name + ": v\r\n\r\n")
		assert.Contains(t, got, "400 Bad Request", name)
		assert.NotContains(t, strings.ToLower(got), "x-amz-request-id", name)
	}
}

// TestHoistedDigestsCoverBodies: a digest in the query of a presigned URL is signed, too.
func TestHoistedDigestsCoverBodies(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	sha, sum := sha256.Sum256([]byte("v")), md5.Sum([]byte("v"))
	ofMD5, ofSHA := []string{"content-md5", b64(sum[:])}, []string{"x-amz-checksum-sha256", b64(sha[:])}
	ofCRC := []string{"x-amz-checksum-crc32", "a2Q7hA=="}
	url2 := func(headers ...string) string { return presignV2("ADMIN", "PUT", "/photos/k", time.Hour, headers...) }
	url4 := func(headers ...string) string { return presignV4(t, "PUT", "/photos/k", headers...) }
	header := func(pairs []string) http.Header {
		return http.Header{http.CanonicalHeaderKey(pairs[0]): {pairs[1]}}
	}
	for _, c := range []struct {
		name, target, body string
		header             http.Header
		status             int
	}{
		{"none", url2(), "v", http.Header{}, 403},
		{"MD5", url2(ofMD5...), "v", http.Header{}, 200},
		{"MD5, another body", url2(ofMD5...), "w", http.Header{}, 400},
		{"MD5 in the header, too", url2(ofMD5...), "v", header(ofMD5), 200},
		{"MD5 in the header", strings.Split(url2(ofMD5...), "&content-md5")[0], "v", header(ofMD5), 200},
		{"an empty MD5", url2("content-md5", ""), "v", http.Header{}, 403},
		{"SHA-256", url2(ofSHA...), "v", http.Header{}, 200},
		{"SHA-256, another body", url2(ofSHA...), "w", http.Header{}, 400},
		{"CRC", url2(ofCRC...), "v", http.Header{}, 403},
		{"version 4, none", url4(), "v", http.Header{}, 403},
		{"version 4, SHA-256", url4(ofSHA...), "v", http.Header{}, 200},
		{"version 4, SHA-256, another body", url4(ofSHA...), "w", http.Header{}, 400},
		{"version 4, MD5, which stands for no header", url4(ofMD5...), "v", header(ofMD5), 403},
		{"version 4, CRC", url4(ofCRC...), "v", http.Header{}, 403},
	} {
		a := s.serveFrom("192.0.2.9:1", "PUT", c.target, c.body, c.header)
		assert.Equal(t, c.status, a.status, "%s: %s", c.name, a.body)
	}
}

// TestChecksumsOfObjectsCoverNoDocument: the headers of a completion have the object's checksum, not that of its
// document.
func TestChecksumsOfObjectsCoverNoDocument(t *testing.T) {
	s := serveObjectsWithKeys(t, nil)
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	const doc = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>"
	sha, sum := sha256.Sum256([]byte(doc)), md5.Sum([]byte(doc))
	const target = "/photos/k?uploadId=x"
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"x-amz-checksum-sha256", b64(sha[:]), 403}, {"x-amz-checksum-sha1", "x", 403},
		{"content-md5", b64(sum[:]), 400}, // of a part that is not there
	} {
		h := http.Header{}
		h.Set(c.header, c.value)
		require.NoError(t, sigv4.Sign(&sigv4.Request{Method: "POST", Path: "/photos/k", Query: "uploadId=x",
			Host: "example.com", Header: h}, "ADMIN", "the secret of the admin", "us-east-1", sigv4.UnsignedPayload,
			time.Now()))
		of2 := presignV2("ADMIN", "POST", target, time.Hour, c.header, c.value)
		for name, a := range map[string]answer{
			"4":            s.serveFrom("192.0.2.9:1", "POST", target, doc, h),
			"2, presigned": s.serveFrom("192.0.2.9:1", "POST", of2, doc, http.Header{}),
		} {
			assert.Equal(t, c.status, a.status, "%s %s: %s", c.header, name, a.body)
		}
	}
}
