package s3api_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOfTwoPutsTheOneCountsThatEndsLater, and a delete hides nothing whose body ends behind it.
func TestOfTwoPutsTheOneCountsThatEndsLater(t *testing.T) {
	s, bodies := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	for _, size := range []int{100, 3000, 70_000, 300_000} {
		for _, method := range []string{"PUT", "DELETE"} {
			begin, rest := strings.Repeat("x", size/2), strings.Repeat("y", size/2)
			body := io.MultiReader(strings.NewReader(begin), &awaited{strings.NewReader(rest), func() {
				require.Less(t, s.do(method, "/abc/k", strings.Repeat("z", 5000)).status, 300)
			}})
			r := httptest.NewRequest("PUT", "/abc/k", body)
			r.ContentLength = int64(size)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			require.Equal(t, 200, w.Code, w.Body)
			require.Equal(t, begin+rest, s.want(200, "", "GET", "/abc/k", "").body, "%d bytes, and then %s", size, method)
		}
	}
	require.Positive(t, files(t, bodies))
}
