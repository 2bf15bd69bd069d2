package e2e

import (
	"bytes"
	"context"
	"crypto/md5"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

const (
	realKeys = 200_000
	realCuts = 24
)

// TestRealKeysThroughTheLibrary lists 200,000 real keys over 25 ranges after a
// restart, in every way, and compares with what sort says.
func TestRealKeysThroughTheLibrary(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	keys := realkeys.Collect(realKeys, 1)
	sorted := harness.SortedBySort(t, keys)
	dir := t.TempDir()

	s, err := pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "real", realkeys.Cuts(keys, realCuts)...))
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	shuffled := slices.Clone(keys)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for batch := range slices.Chunk(shuffled, 5000) {
		entries := make([]listing.Entry, len(batch))
		for i, k := range batch {
			entries[i] = listing.Entry{Key: k, Value: valueOf(k)}
		}
		require.NoError(t, c.Bucket("real").PutBatch(ctx, entries))
	}
	require.NoError(t, s.Close())

	s, err = pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c, err = listing.New(s, listing.Options{})
	require.NoError(t, err)
	b := c.Bucket("real")

	backwards := slices.Clone(sorted)
	slices.Reverse(backwards)
	for _, limit := range []int{1000, 333} {
		require.Equal(t, harness.Sum(sorted), harness.Sum(chained(t, b, listing.Query{Limit: limit})), "pages of %d",
			limit)
		require.Equal(t, harness.Sum(backwards), harness.Sum(chained(t, b, listing.Query{Limit: limit, Reverse: true})),
			"pages of %d, reverse", limit)
	}
	for range 60 {
		q := listing.Query{Limit: 1 + r.IntN(1000), Reverse: r.IntN(2) == 0, KeysOnly: r.IntN(2) == 0}
		some := sorted[r.IntN(len(sorted))]
		q.Prefix = some[:r.IntN(len(some))]
		if r.IntN(3) > 0 {
			q.Delimiter = [][]byte{[]byte("/"), []byte("-"), []byte("//"), []byte("a"), []byte(".")}[r.IntN(5)]
		}
		require.Equal(t, harness.Sum(naive(sorted, q)), harness.Sum(chained(t, b, q)),
			"prefix %q delimiter %q reverse %v", q.Prefix, q.Delimiter, q.Reverse)
	}
	for range 100 {
		k := sorted[r.IntN(len(sorted))]
		e, err := b.Get(ctx, k)
		require.NoError(t, err)
		require.Equal(t, valueOf(k), e.Value)
	}
}

// valueOf makes a key's value, so that each row can be checked.
func valueOf(key []byte) []byte { sum := md5.Sum(key); return sum[:] }

// chained reads a whole listing page by page and checks the values.
func chained(t *testing.T, b *listing.Bucket, q listing.Query) [][]byte {
	t.Helper()
	var found [][]byte
	for {
		page, err := b.List(context.Background(), q)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Items), q.Limit)
		for _, item := range page.Items {
			found = append(found, item.Key)
			if !item.CommonPrefix && !q.KeysOnly && !bytes.Equal(item.Value, valueOf(item.Key)) {
				t.Fatalf("%q has another key's value", item.Key)
			}
		}
		if page.Next == "" {
			return found
		}
		q.Token = page.Next
	}
}

// naive lists by looking at every key.
func naive(sorted [][]byte, q listing.Query) [][]byte {
	var found [][]byte
	for _, k := range sorted {
		if !bytes.HasPrefix(k, q.Prefix) {
			continue
		}
		if at := bytes.Index(k[len(q.Prefix):], q.Delimiter); len(q.Delimiter) > 0 && at >= 0 {
			k = k[:len(q.Prefix)+at+len(q.Delimiter)]
		}
		if len(found) == 0 || !bytes.Equal(found[len(found)-1], k) {
			found = append(found, k)
		}
	}
	if q.Reverse {
		slices.Reverse(found)
	}
	return found
}
