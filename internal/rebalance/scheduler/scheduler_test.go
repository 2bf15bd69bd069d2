package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func key(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }

// fixture is a store with buckets.
type fixture struct {
	t   testing.TB
	s   store.Store
	c   *listing.Client
	ids []store.BucketID
}

func newFixture(t testing.TB, s store.Store, buckets, rows int) *fixture {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	f := &fixture{t: t, s: s, c: c}
	for i := range buckets {
		require.NoError(t, c.CreateBucket(t.Context(), name(i)))
		var entries []listing.Entry
		for k := range rows {
			entries = append(entries, listing.Entry{Key: key(k), Value: []byte("value")})
		}
		require.NoError(t, c.Bucket(name(i)).PutBatch(t.Context(), entries))
	}
	for info, err := range c.Buckets(t.Context(), "", "") {
		require.NoError(t, err)
		f.ids = append(f.ids, info.ID)
	}
	require.Len(t, f.ids, buckets)
	return f
}

func name(i int) string { return fmt.Sprintf("bucket-%03d", i) }

func (f *fixture) ranges(id store.BucketID) (out []partmap.Range) {
	root, err := mapclient.Of(f.c).Load(context.Background(), id)
	require.NoError(f.t, err)
	for rg, err := range mapclient.Of(f.c).Ranges(context.Background(), root, nil) {
		require.NoError(f.t, err)
		out = append(out, rg)
	}
	return out
}

func (f *fixture) cuts(id store.BucketID) (out []string) {
	for _, rg := range f.ranges(id)[1:] {
		out = append(out, string(rg.Start))
	}
	return out
}

func (f *fixture) keys(bucket string) (n int) {
	for _, err := range f.c.Bucket(bucket).All(context.Background(), listing.Query{}) {
		require.NoError(f.t, err)
		n++
	}
	return n
}

// runs starts a manager; end stops it and waits.
func runs(t testing.TB, g *scheduler.Scheduler) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		require.ErrorIs(t, <-done, store.Timeout)
	})
	t.Cleanup(end)
	return end
}

func (f *fixture) ask(g *scheduler.Scheduler, id store.BucketID, a scheduler.Ask) scheduler.Job {
	p, err := g.Plan(f.t.Context(), id, a)
	require.NoError(f.t, err)
	return g.Submit(id, string(a.Kind), p)
}

func (f *fixture) finished(g *scheduler.Scheduler, id string) scheduler.Job {
	for {
		j, ok := g.Job(id)
		require.True(f.t, ok)
		if !j.Ended.IsZero() {
			return j
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *fixture) busy() int {
	rec, err := f.s.Read(context.Background(), store.Busy, []byte("buckets"), store.Serial)
	require.NoError(f.t, err)
	return (len(rec.Blob) - 33) / 16
}

func TestManyBucketsMoveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, rows = 30, 300
		f := newFixture(t, memstore.New(), buckets, rows)
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{Buckets: 4})
		end := runs(t, g)
		var jobs []string
		for _, id := range f.ids {
			jobs = append(jobs, f.ask(g, id, scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(100), key(200)}}).ID)
		}
		for i, id := range jobs {
			j := f.finished(g, id)
			require.NoError(t, j.Err())
			require.EqualValues(t, 200, j.Rows)
			require.Equal(t, j.Rows, j.Copied)
			require.Equal(t, []string{"key-001", "key-002"}, f.cuts(f.ids[i]), "the shortest separators")
			require.Equal(t, rows, f.keys(name(i)))
		}
		time.Sleep(time.Second)
		require.Empty(t, g.Status().Buckets)
		require.Zero(t, f.busy())
		end()
		require.False(t, g.Status().Running)
	})
}

