package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Maps is what a manager needs of a map client. In the embedded form it has to be
// the one that the process's clients use.
type Maps = executor.Maps

// Store is what a manager needs of a store.
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// DefaultBuckets is the default of Options.Buckets.
const DefaultBuckets = 128

// Options of a manager; the zero value is good.
type Options struct {
	// Buckets is how many buckets have moves under way at once, by default DefaultBuckets. While there are more they take turns. Most
	// of them wait for leases; in all of them together 32 ranges are copied, compared or removed at once, and 32 swept.
	Buckets int
	// RowsPerSecond is the most rows that are copied, compared and counted in a
	// second, in all buckets together; 0: as many as possible, without regard to
	// others. Below it the rate follows the store's latency.
	RowsPerSecond int
	// Executor are the options of each executor; its Pace and Observe are the
	// manager's.
	Executor executor.Options
	// Moved is called when a goal of a job begins or ends; nil: nothing is. It must not call the
	// scheduler.
	Moved func(j *Job, g *GoalState)
	// Logger is told what begins and ends, and what fails; none if nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Buckets <= 0 {
		o.Buckets = DefaultBuckets
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Scheduler moves the ranges of the buckets of a store, or of some shards of them. Its methods are safe for
// concurrent use; Run is for one goroutine at a time.
type Scheduler struct {
	store    Store
	maps     Maps
	o        Options
	busy     busy
	pace     *wait.Pacer
	counting *wait.Pacer // of recounts
	throttle throttle
	events   chan struct{} // has an element when there may be something to do
	news     chan struct{} // has an element when a term has begun

	gate *pause.Gate

	loop wait.While // beside all terms

	mu      sync.Mutex
	terms   [shard.Count]*term // nil: this process may not move the buckets of a shard
	fresh   shard.Set          // whose terms have begun since the scan looked for what others left
	lost    shard.Set          // that were led, and that another process may lead now
	buckets map[store.BucketID]*bucket
	pauses  pause.State // as it was looked at last
	jobs    Jobs
	lastJob uint64
	scanned Scan
	turns   int // how many buckets have their turn, at most Options.Buckets
	line    line
	// copies and sweeps are the ranges that are worked on.
	copies, sweeps room
}

// bucket is one with something to do, or with something left to collect.
type bucket struct {
	id store.BucketID
	x  *executor.Executor

	// Guarded by Scheduler.mu.
	wanted  bool // something is to be done, or may be
	running bool
	since   time.Time // when it was wanted first, or when its last turn ended
	// parked: nothing is in flight, and what is wanted can't begin since moves are paused.
	parked bool
	// again is not before then: after a failure, or while it is being deleted.
	again    time.Time
	failures int
	// failed are the last errors of its effects, by what was done, until it works.
	failed  map[string]Failure
	collect time.Time   // when to look again for what no map names; zero: nothing is
	pending []move.Goal // not given to the executor yet
	need    int         // rows per second, see KeepUp

	// Of the turn under way, or of Run before there is one.
	tidied time.Time // when it was tidied last; zero: not since it has had something to do
	listed bool      // this process has put it into the list of busy buckets, or found it there
}

const (
	// keepEpochs is how many replaced roots of each bucket are kept.
	keepEpochs = 100
	// tidyEvery is how often a bucket is tidied while it moves. So it keeps keepEpochs replaced roots and those of this
	// time, and its map nodes stay for CollectAfter and at most twice this time.
	tidyEvery = 10 * time.Minute
	// keepJobs is how many jobs that have ended are kept.
	keepJobs = 100
)

// clocksApart is how far the wall clocks of movers and of who paused them may differ: a
// pause that ends by itself ends so much later for a mover.
const clocksApart = time.Second

// New makes a manager. Nothing is read or written until Run.
func New(s Store, m Maps, o Options) *Scheduler {
	o = o.withDefaults()
	g := &Scheduler{
		store:    s,
		maps:     m,
		o:        o,
		busy:     busy{regs: s},
		pace:     wait.NewPacer(o.RowsPerSecond),
		counting: wait.NewPacer(CountedFor * o.RowsPerSecond),
		events:   make(chan struct{}, 1),
		news:     make(chan struct{}, 1),
		buckets:  map[store.BucketID]*bucket{},
	}
	g.gate = pause.NewGate(s, m, clocksApart, time.Now)
	g.throttle = throttle{pace: g.pace, most: o.RowsPerSecond, probe: g.probe, need: g.need}
	return g
}

// Run moves the ranges of all buckets until ctx ends, and returns then, when all that it did has ended. It may be
// called again: goals that were asked for are still wanted, unless the cause of the end was a Conflict, as of a lost
// lease.
func (g *Scheduler) Run(ctx context.Context) error { return g.RunShards(ctx, shard.All) }

func (g *Scheduler) tell() { wait.Signal(g.events) }

// want has a bucket looked at, while this process may move it.
func (g *Scheduler) want(id store.BucketID) {
	g.mu.Lock()
	if g.term(id) != nil {
		g.bucket(id).want()
	}
	g.mu.Unlock()
	g.tell()
}

// want has a bucket looked at. Scheduler.mu is held.
func (b *bucket) want() {
	if !b.wanted && !b.running {
		b.since = time.Now()
	}
	b.wanted = true
}

// bucket finds or makes a bucket. Scheduler.mu is held.
func (g *Scheduler) bucket(id store.BucketID) *bucket {
	b := g.buckets[id]
	if b == nil {
		b = &bucket{id: id, failed: map[string]Failure{}}
		o := g.o.Executor
		o.Pace, o.SweepPace, o.Gate = g.pace, g.counting, g.gate
		o.Observe = func(e executor.Event) { g.observe(b, e) }
		o.Room = func(ctx context.Context, sweep bool) (func(), error) { return g.room(ctx, b, sweep) }
		b.x = executor.New(g.store, g.maps, id, o)
		g.hold(b)
		g.buckets[id] = b
	}
	return b
}

// An executor judges all of its goals at each step, so it is given so many at once.
const goalsAtOnce = 256

// feed gives an executor more goals, and returns how many it has. Scheduler.mu is held.
func (b *bucket) feed() int {
	has := b.x.Status().Goals
	if has > goalsAtOnce/2 {
		return has
	}
	n := min(goalsAtOnce-has, len(b.pending))
	if n > 0 {
		b.x.Add(b.pending[:n]...)
		if b.pending = b.pending[n:]; len(b.pending) == 0 {
			b.pending = nil
		}
	}
	return has + n
}

// drop takes all goals away and returns them. Scheduler.mu is held.
func (b *bucket) drop() []move.Goal {
	all := append(b.x.Abort(), b.pending...)
	b.pending = nil
	return all
}

// idle is how long the manager sleeps when there is nothing to do.
const idle = time.Minute

// start gives turns to the buckets that wait for one, Options.Buckets at once, and says when to look again.
//
// While no bucket waits, a turn lasts as long as its bucket has goals, and the bucket's batches overlap. While some
// wait, a turn is one batch, of all goals that are ready: the buckets whose turn it is begin no other one, and the
// first whose batches are swept makes room. So a bucket begins to move within one batch of the others, however many
// goals they have.
//
// Which turn is next says line. The goals of a bucket come together while it waits, and begin as one batch.
//
// The next turn of a bucket begins with one more read of the root at SERIAL, which is little beside the swaps and waits
// of a batch. A turn that ends with goals left writes nothing: the bucket stays in the list of busy ones. What the map
// client and the executor know stays good, as it is known of an epoch, a batch or a node; and no wait is repeated, as
// nothing is in flight between turns. The price is that the batches of one bucket do not overlap while others wait: one
// that copies for long holds up the goals that come meanwhile.
func (g *Scheduler) start() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue, next := g.queue(time.Now())
	for len(queue) > 0 && g.turns < g.o.Buckets {
		at := g.line.next(len(queue), func(i int) int { return queue[i].need })
		b := queue[at]
		queue = slices.Delete(queue, at, at+1)
		b.running, b.wanted = true, false
		g.turns++
		t := g.terms[shard.Of(b.id)] // its context may have ended just now, but RunShards still waits for the lock
		t.work.Go(func() { g.work(t.ctx, b) })
	}
	for _, b := range g.buckets {
		if b.running {
			b.x.Yield(len(queue) > 0)
		}
	}
	return next // or when somebody tells that a turn has ended
}

