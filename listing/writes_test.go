package listing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// scripted is a store whose writes of rows end as a script says, one after the other; the
// writes themselves are done only where the script says nil.
type scripted struct {
	store.Store
	mu     sync.Mutex
	script []error
	writes int
	rows   []int // of each put
	bytes  []int
}

func (s *scripted) next() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if len(s.script) == 0 {
		return nil
	}
	err := s.script[0]
	s.script = s.script[1:]
	return err
}

func (s *scripted) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if err := s.next(); err != nil {
		return err
	}
	size := 0
	for _, r := range rows {
		size += len(r.Key) + len(r.Value)
	}
	s.mu.Lock()
	s.rows, s.bytes = append(s.rows, len(rows)), append(s.bytes, size)
	s.mu.Unlock()
	return s.Store.Put(ctx, p, rows...)
}

func (s *scripted) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *scripted) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.Store.Remove(ctx, p, b, ts)
}

func over(t *testing.T, s store.Store, o listing.Options) *listing.Client {
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, o)
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	return c
}

// lostSwaps is a store whose swaps in a table are counted, and lost once it is on.
type lostSwaps struct {
	store.Store
	table store.Table
	on    bool
	n     int
}

func (s *lostSwaps) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if !s.on || t != s.table {
		return s.Store.Swap(ctx, t, key, old, next)
	}
	s.n++
	return store.Errorf(store.Timeout, "lost")
}

// A swap of which nobody knows whether it was applied is tried four times.
func TestTriesOfSwaps(t *testing.T) {
	for what, c := range map[string]struct {
		table store.Table
		do    func(c *listing.Client) error
	}{
		"create": {store.Directory, func(c *listing.Client) error { return c.CreateBucket(t.Context(), "c") }},
		"delete": {store.Roots, func(c *listing.Client) error { return c.DeleteBucket(t.Context(), "b") }},
	} {
		s := &lostSwaps{Store: memstore.New(), table: c.table}
		client := over(t, s, listing.Options{})
		s.on = true
		require.ErrorIs(t, c.do(client), listing.ErrOutcomeUnknown, what)
		require.Equal(t, 4, s.n, what)
	}
}

// What a write reports, by how its tries end; and how many there are.
func TestTriesOfWrites(t *testing.T) {
	away, late, dead := store.Errorf(
		store.Unavailable, "away",
	), store.Errorf(
		store.Timeout, "late",
	), store.Errorf(
		store.TooMuchDeadData, "dead",
	)
	refused, conflict := store.Errorf(store.InvalidArgument, "refused"), store.Errorf(store.Conflict, "conflict")
	for _, c := range []struct {
		attempts int
		script   []error
		tries    int
		unknown  bool
		definite error
	}{
		{0, nil, 1, false, nil},
		{0, []error{away}, 2, false, nil},
		{0, []error{away, late}, 3, false, nil},
		{0, []error{away, late, away}, 3, true, nil},
		{1, []error{late}, 1, true, nil},
		{5, []error{away, away, away, away}, 5, false, nil},
		{0, []error{dead}, 1, true, nil}, // another try would meet the same
		{0, []error{refused}, 1, false, refused},
		{0, []error{conflict}, 1, false, conflict},
		{0, []error{late, refused}, 2, true, nil}, // the first try may have been applied
		{0, []error{late, dead}, 2, true, nil},
	} {
		for op, write := range map[string]func(b *listing.Bucket) error{
			"put":    func(b *listing.Bucket) error { return b.Put(t.Context(), []byte("k"), []byte("v")) },
			"delete": func(b *listing.Bucket) error { return b.Delete(t.Context(), []byte("k")) },
			"batch": func(b *listing.Bucket) error {
				return b.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k"), Value: []byte("v")}})
			},
			"delete range": func(b *listing.Bucket) error { return b.DeleteRange(t.Context(), nil, nil) },
			"bring": func(b *listing.Bucket) error {
				m, err := door.Bucket(b).Mark(t.Context())
				require.NoError(t, err)
				return door.Bucket(b).Bring(t.Context(), m, []store.Row{{Key: []byte("k"), Value: []byte("v")}})
			},
		} {
			what := fmt.Sprintf("%s %v", op, c.script)
			s := &scripted{Store: memstore.New()}
			told := newBook()
			client := over(t, s, listing.Options{WriteAttempts: c.attempts, Recorder: told})
			require.NoError(t, client.Bucket("b").Put(t.Context(), []byte("k"), []byte("old")))
			s.script, s.writes = c.script, 0
			err := write(client.Bucket("b"))
			require.Equal(t, c.tries, s.writes, what)
			switch {
			case c.unknown:
				require.ErrorIs(t, err, listing.ErrOutcomeUnknown, what)
				require.ErrorIs(t, err, store.Timeout)
			case c.definite != nil:
				require.ErrorIs(t, err, c.definite, what)
				require.NotErrorIs(t, err, listing.ErrOutcomeUnknown, what)
			default:
				require.NoError(t, err, what)
			}
			if op == "delete range" {
				require.Equal(t, err == nil, len(told.removed) == 1, what)
			}
		}
	}
}

