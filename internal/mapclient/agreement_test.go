package mapclient_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

func agreeOnLease(ctx context.Context, s store.Registers, lease time.Duration, change bool) error {
	_, err := mapclient.AgreeOnLease(ctx, s, lease, change)
	return err
}

func TestLeaseIsAgreedOn(t *testing.T) {
	ctx, s := t.Context(), newHooked()
	require.NoError(t, agreeOnLease(ctx, s, 0, false))
	require.NoError(t, agreeOnLease(ctx, s, mapclient.DefaultLease, false))
	for _, other := range []time.Duration{time.Second, time.Minute} {
		err := agreeOnLease(ctx, s, other, false)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "3s")
		require.ErrorContains(t, err, other.String())
	}
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, true))
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, true))
	require.ErrorIs(t, agreeOnLease(ctx, s, mapclient.DefaultLease, false), store.InvalidArgument)
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, false))
	agreed, err := mapclient.AgreeOnLease(ctx, s, 0, false)
	require.NoError(t, err)
	require.Equal(t, time.Minute, agreed, "who says nothing takes what there is")
}

// TestJoin: the first process makes what is missing and decides the terms; another one
// has to come with the same, or changes them for all.
func TestJoin(t *testing.T) {
	ctx, s := t.Context(), newHooked()
	var took [2]time.Duration
	join := func(lease, skew time.Duration, change bool) error {
		c, err := mapclient.Join(ctx, s, mapclient.Options{Lease: lease, MaxClockSkew: skew, Clocks: 2}, change)
		if err == nil {
			took = [2]time.Duration{c.Leases().Length, c.MaxClockSkew()}
			c.Close()
		}
		return err
	}
	require.NoError(t, join(0, 0, false))
	keys, err := s.Scan(ctx, store.Clocks, nil, 10)
	require.NoError(t, err)
	require.Len(t, keys, 2, "map clocks")
	require.NoError(t, join(mapclient.DefaultLease, commontime.DefaultLimit, false))
	require.ErrorIs(t, join(time.Second, 0, false), store.InvalidArgument)
	require.ErrorIs(t, join(0, time.Second, false), store.InvalidArgument)
	require.NoError(t, join(time.Second, time.Second, true))
	require.ErrorIs(t, join(mapclient.DefaultLease, 0, false), store.InvalidArgument)
	require.NoError(t, join(time.Second, 0, false), "skew 0 takes what was agreed on")
	took = [2]time.Duration{}
	require.NoError(t, join(0, 0, false), "and so does lease 0")
	require.Equal(t, [2]time.Duration{time.Second, time.Second}, took)
}

// TestLeaseIsAgreedOnByOne: of several that come first at the same time, with
// leases of their own and answers that get lost, one decides.
func TestLeaseIsAgreedOnByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			s := newHooked()
			var mu sync.Mutex
			n := 0
			set(s, &s.swap, func(_ context.Context, do func() error) error {
				err := do()
				mu.Lock()
				defer mu.Unlock()
				if n++; n%2 == 1 {
					return store.Errorf(store.Timeout, "lost")
				}
				return err
			})
			var wg sync.WaitGroup
			agreed := make([]bool, 8)
			for i := range agreed {
				wg.Go(func() {
					err := agreeOnLease(t.Context(), s, time.Duration(1+i%4)*time.Second, false)
					agreed[i] = err == nil
				})
			}
			wg.Wait()
			decided := -1
			for i, ok := range agreed {
				if ok && decided >= 0 {
					require.Equal(t, decided, i%4, "two leases were agreed on: %v", agreed)
				}
				if ok {
					decided = i % 4
				}
			}
			require.GreaterOrEqual(t, decided, 0, "nobody may start")
		}
	})
}

// TestStoresAreIdentified: all processes learn one id, also those that come first at the same time and lose answers;
// another store has another one.
func TestStoresAreIdentified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[mapclient.StoreID]bool{}
		for range 50 {
			s := newHooked()
			var n atomic.Int64
			set(s, &s.swap, func(_ context.Context, do func() error) error {
				err := do()
				if n.Add(1)%2 == 1 {
					return store.Errorf(store.Timeout, "lost")
				}
				return err
			})
			var wg sync.WaitGroup
			ids := make([]mapclient.StoreID, 8)
			for i := range ids {
				wg.Go(func() {
					var err error
					ids[i], err = mapclient.Identify(t.Context(), s)
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			require.Len(t, ids[0].String(), 16)
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
			require.NotZero(t, ids[0])
			require.False(t, seen[ids[0]], "two stores have the same id")
			seen[ids[0]] = true
		}
	})
}

