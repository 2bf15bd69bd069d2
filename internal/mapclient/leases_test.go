package mapclient_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// background runs f and tells whether it has ended, when all else is at rest.
func background(f func() error) (ended func() bool, result func() error) {
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = f()
	}()
	ended = func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	return ended, func() error { <-done; return err }
}

// TestWaitLooksAtAllOlderEpochs: a lease three epochs back counts as much as one
// on the epoch before.
func TestWaitLooksAtAllOlderEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		oldest := w.lease()
		w.step()
		w.step()
		middle := w.lease()
		w.step()
		newest := w.lease()
		require.Equal(t, []uint64{1, 3, 4}, []uint64{oldest.Root().Epoch, middle.Root().Epoch, newest.Root().Epoch})
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended())
		middle.Release()
		require.False(t, ended(), "the lease on epoch 1 is alive")
		// Whoever waits later, and epochs that begin later, change nothing.
		w.step()
		ended2, result2 := background(func() error { return w.Wait(w.ctx, w.id) })
		oldest.Release()
		require.True(t, ended(), "leases on its own epoch do not matter")
		require.NoError(t, result())
		require.False(t, ended2(), "the lease on epoch 4 is alive")
		newest.Release()
		require.True(t, ended2())
		require.NoError(t, result2())
		require.NoError(t, w.Wait(w.ctx, w.id))
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		l := w.lease()
		w.step()
		ctx, cancel := context.WithCancel(w.ctx)
		ended, result := background(func() error { return w.Wait(ctx, w.id) })
		require.False(t, ended())
		cancel()
		require.True(t, ended())
		require.ErrorIs(t, result(), store.Timeout)
		require.True(t, l.Valid())
		ended, result = background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended(), "the lease is still alive for the next who waits")
		l.Release()
		require.NoError(t, result())
	})
}

// TestReleaseCountsOnce: giving one lease back twice does not end another.
func TestReleaseCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		one, other := w.lease(), w.lease()
		require.True(t, one.Valid())
		one.Release()
		one.Release()
		require.False(t, one.Valid())
		w.step()
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended())
		one.Release()
		require.False(t, ended())
		other.Release()
		require.NoError(t, result())
	})
}

// TestI9SwapPublishesBeforeItReturns, and so does every way to see a newer root:
// nobody gets a lease on an older epoch afterwards.
func TestI9SwapPublishesBeforeItReturns(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	for i := range uint64(50) {
		w.step()
		l := w.lease()
		require.Equal(t, i+2, l.Root().Epoch)
		l.Release()
	}
	lost := store.Errorf(store.Timeout, "lost")
	set(w.store, &w.store.swap, func(_ context.Context, do func() error) error {
		require.NoError(t, do())
		return lost
	})
	require.ErrorIs(t, w.Swap(w.ctx, w.rehome(nil)), store.Timeout)
	root, err := w.Load(w.ctx, w.id)
	require.NoError(t, err)
	require.Equal(t, uint64(52), root.Epoch)
	l := w.lease()
	require.Equal(t, uint64(52), l.Root().Epoch)
	l.Release()

	require.ErrorIs(t, w.Swap(w.ctx, w.rehome(nil)), store.Timeout)
	require.NoError(t, w.Wait(w.ctx, w.id))
	l = w.lease()
	require.Equal(t, uint64(53), l.Root().Epoch)
	l.Release()
}

// TestWaitAfterAnUnknownOutcome: the swap was applied although its answer was
// lost; a mover that then waits, waits for the leases below the new epoch.
func TestWaitAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		l := w.lease()
		set(w.store, &w.store.swap, func(_ context.Context, do func() error) error {
			require.NoError(t, do())
			return store.Errorf(store.Unavailable, "lost")
		})
		require.True(t, store.OutcomeUnknown(w.Swap(w.ctx, w.rehome(nil))))
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended())
		l.Release()
		require.NoError(t, result())
	})
}

