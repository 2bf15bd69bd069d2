package listing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// wild is a store of which a test may change each answer.
type wild struct {
	store.Store
	on     atomic.Bool
	before func() // before and after each call that reads or writes rows, while on
	read   func(t store.Table, rec store.Record, err error) (store.Record, error)
	swap   func(t store.Table, do func() error) error
	node   func() error
}

func (s *wild) call() {
	if s.before != nil && s.on.Load() {
		s.before()
	}
}

func (s *wild) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.call()
	defer s.call()
	return s.Store.Get(ctx, p, key)
}

func (s *wild) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.call()
	defer s.call()
	return s.Store.Put(ctx, p, rows...)
}

func (s *wild) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.call()
	defer s.call()
	return s.Store.Slice(ctx, p, b, o)
}

func (s *wild) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	rec, err := s.Store.Read(ctx, t, key, l)
	if s.read != nil {
		return s.read(t, rec, err)
	}
	return rec, err
}

func (s *wild) Swap(
	ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record,
) error {
	do := func() error { return s.Store.Swap(ctx, t, key, old, next) }
	if s.swap != nil {
		return s.swap(t, do)
	}
	return do()
}

func (s *wild) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	if s.node != nil {
		if err := s.node(); err != nil {
			return nil, err
		}
	}
	return s.Store.Node(ctx, b, id)
}

// newWild is a bucket b with cuts over a wild store.
func newWild(t *testing.T, o listing.Options, cuts ...[]byte) (*wild, *world) {
	s := &wild{Store: memstore.New()}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, o)
	require.NoError(t, err)
	w := &world{t: t, ctx: t.Context(), s: s, c: c}
	w.fill(cuts...)
	return s, w
}

// newLeasedWild is newWild with a client whose leases end by time, in a bubble.
func newLeasedWild(t *testing.T, s *wild, o listing.Options) *world {
	s.Store = memstore.New()
	w := &world{t: t, ctx: t.Context(), s: s, c: leased(t, s, s, o)}
	w.fill()
	return w
}

// TestDamagedRows: whoever comes to one says so, and nobody else; a page that reads ahead
// comes to no more than one that does not.
func TestDamagedRows(t *testing.T) {
	r := seed.New(t)
	var mu sync.Mutex
	for _, readAhead := range []int{1, 8, 8} { // reads end in any order
		synctest.Test(t, func(t *testing.T) {
			s, w := newWild(t, listing.Options{RowsPerRead: 8, ReadAhead: readAhead, ReadAheadAfter: 2})
			var entries []listing.Entry
			for _, k := range folders(300, counted, each(20)) {
				entries = append(entries, listing.Entry{Key: []byte(k)})
			}
			b := w.c.Bucket("b")
			require.NoError(t, b.PutBatch(w.ctx, entries))
			home := store.Partition{Bucket: w.id, ID: w.ranges()[0].Partition}
			damaged := []byte(counted(200) + "/")
			require.NoError(t, w.s.Put(w.ctx, home, store.Row{Key: damaged, Value: []byte{9}, Timestamp: 1 << 60}))
			s.before = func() {
				mu.Lock()
				pause := time.Duration(r.IntN(300)) * time.Microsecond
				mu.Unlock()
				time.Sleep(pause)
			}
			s.on.Store(true)
			for limit := 193; limit <= 204; limit++ {
				page, err := b.List(w.ctx, listing.Query{Delimiter: []byte("/"), Limit: limit})
				if limit < 200 {
					require.NoError(t, err, limit)
					require.Len(t, page.Items, limit)
				} else if limit > 200 {
					require.ErrorIs(t, err, store.Corrupt, limit)
					require.ErrorContains(t, err, "row of range "+home.ID.String())
					require.Empty(t, page)
				}
			}
			s.on.Store(false)
			_, err := b.Get(w.ctx, damaged)
			require.ErrorIs(t, err, store.Corrupt)
			n := 0
			for _, err = range b.All(w.ctx, listing.Query{}) {
				if err == nil {
					n++
				}
			}
			require.ErrorIs(t, err, store.Corrupt)
			require.Less(t, n, 200*20)
			_, err = b.SplitPoints(w.ctx, listing.Query{From: damaged, To: append(damaged, 0)}, 2)
			require.ErrorIs(t, err, store.Corrupt)
			_, err = b.SplitPoints(w.ctx, listing.Query{From: damaged}, 2)
			require.ErrorIs(t, err, store.Corrupt)
			require.NoError(t, w.s.Delete(w.ctx, home, damaged, 1<<60))
		})
	}
	// A bucket is not empty for want of rows that can be read.
	_, w := newWild(t, listing.Options{})
	home := store.Partition{Bucket: w.id, ID: w.ranges()[0].Partition}
	require.NoError(t, w.s.Put(w.ctx, home, store.Row{Key: []byte("k"), Value: []byte{9}, Timestamp: 1}))
	for _, state := range []partmap.State{partmap.Open, partmap.Closing} {
		if state == partmap.Closing {
			w.state(w.id, state)
		}
		require.ErrorIs(t, w.c.DeleteBucket(w.ctx, "b"), store.Corrupt)
		root, err := mapclient.Of(w.c).Load(w.ctx, w.id)
		require.NoError(t, err)
		require.Equal(t, partmap.Open, root.State)
	}
}

