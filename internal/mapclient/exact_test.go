package mapclient_test

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// watched is a store that remembers the contexts of its calls.
type watched struct {
	mapclient.Store
	mu   sync.Mutex
	seen []context.Context
}

func (s *watched) saw(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, ctx)
}

func (s *watched) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	s.saw(ctx)
	return s.Store.Read(ctx, t, key, l)
}

func (s *watched) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	s.saw(ctx)
	return s.Store.Swap(ctx, t, key, old, next)
}

func (s *watched) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	s.saw(ctx)
	return s.Store.Node(ctx, b, id)
}

// TestDeadlinesEndWithTheirCalls: no timer goes on for what has been answered.
func TestDeadlinesEndWithTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, id := &watched{Store: memstore.New()}, store.BucketID(uuid.New())
		require.NoError(t, mapclient.InitClocks(t.Context(), s, 1))
		c, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 1})
		require.NoError(t, err)
		defer c.Close()
		root, err := c.Create(t.Context(), id, cutsOf(60_000))
		require.NoError(t, err)
		l, err := c.Acquire(t.Context(), id)
		require.NoError(t, err)
		_, err = c.Find(t.Context(), l, nil)
		require.NoError(t, err)
		change, err := mapclient.WithState(root, partmap.Closing, c.Stamp())
		require.NoError(t, err)
		require.NoError(t, c.Swap(t.Context(), change))
		timed := 0
		ended := func() {
			synctest.Wait()
			for _, ctx := range s.seen {
				if _, ok := ctx.Deadline(); ok {
					timed++
					require.Error(t, ctx.Err())
				}
			}
			s.seen = nil
		}
		ended() // before the time of any is over
		require.NoError(t, c.Wait(t.Context(), id))
		ended()
		require.Greater(t, timed, 5)
	})
}

// TestCloseWaitsForPolls: after it nothing calls the store any more.
func TestCloseWaitsForPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t, 1, mapclient.Options{})
		w.lease()
		set(w.store, &w.store.lose, func(context.Context, store.Table) error {
			time.Sleep(time.Hour) // whatever its context says
			return nil
		})
		time.Sleep(mapclient.DefaultLease)
		begin := time.Now()
		w.Close()
		require.Greater(t, time.Since(begin), time.Hour-mapclient.DefaultLease)
		for range 2 {
			err := w.Wait(w.ctx, w.id)
			require.Equal(t, store.Unavailable, store.KindOf(err))
			require.ErrorContains(t, err, "the map client is closed")
		}
	})
}

// TestJoinByDefault makes sixteen clocks; without clocks nobody joins.
func TestJoinByDefault(t *testing.T) {
	s := newHooked()
	c, err := mapclient.Join(t.Context(), s, mapclient.Options{}, false)
	require.NoError(t, err)
	defer c.Close()
	keys, err := s.Scan(t.Context(), store.Clocks, nil, 100)
	require.NoError(t, err)
	require.Len(t, keys, 16)
	set(s, &s.lose, func(_ context.Context, table store.Table) error {
		if table == store.Clocks {
			return errAway
		}
		return nil
	})
	_, err = mapclient.Join(t.Context(), s, mapclient.Options{}, false)
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, "initialise map clock 0: ")
	err = mapclient.InitClocks(t.Context(), s, mapclient.MaxClocks)
	require.ErrorIs(t, err, errAway, "so many may be")
}

// TestBucketsAreSpreadOverClocks, as their clients expect: who knows the number of clocks finds
// the proof of a root at once, and who expects another clock needs one read more.
func TestBucketsAreSpreadOverClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clocks, buckets = 4, 200
		w := newNetwork(t, clocks, mapclient.Options{})
		require.NoError(t, mapclient.InitClocks(w.ctx, w.store, clocks+1))
		begin := time.Now()
		used := map[uint32]int{}
		wrong := 0
		for i := range uint64(buckets) {
			var id store.BucketID
			binary.BigEndian.PutUint64(id[:], i)
			root, err := w.Create(w.ctx, id, nil)
			require.NoError(t, err)
			require.Equal(t, begin.Unix(), root.Entries[0].Created)
			used[root.Clock]++
			_, err = w.Acquire(w.ctx, id)
			require.NoError(t, err)
			require.EqualValues(t, i+1, w.Counts().RootReads)
			other := w.another(mapclient.Options{Clocks: clocks + 1})
			_, err = other.Acquire(w.ctx, id)
			require.NoError(t, err)
			n := other.Counts()
			require.Equal(t, n.RootReads, n.Polls)
			require.Contains(t, []int64{1, 2}, n.RootReads)
			wrong += int(n.RootReads) - 1
		}
		require.EqualValues(t, clocks, w.Counts().Polls)
		require.Len(t, used, clocks)
		for _, n := range used {
			require.InDelta(t, buckets/clocks, n, buckets/clocks/2)
		}
		require.Greater(t, wrong, buckets/2)
	})
}

