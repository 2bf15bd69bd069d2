package cleaning_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// centres is a store with two data centres, of which the other one may be away.
type centres struct {
	memstore.Store
	away atomic.Bool
}

func (c *centres) EachQuorum() store.Rows { return everywhere{c.Store, c} }

type everywhere struct {
	store.Rows
	c *centres
}

func (e everywhere) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if e.c.away.Load() {
		return store.Errorf(store.Unavailable, "a data centre is away")
	}
	return e.Rows.Put(ctx, p, rows...)
}

// world is a store with two buckets of objects, each with an object that was replaced.
type world struct {
	t *testing.T
	s *centres
	c *listing.Client
	o *objects.Objects
	// blobs are those of o.
	blobs *flaky
	lines strings.Builder // of log; to be read when nothing runs
	log   *slog.Logger
	// Options of the cleaner: RowsPerSecond, Every (a minute if it is zero), AuditEvery,
	// ScrubMiBPerSecond and Condemn.
	rate       int
	every      time.Duration
	auditEvery time.Duration
	scrub      int
	condemn    bool
	claim      func(context.Context) error
	live       func(context.Context) (int, error)
	hints      *hints.Journal // nil: none
	noting     func(context.Context) (bool, error)
	allEvery   time.Duration   // a week if it is zero
	regs       store.Registers // those of the next cleaner
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, s: &centres{Store: memstore.New()}}
	w.log = slog.New(slog.NewTextHandler(&w.lines, nil))
	var err error
	w.c, err = listing.New(w.s, listing.Options{})
	require.NoError(t, err)
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, blobs.Close()) })
	w.blobs = &flaky{Blobs: blobs}
	w.o, err = objects.New(w.c, w.blobs, objects.Options{InlineBytes: -1})
	require.NoError(t, err)
	w.regs = w.s
	require.NoError(t, w.c.CreateBucket(t.Context(), "plain"))
	for _, name := range []string{"photos", "videos"} {
		require.NoError(t, w.o.CreateBucket(t.Context(), name))
		for range 2 {
			_, err := w.o.Bucket(name, objects.Never).
				Put(t.Context(), []byte("key"), strings.NewReader("body"), objects.Meta{Size: 4})
			require.NoError(t, err)
		}
	}
	return w
}

// ranks returns the ranks of the rows of a bucket, newest first.
func (w *world) ranks(bucket string) (ranks []byte) {
	page, err := w.c.Bucket(bucket).List(w.t.Context(), listing.Query{})
	require.NoError(w.t, err)
	for _, item := range page.Items {
		ranks = append(ranks, item.Value[0])
	}
	return ranks
}

var (
	untouched = []byte{1, 1}
	burned    = []byte{2, 3, 2} // what took its place is kept; the proof is beside it
)

// run makes a cleaner, and starts it.
func (w *world) run(elect *leader.Options) (c *cleaning.Cleaning, stop func()) {
	c = w.cleaner(elect)
	return c, w.start(c)
}

func (w *world) cleaner(elect *leader.Options) *cleaning.Cleaning {
	return cleaning.New(cleaning.Options{
		Buckets: w.c, Objects: w.o, Registers: w.regs,
		Every: cmp.Or(w.every, time.Minute), Leader: elect,
		Live: w.live, Hints: w.hints, Noting: w.noting, AllEvery: cmp.Or(w.allEvery, 7*24*time.Hour),
		RowsPerSecond: w.rate, AuditEvery: w.auditEvery, ScrubMiBPerSecond: w.scrub, Condemn: w.condemn, Claim: w.claim,
		Log: w.log,
	})
}

// start cleans until it is stopped.
func (w *world) start(c *cleaning.Cleaning) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// Of two processes one cleans, and the other one once the first has ended.
func TestOneCleans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, stopA := w.run(&leader.Options{Name: "a"})
		time.Sleep(leader.DefaultLease) // until it leads
		b, stopB := w.run(&leader.Options{Name: "b"})
		defer stopB()
		time.Sleep(90 * time.Second)
		require.Equal(t, burned, w.ranks("photos"))
		require.Equal(t, burned, w.ranks("videos"))
		sa, sb := a.Status(t.Context()), b.Status(t.Context())
		require.True(t, sa.Leading)
		require.Equal(t, cleaning.Round{
			Began: sa.Last.Began, Ended: sa.Last.Ended, Buckets: 2, Rows: 4, Burned: 2, Remembered: 2,
		}, *sa.Last)
		require.False(t, sb.Leading)
		require.Nil(t, sb.Last)
		require.True(t, a.Leading())
		require.False(t, b.Leading())
		require.Equal(t, "a", sb.Leader.Name)
		require.NoError(t, leader.New(w.s, leader.Options{}).Try(t.Context(), func(context.Context) error { return nil }),
			"who moves ranges is another question")

		stopA()
		time.Sleep(25 * time.Hour) // the grace counts anew
		sb = b.Status(t.Context())
		require.True(t, sb.Leading)
		require.Equal(t, []byte{2}, w.ranks("photos"))
		require.Equal(t, []byte{2}, w.ranks("videos"))
	})
}

// While a data centre is away nothing is burned, and rounds fail with a reason.
func TestADataCentreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.s.away.Store(true)
		c, stop := w.run(&leader.Options{Name: "a"})
		defer stop()
		time.Sleep(90 * time.Second)
		require.Equal(t, untouched, w.ranks("photos"))
		s := c.Status(t.Context())
		require.EqualValues(t, 2, s.Last.Failed)
		require.Contains(t, s.Last.Error, "a data centre is away")
		w.s.away.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, burned, w.ranks("photos"))
		s = c.Status(t.Context())
		require.Zero(t, s.Last.Failed)
		require.Empty(t, s.Last.Error)
	})
}

