package mapclient_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// scripted is a store of which a test decides, call by call and counted from 1 on, what
// becomes of the swaps and reads of one table.
type scripted struct {
	mapclient.Store
	mu           sync.Mutex
	table        store.Table
	reads, swaps int
	levels       []store.Level // of the reads
	read         func(n int, rec store.Record, err error) (store.Record, error)
	swap         func(ctx context.Context, n int, do func() error) error
	hang         bool              // reads of the table never answer
	write        func(n int) error // of nodes
	writes       int
}

func newScripted() *scripted { return &scripted{Store: memstore.New()} }

// script begins to count anew.
func (s *scripted) script(
	t store.Table, read func(int, store.Record, error) (store.Record, error),
	swap func(context.Context, int, func() error) error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table, s.read, s.swap, s.reads, s.swaps, s.writes, s.levels = t, read, swap, 0, 0, 0, nil
}

func (s *scripted) hangs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = true
}

func (s *scripted) count() (reads, swaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.swaps
}

func (s *scripted) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	rec, err := s.Store.Read(ctx, t, key, l)
	s.mu.Lock()
	if t != s.table {
		s.mu.Unlock()
		return rec, err
	}
	s.reads++
	s.levels = append(s.levels, l)
	n, f, hang := s.reads, s.read, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return store.Record{}, store.Wrap("read", context.Cause(ctx))
	}
	if f != nil {
		return f(n, rec, err)
	}
	return rec, err
}

func (s *scripted) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	do := func() error { return s.Store.Swap(ctx, t, key, old, next) }
	s.mu.Lock()
	if t != s.table {
		s.mu.Unlock()
		return do()
	}
	s.swaps++
	n, f := s.swaps, s.swap
	s.mu.Unlock()
	if f != nil {
		return f(ctx, n, do)
	}
	return do()
}

func (s *scripted) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	s.mu.Lock()
	s.writes++
	n, f := s.writes, s.write
	s.mu.Unlock()
	if f != nil {
		if err := f(n); err != nil {
			return err
		}
	}
	return s.Store.WriteNode(ctx, b, id, blob)
}

var (
	errLost = store.Errorf(store.Timeout, "lost")
	errAway = store.Errorf(store.Unavailable, "away")
)

// steppingWorld is a client of the network form over a scripted store, with one bucket.
type steppingWorld struct {
	*mapclient.Client
	t     *testing.T
	store *scripted
	id    store.BucketID
}

func newSteppingWorld(t *testing.T) *steppingWorld {
	w := &steppingWorld{t: t, store: newScripted(), id: store.BucketID(uuid.New())}
	require.NoError(t, mapclient.InitClocks(t.Context(), w.store, 1))
	c, err := mapclient.NewNetwork(w.store, mapclient.Options{Clocks: 1, Jitter: func() float64 { return 0.5 }})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w.Client = c
	_, err = w.Create(t.Context(), w.id, cutsOf(2))
	require.NoError(t, err)
	require.Zero(t, c.Counts().Bumps, "of a new bucket nobody knows an older map")
	return w
}

// change makes a change of the present root.
func (w *steppingWorld) change() partmap.Change {
	w.t.Helper()
	root, err := w.Load(w.t.Context(), w.id)
	require.NoError(w.t, err)
	e := w.Edit(w.t.Context(), root)
	require.NoError(
		w.t, e.Replace(nil, nil, []partmap.Entry{{Partition: store.PartitionID(uuid.New())}}),
	)
	c, err := e.Change()
	require.NoError(w.t, err)
	return c
}

// land swaps other roots in, past all scripts: so many epochs.
func (w *steppingWorld) land(epochs int) {
	w.t.Helper()
	for range epochs {
		rec, err := w.store.Store.Read(w.t.Context(), store.Roots, w.id[:], store.Serial)
		require.NoError(w.t, err)
		root, err := partmap.DecodeRoot(w.id, rec)
		require.NoError(w.t, err)
		root.Epoch, root.Token = root.Epoch+1, storekit.NewToken()
		next, err := partmap.EncodeRoot(root)
		require.NoError(w.t, err)
		require.NoError(w.t, w.store.Store.Swap(w.t.Context(), store.Roots, w.id[:], rec.Version, next))
	}
}

