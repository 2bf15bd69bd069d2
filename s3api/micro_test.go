package s3api

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/listing"
)

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
