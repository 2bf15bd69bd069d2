package mapclient_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// newNetwork is a world whose client has leases by time, with so many clocks.
func newNetwork(t *testing.T, clocks int, o mapclient.Options) *world {
	w := &world{t: t, ctx: t.Context(), store: newHooked(), id: store.BucketID(uuid.New())}
	o.Clocks = clocks
	require.NoError(t, mapclient.InitClocks(w.ctx, w.store, clocks))
	w.Client = w.another(o)
	_, err := w.Create(w.ctx, w.id, cutsOf(2))
	require.NoError(t, err)
	return w
}

// another is a client of another process.
func (w *world) another(o mapclient.Options) *mapclient.Client {
	c, err := mapclient.NewNetwork(w.store, o)
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

func TestNetworkOptions(t *testing.T) {
	for _, o := range []mapclient.Options{{Lease: -1}, {Lease: mapclient.MinLease - 1}, {Lease: mapclient.MaxLease + 1},
		{Clocks: -1}, {Clocks: mapclient.MaxClocks + 1}} {
		_, err := mapclient.NewNetwork(newHooked(), o)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}

// clocked is a store whose only server has a clock, an hour ahead of the machine's.
type clocked struct{ *hooked }

func (clocked) Servers(context.Context) ([]store.Server, error) {
	return []store.Server{{Name: "server", DataCentre: "here", Near: true}}, nil
}

func (clocked) Time(context.Context, string) (time.Time, error) {
	return time.Now().Add(time.Hour).Truncate(commontime.Resolution), nil
}

// TestTimestampsAboveAll: by the clocks of the store's servers until Close, else by the
// machine's.
func TestTimestampsAboveAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := mapclient.NewNetwork(clocked{newHooked()}, mapclient.Options{MaxClockSkew: commontime.MinLimit - 1})
		require.ErrorIs(t, err, store.InvalidArgument)
		c, err := mapclient.NewNetwork(clocked{newHooked()}, mapclient.Options{MaxClockSkew: commontime.MinLimit})
		require.NoError(t, err)
		require.NotNil(t, c.Time())
		ts, err := c.Above(t.Context())
		require.NoError(t, err)
		require.InDelta(t, time.Now().Add(time.Hour).UnixMicro(), int64(ts), 1e6)
		c.Close()
		time.Sleep(time.Hour)
		_, err = c.Above(t.Context())
		require.ErrorIs(t, err, store.Unavailable)

		wall := mapclient.Options{Now: func() time.Time { return time.UnixMicro(5) }}
		network, err := mapclient.NewNetwork(newHooked(), wall)
		require.NoError(t, err)
		defer network.Close()
		for _, c := range []*mapclient.Client{network, mapclient.NewEmbedded(clocked{newHooked()}, wall)} {
			require.Nil(t, c.Time())
			ts, err := c.Above(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 5, ts)
		}
	})
}

// TestNetworkNewsOfAnotherProcess: a client learns of a swap from the clock; before,
// it may go on for as long as its lease; without the store, no longer.
func TestNetworkNewsOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		other := w.another(mapclient.Options{Clocks: 1})
		l, err := other.Acquire(w.ctx, w.id)
		require.NoError(t, err)
		w.step()
		require.True(t, l.Valid())
		require.NoError(t, w.Wait(w.ctx, w.id))
		require.False(t, l.Valid())
		l, err = other.Acquire(w.ctx, w.id)
		require.NoError(t, err)
		require.EqualValues(t, 2, l.Root().Epoch)
		reads := other.Counts().RootReads
		time.Sleep(10 * time.Second)
		_, err = other.Acquire(w.ctx, w.id)
		require.NoError(t, err)
		require.Equal(t, reads, other.Counts().RootReads, "without a bump nothing is read again")

		set(w.store, &w.store.read, func(context.Context, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Timeout, "the store is gone")
		})
		time.Sleep(mapclient.DefaultLease)
		_, err = other.Acquire(w.ctx, w.id)
		require.Contains(t, []store.Kind{store.Timeout, store.Unavailable}, store.KindOf(err))
		require.NotZero(t, other.Counts().Failures)
		require.EqualValues(t, 1, other.Counts().Refused)
	})
}

// TestNetworkClocksThatChangedInNumber: a bucket keeps the clock that it got.
func TestNetworkClocksThatChangedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 2, mapclient.Options{})
		require.NoError(t, mapclient.InitClocks(w.ctx, w.store, 64))
		for range 8 {
			id := store.BucketID(uuid.New())
			_, err := w.Create(w.ctx, id, nil)
			require.NoError(t, err)
			other := w.another(mapclient.Options{Clocks: 64})
			_, err = other.Acquire(w.ctx, id)
			require.NoError(t, err)
			w.id = id
			w.step()
			require.NoError(t, w.Wait(w.ctx, id))
			l, err := other.Acquire(w.ctx, id)
			require.NoError(t, err)
			require.EqualValues(t, 2, l.Root().Epoch)
		}
	})
}

