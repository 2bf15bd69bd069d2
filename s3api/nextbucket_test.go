package s3api_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
)

// awaited is a body that begins to come once something was done.
type awaited struct {
	io.Reader
	before func()
}

func (a *awaited) Read(p []byte) (int, error) {
	if a.before != nil {
		a.before()
		a.before = nil
	}
	return a.Reader.Read(p)
}

// TestAWriteStaysInTheBucketItBeganWith while its body is awaited and the bucket of the name is deleted, and another
// one is created: a bucket of objects has no entries, and a bucket for plain entries no rows of objects.
func TestAWriteStaysInTheBucketItBeganWith(t *testing.T) {
	for _, was := range []string{"plain", "objects"} {
		for _, is := range []string{"plain", "objects"} {
			t.Run(was+", then "+is, func(t *testing.T) {
				s, _ := serveObjects(t)
				const kind = "X-Evenkeel-Bucket-Kind"
				s.want(200, "", "PUT", "/abc", "", kind, was)
				body := strings.Repeat("x", 3000)
				r := httptest.NewRequest("PUT", "/abc/k", &awaited{strings.NewReader(body), func() {
					s.want(204, "", "DELETE", "/abc", "")
					s.want(200, "", "PUT", "/abc", "", kind, is)
				}})
				r.ContentLength = int64(len(body))
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r)
				if was == "plain" && is == "plain" { // a whole entry, as of a request that began later
					require.Equal(t, 200, w.Code)
					return
				}
				require.Equal(t, 404, w.Code, w.Body)
				require.Contains(t, w.Body.String(), "NoSuchBucket")
				for item, err := range s.buckets.Bucket("abc").All(t.Context(), listing.Query{}) {
					require.NoError(t, err)
					require.Failf(t, "the next bucket has a row", "%q", item.Key)
				}
			})
		}
	}
}
