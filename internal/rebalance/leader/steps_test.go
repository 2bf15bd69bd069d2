package leader_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// scripted is a store whose next calls a test decides on. A call without a script is
// the store's own.
type scripted struct {
	store.Store
	mu           sync.Mutex
	reads, swaps int
	read         func(n int, rec store.Record, err error) (store.Record, error) // the n-th, from 1 on
	swap         func(ctx context.Context, n int, do func() error) error
}

func newScripted() *scripted { return &scripted{Store: memstore.New()} }

func (s *scripted) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	rec, err := s.Store.Read(ctx, t, key, l)
	s.mu.Lock()
	s.reads++
	n, f := s.reads, s.read
	s.mu.Unlock()
	if f != nil {
		return f(n, rec, err)
	}
	return rec, err
}

func (s *scripted) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	s.mu.Lock()
	s.swaps++
	n, f := s.swaps, s.swap
	s.mu.Unlock()
	do := func() error { return s.Store.Swap(ctx, t, key, old, next) }
	if f != nil {
		return f(ctx, n, do)
	}
	return do()
}

// script begins anew with other answers.
func (s *scripted) script(read func(int, store.Record, error) (store.Record, error),
	swap func(context.Context, int, func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads, s.swaps, s.read, s.swap = 0, 0, read, swap
}

func (s *scripted) count() (reads, swaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.swaps
}

// now is who leads, read past all scripts.
func (s *scripted) now(t *testing.T) leader.Holder {
	t.Helper()
	h, err := leader.Current(context.Background(), s.Store, leader.Moves)
	require.NoError(t, err)
	return h
}

// clocks are two clocks that a test sets.
type clocks struct {
	mu   sync.Mutex
	mono time.Duration
	wall time.Time
}

func (c *clocks) options(o leader.Options) leader.Options {
	o.Now = func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall }
	o.Monotonic = func() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.mono }
	return o
}

func (c *clocks) add(mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono, c.wall = c.mono+mono, c.wall.Add(wall)
}

// begin lets a candidate lead until stop, which waits for what Try returns.
func begin(t *testing.T, c *leader.Candidate) (stop func() error, ended <-chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Try(ctx, untilEnd) }()
	synctest.Wait()
	return func() error { cancel(); return <-done }, done
}

func nothing(context.Context) error { return nil }

// put writes a record as it is, whoever leads.
func put(t *testing.T, s store.Store, form byte, payload []byte) store.Record {
	t.Helper()
	was, err := s.Read(t.Context(), store.Process, []byte("leader"), store.Serial)
	if !errors.Is(err, store.NotFound) {
		require.NoError(t, err)
	}
	rec := record.Seal(form, record.Next(was.Version), payload)
	require.NoError(t, s.Swap(t.Context(), store.Process, []byte("leader"), was.Version, rec))
	return rec
}

func putHolder(t *testing.T, s store.Store, h leader.Holder) {
	t.Helper()
	payload, err := json.Marshal(h)
	require.NoError(t, err)
	put(t, s, 1, payload)
}

