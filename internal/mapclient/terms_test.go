package mapclient_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// sites is the registers of two data centres: what is swapped in is shown by each after a while, or when it is
// acknowledged.
type sites struct {
	store.Store
	mu    sync.Mutex
	shown [2]map[string]store.Record
	away  [2]bool
}

func newSites() *sites {
	return &sites{Store: memstore.New(), shown: [2]map[string]store.Record{{}, {}}}
}

// catchUp lets a data centre show the newest record of a register.
func (s *sites) catchUp(site int, t store.Table, key []byte) error {
	rec, err := s.Store.Read(context.Background(), t, key, store.Serial)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away[site] {
		return store.Errorf(store.Unavailable, "data centre %d is away", site)
	}
	if err == nil {
		s.shown[site][register(t, key)] = rec
	}
	return err
}

// site is what a process in one data centre sees of them. From its call number cut on no call comes through; that one
// is done all the same if lost.
type site struct {
	*sites
	at, calls, cut int
	lost           bool
}

var errCut = store.Errorf(store.Timeout, "cut")

func (s *site) call(do func() error) error {
	s.calls++
	if s.cut > 0 && s.calls >= s.cut {
		if s.lost && s.calls == s.cut {
			_ = do()
		}
		return errCut
	}
	return do()
}

func (s *site) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	err = s.call(func() error {
		if l == store.Serial {
			rec, err = s.Store.Read(ctx, t, key, l)
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var ok bool
		if rec, ok = s.shown[s.at][register(t, key)]; !ok {
			return store.Errorf(store.NotFound, "%s", register(t, key))
		}
		return nil
	})
	return rec, err
}

func (s *site) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return s.call(func() error { return s.Store.Swap(ctx, t, key, old, next) })
}

func (s *site) Acknowledge(ctx context.Context, t store.Table, key []byte) (rec store.Record, err error) {
	if rec, err = s.Read(ctx, t, key, store.Serial); err != nil {
		return rec, err
	}
	for i := range s.shown {
		if err := s.call(func() error { return s.catchUp(i, t, key) }); err != nil {
			return store.Record{}, err
		}
	}
	return rec, nil
}

// TestAChangeThatEndsAnywhere: at each call, done or not, the process that changes the lease dies. Whatever the data
// centres show by then, no two processes start with different leases. Another change, to any lease, then ends it, and
// after that nothing but its lease starts.
func TestAChangeThatEndsAnywhere(t *testing.T) {
	const before, next, third = time.Second, 2 * time.Second, 3 * time.Second
	leases := []time.Duration{before, next, third}
	starting := func(s *sites) map[time.Duration]int {
		started := map[time.Duration]int{}
		for at := range s.shown {
			for _, lease := range leases {
				err := agreeOnLease(t.Context(), &site{sites: s, at: at}, lease, false)
				if err == nil {
					started[lease]++
				} else {
					require.ErrorIs(t, err, store.InvalidArgument)
				}
			}
		}
		return started
	}
	states := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		for cut := 1; ; cut++ {
			ended := false
			for n := range 2 * 4 * 3 {
				lost, behind, then := n%2 == 0, n/2%4, leases[n/8]
				s := newSites()
				require.NoError(t, agreeOnLease(t.Context(), &site{sites: s}, before, false))
				err := agreeOnLease(t.Context(), &site{sites: s, cut: cut, lost: lost}, next, true)
				if err == nil {
					ended = true
				}
				for at := range s.shown {
					if behind>>at&1 == 0 {
						require.NoError(t, s.catchUp(at, store.Process, []byte("lease")))
					}
				}
				started := starting(s)
				require.LessOrEqual(t, len(started), 1, "call %d, lost %t, behind %02b: %v", cut, lost, behind, started)
				require.Zero(t, started[third])
				states[fmt.Sprint(started)]++
				require.NoError(t, agreeOnLease(t.Context(), &site{sites: s, at: 1}, then, true))
				require.Equal(t, map[time.Duration]int{then: 2}, starting(s), "call %d, lost %t, then %v", cut, lost, then)
			}
			if ended {
				return
			}
		}
	})
	for _, s := range []map[time.Duration]int{{}, {before: 1}, {before: 2}, {next: 2}} {
		require.NotZero(t, states[fmt.Sprint(s)], "never %v, only %v", s, states)
	}
}

