package store_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// shortKey draws a key of up to three bytes, often the highest or the lowest ones.
func shortKey(rng *rand.Rand) []byte {
	key := make([]byte, rng.IntN(4))
	for i := range key {
		key[i] = []byte{0, 1, 0xfe, 0xff}[rng.IntN(4)]
	}
	return key
}

func TestPrefixEnd(t *testing.T) {
	rng := seed.New(t)
	for range 5000 {
		prefix, key := shortKey(rng), shortKey(rng)
		end := store.PrefixEnd(prefix)
		within := string(key) >= string(prefix) && (end == nil || string(key) < string(end))
		require.Equal(t, bytes.HasPrefix(key, prefix), within, "key %q, prefix %q, end %q", key, prefix, end)
	}
}

// TestCovers: bounds cover others only if they have all their keys, and the bounds of a key and
// all above it are covered just when the key lies within.
func TestCovers(t *testing.T) {
	rng := seed.New(t)
	draw := func() store.Bounds {
		return store.Bounds{Start: shortKey(rng), StartExclusive: rng.IntN(2) == 0, End: shortKey(rng)}
	}
	covered := 0
	for range 20_000 {
		a, b, key := draw(), draw(), shortKey(rng)
		require.True(t, a.Covers(a))
		require.Equal(t, store.Within(key, a), store.Within(string(key), a))
		if a.Covers(b) {
			covered++
			require.False(t, store.Within(key, b) && !store.Within(key, a), "%q: %v covers %v", key, a, b)
		}
		if above := (store.Bounds{Start: a.Start, StartExclusive: a.StartExclusive}); len(key) > 0 {
			one := store.Bounds{Start: key}
			require.Equal(t, store.Within(key, above), above.Covers(one), "%v, %v", above, one)
		}
	}
	require.Positive(t, covered)
}

func TestRecordEncoding(t *testing.T) {
	r := store.Record{Version: store.Version{Epoch: 7, Token: store.NewToken()}, Blob: []byte("blob")}
	b := r.AppendTo(nil)
	got, ok := store.DecodeRecord(b)
	require.True(t, ok)
	require.Equal(t, r, got)
	_, ok = store.DecodeRecord(b[:8+16-1])
	require.False(t, ok)

	p := store.Partition{Bucket: store.BucketID(store.NewToken()), ID: store.PartitionID(store.NewToken())}
	encoded := p.AppendTo(nil)
	require.Len(t, encoded, store.PartitionBytes)
	require.Equal(t, p, store.PartitionAt(encoded))
	require.Equal(t, p, store.PartitionAt(string(encoded)+"more"))
}