// TestLeaseThatCantBeRead is no reason to start with one's own.
func TestLeaseThatCantBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHooked()
		set(s, &s.read, func(context.Context, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Timeout, "gone")
		})
		require.Equal(t, store.Timeout, store.KindOf(agreeOnLease(t.Context(), s, 0, false)))
		for _, mine := range []mapclient.Counting{0, mapclient.ByLooks, mapclient.Elsewhere} {
			_, err := mapclient.AgreeOnCounting(t.Context(), s, mine, false)
			require.Equal(t, store.Timeout, store.KindOf(err), "%v", mine)
		}
		set(s, &s.read, nil)
		require.NoError(t, agreeOnLease(t.Context(), s, time.Second, false))
	})
}

// TestDamagedTerms: a record that is torn is read again, at Local and then at Serial; one that is damaged is no reason to
// start with one's own, nor to read it again.
func TestDamagedTerms(t *testing.T) {
	for _, torn := range []int{0, 1, 2, 3, 4, 19, 20} {
		synctest.Test(t, func(t *testing.T) {
			s := &behind{hooked: newHooked(), caught: true}
			require.NoError(t, agreeOnLease(t.Context(), s, time.Minute, false))
			reads := 0
			set(s.hooked, &s.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
				if reads++; reads <= torn {
					rec.Epoch++
				}
				return rec, err
			})
			err := agreeOnLease(t.Context(), s, time.Minute, false)
			if torn == 20 { // five times three at Local and one at Serial
				require.ErrorIs(t, err, store.Unavailable)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, min(torn+1, 20), reads)
			require.Equal(t, 1, s.acks, "this process has written nothing")
		})
	}
	s := newHooked()
	for text, rec := range map[string]store.Record{
		"7 bytes are not a lease": record.Seal(1, store.Version{Epoch: 1}, make([]byte, 7)),
		"9 bytes are not a lease": record.Seal(1, store.Version{Epoch: 1}, make([]byte, 9)),
		"this program knows form": record.Seal(2, store.Version{Epoch: 1}, make([]byte, 8)),
	} {
		set(s, &s.read, func(context.Context, store.Record, error) (store.Record, error) { return rec, nil })
		err := agreeOnLease(t.Context(), s, time.Minute, true)
		require.ErrorIs(t, err, store.Corrupt)
		require.ErrorContains(t, err, "agree on the lease: ")
		require.ErrorContains(t, err, text)
	}
}

// TestClockSkewIsAgreedOn: a client that allows more than others is refused, and a
// mover takes what they have.
func TestClockSkewIsAgreedOn(t *testing.T) {
	ctx, s := t.Context(), newHooked()
	agreed := func(skew time.Duration, change bool) time.Duration {
		t.Helper()
		got, err := mapclient.AgreeOnClockSkew(ctx, s, skew, change)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, time.Second, agreed(time.Second, false))
	require.Equal(t, time.Second, agreed(0, false))
	require.Equal(t, time.Second, agreed(time.Second, false))
	_, err := mapclient.AgreeOnClockSkew(ctx, s, 2*time.Second, false)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "skew of clocks of 1s, this one has 2s")
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, false), "the two have nothing to do with each other")
	require.Equal(t, 2*time.Second, agreed(2*time.Second, true))
	require.Equal(t, 2*time.Second, agreed(0, true))

	s = newHooked() // a mover comes first
	require.Equal(t, commontime.DefaultLimit, agreed(0, false))
	_, err = mapclient.AgreeOnClockSkew(ctx, s, time.Second, false)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.Equal(t, commontime.DefaultLimit, agreed(commontime.DefaultLimit, false))
}

// behind is a store in a data centre that lags behind: reads at Local find what was
// there before, and an acknowledgement fails until it has caught up.
type behind struct {
	*hooked
	old    map[string]store.Record
	caught bool
	acks   int
}

func (b *behind) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if rec, ok := b.old[string(key)]; ok && l == store.Local && !b.caught {
		return rec, nil
	}
	return b.hooked.Read(ctx, t, key, l)
}

func (b *behind) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	if !b.caught {
		return store.Record{}, store.Errorf(store.Unavailable, "the other data centre is behind")
	}
	b.acks++
	return b.hooked.Read(ctx, t, key, store.Serial)
}

