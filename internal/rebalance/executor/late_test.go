package executor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// absent holds a key to being absent, by a get and by a listing. It does not end the
// test: a mover whose failpoint does not return would never end.
func (f *fixture) absent(t testing.TB, k []byte, when string) {
	_, err := f.b.Get(t.Context(), k)
	assert.ErrorIs(t, err, listing.ErrNotFound, "%s: %s", when, k)
	page, err := f.b.List(t.Context(), listing.Query{From: k, Limit: 1})
	assert.NoError(t, err)
	assert.False(t, len(page.Items) > 0 && string(page.Items[0].Key) == string(k), "%s: %s is listed", when, k)
}

// Plain deletes from before the move arrive in the source at any moment of it. Whoever
// has seen that a row is gone never sees it again, whatever the mover was about to do
// with it; and a delete that arrived before the range was compared has its effect, as
// without a move.
func TestLateDeletesStayOnceSeen(t *testing.T) {
	r := seed.New(t)
	for round := range 20 {
		often := round%2 == 0 // what is gone is read again and again, which mends by itself
		rows := 1 + r.IntN(80)
		f := newFixture(t, memstore.New(), rows)
		source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		var mu sync.Mutex
		gone := map[int]bool{} // their absence was seen, or must have its effect
		deletes := func(ctx context.Context, i int) {
			row, found, err := f.s.Get(ctx, source, key(i))
			assert.NoError(t, err)
			if found {
				assert.NoError(t, f.s.Delete(ctx, source, key(i), row.Timestamp+store.Timestamp(r.IntN(2))))
			}
		}
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
			PageRows: 1 + r.IntN(10), BatchRows: 1 + r.IntN(5), Writers: 1 + r.IntN(3),
			Failpoint: func(ctx context.Context, point, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				switch point {
				case "before copy", "copy batch", "after copy", "before compare", "compare lost", "after compare":
				default:
					return nil
				}
				for range r.IntN(4) {
					i := r.IntN(rows)
					deletes(ctx, i)
					switch copying := point == "before copy" || point == "copy batch" || point == "after copy"; {
					case often, !copying && r.IntN(2) == 0:
						f.absent(t, key(i), point)
					case !copying:
						continue // may come too late
					}
					gone[i] = true
				}
				for i := range gone {
					if often {
						f.absent(t, key(i), point)
					}
				}
				return nil
			},
		})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(t.Context()))
		for i := range rows {
			if gone[i] {
				f.absent(t, key(i), "after the move")
			}
		}
	}
}

// hooked is a store that tells of reads before it does them.
type hooked struct {
	store.Store
	on     atomic.Bool
	before func(ctx context.Context, p store.Partition)
	put    func(ctx context.Context, p store.Partition, rows []store.Row) error
}

func (h *hooked) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if h.before != nil && h.on.CompareAndSwap(true, false) {
		h.before(ctx, p)
	}
	return h.Store.Get(ctx, p, key)
}

func (h *hooked) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page,
	error) {
	if h.before != nil && h.on.CompareAndSwap(true, false) {
		h.before(ctx, p)
	}
	return h.Store.Slice(ctx, p, b, o)
}

func (h *hooked) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if h.put != nil {
		if err := h.put(ctx, p, rows); err != nil {
			return err
		}
	}
	return h.Store.Put(ctx, p, rows...)
}

// A put arrives in the source when that was compared, and a reader writes it through
// before the destination is looked at: its copy is not one that the source has lost.
func TestComparingLeavesWhatCameInBetween(t *testing.T) {
	s := &hooked{Store: memstore.New()}
	f := newFixture(t, s, 3)
	source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
	between := append(key(0), '+')
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Writers: 1, Failpoint: func(_ context.Context, point,
		_ string) error {
		if point != "before compare" {
			return nil
		}
		s.before = func(ctx context.Context, p store.Partition) {
			if p == source { // its rows are not read yet
				s.on.Store(true)
				return
			}
			assert.NoError(t, s.Store.Put(ctx, source, store.Row{Key: between, Value: store.EntryCell([]byte("late")),
				Timestamp: 1}))
			e, err := f.b.Get(t.Context(), between)
			assert.NoError(t, err)
			assert.Equal(t, "late", string(e.Value))
		}
		s.on.Store(true)
		return nil
	}})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	require.False(t, s.on.Load(), "the destination was not read")
	e, err := f.b.Get(t.Context(), between)
	require.NoError(t, err)
	require.Equal(t, "late", string(e.Value))
}