// With clocks an hour apart one takes the lease of the other, whose work ends at its
// next renewal, and who leaves the record as it is.
func TestTheLeaseOfOneWhoseClockIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a := leader.New(s, leader.Options{Name: "a"})
		b := leader.New(s, leader.Options{Name: "b", Now: func() time.Time { return time.Now().Add(time.Hour) }})
		_, aEnded := begin(t, a)
		stopB, bEnded := begin(t, b)
		require.Equal(t, "b", s.now(t).Name)
		time.Sleep(leader.DefaultLease*2/5 + time.Millisecond)
		synctest.Wait()
		select {
		case err := <-aEnded:
			require.ErrorIs(t, err, leader.ErrLost)
		default:
			t.Fatal("a goes on though b leads")
		}
		ctx, end := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- a.Run(ctx, func(context.Context) error { return errors.New("a leads beside b") }, nil) }()
		for range 100 {
			time.Sleep(time.Second)
			require.Equal(t, "b", s.now(t).Name)
		}
		end()
		require.ErrorIs(t, <-ran, store.Timeout)
		require.Empty(t, bEnded)
		require.NoError(t, ignore(stopB(), context.Canceled))
	})
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// Whoever resigns frees its own lease only, and that also where it does not know how
// its last renewals ended.
func TestResigning(t *testing.T) {
	lost := store.Errorf(store.Timeout, "lost")
	refuse := func(int, store.Record, error) (store.Record, error) { return store.Record{}, lost }
	type swap = func(context.Context, int, func() error) error
	for name, c := range map[string]struct {
		meanwhile    func(t *testing.T, s *scripted) // while it leads
		read         func(int, store.Record, error) (store.Record, error)
		swap         swap
		leads        string // afterwards
		reads, swaps int    // of resigning
	}{
		"all is well": {swaps: 1},
		"another leads already": {meanwhile: func(t *testing.T,
			s *scripted) {
			putHolder(t, s.Store, leader.Holder{ID: uuid.New(), Name: "b"})
		},
			leads: "b", swaps: 1, reads: 1},
		"another has led and is gone": {meanwhile: func(t *testing.T,
			s *scripted) {
			putHolder(t, s.Store, leader.Holder{})
		}, swaps: 1, reads: 1},
		"an own renewal came late": {meanwhile: func(t *testing.T, s *scripted) { putHolder(t, s.Store, s.now(t)) },
			swaps: 2, reads: 1},
		"the answer is lost": {swap: func(_ context.Context, _ int,
			do func() error) error {
			_ = do()
			return lost
		}, swaps: 1, reads: 1},
		"no swap comes through": {swap: func(context.Context, int, func() error) error { return lost },
			leads: "a", swaps: 3, reads: 3},
		"the third comes through": {swap: func(_ context.Context, n int, do func() error) error {
			if n < 3 {
				return lost
			}
			return do()
		}, swaps: 3, reads: 2},
		"nothing can be read": {swap: func(context.Context, int, func() error) error { return lost }, read: refuse,
			leads: "a", swaps: 1, reads: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScripted()
			a := leader.New(s, leader.Options{Name: "a"})
			stop, _ := begin(t, a)
			was := s.now(t)
			time.Sleep(time.Second)
			if c.meanwhile != nil {
				c.meanwhile(t, s)
			}
			s.script(c.read, c.swap)
			require.ErrorIs(t, stop(), context.Canceled)
			reads, swaps := s.count()
			require.Equal(t, [2]int{c.reads, c.swaps}, [2]int{reads, swaps}, name)
			_, leading := a.Leading()
			require.False(t, leading, name)
			rec, err := s.Store.Read(t.Context(), store.Process, []byte("leader"), store.Serial)
			require.NoError(t, err)
			payload, err := record.Open(1, rec)
			require.NoError(t, err)
			var h leader.Holder
			require.NoError(t, json.Unmarshal(payload, &h))
			require.Equal(t, c.leads, h.Name, name)
			if c.leads == "" && c.meanwhile == nil {
				require.Equal(t, leader.Holder{Since: was.Since, Until: was.Since.Add(time.Second),
					Lease: leader.DefaultLease}, h, name)
			}
		})
	}
}

// Resigning takes no longer than a third of a lease, and is left out where nothing is
// left to give up.
func TestResigningTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		stop, _ := begin(t, leader.New(s, leader.Options{Lease: 30 * time.Second}))
		s.script(nil, func(ctx context.Context, _ int,
			_ func() error) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		before := time.Now()
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, 10*time.Second, time.Since(before))

		k := &clocks{wall: time.Unix(1_000_000, 0)}
		s = newScripted()
		a := leader.New(s, k.options(leader.Options{}))
		require.NoError(t, a.Try(t.Context(), func(context.Context) error {
			k.add(0, leader.DefaultLease)
			s.script(nil, nil)
			return nil
		}))
		_, swaps := s.count()
		require.Zero(t, swaps, "the lease is over")
	})
}