// TestTermsOfADataCentreThatLags: nobody starts with a lease that was changed, and who
// changes it does not start before that is known everywhere. Until then the old lease is good there.
func TestTermsOfADataCentreThatLags(t *testing.T) {
	ctx, s := t.Context(), &behind{hooked: newHooked(), caught: true, old: map[string]store.Record{}}
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, false))
	require.Equal(t, 1, s.acks, "what the first one wrote")
	rec, err := s.hooked.Read(ctx, store.Process, []byte("lease"), store.Serial)
	require.NoError(t, err)
	s.old["lease"], s.caught = rec, false

	err = agreeOnLease(ctx, s, time.Second, true)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "perhaps not in every data centre")
	require.NoError(t, agreeOnLease(ctx, s, time.Minute, false), "the old lease")
	require.ErrorIs(t, agreeOnLease(ctx, s, time.Second, false), store.InvalidArgument, "the new one")
	require.ErrorIs(t, agreeOnLease(ctx, s, time.Second, true), store.Unavailable, "again")
	s.caught = true
	require.NoError(t, agreeOnLease(ctx, s, time.Second, true))
	require.ErrorIs(t, agreeOnLease(ctx, s, time.Minute, false), store.InvalidArgument, "the old lease")
	require.NoError(t, agreeOnLease(ctx, s, time.Second, false))
	require.Equal(t, 3, s.acks, "the announcement, and the value in force: who changes nothing has nothing to acknowledge")
}

// TestCountingIsAgreedOn: a process that would not count what others rely on is refused, with
// the cause and the ways out.
func TestCountingIsAgreedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const none, looks, redis, elsewhere = mapclient.NotCounted, mapclient.ByLooks, mapclient.InRedis, mapclient.Elsewhere
		for _, c := range []struct{ first, then, agreed mapclient.Counting }{
			{redis, redis, redis}, {redis, 0, redis}, {redis, none, 0}, {redis, looks, 0}, {redis, elsewhere, 0},
			{looks, looks, looks}, {looks, 0, looks}, {looks, elsewhere, looks}, {looks, redis, 0}, {looks, none, 0},
			{none, none, none}, {none, elsewhere, none}, {none, redis, 0}, {none, looks, 0},
			{elsewhere, looks, looks}, {elsewhere, elsewhere, looks}, {elsewhere, redis, 0},
			{0, redis, redis}, {0, none, none}, {0, elsewhere, looks},
		} {
			ctx, s := t.Context(), newHooked()
			_, err := mapclient.AgreeOnCounting(ctx, s, c.first, false)
			require.NoError(t, err)
			agreed, err := mapclient.AgreeOnCounting(ctx, s, c.then, false)
			if c.agreed == 0 {
				require.ErrorIs(t, err, store.InvalidArgument, "%v, then %v", c.first, c.then)
				require.ErrorContains(t, err, "use the same; or, to change it for all, end all other processes first")
			} else {
				require.NoError(t, err, "%v, then %v", c.first, c.then)
			}
			require.Equal(t, c.agreed, agreed, "%v, then %v", c.first, c.then)
			if c.then > 0 {
				agreed, err = mapclient.AgreeOnCounting(ctx, s, c.then, true)
				require.NoError(t, err)
				require.Equal(t, c.then, agreed)
				agreed, err = mapclient.AgreeOnCounting(ctx, s, 0, false)
				require.NoError(t, err)
				require.Equal(t, c.then, agreed, "changed for all")
			}
		}
		s := newHooked()
		set(s, &s.swap, func(context.Context, func() error) error { return store.Errorf(store.Timeout, "gone") })
		_, err := mapclient.AgreeOnCounting(t.Context(), s, redis, false)
		require.ErrorIs(t, err, store.Timeout)
		set(s, &s.swap, nil)
		for counting, text := range map[mapclient.Counting]string{
			none: "not counted", elsewhere: "not counted", looks: "counted by looks at all rows", redis: "counted in Redis",
			9: "counted in a way that this program does not know",
		} {
			require.Equal(t, text, counting.String())
		}
		_, err = mapclient.AgreeOnCounting(t.Context(), s, redis, false)
		require.NoError(t, err)
		_, err = mapclient.AgreeOnCounting(t.Context(), s, elsewhere, true)
		require.ErrorContains(t, err, "agree on how sizes are counted: ")
		require.ErrorContains(t, err, "are counted in Redis in this store, and would be not counted by this process")
		set(s, &s.read, func(context.Context, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Timeout, "gone")
		})
		_, err = mapclient.AgreeOnCounting(t.Context(), s, redis, false)
		require.ErrorIs(t, err, store.Timeout)
	})
}