// TestDamagedRowsBehindAPage do not fail it, though they were read beside its last rows.
func TestDamagedRowsBehindAPage(t *testing.T) {
	s, w := newWild(t, listing.Options{}, []byte("b"), []byte("c"), []byte("d"))
	b := w.c.Bucket("b")
	for _, key := range []string{"a", "b", "c1", "c2"} {
		require.NoError(t, b.Put(w.ctx, []byte(key), nil))
	}
	home := store.Partition{Bucket: w.id, ID: w.ranges()[3].Partition}
	require.NoError(t, w.s.Put(w.ctx, home, store.Row{Key: []byte("d"), Value: []byte{9}, Timestamp: 1}))
	var reads atomic.Int32
	s.before = func() { reads.Add(1) }
	s.on.Store(true)
	page, err := b.List(w.ctx, listing.Query{Limit: 3})
	s.on.Store(false)
	require.NoError(t, err)
	require.Len(t, page.Items, 3)
	require.EqualValues(t, 2*4, reads.Load(), "all ranges are read")
	_, err = b.List(w.ctx, listing.Query{Limit: 4})
	require.ErrorIs(t, err, store.Corrupt)
}

// TestAnEmptyQuery lists nothing.
func TestAnEmptyQuery(t *testing.T) {
	_, w := newWild(t, listing.Options{})
	w.put("b", "")
	for item, err := range w.c.Bucket("b").All(w.ctx, listing.Query{From: []byte("c"), To: []byte("a")}) {
		t.Fatal(item, err)
	}
}

// TestLeasesThatEndUnderAPage that reads ahead: whichever read it is, the page is as ever.
func TestLeasesThatEndUnderAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wild{}
		w := newLeasedWild(t, s, listing.Options{RowsPerRead: 8, ReadAhead: 8, ReadAheadAfter: 2})
		var entries []listing.Entry
		for _, k := range folders(50, counted, each(20)) {
			entries = append(entries, listing.Entry{Key: []byte(k)})
		}
		b := w.c.Bucket("b")
		require.NoError(t, b.PutBatch(w.ctx, entries))
		var calls atomic.Int64
		at := int64(0)
		s.before = func() {
			if calls.Add(1) == at {
				expire()
			}
		}
		s.on.Store(true)
		for most := int64(1); at <= most; at++ {
			calls.Store(0)
			page, err := b.List(w.ctx, listing.Query{Delimiter: []byte("/"), Limit: 45})
			require.NoError(t, err)
			require.Len(t, page.Items, 45)
			if at == 0 {
				most = calls.Load()
			}
		}
	})
}

// lapsing is a store in which rows are removed as soon as the leases of readers allow it: reads that take longer than a
// lease find nothing. Of the reads one takes a little longer than a lease, and the next one ends a little later.
type lapsing struct {
	store.Store
	calls, at atomic.Int64
}

func (s *lapsing) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	begun := time.Now() // of a bubble
	page, err := s.Store.Slice(ctx, p, b, o)
	took := time.Millisecond
	if late := s.calls.Add(1) - s.at.Load(); late == 0 || late == 1 {
		took += mapclient.DefaultLease * time.Duration(10+late) / 10
	}
	time.Sleep(took)
	if time.Since(begun) > mapclient.DefaultLease {
		return store.Page{}, nil
	}
	return page, err
}