// What reading the record may meet, and what a candidate does then.
func TestReadsThatFail(t *testing.T) {
	torn := func(rec store.Record) store.Record { rec.Epoch++; return rec }
	for name, c := range map[string]struct {
		read  func(n int, rec store.Record, err error) (store.Record, error)
		reads int
		kind  store.Kind // Other: none
		text  string
	}{
		"torn once": {func(n int, rec store.Record, err error) (store.Record, error) {
			return map[bool]store.Record{true: torn(rec), false: rec}[n == 1], err
		}, 2, store.Other, ""},
		"torn twice": {func(n int, rec store.Record, err error) (store.Record, error) {
			return map[bool]store.Record{true: torn(rec), false: rec}[n <= 2], err
		}, 3, store.Other, ""},
		"always torn": {func(_ int, rec store.Record, err error) (store.Record, error) { return torn(rec), err }, 3,
			store.Unavailable, "a torn record"},
		"away once": {func(n int, rec store.Record, err error) (store.Record, error) {
			if n == 1 {
				err = store.Errorf(store.Unavailable, "away")
			}
			return rec, err
		}, 2, store.Other, ""},
		"timed out": {func(int, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Timeout, "too late")
		}, 1, store.Timeout, "too late"},
		"damaged": {func(_ int, rec store.Record, err error) (store.Record, error) {
			rec.Blob = append([]byte{}, rec.Blob...)
			rec.Blob[30] ^= 1
			return rec, err
		}, 1, store.Corrupt, "checksum"},
		"no JSON": {func(_ int, rec store.Record, err error) (store.Record, error) {
			return record.Seal(1, rec.Version, []byte("no JSON")), err
		}, 1, store.Corrupt, "invalid character"},
		"an unknown form": {func(_ int, rec store.Record, err error) (store.Record, error) {
			return record.Seal(2, rec.Version, []byte("{}")), err
		}, 1, store.Corrupt, "form 2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScripted()
			putHolder(t, s.Store, leader.Holder{}) // free
			s.script(c.read, nil)
			err := leader.New(s, leader.Options{}).Try(t.Context(), nothing)
			require.Equal(t, c.kind, store.KindOf(err), "%s: %v", name, err)
			reads, swaps := s.count()
			require.Equal(t, c.reads, reads, name)
			if err != nil {
				require.ErrorContains(t, err, "read the leader's record: ", name)
				require.ErrorContains(t, err, c.text, name)
				require.Zero(t, swaps, "%s: it writes what it can't read", name)
				_, err = leader.Current(t.Context(), s, leader.Moves)
				require.ErrorContains(t, err, c.text, name)
			}
		})
	}
}

// Swaps whose outcome is not known: it leads only when it knows, and gives up after four.
func TestSwapsThatFail(t *testing.T) {
	lost := store.Errorf(store.Timeout, "lost")
	for name, c := range map[string]struct {
		swap  func(ctx context.Context, s *scripted, n int, do func() error) error
		swaps int // one more to resign
		text  string
	}{
		"three are lost": {func(_ context.Context, _ *scripted, n int, do func() error) error {
			if n <= 3 {
				return lost
			}
			return do()
		}, 5, ""},
		"the answers of three are lost": {func(_ context.Context, _ *scripted, n int, do func() error) error {
			err := do()
			if n <= 3 {
				return lost
			}
			return err
		}, 5, ""},
		"all are lost": {func(context.Context, *scripted, int, func() error) error { return lost }, 4,
			"take the leader's lease: timeout: lost"},
		"another one was faster": {func(_ context.Context, s *scripted, _ int, do func() error) error {
			putHolder(t, s.Store, leader.Holder{ID: uuid.New(), Name: "b", Until: time.Now().Add(time.Hour)})
			return do()
		}, 1, "another rebalancer leads already: b"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScripted()
			s.script(nil, func(ctx context.Context, n int, do func() error) error { return c.swap(ctx, s, n, do) })
			ran := false
			err := leader.New(s, leader.Options{}).Try(t.Context(),
				func(context.Context) error { ran = true; return nil })
			require.Equal(t, c.text == "", ran, name)
			if c.text != "" {
				require.ErrorContains(t, err, c.text, name)
			} else {
				require.NoError(t, err, name)
			}
			_, swaps := s.count()
			require.Equal(t, c.swaps, swaps, name)
		})
	}
	// A moment that JSON can't tell.
	s := newScripted()
	err := leader.New(s, leader.Options{Now: func() time.Time {
		return time.Date(12_000, 1, 1, 0, 0, 0, 0,
			time.UTC)
	}}).Try(t.Context(), nothing)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "the leader's record: ")
	_, err = leader.Current(t.Context(), s, leader.Moves)
	require.ErrorIs(t, err, store.NotFound)
}