// One write of a batch takes 200 entries and a mebibyte of keys and cells, but one entry
// in any case.
func TestBatchesAreCut(t *testing.T) {
	for _, c := range []struct {
		n, size int // entries, and bytes of each with its key and kind
		rows    []int
	}{
		{1, 10, []int{1}}, {200, 10, []int{200}}, {201, 10, []int{200, 1}}, {450, 10, []int{200, 200, 50}},
		{16, 1 << 16, []int{16}},
		{17, 1 << 16, []int{16, 1}},
		{16, 1<<16 + 1, []int{15, 1}},
		{2, 1 << 19, []int{2}},
		{2, 1<<19 + 1, []int{1, 1}},
		{17, 61_681, []int{16, 1}}, // a byte too many
		{2, 1<<20 + 3, []int{1, 1}},
	} {
		s := &scripted{Store: memstore.New()}
		client := over(t, s, listing.Options{MaxValueBytes: 1<<20 - 1, MaxParallel: 1})
		var entries []listing.Entry
		var rows []store.Row
		for i := range c.n {
			key := fmt.Appendf(nil, "%05d", i)
			entries = append(entries, listing.Entry{Key: key, Value: bytes.Repeat([]byte("v"), c.size-len(key)-1)})
			rows = append(rows, store.Row{Key: key, Value: entries[i].Value})
		}
		m, err := door.Bucket(client.Bucket("b")).Mark(t.Context())
		require.NoError(t, err)
		for _, write := range []func() error{
			func() error { return client.Bucket("b").PutBatch(t.Context(), entries) },
			func() error { return door.Bucket(client.Bucket("b")).Bring(t.Context(), m, rows) },
		} {
			s.rows, s.bytes = nil, nil
			require.NoError(t, write())
			require.Equal(t, c.rows, s.rows, "%+v", c)
			for i, n := range s.rows {
				require.Equal(t, n*c.size, s.bytes[i])
			}
		}
	}
}

// stamps are a source of timestamps that does something before the first.
type stamps struct {
	last  store.Timestamp
	first func()
	drawn int
}

func (s *stamps) Next(ctx context.Context, n int) (store.Timestamp, error) {
	if f := s.first; f != nil {
		s.first = nil
		f()
	}
	s.drawn += n
	ts := s.last + 1
	s.last += store.Timestamp(n)
	return ts, ctx.Err()
}

// Passed and Seen: this source is the only one, and its timestamps have passed at once.
func (s *stamps) Passed(ctx context.Context, _ store.Timestamp) error { return ctx.Err() }
func (s *stamps) Seen(store.Timestamp)                                {}

// A timestamp is drawn under the lease under which it is used: if that ends meanwhile
// another one is drawn. A caller who gave up has written nothing.
func TestTimestampsAreDrawnUnderTheLease(t *testing.T) {
	for op, write := range map[string]func(ctx context.Context, b *listing.Bucket) error{
		"put":    func(ctx context.Context, b *listing.Bucket) error { return b.Put(ctx, []byte("k"), []byte("v")) },
		"delete": func(ctx context.Context, b *listing.Bucket) error { return b.Delete(ctx, []byte("k")) },
		"batch": func(ctx context.Context, b *listing.Bucket) error {
			return b.PutBatch(ctx, []listing.Entry{{Key: []byte("k"), Value: []byte("v")}})
		},
	} {
		for _, giveUp := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/giveUp=%v", op, giveUp), func(t *testing.T) {
				source := &stamps{}
				s := &scripted{Store: memstore.New()}
				client := leased(t, s, s, listing.Options{Timestamps: source})
				require.NoError(t, client.CreateBucket(t.Context(), "b"))
				require.NoError(t, client.Bucket("b").Put(t.Context(), []byte("k"), []byte("old")))
				s.writes, source.drawn = 0, 0
				ctx, cancel := context.WithCancel(t.Context())
				source.first = func() {
					expire()
					if giveUp {
						cancel()
					}
				}
				err := write(ctx, client.Bucket("b"))
				cancel()
				if giveUp {
					require.ErrorIs(t, err, context.Canceled, op)
					require.NotErrorIs(t, err, listing.ErrOutcomeUnknown, op)
					require.Zero(t, s.writes, op)
				} else {
					require.NoError(t, err, op)
					require.Equal(t, 2, source.drawn, op)
					require.Equal(t, 1, s.writes, op)
				}
			})
		}
	}
}