// TestReadsAheadThatOutlastTheirLease are repeated under the next one, also if that begins before they end.
func TestReadsAheadThatOutlastTheirLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lapsing{Store: memstore.New()}
		c := leased(t, s, s, listing.Options{RowsPerRead: 8, ReadAhead: 8, ReadAheadAfter: 2})
		require.NoError(t, c.CreateBucket(t.Context(), "b"))
		var entries []listing.Entry
		for _, k := range folders(50, counted, each(20)) {
			entries = append(entries, listing.Entry{Key: []byte(k)})
		}
		b := c.Bucket("b")
		require.NoError(t, b.PutBatch(t.Context(), entries))
		for at, most := int64(-1), int64(0); at <= most; at++ {
			s.calls.Store(0)
			s.at.Store(at)
			page, err := b.List(t.Context(), listing.Query{Delimiter: []byte("/"), Limit: 45})
			require.NoError(t, err)
			require.Len(t, page.Items, 45)
			for i, item := range page.Items {
				require.Equal(t, counted(i)+"/", string(item.Key), "reads %d and %d are late", at, at+1)
			}
			if at < 0 {
				most = s.calls.Load()
			}
		}
	})
}

// awayFrom is a store that can't read rows from a key on, and counts how often it was asked.
type awayFrom struct {
	store.Store
	key   string
	asked atomic.Int64
}

func (s *awayFrom) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	time.Sleep(time.Millisecond) // of a bubble
	if s.key != "" && string(b.Start) >= s.key {
		s.asked.Add(1)
		return store.Page{}, store.Errorf(store.Unavailable, "away")
	}
	return s.Store.Slice(ctx, p, b, o)
}

// TestReadsAheadThatFail are not tried again by a page that does not need them.
func TestReadsAheadThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &awayFrom{Store: memstore.New()}
		c := over(t, s, listing.Options{RowsPerRead: 8, ReadAhead: 8, ReadAheadAfter: 2})
		var entries []listing.Entry
		for _, k := range folders(300, counted, each(20)) {
			entries = append(entries, listing.Entry{Key: []byte(k)})
		}
		require.NoError(t, c.Bucket("b").PutBatch(t.Context(), entries))
		const items = 100
		s.key = counted(items)
		page, err := c.Bucket("b").List(t.Context(), listing.Query{
			Delimiter: []byte("/"), Limit: 300, Bytes: len(s.key+"/") * items,
		})
		require.NoError(t, err)
		require.Len(t, page.Items, items)
		require.NotZero(t, s.asked.Load())
		require.LessOrEqual(t, s.asked.Load(), int64(8), "by each walk once")
	})
}

// TestLeasesThatEndForGood: whatever read is under way when the lease ends fails if there
// is no other one to be had.
func TestLeasesThatEndForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		s := &wild{read: func(t store.Table, rec store.Record, err error) (store.Record, error) {
			if t == store.Clocks && away.Load() {
				return store.Record{}, store.Errorf(store.Unavailable, "away")
			}
			return rec, err
		}}
		w := newLeasedWild(t, s, listing.Options{RowsPerRead: 8, ReadAhead: 8, ReadAheadAfter: 2})
		var entries []listing.Entry
		for _, k := range folders(50, counted, each(20)) {
			entries = append(entries, listing.Entry{Key: []byte(k)})
		}
		b := w.c.Bucket("b")
		require.NoError(t, b.PutBatch(w.ctx, entries))
		calls, last, unneeded := atomic.Int64{}, int64(0), 0
		s.before = func() {
			if calls.Add(1) == last {
				away.Store(true)
				expire()
			}
		}
		for name, do := range map[string]func(ctx context.Context) error{
			"page": func(ctx context.Context) error {
				page, err := b.List(ctx, listing.Query{Delimiter: []byte("/"), Limit: 45})
				if err == nil && last > 0 { // it had no need of that read, or did not come to it
					unneeded++
					require.Len(t, page.Items, 45)
					return store.Errorf(store.Unavailable, "unneeded")
				}
				return err
			},
			"get":    func(ctx context.Context) error { _, err := b.Get(ctx, entries[7].Key); return err },
			"points": func(ctx context.Context) error { _, err := b.SplitPoints(ctx, listing.Query{}, 3); return err },
		} {
			calls.Store(0)
			s.on.Store(true)
			last = 0
			require.NoError(t, do(w.ctx), name)
			for most := calls.Load(); last < most; {
				calls.Store(0)
				last++
				require.ErrorIs(t, do(w.ctx), store.Unavailable, "%s, call %d of %d", name, last, most)
				away.Store(false)
			}
			s.on.Store(false)
		}
		require.Less(t, unneeded, 30)
	})
}

