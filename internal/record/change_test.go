package record_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// far is a store 80 ms away.
type far struct{ store.Store }

func (f far) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	time.Sleep(80 * time.Millisecond)
	defer time.Sleep(80 * time.Millisecond)
	return f.Store.Read(ctx, t, key, l)
}

func (f far) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	time.Sleep(80 * time.Millisecond)
	defer time.Sleep(80 * time.Millisecond)
	return f.Store.Swap(ctx, t, key, old, next)
}

const (
	key  = "count"
	form = 1
)

// count returns the number that a record has.
func count(payload []byte) uint64 {
	if payload == nil {
		return 0
	}
	return binary.BigEndian.Uint64(payload)
}

// Many processes that change one record at once, as movers of all shards do that begin moves, all succeed, since they
// do not try in step.
func TestManyProcessesChangeARecord(t *testing.T) {
	const processes, changes = 20, 4
	synctest.Test(t, func(t *testing.T) {
		s := far{memstore.New()}
		var work sync.WaitGroup
		for n := range processes {
			work.Go(func() {
				for i := range changes {
					err := record.Change(t.Context(), s, store.Process, key, form, func(payload []byte) ([]byte, error) {
						return binary.BigEndian.AppendUint64(nil, count(payload)+1), nil
					})
					if err != nil {
						t.Errorf("process %d, change %d: %v", n, i, err)
					}
				}
			})
		}
		work.Wait()
		payload, v, err := record.Read(t.Context(), s, store.Process, key, store.Serial, form)
		require.NoError(t, err)
		require.EqualValues(t, processes*changes, count(payload))
		require.EqualValues(t, processes*changes, v.Epoch)
	})
}

// unsure is a store whose first swaps end with err, and are applied or not.
type unsure struct {
	store.Store
	swaps   int // number of swaps so far
	fail    int // number of swaps that fail
	applied bool
	err     error
}

func (u *unsure) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if u.swaps++; u.swaps > u.fail {
		return u.Store.Swap(ctx, t, key, old, next)
	}
	if u.applied {
		if err := u.Store.Swap(ctx, t, key, old, next); err != nil {
			return err
		}
	}
	return u.err
}

// A change is made anew after a conflict, 20 times in all, or after a swap of which nobody knows, 5 times in all; and
// not after an error of the function, a swap that is refused, or the end of the context.
func TestChangesThatFail(t *testing.T) {
	increase := func(payload []byte) ([]byte, error) {
		return binary.BigEndian.AppendUint64(nil, count(payload)+1), nil
	}
	lost, conflict := store.Errorf(store.Timeout, "lost"), store.Errorf(store.Conflict, "another was first")
	invalid := store.Errorf(store.InvalidArgument, "too large")
	for _, c := range []struct {
		name    string
		fail    int
		applied bool
		swaps   int
		count   uint64
		met     error // what swaps fail with
		err     error
	}{
		{name: "at once", swaps: 1, count: 1},
		{name: "lost before it was applied", met: lost, fail: 1, swaps: 2, count: 1},
		{name: "applied, and its answer lost", met: lost, fail: 1, applied: true, swaps: 2, count: 2},
		{name: "the 5th try", met: lost, fail: 4, swaps: 5, count: 1},
		{name: "not the 6th", met: lost, fail: 5, swaps: 5, err: lost},
		{name: "the 20th try", met: conflict, fail: 19, swaps: 20, count: 1},
		{name: "not the 21st", met: conflict, fail: 20, swaps: 20, err: conflict},
		{name: "refused", met: invalid, fail: 1, swaps: 1, err: invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &unsure{Store: memstore.New(), fail: c.fail, applied: c.applied, err: c.met}
				begun := time.Now()
				err := record.Change(t.Context(), s, store.Process, key, form, increase)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.swaps, s.swaps)
				payload, _, err := record.Read(t.Context(), s, store.Process, key, store.Serial, form)
				require.NoError(t, err)
				require.Equal(t, c.count, count(payload))
				require.LessOrEqual(t, time.Since(begun), 80*time.Second, "20 pauses of at most 4 s")
			})
		})
	}
	t.Run("refused", func(t *testing.T) {
		s, refused := &unsure{Store: memstore.New()}, errors.New("refused")
		err := record.Change(t.Context(), s, store.Process, key, form, func([]byte) ([]byte, error) { return nil, refused })
		require.Equal(t, refused, err)
		require.NoError(t, record.Change(t.Context(), s, store.Process, key, form, func(payload []byte) ([]byte, error) {
			require.Nil(t, payload)
			return nil, nil
		}))
		require.Zero(t, s.swaps)
	})
	t.Run("the context ends in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s := &unsure{Store: memstore.New(), fail: 100, err: conflict}
			err := record.Change(ctx, s, store.Process, key, form, increase)
			require.Equal(t, store.Timeout, store.KindOf(err))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
	t.Run("the context ends in a swap", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &unsure{Store: memstore.New(), fail: 100, err: lost}
			err := record.Change(ctx, s, store.Process, key, form, func(payload []byte) ([]byte, error) {
				if s.swaps == 3 {
					cancel()
				}
				return increase(payload)
			})
			require.Equal(t, lost, err)
			require.Equal(t, 4, s.swaps)
		})
	})
	t.Run("damaged", func(t *testing.T) {
		s := memstore.New()
		require.NoError(t, s.Swap(t.Context(), store.Process, []byte(key), store.Version{},
			store.Record{Version: record.Next(store.Version{}), Blob: []byte("no record")}))
		err := record.Change(t.Context(), s, store.Process, key, form, increase)
		require.Equal(t, store.Corrupt, store.KindOf(err))
	})
}
