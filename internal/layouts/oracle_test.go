package layouts_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/layouts"
	"github.com/evenkeel/evenkeel/internal/realkeys"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// oracle is a sorted slice.
type oracle struct {
	keys   []string
	values map[string]string
}

func newOracle(entries []layouts.Entry) *oracle {
	o := &oracle{values: map[string]string{}}
	for _, e := range entries {
		o.values[string(e.Key)] = string(e.Value)
	}
	for k := range o.values {
		o.keys = append(o.keys, k)
	}
	sort.Strings(o.keys)
	return o
}

// list answers a query as its documentation says, with no care for cost.
func (o *oracle) list(q layouts.Query) (lines []string) {
	keys := slices.Clone(o.keys)
	if q.Reverse {
		slices.Reverse(keys)
	}
	limit := q.Limit
	if limit == 0 {
		limit = layouts.DefaultLimit
	}
	for _, k := range keys {
		if !strings.HasPrefix(k, string(q.Prefix)) {
			continue
		}
		if after := string(q.After); after != "" {
			if q.Reverse && k >= after || !q.Reverse && k <= after {
				continue
			}
			folded := false // after is a common prefix
			if rest, within := strings.CutPrefix(after, string(q.Prefix)); within && len(q.Delimiter) > 0 {
				before, beyond, found := strings.Cut(rest, string(q.Delimiter))
				folded = found && beyond == "" && len(before)+len(q.Delimiter) == len(rest)
			}
			if folded && strings.HasPrefix(k, after) {
				continue
			}
		}
		line := k + " = " + o.values[k]
		if len(q.Delimiter) > 0 {
			if at := strings.Index(k[len(q.Prefix):], string(q.Delimiter)); at >= 0 {
				line = k[:len(q.Prefix)+at+len(q.Delimiter)] + " ..."
			}
		}
		if len(lines) > 0 && lines[len(lines)-1] == line {
			continue
		}
		if len(lines) == limit {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

func linesOf(items []layouts.Item) (lines []string) {
	for _, item := range items {
		if item.CommonPrefix {
			lines = append(lines, string(item.Key)+" ...")
		} else {
			lines = append(lines, string(item.Key)+" = "+string(item.Value))
		}
	}
	return lines
}

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
	c, err := listing.NewEmbedded(s, listing.Options{})
	require.NoError(t, err)
	t.Cleanup(c.Maps().Close)
	require.NoError(t, c.CreateBucket(context.Background(), "b", cuts...))
	return layouts.NewEvenkeel(c, "b")
}

func value(r *rand.Rand) []byte { return fmt.Appendf(nil, "%x", r.Uint64()) }

// fill puts entries, some of them twice, and some one by one.
func fill(t *testing.T, r *rand.Rand, l layouts.Layout, keys [][]byte) *oracle {
	var entries []layouts.Entry
	for _, i := range r.Perm(len(keys)) {
		entries = append(entries, layouts.Entry{Key: keys[i], Value: value(r)})
		if r.IntN(10) == 0 {
			entries = append(entries, layouts.Entry{Key: keys[r.IntN(len(keys))], Value: value(r)})
		}
	}
	single := min(len(entries), 200)
	require.NoError(t, l.Load(t.Context(), entries[:len(entries)-single]))
	for _, e := range entries[len(entries)-single:] {
		require.NoError(t, l.Put(t.Context(), e.Key, e.Value))
	}
	return newOracle(entries)
}

// scanned reads everything.
func scanned(t *testing.T, l layouts.Layout, readers int) map[string]string {
	var mu sync.Mutex
	found := map[string]string{}
	require.NoError(t, l.Scan(t.Context(), readers, func(entries []layouts.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			_, twice := found[string(e.Key)]
			require.False(t, twice, "%q", e.Key)
			found[string(e.Key)] = string(e.Value)
		}
		return nil
	}))
	return found
}

// Layouts by key answer whatever query as a sorted slice does, over keys that are
// easily got wrong and over those that begin alike.
func TestLayoutsByKeyAnswerAsTheOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	sets := map[string][][]byte{
		"awkward": realkeys.Awkward(1500, seed, true),
		"dates":   nil,
		"md5":     nil,
	}
	for i := range 1500 {
		sum := md5.Sum(fmt.Appendf(nil, "%d", i))
		sets["md5"] = append(sets["md5"], []byte(hex.EncodeToString(sum[:])))
		sets["dates"] = append(sets["dates"], fmt.Appendf(nil, "logs/2024/%02d/%02d/%06d", 1+r.IntN(12), 1+r.IntN(28), i))
	}
	for name, keys := range sets {
		slices.SortFunc(keys, bytes.Compare)
		for on, s := range stores(t) {
			cuts := realkeys.Cuts(keys, 7)
			for layout, l := range map[string]layouts.Layout{
				"wide": layouts.NewWide(s, bucketID(), cuts...),
				"hash": layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 16}), "one bucket": layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 1}),
				"hash, naive": layouts.NewHash(s, bucketID(), layouts.HashOptions{Buckets: 16, Naive: true}),
				"prefix 1":    layouts.NewPrefix(s, bucketID(), 1), "prefix 2": layouts.NewPrefix(s, bucketID(), 2), "prefix 12": layouts.NewPrefix(s, bucketID(), 12),
				"evenkeel": evenkeel(t, s, cuts),
			} {
				t.Run(name+"/"+on+"/"+layout, func(t *testing.T) {
					o := fill(t, r, l, keys)
					for range 150 {
						q := someQuery(r, o)
						items, err := l.List(t.Context(), q)
						require.NoError(t, err)
						require.Equal(t, o.list(q), linesOf(items), "%v", q)
					}
					var all []layouts.Item
					for item, err := range layouts.All(t.Context(), l, layouts.Query{Limit: 97}) {
						require.NoError(t, err)
						all = append(all, item)
					}
					require.Equal(t, o.list(layouts.Query{Limit: 1 << 30}), linesOf(all))
					for _, readers := range []int{1, 8} {
						require.Equal(t, o.values, scanned(t, l, readers))
					}
					for range 50 {
						k := o.keys[r.IntN(len(o.keys))]
						v, found, err := l.Get(t.Context(), []byte(k))
						require.NoError(t, err)
						require.True(t, found)
						require.Equal(t, o.values[k], string(v))
						_, found, err = l.Get(t.Context(), []byte("no such key "+k))
						require.NoError(t, err)
						require.False(t, found)
						p, err := l.Partition(t.Context(), []byte(k))
						require.NoError(t, err)
						require.NotEmpty(t, p)
					}
				})
			}
		}
	}
}