// A mover stands still in comparing, and another one brings the move to its end. What
// the first one then misses in the source was removed with it, and deletes nothing.
func TestComparingTooLateDeletesNothing(t *testing.T) {
	s := &hooked{Store: memstore.New()}
	f := newFixture(t, s, 3)
	source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
	between := append(key(0), '+')
	var overtaken error
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
		Writers: 1,
		Failpoint: func(_ context.Context, point, _ string) error {
			if point != "before compare" {
				return nil
			}
			s.before = func(ctx context.Context, p store.Partition) {
				if p == source {
					s.on.Store(true)
					return
				}
				assert.NoError(t, s.Store.Put(ctx, source, store.Row{Key: between,
					Value: store.EntryCell([]byte("late")), Timestamp: 1}))
				_, err := f.b.Get(t.Context(), between)
				assert.NoError(t, err)
				assert.NoError(t, executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{}).Run(t.Context()))
				assert.Zero(t, f.rowsOf(t, source.ID))
			}
			s.on.Store(true)
			return nil
		},
		Observe: func(e executor.Event) {
			if task, _ := e.Effect.(move.Task); task.Phase == partmap.Verifying {
				overtaken = e.Err
			}
		},
	})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	require.Equal(t, store.Conflict, store.KindOf(overtaken))
	e, err := f.b.Get(t.Context(), between)
	require.NoError(t, err)
	require.Equal(t, "late", string(e.Value))
}

// A late put is copied by who compares, and deleted while the copy is on its way, when
// nobody finds it there.
func TestMendedRowIsDeletedOnItsWay(t *testing.T) {
	s := &hooked{Store: memstore.New()}
	f := newFixture(t, s, 3)
	source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
	late := store.Row{Key: append(key(0), '+'), Value: store.EntryCell([]byte("late")), Timestamp: 5}
	var once sync.Once
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(ctx context.Context, point,
		_ string) error {
		if point == "before compare" {
			assert.NoError(t, s.Store.Put(ctx, source, late))
			s.put = func(ctx context.Context, p store.Partition, rows []store.Row) error {
				once.Do(func() {
					assert.Equal(t, late.Key, rows[0].Key)
					assert.NoError(t, s.Store.Delete(ctx, source, late.Key, late.Timestamp))
					f.absent(t, late.Key, "on its way")
				})
				return nil
			}
		}
		return nil
	}})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	f.absent(t, late.Key, "after the move")
}

// A row is deleted when it was copied, and that is seen; and put again late, when the
// source was compared. Whether or not the new one is shown, the old one is not.
func TestPutAfterALateDelete(t *testing.T) {
	for _, damaged := range []bool{false, true} { // and what can't be copied then ends the mover
		s := &hooked{Store: memstore.New()}
		f := newFixture(t, s, 3)
		source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		row, _, err := f.s.Get(t.Context(), source, key(1))
		require.NoError(t, err)
		failpoint := func(ctx context.Context, point, _ string) error {
			switch point {
			case "after copy":
				assert.NoError(t, s.Store.Delete(ctx, source, key(1), row.Timestamp+1))
				f.absent(t, key(1), point)
			case "before compare":
				s.before = func(ctx context.Context, p store.Partition) {
					if p == source {
						s.on.Store(true)
						return
					}
					late := store.Row{Key: key(1), Value: store.EntryCell([]byte("new")), Timestamp: row.Timestamp + 2}
					assert.NoError(t, s.Store.Put(ctx, source, late))
					if damaged {
						s.put = func(context.Context, store.Partition, []store.Row) error {
							return store.Errorf(store.Corrupt, "damaged")
						}
					}
				}
				s.on.Store(true)
			}
			return nil
		}
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Writers: 1, Failpoint: failpoint})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		err = x.Run(t.Context())
		if s.put = nil; damaged {
			require.ErrorIs(t, err, store.Corrupt)
			require.NoError(t, executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{}).Run(t.Context()))
		} else {
			require.NoError(t, err)
		}
		e, err := f.b.Get(t.Context(), key(1))
		require.NoError(t, err)
		require.Equal(t, "new", string(e.Value))
	}
}