// TestSwapsOfARootStepByStep: what Swap says of each way in which its tries and the
// reads between them may end. Conflict means that it is not applied and never will be,
// nothing that it is, all else that nobody knows.
func TestSwapsOfARootStepByStep(t *testing.T) {
	conflict := store.Errorf(store.Conflict, "somebody was faster")
	type swap = func(ctx context.Context, w *steppingWorld, n int, do func() error) error
	type read = func(n int, rec store.Record, err error) (store.Record, error)
	for name, c := range map[string]struct {
		swap         swap
		read         read
		kind         store.Kind
		text         string
		reads, swaps int
		epoch        uint64        // of the register afterwards
		paused       time.Duration // before the root is read again: half of 4 ms, 8 ms and so on
	}{
		"it comes through": {swap: func(_ context.Context, _ *steppingWorld, _ int, do func() error) error {
			return do()
		}, swaps: 1, epoch: 2},
		"a conflict at first": {swap: func(context.Context, *steppingWorld, int, func() error) error {
			return conflict
		}, kind: store.Conflict, swaps: 1, epoch: 1, text: "somebody was faster"},
		"refused for good": {swap: func(context.Context, *steppingWorld, int, func() error) error {
			return store.Errorf(store.InvalidArgument, "no")
		}, kind: store.InvalidArgument, swaps: 1, epoch: 1},
		"the answer was lost": {swap: func(_ context.Context, _ *steppingWorld, _ int, do func() error) error {
			_ = do()
			return errLost
		}, swaps: 1, reads: 1, epoch: 2},
		"it was lost": {swap: func(_ context.Context, _ *steppingWorld, n int, do func() error) error {
			return lostUntil(n, 2, do)
		}, swaps: 2, reads: 1, epoch: 2},
		"three were lost": {swap: func(_ context.Context, _ *steppingWorld, n int, do func() error) error {
			return lostUntil(n, 4, do)
		}, swaps: 4, reads: 3, epoch: 2},
		"all were lost": {swap: func(context.Context, *steppingWorld, int, func() error) error {
			return errLost
		}, kind: store.Timeout, swaps: 4, reads: 3, epoch: 1, text: "lost"},
		"another one meanwhile": {swap: func(_ context.Context, w *steppingWorld, _ int, _ func() error) error {
			w.land(1)
			return errLost
		}, kind: store.Conflict, swaps: 1, reads: 1, epoch: 2, text: "somebody else swapped it to epoch 2"},
		"two others meanwhile": {swap: func(_ context.Context, w *steppingWorld, _ int, _ func() error) error {
			w.land(2)
			return errLost
		}, kind: store.Timeout, swaps: 1, reads: 1, epoch: 3, text: "outcome unknown: the root is at epoch 3 already"},
		"another one, which is found by the second": {swap: func(_ context.Context, w *steppingWorld, n int,
			do func() error) error {
			if n == 1 {
				return errLost
			}
			w.land(1)
			return do()
		}, kind: store.Conflict, swaps: 2, reads: 2, epoch: 2, text: "somebody else swapped it to epoch 2"},
		"a conflict that can't be looked into": {swap: func(_ context.Context, w *steppingWorld, n int,
			do func() error) error {
			if n == 1 {
				return errLost
			}
			w.land(1)
			return do()
		}, read: func(n int, rec store.Record, err error) (store.Record, error) {
			if n > 1 {
				return store.Record{}, errAway
			}
			return rec, err
		}, kind: store.Timeout, swaps: 2, reads: 3, epoch: 2, text: "outcome unknown: ", paused: 12 * time.Millisecond},
		"it can't be read at first": {swap: func(_ context.Context, _ *steppingWorld, n int, do func() error) error {
			return lostUntil(n, 2, do)
		},
			read: func(n int, rec store.Record, err error) (store.Record, error) {
				if n == 1 {
					return store.Record{}, errAway
				}
				return rec, err
			}, swaps: 2, reads: 2, epoch: 2, paused: 2 * time.Millisecond},
		"it can't be read at all": {swap: func(_ context.Context, _ *steppingWorld, _ int, do func() error) error {
			_ = do()
			return errLost
		},
			read: func(int, store.Record, error) (store.Record, error) { return store.Record{}, errAway },
			kind: store.Timeout, swaps: 1, reads: 3, epoch: 2, text: "lost", paused: 14 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newSteppingWorld(t)
			change := w.change()
			w.store.script(
				store.Roots, c.read, func(ctx context.Context, n int, do func() error) error { return c.swap(ctx, w, n, do) },
			)
			bumps := w.Counts().Bumps
			// The announcement reads the root as well: it is not of interest, and a clock
			// that can't be read ends it.
			reads := -1
			begin := time.Now()
			err := w.Swap(t.Context(), change)
			require.Equal(t, c.paused, time.Since(begin), name)
			if err == nil {
				require.Equal(t, bumps+1, w.Counts().Bumps, "%s: others learn of it", name)
				got, _ := w.store.count()
				reads = got - 1
			} else {
				reads, _ = w.store.count()
				require.Equal(t, bumps, w.Counts().Bumps, "%s: there is nothing to learn", name)
				require.ErrorContains(t, err, "swap the root of bucket "+w.id.String()+" to epoch 2: ", name)
			}
			_, swaps := w.store.count()
			require.Equal(t, [2]int{c.reads, c.swaps}, [2]int{reads, swaps}, name)
			require.Equal(t, c.kind, store.KindOf(err), "%s: %v", name, err)
			if c.text != "" {
				require.ErrorContains(t, err, c.text, name)
			}
			rec, err := w.store.Store.Read(t.Context(), store.Roots, w.id[:], store.Serial)
			require.NoError(t, err)
			require.Equal(t, c.epoch, rec.Epoch, name)
		})
	}
}

