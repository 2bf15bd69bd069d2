package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/presign"
)

const pageKeys = `keys:
  - {id: PAGES, secret: the secret of the pages, access: read-write, everything: true}
complete: true
`

// presigned returns a URL of the server for a method and a target, which is a path with parameters.
func presigned(t *testing.T, s *harness.Server, method, target string) string {
	t.Helper()
	path, params, _ := strings.Cut(target, "?")
	query, err := url.ParseQuery(params)
	require.NoError(t, err)
	now := time.Now().UTC()
	query.Set("X-Amz-Algorithm", sigv4.Algorithm)
	query.Set("X-Amz-Credential", "PAGES/"+now.Format("20060102")+"/us-east-1/s3/aws4_request")
	query.Set("X-Amz-Date", now.Format("20060102T150405Z"))
	query.Set("X-Amz-Expires", "3600")
	query.Set("X-Amz-SignedHeaders", "host")
	r := &sigv4.Request{
		Method: method, Path: path, Host: strings.TrimPrefix(s.S3, "http://"),
		Query: strings.ReplaceAll(query.Encode(), "+", "%20"),
	}
	signature, err := presign.Signature(r, "the secret of the pages", "us-east-1", now)
	require.NoError(t, err)
	return s.S3 + path + "?" + r.Query + "&X-Amz-Signature=" + signature
}

// TestPagesOfOtherOrigins: a page of another origin uploads by presigned URLs, in parts, too, and lists, if a rule of
// the bucket allows it, and reads nothing otherwise.
func TestPagesOfOtherOrigins(t *testing.T) {
	p := harness.Build(t)
	keys := filepath.Join(p.Dir, "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte(pageKeys), 0o600))
	s := p.Serve("--data", filepath.Join(p.Dir, "data"), "--keys-file", keys)
	program := func(method, target, body string) {
		t.Helper()
		r, err := http.NewRequest(method, presigned(t, s, method, target), strings.NewReader(body))
		require.NoError(t, err)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		require.Less(t, a.StatusCode, 300, string(text))
	}
	program("PUT", "/photos", "")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><link rel=icon href=data:,><p>a page")
	}))
	defer site.Close()
	b := NewBrowser(t, Desk)
	b.Go(site.URL)
	b.Says("a page")
	send := func(method, address, body string) string {
		t.Helper()
		init := "{method: " + quote(method) + "}"
		if body != "" {
			init = "{method: " + quote(method) + ", body: " + quote(body) + ", headers: {" +
				"'Content-Type': 'image/x-test', 'Cache-Control': 'no-cache'}}"
		}
		return Value[string](b, "fetch("+quote(address)+", "+init+").then(async (r) => "+
			"r.status + ' ' + r.headers.get('etag') + ' ' + await r.text(), (e) => 'refused: ' + e.name)")
	}
	const refused = "refused: TypeError"
	list := presigned(t, s, "GET", "/photos?list-type=2")
	put := func(key string) string {
		return send("PUT", presigned(t, s, "PUT", "/photos/"+key), "body")
	}

	require.Equal(t, refused, put("none"))
	require.Equal(t, refused, send("GET", list, ""))
	rules := func(origin string) {
		program("PUT", "/photos?cors", "<CORSConfiguration><CORSRule><AllowedOrigin>"+origin+"</AllowedOrigin>"+
			"<AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedMethod>POST</AllowedMethod>"+
			"<AllowedHeader>content-type</AllowedHeader><AllowedHeader>Cache-*</AllowedHeader>"+
			"<ExposeHeader>ETag</ExposeHeader></CORSRule></CORSConfiguration>")
	}
	rules("https://elsewhere.example")
	require.Equal(t, refused, put("none"))
	require.Equal(t, refused, send("GET", list, ""))
	require.NotEmpty(t, b.Problems(), "the browser says why")

	rules(site.URL)
	listed := send("GET", list, "")
	require.True(t, strings.HasPrefix(listed, "200 null <"), listed)
	require.NotContains(t, listed, "<Key>", "what the browser refused was not stored")
	stored := put("k")
	require.Regexp(t, `^200 "841a2d689ad86bd1611447453c22c6fc" $`, stored)
	started := send("POST", presigned(t, s, "POST", "/photos/parts?uploads"), "")
	id := regexp.MustCompile("<UploadId>([^<]+)<").FindStringSubmatch(started)
	require.NotNil(t, id, started)
	etag := regexp.MustCompile(`^200 ("[0-9a-f]+") $`).FindStringSubmatch(
		send("PUT", presigned(t, s, "PUT", "/photos/parts?partNumber=1&uploadId="+id[1]), "a part"))
	require.NotNil(t, etag)
	ended := send("POST", presigned(t, s, "POST", "/photos/parts?uploadId="+id[1]),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+etag[1]+"</ETag></Part>"+
			"</CompleteMultipartUpload>")
	require.Regexp(t, `^200 .*<CompleteMultipartUploadResult`, strings.ReplaceAll(ended, "\n", ""))
	listed = send("GET", list, "")
	require.Contains(t, listed, "<Key>k</Key>")
	require.Contains(t, listed, "<Key>parts</Key>")
	require.Empty(t, b.Problems())

	require.Contains(t, send("GET", list+"0", ""), "SignatureDoesNotMatch", "the page can read why")
	require.Contains(t, send("GET", s.S3+"/photos/k", ""), "403 null ", "a rule authorises nothing")
	require.Equal(t, refused, send("DELETE", presigned(t, s, "DELETE", "/photos/k"), ""), "no rule has the method")
	program("DELETE", "/photos?cors", "")
	require.Equal(t, refused, send("GET", list, ""))
}
