package policysim

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Run simulates a scenario and returns the report of the results. The same scenario always gives the same report. The
// error is the cause of the end of ctx, or an error of the simulated store.
func Run(ctx context.Context, s *Scenario) (*Report, error) { return run(ctx, s, nil) }

// observer is a function that is called with the decisions of a simulated balancer about one bucket, and with the input
// from which they were made. See balancer.Options.Decided.
type observer func(store.BucketID, *policy.Input, []policy.Decision)

func run(ctx context.Context, s *Scenario, observe observer) (*Report, error) {
	threads := balancer.NewCoroutines(begin)
	ctx, stop := context.WithCancel(ctx)
	defer threads.Settle()
	defer stop()
	w, err := newWorld(ctx, s, threads.Now, threads.Sleep, observe)
	if err != nil {
		return nil, err
	}
	o := s.options()
	o.Now, o.Threads, o.Decided = threads.Now, threads, w.decided
	b := balancer.New(scanned{w.t, &w.mover}, w, w, w.counts, o)
	moments, err := w.play(ctx, threads, b.Run, s.end())
	if err != nil {
		return nil, fmt.Errorf("after %v: %w", w.since(), err)
	}
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	rep := w.t.report()
	rep.Steps = moments
	rep.took(b.Status())
	return rep, nil
}

// play runs the simulation from its beginning for the duration until. It starts the balancer by a call of run, which
// goes on until ctx ends. moments is the number of simulated moments at which something happened.
func (w *world) play(
	ctx context.Context, threads *balancer.Coroutines, run func(context.Context) error, until time.Duration,
) (moments int, err error) {
	threads.Go(func() {
		if threads.Sleep(ctx, w.s.firstLook()) == nil {
			_ = run(ctx)
		}
	})
	end := w.begin.Add(until)
	for at := w.now(); !at.IsZero() && !at.After(end); moments++ {
		threads.Pass(at)
		next := threads.Settle()
		if err := w.happen(ctx); err != nil {
			return moments, err
		}
		at = earlier(next, w.next())
	}
	threads.Pass(end)
	return moments, nil
}

// world has everything around the balancer in a simulation: the buckets, the requests to them, their maps and their
// moves, all in memory.
type world struct {
	s     *Scenario
	begin time.Time
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	t     *tally
	f     *faults
	maps  *mapclient.Client
	// stamp is the last timestamp that a simulated write got.
	stamp   store.Timestamp
	counts  counters
	rec     recorder
	ids     *rand.Rand
	buckets []*bucket
	of      map[store.BucketID]*bucket
	due     byDue
	observe observer
	mover

	flush time.Time // time of the next flush of counts, zero if there is nothing to flush
}

// bucket is a simulated bucket, with the requests to it and its moves.
type bucket struct {
	id    store.BucketID
	play  *player
	next  time.Duration // time of the next request to the bucket
	group *Result
	moves *moving // nil if nothing moves
}

// byDue is a heap of simulated buckets, with the bucket whose next request comes first on top.
type byDue []*bucket

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].next < h[j].next }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push appends the bucket x to the heap. Package heap calls Push.
func (h *byDue) Push(x any) { *h = append(*h, x.(*bucket)) }

// Pop removes the last bucket of the heap and returns it. Package heap calls Pop.
func (h *byDue) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	*h = (*h)[:n]
	return x
}

// flushEvery is the simulated time between two flushes of the counts of rows to the counters.
const flushEvery = time.Second

// firstLook returns when the simulated balancer first checks the buckets, as a time since the start: usually 0. It is 2
// seconds if a step of the simulation is as long as the pause between two checks.
func (s *Scenario) firstLook() time.Duration {
	// Each check then comes right after the requests of a step are counted, and not right before they are made.
	if s.Step < s.Look {
		return 0
	}
	return 2 * flushEvery
}

// later returns the time from the start of the balancer to the beginning of the scenario. It is a random time that
// depends on the seed.
func (s *Scenario) later() time.Duration {
	// So requests come at other moments between two checks of the balancer in each run. Without that, requests that
	// come every ten seconds, for example, would have the same age in each check of all runs.
	if s.Step >= s.Look {
		return 0
	}
	const golden = 0.618033988749895 // its multiples lie evenly between whole numbers
	_, part := math.Modf(golden * float64(s.Seed-1))
	return time.Duration(part * float64(s.Look)).Truncate(time.Millisecond)
}

// begin is the simulated time at which each simulation starts the balancer: 14 November 2023.
var begin = time.Unix(1_700_000_000, 0).UTC()

// newWorld returns the buckets, maps and requests of the scenario s at the beginning of a simulation. The parameter now
// returns the simulated time. sleep blocks until the given simulated time has passed. observe is called with each
// decision of the balancer, and may be nil.
func newWorld(
	ctx context.Context, s *Scenario, now func() time.Time, sleep func(context.Context, time.Duration) error,
	observe observer,
) (*world, error) {
	w := &world{
		s: s, begin: now().Add(s.later()), now: now, sleep: sleep, observe: observe, of: map[store.BucketID]*bucket{},
		ids: rand.New(rand.NewPCG(s.Seed, 0x696473)),
	}
	rows := memstore.New()
	w.f = newFaults(s, w.since, func(d time.Duration) { _ = sleep(ctx, d) })
	w.t = newTally(rows, w.f, w.begin, now)
	w.maps = mapclient.NewEmbedded(rows, mapclient.Options{Now: now, NewID: w.uuid, CacheBytes: 1 << 30})
	w.counts = counters{countbook.NewMemory(now), w.f}
	ticks := func() time.Time { return now().Truncate(flushEvery) } // as the recorder of a program does
	w.rec = recorder{counter.NewRecorder(w.counts, counter.RecorderOptions{Every: -1, Now: ticks}), w.t, w.f}
	w.mover = newMover(w)
	for i := range s.Tenants {
		t := &s.Tenants[i]
		g := w.t.group(t)
		for range t.Count {
			b := &bucket{id: store.BucketID(w.uuid()), group: g}
			b.play = newPlayer(t, w.begin, s.end(), s.Seed+uint64(len(w.buckets))<<32)
			if _, err := w.maps.Create(ctx, b.id, t.cuts()); err != nil {
				return nil, err
			}
			w.t.bucket(b.id, g)
			b.next = s.grid(b.play.next())
			w.buckets, w.of[b.id] = append(w.buckets, b), b
		}
	}
	w.due = append(w.due, w.buckets...)
	heap.Init(&w.due)
	return w, nil
}