// When the lease of somebody who does not answer is over: by its own word and the
// skew, or when its record has been the same for the length of its lease, a hundredth
// and the skew, on both clocks.
func TestTheEndOfAnothersLease(t *testing.T) {
	const lease, skew = 100 * time.Second, 7 * time.Second
	const patience = lease + lease/100 + skew
	at := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		until      time.Duration // of the record, from now on
		mono, wall time.Duration // that pass after the first look
		changes    bool          // the record does, meanwhile
		over       bool
	}{
		"by its word":               {until: -skew - 1, over: true},
		"by its word, not quite":    {until: -skew},
		"at once":                   {until: time.Hour},
		"both clocks":               {until: time.Hour, mono: patience + 1, wall: patience + 1, over: true},
		"both clocks, not quite":    {until: time.Hour, mono: patience, wall: patience},
		"the wall clock, not quite": {until: time.Hour, mono: patience + 1, wall: patience},
		"the other, not quite":      {until: time.Hour, mono: patience, wall: patience + 1},
		"a wall clock set ahead":    {until: time.Hour, wall: 59 * time.Minute},
		"a wall clock set back":     {until: time.Hour, mono: time.Hour, wall: -time.Hour},
		"somebody renews":           {until: time.Hour, mono: patience + 1, wall: patience + 1, changes: true},
	} {
		s := memstore.New()
		k := &clocks{wall: at, mono: 5 * time.Hour}
		h := leader.Holder{ID: uuid.New(), Name: "b", Until: at.Add(c.until), Lease: lease}
		putHolder(t, s, h)
		a := leader.New(s, k.options(leader.Options{Skew: skew}))
		err := a.Try(t.Context(), nothing)
		if c.mono != 0 || c.wall != 0 {
			require.ErrorIs(t, err, store.Conflict, name)
			k.add(c.mono, c.wall)
			if c.changes {
				putHolder(t, s, h)
			}
			err = a.Try(t.Context(), nothing)
		}
		if c.over {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, store.Conflict, name)
		now, err := leader.Current(t.Context(), s, leader.Moves)
		require.NoError(t, err)
		require.Equal(t, "b", now.Name, name)
	}
}