// TestLimitsAreAnnounced: each process learns what the one before it said; none is refused.
func TestLimitsAreAnnounced(t *testing.T) {
	ctx, s := t.Context(), newHooked()
	there := func(want mapclient.Limits) {
		t.Helper()
		l, err := mapclient.AnnouncedLimits(ctx, s)
		require.NoError(t, err)
		require.Equal(t, want, l)
	}
	there(mapclient.Limits{})
	first, second := mapclient.Limits{MaxRows: 100_000, MinRows: 25_000, MaxBytes: 1 << 30}, mapclient.Limits{MaxRows: 200_000}
	for _, c := range []struct{ mine, before mapclient.Limits }{
		{first, mapclient.Limits{}}, {first, first}, {second, first}, {first, second},
	} {
		before, err := mapclient.AnnounceLimits(ctx, s, c.mine)
		require.NoError(t, err)
		require.Equal(t, c.before, before)
		there(c.mine)
	}
	swaps := 0
	set(s, &s.swap, func(_ context.Context, do func() error) error { swaps++; return do() })
	before, err := mapclient.AnnounceLimits(ctx, s, first)
	require.NoError(t, err)
	require.Equal(t, first, before)
	require.Zero(t, swaps, "they are there already")
	set(s, &s.swap, func(context.Context, func() error) error { swaps++; return store.Errorf(store.Conflict, "other") })
	_, err = mapclient.AnnounceLimits(ctx, s, second)
	require.ErrorIs(t, err, store.Conflict)
	require.Equal(t, 4, swaps)
	// Of two at once the later one learns of the other.
	meanwhile := true
	set(s, &s.swap, func(_ context.Context, do func() error) error {
		if meanwhile {
			meanwhile = false
			_, err := mapclient.AnnounceLimits(ctx, s, mapclient.Limits{MaxRows: 7})
			require.NoError(t, err)
		}
		return do()
	})
	before, err = mapclient.AnnounceLimits(ctx, s, second)
	require.NoError(t, err)
	require.Equal(t, mapclient.Limits{MaxRows: 7}, before)
	there(second)
	// What is damaged is said, and not overwritten.
	rec, err := s.Read(ctx, store.Process, []byte("limits"), store.Serial)
	require.NoError(t, err)
	require.NoError(t, s.Swap(ctx, store.Process, []byte("limits"), rec.Version,
		record.Seal(1, record.Next(rec.Version), []byte("short"))))
	_, err = mapclient.AnnounceLimits(ctx, s, first)
	require.ErrorIs(t, err, store.Corrupt)
	_, err = mapclient.AnnouncedLimits(ctx, s)
	require.ErrorIs(t, err, store.Corrupt)
}

// TestAgreed: all terms, or the error of whichever can't be read.
func TestAgreed(t *testing.T) {
	ctx, s := t.Context(), newHooked()
	terms, err := mapclient.Agreed(ctx, s)
	require.NoError(t, err)
	require.Equal(t, mapclient.Terms{}, terms)
	want := mapclient.Terms{
		Lease: time.Minute, ClockSkew: time.Second, Counting: mapclient.InRedis, Schema: mapclient.NewestSchema,
		Limits: mapclient.Limits{MaxRows: 7},
	}
	_, err = mapclient.AgreeOnSchema(ctx, s)
	require.NoError(t, err)
	want.ID, err = mapclient.Identify(ctx, s)
	require.NoError(t, err)
	require.NoError(t, agreeOnLease(ctx, s, want.Lease, false))
	_, err = mapclient.AgreeOnClockSkew(ctx, s, want.ClockSkew, false)
	require.NoError(t, err)
	_, err = mapclient.AgreeOnCounting(ctx, s, want.Counting, false)
	require.NoError(t, err)
	_, err = mapclient.AnnounceLimits(ctx, s, want.Limits)
	require.NoError(t, err)
	reads, fails := 0, 0
	set(s, &s.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
		if reads++; reads == fails {
			return store.Record{}, store.Errorf(store.Timeout, "gone")
		}
		return rec, err
	})
	terms, err = mapclient.Agreed(ctx, s)
	require.NoError(t, err)
	require.Equal(t, want, terms)
	require.Equal(t, 6, reads)
	for fails = range 6 {
		reads, fails = 0, fails+1
		_, err = mapclient.Agreed(ctx, s)
		require.ErrorIs(t, err, store.Timeout)
		require.ErrorContains(t, err, "read what processes have agreed on: ")
	}
}
