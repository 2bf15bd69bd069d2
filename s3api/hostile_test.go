package s3api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/s3api"
)

// Who knows an id of a key but not its secret costs the server memory in
// proportion to the bytes of its request, whatever is in them.
func TestForgedRequestsCostWhatTheyWeigh(t *testing.T) {
	const size, factor = 120_000, 12
	const badHeader, badQuery = "AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"
	const mismatch = "SignatureDoesNotMatch"
	const scope = "ADMIN/20240229/us-east-1/s3/aws4_request"
	presigned := func(more string) string {
		return "/abc/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" + scope +
			"&X-Amz-Date=20240229T235900Z&X-Amz-Expires=60&X-Amz-Signature=0" + more
	}
	fill := func(s string, part int) string { return strings.Repeat(s, size/part/len(s)) }
	signed := func(names string) string {
		return "AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=" + names + ", Signature=0"
	}
	const few = "host;x-amz-content-sha256;x-amz-date"
	names := make([]string, 0, sigv4.MaxSignedHeaders)
	for c := range sigv4.MaxSignedHeaders + 1 {
		names = append(names, "a"+strings.Repeat("b", c))
	}
	most := strings.Join(names[:sigv4.MaxSignedHeaders-3], ";") + ";" + few
	keys := s3api.KeySet{"ADMIN": {ID: "ADMIN", Secret: "a secret of nobody", Write: true, Everything: true}}
	for _, c := range []struct {
		name, target, authorization, code string
		header                            []string
	}{
		{"as it should be", "/abc/k", signed(few), mismatch, nil},
		{"most names", "/abc/k", signed(most), mismatch, nil},
		{"too many names", "/abc/k", signed("a;" + most), badHeader, nil},
		{"a long header again and again", "/abc/k", signed(fill("long;", 2) + few), badHeader, []string{fill("x", 2)}},
		{"a few times", "/abc/k", signed("host;" + strings.Repeat("long;", 400) + few[5:]), badHeader,
			[]string{fill("x", 2)}},
		{"in presigned URLs", presigned("&X-Amz-SignedHeaders=host" + fill("%3Blong", 2) + "%3Bx-amz-date"), "",
			badQuery,
			[]string{fill("x", 2)}},
		{"the host", "/abc/k", signed("host;" + fill("host;", 1) + few), badHeader, nil},
		{"a header of spaces", "/abc/k", signed("host;long;" + few[5:]), mismatch, []string{"x" + fill("  ", 1) + "x"}},
		{"many values", "/abc/k", signed("host;long;" + few[5:]), mismatch, strings.Split(fill("x ", 4), " ")},
		{"names of their own", "/abc/k", signed(few), "AccessDenied", nil},
		{"parts of the claim", "/abc/k", signed(few) + fill(",a=b", 1), mismatch, nil},
		{"other parts of the claim", "/abc/k", signed(few) + fill(",", 1), badHeader, nil},
		{"a long credential", "/abc/k", strings.Replace(signed(few), "ADMIN", fill("/", 1), 1), "InvalidAccessKeyId",
			nil},
		{"an escaped path", "/abc/" + fill("%20", 120), signed(few), mismatch, nil},
		{"an escaped parameter", "/abc/k?a=" + fill("%20", 1), signed(few), mismatch, nil},
		{"a parameter to escape", "/abc/k?a=" + fill("/", 1), signed(few), mismatch, nil},
		{"most parameters", "/abc/k?" + strings.Repeat(fill("/", 512)+"&", sigv4.MaxSignedHeaders-1), signed(few),
			mismatch, nil},
		{"too many parameters", "/abc/k?" + strings.Repeat("a&", sigv4.MaxSignedHeaders), signed(few), "InvalidURI",
			nil},
		{"empty parameters", "/abc/k?" + fill("&", 1), signed(few), "InvalidURI", nil},
		{"many parameters of presigned URLs", presigned(fill("&X-Amz-SignedHeaders=host", 1)), "", "InvalidURI", nil},
	} {
		h := fuzzHandler(t, s3api.Options{Keys: keys})
		r := httptest.NewRequest("GET", "/", nil)
		r.RequestURI = c.target
		r.Header = http.Header{"X-Amz-Date": {"20240229T235900Z"}, "X-Amz-Content-Sha256": {sigv4.PayloadOf(nil)}}
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		if c.header != nil {
			r.Header["Long"] = c.header
		}
		if c.name == "names of their own" {
			for i := range 8000 {
				r.Header[fmt.Sprintf("X-Amz-Meta-%d", i)] = []string{"v"}
			}
		}
		w := httptest.NewRecorder()
		cost := allocated(func() { h.ServeHTTP(w, r) })
		assert.Contains(t, w.Body.String(), "<Code>"+c.code+"</Code>", c.name)
		assert.Less(t, cost, uint64(factor*size), "%s: bytes of memory", c.name)
		t.Logf("%-35s %8d bytes", c.name, cost)
	}
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// So do the trailers of a body.
func TestTrailersCostWhatTheyWeigh(t *testing.T) {
	body := "0\r\n" + strings.Repeat(":\r\n", 8192) + "\r\n"
	var err error
	cost := allocated(func() { _, _, err = s3api.ReadChunked(strings.NewReader(body)) })
	assert.NoError(t, err)
	assert.Less(t, cost, uint64(1_500_000))
}
