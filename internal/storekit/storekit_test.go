package storekit_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/storekit"
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

// TestCovers: bounds cover others only if they have all their keys, and the bounds of a key and all above it are
// covered just when the key lies within.
func TestCovers(t *testing.T) {
	rng := seed.New(t)
	draw := func() store.Bounds {
		return store.Bounds{Start: shortKey(rng), StartExclusive: rng.IntN(2) == 0, End: shortKey(rng)}
	}
	covered := 0
	for range 20_000 {
		a, b, key := draw(), draw(), shortKey(rng)
		require.True(t, storekit.Covers(a, a))
		require.Equal(t, store.Within(key, a), store.Within(string(key), a))
		if storekit.Covers(a, b) {
			covered++
			require.False(t, store.Within(key, b) && !store.Within(key, a), "%q: %v covers %v", key, a, b)
		}
		if above := (store.Bounds{Start: a.Start, StartExclusive: a.StartExclusive}); len(key) > 0 {
			one := store.Bounds{Start: key}
			require.Equal(t, store.Within(key, above), storekit.Covers(above, one), "%v, %v", above, one)
		}
	}
	require.Positive(t, covered)
}

func TestRecordEncoding(t *testing.T) {
	r := store.Record{Version: store.Version{Epoch: 7, Token: storekit.NewToken()}, Blob: []byte("blob")}
	b := storekit.AppendRecord(nil, r)
	got, ok := storekit.DecodeRecord(b)
	require.True(t, ok)
	require.Equal(t, r, got)
	_, ok = storekit.DecodeRecord(b[:8+16-1])
	require.False(t, ok)

	p := store.Partition{Bucket: store.BucketID(storekit.NewToken()), ID: store.PartitionID(storekit.NewToken())}
	encoded := storekit.AppendPartition(nil, p)
	require.Len(t, encoded, storekit.PartitionBytes)
	require.Equal(t, p, storekit.PartitionAt(encoded))
	require.Equal(t, p, storekit.PartitionAt(string(encoded)+"more"))
}

// TestNewer: the rule is that of Beats, and a copy equals the entry.
func TestNewer(t *testing.T) {
	a, b, marker := store.EntryCell([]byte("a")), store.EntryCell([]byte("b")), cells.Marker()
	for _, c := range []struct {
		one, other []byte
		wins       bool // at the same timestamp
	}{{a, a, false}, {b, a, true}, {a, b, false}, {marker, b, true}, {b, marker, false}, {marker, marker, false}, {a,
		[]byte{}, true}, {[]byte{}, a, false}} {
		for _, one := range [][]byte{c.one, cells.Copied(c.one)} {
			for _, other := range [][]byte{c.other, cells.Copied(c.other)} {
				newer := func(ts store.Timestamp) bool {
					return storekit.Newer(&store.Row{Value: one, Timestamp: ts}, &store.Row{Value: other, Timestamp: 5})
				}
				require.True(t, newer(6))
				require.False(t, newer(4))
				require.Equal(t, c.wins, newer(5), "%x and %x", one, other)
			}
		}
	}
}

type local struct{ store.Rows }
type widest struct {
	store.Rows
	wide store.Rows
}

func (w widest) EachQuorum() store.Rows { return w.wide }

func TestEverywhereTakesTheWidestLevel(t *testing.T) {
	narrow, wide := local{}, local{}
	require.Equal(t, store.Rows(narrow), storekit.Everywhere(narrow))
	require.Equal(t, store.Rows(&wide), storekit.Everywhere(widest{narrow, &wide}))
}

func TestTokensDiffer(t *testing.T) {
	require.NotEqual(t, storekit.NewToken(), storekit.NewToken())
}
