package s3api_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// statusLines are those of all answers on a connection, 100 Continue with what is sent with it.
var statusLines = regexp.MustCompile(`HTTP/1\.[01] (100 Continue\r\n.*\r\n|\d+)`)

// TestContinueIsSent: a client that announces a body gets 100 Continue and then its answer, also where the body is
// empty.
func TestContinueIsSent(t *testing.T) {
	s := serveStore(t, memstore.New())
	s.want(200, "", "PUT", "/abc", "")
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	const empty = "PUT /abc/e HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"
	for _, c := range []struct {
		name, request string
		want          string
	}{
		{"an empty body", empty, goOn + "HTTP/1.1 200"},
		{"in another form", strings.Replace(empty, "Expect: 100-c", "expect: 100-C", 1), goOn + "HTTP/1.1 200"},
		{"no length", "PUT /abc/e HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", goOn + "HTTP/1.1 200"},
		{"a body", "PUT /abc/e HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nv", goOn + "HTTP/1.1 200"},
		{"chunks", "PUT /abc/e HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n0\r\n\r\n",
			goOn + "HTTP/1.1 200"},
		{"not announced", "PUT /abc/e HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200"},
		{"a read", "GET /abc/e HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", goOn + "HTTP/1.1 200"},
		{"a look", "HEAD /abc/e HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", goOn + "HTTP/1.1 200"},
		{"a delete", "DELETE /abc/none HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", goOn + "HTTP/1.1 204"},
		{"refused", strings.Replace(empty, "/abc", "/none", 1), goOn + "HTTP/1.1 404"},
		{"refused at once", strings.Replace(empty, "/abc", "/a_b", 1), goOn + "HTTP/1.1 400"},
		{"a body that is refused before it comes",
			"PUT /a_b/e HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 400"},
		{"HTTP/1.0", "PUT /abc/e HTTP/1.0\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.0 200"},
		{"two on a connection", empty + empty, goOn + "HTTP/1.1 200" + goOn + "HTTP/1.1 200"},
	} {
		request := c.request
		if !strings.Contains(request, "Host:") {
			request = strings.Replace(request, "\r\n", "\r\nHost: h\r\n", 1)
		}
		answer := s.raw(request)
		require.Equal(t, c.want, strings.Join(statusLines.FindAllString(answer, -1), ""), "%s: %s", c.name, answer)
	}
	keys := serveKeys(t, s3api.Options{})
	answer := keys.raw(empty)
	require.Equal(t, goOn+"HTTP/1.1 403", strings.Join(statusLines.FindAllString(answer, -1), ""), "without a key")
}
