package s3api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
)

// request makes a request as a server would see it: with a raw request line.
func request(method, uri string) *http.Request {
	r := httptest.NewRequest(method, "/", nil)
	r.RequestURI = uri
	return r
}

func TestKeysComeFromTheRawPath(t *testing.T) {
	for _, c := range []struct{ uri, bucket, key, code string }{
		{"/", "", "", ""},
		{"/?x=1", "", "", ""},
		{"/abc", "abc", "", ""},
		{"/abc/", "abc", "", ""},
		{"/abc/k", "abc", "k", ""},
		{"/abc//k", "abc", "/k", ""},
		{"/abc//", "abc", "/", ""},
		{"/abc/a//b", "abc", "a//b", ""},
		{"/abc/.", "abc", ".", ""},
		{"/abc/..", "abc", "..", ""},
		{"/abc/../d", "abc", "../d", ""},
		{"/abc/./a/../b/", "abc", "./a/../b/", ""},
		{"/abc/a%2Fb", "abc", "a/b", ""},
		{"/abc/%2F%2f", "abc", "//", ""},
		{"/abc/%2E%2E/x", "abc", "../x", ""},
		{"/abc/a+b", "abc", "a+b", ""},
		{"/abc/a%2Bb%20c", "abc", "a+b c", ""},
		{"/abc/%25%32%46", "abc", "%2F", ""},
		{"/abc/%00%FF%0A", "abc", "\x00\xff\n", ""},
		{"/abc/k?key=/other", "abc", "k", ""},
		{"/abc/k%3Fx", "abc", "k?x", ""},
		{"/abc/k#f", "abc", "k#f", ""},
		{"/abc/k;x", "abc", "k;x", ""},
		{"/abc/k?X-Amz-Signature=abc&X-Amz-Date=1", "abc", "k", ""},
		{"http://host:1/abc//k?q", "abc", "/k", ""},
		{"http://host", "", "", ""},
		{"http:///abc/k", "abc", "k", ""},
		{"/abc/http://x", "abc", "http://x", ""},
		{"//", "", "", "InvalidURI"},
		{"//k", "", "", "InvalidURI"},
		{"*", "", "", "InvalidURI"},
		{"/abc/%zz", "", "", "InvalidURI"},
		{"/abc/k?%zz", "", "", "InvalidURI"},
		{"/ab%2Fc/k", "", "", "InvalidBucketName"},
		{"/AB/k", "", "", "InvalidBucketName"},
		{"/abc/" + strings.Repeat("k", 1024), "abc", strings.Repeat("k", 1024), ""},
		{"/abc/" + strings.Repeat("k", 1025), "", "", "KeyTooLongError"},
		{"/abc/" + strings.Repeat("%C3%BC", 512), "abc", strings.Repeat("ü", 512), ""},
		{"/abc/" + strings.Repeat("%C3%BC", 513), "", "", "KeyTooLongError"},
	} {
		bucket, key, code := s3api.ParseTarget(request("GET", c.uri))
		require.Equal(t, []string{c.bucket, c.key, c.code}, []string{bucket, key, code}, c.uri)
	}
}

// A request that no server has read has its target in its URL.
func TestTargetsWithoutARequestLine(t *testing.T) {
	r := httptest.NewRequest("GET", "/abc/a%2Fb?x", nil)
	r.RequestURI = ""
	bucket, key, code := s3api.ParseTarget(r)
	require.Equal(t, []string{"abc", "a/b", ""}, []string{bucket, key, code})
}

