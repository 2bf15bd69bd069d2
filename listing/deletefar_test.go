package listing_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

const (
	nearTime = 2 * time.Millisecond
	farTime  = 160 * time.Millisecond // two round trips of 80 ms
)

// apart is a store of two data centres: what needs both of them takes a time by their distance, all else of rows
// nearTime.
type apart struct {
	store.Store
	distance  time.Duration
	both      atomic.Int64                  // calls that need both
	far, near gauge                         // those that go on, and those that need no other data centre
	fails     func(p store.Partition) error // of calls that need both; nil: none fails
}

// gauge counts what goes on, and the most at a time.
type gauge struct{ busy, top atomic.Int64 }

func (g *gauge) enter() {
	now := g.busy.Add(1)
	for top := g.top.Load(); now > top && !g.top.CompareAndSwap(top, now); top = g.top.Load() {
	}
}

func (g *gauge) leave() { g.busy.Add(-1) }

func takes(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *apart) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.near.enter()
	defer s.near.leave()
	if err := takes(ctx, nearTime); err != nil {
		return store.Page{}, err
	}
	return s.Store.Slice(ctx, p, b, o)
}

func (s *apart) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.near.enter()
	defer s.near.leave()
	time.Sleep(nearTime)
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *apart) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.near.enter()
	defer s.near.leave()
	time.Sleep(nearTime)
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *apart) EachQuorum() store.Rows { return apartBoth{s} }

type apartBoth struct{ *apart }

func (s apartBoth) EachQuorum() store.Rows { return s }

func (s apartBoth) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.both.Add(1)
	s.far.enter()
	defer s.far.leave()
	if err := takes(ctx, s.distance); err != nil {
		return store.Page{}, err
	}
	if s.fails != nil {
		if err := s.fails(p); err != nil {
			return store.Page{}, err
		}
	}
	return s.Store.Slice(ctx, p, b, o)
}

func farCut(i int) []byte { return fmt.Appendf(nil, "%05d", i) }

// newApart makes buckets of many ranges; every is how many of them there are to one that has an entry, 0: none has.
func newApart(t *testing.T, ranges, every int, names ...string) (*apart, *listing.Client) {
	s := &apart{Store: memstore.New(), distance: farTime}
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var cuts [][]byte
	for i := range ranges - 1 {
		cuts = append(cuts, farCut(i))
	}
	for _, name := range names {
		require.NoError(t, c.CreateBucket(t.Context(), name, cuts...))
		for i := 0; every > 0 && i < ranges-1; i += every {
			require.NoError(t, c.Bucket(name).Put(t.Context(), farCut(i), nil))
		}
	}
	return s, c
}

// TestDeletionsOverADistance take no more than twenty minutes for a million ranges, so twelve seconds for ten thousand,
// though every range is looked at in both data centres. One call has a bound, and so has the process.
func TestDeletionsOverADistance(t *testing.T) {
	race.Skip(t)
	const ranges, most, call, process = 10_000, 12 * time.Second, 384, 768
	remains := door.Remains{
		Gone:    func(_, _ []byte) bool { return true },
		Discard: func(context.Context, []byte, []byte) error { return nil },
	}
	for name, x := range map[string]struct {
		every int
		do    func(t *testing.T, c *listing.Client) error
	}{
		"a bucket": {0, func(t *testing.T, c *listing.Client) error { return c.DeleteBucket(t.Context(), "a") }},
		"a bucket with remains": {100, func(t *testing.T, c *listing.Client) error {
			return door.Client(c).DeleteBut(t.Context(), "a", remains)
		}},
		"keys of few ranges": {100, func(t *testing.T, c *listing.Client) error {
			return c.Bucket("a").DeletePrefix(t.Context(), nil)
		}},
		"keys of every range": {1, func(t *testing.T, c *listing.Client) error {
			return c.Bucket("a").DeletePrefix(t.Context(), nil)
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			s, c := newApart(t, ranges, x.every, "a")
			begun := time.Now()
			require.NoError(t, x.do(t, c))
			took := time.Since(begun)
			t.Log(took)
			require.Less(t, took, most)
			require.LessOrEqual(t, s.far.top.Load(), int64(call))
			require.LessOrEqual(t, s.near.top.Load(), int64(8), "what waits for no distance is work")
		})
	}
	inBubble(t, "three at once", func(t *testing.T) {
		s, c := newApart(t, 2000, 0, "a", "b", "c", "small")
		var g errgroup.Group
		g.Go(func() error { return c.DeleteBucket(t.Context(), "a") })
		g.Go(func() error { return c.Bucket("b").DeletePrefix(t.Context(), nil) })
		g.Go(func() error { return c.Bucket("c").DeletePrefix(t.Context(), nil) })
		require.NoError(t, takes(t.Context(), time.Second))
		begun := time.Now()
		require.NoError(t, c.Bucket("small").DeleteRange(t.Context(), farCut(7), farCut(8)))
		require.LessOrEqual(t, time.Since(begun), 3*farTime, "a small one waits for one turn, not for the large ones")
		require.NoError(t, g.Wait())
		require.Greater(t, s.far.top.Load(), int64(call))
		require.LessOrEqual(t, s.far.top.Load(), int64(process))
	})
}

// TestCallsOfADeletionOverADistance that are each too short for all ranges look at few of them twice.
func TestCallsOfADeletionOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ranges = 6000
		s, c := newApart(t, ranges, 0, "a")
		calls := int64(0)
		for {
			calls++
			require.Less(t, calls, int64(20))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := c.DeleteBucket(ctx, "a")
			cancel()
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Greater(t, calls, int64(2))
		require.Less(t, s.both.Load(), ranges+calls*4*384)
	})
}