// TestAChangeWhileADataCentreIsAway: the old lease starts, and the new one does not, until it is back. Where the
// announcement is seen nothing starts, and the error says what to do.
func TestAChangeWhileADataCentreIsAway(t *testing.T) {
	s := newSites()
	start := func(at int, lease time.Duration, change bool) error {
		return agreeOnLease(t.Context(), &site{sites: s, at: at}, lease, change)
	}
	require.NoError(t, start(0, time.Second, false))
	s.away[1] = true
	err := start(0, time.Minute, true)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "the change is announced, but perhaps not in every data centre, and not in force: "+
		"end all other processes again, and repeat it")
	for _, lease := range []time.Duration{time.Second, time.Minute, time.Hour} {
		err = start(0, lease, false)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "a change of a lease from 1s to 1m0s was begun, and has not ended")
		require.ErrorContains(t, err, "start one that makes the change to 1m0s again, or one that makes the change to 1s, "+
			"which takes it back")
	}
	_, err = mapclient.Agreed(t.Context(), &site{sites: s})
	require.ErrorContains(t, err, "was begun, and has not ended")
	require.NoError(t, start(1, time.Second, false), "it has not heard of the change, and nobody has the new lease")
	require.Error(t, start(1, time.Minute, false))
	// Back, without the other data centre: it is stored, but not acknowledged.
	require.ErrorContains(t, start(0, time.Second, true), "it is stored, but perhaps not in every data centre")
	require.NoError(t, start(0, time.Second, false))
	s.away[1] = false
	require.NoError(t, start(0, time.Minute, true))
	for at := range s.shown {
		require.NoError(t, start(at, time.Minute, false))
		require.ErrorIs(t, start(at, time.Second, false), store.InvalidArgument)
	}
}

// TestChangesAtOnce: a change that meets another one does not go on from what that one has put in force, whose process
// runs by then.
func TestChangesAtOnce(t *testing.T) {
	s := newHooked()
	require.NoError(t, agreeOnLease(t.Context(), s, time.Second, false))
	meanwhile := true
	set(s, &s.swap, func(_ context.Context, do func() error) error {
		if meanwhile {
			meanwhile = false
			require.NoError(t, agreeOnLease(t.Context(), s, time.Hour, true))
		}
		return do()
	})
	err := agreeOnLease(t.Context(), s, time.Minute, true)
	require.ErrorIs(t, err, store.Conflict)
	require.ErrorContains(t, err, "another process has changed it to 1h0m0s meanwhile: end all other processes, and")
	require.NoError(t, agreeOnLease(t.Context(), s, time.Hour, false))
	// The same change by another is as good.
	meanwhile = true
	require.NoError(t, agreeOnLease(t.Context(), s, time.Hour, true))
	require.NoError(t, agreeOnLease(t.Context(), s, time.Minute, true))
}

// TestAnnouncementsOfOtherTerms: of the limit of clocks and of counting as of the lease.
func TestAnnouncementsOfOtherTerms(t *testing.T) {
	s := newSites()
	here := &site{sites: s}
	skew := func(mine time.Duration, change bool) error {
		_, err := mapclient.AgreeOnClockSkew(t.Context(), here, mine, change)
		return err
	}
	counting := func(mine mapclient.Counting, change bool) error {
		_, err := mapclient.AgreeOnCounting(t.Context(), here, mine, change)
		return err
	}
	require.NoError(t, skew(time.Second, false))
	require.NoError(t, counting(mapclient.ByLooks, false))
	s.away[1] = true
	require.ErrorIs(t, skew(time.Minute, true), store.Unavailable)
	require.ErrorIs(t, counting(mapclient.InRedis, true), store.Unavailable)
	s.away[1] = false
	require.ErrorContains(t, skew(0, false), "a change of a limit for the skew of clocks from 1s to 1m0s was begun")
	require.ErrorContains(t, skew(0, true), "was begun")
	for _, mine := range []mapclient.Counting{0, mapclient.ByLooks, mapclient.InRedis, mapclient.Elsewhere} {
		require.ErrorContains(t, counting(mine, false),
			"a change of sizes of partitions from counted by looks at all rows to counted in Redis was begun", "%v", mine)
	}
	require.ErrorContains(t, counting(mapclient.Elsewhere, true), "was begun", "it has no way of its own to change to")
	require.NoError(t, skew(time.Minute, true))
	require.NoError(t, counting(mapclient.InRedis, true))
	require.NoError(t, skew(0, false))
	require.NoError(t, counting(0, false))
}