// TestLeasesThatEndOnANewMap: a get goes on under the next lease, in the range that its
// map names; a put whose range is another one by then has an unknown outcome. Where the
// range can't be found both fail.
func TestLeasesThatEndOnANewMap(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, op := range []string{"get", "put"} {
			inBubble(t, fmt.Sprintf("%s/away=%v", op, away), func(t *testing.T) {
				s := &wild{}
				w := newLeasedWild(t, s, listing.Options{})
				w.put("k03/2", "")
				s.before = func() {
					s.on.Store(false)
					var entries []partmap.Entry
					for i := range 12 { // a map with nodes
						entries = append(entries, partmap.Entry{Partition: store.PartitionID(uuid.New())})
						if i > 0 {
							entries[i].Start = fmt.Appendf(nil, "k%02d%0400d", i, i)
						}
					}
					w.edit(func(e partmap.Edit) { require.NoError(t, e.Replace(nil, nil, entries)) })
					expire()
					if away {
						s.node = func() error { return store.Errorf(store.Unavailable, "away") }
					}
				}
				_, err := w.c.Bucket("b").Get(w.ctx, []byte("k03/2"))
				require.NoError(t, err)
				s.on.Store(true)
				if op == "put" {
					err = w.c.Bucket("b").Put(w.ctx, []byte("k03/2"), nil)
					require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
				} else {
					_, err = w.c.Bucket("b").Get(w.ctx, []byte("k03/2"))
				}
				if away {
					require.ErrorIs(t, err, store.Unavailable)
					require.ErrorContains(t, err, "away")
				} else if op == "get" {
					require.ErrorIs(t, err, listing.ErrNotFound, "its range is another one")
				}
			})
		}
	}
}

// TestALeaseThatEndsWithItsCaller: whoever has given up gets no other one.
func TestALeaseThatEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wild{}
		w := newLeasedWild(t, s, listing.Options{})
		w.put("k", "")
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		s.before = func() {
			calls++
			cancel()
			expire()
		}
		s.on.Store(true)
		_, err := w.c.Bucket("b").Get(ctx, []byte("k"))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, calls, "before and after one read")
	})
}

// TestMapsThatAreCollected under an operation cost it another lease, and leave none behind.
func TestMapsThatAreCollected(t *testing.T) {
	key := []byte("k05/3")
	list := func(q listing.Query, want int) func(w *world) (err error) {
		return func(w *world) (err error) {
			page, err := w.c.Bucket("b").List(w.ctx, q)
			require.Len(w.t, page.Items, want)
			return err
		}
	}
	for name, do := range map[string]func(w *world) error{
		"get": func(w *world) error { _, err := w.c.Bucket("b").Get(w.ctx, key); return err },
		"put": func(w *world) error { return w.c.Bucket("b").Put(w.ctx, key, nil) },
		"batch": func(w *world) error {
			return w.c.Bucket("b").PutBatch(w.ctx, []listing.Entry{{Key: key}, {Key: []byte("k08/3")}})
		},
		"delete":       func(w *world) error { return w.c.Bucket("b").Delete(w.ctx, []byte("k05/9")) },
		"list":         list(listing.Query{}, 48),
		"list reverse": list(listing.Query{Reverse: true, Limit: 20}, 20),
		"list folded":  list(listing.Query{Delimiter: []byte("/")}, 12),
		"points": func(w *world) error {
			points, err := w.c.Bucket("b").SplitPoints(w.ctx, listing.Query{}, 4)
			require.Len(w.t, points, 3)
			return err
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &wild{Store: memstore.New()}
			w := &world{t: t, ctx: t.Context(), s: s}
			o := listing.Options{CacheBytes: 1, RowsPerRead: 1, ReadAhead: 4, ReadAheadAfter: 2}
			w.client(o)
			tree(w)
			for _, k := range inTree {
				require.NoError(t, w.c.Bucket("b").Delete(t.Context(), []byte(k)))
			}
			for i := range 48 {
				w.put(fmt.Sprintf("k%02d/%d", i/4, i%4), "")
			}
			var mu sync.Mutex
			for at, most := 0, 1; at <= most; at++ {
				w.client(o)
				n := 0
				s.node = func() error {
					mu.Lock()
					defer mu.Unlock()
					if n++; n != at {
						return nil
					}
					root, err := mapclient.Of(w.c).Load(w.ctx, w.id)
					require.NoError(t, err)
					require.NoError(t, mapclient.Of(w.c).Swap(w.ctx, partmap.Again(root, mapclient.Of(w.c).Stamp())))
					return store.Errorf(store.NotFound, "collected")
				}
				require.NoError(t, do(w), "%s, node %d of %d", name, at, most)
				if s.node = nil; at == 0 {
					require.NotZero(t, n)
					most = n
				}
				noLeaseIsLeft(t, w.c, w.id)
			}
		})
	}
}

