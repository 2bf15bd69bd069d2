package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// appends puts rows, in batches, as a tenant does that appends.
func (f *fixture) appends(bucket string, format string, from, to int) {
	f.t.Helper()
	var batch []listing.Entry
	for i := from; i < to; i++ {
		batch = append(batch, listing.Entry{Key: fmt.Appendf(nil, format, i), Value: []byte("v")})
		if len(batch) == 1000 || i == to-1 {
			require.NoError(f.t, f.c.Bucket(bucket).PutBatch(f.t.Context(), batch))
			batch = nil
		}
	}
}

// rowsIn counts the rows of each partition.
func (f *fixture) rowsIn(id store.BucketID) (rows []int) {
	f.t.Helper()
	for _, rg := range f.ranges(id) {
		page, err := f.s.Slice(f.t.Context(), store.Partition{Bucket: id, ID: rg.Partition}, store.Bounds{}, store.SliceOptions{Limit: store.MaxPageRows})
		require.NoError(f.t, err)
		require.False(f.t, page.More)
		rows = append(rows, len(page.Rows))
	}
	return rows
}

// What was announced fits into the partitions that were prepared, and no row moves.
func TestAppendsFindPartitionsPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 0)
		id := f.ids[0]
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		f.appends(name(0), "order-%09d.json", 0, 400)
		pin := time.Now().Unix() + 3600
		load := &scheduler.Append{RowsPerSecond: 100, ForS: 100, MaxRows: 1000}
		ask := scheduler.Ask{Kind: scheduler.Presplit, Append: load, PinUntil: time.Unix(pin, 0)}
		p, err := g.Plan(t.Context(), id, ask)
		require.NoError(t, err)
		require.Contains(t, p.Notes[0], "learned from 400 keys: zero-padded number after 'order-', step 1.00")
		require.Equal(t, "zero-padded number after 'order-', step 1.00", p.Learned.How)
		require.Len(t, p.Moves, 1)
		require.Len(t, p.Moves[0].Cuts, 12, "10,000 rows, 900 each")
		require.EqualValues(t, 400, p.Moves[0].Rows)
		require.Zero(t, p.Moves[0].Copies)
		j := f.finished(g, g.Submit(id, "presplit", p).ID)
		require.NoError(t, j.Err())
		require.Zero(t, j.Copied)
		for i, rg := range f.ranges(id) {
			if i > 0 {
				require.EqualValues(t, pin, rg.PinUntil)
			}
		}

		// Again, and nothing is left to do.
		time.Sleep(time.Second)
		p, err = g.Plan(t.Context(), id, ask)
		require.NoError(t, err)
		require.Empty(t, p.Moves, "%+v", p)
		require.Contains(t, p.Notes[1], "ahead already")

		f.appends(name(0), "order-%09d.json", 400, 5400)
		for _, n := range f.rowsIn(id) {
			require.LessOrEqual(t, n, 1000)
		}
		// In the middle of it, for some time more: only what lies beyond is cut.
		cuts := f.cuts(id)
		p, err = g.Plan(t.Context(), id, ask)
		require.NoError(t, err)
		require.Len(t, p.Moves, 1)
		require.Contains(t, p.Notes[0], "learned from 5000 keys")
		require.Empty(t, p.Moves[0].End, "beyond the last cut only")
		require.NoError(t, f.finished(g, g.Submit(id, "presplit", p).ID).Err())
		require.Equal(t, cuts, f.cuts(id)[:len(cuts)])
		require.Len(t, f.cuts(id), len(cuts)+5, "to 15,400")

		f.appends(name(0), "order-%09d.json", 5400, 15_400)
		rows := f.rowsIn(id)
		for i, n := range rows {
			require.LessOrEqual(t, n, 1000, "partition %d: %v", i, rows)
			if i < len(rows)-2 {
				require.GreaterOrEqual(t, n, 600, "partition %d: %v", i, rows)
			}
		}
		require.Equal(t, 15_400, f.keys(name(0)))
		end()
	})
}

// What lies ahead already, wherever it lies, is used or left alone, and no range is
// larger than wanted.
func TestAppendsBetweenCutsThatAreThere(t *testing.T) {
	r := seed.New(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memstore.New(), 1, 0)
			id := f.ids[0]
			g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
			end := runs(t, g)
			had := r.IntN(1200) + 20
			f.appends(name(0), "k/%08d", 0, had)
			var there [][]byte
			for at := had + r.IntN(2000); at < 12_000 && len(there) < 10; at += 1 + r.IntN(3000) {
				there = append(there, fmt.Appendf(nil, "k/%08d", at))
			}
			if len(there) > 0 {
				require.NoError(t, f.finished(g, f.ask(g, id, scheduler.Ask{Kind: scheduler.Presplit, Keys: there}).ID).Err())
				time.Sleep(time.Second)
			}
			j := f.ask(g, id, scheduler.Ask{Kind: scheduler.Presplit, Append: &scheduler.Append{RowsPerSecond: 100, ForS: 80, MaxRows: 1000}})
			require.NoError(t, f.finished(g, j.ID).Err())
			f.appends(name(0), "k/%08d", had, had+8000)
			for i, n := range f.rowsIn(id) {
				if i == 0 {
					require.LessOrEqual(t, n, max(1030, had+130))
					continue
				}
				require.LessOrEqual(t, n, 1030, "%d rows before, cuts at %q, then %q", had, there, f.cuts(id))
			}
			end()
		})
	}
}

func TestAppendsThatCannotBePrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 2, 0)
		id := f.ids[0]
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		load := scheduler.Append{RowsPerSecond: 100, ForS: 3600, MaxRows: 1000}
		plan := func(change func(a *scheduler.Append)) (*scheduler.Plan, error) {
			a := load
			change(&a)
			return g.Plan(t.Context(), id, scheduler.Ask{Kind: scheduler.Presplit, Append: &a})
		}
		refused := func(says string, change func(a *scheduler.Append)) {
			t.Helper()
			_, err := plan(change)
			require.ErrorIs(t, err, store.InvalidArgument)
			require.ErrorContains(t, err, says)
		}
		as := func(*scheduler.Append) {}
		refused("the bucket is empty", as)
		refused("above 0", func(a *scheduler.Append) { a.RowsPerSecond = 0 })
		refused("above 0", func(a *scheduler.Append) { a.ForS = -1 })
		refused("room for 10 rows", func(a *scheduler.Append) { a.MaxRows = 0 })
		refused("more than 4000", func(a *scheduler.Append) { a.RowsPerSecond = 1e9 })
		_, err := g.Plan(t.Context(), id, scheduler.Ask{Kind: scheduler.Presplit, Append: &load, Keys: bs("x")})
		require.ErrorContains(t, err, "not both")

		// An empty bucket with keys like those to come.
		var like [][]byte
		for i := range 100 {
			like = append(like, fmt.Appendf(nil, "order-%09d", i*10))
		}
		p, err := plan(func(a *scheduler.Append) { a.Like = like })
		require.NoError(t, err)
		require.Len(t, p.Moves, 1)
		require.Len(t, p.Moves[0].Cuts, 400)
		require.Equal(t, "order-00000999", string(p.Moves[0].Cuts[0]))
		refused("a digit more", func(a *scheduler.Append) { a.Like, a.MaxRows, a.RowsPerSecond = like, 100_000, 100_000 })
		refused("do not ascend", func(a *scheduler.Append) { a.Like = bs("b", "a") })

		f.appends(name(0), "order-%d", 1, 500)
		refused("--at-file", as)
		refused("without leading zeros", as)
	})
}