func TestBucketsOfHosts(t *testing.T) {
	suffixes := []string{"s3.example.com", "example.com", "localhost"}
	short := request("GET", "/k")
	short.Host = "abc.h"
	bucket, key, code := s3api.ParseTarget(short, "h")
	require.Equal(t, []string{"abc", "k", ""}, []string{bucket, key, code})
	short.Host, short.RequestURI = "abc.", "/abd/k"
	bucket, key, code = s3api.ParseTarget(short, "")
	require.Equal(t, []string{"abd", "k", ""}, []string{bucket, key, code}, "an empty suffix is none")
	for _, c := range []struct{ host, uri, bucket, key, code string }{
		{"abc.s3.example.com", "/k/l", "abc", "k/l", ""},
		{"abc.s3.example.com:9000", "/k", "abc", "k", ""},
		{"ABC.S3.Example.com", "/", "abc", "", ""},
		{"abc.s3.example.com", "/?x", "abc", "", ""},
		{"abc.s3.example.com", "//k", "abc", "/k", ""},
		{"abc.s3.example.com", "/%2F", "abc", "/", ""},
		{"a.b.c.s3.example.com", "/abc/k", "a.b.c", "abc/k", ""},
		{"abc.example.com", "/k", "abc", "k", ""},
		{"s3.example.com", "/abc/k", "abc", "k", ""},
		{"example.com", "/abc/k", "abc", "k", ""},
		{"abcexample.com", "/abc/k", "abc", "k", ""},
		{"other.org", "/abc/k", "abc", "k", ""},
		{"127.0.0.1:9000", "/abc/k", "abc", "k", ""},
		{"[::1]:9000", "/abc/k", "abc", "k", ""},
		{"", "/abc/k", "abc", "k", ""},
		{"abc.localhost:1", "/", "abc", "", ""},
		{"a_b.s3.example.com", "/k", "", "", "InvalidBucketName"},
		{".s3.example.com", "/abc/k", "s3", "", "InvalidBucketName"},
	} {
		r := request("GET", c.uri)
		r.Host = c.host
		bucket, key, code := s3api.ParseTarget(r, suffixes...)
		if c.code != "" {
			bucket, key, c.bucket, c.key = "", "", "", ""
		}
		require.Equal(t, []string{c.bucket, c.key, c.code}, []string{bucket, key, code}, "%s%s", c.host, c.uri)
	}
}

func TestBucketNames(t *testing.T) {
	for _, good := range []string{"abc", "a-b.c", "0aa", "1.2.3", "a1.2.3.4", "1.2.3.4.5", "a.-b",
		strings.Repeat("a", 63)} {
		require.Empty(t, s3api.BadBucketName(good), good)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("a", 64), "Abc", "a_b", "-abc", "abc-", ".abc", "abc.",
		"a..b",
		"192.168.5.4", "1.2.3.4", "xn--abc", "sthree-abc", "amzn-s3-demo-x", "abc-s3alias", "abc--ol-s3", "abc.mrap",
		"abc--x-s3", "a/b", "a b", "äbc", "abc\x00"} {
		require.NotEmpty(t, s3api.BadBucketName(bad), bad)
	}
}