// TestWritesAcrossACut: a batch whose lease ended counts where the present map has all of
// its keys in the same partition and phase, be it in several ranges.
func TestWritesAcrossACut(t *testing.T) {
	other := store.PartitionID(uuid.New())
	for name, c := range map[string]struct {
		cuts  map[string]store.PartitionID // zero: the same partition
		close bool
		away  error
		kind  store.Kind
	}{
		"the same map":         {},
		"cut":                  {cuts: map[string]store.PartitionID{"b": {}, "d": {}}},
		"cut at the last":      {cuts: map[string]store.PartitionID{"e": {}}},
		"the last has moved":   {cuts: map[string]store.PartitionID{"e": other}, kind: store.Timeout},
		"the middle has moved": {cuts: map[string]store.PartitionID{"b": other, "d": {}}, kind: store.Timeout},
		"behind the last":      {cuts: map[string]store.PartitionID{"e\x00": other}},
		"it is closed":         {close: true, kind: store.Timeout},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := &wild{}
			w := newLeasedWild(t, s, listing.Options{})
			s.before = func() {
				s.on.Store(false)
				w.edit(func(e partmap.Edit) {
					old := w.ranges()[0].Entry
					entries := []partmap.Entry{old}
					for _, cut := range []string{"b", "d", "e", "e\x00"} {
						if to, ok := c.cuts[cut]; ok {
							part := old
							if part.Start = []byte(cut); to != (store.PartitionID{}) {
								part.Partition = to
							}
							entries = append(entries, part)
						}
					}
					require.NoError(t, e.Replace(nil, nil, entries))
				})
				if c.close {
					w.state(w.id, partmap.Closing)
				}
				expire()
			}
			s.on.Store(true)
			var entries []listing.Entry
			for _, k := range []string{"a", "b", "c", "d", "e"} {
				entries = append(entries, listing.Entry{Key: []byte(k)})
			}
			err := w.c.Bucket("b").PutBatch(w.ctx, entries)
			require.False(t, s.on.Load(), name)
			require.Equal(t, c.kind != store.Other, err != nil, "%s: %v", name, err)
			var batch *listing.BatchError
			if errors.As(err, &batch) {
				for _, outcome := range batch.Outcomes {
					require.ErrorIs(t, outcome, listing.ErrOutcomeUnknown, name)
				}
			}
		})
	}
}

// stuck are timestamps that never pass.
type stuck struct {
	listing.Timestamps
	err error
}

func (s stuck) Passed(context.Context, store.Timestamp) error { return s.err }

// TestTimestampsThatDoNotPass: what was written is not acknowledged, and its outcome is unknown, for
// whatever reason.
func TestTimestampsThatDoNotPass(t *testing.T) {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	for _, kind := range []store.Kind{store.Unavailable, store.InvalidArgument} {
		reason := store.Errorf(kind, "the servers' clocks can't be read")
		late, err := listing.New(mapclient.With(s, mapclient.Of(c)), listing.Options{Timestamps: stuck{timestamps.New(nil), reason}})
		require.NoError(t, err)
		b := late.Bucket("b")
		var batch *listing.BatchError
		require.ErrorAs(t, b.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}}), &batch)
		k := []byte("k")
		for _, err := range []error{b.Put(t.Context(), k, nil), b.Delete(t.Context(), k), batch.Outcomes[0]} {
			require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
			require.ErrorIs(t, err, reason)
		}
	}
}