// A lease is over with the first of both clocks, to the moment; whoever asks learns it
// before the work has ended.
func TestTheEndOfAnOwnLease(t *testing.T) {
	for _, c := range []struct {
		mono, wall time.Duration
		over       bool
	}{{time.Minute - 1, time.Minute - 1, false}, {time.Minute, 0, true}, {0, time.Minute, true}, {time.Minute - 1,
		-time.Hour, false}, {time.Hour, time.Hour, true}} {
		s := memstore.New()
		k := &clocks{wall: time.Unix(1_000_000, 0), mono: time.Hour}
		a := leader.New(s, k.options(leader.Options{Name: "a", Lease: time.Minute}))
		require.NoError(t, ignore(a.Try(t.Context(), func(ctx context.Context) error {
			h, leading := a.Leading()
			require.True(t, leading)
			now, known, mine := a.Leader(t.Context())
			require.True(t, known)
			require.True(t, mine)
			require.Equal(t, h, now)
			k.add(c.mono, c.wall)
			_, leading = a.Leading()
			require.Equal(t, !c.over, leading, "%v", c)
			now, known, mine = a.Leader(t.Context())
			require.True(t, known, "the record still says so")
			require.Equal(t, !c.over, mine)
			require.Equal(t, "a", now.Name)
			k.add(-c.mono, -c.wall)
			return nil
		}), leader.ErrLost)) // it may have been noticed already
		_, leading := a.Leading()
		require.False(t, leading)
		_, known, mine := a.Leader(t.Context())
		require.False(t, known)
		require.False(t, mine)
	}
}

// Renewals come each two fifths of a lease, after failures each twentieth, and the work ends
// a lease after the last one began that came through.
func TestThePaceOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Minute
		s := newScripted()
		a := leader.New(s, leader.Options{Name: "a", Admin: "http://a", Lease: lease})
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		broken := false
		swapped := func(until time.Duration, breaks bool) []time.Duration {
			time.Sleep(until - time.Since(start))
			mu.Lock()
			defer mu.Unlock()
			was := at
			at, broken = nil, breaks
			return was
		}
		s.script(nil, func(_ context.Context, _ int, do func() error) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start))
			if broken {
				return store.Errorf(store.Unavailable, "away")
			}
			return do()
		})
		_, ended := begin(t, a)
		first := s.now(t)
		require.Equal(t, leader.Holder{ID: first.ID, Name: "a", Admin: "http://a", Since: first.Since,
			Until: first.Since.Add(lease), Lease: lease, Epoch: 1}, first)
		require.Equal(t, []time.Duration{0, 24 * time.Second, 48 * time.Second, 72 * time.Second},
			swapped(73*time.Second, true))
		h, leading := a.Leading()
		require.True(t, leading)
		require.Equal(t, s.now(t), toUTC(h, s.now(t)), "what it says of itself is what it wrote")
		require.True(t, h.Until.Equal(first.Until.Add(72*time.Second)))
		require.True(t, h.Since.Equal(first.Since))
		require.EqualValues(t, 4, h.Epoch)

		require.Equal(t, []time.Duration{96 * time.Second, 99 * time.Second, 102 * time.Second, 105 * time.Second},
			swapped(106*time.Second, false))
		require.Equal(t, []time.Duration{108 * time.Second, 132 * time.Second}, swapped(140*time.Second, true))
		require.ErrorIs(t, <-ended, leader.ErrLost)
		require.Equal(t, 192*time.Second, time.Since(start))
	})
}

// toUTC is h with the moments of o where they are the same: JSON keeps no zones.
func toUTC(h, o leader.Holder) leader.Holder {
	if h.Since.Equal(o.Since) && h.Until.Equal(o.Until) {
		h.Since, h.Until = o.Since, o.Until
	}
	return h
}

// A renewal whose answer was lost, or that came late, is gone on from; it makes the
// lease no longer.
func TestRenewalsOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Minute
		s := newScripted()
		stop, ended := begin(t, leader.New(s, leader.Options{Name: "a", Lease: lease}))
		start := time.Now()
		s.script(nil, func(_ context.Context, n int, do func() error) error {
			err := do()
			if n == 1 {
				return store.Errorf(store.Timeout, "lost")
			}
			return err
		})
		time.Sleep(28 * time.Second)
		reads, swaps := s.count()
		require.Equal(t, [2]int{1, 2}, [2]int{reads, swaps}, "the second goes on from what the first wrote")
		// All answers are lost from here on, and nothing can be read: the lease counts
		// from the renewal at 27 s.
		s.script(func(int, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Unavailable, "away")
		},
			func(_ context.Context, _ int, do func() error) error {
				_ = do()
				time.Sleep(100 * time.Millisecond) // so that no try begins just when the lease ends
				return store.Errorf(store.Timeout, "lost")
			})
		require.ErrorIs(t, <-ended, leader.ErrLost)
		require.Equal(t, 87*time.Second, time.Since(start))
		_, swaps = s.count()
		require.Equal(t, 12, swaps, "it tries each twentieth of a lease, from 51 s on")
		_ = stop
	})
}

