package s3api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// nowhere is an answer that nobody reads.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// BenchmarkPage compares a page of 1000 entries by the library call, as the
// handler makes it, and over a connection. The unit that matters is the ratio.
func BenchmarkPage(b *testing.B) {
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	c, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(b, err)
	require.NoError(b, c.CreateBucket(b.Context(), "abc"))
	bucket := c.Bucket("abc")
	object := s3api.Object{Modified: time.Now(), ContentType: "application/octet-stream", External: true, Size: 1 << 30, ETag: "0123456789abcdef0123456789abcdef"}
	record := object.AppendRecord(nil)
	for i := range 5000 {
		require.NoError(b, bucket.Put(b.Context(), fmt.Appendf(nil, "photos/2024/holidays in France/IMG_%06d.jpeg", i), record))
	}
	h, err := s3api.New(s3api.Over(c), s3api.Options{})
	require.NoError(b, err)
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	const uri = "/abc?list-type=2&encoding-type=url&start-after=photos/2024/holidays%20in%20France/IMG_001000.jpeg"

	library := func(b *testing.B) {
		for b.Loop() {
			page, err := bucket.List(b.Context(), listing.Query{After: []byte("photos/2024/holidays in France/IMG_001000.jpeg")})
			if err != nil || len(page.Items) != 1000 {
				b.Fatal(len(page.Items), err)
			}
		}
	}
	b.Run("library", library)
	b.Run("handler", func(b *testing.B) {
		b.ReportAllocs()
		r := httptest.NewRequest("GET", uri, nil)
		for b.Loop() {
			h.ServeHTTP(nowhere{http.Header{}}, r)
		}
	})
	b.Run("http", func(b *testing.B) {
		for b.Loop() {
			resp, err := http.Get(srv.URL + uri)
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			if err != nil || n < 100_000 {
				b.Fatal(n, err)
			}
			b.SetBytes(n)
			resp.Body.Close()
		}
	})
}