// TestSwapThatLandsLate: it was not applied when its error came back; another
// swap and the late one exclude each other, and whoever sees it publishes it.
func TestSwapThatLandsLate(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	var late func() error
	set(w.store, &w.store.swap, func(_ context.Context, do func() error) error {
		late = do
		return store.Errorf(store.Timeout, "later")
	})
	require.Error(t, w.Swap(w.ctx, w.rehome(nil)))
	change := w.rehome(nil) // of epoch 1 still
	set(w.store, &w.store.swap, nil)
	require.NoError(t, late())
	require.ErrorIs(t, w.Swap(w.ctx, change), store.Conflict)
	_, err := w.Load(w.ctx, w.id)
	require.NoError(t, err)
	l := w.lease()
	require.Equal(t, uint64(2), l.Root().Epoch)
	l.Release()
	require.NoError(t, w.Swap(w.ctx, w.rehome(nil)))
}

// TestStatesThatGiveNoLease: also when the state was read, not swapped.
func TestStatesThatGiveNoLease(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	to := func(s partmap.State) {
		t.Helper()
		root, err := w.Load(w.ctx, w.id)
		require.NoError(t, err)
		c, err := mapclient.WithState(root, s, w.Stamp())
		require.NoError(t, err)
		require.NoError(t, w.Swap(w.ctx, c))
	}
	refused := func(why error, k store.Kind) {
		t.Helper()
		for _, c := range []*mapclient.Client{w.Client, mapclient.NewEmbedded(w.store, mapclient.Options{})} {
			_, err := c.Acquire(w.ctx, w.id)
			require.ErrorIs(t, err, why)
			require.Equal(t, k, store.KindOf(err))
			require.ErrorContains(t, err, w.id.String())
		}
	}
	to(partmap.Closing)
	refused(mapclient.ErrClosing, store.Unavailable)
	to(partmap.Open)
	w.lease().Release()
	to(partmap.Closing)
	to(partmap.Deleted)
	refused(mapclient.ErrDeleted, store.NotFound)
	root, err := w.Load(w.ctx, w.id)
	require.NoError(t, err)
	require.Equal(t, partmap.Deleted, root.State)
	require.NoError(t, w.Wait(w.ctx, w.id))
}

// TestLeasedBucketIsNotForgotten: however many other buckets come by, a lease is
// waited for; and a bucket without leases is forgotten and read anew.
func TestLeasedBucketIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		mapclient.LimitRoots(w.Client, 1)
		crowd := func() {
			for range 300 {
				id := store.BucketID(uuid.New())
				_, err := w.Create(w.ctx, id, nil)
				require.NoError(t, err)
				l, err := w.Acquire(w.ctx, id)
				require.NoError(t, err)
				l.Release()
			}
		}
		l := w.lease()
		crowd()
		w.step()
		crowd()
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended(), "the lease was forgotten")
		crowd()
		require.False(t, ended())
		l.Release()
		require.NoError(t, result())

		crowd()
		require.LessOrEqual(t, w.Usage().Buckets, int64(3))
		reads := 0
		set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
			reads++
			return rec, err
		})
		l = w.lease()
		require.Equal(t, uint64(2), l.Root().Epoch)
		l.Release()
		require.Equal(t, 1, reads)
	})
}

// TestSlowReadBringsNoOldEpochBack: a root read before a swap and delivered after
// it, when the bucket would have been forgotten but for the read.
func TestSlowReadBringsNoOldEpochBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, mapclient.Options{})
		mapclient.LimitRoots(w.Client, 1)
		change := w.rehome(nil)
		other := store.BucketID(uuid.New())
		_, err := w.Create(w.ctx, other, nil) // forgets the first
		require.NoError(t, err)
		deliver := make(chan struct{})
		set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
			<-deliver
			return rec, err
		})
		var l *mapclient.Lease
		ended, result := background(func() error {
			var err error
			l, err = w.Acquire(w.ctx, w.id)
			return err
		})
		require.False(t, ended())
		require.NoError(t, w.Swap(w.ctx, change))
		for range 10 {
			_, err := w.Create(w.ctx, store.BucketID(uuid.New()), nil)
			require.NoError(t, err)
		}
		close(deliver)
		require.NoError(t, result())
		require.Equal(t, uint64(2), l.Root().Epoch)
		l.Release()
	})
}