// Work may return what it likes when the lease is over: it was lost.
func TestWorkThatEndsWithTheLease(t *testing.T) {
	for _, result := range []error{nil, errors.New("cut short")} {
		synctest.Test(t, func(t *testing.T) {
			s := newScripted()
			a := leader.New(s, leader.Options{})
			require.ErrorIs(t, a.Try(t.Context(), func(ctx context.Context) error {
				s.script(nil, func(context.Context, int, func() error) error {
					return store.Errorf(store.Unavailable,
						"away")
				})
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
				return result
			}), leader.ErrLost)
		})
	}
}

// A renewal that is answered when the work has ended already is waited for: nobody leads
// after having resigned.
func TestResigningWaitsForRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		a := leader.New(s, leader.Options{})
		stop, _ := begin(t, a)
		s.script(nil, func(ctx context.Context, n int, do func() error) error {
			err := do()
			if n == 1 {
				<-ctx.Done()
				time.Sleep(time.Second)
			}
			return err
		})
		time.Sleep(leader.DefaultLease/3 + time.Second)
		require.ErrorIs(t, stop(), context.Canceled)
		time.Sleep(2 * time.Second)
		_, leading := a.Leading()
		require.False(t, leading)
		_, err := leader.Current(t.Context(), s, leader.Moves)
		require.ErrorIs(t, err, store.NotFound)
	})
}

// What Run returns, and what it tells whom.
func TestRunTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		b := leader.Holder{ID: uuid.New(), Name: "b", Until: time.Now().Add(time.Hour), Lease: time.Hour}
		putHolder(t, s.Store, b)
		a := leader.New(s, leader.Options{Name: "a"})
		var mu sync.Mutex
		var heard []string
		runs := 0
		told := func(n int) []string {
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, heard, n, "%v", heard)
			return heard
		}
		begun := func() int { mu.Lock(); defer mu.Unlock(); return runs }
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- a.Run(ctx, func(ctx context.Context) error {
				mu.Lock()
				runs++
				mu.Unlock()
				return untilEnd(ctx)
			}, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, err.Error())
			})
		}()
		synctest.Wait()
		reads, _ := s.count()
		require.Equal(t, 1, reads)
		time.Sleep(16 * time.Second)
		reads, _ = s.count()
		require.InDelta(t, 4, reads, 1, "it looks each third of a lease, more or less")
		b.Until = b.Until.Add(time.Minute) // renewed
		putHolder(t, s.Store, b)
		time.Sleep(time.Minute)
		require.Contains(t, told(1)[0], "another rebalancer leads already: b")
		c := leader.Holder{ID: uuid.New(), Until: time.Now().Add(time.Hour), Lease: time.Hour, Admin: "http://c"}
		putHolder(t, s.Store, c)
		time.Sleep(time.Minute)
		require.Contains(t, told(2)[1], "already: "+c.ID.String()+", until ")
		require.Contains(t, told(2)[1], "give commands to it, with --admin http://c")
		s.script(func(int, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.Timeout, "gone")
		}, nil)
		time.Sleep(time.Minute)
		s.script(nil, nil)
		require.Contains(t, told(3)[2], "gone")
		require.Zero(t, begun())
		putHolder(t, s.Store, leader.Holder{})
		time.Sleep(9 * time.Second) // a look, and its turn
		require.Equal(t, 1, begun())
		putHolder(t, s.Store, c)
		time.Sleep(12 * time.Second)
		require.Contains(t, told(5)[3], leader.ErrLost.Error())
		require.Contains(t, told(5)[4], c.ID.String(), "of the same one again, as it has led meanwhile")
		putHolder(t, s.Store, leader.Holder{})
		time.Sleep(9 * time.Second)
		require.Equal(t, 2, begun())
		end()
		err := <-done
		require.ErrorIs(t, err, store.Timeout)
		require.ErrorContains(t, err, "wait to lead the rebalancing: ")
		require.Equal(t, 2, begun())
		_, err = leader.Current(t.Context(), s, leader.Moves)
		require.ErrorIs(t, err, store.NotFound)
		require.ErrorContains(t, err, "no rebalancer leads")

		putHolder(t, s.Store, c)
		for range 2 {
			err = a.Run(ctx, nothing, nil)
			require.ErrorIs(t, err, store.Timeout, "the context has ended")
			putHolder(t, s.Store, leader.Holder{})
		}
		require.NoError(t, a.Run(t.Context(), nothing, nil))
	})
}

