package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Rows that arrive in the source after the copy, anywhere, older, newer or of the same
// time as what the destination has, and markers: of each key what wins is in the
// range's home in the end, with its own timestamp, and nothing that lost was written.
func TestVerifyingMendsWhatCameLate(t *testing.T) {
	r := seed.New(t)
	for range 20 {
		rows := 1 + r.IntN(600)
		f := newFixture(t, memstore.New(), rows)
		source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		want, mended, arrived := map[string]store.Row{}, 0, 0
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			PageRows: 1 + r.IntN(100), BatchRows: 1 + r.IntN(30), Writers: 1 + r.IntN(4),
			Failpoint: func(ctx context.Context, point, _ string) error {
				if point != "before compare" {
					return nil
				}
				page, err := f.s.Slice(ctx, source, store.Bounds{},
					store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true})
				require.NoError(t, err)
				for _, row := range page.Rows {
					want[string(row.Key)] = row
				}
				for i := range rows {
					late := store.Row{Key: key(i), Value: store.EntryCell(fmt.Appendf(nil, "late %d", r.IntN(2)))}
					if late.Timestamp = want[string(late.Key)].Timestamp + store.Timestamp(r.IntN(3)-1); r.IntN(4) == 0 {
						late.Value = cells.Marker()
					}
					switch r.IntN(4) {
					case 0: // a key that is new
						late.Key = append(late.Key, '+')
						late.Timestamp = 1 + store.Timestamp(r.IntN(1000))
					case 1:
					default:
						continue
					}
					require.NoError(t, f.s.Put(ctx, source, late))
					old, there := want[string(late.Key)]
					if !there {
						arrived++
					}
					if late.Timestamp > old.Timestamp || late.Timestamp == old.Timestamp &&
						bytes.Compare(late.Value, old.Value) > 0 {
						want[string(late.Key)] = late
						mended++
					}
				}
				return nil
			},
		})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(t.Context()))
		home := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		require.NotEqual(t, source, home)
		page, err := f.s.Slice(t.Context(), home, store.Bounds{},
			store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true})
		require.NoError(t, err)
		markers := 0
		for _, row := range want {
			if cells.IsMarker(row.Value) {
				markers++
			}
		}
		require.Equal(t, len(want)-markers, len(page.Rows), "all but the markers, which are swept")
		for _, row := range page.Rows {
			require.True(t, cells.IsCopied(row.Value), "it came from the source, and nobody wrote it here")
			row.Value = cells.Original(row.Value)
			require.Equal(t, want[string(row.Key)], row)
		}
		require.Zero(t, f.rowsOf(t, source.ID))
		p := x.Progress()
		require.Equal(t, executor.Progress{Copied: int64(rows), Compared: int64(rows + arrived), Mended: int64(mended),
			Searched: int64(len(want)), Swept: int64(markers)}, p)
	}
}

// sizes notes what is written at once.
type sizes struct {
	store.Store
	mu   sync.Mutex
	rows int
	size int
}

func (s *sizes) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	size := 0
	for i := range rows {
		size += len(rows[i].Key) + len(rows[i].Value)
	}
	s.mu.Lock()
	s.rows, s.size = max(s.rows, len(rows)), max(s.size, size)
	s.mu.Unlock()
	return s.Store.Put(ctx, p, rows...)
}

// Batches are small while there is a throttle, larger without, and never above a
// mebibyte.
func TestBatchesAreBounded(t *testing.T) {
	ctx := t.Context()
	const rows, large = 1200, 30
	s := &sizes{Store: memstore.New()}
	f := newFixture(t, s, rows)
	move := func(rate int) (most, size int) {
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			Pace: wait.NewPacer(rate),
		})
		s.rows, s.size = 0, 0
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(ctx))
		return s.rows, s.size
	}
	most, _ := move(1_000_000)
	require.Equal(t, 200, most)
	most, _ = move(0)
	require.Equal(t, 500, most)
	synctest.Test(t, func(t *testing.T) { // the least rate is a throttle, too
		most, _ = move(1)
		require.Equal(t, 200, most)
	})
	for i := range large {
		require.NoError(t, f.b.Put(ctx, key(i), make([]byte, 60<<10)))
	}
	for _, rate := range []int{0, 1_000_000} {
		_, size := move(rate)
		require.LessOrEqual(t, size, 1<<20)
		require.Greater(t, size, 1<<19)
	}
}

