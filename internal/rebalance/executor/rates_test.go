package executor_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// slow is a store whose calls take a second each; it counts how many are under way.
type slow struct {
	store.Store
	on        atomic.Bool
	mu        sync.Mutex
	busy, top map[string]int
	limits    map[int]bool // of slices with timestamps
}

func newSlow() *slow {
	return &slow{Store: memstore.New(), busy: map[string]int{}, top: map[string]int{}, limits: map[int]bool{}}
}

func (s *slow) call(what string) func() {
	if !s.on.Load() {
		return func() {}
	}
	s.mu.Lock()
	s.busy[what]++
	s.top[what] = max(s.top[what], s.busy[what])
	s.mu.Unlock()
	time.Sleep(time.Second)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[what]--
	}
}

func (s *slow) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	defer s.call("put")()
	return s.Store.Put(ctx, p, rows...)
}

func (s *slow) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	defer s.call("delete")()
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *slow) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	defer s.call("remove")()
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *slow) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	defer s.call("slice")()
	if s.on.Load() && o.Timestamps {
		s.mu.Lock()
		s.limits[o.Limit] = true
		s.mu.Unlock()
	}
	return s.Store.Slice(ctx, p, b, o)
}

// How many calls go on at once, and how large pages are.
func TestHowMuchGoesOnAtOnce(t *testing.T) {
	for _, c := range []struct {
		name           string
		o              executor.Options
		ranges         int
		put, delete    int
		remove, inPage int
	}{
		{name: "one range", ranges: 1, put: 2, delete: 4, remove: 1, inPage: 1000},
		{name: "one range with a throttle", o: executor.Options{Pace: wait.NewPacer(1 << 40)}, ranges: 1, put: 4,
			delete: 4, remove: 1, inPage: 1000},
		{name: "many ranges", ranges: 12, put: 8, delete: 16, remove: 4, inPage: 1000},
		{name: "two of many", o: executor.Options{Parallel: 2}, ranges: 12, put: 4, delete: 8, remove: 2, inPage: 1000},
		{name: "writers", o: executor.Options{Writers: 3, PageRows: 50}, ranges: 1, put: 3, delete: 3, remove: 1,
			inPage: 50},
		{name: "pages too large", o: executor.Options{PageRows: 20_000}, ranges: 1, put: 2, delete: 4, remove: 1,
			inPage: store.MaxPageRows},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlow()
				const each = 60
				defer func() { require.NoError(t, s.Close()) }()
				f := newFixtureOf(t, s, cuts(each*c.ranges, c.ranges)...)
				for i := range each * c.ranges {
					require.NoError(t, f.b.Put(t.Context(), key(i), []byte("v")))
				}
				o := c.o
				o.BatchRows = 5
				o.Failpoint = func(ctx context.Context, point, _ string) error {
					switch point {
					case "before swap marking", "before swap copying":
						s.on.Store(true)
					case "before swap draining":
						s.on.Store(false)
						defer s.on.Store(true)
						for i := range each * c.ranges {
							if i%2 > 0 {
								if err := f.b.Delete(ctx, key(i)); err != nil {
									return err
								}
							}
						}
					}
					return nil
				}
				x := executor.New(s, mapclient.Of(f.c), f.id, o)
				for _, rg := range f.ranges(t) {
					x.Add(move.Refresh(&rg))
				}
				require.NoError(t, x.Run(t.Context()))
				s.on.Store(false)
				require.Equal(t, c.put, s.top["put"], "put")
				require.Equal(t, c.delete, s.top["delete"], "delete")
				require.Equal(t, c.remove, s.top["remove"], "remove")
				require.Equal(t, map[int]bool{c.inPage: true}, s.limits)
			})
		})
	}
}

// failing fails the puts that Fail says, and notes when they come.
type failing struct {
	store.Store
	mu   sync.Mutex
	fail func() error
	puts int
	at   []time.Time
}

func (s *failing) count() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		return nil
	}
	s.puts++
	s.at = append(s.at, time.Now())
	return s.fail()
}

func (s *failing) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if cells.IsNote(rows[0].Value) {
		return s.Store.Put(ctx, p, rows...)
	}
	if err := s.count(); err != nil {
		return err
	}
	return s.Store.Put(ctx, p, rows...)
}

// pauses are the milliseconds between moments.
func pauses(at []time.Time) (between []int64) {
	for i := 1; i < len(at); i++ {
		between = append(between, at[i].Sub(at[i-1]).Milliseconds())
	}
	return between
}