// Embedded, timestamps go on above the last ones, also after a restart with a clock that was set back.
func TestTimestampsAreKept(t *testing.T) {
	s, now := memstore.New(), time.Now()
	for i, back := range []time.Duration{0, time.Hour} {
		c, err := listing.New(s, listing.Options{Now: func() time.Time { return now.Add(-back) }})
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, c.CreateBucket(t.Context(), "b"))
		}
		require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("k"), fmt.Append(nil, i)))
		e, err := c.Bucket("b").Get(t.Context(), []byte("k"))
		require.NoError(t, err)
		require.Equal(t, fmt.Append(nil, i), e.Value)
	}
}

func TestBatchErrors(t *testing.T) {
	c := over(t, memstore.New(), listing.Options{})
	var refused *listing.BatchError
	require.ErrorAs(t, c.Bucket("b").PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}, {}}), &refused)
	require.NoError(t, refused.Outcomes[0])
	require.ErrorContains(t, refused.Outcomes[1], `put "b": invalid argument: the key is empty`)
	one := errors.New("one")
	e := &listing.BatchError{Outcomes: []error{nil, one, nil, listing.ErrNotFound}}
	require.EqualError(t, e, "2 of 4 entries failed, the first is number 2: one")
	require.ErrorIs(t, e, one)
	require.ErrorIs(t, e, listing.ErrNotFound)
	require.NotErrorIs(t, e, listing.ErrNotEmpty)
	require.Equal(t, []error{one, listing.ErrNotFound}, e.Unwrap())
	require.EqualError(t, &listing.BatchError{Outcomes: []error{nil}}, "a batch without a failure")
	require.Empty(t, (&listing.BatchError{}).Unwrap())
}

// Options at their bounds, and beyond.
func TestOptionsAreBounded(t *testing.T) {
	s := memstore.New()
	defer func() { require.NoError(t, s.Close()) }()
	for _, b := range []struct {
		set  func(o *listing.Options, n int)
		most int
	}{
		{func(o *listing.Options, n int) { o.MaxValueBytes = n }, store.MaxValueBytes - 1},
		{func(o *listing.Options, n int) { o.MaxIdleReads = n }, 1 << 30},
		{func(o *listing.Options, n int) { o.MaxParallel = n }, 1 << 10},
		{func(o *listing.Options, n int) { o.RowsPerRead = n }, store.MaxPageRows},
		{func(o *listing.Options, n int) { o.ReadAhead = n }, 1 << 11},
		{func(o *listing.Options, n int) { o.ReadAheadAfter = n }, 1 << 30},
		{func(o *listing.Options, n int) { o.WriteAttempts = n }, 1 << 10},
	} {
		for n, good := range map[int]bool{-1: false, 0: true, 1: true, b.most: true, b.most + 1: false} {
			var o listing.Options
			b.set(&o, n)
			_, err := listing.New(s, o)
			require.Equal(t, good, err == nil, "%+v", o)
			if !good {
				require.ErrorIs(t, err, store.InvalidArgument)
			}
		}
	}
}

