package partmap

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// Benchmarks of hot paths are called BenchmarkMicro…, in every package: `make
// microbench` runs them, in the form that benchstat reads.

// microMap is a map of so many ranges with cuts of 40 bytes, and its nodes.
func microMap(b *testing.B, ranges int) (*Root, blobs, [][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	entries := make([]Entry, ranges)
	keys := make([][]byte, ranges)
	for i := range entries {
		keys[i] = strconv.AppendInt([]byte("tenant-000042/photos/2024-08/"), int64(1e10+i*1000), 10)
		if i > 0 {
			entries[i].Start = keys[i]
		}
		entries[i].Partition, entries[i].Created = store.PartitionID(id16(rng)), testNow
	}
	c, err := New(testBucket, 0, entries, stampOf(rng))
	require.NoError(b, err)
	nodes := blobs{}
	return nodes.apply(b, c), nodes, keys
}

func microSegment(b *testing.B) (*Root, Node, [][]byte) {
	root, nodes, keys := microMap(b, 1000)
	if root.Height != 1 || len(root.Children) != 1 {
		b.Fatalf("1,000 ranges are %d nodes at height %d", len(root.Children), root.Height)
	}
	id := root.Children[0].Node
	return root, Node{ID: id, Blob: nodes[id]}, keys
}

// BenchmarkMicroLookup finds a key's range in one decoded segment of 1,000.
func BenchmarkMicroLookup(b *testing.B) {
	root, n, keys := microSegment(b)
	s, err := decodeSegment(testBucket, n)
	require.NoError(b, err)
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(keys))
	var into Range
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		j := s.Find(keys[order[i%len(order)]])
		into = root.rangeOf(entryOf(&s.Entries, j), s.End(j, nil))
	}
	_ = into
}

// BenchmarkMicroDecodeSegment decodes a segment of 1,000 ranges.
func BenchmarkMicroDecodeSegment(b *testing.B) {
	_, n, _ := microSegment(b)
	b.SetBytes(int64(len(n.Blob)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeSegment(testBucket, n); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMicroDecodeRoot decodes the root of a bucket of 20 ranges, which holds
// them itself.
func BenchmarkMicroDecodeRoot(b *testing.B) {
	root, _, _ := microMap(b, 20)
	rec, err := EncodeRoot(root)
	require.NoError(b, err)
	b.SetBytes(int64(len(rec.Blob)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRoot(testBucket, rec); err != nil {
			b.Fatal(err)
		}
	}
}