func TestOperations(t *testing.T) {
	for _, c := range []struct {
		method, uri, name string
		served            bool
	}{
		{"GET", "/", "ListBuckets", true},
		{"GET", "/?x-id=ListBuckets", "ListBuckets", true},
		{"PUT", "/", "PUT on the service", false},
		{"PUT", "/abc", "CreateBucket", true},
		{"PUT", "/abc/", "CreateBucket", true},
		{"HEAD", "/abc", "HeadBucket", true},
		{"DELETE", "/abc", "DeleteBucket", true},
		{"GET", "/abc?location", "GetBucketLocation", true},
		{"GET", "/abc?location=", "GetBucketLocation", true},
		{"PUT", "/abc?location", "PutBucketLocation", false},
		{"GET", "/abc?list-type=2", "ListObjectsV2", true},
		{"GET", "/abc?list-type=2&prefix=acl", "ListObjectsV2", true},
		{"GET", "/abc?list-type=3", "list-type=3", false},
		{"GET", "/abc", "ListObjects", true},
		{"GET", "/abc?acl", "GetBucketAcl", true},
		{"GET", "/abc?list-type=2&acl", "GetBucketAcl", true},
		{"PUT", "/abc?policy", "PutBucketPolicy", false},
		{"DELETE", "/abc?policy", "DeleteBucketPolicy", false},
		{"DELETE", "/abc?tagging", "DeleteBucketTagging", false},
		{"GET", "/abc?uploads", "ListMultipartUploads", true},
		{"GET", "/abc?versions", "ListObjectVersions", true},
		{"GET", "/abc?versioning", "GetBucketVersioning", true},
		{"PUT", "/abc?versioning", "PutBucketVersioning", true},
		{"GET", "/abc?lifecycle", "GetBucketLifecycleConfiguration", true},
		{"PUT", "/abc?lifecycle", "PutBucketLifecycleConfiguration", true},
		{"DELETE", "/abc?lifecycle", "DeleteBucketLifecycle", true},
		{"GET", "/abc?cors", "GetBucketCors", true},
		{"PUT", "/abc?cors", "PutBucketCors", true},
		{"DELETE", "/abc?cors", "DeleteBucketCors", true},
		{"OPTIONS", "/abc/k?uploads", "Preflight", true},
		{"PUT", "/abc?acl", "PutBucketAcl", true},
		{"PUT", "/abc/k?acl", "PutObjectAcl", true},
		{"DELETE", "/abc/k?acl", "DeleteObjectAcl", false},
		{"POST", "/abc?delete", "DeleteObjects", true},
		{"GET", "/abc?delete", "GetObjects", false},
		{"POST", "/abc", "PostObject", false},
		{"GET", "/abc?evenkeel-splits=4", "EvenkeelSplitPoints", true},
		{"POST", "/abc?evenkeel-delete-range&prefix=a", "EvenkeelDeleteRange", true},
		{"POST", "/abc?evenkeel-delete-range&delete", "DeleteObjects", true},
		{"DELETE", "/abc?evenkeel-delete-range", "DeleteBucket", true},
		{"PUT", "/abc/k", "PutObject", true},
		{"GET", "/abc/k", "GetObject", true},
		{"GET", "/abc/k?x-id=GetObject", "GetObject", true},
		{"GET", "/abc/k?X-Amz-Signature=1", "GetObject", true},
		{"GET", "/abc/k?list-type=2", "GetObject", true},
		{"HEAD", "/abc/k", "HeadObject", true},
		{"DELETE", "/abc/k", "DeleteObject", true},
		{"GET", "/abc/k?acl", "GetObjectAcl", true},
		{"PUT", "/abc/k?tagging", "PutObjectTagging", true},
		{"GET", "/abc/k?versionId=null", "GetObject", true},
		{"DELETE", "/abc/k?versionId=null", "DeleteObject", true},
		{"GET", "/abc/k?response-content-type=x", "GetObject", true},
		{"GET", "/abc/k?partNumber=1", "GetObject", true},
		{"POST", "/abc/k?uploads", "CreateMultipartUpload", true},
		{"PUT", "/abc/k?partNumber=1&uploadId=x", "UploadPart", true},
		{"GET", "/abc/k?uploadId=x", "ListParts", true},
		{"DELETE", "/abc/k?uploadId=x", "AbortMultipartUpload", true},
		{"POST", "/abc/k?uploadId=x", "CompleteMultipartUpload", true},
		{"POST", "/abc/k", "POST on an object", false},
		{"PATCH", "/abc/k", "PATCH on an object", false},
	} {
		name, served := s3api.OperationName(request(c.method, c.uri))
		require.Equal(t, c.name, name, "%s %s", c.method, c.uri)
		require.Equal(t, c.served, served, "%s %s", c.method, c.uri)
	}
	r := request("PUT", "/abc/k")
	r.Header.Set("x-amz-copy-source", "/abc/other")
	name, served := s3api.OperationName(r)
	require.Equal(t, "CopyObject", name)
	require.True(t, served)
	r = request("PUT", "/abc/k?partNumber=1&uploadId=x")
	r.Header.Set("x-amz-copy-source", "/abc/other")
	name, served = s3api.OperationName(r)
	require.Equal(t, "UploadPartCopy", name)
	require.True(t, served)
}

// A bucket with a name that S3 does not allow, which a program has made, can be deleted, and nothing else.
func TestTargetsOfOtherNames(t *testing.T) {
	for request, code := range map[string]string{
		"DELETE /Abc": "", "DELETE /Abc?lifecycle": "InvalidBucketName", "DELETE /Abc/k": "InvalidBucketName",
		"PUT /Abc": "InvalidBucketName", "GET /Abc": "InvalidBucketName",
	} {
		method, uri, _ := strings.Cut(request, " ")
		_, _, got := s3api.ParseTarget(httptest.NewRequest(method, uri, nil))
		require.Equal(t, code, got, request)
	}
}
