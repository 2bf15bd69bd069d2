package listing_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// crowd is a store whose calls take a second each; it notes how many go on at once, and their
// contexts.
type crowd struct {
	store.Store
	mu       sync.Mutex
	on       bool
	busy     int
	top      int
	contexts []context.Context
}

func (s *crowd) call(ctx context.Context) {
	s.mu.Lock()
	on := s.on
	if on {
		s.busy++
		s.top = max(s.top, s.busy)
		s.contexts = append(s.contexts, ctx)
	}
	s.mu.Unlock()
	if on {
		time.Sleep(time.Second)
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}
}

// most tells how many calls of f went on at once.
func (s *crowd) most(f func()) int {
	s.mu.Lock()
	s.on, s.top = true, 0
	s.mu.Unlock()
	f()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	return s.top
}

func (s *crowd) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.call(ctx)
	return s.Store.Slice(ctx, p, b, o)
}

func (s *crowd) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.call(ctx)
	return s.Store.Get(ctx, p, key)
}

func (s *crowd) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.call(ctx)
	return s.Store.Put(ctx, p, rows...)
}

func (s *crowd) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.call(ctx)
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *crowd) Stats(ctx context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	s.call(ctx)
	all := make([]counter.Stats, len(partitions))
	for i := range all {
		all[i] = counter.Stats{Known: true, Rows: 100}
	}
	return all, nil
}

func (s *crowd) Quanta(ctx context.Context, _ store.Partition) ([]counter.Quantum, error) {
	s.call(ctx)
	return nil, nil
}

// fill makes a bucket of twenty ranges with so many entries each.
func (s *crowd) fill(t *testing.T, entries int, o listing.Options) (*listing.Client, []listing.Entry) {
	o.MaxParallel = 3
	c, err := listing.New(s, o)
	require.NoError(t, err)
	var cuts [][]byte
	var all []listing.Entry
	for i := range 20 {
		if i > 0 {
			cuts = append(cuts, fmt.Appendf(nil, "%02d", i))
		}
		for j := range entries {
			all = append(all, listing.Entry{Key: fmt.Appendf(nil, "%02d/%04d", i, j)})
		}
	}
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	if len(all) > 0 {
		require.NoError(t, c.Bucket("b").PutBatch(t.Context(), all))
	}
	return c, all
}

// TestOperationsWorkOnThreePartitionsAtOnce, or on as many as they are told, and no more.
func TestOperationsWorkOnThreePartitionsAtOnce(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, s *crowd){
		"a batch": func(t *testing.T, s *crowd) {
			c, all := s.fill(t, 1, listing.Options{})
			require.Equal(t, 3, s.most(func() { require.NoError(t, c.Bucket("b").PutBatch(t.Context(), all)) }))
		},
		"a range of keys": func(t *testing.T, s *crowd) {
			c, _ := s.fill(t, 10, listing.Options{})
			require.Equal(t, 3, s.most(func() {
				require.NoError(t, c.Bucket("b").DeleteRange(t.Context(), []byte("03/"), []byte("03/0008")))
			}))
		},
		"a deletion": func(t *testing.T, s *crowd) {
			c, _ := s.fill(t, 0, listing.Options{})
			require.Equal(t, 3, s.most(func() { require.NoError(t, c.DeleteBucket(t.Context(), "b")) }))
		},
		"a page of copies without their rows": func(t *testing.T, s *crowd) {
			x := inPhase(t, partmap.Copying, func(around store.Store) *listing.Client {
				s.Store = around
				c, err := listing.New(s, listing.Options{MaxParallel: 3})
				require.NoError(t, err)
				return c
			})
			for i := range 10 {
				x.put(x.dst, copied(entry(fmt.Sprint(i), "", 5)))
			}
			require.Equal(t, 3, s.most(func() {
				page, err := x.b.List(t.Context(), listing.Query{})
				require.NoError(t, err)
				require.Empty(t, page.Items)
			}))
		},
		"points": func(t *testing.T, s *crowd) {
			c, _ := s.fill(t, 300, listing.Options{})
			require.Equal(t, 3, s.most(func() {
				_, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, 2)
				require.NoError(t, err)
			}))
			top := s.most(func() {
				points, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, 70)
				require.NoError(t, err)
				require.Len(t, points, 69)
			})
			require.GreaterOrEqual(t, top, 3)
			require.LessOrEqual(t, top, 9, "three ranges, and three gaps in each")
		},
		"points by sizes": func(t *testing.T, s *crowd) {
			c, _ := s.fill(t, 1, listing.Options{Sizes: s})
			require.Equal(t, 3, s.most(func() {
				_, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, 70)
				require.NoError(t, err)
			}))
		},
	} {
		inBubble(t, name, func(t *testing.T) { do(t, &crowd{Store: memstore.New()}) })
	}
}

