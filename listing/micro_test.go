package listing

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// BenchmarkMicroMerge merges two pages of 1,000 rows, as each page of a range
// that moves: of a range that has been copied in part, where both sides have every
// second key, and of one whose rows are all in the source still.
func BenchmarkMicroMerge(b *testing.B) {
	page := func(from, step, n int) (p store.Page) {
		for i := range n {
			p.Rows = append(p.Rows, store.Row{
				Key:   fmt.Appendf(nil, "photos/2024/08/IMG_%08d.jpg", from+i*step),
				Value: store.EntryCell(make([]byte, 100)), Timestamp: store.Timestamp(1000 + i),
			})
		}
		p.More = n > 0
		return p
	}
	for _, c := range []struct {
		name     string
		src, dst store.Page
	}{
		{"interleaved", page(0, 2, 1000), page(1, 2, 1000)},
		{"same", page(0, 1, 1000), page(0, 1, 1000)},
		{"source", page(0, 1, 1000), page(0, 1, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := merge(c.src, c.dst, false); len(got.rows) < 999 {
					b.Fatal(len(got.rows))
				}
			}
		})
	}
}

// BenchmarkMicroToken encodes and decodes the token between two pages.
func BenchmarkMicroToken(b *testing.B) {
	q := Query{Prefix: []byte("photos/2024/"), Delimiter: []byte("/")}
	id := store.BucketID{1}
	at := q.span()
	at.passKey([]byte("photos/2024/08/IMG_00001234.jpg"))
	token := at.token(id, &q)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if at.token(id, &q) != token {
				b.Fatal("another token")
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s := q.span()
			if err := s.resume(token, id, &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// microBucket is a bucket in memory, in one range.
func microBucket(b *testing.B, keys int, key func(i int) []byte) *Bucket {
	c, err := New(memstore.New(), Options{})
	require.NoError(b, err)
	ctx := context.Background()
	require.NoError(b, c.CreateBucket(ctx, "micro"))
	var entries []Entry
	for i := range keys {
		entries = append(entries, Entry{Key: key(i), Value: make([]byte, 100)})
	}
	bucket := c.Bucket("micro")
	require.NoError(b, bucket.PutBatch(ctx, entries))
	return bucket
}

// BenchmarkMicroSkipScan lists 100 common prefixes of 100 keys each, out of
// memory: what the client itself does between reads.
func BenchmarkMicroSkipScan(b *testing.B) {
	bucket := microBucket(b, 10_000,
		func(i int) []byte { return fmt.Appendf(nil, "album-%05d/IMG_%08d.jpg", i/100, i) })
	b.ReportAllocs()
	for b.Loop() {
		page, err := bucket.List(context.Background(), Query{Delimiter: []byte("/")})
		if err != nil || len(page.Items) != 100 {
			b.Fatal(len(page.Items), err)
		}
	}
}

// BenchmarkMicroPage lists a page of 1,000 keys, out of memory.
func BenchmarkMicroPage(b *testing.B) {
	bucket := microBucket(b, 10_000, func(i int) []byte { return fmt.Appendf(nil, "photos/2024/08/IMG_%08d.jpg", i) })
	b.ReportAllocs()
	for b.Loop() {
		page, err := bucket.List(context.Background(),
			Query{From: []byte("photos/2024/08/IMG_00004000.jpg"), Limit: 1000})
		if err != nil || len(page.Items) != 1000 {
			b.Fatal(len(page.Items), err)
		}
	}
}

// BenchmarkMicroScan iterates 10,000 keys, out of memory.
func BenchmarkMicroScan(b *testing.B) {
	const keys = 10_000
	bucket := microBucket(b, keys, func(i int) []byte { return fmt.Appendf(nil, "photos/2024/08/IMG_%08d.jpg", i) })
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range bucket.All(context.Background(), Query{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != keys {
			b.Fatal(n)
		}
	}
}

// BenchmarkMicroPut puts entries over those that are there, into memory.
func BenchmarkMicroPut(b *testing.B) {
	key := func(i int) []byte { return fmt.Appendf(nil, "photos/2024/08/IMG_%08d.jpg", i) }
	bucket := microBucket(b, 1000, key)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = key(i * 7919 % len(keys))
	}
	value := make([]byte, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := bucket.Put(context.Background(), keys[i%len(keys)], value); err != nil {
			b.Fatal(err)
		}
	}
}