// TestDamagedNames: a torn record of a name is read again, three times in all; a damaged
// one is no free name.
func TestDamagedNames(t *testing.T) {
	s, w := newWild(t, listing.Options{})
	for torn := range 4 {
		reads := 0
		s.read = func(table store.Table, rec store.Record, err error) (store.Record, error) {
			if table == store.Directory {
				if reads++; reads <= torn {
					rec.Epoch++
				}
			}
			return rec, err
		}
		id, err := w.c.BucketID(w.ctx, "b")
		require.Equal(t, min(torn+1, 3), reads)
		if torn == 3 {
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorContains(t, err, "look up the name")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, w.id, id)
	}
	for _, n := range []int{23, 25} {
		reads := 0
		s.read = func(table store.Table, rec store.Record, err error) (store.Record, error) {
			if table == store.Directory {
				reads++
				return record.Seal(1, rec.Version, make([]byte, n)), nil
			}
			return rec, err
		}
		require.ErrorContains(t, w.c.CreateBucket(w.ctx, "b"), fmt.Sprintf("%d bytes are not a name's record", n))
		require.Equal(t, 1, reads)
		require.ErrorIs(t, w.c.DeleteBucket(w.ctx, "b"), store.Corrupt)
	}
	s.read = nil
	// The list of buckets may be damaged as well.
	for i, value := range [][]byte{make([]byte, 24), append([]byte{2}, make([]byte, 24)...), {}} {
		at := store.Timestamp(1<<60 + i)
		for _, p := range w.listRows() {
			row := store.Row{Key: []byte("b"), Value: store.EntryCell(value), Timestamp: at}
			require.NoError(t, s.Put(w.ctx, p, row))
		}
		_, err := door.Client(w.c).Listed(w.ctx, "b")
		require.ErrorIs(t, err, store.Corrupt)
		for _, err = range w.c.Buckets(w.ctx, "", "") {
			require.ErrorIs(t, err, store.Corrupt)
		}
		require.Error(t, err)
		for _, p := range w.listRows() {
			require.NoError(t, s.Delete(w.ctx, p, []byte("b"), at))
		}
	}
	for _, p := range w.listRows() { // a row of it that can't be read stays
		require.NoError(t, s.Put(w.ctx, p, store.Row{Key: []byte("b"), Value: []byte{9}, Timestamp: 1 << 61}))
	}
	err := w.c.DeleteBucket(w.ctx, "b")
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "the bucket is deleted, but not yet off the list")

	// The record of a free name has neither an id nor a time.
	_, w = newWild(t, listing.Options{})
	require.NoError(t, w.c.DeleteBucket(w.ctx, "b"))
	rec, err := w.s.Read(w.ctx, store.Directory, []byte("b"), store.Serial)
	require.NoError(t, err)
	free, err := record.Open(1, rec)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 24), free)
}

// TestSwapsThatAreRefused: a name that can't be written is nobody's.
func TestSwapsThatAreRefused(t *testing.T) {
	s, w := newWild(t, listing.Options{})
	swaps := 0
	s.swap = func(table store.Table, do func() error) error {
		if table != store.Directory {
			return do()
		}
		swaps++
		return store.Errorf(store.InvalidArgument, "no such name")
	}
	err := w.c.CreateBucket(w.ctx, "new")
	require.ErrorIs(t, err, store.InvalidArgument)
	require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
	require.Equal(t, 1, swaps)
	in := func(state partmap.State) (n int) {
		ids, err := s.Scan(w.ctx, store.Roots, nil, 10)
		require.NoError(t, err)
		for _, id := range ids {
			if root, err := mapclient.Of(w.c).Load(w.ctx, store.BucketID(id)); err == nil && root.State == state {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, in(partmap.Open), "the bucket and the list of buckets")
	require.Equal(t, 1, in(partmap.Deleted), "what did not get its name")
	roots := 0
	s.swap = func(table store.Table, do func() error) error {
		switch table {
		case store.Directory:
			return store.Errorf(store.InvalidArgument, "no such name")
		case store.Roots:
			if roots++; roots > 1 {
				return store.Errorf(store.Unavailable, "away")
			}
		}
		return do()
	}
	require.ErrorIs(t, w.c.CreateBucket(w.ctx, "new"), store.InvalidArgument)
	require.Equal(t, 2, roots, "what can't be closed is not deleted")
	require.Equal(t, 3, in(partmap.Open))
	s.swap = nil
	require.NoError(t, w.c.CreateBucket(w.ctx, "new"))
}

// TestNamesOfWhichNobodyKnows: where neither the swap of a name nor the read after it has an answer
// the outcome is unknown; where others have had the name meanwhile, it is not.
func TestNamesOfWhichNobodyKnows(t *testing.T) {
	s, w := newWild(t, listing.Options{})
	require.NoError(t, w.c.CreateBucket(w.ctx, "new"))
	require.NoError(t, w.c.DeleteBucket(w.ctx, "new"))
	lost := false
	s.swap = func(table store.Table, do func() error) error {
		if table != store.Directory {
			return do()
		}
		lost = true
		return store.Errorf(store.Timeout, "lost")
	}
	s.read = func(table store.Table, rec store.Record, err error) (store.Record, error) {
		if lost && table == store.Directory {
			return store.Record{}, store.Errorf(store.Unavailable, "away")
		}
		return rec, err
	}
	err := w.c.CreateBucket(w.ctx, "new")
	require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "lost")
	s.read = nil
	s.swap = func(table store.Table, do func() error) error {
		if table == store.Directory {
			s.swap = nil
			require.NoError(t, w.c.CreateBucket(w.ctx, "new"))
			require.NoError(t, w.c.DeleteBucket(w.ctx, "new"))
		}
		return do()
	}
	err = w.c.CreateBucket(w.ctx, "new")
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "somebody else created and deleted the bucket at the same time")
}