// TestHowLeasesStand: they count down while no clock can be read, the first to end is told, and none is below 0.
func TestHowLeasesStand(t *testing.T) {
	require.Zero(t, mapclient.NewEmbedded(newHooked(), mapclient.Options{}).Leases())
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Minute
		w := newNetwork(t, 2, mapclient.Options{Lease: lease})
		other := w.another(mapclient.Options{Clocks: 2, Lease: lease})
		require.Equal(t, mapclient.Timed{Length: lease}, other.Leases())
		buckets := map[uint32]store.BucketID{}
		for i := byte(0); len(buckets) < 2; i++ {
			root, err := w.Create(w.ctx, store.BucketID{i}, nil)
			require.NoError(t, err)
			buckets[root.Clock] = store.BucketID{i}
		}
		during := 0 // the first poll: it has no lease yet
		set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
			if during++; during == 1 {
				require.Equal(t, mapclient.Timed{Length: lease}, other.Leases())
			}
			return rec, err
		})
		_, err := other.Acquire(w.ctx, buckets[0])
		require.NoError(t, err)
		require.NotZero(t, during)
		set(w.store, &w.store.read, nil)
		require.Equal(t, mapclient.Timed{Length: lease, Left: lease, Clocks: 1}, other.Leases())
		away := func(context.Context, store.Table) error { return store.Errorf(store.Unavailable, "away") }
		set(w.store, &w.store.lose, away)
		time.Sleep(lease / 2)
		require.Equal(t, mapclient.Timed{Length: lease, Left: lease / 2, Clocks: 1}, other.Leases())
		set(w.store, &w.store.lose, nil)
		_, err = other.Acquire(w.ctx, buckets[1])
		require.NoError(t, err)
		set(w.store, &w.store.lose, away)
		require.Equal(t, mapclient.Timed{Length: lease, Left: lease / 2, Clocks: 2}, other.Leases())
		time.Sleep(lease)
		require.Equal(t, mapclient.Timed{Length: lease, Clocks: 2}, other.Leases())
	})
}

// TestAWaitPublishes what it has read, before it is over.
func TestAWaitPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		l, err := w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.EqualValues(t, 1, l.Root().Epoch)
		w.land(1)
		ended, result := background(func() error { return w.Wait(t.Context(), w.id) })
		require.False(t, ended())
		l, err = w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.EqualValues(t, 2, l.Root().Epoch)
		require.NoError(t, result())
	})
}

// TestAWallClockThatReturns: set ahead when a wait begins and set back before it is over, it makes
// the wait no longer.
func TestAWallClockThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		w := newNetwork(t, 1, mapclient.Options{Now: func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		}})
		w.step() // from here on the wait counts
		begin := time.Now()
		ahead.Store(int64(time.Hour))
		ended, result := background(func() error { return w.Wait(w.ctx, w.id) })
		require.False(t, ended())
		ahead.Store(0)
		require.NoError(t, result())
		require.Equal(t, mapclient.WaitFor(mapclient.DefaultLease), time.Since(begin))
	})
}

// TestClosingAtOnce: as long as a poll proves that a bucket is closing it gives no lease, and is
// not read again.
func TestClosingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		root, err := w.Load(t.Context(), w.id)
		require.NoError(t, err)
		c, err := mapclient.WithState(root, partmap.Closing, w.Stamp())
		require.NoError(t, err)
		require.NoError(t, w.Swap(t.Context(), c))
		for range 3 {
			_, err := w.Acquire(t.Context(), w.id)
			require.ErrorIs(t, err, mapclient.ErrClosing)
			require.Equal(t, store.Unavailable, store.KindOf(err))
			require.EqualValues(t, 1, w.Counts().RootReads)
		}
	})
}