// A manager is killed at any point of any move. The next one finds what is left by
// the table of busy buckets, or where that is lost by the scan, and ends it.
func TestResumesWhatAnyCrashLeft(t *testing.T) {
	seed := seed.Number(t)
	left := 0
	for round := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			const buckets, rows = 3, 60
			r := rand.New(rand.NewPCG(seed, round))
			f := newFixture(t, memstore.New(), buckets, rows)
			at := 1 + r.IntN(60)
			ctx, kill := context.WithCancel(t.Context())
			var mu sync.Mutex
			o := scheduler.Options{Buckets: 1 + int(round%3)} // they wait for each other, or don't
			o.Executor = executor.Options{PageRows: 10, Failpoint: func(context.Context, string, string) error {
				mu.Lock()
				defer mu.Unlock()
				if at--; at <= 0 {
					kill()
					return context.Canceled
				}
				return nil
			}}
			first := scheduler.New(f.s, mapclient.Of(f.c), o)
			done := make(chan error)
			go func() { done <- first.Run(ctx) }()
			for _, id := range f.ids {
				f.ask(first, id, scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(20), key(40)}})
			}
			time.Sleep(10 * time.Second)
			kill()
			<-done
			for _, id := range f.ids {
				root, err := mapclient.Of(f.c).Load(t.Context(), id)
				require.NoError(t, err)
				left += len(root.Batches)
			}
			if round%2 == 0 { // the hint is lost
				rec, err := f.s.Read(t.Context(), store.Busy, []byte("buckets"), store.Serial)
				require.NoError(t, err)
				next := store.Version{Epoch: rec.Epoch + 1, Token: storekit.NewToken()}
				require.NoError(t, f.s.Swap(t.Context(), store.Busy, []byte("buckets"), rec.Version,
					store.Record{Version: next, Blob: []byte("lost")}))
			}
			var found scheduler.Store = f.s
			if round%2 == 1 { // the scan can't work
				found = noScan{f.s}
			}
			second := scheduler.New(found, mapclient.Of(f.c), scheduler.Options{})
			end := runs(t, second)
			time.Sleep(10 * time.Second)
			for i, id := range f.ids {
				for _, rg := range f.ranges(id) {
					require.True(t, rg.Phase == partmap.Settled && !rg.SweepPending, "EVENKEEL_SEED=%d round %d: %+v", seed, round, rg)
				}
				require.Equal(t, rows, f.keys(name(i)))
			}
			require.Empty(t, second.Status().Buckets, "EVENKEEL_SEED=%d round %d", seed, round)
			end()
		})
	}
	require.Greater(t, left, 30, "it has to be killed in the middle for this to prove anything")
}

func (f *fixture) pause(id *store.BucketID) {
	_, _, err := pause.Set(f.t.Context(), f.s, id, pause.Pause{Since: time.Now()}, time.Now())
	require.NoError(f.t, err)
}

func (f *fixture) resume(id *store.BucketID) {
	_, err := pause.Lift(f.t.Context(), f.s, id)
	require.NoError(f.t, err)
}

func TestPauseResumeAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 200
		f := newFixture(t, memstore.New(), 3, rows)
		o := scheduler.Options{Buckets: 1, Executor: executor.Options{Failpoint: func(ctx context.Context, point, _ string) error {
			if point == "after wait" {
				time.Sleep(time.Second) // of virtual time
			}
			return nil
		}}}
		g := scheduler.New(f.s, mapclient.Of(f.c), o)
		end := runs(t, g)
		job := f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(100)}})
		time.Sleep(1500 * time.Millisecond)
		f.pause(&f.ids[0])
		require.NoError(t, f.finished(g, job.ID).Err(), "what has begun goes on")
		require.NoError(t, pause.Quiet(t.Context(), f.s, mapclient.Of(f.c), &f.ids[0], time.Now, nil))
		waits := f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Presplit, Keys: [][]byte{[]byte("a")}})
		time.Sleep(time.Hour)
		s := g.Status()
		require.Len(t, s.Buckets, 1)
		require.True(t, s.Buckets[0].Paused)
		require.False(t, s.Buckets[0].Running)
		require.Empty(t, s.Buckets[0].Batches)
		require.Empty(t, s.Buckets[0].Failures)
		require.True(t, g.Held(f.ids[0]))
		require.False(t, g.Held(f.ids[1]))

		// It keeps no other from moving, though only one may at a time.
		other := f.ask(g, f.ids[1], scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(100)}})
		require.NoError(t, f.finished(g, other.ID).Err())

		later := f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Presplit, Keys: [][]byte{[]byte("b")}})
		require.Equal(t, 2, g.Abort(nil))
		for _, id := range []string{waits.ID, later.ID} {
			got, _ := g.Job(id)
			require.ErrorContains(t, got.Err(), "dropped before it began")
		}
		again := f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Presplit, Keys: [][]byte{[]byte("c")}})
		f.resume(nil)
		require.NoError(t, f.finished(g, again.ID).Err())
		require.Equal(t, []string{"c", "key-001"}, f.cuts(f.ids[0]))

		// The pause outlives the process.
		f.pause(nil)
		end()
		g = scheduler.New(f.s, mapclient.Of(f.c), o)
		end = runs(t, g)
		paused := f.ask(g, f.ids[2], scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(100)}})
		time.Sleep(time.Hour)
		require.True(t, g.Held(f.ids[2]))
		require.Empty(t, f.cuts(f.ids[2]))
		f.resume(nil)
		require.NoError(t, f.finished(g, paused.ID).Err())

		// One that ends by itself.
		_, _, err := pause.Set(t.Context(), f.s, nil, pause.Pause{Since: time.Now(), Until: time.Now().Add(time.Minute)}, time.Now())
		require.NoError(t, err)
		began := time.Now()
		last := f.ask(g, f.ids[2], scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(50)}})
		require.NoError(t, f.finished(g, last.ID).Err())
		require.Greater(t, time.Since(began), time.Minute)
		end()
	})
}