// TestTheFormOfAnnouncements: programs that know values in force only find it damaged, and one without values is.
func TestTheFormOfAnnouncements(t *testing.T) {
	s := newSites()
	require.NoError(t, agreeOnLease(t.Context(), &site{sites: s}, 258, false))
	s.away[1] = true
	require.Error(t, agreeOnLease(t.Context(), &site{sites: s}, 259, true))
	rec, err := s.Store.Read(t.Context(), store.Process, []byte("lease"), store.Serial)
	require.NoError(t, err)
	_, err = record.Open(1, rec)
	require.ErrorIs(t, err, store.Corrupt)
	payload, err := record.Open(2, rec)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 3}, payload)
	h := newHooked()
	for _, c := range []struct {
		form    byte
		payload []byte
	}{{1, make([]byte, 8)}, {2, make([]byte, 16)}, {2, append(make([]byte, 15), 1)}, {2, append(make([]byte, 7), 1)}} {
		set(h, &h.read, func(context.Context, store.Record, error) (store.Record, error) {
			return record.Seal(c.form, store.Version{Epoch: 1}, c.payload), nil
		})
		require.ErrorIs(t, agreeOnLease(t.Context(), h, time.Minute, true), store.Corrupt)
	}
}

// alone is a store whose other data centres are away: nothing but reads at Local comes through.
type alone struct{ mapclient.Store }

var errAlone = store.Errorf(store.Unavailable, "the other data centre is away")

func (a alone) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if l != store.Local {
		return store.Record{}, errAlone
	}
	return a.Store.Read(ctx, t, key, l)
}

func (a alone) Swap(context.Context, store.Table, []byte, store.Version, store.Record) error {
	return errAlone
}

func (a alone) Acknowledge(context.Context, store.Table, []byte) (store.Record, error) {
	return store.Record{}, errAlone
}

// TestStartsNeedTheirDataCentreOnly, where they bring nothing new.
func TestStartsNeedTheirDataCentreOnly(t *testing.T) {
	limits := mapclient.Limits{MaxRows: 7}
	start := func(ctx context.Context, s mapclient.Store, lease time.Duration) error {
		c, err := mapclient.Join(ctx, s, mapclient.Options{Lease: lease}, false)
		if err != nil {
			return err
		}
		c.Close()
		_, counting := mapclient.AgreeOnCounting(ctx, s, mapclient.ByLooks, false)
		_, elsewhere := mapclient.AgreeOnCounting(ctx, s, mapclient.Elsewhere, false)
		_, taken := mapclient.AgreeOnCounting(ctx, s, 0, false)
		_, id := mapclient.Identify(ctx, s)
		_, announced := mapclient.AnnounceLimits(ctx, s, limits)
		_, agreed := mapclient.Agreed(ctx, s)
		_, identified := mapclient.Identified(ctx, s)
		return errors.Join(counting, elsewhere, taken, id, announced, agreed, identified)
	}
	s := memstore.New()
	synctest.Test(t, func(t *testing.T) {
		require.ErrorIs(t, start(t.Context(), alone{s}, time.Second), store.Unavailable, "what there is can't be known")
	})
	require.NoError(t, start(t.Context(), s, time.Second))
	require.NoError(t, start(t.Context(), alone{s}, time.Second))
	synctest.Test(t, func(t *testing.T) {
		require.ErrorIs(t, start(t.Context(), alone{s}, time.Minute), store.Unavailable, "a refusal needs the newest value")
		_, err := mapclient.AnnounceLimits(t.Context(), alone{s}, mapclient.Limits{MaxRows: 8})
		require.ErrorIs(t, err, store.Unavailable)
	})
}

// contended is a store on whose registers operations at Serial hinder each other, as lightweight transactions do: one
// during whose first half another one begins fails.
type contended struct {
	mapclient.Store
	mu     sync.Mutex
	begun  map[string]int
	serial int
	failed int
}

const halfOfSerial = 80 * time.Millisecond

func (c *contended) apart(t store.Table, key []byte, do func() error) error {
	name := register(t, key)
	c.mu.Lock()
	c.begun[name]++
	n := c.begun[name]
	c.serial++
	c.mu.Unlock()
	time.Sleep(halfOfSerial)
	c.mu.Lock()
	hindered := c.begun[name] != n
	if hindered {
		c.failed++
	}
	c.mu.Unlock()
	if hindered {
		return store.Errorf(store.Timeout, "contention")
	}
	err := do()
	time.Sleep(halfOfSerial)
	return err
}