func someQuery(r *rand.Rand, o *oracle) (q layouts.Query) {
	key := o.keys[r.IntN(len(o.keys))]
	if r.IntN(2) == 0 {
		q.Prefix = []byte(key[:r.IntN(min(len(key), 12)+1)])
	}
	if r.IntN(2) == 0 {
		q.Delimiter = [][]byte{[]byte("/"), []byte("a"), []byte("\xff"), []byte("//")}[r.IntN(4)]
	} else {
		q.Reverse = r.IntN(2) == 0
	}
	q.Limit = r.IntN(60)
	switch r.IntN(4) {
	case 0:
		q.After = []byte(o.keys[r.IntN(len(o.keys))])
	case 1:
		q.After = append(bytes.Clone(q.Prefix), key[len(q.Prefix):]...)[:r.IntN(len(key))+1]
	case 2:
		if items := o.list(layouts.Query{Prefix: q.Prefix, Delimiter: q.Delimiter}); len(items) > 0 { // a page's last line
			last := items[r.IntN(len(items))]
			if p, folded := strings.CutSuffix(last, " ..."); folded {
				q.After = []byte(p)
			}
		}
	}
	return q
}

// feed makes ids of some weeks: days without any, and one that has half of all.
func feed(t testing.TB, r *rand.Rand, n int) (keys [][]byte) {
	g, err := layouts.NewGenerator(3, 7)
	require.NoError(t, err)
	var at []time.Duration
	for range n {
		day := []int{0, 1, 2, 9, 30, 31, 31, 31, 31, 31}[r.IntN(10)]
		at = append(at, time.Duration(day)*24*time.Hour+time.Duration(r.Int64N(int64(24*time.Hour))))
	}
	slices.Sort(at)
	for _, d := range at {
		id, err := g.Next(layouts.Epoch.AddDate(1, 2, 3).Add(d))
		require.NoError(t, err)
		keys = append(keys, id.Key())
	}
	return keys
}

// Layouts of feeds show the newest first as the oracle does, over days that hold
// nothing.
func TestFeedsAnswerAsTheOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	keys := feed(t, r, 3000)
	for on, s := range stores(t) {
		for layout, l := range map[string]layouts.Layout{
			"days": layouts.NewDays(s, bucketID()), "days x 5": layouts.NewDaysN(s, bucketID(), 5),
			"wide": layouts.NewWide(s, bucketID()), "evenkeel": evenkeel(t, s, realkeys.Cuts(keys, 3)),
		} {
			t.Run(on+"/"+layout, func(t *testing.T) {
				o := fill(t, r, l, keys)
				for range 100 {
					q := layouts.Query{Reverse: true, Limit: 1 + r.IntN(900)}
					if r.IntN(4) > 0 {
						q.After = []byte(o.keys[r.IntN(len(o.keys))])
					}
					items, err := l.List(t.Context(), q)
					require.NoError(t, err)
					require.Equal(t, o.list(q), linesOf(items), "%v", q)
				}
				require.Equal(t, o.values, scanned(t, l, 1))
				require.Equal(t, o.values, scanned(t, l, 4))
				for _, k := range o.keys[:50] {
					v, found, err := l.Get(t.Context(), []byte(k))
					require.NoError(t, err)
					require.True(t, found)
					require.Equal(t, o.values[k], string(v))
				}
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
					require.Len(t, scanned(t, f, 3), len(came))
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
	for _, q := range []layouts.Query{{}, {Reverse: true, Prefix: []byte("a")}, {Reverse: true, Delimiter: []byte("/")}} {
		_, err := l.List(t.Context(), q)
		require.ErrorIs(t, err, layouts.ErrCannot)
	}
	require.ErrorIs(t, l.Put(t.Context(), []byte("not an id"), nil), store.InvalidArgument)
	_, err := l.List(t.Context(), layouts.Query{Reverse: true, Limit: -1})
	require.ErrorIs(t, err, store.InvalidArgument)
}