// TestABucketThatIsDeletedWhileItIsMended is not put on the list; where it can't be taken off again,
// that is an error.
func TestABucketThatIsDeletedWhileItIsMended(t *testing.T) {
	for _, x := range []struct{ deleted, closes bool }{{false, false}, {true, false}, {true, true}} {
		s, w := newWild(t, listing.Options{})
		for _, p := range w.listRows() {
			require.NoError(t, s.Remove(w.ctx, p, store.Bounds{}, store.Timestamp(time.Now().UnixMicro())))
		}
		calls := 0
		s.before = func() {
			calls++
			if x.deleted && calls == 5 { // of the list: twice it is looked at, then written
				w.name("b", store.BucketID{})
			}
			if x.closes && calls == 6 {
				w.state(door.ListOfBuckets, partmap.Closing)
			}
		}
		s.on.Store(true)
		err := door.Client(w.c).Mend(w.ctx, "b")
		if x.closes {
			require.ErrorIs(t, err, listing.ErrBucketClosing)
			continue
		}
		require.NoError(t, err)
		info, err := door.Client(w.c).Listed(w.ctx, "b")
		require.NoError(t, err)
		require.Equal(t, x.deleted, info.ID == store.BucketID{})
	}
}

// TestTheFirstOfTheList: whoever creates the first bucket makes the list, unless another one was faster.
func TestTheFirstOfTheList(t *testing.T) {
	for _, away := range []bool{false, true} {
		s := &wild{Store: memstore.New()}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		roots := 0
		s.swap = func(table store.Table, do func() error) error {
			if table != store.Roots {
				return do()
			}
			if roots++; roots < 2 { // that of the bucket itself
				return do()
			}
			if away {
				return store.Errorf(store.Unavailable, "the node is away")
			}
			s.swap = nil
			require.NoError(t, c.CreateBucket(t.Context(), "faster"))
			return do()
		}
		err = c.CreateBucket(t.Context(), "b")
		if away {
			require.ErrorContains(t, err, "the node is away")
			continue
		}
		require.NoError(t, err)
		var names []string
		for info, err := range c.Buckets(t.Context(), "", "") {
			require.NoError(t, err)
			names = append(names, info.Name)
		}
		require.Equal(t, []string{"b", "faster"}, names)
	}
}

// TestWhatIsTakenOffTheList with a bucket: its entry or a damaged one, but none of another bucket.
func TestWhatIsTakenOffTheList(t *testing.T) {
	for name, x := range map[string]struct {
		cell   []byte // in place of the entry, if not nil
		writes int
	}{
		"its entry":  {nil, 1},
		"a damaged":  {store.EntryCell([]byte("damaged")), 1},
		"a marker":   {cells.Marker(), 0},
		"of another": {store.EntryCell(append([]byte{1, 7}, make([]byte, 23)...)), 0},
	} {
		s := &writes{Store: memstore.New()}
		w := &world{t: t, ctx: t.Context(), s: s, c: over(t, s, listing.Options{})}
		list := w.listRows()[0]
		if x.cell != nil {
			row := store.Row{Key: []byte("b"), Value: x.cell, Timestamp: 1 << 60}
			require.NoError(t, s.Put(w.ctx, list, row))
		}
		s.n = map[store.PartitionID]int{}
		require.NoError(t, w.c.DeleteBucket(w.ctx, "b"))
		require.Equal(t, x.writes, s.n[list.ID], name)
		require.Equal(t, store.BucketID{}, w.owner("b").ID)
	}
}

