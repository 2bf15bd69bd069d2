package listing_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// patient ends a context after so many reads of rows.
type patient struct {
	store.Store
	left       atomic.Int64
	end        context.CancelFunc
	all, swaps atomic.Int64
	slow       time.Duration // each read takes so long
}

func (p *patient) Swap(
	ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record,
) error {
	p.swaps.Add(1)
	return p.Store.Swap(ctx, t, key, old, next)
}

func (p *patient) Slice(
	ctx context.Context, at store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	p.all.Add(1)
	time.Sleep(p.slow)
	if p.left.Add(-1) == 0 {
		p.end()
	}
	return p.Store.Slice(ctx, at, b, o)
}

// within begins a context that ends after so many reads.
func (p *patient) within(t *testing.T, reads int64) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p.end = cancel
	p.left.Store(reads)
	return ctx
}

func manyRanges(t *testing.T, ranges int) (*patient, *listing.Client) {
	s := &patient{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	var cuts [][]byte
	for i := range ranges - 1 {
		cuts = append(cuts, fmt.Appendf(nil, "%05d", i))
	}
	require.NoError(t, c.CreateBucket(t.Context(), "abc", cuts...))
	return s, c
}

// TestDeletionGoesOnWhereItStopped: calls that are each too short for all ranges delete a
// bucket together, with no more reads than two looks at each range and a few again.
func TestDeletionGoesOnWhereItStopped(t *testing.T) {
	const ranges = 5000
	s, c := manyRanges(t, ranges)
	calls := 0
	for {
		calls++
		require.Less(t, calls, 40)
		err := c.DeleteBucket(s.within(t, 1000), "abc")
		if err == nil {
			break
		}
		require.Equal(t, store.Timeout, store.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "to go on where this stopped")
	}
	require.Greater(t, calls, 9)
	require.Less(t, s.all.Load(), int64(ranges*2+calls*300))
	_, err := c.Bucket("abc").List(t.Context(), listing.Query{})
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	require.ErrorIs(t, c.DeleteBucket(t.Context(), "abc"), listing.ErrNoSuchBucket)
}

// TestDeletionGoesOnInAnotherProcess: the same, where each call comes to another process, but not for an open bucket
// after some time. What was kept of a state that has ended counts for nothing.
func TestDeletionGoesOnInAnotherProcess(t *testing.T) {
	const ranges = 5000
	for name, open := range map[string]bool{"while it is open": true, "once it is closing": false} {
		s, first := manyRanges(t, ranges)
		now := time.Now()
		process := func() *listing.Client {
			c, err := listing.New(s, listing.Options{Now: func() time.Time { return now }})
			require.NoError(t, err)
			return c
		}
		id, err := first.BucketID(t.Context(), "abc")
		require.NoError(t, err)
		root := func() *partmap.Root {
			r, err := mapclient.Of(first).Load(t.Context(), id)
			require.NoError(t, err)
			return r
		}
		set := func(to partmap.State) {
			change, err := mapclient.WithState(root(), to, mapclient.Of(first).Stamp())
			require.NoError(t, err)
			require.NoError(t, mapclient.Of(first).Swap(t.Context(), change))
		}
		if !open {
			set(partmap.Closing)
		}
		calls := 0
		for {
			calls++
			require.Less(t, calls, 40)
			err := process().DeleteBucket(s.within(t, 1000), "abc")
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled, name)
			if calls != 2 {
				continue
			}
			before := s.all.Load()
			if open {
				require.Equal(t, partmap.Open, root().State)
				require.NoError(t, process().Bucket("abc").Put(t.Context(), []byte("00001"), nil))
				now = now.Add(time.Hour) // what was empty then has an entry now
				swaps := s.swaps.Load()
				require.ErrorIs(t, process().DeleteBucket(t.Context(), "abc"), listing.ErrNotEmpty)
				require.Equal(t, swaps, s.swaps.Load(), "it was closed in vain")
				now = now.Add(-time.Hour)
				require.NoError(t, process().Bucket("abc").Delete(t.Context(), []byte("00001")))
				s.all.Store(before)
				continue
			}
			set(partmap.Open)
			require.NoError(t, process().Bucket("abc").Put(t.Context(), []byte("00001"), []byte("v")))
			set(partmap.Closing)
			require.ErrorIs(t, process().DeleteBucket(t.Context(), "abc"), listing.ErrNotEmpty)
			require.NoError(t, process().Bucket("abc").Delete(t.Context(), []byte("00001")))
			set(partmap.Closing)
			s.all.Store(0)
		}
		require.Greater(t, calls, 4, name)
		require.Less(t, s.all.Load(), int64(ranges*2+calls*300), name)
		require.ErrorIs(t, process().DeleteBucket(t.Context(), "abc"), listing.ErrNoSuchBucket)
	}
}

