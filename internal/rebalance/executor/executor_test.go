package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// fixture is a bucket of one range with rows, and what is needed to move it.
type fixture struct {
	s store.Store
	c *listing.Client
	b *listing.Bucket
	// id is the bucket's.
	id store.BucketID
}

func key(i int) []byte { return fmt.Appendf(nil, "key-%07d", i) }

func newFixture(t testing.TB, s store.Store, rows int) *fixture {
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return newFixtureIn(t, s, rows)
}

// newFixtureOf makes a bucket with cuts, and leaves it to the caller to close the store.
func newFixtureOf(t testing.TB, s store.Store, cuts ...[]byte) *fixture {
	ctx := context.Background()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b", cuts...))
	id, err := c.BucketID(ctx, "b")
	require.NoError(t, err)
	return &fixture{s: s, c: c, b: c.Bucket("b"), id: id}
}

// newFixtureIn leaves it to the caller to close the store.
func newFixtureIn(t testing.TB, s store.Store, rows int) *fixture {
	ctx := context.Background()
	f := newFixtureOf(t, s)
	var batch []listing.Entry
	for i := range rows {
		batch = append(batch, listing.Entry{Key: key(i), Value: fmt.Appendf(nil, "value %d", i)})
		if len(batch) == 5000 || i == rows-1 {
			require.NoError(t, f.b.PutBatch(ctx, batch))
			batch = batch[:0]
		}
	}
	return f
}

func (f *fixture) ranges(t testing.TB) (out []partmap.Range) {
	ctx := context.Background()
	root, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	for rg, err := range mapclient.Of(f.c).Ranges(ctx, root, nil) {
		require.NoError(t, err)
		out = append(out, rg)
	}
	require.Empty(t, partmap.Validate(root, func(id store.NodeID) ([]byte, error) { return f.s.Node(ctx, f.id, id) }))
	return out
}

// rowsOf is how many rows a partition has, but for notes.
func (f *fixture) rowsOf(t testing.TB, id store.PartitionID) (n int) {
	b := store.Bounds{}
	for {
		page, err := executor.WithoutNotes(f.s).Slice(context.Background(), store.Partition{Bucket: f.id, ID: id}, b,
			store.SliceOptions{Limit: 5000})
		require.NoError(t, err)
		n += len(page.Rows)
		if !page.More {
			return n
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}

// underLoad runs f while writers put and delete and listers read everything. It
// fails at the first error and at the first listing that is not complete.
func (f *fixture) underLoad(t *testing.T, rows int, run func()) (writes, lists int64) {
	ctx := context.Background()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var nw, nl atomic.Int64
	fail := func(format string, args ...any) { t.Errorf(format, args...) }
	for w := range 2 {
		wg.Go(func() {
			// Keys of this writer's own, between those that always exist.
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				k := fmt.Appendf(key((i*7919+w*13)%rows), "-%d", w)
				if err := f.b.Put(ctx, k, []byte("own")); err != nil {
					fail("put: %v", err)
					return
				}
				if got, err := f.b.Get(ctx, k); err != nil || string(got.Value) != "own" {
					fail("get after put: %q %v", got.Value, err)
					return
				}
				if err := f.b.Delete(ctx, k); err != nil {
					fail("delete: %v", err)
					return
				}
				if _, err := f.b.Get(ctx, k); !errors.Is(err, listing.ErrNotFound) {
					fail("get after delete: %v", err)
					return
				}
				nw.Add(2)
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, last := 0, ""
			for e, err := range f.b.All(ctx, listing.Query{}) {
				if err != nil {
					fail("list: %v", err)
					return
				}
				if string(e.Key) <= last {
					fail("list: %q after %q", e.Key, last)
					return
				}
				last = string(e.Key)
				if len(e.Key) == len(key(0)) {
					if string(e.Key) != string(key(n)) {
						fail("list: %q instead of %q", e.Key, key(n))
						return
					}
					n++
				}
			}
			if n != rows {
				fail("a listing of %d rows instead of %d", n, rows)
				return
			}
			nl.Add(1)
		}
	})
	run()
	close(stop)
	wg.Wait()
	return nw.Load(), nl.Load()
}

func cuts(rows, parts int) (out [][]byte) {
	for i := 1; i < parts; i++ {
		out = append(out, key(i*rows/parts))
	}
	return out
}

func overStores(t *testing.T, f func(t *testing.T, s store.Store)) {
	t.Run("Memory", func(t *testing.T) { f(t, memstore.New()) })
	t.Run("Pebble", func(t *testing.T) {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
		require.NoError(t, err)
		f(t, s)
	})
}

func TestSplitMergeRefreshUnderLoad(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		const rows, parts = 6000, 12
		f := newFixture(t, s, rows)
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{PageRows: 100, Observe: func(e executor.Event) {
			if e.Err != nil {
				t.Errorf("event: %+v", e)
			}
		}})
		writes, lists := f.underLoad(t, rows, func() {
			old := f.ranges(t)[0].Partition
			x.Add(move.Split(nil, nil, 0, cuts(rows, parts)...))
			require.NoError(t, x.Run(t.Context()))
			rs := f.ranges(t)
			require.Len(t, rs, parts)
			require.Equal(t, old, rs[0].Partition)

			x.Add(move.Merge(rs[2].Start, rs[4].End), move.Refresh(&rs[7]), move.Merge(rs[0].Start, rs[1].End))
			require.NoError(t, x.Run(t.Context()))
			after := f.ranges(t)
			require.Len(t, after, parts-3)
			for _, gone := range []int{0, 1, 2, 3, 4, 7} {
				require.Zero(t, f.rowsOf(t, rs[gone].Partition), "range %d", gone)
			}
		})
		t.Logf("%d writes, %d whole listings, %+v", writes, lists, x.Progress())
		total := 0
		for _, rg := range f.ranges(t) {
			require.False(t, rg.SweepPending)
			total += f.rowsOf(t, rg.Partition)
		}
		require.Equal(t, rows, total, "nothing is left but the rows: no marker either")
	})
}

// A bucket of 300,000 rows in one partition becomes twelve ranges, while writers
// and listers go on.
func TestLargeSplitUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	const parts = 12
	rows := 30_000
	if os.Getenv("EVENKEEL_LARGE") != "" {
		rows = 300_000
	}
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	f := newFixture(t, s, rows)
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Observe: func(e executor.Event) {
		if e.Err != nil {
			t.Errorf("event: %+v", e)
		}
	}})
	began := time.Now()
	writes, lists := f.underLoad(t, rows, func() {
		x.Add(move.Split(nil, nil, 0, cuts(rows, parts)...))
		require.NoError(t, x.Run(t.Context()))
	})
	t.Logf("%d rows in %s: %d writes, %d whole listings, %+v", rows, time.Since(began), writes, lists, x.Progress())
	require.Len(t, f.ranges(t), parts)
	total := 0
	for _, rg := range f.ranges(t) {
		total += f.rowsOf(t, rg.Partition)
	}
	require.Equal(t, rows, total)
	require.Zero(t, x.Progress().Mended, "nothing comes late here, so the copies were complete")
	require.LessOrEqual(t, x.Progress().Copied, int64(rows)+writes,
		"only what was there, and what was written meanwhile")
}