// A call is tried four times before its effect fails, with pauses that double; so do
// those between failures of an effect, of which up to a fifth is jitter.
func TestTriesAndPauses(t *testing.T) {
	for _, c := range []struct {
		fails, failed int
		pauses        []int64
	}{
		{0, 0, nil},
		{1, 0, []int64{5}},
		{3, 0, []int64{5, 10, 20}},
		{4, 1, []int64{5, 10, 20, 5}},
		{8, 2, []int64{5, 10, 20, 5, 5, 10, 20, 10}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &failing{Store: memstore.New()}
			f := newFixture(t, s, 20)
			s.fail = func() error {
				if s.puts <= c.fails {
					return store.Errorf(store.Unavailable, "away")
				}
				return nil
			}
			failed := 0
			x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Observe: func(e executor.Event) {
				if e.Err != nil {
					failed++
				}
			}})
			x.Add(move.Split(nil, nil, 0, key(10)))
			began := time.Now()
			require.NoError(t, x.Run(t.Context()))
			require.Equal(t, c.failed, failed)
			require.Equal(t, began, s.at[0])
			took := pauses(s.at)
			require.Len(t, took, len(c.pauses))
			for i, pause := range c.pauses {
				least := pause
				if i%4 == 3 {
					least = pause * 4 / 5
				}
				require.GreaterOrEqual(t, took[i], least)
				require.LessOrEqual(t, took[i], pause)
			}
			require.Equal(t, s.at[len(s.at)-1], time.Now(), "nothing waits after a success")
		})
	}
}

// The map is read again after pauses that double, up to five seconds.
func TestPausesBetweenLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &unreadable{Store: memstore.New()}
		f := newFixture(t, r, 10)
		var at []time.Time
		var looks []error
		x := executor.New(r, mapclient.Of(f.c), f.id, executor.Options{
			Observe: func(e executor.Event) {
				if e.Kind == executor.Looked {
					looks, at = append(looks, e.Err), append(at, time.Now())
					r.away.Store(len(looks) < 13)
				}
			},
		})
		r.away.Store(true)
		x.Add(move.Split(nil, nil, 0, key(5)))
		require.NoError(t, x.Run(t.Context()))
		require.Equal(t, []int64{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000}, pauses(at))
		for _, err := range looks[:13] {
			require.ErrorIs(t, err, store.Unavailable)
		}
		require.NoError(t, looks[13], "the success after them is reported once")
	})
}

// One failure to read the map is reported, and that it is over.
func TestALookThatFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &unreadable{Store: memstore.New()}
		f := newFixture(t, r, 10)
		var looks []error
		x := executor.New(r, mapclient.Of(f.c), f.id, executor.Options{
			Observe: func(e executor.Event) {
				if e.Kind == executor.Looked {
					looks = append(looks, e.Err)
					r.away.Store(false)
				}
			},
		})
		r.away.Store(true)
		x.Add(move.Split(nil, nil, 0, key(5)))
		require.NoError(t, x.Run(t.Context()))
		require.Len(t, looks, 2)
		require.ErrorIs(t, looks[0], store.Unavailable)
		require.NoError(t, looks[1])
	})
}

type unreadable struct {
	store.Store
	away atomic.Bool
}

func (s *unreadable) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if s.away.Load() {
		return store.Record{}, store.Errorf(store.Unavailable, "away")
	}
	return s.Store.Read(ctx, t, key, l)
}

// A batch takes as many bytes of keys and values as a mebibyte, and one row in any case.
func TestBatchesAtTheirLimit(t *testing.T) {
	const most = 1 << 20
	for _, c := range []struct {
		first, second int // bytes of the rows together
		batches       int
	}{
		{most / 2, most / 2, 1}, {most / 2, most/2 + 1, 2}, {most, 20, 2}, {20, most, 2}, {most + 1, 20, 2},
	} {
		s := &failing{Store: memstore.New()}
		f := newFixture(t, s, 0)
		home := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		for i, size := range []int{c.first, c.second} {
			row := store.Row{Key: key(i), Value: bytes.Repeat([]byte{store.EntryCell(nil)[0]}, size-len(key(i))),
				Timestamp: 1}
			require.NoError(t, f.s.Put(t.Context(), home, row))
		}
		s.fail = func() error { return nil }
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(t.Context()))
		require.Equal(t, c.batches, s.puts, "%+v", c)
	}
}

// gets counts what is read again, and notes removals.
type gets struct {
	store.Store
	n       atomic.Int64
	mu      sync.Mutex
	removed []store.Timestamp
}

func (s *gets) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.n.Add(1)
	return s.Store.Get(ctx, p, key)
}

func (s *gets) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, ts)
	return s.Store.Remove(ctx, p, b, ts)
}