// restored is a bucket whose rows are older than its map: its range drains though the
// destination lacks a third of the rows, and has markers of another third.
func restored(t *testing.T, s store.Store, rows int) *fixture {
	f := newFixture(t, s, rows)
	died := fmt.Errorf("died")
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point,
		_ string) error {
		if point == "before remove" {
			return died
		}
		return nil
	}})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.ErrorIs(t, x.Run(t.Context()), died)
	rg = f.ranges(t)[0]
	require.Equal(t, partmap.Draining, rg.Phase)
	// The destination as it was while rows were copied: some not yet, some deleted.
	older := store.Partition{Bucket: f.id, ID: store.PartitionID(uuid.New())}
	page, err := f.s.Slice(t.Context(), store.Partition{Bucket: f.id, ID: rg.To}, store.Bounds{},
		store.SliceOptions{Limit: rows, Timestamps: true})
	require.NoError(t, err)
	for i, row := range page.Rows {
		switch i % 3 {
		case 0:
			require.NoError(t, f.s.Put(t.Context(), older, row))
		case 1:
			require.NoError(t, f.s.Put(t.Context(), older,
				store.Row{Key: row.Key, Value: cells.Marker(), Timestamp: row.Timestamp + 1}))
		}
	}
	rec, err := f.s.Read(t.Context(), store.Roots, f.id[:], store.Serial)
	require.NoError(t, err)
	root, err := partmap.DecodeRoot(f.id, rec)
	require.NoError(t, err)
	root.Entries[0].To = older.ID
	root.Epoch, root.Token = root.Epoch+1, storekit.NewToken()
	next, err := partmap.EncodeRoot(root)
	require.NoError(t, err)
	require.NoError(t, f.s.Swap(t.Context(), store.Roots, f.id[:], rec.Version, next))
	return f
}

// A store was restored, and its rows are older than its map: a range drains though
// its destination lacks rows, or has older ones. The mover that takes over removes no
// row that is nowhere else, and brings none back that was deleted.
func TestDrainingKeepsWhatIsNowhereElse(t *testing.T) {
	const rows = 300
	f := restored(t, memstore.New(), rows)
	source, dest := f.ranges(t)[0].Partition, f.ranges(t)[0].To
	// Of one row the destination has a smaller value of a client, at the same timestamp.
	row, found, err := f.s.Get(t.Context(), store.Partition{Bucket: f.id, ID: source}, key(2))
	require.NoError(t, err)
	require.True(t, found)
	row.Value = store.EntryCell([]byte("a"))
	require.NoError(t, f.s.Put(t.Context(), store.Partition{Bucket: f.id, ID: dest}, row))

	require.NoError(t, executor.New(f.s, mapclient.Of(f.c), f.id,
		executor.Options{PageRows: 50, BatchRows: 7}).Run(t.Context()))
	values := map[string]string{}
	for e, err := range f.b.All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		values[string(e.Key)] = string(e.Value)
	}
	for i := range rows {
		want := fmt.Sprintf("value %d", i)
		if i%3 == 1 {
			want = ""
		}
		require.Equal(t, want, values[string(key(i))], "%s", key(i))
	}
	require.Zero(t, f.rowsOf(t, source))
}

// Also where what the destination lacks is one row more than a batch holds, or one row at all.
func TestDrainingKeepsTheLastRow(t *testing.T) {
	const page = 24 // the destination lacks eight rows of each
	for _, batch := range []int{1, 7, 8, 9} {
		f := restored(t, memstore.New(), 2*page)
		o := executor.Options{PageRows: page, BatchRows: batch}
		require.NoError(t, executor.New(f.s, mapclient.Of(f.c), f.id, o).Run(t.Context()))
		for i := 2; i < 2*page; i += 3 {
			e, err := f.b.Get(t.Context(), key(i))
			require.NoError(t, err, "%s, batches of %d", key(i), batch)
			require.Equal(t, fmt.Sprintf("value %d", i), string(e.Value))
		}
	}
}