// Keys, values, names and queries at their limits, and one beyond. The list of buckets
// has limits of its own: its names may be longer than the keys of buckets.
func TestWhatIsTooLong(t *testing.T) {
	ctx := t.Context()
	x := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	s := memstore.New()
	c := over(t, s, listing.Options{MaxValueBytes: 20})
	b := c.Bucket("b")
	require.Equal(t, "b", b.Name())
	const most = store.MaxKeyBytes
	for n, good := range map[int]bool{0: false, 1: true, most: true, most + 1: false} {
		check := func(err error, what string) {
			if good {
				require.NotErrorIs(t, err, store.InvalidArgument, "%s %d", what, n)
			} else {
				require.ErrorIs(t, err, store.InvalidArgument, "%s %d", what, n)
				require.ErrorContains(t, err, map[bool]string{true: "empty", false: fmt.Sprint(n)}[n == 0])
			}
		}
		_, err := b.Get(ctx, x(n))
		check(err, "get")
		check(b.Put(ctx, x(n), nil), "put")
		check(b.Delete(ctx, x(n)), "delete")
		if n > 0 {
			check(c.CreateBucket(ctx, fmt.Sprint("cut", n), x(n)), "cut")
		} else {
			require.ErrorIs(t, c.CreateBucket(ctx, "cut0", x(0)), store.InvalidArgument)
		}
		if !good {
			require.ErrorContains(t, c.CreateBucket(ctx, "cut", x(n)), fmt.Sprintf("a cut has 1 to %d bytes, not %d", most, n))
		}
	}
	require.NoError(t, b.Put(ctx, x(1), x(20)))
	require.ErrorIs(t, b.Put(ctx, x(1), x(21)), store.InvalidArgument)
	for n, good := range map[int]bool{0: false, 1: true, 255: true, 256: false} {
		name := string(x(n))
		for what, err := range map[string]error{"create and delete": errors.Join(c.CreateBucket(ctx, name),
			c.DeleteBucket(ctx, name)), "delete": c.DeleteBucket(ctx, name),
			"put": c.Bucket(name).Put(ctx, x(1), nil)} {
			_ = what
			if !good {
				require.ErrorIs(t, err, store.InvalidArgument, "%s %d", what, n)
			} else {
				require.NotErrorIs(t, err, store.InvalidArgument, "%s %d", what, n)
			}
		}
		if good {
			require.NoError(t, c.CreateBucket(ctx, name))
			info, err := door.Client(c).Listed(ctx, name)
			require.NoError(t, err)
			require.NotZero(t, info.ID)
			require.NoError(t, door.Client(c).Mend(ctx, name))
			require.NoError(t, c.DeleteBucket(ctx, name))
			info, err = door.Client(c).Listed(ctx, name)
			require.NoError(t, err)
			require.Zero(t, info.ID)
		}
		_, err := c.BucketID(ctx, name)
		require.Equal(t, !good, errors.Is(err, store.InvalidArgument))
	}
	for n, good := range map[int]bool{store.MaxKeyBytes: true, store.MaxKeyBytes + 1: false} {
		for _, q := range []listing.Query{{Prefix: x(n)}, {Delimiter: x(n)}, {From: x(n)}, {To: x(n)}, {After: x(n)}} {
			_, err := b.List(ctx, q)
			require.Equal(t, good, err == nil, "%v", err)
			_, err = b.SplitPoints(ctx, q, 2)
			require.Equal(t, good, err == nil, "%v", err)
			err = nil
			for _, err = range b.All(ctx, q) {
				if err != nil {
					break
				}
			}
			require.Equal(t, good, err == nil, "%v", err)
		}
	}
	for n, good := range map[int]bool{-1: false, 0: true, 1: true, 10_001: true} {
		_, err := b.List(ctx, listing.Query{Limit: n})
		require.Equal(t, good, err == nil)
	}
	for n, good := range map[int]bool{0: false, 1: true, store.MaxPageRows: true, store.MaxPageRows + 1: false} {
		_, err := b.SplitPoints(ctx, listing.Query{}, n)
		require.Equal(t, good, err == nil)
	}
}

// TestPausesBetweenTries double, up to two seconds.
func TestPausesBetweenTries(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 0, 1: 4, 2: 12, 3: 28, 10: 4092, 12: 8188} {
		s := &scripted{Store: memstore.New()}
		c := over(t, s, listing.Options{WriteAttempts: 13})
		for range failures {
			s.script = append(s.script, store.Errorf(store.Unavailable, "away"))
		}
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			require.NoError(t, c.Bucket("b").Put(context.Background(), []byte("k"), nil))
			require.Equal(t, want*time.Millisecond, time.Since(begun), "%d failures", failures)
		})
	}
}
