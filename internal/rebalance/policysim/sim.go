package policysim

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Run plays a scenario. It fails when ctx ends. The same scenario gives the same result.
func Run(ctx context.Context, s *Scenario) (*Report, error) { return run(ctx, s, nil) }

// observer gets what a balancer decides; see balancer.Options.Decided.
type observer func(store.BucketID, *policy.Input, []policy.Decision)

func run(ctx context.Context, s *Scenario, observe observer) (*Report, error) {
	w, err := newWorld(ctx, s, observe)
	if err != nil {
		return nil, err
	}
	o := s.options()
	o.Now, o.Decided = w.clock, w.decided
	b := balancer.New(scanned{w.t, &w.mover}, w, w, w.counts, o)
	w.step = w.begin
	for w.now.Before(w.begin.Add(s.end())) {
		if err := w.advance(ctx, b); err != nil {
			return nil, fmt.Errorf("after %v: %w", w.since(), err)
		}
	}
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	rep := w.t.report()
	rep.Steps = w.steps
	rep.took(b.Status())
	return rep, nil
}

// world is what a balancer works on: the buckets, their maps and moves, in memory.
type world struct {
	s     *Scenario
	begin time.Time
	now   time.Time
	t     *tally
	f     *faults
	maps  *mapclient.Client
	// stamp is the last timestamp that was drawn.
	stamp   store.Timestamp
	counts  counters
	rec     recorder
	ids     *rand.Rand
	buckets []*bucket
	of      map[store.BucketID]*bucket
	due     byDue
	observe observer
	mover

	// step is when the balancer takes its next step, active until when it takes one each second, flush when counts are
	// sent; zero: there are none.
	// held is until when the last step lasts.
	step, active, flush, held time.Time
	steps                     int
	// more: recounts may wait for their turn.
	more bool
	// stepping: a step is under way; spent is how long it takes.
	stepping bool
	spent    time.Duration
}

// bucket is one with its clients.
type bucket struct {
	id    store.BucketID
	play  *player
	next  time.Duration // when its clients request something
	group *Result
	moves *moving // nil: nothing moves
}

// byDue has the buckets in the order of their next requests.
type byDue []*bucket

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].next < h[j].next }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byDue) Push(x any) { *h = append(*h, x.(*bucket)) }

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	*h = (*h)[:n]
	return x
}

const (
	// soonest is the least pause between two steps of a balancer, flushEvery the pause between two flushes.
	soonest    = time.Second
	flushEvery = time.Second
	// busyFor is for how long a balancer looks each second after something happened.
	busyFor = 90 * time.Second
	// looksAtOnce is how many buckets a balancer looks at at once.
	looksAtOnce = 16
)

func newWorld(ctx context.Context, s *Scenario, observe observer) (*world, error) {
	w := &world{
		s: s, begin: time.Unix(1_700_000_000, 0).UTC(), observe: observe, of: map[store.BucketID]*bucket{},
		ids: rand.New(rand.NewPCG(s.Seed, 0x696473)),
	}
	w.now = w.begin
	rows := memstore.New()
	w.f = newFaults(s, w.since, func(d time.Duration) { w.spent += d / looksAtOnce })
	w.t = newTally(rows, w.f, w.begin, w.clock)
	w.maps = mapclient.NewEmbedded(rows, mapclient.Options{Now: w.clock, NewID: w.uuid, CacheBytes: 1 << 30})
	w.counts = counters{counter.NewMemory(w.clock), w.f}
	w.rec = recorder{counter.NewRecorder(w.counts, counter.RecorderOptions{Every: -1, Now: w.clock}), w.t, w.f}
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

func (w *world) clock() time.Time { return w.now }

// since is the time since the beginning.
func (w *world) since() time.Duration { return w.now.Sub(w.begin) }

func (w *world) uuid() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], w.ids.Uint64())
	binary.BigEndian.PutUint64(id[8:], w.ids.Uint64())
	return id
}

// draw draws a timestamp.
func (w *world) draw() store.Timestamp {
	w.stamp = max(w.stamp+1, store.Timestamp(w.now.UnixMicro()))
	return w.stamp
}