func lostUntil(n, until int, do func() error) error {
	if n < until {
		return errLost
	}
	return do()
}

// TestSwapEndsWithItsContext: no try more.
func TestSwapEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		change := w.change()
		ctx, cancel := context.WithCancel(t.Context())
		w.store.script(store.Roots, nil, func(context.Context, int, func() error) error { cancel(); return errLost })
		err := w.Swap(ctx, change)
		require.Equal(t, store.Timeout, store.KindOf(err))
		reads, swaps := w.store.count()
		require.Equal(t, [2]int{0, 1}, [2]int{reads, swaps})
	})
}

// TestSwapWritesAllNodesFirst: where a node can't be written the root stays.
func TestSwapWritesAllNodesFirst(t *testing.T) {
	w := &steppingWorld{t: t, store: newScripted(), id: store.BucketID(uuid.New())}
	w.Client = mapclient.NewEmbedded(w.store, mapclient.Options{})
	_, err := w.Create(t.Context(), w.id, cutsOf(5000))
	require.NoError(t, err)
	all := w.store.writes
	require.Greater(t, all, 3)
	for fails := 1; fails <= all; fails++ {
		id := store.BucketID(uuid.New())
		w.store.script(store.Roots, nil, nil)
		w.store.write = func(n int) error {
			if n == fails {
				return errAway
			}
			return nil
		}
		root, err := w.Create(t.Context(), id, cutsOf(5000))
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, "write node ")
		require.Nil(t, root)
		_, swaps := w.store.count()
		require.Zero(t, swaps)
		_, err = w.Load(t.Context(), id)
		require.ErrorIs(t, err, store.NotFound)
	}
	w.store.write = nil
	_, err = w.Create(t.Context(), w.id, nil)
	require.ErrorIs(t, err, store.Conflict)
	_, err = w.Create(t.Context(), store.BucketID(uuid.New()), [][]byte{[]byte("b"), []byte("a")})
	require.ErrorIs(t, err, store.InvalidArgument)
	// A root that can't be encoded is not swapped in.
	big := w.change()
	big.Next.Batches = make([]partmap.Batch, mapcodec.MaxBatches+1)
	require.ErrorIs(t, w.Swap(t.Context(), big), store.InvalidArgument)
	odd := w.change()
	odd.Next.Entries = nil
	require.ErrorIs(t, w.Swap(t.Context(), odd), store.Corrupt, "what could not be read again")
}