func (c *contended) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (rec store.Record, err error) {
	if l == store.Local {
		time.Sleep(time.Millisecond)
		return c.Store.Read(ctx, t, key, l)
	}
	err = c.apart(t, key, func() error { rec, err = c.Store.Read(ctx, t, key, l); return err })
	return rec, err
}

func (c *contended) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	return c.apart(t, key, func() error { return c.Store.Swap(ctx, t, key, old, next) })
}

// TestManyStartsAtOnce: processes that bring nothing new do not meet.
func TestManyStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &contended{Store: memstore.New(), begun: map[string]int{}}
		start := func() error {
			_, skew := mapclient.AgreeOnClockSkew(t.Context(), s, 0, false)
			_, counting := mapclient.AgreeOnCounting(t.Context(), s, mapclient.ByLooks, false)
			_, id := mapclient.Identify(t.Context(), s)
			_, limits := mapclient.AnnounceLimits(t.Context(), s, mapclient.Limits{MaxRows: 7})
			return errors.Join(agreeOnLease(t.Context(), s, time.Second, false), skew, counting, id, limits)
		}
		require.NoError(t, start())
		s.serial = 0
		failures := make([]error, 200)
		var all sync.WaitGroup
		for i := range failures {
			all.Go(func() { failures[i] = start() })
		}
		all.Wait()
		joined := 0
		for _, err := range failures {
			if err == nil {
				joined++
			}
		}
		require.Equal(t, len(failures), joined, "they join; of %d operations at Serial %d failed", s.serial, s.failed)
		require.Zero(t, s.serial)
	})
}

// TestATermThatCantBeRead: a process that looks for damage goes on with what it is told of a term that can't be read,
// and with nothing else; all others end.
func TestATermThatCantBeRead(t *testing.T) {
	const lease, skew = 30 * time.Second, 2 * time.Second
	whole := mapclient.Options{Lease: lease, MaxClockSkew: skew, Clocks: 1}
	for _, key := range []string{"lease", "clock skew"} {
		t.Run(key, func(t *testing.T) {
			ctx, s := t.Context(), memstore.New()
			c, err := mapclient.Join(ctx, s, whole, false)
			require.NoError(t, err)
			c.Close()
			try := func(o mapclient.Options) error {
				c, err := mapclient.JoinDamaged(ctx, s, o)
				if err == nil {
					require.Equal(t, lease, c.Leases().Length)
					require.Equal(t, skew, c.MaxClockSkew())
					c.Close()
				}
				return err
			}
			require.NoError(t, try(mapclient.Options{Clocks: 1}), "nothing is damaged")
			require.ErrorIs(t, try(mapclient.Options{Lease: time.Second, MaxClockSkew: skew}), store.InvalidArgument)
			require.ErrorIs(t, try(mapclient.Options{Lease: lease, MaxClockSkew: time.Second}), store.InvalidArgument)
			old, err := s.Read(ctx, store.Process, []byte(key), store.Serial)
			require.NoError(t, err)
			next := store.Record{Version: record.Next(old.Version), Blob: []byte("damaged")}
			require.NoError(t, s.Swap(ctx, store.Process, []byte(key), old.Version, next))
			_, err = mapclient.Join(ctx, s, whole, false)
			require.ErrorIs(t, err, store.Corrupt)
			_, err = mapclient.Join(ctx, s, whole, true)
			require.ErrorIs(t, err, store.Corrupt)
			require.NoError(t, try(whole))
			said := map[string]mapclient.Options{
				"lease": {MaxClockSkew: skew, Clocks: 1}, "clock skew": {Lease: lease, Clocks: 1},
			}
			require.ErrorIs(t, try(said[key]), store.Corrupt, "nobody has said it")
			wrong := map[string]mapclient.Options{
				"lease": {Lease: lease, MaxClockSkew: time.Second}, "clock skew": {Lease: time.Second, MaxClockSkew: skew},
			}
			require.ErrorIs(t, try(wrong[key]), store.InvalidArgument, "the other term is whole")
			rec, err := s.Read(ctx, store.Process, []byte(key), store.Serial)
			require.NoError(t, err)
			require.Equal(t, next, rec, "it changes no term")
		})
	}
}