// TestRenewalsAreCountedOnce for each poll, however many leases are taken from it.
func TestRenewalsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		for i := range int64(3) {
			for range 3 {
				_, err := w.Acquire(t.Context(), w.id)
				require.NoError(t, err)
				require.Equal(t, mapclient.Counts{Polls: 1 + i, RootReads: 1, Renewals: i}, w.Counts())
			}
			time.Sleep(900 * time.Millisecond) // a poll each time
			synctest.Wait()
		}
	})
}

// TestAnswersThatComeTooLate prove nothing: a store that does not look at its contexts answers
// after the length of a lease.
func TestAnswersThatComeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		late := true
		w.store.script(store.Clocks, func(_ int, rec store.Record, err error) (store.Record, error) {
			if late {
				time.Sleep(mapclient.DefaultLease)
			}
			return rec, err
		}, nil)
		_, err := w.Acquire(t.Context(), w.id)
		require.Equal(t, store.Unavailable, store.KindOf(err))
		require.ErrorContains(t, err, "no map could be proven to be the newest")
		late = false
		l, err := w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.True(t, l.Valid())
	})
}

// TestAnAcquireIsOvertakenByASwap: it began to poll before, and returns the newer map.
func TestAnAcquireIsOvertakenByASwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		_, err := w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		time.Sleep(time.Minute) // nothing is polled any more
		change := w.change()
		slow := true
		w.store.script(store.Clocks, func(_ int, rec store.Record, err error) (store.Record, error) {
			if slow {
				slow = false
				time.Sleep(mapclient.DefaultLease / 10)
			}
			return rec, err
		}, nil)
		var l *mapclient.Lease
		ended, result := background(func() (err error) { l, err = w.Acquire(t.Context(), w.id); return err })
		require.False(t, ended())
		require.NoError(t, w.Swap(t.Context(), change))
		require.False(t, ended())
		require.NoError(t, result())
		require.EqualValues(t, 2, l.Root().Epoch)
	})
}

// A look at a root returns what the data centre has, unless the client knows better; what is absent or closing there is
// read at Serial.
func TestALookStaysInItsDataCentreUnlessItHasToAsk(t *testing.T) {
	s := newLagged(&locked{Rand: seed.New(t)})
	s.maxLag = 24 * time.Hour // until it is acknowledged
	at := 0                   // reads at Serial
	count := newHooked()
	count.Store = s
	count.levels = func(l store.Level) {
		if l == store.Serial {
			at++
		}
	}
	other, c := mapclient.NewEmbedded(s, mapclient.Options{}), mapclient.NewEmbedded(count, mapclient.Options{})
	id := store.BucketID{7}
	look := func() (epoch uint64, state partmap.State, serial int) {
		t.Helper()
		at = 0
		r, err := c.Look(t.Context(), id)
		require.NoError(t, err)
		return r.Epoch, r.State, at
	}
	expect := func(epoch uint64, state partmap.State, serial int, why string) {
		t.Helper()
		e, st, n := look()
		require.Equal(t, []any{epoch, state, serial}, []any{e, st, n}, why)
	}
	to := func(root *partmap.Root, state partmap.State) *partmap.Root {
		t.Helper()
		change, err := mapclient.WithState(root, state, other.Stamp())
		require.NoError(t, err)
		require.NoError(t, other.Swap(t.Context(), change))
		return change.Next
	}
	root, err := other.Create(t.Context(), id, nil)
	require.NoError(t, err)
	expect(1, partmap.Open, 1, "absent in this data centre")
	_, err = c.Look(t.Context(), store.BucketID{8})
	require.ErrorIs(t, err, store.NotFound)

	_, err = s.Acknowledge(t.Context(), store.Roots, id[:])
	require.NoError(t, err)
	expect(1, partmap.Open, 0, "it is there")
	root = to(root, partmap.Closing)
	expect(1, partmap.Open, 0, "the swap is not there yet")
	_, err = s.Acknowledge(t.Context(), store.Roots, id[:])
	require.NoError(t, err)
	root = to(root, partmap.Open)
	expect(3, partmap.Open, 1, "closing in this data centre")
	expect(3, partmap.Open, 0, "older in this data centre than what the client knows")
	to(to(root, partmap.Closing), partmap.Deleted)
	_, err = s.Acknowledge(t.Context(), store.Roots, id[:])
	require.NoError(t, err)
	expect(5, partmap.Deleted, 0, "that is final")
}