// TestI9NetworkReadsThatLag: what was seen at Serial is not forgotten for an older
// root, or an older clock, at Local; there is no lease until Local shows it.
func TestI9NetworkReadsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		old, err := w.store.Store.Read(w.ctx, store.Roots, w.id[:], store.Local)
		require.NoError(t, err)
		oldClock, err := w.store.Store.Read(w.ctx, store.Clocks, make([]byte, 4), store.Local)
		require.NoError(t, err)
		w.step()
		other := w.another(mapclient.Options{Clocks: 1})
		root, err := other.Load(w.ctx, w.id)
		require.NoError(t, err)
		require.EqualValues(t, 2, root.Epoch)
		set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
			if len(rec.Blob) > 0 && rec.Epoch == 2 && rec.Token == root.Token {
				return old, nil
			}
			return rec, err
		})
		_, err = other.Acquire(w.ctx, w.id)
		require.Equal(t, store.Unavailable, store.KindOf(err))
		require.ErrorContains(t, err, "no map could be proven to be the newest")
		require.EqualValues(t, 5, other.Counts().RootReads)
		set(w.store, &w.store.read, nil)
		l, err := other.Acquire(w.ctx, w.id)
		require.NoError(t, err)
		require.EqualValues(t, 2, l.Root().Epoch)

		set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
			if rec.Token != root.Token {
				return oldClock, nil
			}
			return rec, err
		})
		time.Sleep(mapclient.DefaultLease + time.Second)
		_, err = other.Acquire(w.ctx, w.id)
		require.Equal(t, store.Unavailable, store.KindOf(err), "a clock that goes back renews nothing")
	})
}

// TestNetworkClockOfAnotherHistory: a store was restored under a process that goes on.
// Its clocks come to values that the process has seen, and pass them, by bumps of other
// buckets. So once a clock was seen to go back, or at a value of another token, no root
// is taken for unchanged that was read before.
func TestNetworkClockOfAnotherHistory(t *testing.T) {
	for _, behind := range []uint64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newNetwork(t, 1, mapclient.Options{})
			id, other := w.id, w.another(mapclient.Options{Clocks: 1})
			w.id = store.BucketID(uuid.New())
			_, err := w.Create(w.ctx, w.id, nil)
			require.NoError(t, err)
			bump := func() {
				w.step()
				require.NoError(t, w.Wait(w.ctx, w.id))
			}
			bump()
			bump()
			_, err = other.Acquire(w.ctx, id)
			require.NoError(t, err)
			set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
				var c [4]byte
				now, rerr := w.store.Store.Read(w.ctx, store.Clocks, c[:], store.Local)
				if rerr == nil && rec.Version == now.Version {
					return mapclient.SealClock(store.Version{Epoch: now.Epoch - behind, Token: storekit.NewToken()}, 1),
						nil
				}
				return rec, err
			})
			time.Sleep(mapclient.DefaultLease + time.Second)
			_, err = other.Acquire(w.ctx, id)
			require.Equal(t, store.Unavailable, store.KindOf(err))
			require.ErrorContains(t, err, "restart this process")
			set(w.store, &w.store.read, nil)
			reads := other.Counts().RootReads
			bump()
			_, err = other.Acquire(w.ctx, id)
			require.NoError(t, err)
			require.Equal(t, reads+1, other.Counts().RootReads, "it is read again, though no bump names it")
			time.Sleep(10 * time.Second)
			_, err = other.Acquire(w.ctx, id)
			require.NoError(t, err)
			require.Equal(t, reads+1, other.Counts().RootReads)
		})
	}
}

// TestNetworkSwapThatWasRepeated: the answer to the first try is lost, and the read
// after it does not yet find it; the Conflict of the second is the first's work.
func TestNetworkSwapThatWasRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		change := w.rehome(nil)
		var late func() error
		set(w.store, &w.store.swap, func(_ context.Context, do func() error) error {
			if late == nil {
				late = do
				return store.Errorf(store.Timeout, "lost")
			}
			set(w.store, &w.store.swap, nil)
			require.NoError(t, late())
			return do()
		})
		require.NoError(t, w.Swap(w.ctx, change))
		require.EqualValues(t, 2, w.lease().Root().Epoch)
		require.ErrorIs(t, w.Swap(w.ctx, change), store.Conflict, "a first Conflict is certain")
	})
}