// TestDeletionsThatAreGivenUp say so, after whichever read of the empty bucket: neither that it has
// entries, nor that it could not be opened again.
func TestDeletionsThatAreGivenUp(t *testing.T) {
	for reads := int64(1); ; reads++ {
		s, c := manyRanges(t, 3)
		err := c.DeleteBucket(s.within(t, reads), "abc")
		if err == nil {
			require.Greater(t, reads, int64(3))
			return
		}
		require.ErrorIs(t, err, context.Canceled, "%d reads", reads)
		require.NotErrorIs(t, err, listing.ErrNotEmpty, "%d reads", reads)
		require.NotContains(t, err.Error(), "open the bucket again", "%d reads", reads)
	}
}

// TestDeletionsThatGoOn where they stopped keep their place when they are stopped again at once, and
// when the swap that makes sure of it is lost; not when the bucket was open meanwhile.
func TestDeletionsThatGoOn(t *testing.T) {
	var cuts [][]byte
	for i := range 600 { // the key between the first 256 ranges and the others is one byte
		cut := []byte{byte(min(i, 255))}
		if i > 255 {
			cut = fmt.Appendf(cut, "%03d", i)
		}
		cuts = append(cuts, cut)
	}
	for _, reopened := range []bool{false, true} {
		s, w := newWild(t, listing.Options{MaxParallel: 1}, cuts...)
		w.state(w.id, partmap.Closing)
		reads := 0
		upTo := func(most int) (int, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			reads = 0
			s.before = func() {
				if reads++; reads == 2*most { // before and after each
					cancel()
				}
			}
			s.on.Store(true)
			defer s.on.Store(false)
			err := w.c.DeleteBucket(ctx, "b")
			return reads / 2, err
		}
		_, err := upTo(400)
		require.ErrorContains(t, err, "to go on where this stopped")
		if reopened {
			s.swap = func(table store.Table, do func() error) error {
				s.swap = nil
				w.state(w.id, partmap.Open)
				w.put("0", "")
				w.state(w.id, partmap.Closing)
				return do()
			}
			_, err = upTo(1000)
			require.ErrorIs(t, err, listing.ErrNotEmpty)
			continue
		}
		_, err = upTo(1)
		require.ErrorContains(t, err, "to go on where this stopped")
		s.swap = func(store.Table, func() error) error { return store.Errorf(store.Timeout, "lost") }
		_, err = upTo(1000)
		require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
		s.swap = nil
		n, err := upTo(1000)
		require.NoError(t, err)
		require.Equal(t, 601-256, n-1, "and the list of buckets is read")
	}
}