// Where the context has ended, whatever work returns is no news.
func TestRunEndsWithItsContext(t *testing.T) {
	for _, result := range []error{nil, errors.New("cut short")} {
		ctx, end := context.WithCancel(t.Context())
		told := 0
		err := leader.New(memstore.New(), leader.Options{}).Run(ctx,
			func(context.Context) error { end(); return result }, func(error) { told++ })
		require.ErrorIs(t, err, store.Timeout)
		require.Zero(t, told)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	s := newScripted()
	s.script(func(int, store.Record, error) (store.Record, error) {
		return store.Record{}, store.Errorf(store.Unavailable, "away")
	}, nil)
	require.ErrorIs(t, leader.New(s, leader.Options{}).Run(ctx, nothing,
		func(err error) { t.Errorf("told of %v", err) }), store.Timeout)
}

// Each end of a lease is told, also where nobody else has led between two of them.
func TestEachLostLeaseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ctx, end := context.WithCancel(t.Context())
		var told []error
		done := make(chan error, 1)
		go func() {
			done <- leader.New(s, leader.Options{}).Run(ctx, untilEnd, func(err error) { told = append(told, err) })
		}()
		time.Sleep(leader.DefaultLease / 6) // its turn
		for n := range 3 {
			synctest.Wait()
			putHolder(t, s, leader.Holder{})
			time.Sleep(leader.DefaultLease) // it renews after a third, and leads again after another one
			synctest.Wait()
			require.Len(t, told, n+1)
			require.ErrorIs(t, told[n], leader.ErrLost)
		}
		end()
		require.ErrorIs(t, <-done, store.Timeout)
	})
}

// A nanosecond before the end of the lease the work goes on.
func TestTheLastMomentOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Minute
		k := &clocks{wall: time.Unix(1_000_000, 0), mono: time.Hour}
		_, ended := begin(t, leader.New(memstore.New(), k.options(leader.Options{Lease: lease})))
		k.add(lease-1, 0)
		time.Sleep(lease/20 + 10) // one look, and ten more
		synctest.Wait()
		require.Empty(t, ended)
		k.add(1, 0)
		require.ErrorIs(t, <-ended, leader.ErrLost)
	})
}

// The context of the swap that resigns ends with it, and is not that of the work.
func TestTheContextOfResigning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		stop, _ := begin(t, leader.New(s, leader.Options{}))
		var of context.Context
		s.script(nil, func(ctx context.Context, _ int, do func() error) error {
			of = ctx
			require.NoError(t, ctx.Err())
			return do()
		})
		require.ErrorIs(t, stop(), context.Canceled)
		require.ErrorIs(t, of.Err(), context.Canceled)
	})
}

// Errors name the work.
func TestErrorsOfTheCleaning(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	require.ErrorContains(t, leader.New(memstore.New(), leader.Options{Work: leader.Cleaning}).Run(ctx, nothing, nil),
		"wait to lead the cleaning: ")
}