// TestBumpsStepByStep: a wait ends well only when a bump that it knows of was
// acknowledged, whatever becomes of swaps and reads of the clock.
func TestBumpsStepByStep(t *testing.T) {
	type swap = func(ctx context.Context, n int, do func() error) error
	type read = func(n int, rec store.Record, err error) (store.Record, error)
	for name, c := range map[string]struct {
		read         read
		swap         swap
		kind         store.Kind
		text         string
		reads, swaps int
	}{
		"it comes through": {reads: 2, swaps: 1},
		"the answer is lost": {swap: func(_ context.Context, n int, do func() error) error {
			err := do()
			return lostUntil(n, 2, func() error { return err })
		}, reads: 3, swaps: 1},
		"two swaps are lost": {swap: func(_ context.Context, n int, do func() error) error {
			return lostUntil(n, 3, do)
		}, reads: 4, swaps: 3},
		"all are lost": {swap: func(context.Context, int, func() error) error {
			return errLost
		}, kind: store.Timeout, text: "bump map clock 0: ", reads: 20, swaps: 20},
		"a conflict for ever": {swap: func(context.Context, int, func() error) error {
			return store.Errorf(store.Conflict, "another")
		}, kind: store.Timeout, text: "outcome unknown: ", reads: 20, swaps: 20},
		"it is missing": {read: func(int, store.Record, error) (store.Record, error) {
			return store.Record{}, store.Errorf(store.NotFound, "no row")
		}, kind: store.Unavailable, text: "were the map clocks initialised?", reads: 1},
		"it is damaged": {read: func(_ int, rec store.Record, err error) (store.Record, error) {
			return record.Seal(1, rec.Version, []byte("x")), err
		}, kind: store.Corrupt, text: "1 bytes are not a map clock", reads: 1},
		"it is away at first": {read: func(n int, rec store.Record, err error) (store.Record, error) {
			if n < 4 {
				return store.Record{}, errAway
			}
			return rec, err
		}, reads: 5, swaps: 1},
		"it is away after the swap": {read: func(n int, rec store.Record, err error) (store.Record, error) {
			if n == 2 {
				return store.Record{}, errAway
			}
			return rec, err
		}, reads: 3, swaps: 1},
		"it stands back at first": {read: func() read {
			var old store.Record
			return func(n int, rec store.Record, err error) (store.Record, error) {
				if n == 1 {
					old = rec
				}
				if n < 4 {
					return old, err
				}
				return rec, err
			}
		}(), reads: 4, swaps: 1},
		"a swap is refused": {swap: func(context.Context, int, func() error) error {
			return store.Errorf(store.InvalidArgument, "no")
		}, kind: store.Timeout, text: "bump map clock 0: timeout: outcome unknown: ", reads: 1, swaps: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newSteppingWorld(t)
			w.store.script(store.Clocks, c.read, c.swap)
			failures, begin := w.Counts().BumpFailures, time.Now()
			err := w.Wait(t.Context(), w.id)
			if c.swaps == 20 {
				// Chance says half: 2, 4 and so on to 128 ms, and that twelve times more.
				require.Equal(t, 1790*time.Millisecond, time.Since(begin), name)
			}
			require.Equal(t, c.kind, store.KindOf(err), "%s: %v", name, err)
			reads, swaps := w.store.count()
			require.Equal(t, [2]int{c.reads, c.swaps}, [2]int{reads, swaps}, name)
			if c.text != "" {
				require.ErrorContains(t, err, c.text, name)
				require.ErrorContains(t, err, "wait for the leases of bucket "+w.id.String(), name)
				require.Equal(t, failures+1, w.Counts().BumpFailures, name)
				return
			}
			require.Equal(t, failures, w.Counts().BumpFailures, name)
			// The wait that follows knows of the bump.
			w.store.script(store.Clocks, nil, nil)
			require.NoError(t, w.Wait(t.Context(), w.id))
			_, swaps = w.store.count()
			require.Zero(t, swaps, name)
		})
	}
}