// TestContextsEndWithTheirCalls: no timer and no goroutine waits for a read that has been answered.
func TestContextsEndWithTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &crowd{Store: memstore.New()}
		c, _ := s.fill(t, 30, listing.Options{Sizes: s, ReadAhead: 4, ReadAheadAfter: 1, RowsPerRead: 1})
		b := c.Bucket("b")
		for name, do := range map[string]func() error{
			"page": func() error {
				_, err := b.List(t.Context(), listing.Query{Delimiter: []byte("/")})
				return err
			},
			"all": func() (err error) {
				for _, err = range b.All(t.Context(), listing.Query{}) {
				}
				return err
			},
			"points": func() error { _, err := b.SplitPoints(t.Context(), listing.Query{}, 70); return err },
			"delete": func() error { _ = c.DeleteBucket(t.Context(), "b"); return nil },
		} {
			s.contexts = nil
			s.most(func() { require.NoError(t, do(), name) })
			require.NotEmpty(t, s.contexts)
			for _, ctx := range s.contexts {
				require.True(t, ctx == t.Context() || ctx.Err() != nil, "%s: %v", name, ctx)
			}
		}
	})
}

// watched is a store with two data centres that notes the contexts in which it acknowledges and
// swaps roots; its swaps of roots can hang.
type watched struct {
	*distant
	contexts []context.Context
	swaps    []context.Context
	hangs    bool
}

func (s *watched) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	s.contexts = append(s.contexts, ctx)
	return s.distant.Acknowledge(ctx, t, key)
}

func (s *watched) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if t == store.Roots {
		s.swaps = append(s.swaps, ctx)
	}
	if s.hangs && t == store.Roots {
		<-ctx.Done()
		return store.Wrap("swap", context.Cause(ctx))
	}
	return s.distant.Swap(ctx, t, key, old, next)
}

// TestHowLongACreationWaits for other servers: not at all if all data centres have the name, else
// until nobody remembers its absence; where there is one data centre only it has nothing to wait for.
func TestHowLongACreationWaits(t *testing.T) {
	for _, unable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &watched{distant: newDistant(t)}
			s.unable.Store(unable)
			c, err := listing.New(s, listing.Options{})
			require.NoError(t, err)
			begin := time.Now()
			require.NoError(t, c.CreateBucket(t.Context(), "b"))
			require.Equal(t, map[bool]time.Duration{true: 1250 * time.Millisecond}[unable], time.Since(begin))
			require.NotEmpty(t, s.contexts)
			for _, ctx := range s.contexts {
				require.Error(t, ctx.Err())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s, w := newWild(t, listing.Options{})
		created := false
		s.swap = func(table store.Table, do func() error) error {
			created = created || table == store.Directory
			return do()
		}
		s.read = func(table store.Table, rec store.Record, err error) (store.Record, error) {
			if created && table == store.Directory {
				return store.Record{}, store.Errorf(store.Unavailable, "away")
			}
			return rec, err
		}
		begin := time.Now()
		require.NoError(t, w.c.CreateBucket(t.Context(), "new"))
		require.Zero(t, time.Since(begin))
	})
}

// TestHowLongADeletionTriesToOpen a bucket again that is not empty, when its own time is over.
func TestHowLongADeletionTriesToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &watched{distant: newDistant(t)}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(t.Context(), "b"))
		require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("k"), nil))
		id, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		root, err := mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		change, err := mapclient.WithState(root, partmap.Closing, mapclient.Of(c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
		s.hangs, s.swaps = true, nil
		begin := time.Now()
		err = c.DeleteBucket(t.Context(), "b")
		require.ErrorIs(t, err, listing.ErrNotEmpty)
		require.ErrorContains(t, err, "open the bucket again")
		require.Equal(t, 5*time.Second, time.Since(begin))
		for _, ctx := range s.swaps {
			require.Error(t, ctx.Err())
		}
		s.hangs = false
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "b"), listing.ErrNotEmpty)
		require.Error(t, s.swaps[len(s.swaps)-1].Err(), "the swap is done, and so is its timer")
		root, err = mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, partmap.Open, root.State)
	})
}

// TestPartsOfALongDeletion: 256 ranges are looked through, eight at once, before it is asked
// whether that took more than 15 seconds; then the root is swapped once more.
func TestPartsOfALongDeletion(t *testing.T) {
	for _, x := range []struct {
		slow time.Duration // of one look
		want uint64        // swaps, with those to closing and to deleted
	}{
		{15 * time.Second / 32, 2 + 9},
		{15*time.Second/32 + 1, 2 + 19},
		{500 * time.Millisecond, 2 + 19},
		{time.Second / 4, 2 + 9},
		{time.Second / 32, 2 + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, c := manyRanges(t, 20*256)
			id, err := c.BucketID(t.Context(), "abc")
			require.NoError(t, err)
			root, err := mapclient.Of(c).Load(t.Context(), id)
			require.NoError(t, err)
			s.slow = x.slow
			require.NoError(t, c.DeleteBucket(t.Context(), "abc"))
			now, err := mapclient.Of(c).Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, x.want, now.Epoch-root.Epoch, "%v", x.slow)
		})
	}
}

// TestACreationWithoutTheTime leaves nothing behind, and asks for one timestamp to know.
func TestACreationWithoutTheTime(t *testing.T) {
	s := memstore.New()
	source := &stamps{}
	c, err := listing.New(s, listing.Options{Timestamps: source})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "first"))
	require.Equal(t, 2, source.drawn)
	roots, err := s.Scan(t.Context(), store.Roots, nil, 10)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	source.first = cancel
	require.ErrorIs(t, c.CreateBucket(ctx, "b"), context.Canceled)
	now, err := s.Scan(t.Context(), store.Roots, nil, 10)
	require.NoError(t, err)
	require.Equal(t, roots, now)
	_, err = c.BucketID(t.Context(), "b")
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	_, err = door.Client(c).Stamps(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "draw a timestamp")
}
