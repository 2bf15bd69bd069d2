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
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// distant is a store another data centre of which writes names: reads at Local find
// a name only once it was acknowledged.
type distant struct {
	store.Store
	mu     sync.Mutex
	found  map[string]bool
	unable atomic.Bool // to acknowledge

	serial        atomic.Int64 // reads of names
	atOnce, least atomic.Int64
	hold          chan struct{} // nil: reads are not held up
}

func newDistant(t *testing.T) *distant {
	m := memstore.New()
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return &distant{Store: m, found: map[string]bool{}}
}

func (d *distant) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if t != store.Directory {
		return d.Store.Read(ctx, t, key, l)
	}
	if l == store.Local {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.found[string(key)] {
			return store.Record{}, store.NotFound
		}
		return d.Store.Read(ctx, t, key, l)
	}
	d.serial.Add(1)
	if n := d.atOnce.Add(1); n > d.least.Load() {
		d.least.Store(n)
	}
	defer d.atOnce.Add(-1)
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-ctx.Done():
			return store.Record{}, store.Wrap("read", ctx.Err())
		}
	}
	return d.Store.Read(ctx, t, key, l)
}

func (d *distant) Acknowledge(ctx context.Context, t store.Table, key []byte) (store.Record, error) {
	if d.unable.Load() {
		return store.Record{}, store.Errorf(store.Unavailable, "the other data centre is away")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found[string(key)] = true
	return d.Store.Read(ctx, t, key, store.Serial)
}

// client is a server over the store.
func (d *distant) client(t *testing.T, o listing.Options) *listing.Client {
	c, err := listing.New(d, o)
	require.NoError(t, err)
	return c
}

func missing(t *testing.T, c *listing.Client, name string) {
	t.Helper()
	_, err := c.Bucket(name).Get(t.Context(), []byte("key"))
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
}

// What costs others dear is not done for each request.
func TestMissingBucketsAreLookedUpRarely(t *testing.T) {
	d := newDistant(t)
	var now atomic.Int64
	now.Store(1e18)
	c := d.client(t, listing.Options{Now: func() time.Time { return time.Unix(0, now.Load()) }})
	for range 100 {
		missing(t, c, "none")
	}
	require.EqualValues(t, 1, d.serial.Load())
	now.Add(int64(time.Second) - 1)
	missing(t, c, "none")
	require.EqualValues(t, 1, d.serial.Load())
	now.Add(1)
	missing(t, c, "none")
	require.EqualValues(t, 2, d.serial.Load())
	now.Add(-10) // a clock that was turned back
	missing(t, c, "none")
	require.EqualValues(t, 3, d.serial.Load())

	// At once: one read of one name, a few of many.
	d.hold = make(chan struct{})
	var g errgroup.Group
	for i := range 100 {
		g.Go(func() error { missing(t, c, "another"); return nil })
		g.Go(func() error { missing(t, c, fmt.Sprintf("name%d", i)); return nil })
	}
	require.Eventually(t, func() bool { return d.atOnce.Load() == 4 }, 10*time.Second, time.Millisecond)
	close(d.hold)
	require.NoError(t, g.Wait())
	require.EqualValues(t, 4, d.least.Load())
	require.LessOrEqual(t, d.serial.Load(), int64(3+1+100))
}

// Who waits for somebody else's read doesn't fail with it, and waits no longer than
// its own time.
func TestMissingBucketsAreLookedUpForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistant(t)
		d.hold = make(chan struct{})
		c := d.client(t, listing.Options{})
		short, cancel := context.WithCancel(t.Context())
		failed, answered := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Bucket("none").Get(short, []byte("key"))
			failed <- err
		}()
		synctest.Wait()
		require.EqualValues(t, 1, d.atOnce.Load())
		go func() {
			_, err := c.Bucket("none").Get(t.Context(), []byte("key"))
			answered <- err
		}()
		synctest.Wait()
		require.EqualValues(t, 1, d.serial.Load(), "the second waits for the read of the first")
		cancel()
		require.NotErrorIs(t, <-failed, listing.ErrNoSuchBucket)
		d.hold <- struct{}{}
		require.ErrorIs(t, <-answered, listing.ErrNoSuchBucket)
	})
}