// slow holds swaps up, some for long.
type slow struct {
	scheduler.Maps
	seed uint64
}

func (s slow) Swap(ctx context.Context, change partmap.Change) error {
	if r := rand.New(rand.NewPCG(s.seed, change.Next.Epoch)); r.IntN(3) == 0 {
		time.Sleep(time.Duration(r.IntN(40)) * time.Second)
	}
	return s.Maps.Swap(ctx, change)
}

// Three processes move ranges of the same buckets all at once, as leaders do that do not
// know of each other. Their swaps are held up, land late, and their answers are lost. From
// when Quiet has returned until the pause is lifted no root changes.
func TestNothingChangesInQuiet(t *testing.T) {
	seed := seed.Number(t)
	began, quiet := 0, 0
	for round := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			const buckets, rows = 4, 20
			r := rand.New(rand.NewPCG(seed, round))
			f := newFixture(t, memstore.New(), buckets, rows)
			ctx, stop := context.WithCancel(t.Context())
			var all []*faultstore.Faults
			var work sync.WaitGroup
			for i := range 3 {
				s, faults := faultstore.New(f.s, faultstore.Options{
					Seed:  seed + 100*round + uint64(i),
					PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Swap: {Refuse: .02, Lose: .1, Late: .1}},
				})
				faults.Enable(false)
				c, err := listing.New(s, listing.Options{})
				require.NoError(t, err)
				faults.Enable(true)
				all = append(all, faults)
				g := scheduler.New(s, slow{mapclient.Of(c), seed + 100*round + uint64(i)}, scheduler.Options{Buckets: 1 + i})
				work.Go(func() { _ = g.Run(ctx) })
				own := rand.New(rand.NewPCG(seed+round, uint64(i)))
				work.Go(func() {
					for ctx.Err() == nil {
						time.Sleep(time.Duration(own.IntN(3000)) * time.Millisecond)
						id := f.ids[own.IntN(buckets)]
						ask := scheduler.Ask{Kind: scheduler.Refresh}
						if at := own.IntN(rows); at > 0 && own.IntN(2) == 0 {
							ask = scheduler.Ask{Kind: scheduler.Presplit, Keys: [][]byte{key(at)}}
						}
						if p, err := g.Plan(ctx, id, ask); err == nil {
							g.Submit(id, "move", p)
						}
					}
				})
			}
			epochs := func() (out []uint64) {
				for _, id := range f.ids {
					root, err := mapclient.Of(f.c).Load(t.Context(), id)
					require.NoError(t, err)
					require.Empty(t, root.Batches, "EVENKEEL_SEED=%d round %d", seed, round)
					out = append(out, root.Epoch)
				}
				return out
			}
			for range 5 {
				time.Sleep(time.Duration(r.IntN(60_000)) * time.Millisecond)
				f.pause(nil)
				waited, end := context.WithTimeout(t.Context(), time.Hour)
				require.NoError(t, pause.Quiet(waited, f.s, mapclient.Of(f.c), nil, time.Now, func(p pause.Progress) { began += len(p.Moving) }))
				end()
				before := epochs()
				time.Sleep(time.Duration(r.IntN(60_000)) * time.Millisecond)
				for _, faults := range all {
					require.NoError(t, faults.Flush(t.Context()))
				}
				require.Equal(t, before, epochs(), "EVENKEEL_SEED=%d round %d: a root changed in quiet", seed, round)
				quiet++
				f.resume(nil)
			}
			stop()
			work.Wait()
		})
	}
	t.Logf("%d times quiet, %d buckets were moving", quiet, began)
	require.Greater(t, began, 20, "something has to move for this to prove anything")
}

func TestAClosingBucketLeftBehindIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 1)
		root, err := mapclient.Of(f.c).Load(t.Context(), f.ids[0])
		require.NoError(t, err)
		change, err := mapclient.WithState(root, partmap.Closing, mapclient.Of(f.c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		time.Sleep(40 * time.Second)
		require.Error(t, f.c.Bucket(name(0)).Put(t.Context(), key(0), nil), "somebody may be deleting it")
		time.Sleep(10 * time.Minute) // until the next scan
		require.NoError(t, f.c.Bucket(name(0)).Put(t.Context(), key(0), nil))
		end()
	})
}

// What no map names any more goes after an hour, and of replaced roots the newest
// stay.
func TestTidiesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New(), 1, 0)
		id := f.ids[0]
		const kept = 100
		for epoch := range 2 * kept {
			root, err := mapclient.Of(f.c).Load(t.Context(), id)
			require.NoError(t, err)
			change, err := mapclient.WithState(root, []partmap.State{partmap.Closing, partmap.Open}[epoch%2], mapclient.Of(f.c).Stamp())
			require.NoError(t, err)
			require.NoError(t, mapclient.Of(f.c).Swap(t.Context(), change))
		}
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		var cuts [][]byte
		for i := range 150 {
			cuts = append(cuts, key(i))
		}
		f.finished(g, f.ask(g, id, scheduler.Ask{Kind: scheduler.Presplit, Keys: cuts}).ID)
		f.finished(g, f.ask(g, id, scheduler.Ask{Kind: scheduler.Merge, Spans: []keytext.Span{{Start: key(3), End: key(7)}}}).ID)
		nodes := func() int {
			ids, err := f.s.ScanNodes(t.Context(), id, store.NodeID{}, 1000)
			require.NoError(t, err)
			return len(ids)
		}
		time.Sleep(time.Minute)
		require.Greater(t, nodes(), 1)
		time.Sleep(64 * time.Minute) // the scans are in the 60th minute, when it is too early, and in the 70th
		require.Equal(t, 1, nodes())
		require.Len(t, f.cuts(id), 147)
		old, err := f.s.History(t.Context(), id, 0, 1000)
		require.NoError(t, err)
		require.Len(t, old, kept)
		end()

		// Another process does not know since when nodes have no name.
		cutsOf := f.cuts(id)
		g = scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end = runs(t, g)
		f.finished(g, f.ask(g, id, scheduler.Ask{Kind: scheduler.Refresh}).ID)
		end()
		require.Greater(t, nodes(), 1)
		g = scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end = runs(t, g)
		time.Sleep(2 * time.Hour)
		require.Equal(t, 1, nodes())
		require.Equal(t, cutsOf, f.cuts(id))
		end()
	})
}

// While the store can't do what moves need, they wait, say why, and go on by
// themselves.
func TestMovesWaitForTheStoreAndSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &away{Store: memstore.New()}
		f := newFixture(t, s, 1, 50)
		g := scheduler.New(s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		s.set(true)
		job := f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{key(25)}})
		time.Sleep(time.Minute)
		st := g.Status()
		require.Len(t, st.Buckets, 1)
		require.NotEmpty(t, st.Buckets[0].Failures)
		require.Contains(t, st.Buckets[0].Failures[0].Error, "the other data centre is away")
		require.Contains(t, st.Buckets[0].Failures[0].Error, "copy")
		require.Equal(t, 50, f.keys(name(0)), "clients go on")
		s.set(false)
		require.NoError(t, f.finished(g, job.ID).Err())
		time.Sleep(time.Second)
		require.Empty(t, g.Status().Buckets)
		end()
	})
}

type noScan struct{ store.Store }

func (noScan) Scan(context.Context, store.Table, []byte, int) ([][]byte, error) {
	return nil, store.Errorf(store.Unavailable, "no scan")
}

// away is a store of which rows can't be reached everywhere at times.
type away struct {
	store.Store
	mu  sync.Mutex
	off bool
}

