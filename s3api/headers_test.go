package s3api_test

import (
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headersOfS3 are the headers of requests in S3's model that have an effect here. Where operations are named, it is in
// these only.
var headersOfS3 = map[string]string{
	"Cache-Control": "", "Content-Disposition": "", "Content-Encoding": "", "Content-Language": "",
	"Content-Length": "", "Content-MD5": "", "Content-Type": "", "Expires": "", "x-amz-meta-": "",
	"If-Match":          "PutObject CopyObject CompleteMultipartUpload DeleteObject GetObject HeadObject",
	"If-None-Match":     "PutObject CopyObject CompleteMultipartUpload GetObject HeadObject",
	"If-Modified-Since": "GetObject HeadObject", "If-Unmodified-Since": "GetObject HeadObject",
	"Range":                "GetObject HeadObject",
	"x-amz-checksum-crc32": "", "x-amz-checksum-crc32c": "", "x-amz-checksum-crc64nvme": "", "x-amz-checksum-sha1": "",
	"x-amz-checksum-sha256": "", "x-amz-checksum-algorithm": "", "x-amz-checksum-type": "", "x-amz-checksum-mode": "",
	"x-amz-copy-source": "", "x-amz-copy-source-if-match": "", "x-amz-copy-source-if-none-match": "",
	"x-amz-copy-source-if-modified-since": "", "x-amz-copy-source-if-unmodified-since": "",
	"x-amz-copy-source-range": "UploadPartCopy", "x-amz-metadata-directive": "", "x-amz-tagging-directive": "",
	"x-amz-expected-bucket-owner": "", "x-amz-source-expected-bucket-owner": "",
	"x-amz-if-match-initiated-time": "AbortMultipartUpload", "x-amz-if-match-last-modified-time": "DeleteObject",
	"x-amz-if-match-size": "DeleteObject", "x-amz-max-parts": "", "x-amz-part-number-marker": "",
	"x-amz-object-attributes": "", "x-amz-mp-object-size": "",
	"x-amz-tagging": "PutObject CopyObject CreateMultipartUpload",
}

// ignoredHeaders mean nothing here.
var ignoredHeaders = []string{
	"x-amz-bypass-governance-retention", "x-amz-mfa", "x-amz-object-annotation-directive",
	"x-amz-optional-object-attributes", "x-amz-request-payer",
	"x-amz-sdk-checksum-algorithm", "x-amz-transition-default-minimum-object-size",
}

// documentedByKind are beginnings of names of headers that docs/s3.md names by these alone.
var documentedByKind = []string{
	"x-amz-checksum-", "x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption", "x-amz-grant-",
	"x-amz-object-lock-",
}

// TestHeadersOfS3: each header of S3's model is known, or refused by its name in each implemented operation that has
// it, and what it is refused for is not done.
func TestHeadersOfS3(t *testing.T) {
	data, err := os.ReadFile("testdata/s3headers.txt")
	require.NoError(t, err)
	docs, err := os.ReadFile("../docs/s3.md")
	require.NoError(t, err)
	g := newParameterGround(t)
	refused := 0
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		header := fields[0]
		in, known := headersOfS3[header]
		ignored, here := slices.Contains(ignoredHeaders, header), false
		for _, name := range fields[1:] {
			at := slices.IndexFunc(implementedOperations, func(o implementedOperation) bool { return o.name == name })
			if here = here || at >= 0; at < 0 || ignored {
				continue
			}
			if known && (in == "" || slices.Contains(strings.Fields(in), name)) {
				continue
			}
			o := &implementedOperations[at]
			query := ""
			if o.query != "" {
				query = "?" + strings.ReplaceAll(o.query, "{up}", g.up)
			}
			if strings.HasPrefix(name, "UploadPart") {
				query += "&partNumber=1"
			}
			resources := map[string][]string{
				"service": {"/"}, "bucket": {"/plain", "/kept"}, "object": {"/plain/k", "/kept/k"},
			}
			for _, resource := range resources[o.resource] {
				r := httptest.NewRequest(o.method, resource+query, strings.NewReader("<Document/>"))
				if o.source {
					r.Header.Set("x-amz-copy-source", "/kept/other")
				}
				r.Header.Set(header, "something")
				w := httptest.NewRecorder()
				g.handler.ServeHTTP(w, r)
				require.Equal(t, 501, w.Code, "%s with %s: %s", name, header, w.Body)
				if o.method != "HEAD" && resource != "/plain/k" { // where the operation itself may be refused
					require.Contains(t, strings.ToLower(w.Body.String()), strings.ToLower(header), name)
				}
				refused++
			}
		}
		kind := func(of string) bool { return strings.HasPrefix(header, of) }
		if here && !known && !slices.ContainsFunc(documentedByKind, kind) {
			require.True(t, strings.Contains(string(docs), "`"+header+"`"), "%s is not documented", header)
		}
	}
	require.Greater(t, refused, 100)
	require.Equal(t, g.before, g.all())
}