// busy has the balancer look each second for a while.
func (w *world) busy() {
	w.active = w.now.Add(busyFor)
	if soon := later(w.held, w.now.Truncate(soonest).Add(soonest)); w.steps > 0 {
		w.step = earlier(w.step, soon)
	}
}

// advance goes on to the next moment at which something happens, and lets it happen.
func (w *world) advance(ctx context.Context, b *balancer.Balancer) error {
	next := w.step
	if len(w.due) > 0 && w.due[0].next < never {
		next = earlier(next, w.begin.Add(w.due[0].next))
	}
	if !w.flush.IsZero() {
		next = earlier(next, w.flush)
	}
	if at := w.mover.next(); !at.IsZero() {
		next = earlier(next, at)
	}
	if w.more {
		next = earlier(next, w.counting.next)
	}
	w.now = later(w.now, earlier(w.begin.Add(w.s.end()), next))
	if err := w.mover.advance(ctx); err != nil {
		return err
	}
	if !w.flush.IsZero() && !w.now.Before(w.flush) {
		w.flush = time.Time{}
		if w.rec.Flush(ctx) != nil || w.rec.Counts().Waiting > 0 {
			w.flush = w.now.Add(flushEvery) // the counters are away
		}
		w.busy()
	}
	w.count(ctx, b)
	if !w.now.Before(w.step) {
		w.look(ctx, b)
	}
	for len(w.due) > 0 && w.begin.Add(w.due[0].next).Compare(w.now) <= 0 {
		x := w.due[0]
		if err := w.requests(ctx, x); err != nil {
			return err
		}
		heap.Fix(&w.due, 0)
	}
	return ctx.Err()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// look lets the balancer take a step.
func (w *world) look(ctx context.Context, b *balancer.Balancer) {
	w.steps++
	w.stepping, w.spent = true, 0
	b.Step(ctx)
	w.stepping = false
	pause := soonest
	if !w.now.Before(w.active) {
		pause = max(pause, w.s.Look)
	}
	// A step that waits, for a slow store or its turn to count, holds up the next one.
	w.held = w.now.Add(w.spent)
	w.step = w.held.Add(pause)
	w.count(ctx, b)
}

// count makes the recounts for which there is time now.
func (w *world) count(ctx context.Context, b *balancer.Balancer) {
	for w.more = true; w.more && w.counting.free(w.now); {
		if w.more = b.Count(ctx, false); w.more {
			w.busy()
		}
	}
}

// value is what every entry has.
var value = make([]byte, 8)

// requests makes what a bucket's clients request up to now.
func (w *world) requests(ctx context.Context, b *bucket) (err error) {
	b.play.until(w.since(), func(r request) { err = cmp.Or(err, w.request(ctx, b, r)) })
	b.next = never
	if next := max(b.play.next(), w.since()+w.s.Step); next <= w.s.end() {
		b.next = w.s.grid(next)
	}
	return err
}

// request makes one.
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
	p := store.Partition{Bucket: b.id, ID: rg.WriteTo()}
	at, markers := w.draw(), rg.Phase.Rules().Markers
	switch r.do {
	case Put:
		err = w.t.Put(ctx, p, store.Row{Key: []byte(r.key), Value: store.EntryCell(value), Timestamp: at})
		w.rec.Put(p, []byte(r.key), len(r.key)+len(value), at)
	case Delete:
		if markers {
			err = w.t.Put(ctx, p, store.Row{Key: []byte(r.key), Value: store.MarkerCell(), Timestamp: at})
		} else {
			err = w.t.Delete(ctx, p, []byte(r.key), at)
		}
		w.rec.Delete(p, []byte(r.key), at, markers)
	case Get:
		w.rec.Read(p, []byte(r.key))
	}
	if w.flush.IsZero() {
		w.flush = w.now.Truncate(flushEvery).Add(flushEvery)
	}
	return err
}

// decided is called before the moves of decisions are submitted.
func (w *world) decided(id store.BucketID, in *policy.Input, ds []policy.Decision) {
	w.t.decided(id, in, ds)
	w.mover.decided(id, in, ds)
	if w.observe != nil {
		w.observe(id, in, ds)
	}
}

// ranges are those of a bucket.
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
		w.t.finish(b.id, ranges, w.now)
	}
	return nil
}
