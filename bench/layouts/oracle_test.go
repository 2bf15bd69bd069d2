package layouts_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/layouttest"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// stores are those that need no server.
func stores(t *testing.T) map[string]store.Store {
	p, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return map[string]store.Store{"memstore": memstore.New(), "pebble": p}
}

func bucketID() store.BucketID { return store.BucketID(uuid.New()) }

// evenkeel is a bucket with some cuts.
func evenkeel(t testing.TB, s store.Store, cuts [][]byte) layouts.Layout {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	t.Cleanup(mapclient.Of(c).Close)
	require.NoError(t, c.CreateBucket(context.Background(), "b", cuts...))
	return layouts.NewEvenkeel(c, "b")
}

// Layouts by key answer whatever query as a sorted slice does, over keys that are
// easily got wrong and over those that begin alike.
func TestLayoutsByKeyAnswerAsTheOracle(t *testing.T) {
	seed := seed.Number(t)
	r := rand.New(rand.NewPCG(seed, 1))
	sets := map[string][][]byte{
		"awkward": realkeys.Awkward(700, seed, true),
		"dates":   nil,
		"md5":     nil,
	}
	for i := range 700 {
		sum := md5.Sum(fmt.Appendf(nil, "%d", i))
		sets["md5"] = append(sets["md5"], []byte(hex.EncodeToString(sum[:])))
		sets["dates"] = append(sets["dates"],
			fmt.Appendf(nil, "logs/2024/%02d/%02d/%06d", 1+r.IntN(12), 1+r.IntN(28), i))
	}
	for name, keys := range sets {
		slices.SortFunc(keys, bytes.Compare)
		for on, s := range stores(t) {
			cuts := realkeys.Cuts(keys, 7)
			for layout, l := range map[string]layouts.Layout{
				"wide":        layouts.NewWide(s, bucketID(), cuts...),
				"hash":        layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 16}),
				"one bucket":  layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 1}),
				"hash, naive": layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 16, Naive: true}),
				"prefix 1":    layouts.NewPrefix(s, bucketID(), 1), "prefix 2": layouts.NewPrefix(s, bucketID(), 2),
				"prefix 12": layouts.NewPrefix(s, bucketID(), 12),
				"evenkeel":  evenkeel(t, s, cuts),
			} {
				t.Run(name+"/"+on+"/"+layout, func(t *testing.T) {
					layouttest.ByKey(t, r, l, keys, true)
				})
			}
		}
	}
}

// Where all keys of a page lie in one bucket, a merge that reads a little of each
// has to ask for more.
func TestMergesAskAgain(t *testing.T) {
	const buckets = 16
	var keys [][]byte
	for i := 0; len(keys) < 700; i++ {
		if k := fmt.Appendf(nil, "a/%06d", i); layouts.HashBucket(k, buckets) == 3 {
			keys = append(keys, k)
		}
	}
	l := layouts.NewHash(memstore.New(), bucketID(), layouts.HashOptions{Buckets: buckets})
	layouttest.ByKey(t, seed.New(t), l, keys, true)
}

// Layouts of feeds show the newest first as the oracle does, over days that hold
// nothing.
func TestFeedsAnswerAsTheOracle(t *testing.T) {
	r := seed.New(t)
	keys := layouttest.FeedKeys(t, r, 2000)
	for on, s := range stores(t) {
		for layout, l := range map[string]layouts.Layout{
			"days": layouts.NewDays(s, bucketID()), "days x 5": layouts.NewDaysN(s, bucketID(), 5),
			"wide": layouts.NewWide(s, bucketID()), "evenkeel": evenkeel(t, s, realkeys.Cuts(keys, 3)),
		} {
			t.Run(on+"/"+layout, func(t *testing.T) {
				layouttest.Feed(t, r, l, keys)
			})
		}
	}
}

// Buckets of a fixed size hold what came, in the order in which it came, also after
// a restart.
func TestFixedKeepsTheOrderOfArrival(t *testing.T) {
	for on, s := range stores(t) {
		t.Run(on, func(t *testing.T) {
			id := bucketID()
			var came []layouts.Entry
			for round := range 5 {
				f := layouts.NewFixed(s, id, 70) // a new process
				for i := range 100 * round {
					came = append(came, layouts.Entry{Key: fmt.Appendf(nil, "%d/%d", i%7, len(came)), Value: []byte{}})
				}
				some := came[len(came)-100*round:]
				if len(some) > 0 {
					require.NoError(t, f.Load(t.Context(), some[:len(some)-1]))
					require.NoError(t, f.Put(t.Context(), some[len(some)-1].Key, nil))
				}
				for _, limit := range []int{1, 69, 70, 71, 1000} {
					var found []layouts.Entry
					for seq := uint64(0); ; {
						page, next, err := f.Arrivals(t.Context(), seq, limit)
						require.NoError(t, err)
						found = append(found, page...)
						if len(page) < limit {
							break
						}
						seq = next
					}
					require.Equal(t, keysOf(came), keysOf(found))
				}
				if round > 0 {
					require.Len(t, layouttest.Scanned(t, f, 3), len(came))
				}
			}
			f := layouts.NewFixed(s, id, 70)
			_, err := f.List(t.Context(), layouts.Query{})
			require.ErrorIs(t, err, layouts.ErrCannot)
			_, _, err = f.Get(t.Context(), came[0].Key)
			require.ErrorIs(t, err, layouts.ErrCannot)
		})
	}
}

func keysOf(entries []layouts.Entry) (keys []string) {
	for _, e := range entries {
		keys = append(keys, string(e.Key))
	}
	return keys
}

func TestRefusals(t *testing.T) {
	l := layouts.NewDays(memstore.New(), bucketID())
	for _, q := range []layouts.Query{{}, {Reverse: true, Prefix: []byte("a")},
		{Reverse: true, Delimiter: []byte("/")}} {
		_, err := l.List(t.Context(), q)
		require.ErrorIs(t, err, layouts.ErrCannot)
	}
	require.ErrorIs(t, l.Put(t.Context(), []byte("not an id"), nil), store.InvalidArgument)
	_, err := l.List(t.Context(), layouts.Query{Reverse: true, Limit: -1})
	require.ErrorIs(t, err, store.InvalidArgument)
}