// An option that is not given, or makes no sense, is the default.
func TestDefaults(t *testing.T) {
	require.Equal(t, 15*time.Second, leader.DefaultLease)
	for _, o := range []leader.Options{{}, {Lease: -1, Skew: -1}, {Lease: 1, Skew: 1}} {
		s := memstore.New()
		want := leader.Holder{Lease: leader.DefaultLease}
		if o.Lease == 1 {
			want.Lease = 1
		}
		a := leader.New(s, o)
		require.NoError(t, ignore(a.Try(t.Context(), func(context.Context) error {
			now, err := leader.Current(t.Context(), s, leader.Moves)
			require.NoError(t, err)
			require.Equal(t, want.Lease, now.Lease)
			if o.Lease != 1 { // else it has renewed by now
				require.Equal(t, want.Lease, now.Until.Sub(now.Since))
			}
			require.WithinDuration(t, time.Now(), now.Since, time.Hour)
			return nil
		}), leader.ErrLost))
	}
	// The skew is a second.
	for _, c := range []struct {
		skew, ago time.Duration
		over      bool
	}{{0, time.Second, false}, {0, time.Second + 1, true}, {1, 1, false}, {1, 2, true}} {
		s, at := memstore.New(), time.Unix(1_000_000, 0)
		putHolder(t, s, leader.Holder{ID: uuid.New(), Until: at.Add(-c.ago)})
		o := leader.Options{Skew: c.skew, Now: func() time.Time { return at }}
		err := leader.New(s, o).Try(t.Context(), nothing)
		require.Equal(t, c.over, err == nil, "%v", err)
	}
}

// Records stay readable.
func TestTheFormOfTheRecord(t *testing.T) {
	const blob = "010000000000000003000102030405060708090a0b0c0d0e0f7b226964223a2263303966666565652d303030302d343030302d383030302d303030303030303030303031222c226e616d65223a22686f73742d613a3137222c2261646d696e223a22687474703a2f2f31302e302e302e313a39303031222c2273696e6365223a22323032362d30312d30325430333a30343a30355a222c22756e74696c223a22323032362d30312d30325430333a30343a32305a222c226c656173655f6e73223a31353030303030303030307d"
	body, err := hex.DecodeString(blob)
	require.NoError(t, err)
	v := store.Version{Epoch: 3, Token: store.Token(body[9:25])}
	s := newScripted()
	s.script(func(int, store.Record, error) (store.Record, error) { return record.Seal(body[0], v, body[25:]), nil },
		nil)
	h, err := leader.Current(t.Context(), s, leader.Moves)
	require.NoError(t, err)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, leader.Holder{ID: uuid.MustParse("c09ffeee-0000-4000-8000-000000000001"), Name: "host-a:17",
		Admin: "http://10.0.0.1:9001",
		Since: since, Until: since.Add(15 * time.Second), Lease: 15 * time.Second, Epoch: 3}, h)
	require.Equal(t, "host-a:17 (c09ffeee-0000-4000-8000-000000000001)", h.String())
	h.Name = ""
	require.Equal(t, "c09ffeee-0000-4000-8000-000000000001", h.String())
	h.Admin = ""
	require.EqualError(t, &leader.HeldError{Holder: h},
		"another rebalancer leads already: c09ffeee-0000-4000-8000-000000000001, "+
			"until 2026-01-02T03:04:20Z unless it renews: it takes no commands; wait until it has ended")
	require.EqualError(t, &leader.HeldError{Holder: h, Work: leader.Cleaning},
		"another cleaner leads already: c09ffeee-0000-4000-8000-000000000001, "+
			"until 2026-01-02T03:04:20Z unless it renews: it takes no commands; wait until it has ended")
	_, err = leader.Current(t.Context(), memstore.New(), leader.Cleaning)
	require.ErrorContains(t, err, "no cleaner leads")
}
