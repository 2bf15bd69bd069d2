package s3api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
	"github.com/evenkeel/evenkeel/s3api"
)

// presignedPut is a presigned PutObject of the admin with further parameters.
func presignedPut(t *testing.T, params string) *http.Request {
	t.Helper()
	now := time.Now().UTC()
	scope := url.QueryEscape("ADMIN/" + now.Format("20060102") + "/us-east-1/s3/aws4_request")
	q := fmt.Sprintf("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s&X-Amz-Expires=60"+
		"&X-Amz-SignedHeaders=host&%s", scope, now.Format("20060102T150405Z"), params)
	r := &sigv4.Request{Method: "PUT", Path: "/photos/k", Query: q, Host: "h", Header: http.Header{}}
	signature, err := presign.Signature(r, "the secret of the admin", "us-east-1", now)
	require.NoError(t, err)
	req := httptest.NewRequest("PUT", "http://h/photos/k?"+q+"&X-Amz-Signature="+signature, strings.NewReader("v"))
	req.RequestURI, req.RemoteAddr = req.URL.RequestURI(), "127.0.0.1:1"
	return req
}

// What would do something to a terminal, or to the answer, is not taken as metadata,
// neither in headers nor in the parameters that stand for them.
func TestControlCharactersInMetadata(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	for params, code := range map[string]string{
		"x-amz-meta-a=ok%20~%C3%BC":             "",
		"x-amz-meta-a=%FF":                      "", // of another encoding
		"x-amz-meta-a=a%00":                     "InvalidArgument",
		"x-amz-meta-a=%0d%0aX-Injected:%201":    "InvalidArgument",
		"x-amz-meta-a=%09":                      "InvalidArgument",
		"x-amz-meta-a=%1b[2J":                   "InvalidArgument",
		"x-amz-meta-a=%7F":                      "InvalidArgument",
		"x-amz-meta-a=%C2%9B2J":                 "InvalidArgument",
		"X-Amz-Meta-a%0d%0aX-Injected=1":        "InvalidArgument",
		"X-Amz-Meta-a%20b=1":                    "InvalidArgument",
		"X-Amz-Meta-%C3%BC=1":                   "InvalidArgument",
		"x-amz-meta-a=1&x-amz-meta-b=%01":       "InvalidArgument",
		"x-amz-meta-a=1&x-amz-meta-a=%01":       "InvalidArgument",
		"x-amz-storage-class=STANDARD%0d%0aX:1": "NotImplemented",
	} {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, presignedPut(t, params))
		if code == "" {
			require.Equal(t, 200, w.Code, "%s: %s", params, w.Body)
		} else {
			require.Contains(t, w.Body.String(), "<Code>"+code+"</Code>", params)
		}
	}
	for _, value := range []string{"a\tb", "\tb", "a\x1b[2J", "\x7f"} { // net/http refuses most before
		r := httptest.NewRequest("PUT", "/abc/k", nil)
		r.Header["X-Amz-Meta-A"] = []string{"x" + value + "x"}
		w := httptest.NewRecorder()
		handle(t, s3api.Options{}).h.ServeHTTP(w, r)
		require.Contains(t, w.Body.String(), "<Code>InvalidArgument</Code>", "%q", value)
	}
	for _, param := range []string{"cache-control", "content-disposition", "content-encoding", "content-language",
		"content-type", "expires"} {
		s.as("ADMIN").want(200, "", "GET", "/photos/k?response-"+param+"=a", "")
		s.as("ADMIN").want(400, "InvalidArgument", "GET", "/photos/k?response-"+param+"=a%1b", "")
	}
}

// A parameter may also say that the object is a copy.
func TestPresignedCopies(t *testing.T) {
	s := serveKeys(t, s3api.Options{})
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	s.as("ADMIN").want(200, "", "PUT", "/photos/from", "copied")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, presignedPut(t, "x-amz-copy-source=/photos/from"))
	require.Contains(t, w.Body.String(), "<CopyObjectResult")
	require.Equal(t, "copied", s.as("ADMIN").want(200, "", "GET", "/photos/k", "").body)
}

// What was stored before, or through the library, is not answered.
func TestControlCharactersThatAreStored(t *testing.T) {
	h := handle(t, s3api.Options{})
	o := s3api.Object{Modified: time.Now(), ContentType: "text/\x1b", Headers: []s3api.Header{
		{Name: "cache-control", Value: "\x1b"}, {Name: "x-amz-meta-a", Value: "\x1b"},
		{Name: "x-amz-meta-b", Value: "ok"},
		{Name: "x-amz-meta-c\n", Value: "ok"},
	}, Body: []byte("v")}
	require.NoError(t, h.c.Bucket("abc").Put(t.Context(), []byte("k"), o.AppendRecord(nil)))
	one := s3api.Object{Headers: []s3api.Header{{Name: "x-amz-meta-a", Value: "\x1b"}}}
	require.NoError(t, h.c.Bucket("abc").Put(t.Context(), []byte("one"), one.AppendRecord(nil)))
	require.Equal(t, "1", h.want(200, "", "HEAD", "/abc/one", "").header.Get("x-amz-missing-meta"))
	for _, method := range []string{"GET", "HEAD"} {
		header := h.want(200, "", method, "/abc/k", "").header
		//lint:ignore SA1008 metadata is answered in lower case, as it was given
		require.Equal(t, []string{"ok"}, header["x-amz-meta-b"])
		require.Equal(t, "3", header.Get("x-amz-missing-meta"))
		require.Equal(t, "binary/octet-stream", header.Get("Content-Type"))
		for name, values := range header {
			require.NotContains(t, name+strings.Join(values, ""), "\x1b")
		}
	}
}