// queue returns the buckets that wait for a turn, the one that has waited longest first, and how long it takes until
// another one may. It forgets the buckets that need nothing. Scheduler.mu is held.
func (g *Scheduler) queue(now time.Time) (queue []*bucket, next time.Duration) {
	next = idle
	for id, b := range g.buckets {
		due := b.collect
		if b.wanted {
			due = b.since
			if b.again.After(due) {
				due = b.again
			}
		}
		switch {
		case b.running || b.parked || g.term(id) == nil:
		case b.wanted || !b.collect.IsZero():
			if wait := due.Sub(now); wait > 0 {
				next = min(next, wait)
			} else {
				b.since = due
				queue = append(queue, b)
			}
		case len(b.failed) == 0:
			delete(g.buckets, id)
		}
	}
	slices.SortFunc(queue, func(a, b *bucket) int { return a.since.Compare(b.since) })
	return queue, next
}

// work is the turn of a bucket.
func (g *Scheduler) work(ctx context.Context, b *bucket) {
	left, err := g.move(ctx, b)
	var collect time.Time
	if err == nil && !left {
		collect = g.tidy(ctx, b)
		b.tidied = time.Time{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.tell()
	g.turns--
	b.running, b.since = false, time.Now()
	var paused *pause.Error
	switch {
	case ctx.Err() != nil:
		b.wanted = true // by the next run
	case errors.As(err, &paused):
		b.wanted, b.parked = true, true
		b.failures, b.again = 0, time.Time{}
		clear(b.failed)
	case err == nil:
		b.failures, b.again, b.collect = 0, time.Time{}, collect
		clear(b.failed)
		b.wanted = b.wanted || b.feed() > 0
	case store.KindOf(err) == store.Corrupt || errors.Is(err, partmap.ErrNewerVersion):
		// It does not mend by itself: nothing more is tried until somebody asks, or
		// the scan comes by.
		g.o.Logger.Error("a bucket's ranges can't be moved", "bucket", b.id.String(), "error", err)
		b.failed["move"] = g.failure(err)
		g.end(b.id, b.drop(), err)
		b.wanted = false
	default:
		const first, most = 50 * time.Millisecond, 10 * time.Second
		g.o.Logger.Warn("a bucket's moves have to wait", "bucket", b.id.String(), "error", err)
		b.failed["move"] = g.failure(err)
		b.again = time.Now().Add(min(first<<min(b.failures, 10), most))
		b.failures++
		b.wanted = true
	}
}

// move brings the moves of a bucket to their end. left: it has goals for another turn, as others wait.
func (g *Scheduler) move(ctx context.Context, b *bucket) (left bool, err error) {
	root, err := g.maps.Load(ctx, b.id)
	if err == nil && root.State == partmap.Deleted {
		err = store.Errorf(store.NotFound, "bucket %s is deleted", b.id)
	}
	if store.KindOf(err) == store.NotFound {
		g.mu.Lock()
		g.end(b.id, b.drop(), err)
		g.mu.Unlock()
		return false, g.list(ctx, b, false)
	}
	if err != nil {
		return false, err
	}
	if root.State == partmap.Open && len(root.Batches) == 0 && b.x.Status().Goals == 0 {
		if !b.listed {
			return false, nil // it is only to be tidied
		}
		return false, g.list(ctx, b, false)
	}
	if !b.listed {
		if err := g.list(ctx, b, true); err != nil {
			return false, err
		}
	}
	if err := g.tidying(ctx, b, b.x.Run); err != nil {
		return false, err
	}
	g.mu.Lock()
	left = b.feed() > 0
	g.mu.Unlock()
	if left {
		return true, nil
	}
	if root, err = g.maps.Load(ctx, b.id); err != nil {
		return false, err
	}
	if root.State == partmap.Closing {
		// Somebody deletes it, or left it behind: then it is opened again.
		return false, store.Errorf(
			store.Unavailable, "bucket %s is being deleted; it is opened again if that does not end within %v", b.id,
			move.ReopenAfter,
		)
	}
	return false, g.list(ctx, b, false)
}

// list puts a bucket into the list of busy ones, or takes it out.
func (g *Scheduler) list(ctx context.Context, b *bucket, busy bool) error {
	err := g.busy.set(ctx, b.id, busy)
	if err == nil {
		b.listed = busy
	}
	return err
}

// ends reports whether a bucket's term is about to end: what fails then is no failure. Scheduler.mu is held.
func (g *Scheduler) ends(id store.BucketID) bool {
	return g.terms[shard.Of(id)] != nil && g.term(id) == nil
}

// observe takes in what an executor tells.
func (g *Scheduler) observe(b *bucket, e executor.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch e.Kind {
	case executor.Did:
		key := e.Effect.Key()
		if e.Err == nil || store.KindOf(e.Err) == store.Conflict {
			delete(b.failed, key)
		} else if !g.ends(b.id) {
			b.failed[key] = g.failure(store.Wrap(e.Effect.String(), e.Err))
		}
		if e.Err == nil {
			g.o.Logger.Debug("did", "bucket", b.id.String(), "effect", e.Effect.String())
		}
	case executor.Looked:
		if e.Err == nil {
			delete(b.failed, "look")
		} else if !g.ends(b.id) {
			b.failed["look"] = g.failure(store.Wrap("look at the map", e.Err))
		}
	case executor.GoalBegun:
		g.goal(b.id, e.Goal, func(s *GoalState) { s.Stage, s.Batch = Begun, e.Batch })
	case executor.GoalMet:
		g.goal(b.id, e.Goal, func(s *GoalState) {
			s.Stage, s.Copied, s.verified, s.searched = Met, e.Rows.Copied, e.Rows.Compared, e.Rows.Searched
		})
		b.feed()
	case executor.GoalRefused:
		g.o.Logger.Warn("a goal was refused", "bucket", b.id.String(), "error", e.Err)
		g.goal(b.id, e.Goal, func(s *GoalState) { s.Stage, s.Err = Refused, e.Err })
		b.feed()
	}
}

// moving names the buckets on which work is under way.
func (g *Scheduler) moving() (ids []store.BucketID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, b := range g.buckets {
		if b.running {
			ids = append(ids, id)
		}
	}
	return ids
}

// KeepUp says how many rows per second have to be copied and compared for the moves of
// a bucket to keep up with what is written to it: they do not give way to others below
// that, as far as RowsPerSecond allows. It holds until it is said anew, or nothing is
// left to do in the bucket. Without it ranges would grow faster under a load that keeps
// the store busy than they could be cut.
func (g *Scheduler) KeepUp(id store.BucketID, rowsPerSecond int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.buckets[id]; b != nil {
		b.need = rowsPerSecond
	}
}

// need is that of all buckets on which work is under way.
func (g *Scheduler) need() (rowsPerSecond int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.buckets {
		if b.running {
			rowsPerSecond += b.need
		}
	}
	return rowsPerSecond
}

// probe does one small read, for its latency: the root of a bucket that moves.
func (g *Scheduler) probe(ctx context.Context) error {
	key := make([]byte, 16)
	if ids := g.moving(); len(ids) > 0 {
		id := ids[rand.N(len(ids))]
		key = id[:]
	}
	_, err := g.store.Read(ctx, store.Roots, key, store.Local)
	if store.KindOf(err) == store.NotFound {
		err = nil
	}
	return err
}

// Abort drops what was asked for and has not begun, of a bucket or with nil of all,
// and returns how many goals that were. What has begun only goes forward.
func (g *Scheduler) Abort(id *store.BucketID) (dropped int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.buckets {
		if id != nil && b.id != *id {
			continue
		}
		for _, goal := range b.drop() {
			begun := false
			g.goal(b.id, &goal, func(s *GoalState) {
				if begun = begun || s.Stage == Begun; s.Stage == Waiting {
					s.Stage = Dropped
				}
			})
			if begun {
				b.x.Add(goal) // its end is still to be told
			} else {
				dropped++
			}
		}
	}
	return dropped
}

// Failure is an error and when it happened.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

func (g *Scheduler) failure(err error) Failure { return Failure{At: time.Now(), Error: err.Error()} }

// Status of a manager.
type Status struct {
	// Running: this process moves ranges at present.
	Running bool
	// Rate is the rows per second at present, MostRate what they may be; 0: any.
	Rate, MostRate int
	Buckets        []BucketStatus
	Jobs           []Job
	Scan           Scan
}

// BucketStatus is a bucket with something to do.
type BucketStatus struct {
	ID store.BucketID
	executor.Status
	// Running: work is under way. If it is not, and it is not Paused, it waits for others,
	// or for Again after a failure. Paused: nothing of it may begin.
	Running bool
	Paused  bool
	Again   time.Time
	// Failures of what is tried again, the newest first.
	Failures []Failure
}

// Status tells what is going on. Buckets are in the order of their ids, jobs from
// the oldest.
func (g *Scheduler) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{Rate: g.pace.Rate(), MostRate: g.o.RowsPerSecond, Scan: g.scanned}
	s.Running = g.terms != [shard.Count]*term{}
	for id, b := range g.buckets {
		if !b.running && !b.wanted && len(b.failed) == 0 {
			continue // it only has something to collect
		}
		x := BucketStatus{ID: id, Status: b.x.Status(), Running: b.running, Again: b.again}
		_, x.Paused = g.gate.Paused(&g.pauses, id)
		x.Goals += len(b.pending)
		for _, f := range b.failed {
			x.Failures = append(x.Failures, f)
		}
		slices.SortFunc(x.Failures, func(a, b Failure) int { return b.At.Compare(a.At) })
		s.Buckets = append(s.Buckets, x)
	}
	slices.SortFunc(s.Buckets, func(a, b BucketStatus) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for _, j := range g.jobs {
		s.Jobs = append(s.Jobs, g.snapshot(j))
	}
	return s
}