// TestWhatIsWrittenBetweenTwoDeletionsStays: a bucket that is opened again in the middle
// of its deletion is looked through from its beginning, whoever opened it.
func TestWhatIsWrittenBetweenTwoDeletionsStays(t *testing.T) {
	for _, key := range []string{"0", "00100x", "02000"} {
		s, c := manyRanges(t, 3000)
		b := c.Bucket("abc")
		root := func() *partmap.Root {
			id, err := c.BucketID(t.Context(), "abc")
			require.NoError(t, err)
			r, err := mapclient.Of(c).Load(t.Context(), id)
			require.NoError(t, err)
			return r
		}
		for root().State == partmap.Open { // looks at it, and then closes it
			require.Error(t, c.DeleteBucket(s.within(t, 2500), "abc"))
			if root().State == partmap.Open { // a look that found nothing yet keeps nobody out
				require.NoError(t, b.Put(t.Context(), []byte("first"), nil))
				require.NoError(t, b.Delete(t.Context(), []byte("first")))
			}
		}
		require.ErrorIs(t, b.Put(t.Context(), []byte(key), nil), listing.ErrBucketClosing)
		change, err := mapclient.WithState(root(), partmap.Open, mapclient.Of(c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
		require.NoError(t, b.Put(t.Context(), []byte(key), []byte("v")))
		change, err = mapclient.WithState(root(), partmap.Closing, mapclient.Of(c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "abc"), listing.ErrNotEmpty)
		entry, err := b.Get(t.Context(), []byte(key))
		require.NoError(t, err)
		require.Equal(t, "v", string(entry.Value))
	}
}

// TestABucketWithAnEntryIsNotClosed: however many ranges are empty before it, or after it.
func TestABucketWithAnEntryIsNotClosed(t *testing.T) {
	for _, key := range []string{"0", "00001/", "02998"} {
		s, c := manyRanges(t, 3000)
		require.NoError(t, c.Bucket("abc").Put(t.Context(), []byte(key), nil))
		swaps := s.swaps.Load()
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "abc"), listing.ErrNotEmpty, key)
		require.Equal(t, swaps, s.swaps.Load(), key)
	}
	s, c := manyRanges(t, 3000)
	b := c.Bucket("abc")
	require.NoError(t, b.Put(t.Context(), []byte("9"), []byte("v")))
	for range 10 {
		err := c.DeleteBucket(s.within(t, 1000), "abc")
		require.Error(t, err)
		_, err = b.Get(t.Context(), []byte("9"))
		require.NoError(t, err)
	}
	require.ErrorIs(t, c.DeleteBucket(t.Context(), "abc"), listing.ErrNotEmpty)
}

// TestLongDeletionsAreNotTakenForLeftBehind: while a bucket is looked through for long,
// its root says again and again that it has been closing for a short time only.
func TestLongDeletionsAreNotTakenForLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := manyRanges(t, 5000)
		s.slow = 200 * time.Millisecond
		id, err := c.BucketID(t.Context(), "abc")
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- c.DeleteBucket(t.Context(), "abc") }()
		var oldest time.Duration
		for {
			select {
			case err := <-done:
				require.NoError(t, err)
				require.Greater(t, oldest, 10*time.Second)
				return
			case <-time.After(time.Second):
			}
			root, err := mapclient.Of(c).Load(t.Context(), id)
			require.NoError(t, err)
			if root.State == partmap.Closing {
				oldest = max(oldest, time.Since(time.UnixMicro(root.ChangedAt)))
				require.Less(t, oldest, 30*time.Second)
			}
		}
	})
}

// TestDeletionsOfAnyLengthEnd: a bucket is looked through in more parts than a deletion has
// decisions.
func TestDeletionsOfAnyLengthEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := manyRanges(t, 11_000) // 256 ranges make a part, and each part takes two minutes
		s.slow = 4 * time.Second
		require.NoError(t, c.DeleteBucket(t.Context(), "abc"))
		require.ErrorIs(t, c.DeleteBucket(t.Context(), "abc"), listing.ErrNoSuchBucket)
	})
}

// TestWhatCannotBeFreedIsTriedAgain by the next deletion, however far the one before it has come behind it.
func TestWhatCannotBeFreedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ranges = 1000
		s, c := manyRanges(t, ranges)
		for i := range ranges - 1 {
			require.NoError(t, c.Bucket("abc").Put(t.Context(), fmt.Appendf(nil, "%05d", i), []byte("v")))
		}
		s.slow = time.Second // so a call looks at the ranges in several parts
		stuck := true
		var mu sync.Mutex
		freed := map[string]bool{}
		remains := door.Remains{
			Gone: func(_, _ []byte) bool { return true },
			Discard: func(_ context.Context, key, _ []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if string(key) == "00003" && stuck {
					return store.Errorf(store.Unavailable, "it is stuck")
				}
				freed[string(key)] = true
				return nil
			},
		}
		require.ErrorContains(t, door.Client(c).DeleteBut(t.Context(), "abc", remains), "it is stuck")
		require.Len(t, freed, ranges-2)
		stuck = false
		require.ErrorIs(t, door.Client(c).DeleteBut(t.Context(), "abc", remains), listing.ErrNoSuchBucket)
		require.Len(t, freed, ranges-1)
	})
}