// TestDeletionsOverADistanceFail where one range fails, and lose nothing: no write is under way then, what was not
// deleted is still there, and the next call deletes it.
func TestDeletionsOverADistanceFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newApart(t, 2000, 10, "a")
		b := c.Bucket("a")
		var n atomic.Int64
		s.fails = func(store.Partition) error {
			if n.Add(1) == 500 {
				return store.Errorf(store.Unavailable, "the other data centre is away")
			}
			return nil
		}
		require.ErrorIs(t, b.DeletePrefix(t.Context(), nil), store.Unavailable)
		require.Zero(t, s.near.busy.Load())
		require.Zero(t, s.far.busy.Load())
		require.NotEmpty(t, keysOf(t, b), "it does not go on to ranges that nobody has begun")
		n.Store(0)
		next, err := b.DeleteRangeUntil(t.Context(), nil, nil, time.Now().Add(10*nearTime))
		require.NoError(t, err)
		require.NotNil(t, next)
		for _, key := range keysOf(t, b) {
			require.GreaterOrEqual(t, string(key), string(next))
		}
		require.NoError(t, b.Put(t.Context(), []byte("0"), nil))
		s.fails = nil
		next, err = b.DeleteRangeUntil(t.Context(), next, nil, time.Time{})
		require.NoError(t, err)
		require.Nil(t, next)
		require.Equal(t, [][]byte{[]byte("0")}, keysOf(t, b), "what came later below stays")
		require.NoError(t, b.Delete(t.Context(), []byte("0")))

		n.Store(0)
		s.fails = func(store.Partition) error {
			if n.Add(1) == 500 {
				return store.Errorf(store.Unavailable, "the other data centre is away")
			}
			return nil
		}
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "a"), store.Unavailable)
		require.NoError(t, b.Put(t.Context(), farCut(1), nil), "the bucket is open again")
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "a"), listing.ErrNotEmpty)
	})
}

// TestDeletionsOverADistanceEnd with their context, at once.
func TestDeletionsOverADistanceEnd(t *testing.T) {
	for name, do := range map[string]func(context.Context, *listing.Client) error{
		"a bucket": func(ctx context.Context, c *listing.Client) error { return c.DeleteBucket(ctx, "a") },
		"keys":     func(ctx context.Context, c *listing.Client) error { return c.Bucket("a").DeletePrefix(ctx, nil) },
	} {
		inBubble(t, name, func(t *testing.T) {
			_, c := newApart(t, 4000, 0, "a")
			ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
			defer cancel()
			begun := time.Now()
			require.ErrorIs(t, do(ctx, c), context.DeadlineExceeded)
			require.Equal(t, 1100*time.Millisecond, time.Since(begun))
		})
	}
}

// TestDiscardsAreFew at a time, however many ranges are looked at: they are work for another store.
func TestDiscardsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newApart(t, 200, 1, "a")
		var busy, top atomic.Int64
		require.NoError(t, door.Client(c).DeleteBut(t.Context(), "a", door.Remains{
			Gone: func(_, _ []byte) bool { return true },
			Discard: func(ctx context.Context, _, _ []byte) error {
				top.Store(max(top.Load(), busy.Add(1)))
				defer busy.Add(-1)
				return takes(ctx, time.Second)
			},
		}))
		require.Equal(t, int64(8), top.Load())
	})
}

// TestDeletionsOfNearDataCentres look at no more ranges at once than other operations do: that would be work.
func TestDeletionsOfNearDataCentres(t *testing.T) {
	for name, x := range map[string]struct {
		distance time.Duration
		most     int64
	}{"one place": {nearTime, 8}, "one country": {20 * time.Millisecond, 48}} {
		inBubble(t, name, func(t *testing.T) {
			s, c := newApart(t, 1000, 0, "a")
			s.distance = x.distance
			require.NoError(t, c.Bucket("a").DeletePrefix(t.Context(), nil))
			require.Equal(t, x.most, s.far.top.Load())
			s.far.top.Store(0)
			require.NoError(t, c.DeleteBucket(t.Context(), "a"))
			require.Equal(t, x.most, s.far.top.Load())
		})
	}
}

// TestDeletionsOverADistanceWaitForAMove of one range, while the others go. Where the time is over, the next call
// begins there; where another range fails, nobody waits any longer.
func TestDeletionsOverADistanceWaitForAMove(t *testing.T) {
	for name, fails := range map[string]bool{"until the time is over": false, "while another range fails": true} {
		inBubble(t, name, func(t *testing.T) {
			s := &apart{Store: memstore.New(), distance: farTime}
			w := &world{t: t, ctx: t.Context(), s: s}
			w.client(listing.Options{})
			w.fill([]byte("m"), []byte("n"), []byte("o"))
			w.entries("a", 3)
			w.entries("m", 1500)
			w.entries("n", 3)
			w.begin("m", "m", "n")
			last := w.ranges()[3].Partition
			s.fails = func(p store.Partition) error {
				if fails && p.ID == last {
					return store.Errorf(store.Unavailable, "the other data centre is away")
				}
				return nil
			}
			begun := time.Now()
			next, err := w.c.Bucket("b").DeleteRangeUntil(t.Context(), nil, nil, begun.Add(time.Minute))
			require.Len(t, keysOf(t, w.c.Bucket("b")), 1500)
			if fails {
				require.ErrorContains(t, err, "the other data centre is away")
				require.Less(t, time.Since(begun), time.Second)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "m", string(next))
			require.Less(t, time.Since(begun), time.Minute+time.Second)
			_, err = w.c.Bucket("b").DeleteRangeUntil(t.Context(), next, nil, time.Now().Add(time.Second))
			require.ErrorIs(t, err, store.Unavailable)
			require.ErrorContains(t, err, "the range of key m moves")
		})
	}
}