// TestAnnouncementsThatCantReadTheRoot: no wait ends well without it.
func TestAnnouncementsThatCantReadTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		old, err := w.store.Store.Read(t.Context(), store.Roots, w.id[:], store.Serial)
		require.NoError(t, err)
		require.NoError(t, w.Swap(t.Context(), w.change()))
		for name, c := range map[string]struct {
			read func(n int, rec store.Record, err error) (store.Record, error)
			kind store.Kind
			text string
		}{
			"away": {func(int, store.Record, error) (store.Record, error) { return store.Record{}, errAway },
				store.Unavailable, "away"},
			"damaged": {func(_ int, rec store.Record, err error) (store.Record, error) {
				rec.Blob = []byte("eki")
				return rec, err
			}, store.Corrupt, "root of bucket"},
			"went back": {func(int, store.Record, error) (store.Record, error) { return old, nil }, store.Corrupt,
				"went back from epoch 2 to 1"},
		} {
			w.store.script(store.Roots, c.read, nil)
			err := w.Wait(t.Context(), w.id)
			require.Equal(t, c.kind, store.KindOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, c.text, name)
		}
		w.store.script(store.Roots, nil, nil)
		require.NoError(t, w.Wait(t.Context(), w.id))
		require.NoError(t, w.Swap(t.Context(), w.change()))
		timed, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		begin := time.Now()
		require.Equal(t, store.Timeout, store.KindOf(w.Wait(timed, w.id)))
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// TestClocksStepByStep: what InitClocks does where a clock can't be read or written.
func TestClocksStepByStep(t *testing.T) {
	local, serial := store.Local, store.Serial
	type swap = func(ctx context.Context, n int, do func() error) error
	for name, c := range map[string]struct {
		there  bool
		read   func(n int, rec store.Record, err error) (store.Record, error)
		swap   swap
		levels []store.Level
		swaps  int
		text   string
	}{
		"it is there":     {there: true, levels: []store.Level{local}},
		"it is not there": {levels: []store.Level{local}, swaps: 1},
		"it can't be read at first": {there: true, levels: []store.Level{local, serial, serial},
			read: func(n int, rec store.Record, err error) (store.Record, error) {
				if n < 3 {
					return store.Record{}, errAway
				}
				return rec, err
			}},
		"it can't be read": {levels: []store.Level{local, serial, serial, serial},
			text: "initialise map clock 0: unavailable: away",
			read: func(int, store.Record, error) (store.Record, error) { return store.Record{}, errAway }},
		"a replica lags": {there: true, levels: []store.Level{local}, swaps: 1,
			read: func(int, store.Record, error) (store.Record, error) {
				return store.Record{}, store.Errorf(store.NotFound, "not yet")
			}},
		"the answer is lost": {levels: []store.Level{local, serial}, swaps: 1,
			swap: func(_ context.Context, _ int, do func() error) error { _ = do(); return errLost }},
		"the swap is lost": {levels: []store.Level{local, serial}, swaps: 2,
			swap: func(_ context.Context, n int, do func() error) error { return lostUntil(n, 2, do) }},
		"all swaps are lost": {levels: []store.Level{local, serial, serial, serial}, swaps: 4,
			text: "initialise map clock 0: timeout: lost",
			swap: func(context.Context, int, func() error) error { return errLost }},
	} {
		s := newScripted()
		if c.there {
			require.NoError(t, mapclient.InitClocks(t.Context(), s, 1))
		}
		s.script(store.Clocks, c.read, c.swap)
		err := mapclient.InitClocks(t.Context(), s, 1)
		_, swaps := s.count()
		require.Equal(t, c.levels, s.levels, name)
		require.Equal(t, c.swaps, swaps, name)
		if c.text != "" {
			require.EqualError(t, err, c.text, name)
			continue
		}
		require.NoError(t, err, name)
		s.script(0, nil, nil)
		require.NoError(t, mapclient.CheckClock(t.Context(), s, 0), name)
	}
	s := newScripted()
	require.ErrorIs(t, mapclient.CheckClock(t.Context(), s, 3), store.NotFound)
	require.ErrorContains(t, mapclient.CheckClock(t.Context(), s, 3), "map clock 3: ")
	require.NoError(t, mapclient.InitClocks(t.Context(), s, 1))
	s.script(store.Clocks, func(_ int, rec store.Record, err error) (store.Record, error) {
		return record.Seal(1, rec.Version, []byte("x")), err
	}, nil)
	require.ErrorIs(t, mapclient.CheckClock(t.Context(), s, 0), store.Corrupt)
	require.Equal(t, []store.Level{serial}, s.levels)
	require.NoError(t, mapclient.InitClocks(t.Context(), memstore.New(), 2))
}