// Bodies that may be another store's are neither cleaned nor audited.
func TestBodiesOfAnotherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.condemn = 24*time.Hour, true
		require.NoError(t, care.Claim(t.Context(), w.blobs, "another"))
		w.claim = func(ctx context.Context) error { return care.Claim(ctx, w.blobs, "this one") }
		orphan := w.orphan("videos")
		c, stop := w.run(nil)
		time.Sleep(50 * time.Hour)
		require.Equal(t, untouched, w.ranks("photos"))
		require.Contains(t, w.bodies("videos"), orphan)
		s := c.Status(t.Context())
		require.Nil(t, s.Last)
		require.Nil(t, s.LastAudit)
		require.NoError(t, w.blobs.Delete(t.Context(), "_owner"))
		time.Sleep(50 * time.Hour)
		stop()
		require.NotContains(t, w.bodies("videos"), orphan)
		require.Contains(t, w.lines.String(), "the bodies there belong to another store (another; this one is this one)")
	})
}

// A pause, of a bucket or of all, holds for the cleaner, also for one that has its store for itself.
func TestPausesHold(t *testing.T) {
	race.Skip(t)
	for name, elect := range map[string]*leader.Options{"embedded": nil, "shared": {Name: "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				id, err := w.c.BucketID(t.Context(), "photos")
				require.NoError(t, err)
				_, _, err = pause.Set(t.Context(), w.s, &id, pause.Pause{Since: time.Now()}, time.Now())
				require.NoError(t, err)
				c, stop := w.run(elect)
				defer stop()
				time.Sleep(90 * time.Second)
				require.Equal(t, untouched, w.ranks("photos"))
				require.Equal(t, burned, w.ranks("videos"))
				s := c.Status(t.Context())
				require.True(t, s.Paused)
				require.Nil(t, s.Last, "no round was whole")

				_, _, err = pause.Set(t.Context(), w.s, nil, pause.Pause{Since: time.Now()}, time.Now())
				require.NoError(t, err)
				time.Sleep(50 * time.Hour)
				require.Equal(t, burned, w.ranks("videos"), "longer than the grace, and the body is kept")
				_, err = pause.Lift(t.Context(), w.s, nil)
				require.NoError(t, err)
				time.Sleep(2 * time.Minute)
				require.Equal(t, burned, w.ranks("photos"))
				require.Equal(t, []byte{2}, w.ranks("videos"))
				s = c.Status(t.Context())
				require.False(t, s.Paused)
				require.NotNil(t, s.Last)
			})
		})
	}
}

// A pause ends a pass that is under way.
func TestAPauseEndsAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 20 {
			_, err := w.o.Bucket("photos", objects.Never).
				Put(t.Context(), fmt.Appendf(nil, "key-%d", i), strings.NewReader("body"), objects.Meta{Size: 4})
			require.NoError(t, err)
		}
		w.rate = 1
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(70 * time.Second) // a round begins after a minute, and the second bucket has to wait for 22 s
		require.NotNil(t, c.Status(t.Context()).Now)
		require.Equal(t, untouched, w.ranks("videos"))
		id, err := w.c.BucketID(t.Context(), "videos")
		require.NoError(t, err)
		_, _, err = pause.Set(t.Context(), w.s, &id, pause.Pause{Since: time.Now()}, time.Now())
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		s := c.Status(t.Context())
		require.Nil(t, s.Now, "the round has ended")
		require.True(t, s.Paused)
		require.Nil(t, s.Last, "it was not whole")
		time.Sleep(time.Hour)
		require.Equal(t, untouched, w.ranks("videos"))
	})
}

// TestACleanerEndsADeletion that was interrupted once the bucket was deleted: nobody else may come back to it.
func TestACleanerEndsADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		photos := w.o.Bucket("photos", objects.Never)
		u, err := photos.CreateUpload(t.Context(), []byte("other"), objects.Meta{})
		require.NoError(t, err)
		_, err = photos.PutPart(t.Context(), []byte("other"), u.ID, 1, strings.NewReader("part"), objects.Meta{Size: 4})
		require.NoError(t, err)
		info, err := photos.Head(t.Context(), []byte("key"), objects.Latest)
		require.NoError(t, err)
		for err == nil { // the newest version, and the one below
			_, err = photos.DeleteVersion(t.Context(), []byte("key"), info.ID)
			require.NoError(t, err)
			info, err = photos.Head(t.Context(), []byte("key"), objects.Latest)
		}
		w.blobs.away.Store(true)
		require.ErrorIs(t, w.o.DeleteBucket(t.Context(), "photos"), store.Unavailable)
		_, _, err = w.o.Open(t.Context(), "photos")
		require.ErrorIs(t, err, listing.ErrNoSuchBucket)
		require.NotEmpty(t, w.bodies("photos"))
		listed := func() (names []string) {
			for info, err := range w.c.Buckets(t.Context(), "", "") {
				require.NoError(t, err)
				names = append(names, info.Name)
			}
			return names
		}
		_, stop := w.run(nil)
		defer stop()
		time.Sleep(90 * time.Second)
		require.Equal(t, []string{"photos", "plain", "videos"}, listed())
		w.blobs.away.Store(false)
		time.Sleep(2 * time.Minute)
		require.Empty(t, w.bodies("photos"))
		require.Equal(t, []string{"plain", "videos"}, listed())
		require.Len(t, w.bodies("videos"), 2)
	})
}