// A copy that is newer than what the source has is of a row that the source has lost.
func TestCopiesThatAreNewerThanTheirSource(t *testing.T) {
	f := newFixture(t, memstore.New(), 3)
	rg := f.ranges(t)[0]
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(ctx context.Context, point,
		_ string) error {
		if point != "before compare" {
			return nil
		}
		to := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].To}
		for i, value := range [][]byte{cells.Copied(store.EntryCell([]byte("lost"))),
			store.EntryCell([]byte("put"))} {
			row, _, err := f.s.Get(ctx, to, key(i))
			assert.NoError(t, err)
			assert.NoError(t, f.s.Put(ctx, to, store.Row{Key: key(i), Value: value, Timestamp: row.Timestamp + 1}))
		}
		return nil
	}})
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(t.Context()))
	f.absent(t, key(0), "after the move")
	for i, want := range []string{1: "put", 2: "value 2"} {
		if want != "" {
			e, err := f.b.Get(t.Context(), key(i))
			require.NoError(t, err)
			require.Equal(t, want, string(e.Value))
		}
	}
}

// The answer to a copy is lost. When it is done again the row is gone, and the copy
// arrives when the range was compared.
func TestCopyOfUnknownOutcomeArrivesTooLate(t *testing.T) {
	ctx := t.Context()
	s := &hooked{Store: memstore.New()}
	f := newFixture(t, s, 3)
	source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
	var to store.Partition
	var lost []store.Row
	s.put = func(ctx context.Context, p store.Partition, rows []store.Row) error {
		if p == source || p.Bucket != f.id || lost != nil {
			return nil
		}
		to, lost = p, append(lost, rows...)
		row, _, err := s.Store.Get(ctx, source, key(1))
		require.NoError(t, err)
		require.NoError(t, s.Store.Delete(ctx, source, key(1), row.Timestamp))
		return store.Errorf(store.Timeout, "no answer")
	}
	x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{
		WriteTimeout: 1, // all rows are read again
		Failpoint: func(_ context.Context, point, _ string) error {
			if point == "before compare" {
				f.absent(t, key(1), point)
			}
			if point == "after compare" {
				assert.NoError(t, s.Store.Put(ctx, to, lost...))
			}
			return nil
		},
	})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	require.NoError(t, x.Run(ctx))
	require.Len(t, lost, 3)
	f.absent(t, key(1), "after the move")
	for _, i := range []int{0, 2} {
		_, err := f.b.Get(ctx, key(i))
		require.NoError(t, err)
	}
}

// A put and a copy of the same timestamp meet: the larger value wins, as it does in one
// partition.
func TestCopyAndPutOfTheSameTimestamp(t *testing.T) {
	ctx := t.Context()
	for i, late := range []string{"a", "z", "a", "z"} {
		reads := i < 2
		f := newFixture(t, memstore.New(), 3)
		rg := f.ranges(t)[0]
		source := store.Partition{Bucket: f.id, ID: rg.Partition}
		row, _, err := f.s.Get(ctx, source, key(1))
		require.NoError(t, err)
		want := max(late, "value 1")
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(_ context.Context, point,
			_ string) error {
			if point == "before copy" || point == "before compare" {
				to := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].To}
				tied := store.Row{Key: key(1), Value: store.EntryCell([]byte(late)), Timestamp: row.Timestamp}
				assert.NoError(t, f.s.Put(ctx, to, tied))
			}
			if !reads {
				return nil
			}
			e, err := f.b.Get(ctx, key(1))
			if point == "after copy" || point == "after compare" || point == "after remove" {
				assert.NoError(t, err)
				assert.Equal(t, want, string(e.Value), point)
			}
			return nil
		}})
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(ctx))
		e, err := f.b.Get(ctx, key(1))
		require.NoError(t, err)
		require.Equal(t, want, string(e.Value))
	}
}
