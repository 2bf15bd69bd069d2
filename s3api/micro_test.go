package s3api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// BenchmarkMicroRequests puts an object, and lists a page of 100, in memory.
func BenchmarkMicroRequests(b *testing.B) {
	client, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(b, err)
	h, err := New(Over(client), Options{SoleWriter: true})
	require.NoError(b, err)
	do := func(b *testing.B, method, path string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		require.Equal(b, http.StatusOK, w.Code)
	}
	do(b, http.MethodPut, "/abc")
	for i := range 100 {
		do(b, http.MethodPut, fmt.Sprintf("/abc/%03d", i))
	}
	for name, path := range map[string]string{http.MethodPut: "/abc/050", http.MethodGet: "/abc?list-type=2"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(b, name, path)
			}
		})
	}
}

// BenchmarkMicroListDocument writes the document of a page of 1,000 objects, in the
// two encodings of keys.
func BenchmarkMicroListDocument(b *testing.B) {
	var page listing.Page
	for i := range 1000 {
		o := Object{Modified: time.UnixMilli(1_700_000_000_000 + int64(i)*997), ContentType: "image/jpeg",
			External: true,
			Size:     1 << 20, ETag: "9e107d9d372bb6826bd81d3542a419d6"}
		page.Items = append(page.Items, listing.Item{Entry: listing.Entry{Key: fmt.Appendf(nil,
			"photos/2024/holidays/IMG_%08d.jpg", i), Value: o.AppendRecord(nil)}})
	}
	for _, encoded := range []bool{false, true} {
		b.Run(fmt.Sprintf("url=%t", encoded), func(b *testing.B) {
			l := listQuery{maxKeys: 1000, urlEncoded: encoded}
			for b.Loop() {
				x, p := newXML(), newListPage(&l)
				_, err := p.add(&page)
				x.listHead("abc", p)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(x.b) + len(p.contents.b) + len(p.prefixes.b)))
				x.free()
				p.free()
			}
		})
	}
}