// Who waits for somebody else's read finds what that has found.
func TestBucketsAreLookedUpForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistant(t)
		require.NoError(t, d.client(t, listing.Options{}).CreateBucket(t.Context(), "b"))
		clear(d.found) // it has not come to this data centre yet
		d.hold = make(chan struct{})
		d.serial.Store(0)
		c := d.client(t, listing.Options{})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				_, err := c.Bucket("b").Get(t.Context(), []byte("key"))
				require.ErrorIs(t, err, listing.ErrNotFound)
			})
		}
		synctest.Wait()
		close(d.hold)
		both.Wait()
		require.EqualValues(t, 1, d.serial.Load())
	})
}

// A name that is given back is found everywhere, or whoever gives it back is told that it may not be.
func TestNamesThatAreGivenBackAreFoundEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistant(t)
		c, other := d.client(t, listing.Options{}), d.client(t, listing.Options{})
		require.NoError(t, c.CreateBucket(t.Context(), "b"))
		w := &world{t: t, ctx: t.Context(), s: d, c: c}
		for _, unable := range []bool{false, true} {
			w.name("b", store.BucketID{})
			clear(d.found)
			d.unable.Store(unable)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := door.Client(c).Restore(ctx, "b")
			cancel()
			if unable {
				require.ErrorContains(t, err, "other servers may not find it yet")
				continue
			}
			require.NoError(t, err)
			_, err = other.Bucket("b").Get(t.Context(), []byte("key"))
			require.ErrorIs(t, err, listing.ErrNotFound)
		}
	})
}

// Who gives up while others look up names says so.
func TestMissingBucketsAreNotWaitedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistant(t)
		d.hold = make(chan struct{})
		c := d.client(t, listing.Options{})
		var others sync.WaitGroup
		for i := range 4 {
			others.Go(func() { missing(t, c, fmt.Sprint("name", i)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Bucket("none").Get(ctx, []byte("key"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "wait to look up the name")
		close(d.hold)
		others.Wait()
	})
}

// A bucket whose creation was acknowledged is there for every server, at once.
func TestCreatedBucketsAreFoundEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistant(t)
		creator, other := d.client(t, listing.Options{}), d.client(t, listing.Options{})
		for i, unable := range []bool{false, true} {
			name := fmt.Sprintf("bucket%d", i)
			d.unable.Store(unable)
			missing(t, creator, name)
			missing(t, other, name)
			require.NoError(t, creator.CreateBucket(t.Context(), name))
			for _, c := range []*listing.Client{other, creator} {
				_, err := c.Bucket(name).Get(t.Context(), []byte("key"))
				require.ErrorIs(t, err, listing.ErrNotFound, "unable %t", unable)
			}
		}
		// Whoever has no time to make sure of it is told so.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := creator.CreateBucket(ctx, "late")
		require.ErrorIs(t, err, store.Timeout)
		require.ErrorContains(t, err, "other servers may not find it yet")
	})
}

// staleNames is a store whose local reads find names as they were.
type staleNames struct {
	store.Store
	was map[string]store.Record
}

func (s *staleNames) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if was, ok := s.was[string(key)]; ok && t == store.Directory && l == store.Local {
		return was, nil
	}
	return s.Store.Read(ctx, t, key, l)
}

// A bucket that was deleted and created again is found by whoever reads the name of the first.
func TestNamesThatAreStale(t *testing.T) {
	s := &staleNames{Store: memstore.New(), was: map[string]store.Record{}}
	c := over(t, s, listing.Options{})
	rec, err := s.Read(t.Context(), store.Directory, []byte("b"), store.Serial)
	require.NoError(t, err)
	require.NoError(t, c.DeleteBucket(t.Context(), "b"))
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("k"), []byte("v")))
	s.was["b"] = rec
	other, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	for range 2 { // then from its cache
		e, err := other.Bucket("b").Get(t.Context(), []byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(e.Value))
	}
}