// TestTornClocksAreReadAgain: twice.
func TestTornClocksAreReadAgain(t *testing.T) {
	for torn, kind := range []store.Kind{store.Other, store.Other, store.Other, store.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			w := newSteppingWorld(t)
			w.store.script(store.Clocks, func(n int, rec store.Record, err error) (store.Record, error) {
				if n <= torn || torn == 3 {
					rec.Epoch++
				}
				return rec, err
			}, nil)
			_, err := w.Acquire(t.Context(), w.id)
			require.Equal(t, kind, store.KindOf(err), "torn %d times: %v", torn, err)
			if err != nil {
				require.ErrorContains(t, err, "map clock 0: ")
				require.EqualValues(t, 1, w.Counts().Failures)
				return
			}
			reads, _ := w.store.count()
			require.Equal(t, torn+1, reads)
			require.Zero(t, w.Counts().Retries)
		})
	}
}

// TestPollsToTheMoment: a clock is polled each third of a lease, less what chance takes,
// ten times more after its last use; a poll that finds nobody takes two fifths of a lease.
func TestPollsToTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, pause = 3 * time.Second, 900 * time.Millisecond // chance says the middle of 0.8 to 1
		w := newSteppingWorld(t)
		l, err := w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.True(t, l.Timed())
		begin := time.Now()
		after := func(d time.Duration) int64 {
			time.Sleep(d - time.Since(begin))
			synctest.Wait()
			return w.Counts().Polls
		}
		require.EqualValues(t, 1, after(pause-1))
		require.EqualValues(t, 2, after(pause))
		require.EqualValues(t, 2, after(2*pause-1))
		require.True(t, l.Valid())
		require.EqualValues(t, 4, after(lease-1))
		require.True(t, l.Valid())
		require.EqualValues(t, 4, after(lease))
		require.False(t, l.Valid())
		require.EqualValues(t, 12, after(11*pause), "the first found it in use")
		require.EqualValues(t, 12, after(time.Hour))
		l, err = w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.EqualValues(t, 13, w.Counts().Polls)
		require.EqualValues(t, 1, w.Counts().Renewals)
		require.EqualValues(t, 1, w.Counts().RootReads)
		require.EqualValues(t, 14, after(time.Hour+pause))

		// Nobody answers.
		w.store.script(store.Clocks, nil, nil)
		w.store.hangs()
		time.Sleep(lease)
		require.False(t, l.Valid())
		synctest.Wait()
		failures := w.Counts().Failures
		require.EqualValues(t, 2*failures, w.Counts().Retries+failures)
		other, err := mapclient.NewNetwork(w.store, mapclient.Options{Clocks: 1})
		require.NoError(t, err)
		defer other.Close()
		begin = time.Now()
		_, err = other.Acquire(t.Context(), w.id)
		require.Equal(t, store.Timeout, store.KindOf(err), "%v", err)
		require.Equal(t, 2*lease/5, time.Since(begin))
		got := other.Counts()
		require.Equal(t, mapclient.Counts{Polls: 1, Retries: 1, Failures: 1, Refused: 1}, got)
	})
}

// TestOptionsAtTheirLimits: what lies at a limit is taken.
func TestOptionsAtTheirLimits(t *testing.T) {
	for _, o := range []mapclient.Options{
		{}, {Lease: mapclient.MinLease}, {Lease: mapclient.MaxLease}, {Clocks: 1}, {Clocks: mapclient.MaxClocks},
	} {
		c, err := mapclient.NewNetwork(newScripted(), o)
		require.NoError(t, err)
		require.Nil(t, c.Time(), "the store's servers have no clocks")
		c.Close()
		c.Close()
	}
	c := mapclient.NewEmbedded(newScripted(), mapclient.Options{})
	require.Nil(t, c.Time())
	require.Equal(t, mapclient.Counts{}, c.Counts())
	c.Close()
}