// A batch that was read longer ago than WriteTimeout is read again before it is written:
// what was deleted meanwhile, and its tombstone collected, does not come back.
func TestWhatIsReadAgain(t *testing.T) {
	for _, c := range []struct {
		timeout, late time.Duration
		again         bool
	}{
		{0, 10 * time.Second, false},
		{0, 10*time.Second + 1, true},
		{time.Second, time.Second, false},
		{time.Second, time.Second + 1, true},
	} {
		s := &gets{Store: memstore.New()}
		f := newFixture(t, s, 30)
		source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
		late, copied := time.Duration(0), false
		start := time.Now()
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{
			WriteTimeout: c.timeout, Parallel: 1, Writers: 1,
			Now: func() time.Time { return start.Add(late) },
			Failpoint: func(ctx context.Context, point, _ string) error {
				if point == "copy batch" && !copied {
					copied, late = true, c.late
					return s.Delete(ctx, source, key(25), 1<<60)
				}
				return nil
			},
		})
		x.Add(move.Split(nil, nil, 0, key(20)))
		require.NoError(t, x.Run(t.Context()))
		home := store.Partition{Bucket: f.id, ID: f.ranges(t)[1].Partition}
		_, found, err := s.Store.Get(t.Context(), home, key(25))
		require.NoError(t, err)
		require.False(t, found, "also where it was copied: comparing deletes the copy")
		require.Equal(t, 9, f.rowsOf(t, home.ID))
		if c.again {
			require.EqualValues(t, 10, s.n.Load(), "each row of the batch")
		} else {
			require.EqualValues(t, 1, s.n.Load(), "the copy that the source lacks")
		}
	}
}

// Copies of unknown outcome are no more to look after once they were written again.
func TestCopiesThatBecomeKnown(t *testing.T) {
	for rows := 1; rows <= 3; rows++ {
		synctest.Test(t, func(t *testing.T) {
			late := &failing{Store: memstore.New()}
			s := &gets{Store: late}
			f := newFixture(t, s, rows)
			late.fail = func() error {
				if late.puts == 1 {
					return store.Errorf(store.Timeout, "no answer")
				}
				return nil
			}
			x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Writers: 1})
			rg := f.ranges(t)[0]
			x.Add(move.Refresh(&rg))
			require.NoError(t, x.Run(t.Context()))
			require.Equal(t, 2, late.puts)
			require.Zero(t, s.n.Load(), "of %d rows some were read once more", rows)
		})
	}
}

// above is a map client that knows the time, or fails.
type above struct {
	executor.Maps
	ts  store.Timestamp
	err error
}

func (a *above) Above(context.Context) (store.Timestamp, error) { return a.ts, a.err }

// A removal is above every timestamp that was given out and above the rows of its
// ranges, whoever compared; without the time nothing is removed.
func TestTimestampsOfRemovals(t *testing.T) {
	const now, ahead = 1_000_000_000_000_000, 1_000_000_000_700_000
	for _, other := range []bool{false, true} {
		for _, newest := range []store.Timestamp{5, ahead} {
			s := &gets{Store: memstore.New()}
			f := newFixture(t, s, 0)
			source := store.Partition{Bucket: f.id, ID: f.ranges(t)[0].Partition}
			for i, ts := range []store.Timestamp{3, newest, 4} {
				require.NoError(t, s.Put(t.Context(), source,
					store.Row{Key: key(i), Value: store.EntryCell(nil), Timestamp: ts}))
			}
			m := &above{Maps: mapclient.Of(f.c), ts: now, err: store.Errorf(store.Corrupt, "the time is not known")}
			stop := context.Canceled
			o := executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
				if point == "before remove" && other {
					return stop
				}
				return nil
			}}
			rg := f.ranges(t)[0]
			x := executor.New(s, m, f.id, o)
			x.Add(move.Refresh(&rg))
			if err := x.Run(t.Context()); other {
				require.ErrorIs(t, err, stop)
				o.Failpoint = nil
				require.ErrorIs(t, executor.New(s, m, f.id, o).Run(t.Context()), store.Corrupt)
				x = executor.New(s, m, f.id, o)
			} else {
				require.ErrorIs(t, err, store.Corrupt)
			}
			require.Empty(t, s.removed)
			m.err = nil
			require.NoError(t, x.Run(t.Context()))
			require.Equal(t, []store.Timestamp{max(now, newest) + 1}, s.removed, "%v %d", other, newest)
		}
	}
}

// The longest key of all is moved, compared and swept like others.
func TestTheLongestKeyMoves(t *testing.T) {
	f := newFixture(t, memstore.New(), 5)
	longest, below := bytes.Repeat([]byte{'z'}, store.MaxKeyBytes), bytes.Repeat([]byte{'z'}, store.MaxKeyBytes-1)
	require.NoError(t, f.b.Put(t.Context(), longest, []byte("kept")))
	require.NoError(t, f.b.Put(t.Context(), below, []byte("gone")))
	behind := 0
	for _, gone := range [][]byte{below, longest} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		x := executor.New(f.s, mapclient.Of(f.c), f.id, executor.Options{Failpoint: func(ctx context.Context, point,
			_ string) error {
			if point != "after swap copying" {
				return nil
			}
			if len(gone) == len(longest) { // and above it something is put
				behind++
				require.NoError(t, f.b.Put(ctx, []byte{'z' + 1}, nil))
			}
			return f.b.Delete(ctx, gone)
		}})
		rg := f.ranges(t)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(t, x.Run(ctx))
		require.EqualValues(t, 1, x.Progress().Swept)
	}
	require.Equal(t, 5+behind, f.rowsOf(t, f.ranges(t)[0].Partition))
}
