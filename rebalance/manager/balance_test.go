package manager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/rebalance/manager"
	"github.com/evenkeel/evenkeel/rebalance/plain"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// watched is a store that knows what is written to it through a client.
type watched struct {
	store.Store
	mu      sync.Mutex
	written map[store.Partition]manager.Written
	slices  int
}

func (w *watched) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	w.mu.Lock()
	x := w.written[p]
	x.Puts += int64(len(rows))
	w.written[p] = x
	w.mu.Unlock()
	return w.Store.Put(ctx, p, rows...)
}

func (w *watched) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	w.mu.Lock()
	x := w.written[p]
	x.Deletes++
	w.written[p] = x
	w.mu.Unlock()
	return w.Store.Delete(ctx, p, key, ts)
}

func (w *watched) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	w.mu.Lock()
	w.slices++
	w.mu.Unlock()
	return w.Store.Slice(ctx, p, b, o)
}

func (w *watched) Take() map[store.Partition]manager.Written {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.written
	w.written = map[store.Partition]manager.Written{}
	return all
}

func (w *watched) reads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.slices = 0 }()
	return w.slices
}

// sizes are the rows of each range, in order.
func (f *fixture) sizes(id store.BucketID) (out []int) {
	for _, rg := range f.ranges(id) {
		page, err := f.s.Slice(f.t.Context(), store.Partition{Bucket: id, ID: rg.Partition}, store.Bounds{Start: rg.Start, End: rg.End}, store.SliceOptions{Limit: store.MaxPageRows})
		require.NoError(f.t, err)
		out = append(out, len(page.Rows))
	}
	return out
}

// A bucket that nobody looks after grows, shrinks, and stays in shape; with and
// without knowing what was written.
func TestBalance(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("changes known %v", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 100
				w := &watched{Store: memstore.New(), written: map[store.Partition]manager.Written{}}
				f := newFixture(t, w, 3, 0)
				b := manager.Balance{Every: time.Second, Limits: plain.Limits{MaxRows: most, MinRows: 25, TargetRows: 60, MergeAfter: 10 * time.Second}}
				if known {
					b.Changes = w
				}
				g := manager.New(w.Store, f.c.Maps(), manager.Options{Balance: &b})
				end := runs(t, g)
				r := rand.New(rand.NewPCG(1, 2))
				grown := f.c.Bucket(name(1))
				keys := r.Perm(3000)
				for i, k := range keys {
					require.NoError(t, grown.Put(t.Context(), key(k), []byte("v")))
					if i%10 == 0 {
						time.Sleep(50 * time.Millisecond)
					}
				}
				time.Sleep(20 * time.Second)
				sizes := f.sizes(f.ids[1])
				require.LessOrEqual(t, slices.Max(sizes), most, "%v", sizes)
				require.GreaterOrEqual(t, slices.Min(sizes), 25, "%v", sizes)
				require.Equal(t, len(keys), f.keys(name(1)))
				require.Len(t, f.ranges(f.ids[0]), 1)

				// At rest: no round does anything, and none reads what is known.
				w.reads()
				root, err := f.c.Maps().Load(t.Context(), f.ids[1])
				require.NoError(t, err)
				time.Sleep(time.Minute)
				now, err := f.c.Maps().Load(t.Context(), f.ids[1])
				require.NoError(t, err)
				require.Equal(t, root.Epoch, now.Epoch)
				require.Zero(t, g.Status().Round.Splits+g.Status().Round.Merges)
				if known {
					require.Zero(t, g.Status().Round.Counted)
				} else {
					require.Equal(t, len(sizes)+3, g.Status().Round.Counted, "all ranges of three buckets and of their list")
				}

				// Overwriting is not growing.
				for _, k := range keys[:1000] {
					require.NoError(t, grown.Put(t.Context(), key(k), []byte("w")))
				}
				time.Sleep(20 * time.Second)
				require.Equal(t, sizes, f.sizes(f.ids[1]))

				for _, k := range keys[200:] {
					require.NoError(t, grown.Delete(t.Context(), key(k)))
				}
				time.Sleep(2 * time.Minute)
				sizes = f.sizes(f.ids[1])
				require.LessOrEqual(t, len(sizes), 9, "%v", sizes)
				require.LessOrEqual(t, slices.Max(sizes), 60, "%v", sizes)
				require.Equal(t, 200, f.keys(name(1)))
				for _, j := range g.Status().Jobs {
					require.NoError(t, j.Err())
					require.False(t, j.Ended.IsZero())
				}
				end()
			})
		})
	}
}

func TestBalanceKeepsPinsAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 10)
		g := manager.New(f.s, f.c.Maps(), manager.Options{Balance: &manager.Balance{Every: time.Second, Limits: plain.Limits{MaxRows: 100, MinRows: 25, TargetRows: 60}}})
		end := runs(t, g)
		f.finished(g, f.ask(g, f.ids[0], manager.Ask{Kind: manager.Presplit, Keys: bs("m"), PinUntil: time.Now().Unix() + 3600}).ID)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"m"}, f.cuts(f.ids[0]))
		why := g.Status().Round.Why
		require.Len(t, why, 2)
		require.Contains(t, why[0].Text, "pinned")
		require.Equal(t, "m", string(why[1].Start))
		time.Sleep(time.Hour)
		require.Empty(t, f.cuts(f.ids[0]))
		require.NoError(t, f.c.Bucket(name(0)).Put(t.Context(), key(1), nil))
		_, err := f.c.Bucket(name(0)).List(t.Context(), listing.Query{})
		require.NoError(t, err)
		end()
	})
}