// since returns the simulated time that has passed since the beginning of the scenario.
func (w *world) since() time.Duration { return w.now().Sub(w.begin) }

func (w *world) uuid() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], w.ids.Uint64())
	binary.BigEndian.PutUint64(id[8:], w.ids.Uint64())
	return id
}

// draw returns a new timestamp for a simulated write, which is higher than all timestamps before.
func (w *world) draw() store.Timestamp {
	w.stamp = max(w.stamp+1, store.Timestamp(w.now().UnixMicro()))
	return w.stamp
}

// next returns the simulated time of the next event around the balancer, such as a request or a step of a move. The
// result is zero if there is no event.
func (w *world) next() time.Time {
	next := earlier(w.flush, w.mover.next())
	if len(w.due) > 0 && w.due[0].next < never {
		next = earlier(next, w.begin.Add(w.due[0].next))
	}
	if now := w.now(); !next.IsZero() && next.Before(now) {
		return now
	}
	return next
}

// happen does everything around the balancer that is due at the present simulated time: requests, steps of moves, and
// flushes of counts.
func (w *world) happen(ctx context.Context) error {
	if err := w.mover.advance(ctx); err != nil {
		return err
	}
	now := w.now()
	if !w.flush.IsZero() && !now.Before(w.flush) {
		w.flush = time.Time{}
		if w.rec.Flush(ctx) != nil || w.rec.Counts().Waiting > 0 {
			w.flush = now.Add(flushEvery) // the counters are away
		}
	}
	for len(w.due) > 0 && w.begin.Add(w.due[0].next).Compare(now) <= 0 {
		x := w.due[0]
		if err := w.requests(ctx, x); err != nil {
			return err
		}
		heap.Fix(&w.due, 0)
	}
	return ctx.Err()
}

// earlier returns the earlier of the times a and b. A zero time means never, so the other time is returned.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// value is the value of every simulated row: 8 zero bytes.
var value = make([]byte, 8)

// requests makes all requests to the simulated bucket b that are due up to the present simulated time.
func (w *world) requests(ctx context.Context, b *bucket) (err error) {
	b.play.until(w.since(), func(r request) { err = cmp.Or(err, w.request(ctx, b, r)) })
	b.next = never
	if next := max(b.play.next(), w.since()+w.s.Step); next <= w.s.end() {
		b.next = w.s.grid(next)
	}
	return err
}

// request makes the simulated request r to the bucket b: it writes, deletes or reads the row in the store, and reports
// the request to the counters.
func (w *world) request(ctx context.Context, b *bucket, r request) error {
	w.t.requested(b.id, r)
	l, err := w.maps.Acquire(ctx, b.id)
	if err != nil {
		return err
	}
	defer l.Release()
	rg, err := w.maps.Find(ctx, l, []byte(r.key))
	if err != nil {
		return err
	}
	if w.flush.IsZero() {
		// Nothing was recorded, so flushes were left out. This flush makes up for them: what is recorded now counts
		// from here.
		if err := w.rec.Flush(ctx); err != nil {
			return err
		}
		w.flush = w.now().Truncate(flushEvery).Add(flushEvery)
	}
	p := store.Partition{Bucket: b.id, ID: rg.WriteTo()}
	at, markers := w.draw(), rg.Phase.Rules().Markers
	switch r.do {
	case Put:
		err = w.t.Put(ctx, p, store.Row{Key: []byte(r.key), Value: store.EntryCell(value), Timestamp: at})
		w.rec.Put(p, []byte(r.key), len(r.key)+len(value), at)
	case Delete:
		if markers {
			err = w.t.Put(ctx, p, store.Row{Key: []byte(r.key), Value: cells.Marker(), Timestamp: at})
		} else {
			err = w.t.Delete(ctx, p, []byte(r.key), at)
		}
		w.rec.Delete(p, []byte(r.key), at, markers)
	case Get:
		w.rec.Read(p, []byte(r.key))
	}
	return err
}

// decided is called with the decisions of the simulated balancer about a bucket, before their moves are submitted. The
// parameter `in` is the input from which the decisions were made.
func (w *world) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	w.t.decided(id, in, ds)
	w.mover.decided(id, in, ds)
	if w.observe != nil {
		w.observe(id, in, ds)
	}
}

// ranges returns all ranges of the simulated bucket b, in the order of their keys.
func (w *world) ranges(ctx context.Context, b *bucket) (out []partmap.Range, err error) {
	root, err := w.root(ctx, b.id)
	if err != nil {
		return nil, err
	}
	for rg, err := range w.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return nil, err
		}
		out = append(out, rg)
	}
	return out, nil
}

func (w *world) finish(ctx context.Context) error {
	for _, b := range w.buckets {
		ranges, err := w.ranges(ctx, b)
		if err != nil {
			return err
		}
		w.t.finish(b.id, ranges, w.now())
	}
	return nil
}