// TestNobodyWaitsForEver: for a clock that does not answer, Swap takes no longer than a
// lease, as others may learn of it later; Wait gives up after ten seconds, or with its
// context.
func TestNobodyWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		change := w.change()
		w.store.script(store.Clocks, nil, nil)
		w.store.hangs()
		begin := time.Now()
		require.NoError(t, w.Swap(t.Context(), change))
		require.Equal(t, mapclient.DefaultLease, time.Since(begin))
		time.Sleep(time.Minute)
		begin = time.Now()
		err := w.Wait(t.Context(), w.id)
		require.Equal(t, store.Timeout, store.KindOf(err), "%v", err)
		require.Equal(t, 10*time.Second, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		err = w.Wait(ctx, w.id)
		require.Equal(t, store.Timeout, store.KindOf(err))
		require.ErrorContains(t, err, "bump map clock 0: ")
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// TestBumpsAreGrouped: those that are asked for while one is under way are made together.
func TestBumpsAreGrouped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		ids := []store.BucketID{w.id}
		for range 4 {
			id := store.BucketID(uuid.New())
			_, err := w.Create(t.Context(), id, nil)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		w.store.script(
			store.Clocks, nil, func(_ context.Context, _ int, do func() error) error { time.Sleep(time.Second); return do() },
		)
		var work sync.WaitGroup
		wait := func(id store.BucketID) { work.Go(func() { require.NoError(t, w.Wait(t.Context(), id)) }) }
		wait(ids[0])
		synctest.Wait()
		for _, id := range ids[1:] {
			wait(id)
		}
		work.Wait()
		_, swaps := w.store.count()
		require.Equal(t, 2, swaps)
		require.EqualValues(t, 2, w.Counts().Bumps)
		rec, err := w.store.Store.Read(t.Context(), store.Clocks, make([]byte, 4), store.Serial)
		require.NoError(t, err)
		for _, id := range ids {
			named, value := mapclient.ClockNames(rec, id, 0)
			require.True(t, named)
			require.EqualValues(t, 5, value)
		}
		wait(ids[1]) // and once more there is nothing to bump
		work.Wait()
		_, swaps = w.store.count()
		require.Equal(t, 2, swaps)
	})
}

// TestDeletedForGood: of a bucket that is known to be deleted nothing is asked again.
func TestDeletedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		for _, s := range []partmap.State{partmap.Closing, partmap.Deleted} {
			root, err := w.Load(t.Context(), w.id)
			require.NoError(t, err)
			c, err := mapclient.WithState(root, s, w.Stamp())
			require.NoError(t, err)
			require.NoError(t, w.Swap(t.Context(), c))
		}
		w.store.script(store.Roots, nil, nil)
		polls := w.Counts().Polls
		for range 3 {
			_, err := w.Acquire(t.Context(), w.id)
			require.ErrorIs(t, err, mapclient.ErrDeleted)
			require.Equal(t, store.NotFound, store.KindOf(err))
		}
		reads, _ := w.store.count()
		require.Zero(t, reads)
		require.Equal(t, polls, w.Counts().Polls)
		require.EqualValues(t, 3, w.Counts().Refused)
	})
}

// TestRootsThatChangeWithoutASwap: the same epoch with another token was made by nobody.
func TestRootsThatChangeWithoutASwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSteppingWorld(t)
		l, err := w.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		other := *l.Root()
		other.Token = storekit.NewToken()
		rec, err := partmap.EncodeRoot(&other)
		require.NoError(t, err)
		w.store.script(store.Roots, func(int, store.Record, error) (store.Record, error) { return rec, nil }, nil)
		_, err = w.Load(t.Context(), w.id)
		require.Equal(t, store.Corrupt, store.KindOf(err))
		require.ErrorContains(t, err, "or changed without a swap")
		// At Local as well, when its clock names the bucket.
		clock, err := w.store.Store.Read(t.Context(), store.Clocks, make([]byte, 4), store.Serial)
		require.NoError(t, err)
		require.NoError(
			t, w.store.Store.Swap(t.Context(), store.Clocks, make([]byte, 4), clock.Version, mapclient.BumpedClock(clock, w.id)),
		)
		time.Sleep(2 * mapclient.DefaultLease)
		_, err = w.Acquire(t.Context(), w.id)
		require.Equal(t, store.Corrupt, store.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "changed without a swap at epoch 1")
		require.False(t, l.Valid())
		l.Release()

		embedded := mapclient.NewEmbedded(w.store, mapclient.Options{})
		w.store.script(store.Roots, nil, nil)
		held, err := embedded.Acquire(t.Context(), w.id)
		require.NoError(t, err)
		require.False(t, held.Timed())
		require.True(t, held.Valid())
		held.Release()
		require.False(t, held.Valid())
	})
}