func (a *away) set(off bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off = off
}

type everywhere struct {
	store.Rows
	a *away
}

func (a *away) EachQuorum() store.Rows { return everywhere{a.Store, a} }

func (e everywhere) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	e.a.mu.Lock()
	off := e.a.off
	e.a.mu.Unlock()
	if off {
		return store.Page{}, store.Errorf(store.Unavailable, "the other data centre is away")
	}
	return e.Rows.Slice(ctx, p, b, o)
}

// All buckets share one budget of rows.
func TestOneBudgetOfRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, rows = 4, 500
		f := newFixture(t, memstore.New(), buckets, rows)
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{RowsPerSecond: 100, Executor: executor.Options{PageRows: 20}})
		end := runs(t, g)
		began := time.Now()
		var jobs []string
		for _, id := range f.ids {
			p := &scheduler.Plan{Bucket: id, Moves: []move.Goal{refreshAll(f, id)}}
			jobs = append(jobs, g.Submit(id, "refresh", p).ID)
		}
		for _, id := range jobs {
			require.NoError(t, f.finished(g, id).Err())
		}
		// Each row is copied and compared, at 100 a second, and looked at by the sweep, at
		// three times as many.
		require.InDelta(t, buckets*rows*(2+1.0/3)/100, time.Since(began).Seconds(), 3)
		end()
	})
}

// A job tells in which phase it is, and counts the rows of each, the sweep's too.
func TestAJobTellsItsPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 300
		f := newFixture(t, memstore.New(), 1, rows)
		var g *scheduler.Scheduler
		var id string
		var told []string
		g = scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{Executor: executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
			switch point {
			case "after swap marking", "before copy", "before compare", "before remove", "before sweep", "after sweep":
				time.Sleep(time.Second) // the manager has heard of what came before
				j, _ := g.Job(id)
				told = append(told, fmt.Sprintf("%s: %s, %d copied, %d compared, %d swept over", point, j.Phase, j.Copied, j.Verified, j.Searched))
			}
			return nil
		}}})
		p := &scheduler.Plan{Bucket: f.ids[0], Moves: []move.Goal{refreshAll(f, f.ids[0])}}
		p.Moves[0].Copies = rows
		id = g.Submit(f.ids[0], "refresh", p).ID
		end := runs(t, g)
		j := f.finished(g, id)
		require.NoError(t, j.Err())
		require.Equal(t, []string{
			"after swap marking: , 0 copied, 0 compared, 0 swept over",
			"before copy: copying, 0 copied, 0 compared, 0 swept over",
			"before compare: verifying, 300 copied, 0 compared, 0 swept over",
			"before remove: draining, 300 copied, 300 compared, 0 swept over",
			"before sweep: sweeping, 300 copied, 300 compared, 0 swept over",
			"after sweep: sweeping, 300 copied, 300 compared, 300 swept over",
		}, told)
		require.Empty(t, j.Phase)
		require.EqualValues(t, rows, j.Searched)
		end()
	})
}

// A roll is planned to move nothing, but rows may have come above its cut before it took effect. A
// job tells how many it has really copied, also of each goal.
func TestARollTellsWhatItCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 300
		f := newFixture(t, memstore.New(), 1, rows)
		g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
		end := runs(t, g)
		p := &scheduler.Plan{Bucket: f.ids[0], Moves: []move.Goal{
			move.Split(nil, nil, 0, key(100)),
		}}
		j := f.finished(g, g.Submit(f.ids[0], "balance", p).ID)
		require.NoError(t, j.Err())
		require.Zero(t, j.Rows, "by plan")
		require.EqualValues(t, rows-100, j.Copied)
		require.EqualValues(t, rows-100, j.Goals[0].Copied)
		require.EqualValues(t, rows-100, j.Verified)
		require.EqualValues(t, rows-100, j.Searched)

		// Two goals that share a batch.
		p.Moves = []move.Goal{move.Split(nil, key(100), 0, key(90)), move.Split(key(100), nil, 0, key(130))}
		j = f.finished(g, g.Submit(f.ids[0], "balance", p).ID)
		require.NoError(t, j.Err())
		require.EqualValues(t, 10, j.Goals[0].Copied)
		require.EqualValues(t, rows-130, j.Goals[1].Copied)
		require.EqualValues(t, 10+rows-130, j.Copied)
		end()
	})
}