// TestNetworkClosingIsLookedAtAgain: a bucket that is closing gives no lease, and is
// back for other processes too, even if nobody bumped its clock.
func TestNetworkClosingIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		other := w.another(mapclient.Options{Clocks: 1})
		to := func(s partmap.State) {
			root, err := w.Load(w.ctx, w.id)
			require.NoError(t, err)
			c, err := mapclient.WithState(root, s, w.Stamp())
			require.NoError(t, err)
			rec, err := partmap.EncodeRoot(c.Next)
			require.NoError(t, err)
			require.NoError(t, w.store.Swap(w.ctx, store.Roots, w.id[:], c.Old, rec))
		}
		to(partmap.Closing)
		for n := range int64(3) {
			_, err := other.Acquire(w.ctx, w.id)
			require.ErrorIs(t, err, mapclient.ErrClosing)
			require.Equal(t, n+1, other.Counts().RootReads)
			time.Sleep(mapclient.DefaultLease)
		}
		to(partmap.Open)
		time.Sleep(mapclient.DefaultLease)
		_, err := other.Acquire(w.ctx, w.id)
		require.NoError(t, err)
		to(partmap.Closing)
		to(partmap.Deleted)
		_, err = other.Load(w.ctx, w.id)
		require.NoError(t, err)
		_, err = other.Acquire(w.ctx, w.id)
		require.ErrorIs(t, err, mapclient.ErrDeleted)
	})
}

// TestNetworkWaitAfterAStepBack: a wall clock that is set back by an hour makes a
// wait longer by no more than another wait.
func TestNetworkWaitAfterAStepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var back atomic.Int64
		w := newNetwork(t, 1, mapclient.Options{Now: func() time.Time {
			return time.Now().Add(-time.Duration(back.Load()))
		}})
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		time.Sleep(time.Second)
		require.False(t, ended())
		back.Store(int64(time.Hour))
		require.NoError(t, result())
		require.Greater(t, time.Since(begin), mapclient.WaitFor(mapclient.DefaultLease))
		require.LessOrEqual(t, time.Since(begin), 2*mapclient.WaitFor(mapclient.DefaultLease))
	})
}

// TestNetworkMissingRowsAreUnavailable: of clocks and of roots.
func TestNetworkMissingRowsAreUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		for _, c := range []*mapclient.Client{w.Client, w.another(mapclient.Options{Clocks: 1000})} {
			_, err := c.Acquire(w.ctx, store.BucketID(uuid.New()))
			require.Equal(t, store.Unavailable, store.KindOf(err))
			require.ErrorIs(t, err, store.NotFound)
		}
	})
}

// TestNetworkClose ends the polls: a bubble does not end before its goroutines.
func TestNetworkClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		l := w.lease()
		w.Close()
		polls := w.Counts().Polls
		time.Sleep(mapclient.DefaultLease)
		require.Equal(t, polls, w.Counts().Polls)
		require.False(t, l.Valid())
		_, err := w.Acquire(w.ctx, w.id)
		require.Equal(t, store.Unavailable, store.KindOf(err))
		require.Equal(t, store.Unavailable, store.KindOf(w.Wait(w.ctx, w.id)))
	})
}

// TestNetworkPollsEndWithUse: who uses no bucket polls no clock.
func TestNetworkPollsEndWithUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		w.lease()
		time.Sleep(time.Minute)
		polls := w.Counts().Polls
		require.Less(t, polls, int64(20))
		time.Sleep(time.Minute)
		require.Equal(t, polls, w.Counts().Polls)
		for range 60 {
			time.Sleep(time.Second)
			require.True(t, w.lease().Valid())
		}
		require.InDelta(t, polls+66, w.Counts().Polls, 12, "one poll each third of a lease, somewhat early")
	})
}

// TestNetworkJoinedReadsAreAskedAgain: who waits for a read that was begun before
// fails with it only if one that was begun since fails too. Else a put right after
// the store is back would fail for the poll that went lost when it was away.
func TestNetworkJoinedReadsAreAskedAgain(t *testing.T) {
	for _, table := range []store.Table{store.Clocks, store.Roots} {
		t.Run(table.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t, 1, mapclient.Options{})
				other := w.another(mapclient.Options{Clocks: 1})
				lost := 0
				set(w.store, &w.store.lose, func(ctx context.Context, of store.Table) error {
					if of != table {
						return nil
					}
					lost++
					<-ctx.Done()
					return context.Cause(ctx)
				})
				var work sync.WaitGroup
				var first, second error
				work.Go(func() { _, first = other.Acquire(w.ctx, w.id) })
				synctest.Wait()
				if table == store.Clocks { // a poll tries twice
					time.Sleep(mapclient.DefaultLease/5 + time.Millisecond)
					synctest.Wait()
				}
				set(w.store, &w.store.lose, nil)
				work.Go(func() { _, second = other.Acquire(w.ctx, w.id) })
				work.Wait()
				require.ErrorIs(t, first, store.Timeout)
				require.NoError(t, second)
				require.Equal(t, map[store.Table]int{store.Clocks: 2, store.Roots: 1}[table], lost)
			})
		})
	}
}