// It removes nothing when one of its calls failed, nor when what it has to write was read
// too long ago.
func TestDrainingThatFailsRemovesNothing(t *testing.T) {
	const rows = 60
	o := executor.Options{PageRows: 20, BatchRows: 7}
	for nth := 1; ; nth++ {
		way := faulttest.Way{Times: 1, Fault: faultstore.Fault{Ending: faultstore.Refused, Kind: store.Corrupt}}
		failed := false
		for _, op := range []faultstore.Op{faultstore.Slice, faultstore.Put} {
			s, faults := faulttest.Case{Op: op, Nth: nth, Way: &way}.Store(memstore.New())
			f := restored(t, s, rows)
			source := f.ranges(t)[0].Partition
			faults.Enable(true)
			err := executor.New(s, mapclient.Of(f.c), f.id, o).Run(t.Context())
			faults.Enable(false)
			if faulttest.Injected(faults) == 0 {
				require.NoError(t, err)
				continue
			}
			failed = true
			require.ErrorIs(t, err, store.Corrupt, "%s %d", op, nth)
			if f.ranges(t)[0].Phase == partmap.Draining {
				require.Equal(t, rows, f.rowsOf(t, source), "%s %d", op, nth)
			}
		}
		if !failed {
			require.Greater(t, nth, 6)
			break
		}
	}
	f := restored(t, memstore.New(), rows)
	source := f.ranges(t)[0].Partition
	for _, late := range []time.Duration{time.Second, time.Second + 1} { // between a look at the clock and the next
		now := time.Now()
		o.WriteTimeout, o.Now = time.Second, func() time.Time { now = now.Add(late); return now }
		ctx, cancel := context.WithCancel(t.Context())
		o.Observe = func(e executor.Event) {
			if task, _ := e.Effect.(move.Task); task.Phase == partmap.Draining {
				require.Equal(t, late > o.WriteTimeout, e.Err != nil)
				if e.Err != nil {
					require.ErrorContains(t, e.Err, "read too long ago")
				}
				cancel()
			}
		}
		_ = executor.New(f.s, mapclient.Of(f.c), f.id, o).Run(ctx)
		require.Error(t, ctx.Err())
		if late > o.WriteTimeout {
			require.Equal(t, rows, f.rowsOf(t, source))
		} else {
			f = restored(t, memstore.New(), rows)
			source = f.ranges(t)[0].Partition
		}
	}
}

// Whether keys were removed shows next to any key, but for none when the range ends
// there; no row is left of the trial.
func TestRemoved(t *testing.T) {
	s := memstore.New()
	p := store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{2}}
	within := store.Bounds{Start: []byte("b"), End: []byte("d")}
	const removed = 1000
	emptied := func(key []byte, ts store.Timestamp) (bool, error) {
		return executor.Removed(t.Context(), s, p, within, key, ts)
	}
	found, err := emptied([]byte("c"), removed)
	require.NoError(t, err)
	require.False(t, found)
	page, err := s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 9})
	require.NoError(t, err)
	require.Empty(t, page.Rows)
	require.NoError(t, s.Remove(t.Context(), p, within, removed))
	for ts, want := range map[store.Timestamp]bool{removed - 1: true, removed: true, removed + 1: false} {
		found, err := emptied([]byte("c"), ts)
		require.NoError(t, err)
		require.Equal(t, want, found, "%d", ts)
	}
	longest := append([]byte("c"), make([]byte, store.MaxKeyBytes-18)...) // with what comes behind it
	for _, c := range []struct {
		key, end string
		refused  bool
	}{
		{string(longest), "d", false}, {string(longest) + "0", "d", true},
		{"c", "c\x01", false}, {"c", "c\x00", true}, {"c", "", false},
	} {
		within.End = []byte(c.end)
		_, err = emptied([]byte(c.key), removed)
		require.Equal(t, c.refused, errors.Is(err, store.InvalidArgument), "%.9q %q: %v", c.key, c.end, err)
	}
	within.End = []byte("d")
	for _, op := range []faultstore.Op{faultstore.Put, faultstore.Get, faultstore.Delete} {
		way := faulttest.Way{Times: 1, Fault: faultstore.Fault{Ending: faultstore.Refused, Kind: store.Unavailable}}
		failing, faults := faulttest.Case{Op: op, Nth: 1, Way: &way}.Store(s)
		faults.Enable(true)
		found, err := executor.Removed(t.Context(), failing, p, within, []byte("c"), removed+1)
		require.ErrorIs(t, err, store.Unavailable, op)
		require.False(t, found)
	}
}