// TestAListThatClosesUnderADeletion: a bucket that can't be taken off the list keeps its name.
func TestAListThatClosesUnderADeletion(t *testing.T) {
	s, w := newWild(t, listing.Options{})
	w.state(w.id, partmap.Closing)
	w.state(w.id, partmap.Deleted)
	calls := 0
	s.before = func() {
		if calls++; calls == 2 { // its line has been read
			w.state(door.ListOfBuckets, partmap.Closing)
		}
	}
	s.on.Store(true)
	require.ErrorIs(t, w.c.DeleteBucket(w.ctx, "b"), listing.ErrBucketClosing)
	require.Equal(t, w.id, w.owner("b").ID)
}

// TestABucketThatOthersChangeAllTheTime is not deleted, and stays open.
func TestABucketThatOthersChangeAllTheTime(t *testing.T) {
	for others, text := range map[int]string{39: "", 40: "others change the bucket at the same time: try again"} {
		s, w := newWild(t, listing.Options{})
		n := 0
		closing := false
		s.swap = func(table store.Table, do func() error) error {
			if table != store.Roots {
				return do()
			}
			if !closing { // the swap to closing is one of the decisions
				closing = true
				return do()
			}
			if n++; n >= others {
				return do()
			}
			swap := s.swap
			s.swap = nil
			root, err := mapclient.Of(w.c).Load(w.ctx, w.id)
			require.NoError(t, err)
			require.NoError(t, mapclient.Of(w.c).Swap(w.ctx, partmap.Again(root, mapclient.Of(w.c).Stamp())))
			s.swap = swap
			return do()
		}
		err := w.c.DeleteBucket(w.ctx, "b")
		root, lerr := mapclient.Of(w.c).Load(w.ctx, w.id)
		require.NoError(t, lerr)
		if text == "" {
			require.NoError(t, err)
			require.Equal(t, partmap.Deleted, root.State)
			continue
		}
		require.ErrorIs(t, err, store.Unavailable)
		require.ErrorContains(t, err, text)
		require.Equal(t, partmap.Open, root.State)
	}
}

// TestANameThatIsTakenAgain: what is remembered of a name does no harm.
func TestANameThatIsTakenAgain(t *testing.T) {
	s, w := newWild(t, listing.Options{})
	other, err := listing.New(mapclient.With(s, mapclient.Of(w.c)), listing.Options{Timestamps: timestamps.New(nil)})
	require.NoError(t, err)
	w.put("k", "old")
	require.NoError(t, w.c.Bucket("b").Delete(w.ctx, []byte("k")))
	require.NoError(t, other.DeleteBucket(w.ctx, "b"))
	_, err = w.c.Bucket("b").Get(w.ctx, []byte("k"))
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	require.NoError(t, other.CreateBucket(w.ctx, "b"))
	w.put("k", "new")
	e, err := other.Bucket("b").Get(w.ctx, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "new", string(e.Value))
}

// TestCreationTimesStay, whoever mends what about a bucket.
func TestCreationTimesStay(t *testing.T) {
	created := time.UnixMicro(1_600_000_000_123_456)
	now := created
	_, w := newWild(t, listing.Options{Now: func() time.Time { return now }})
	now = now.Add(time.Hour)
	check := func() {
		t.Helper()
		require.True(t, created.Equal(w.owner("b").Created))
		listed, err := door.Client(w.c).Listed(w.ctx, "b")
		require.NoError(t, err)
		require.True(t, created.Equal(listed.Created))
		require.Equal(t, w.id, listed.ID)
		for info, err := range w.c.Buckets(w.ctx, "", "") {
			require.NoError(t, err)
			require.Equal(t, listing.BucketInfo{Name: "b", ID: listed.ID, Created: listed.Created}, info)
		}
	}
	check()
	unlist := func() {
		for _, p := range w.listRows() {
			row, _, err := w.s.Get(w.ctx, p, []byte("b"))
			require.NoError(t, err)
			require.NoError(t, w.s.Delete(w.ctx, p, []byte("b"), row.Timestamp))
		}
	}
	unlist()
	require.NoError(t, door.Client(w.c).Mend(w.ctx, "b"))
	check()
	unlist()
	require.ErrorIs(t, w.c.CreateBucket(w.ctx, "b"), listing.ErrBucketExists)
	check()
	w.name("b", store.BucketID{})
	require.NoError(t, door.Client(w.c).Restore(w.ctx, "b"))
	check()
}
