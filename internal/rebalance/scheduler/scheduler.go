package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Maps is the interface through which a scheduler reads and changes the maps of buckets, which list the bucket's ranges
// and their partitions. In the embedded form it must be the client that the whole process uses.
type Maps = executor.Maps

// Store is the part of a store that a scheduler uses: the rows of partitions, registers such as the list of buckets
// with moves, and the nodes of maps.
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// DefaultBuckets is the default of Options.Buckets, which is the maximum number of buckets that move at the same time.
const DefaultBuckets = 128

// Options are the settings of a scheduler, e.g. the maximum number of rows moved per second. The zero value moves up to
// 128 buckets at the same time, without a maximum rate.
type Options struct {
	// Buckets is the maximum number of buckets that move at the same time. The default is 128 (DefaultBuckets). Other
	// buckets with moves wait and take turns. Most buckets that move wait for leases. In all buckets together, at most
	// 32 ranges are copied, compared or removed at the same time, and at most 32 are cleaned of markers.
	Buckets int
	// RowsPerSecond is the maximum number of rows that are copied, compared and counted per second, in all buckets
	// together. The rate is lowered while the store is slow. If RowsPerSecond is 0, there is no limit, and moves are
	// not slowed down for other load.
	RowsPerSecond int
	// Executor has the options of the executors, each of which carries out the moves of one bucket. The scheduler sets
	// the fields Pace, SweepPace, Gate, Room and Observe itself.
	Executor executor.Options
	// Moved is called when a goal of a job, which is one wanted change of ranges, begins or ends. Moved must not call
	// the scheduler. If Moved is nil, there are no calls.
	Moved func(j *Job, g *GoalState)
	// Logger logs failures, refused moves and, at the debug level, each step of a move. If Logger is nil, nothing is
	// logged.
	Logger *slog.Logger
}

// withDefaults returns a copy of the options with the defaults of Buckets and Logger, if these are not set.
func (o Options) withDefaults() Options {
	if o.Buckets <= 0 {
		o.Buckets = DefaultBuckets
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Scheduler moves the ranges of the buckets of a store between partitions, for all buckets or for some groups of
// buckets (shards). The methods of a Scheduler are safe for concurrent use, except that only one goroutine at a time
// may call Run.
type Scheduler struct {
	store    Store
	maps     Maps
	o        Options
	busy     busy
	pace     *wait.Pacer
	counting *wait.Pacer // the pace of recounts and sweeps
	throttle throttle
	events   chan struct{} // has an element when there may be something to do
	news     chan struct{} // has an element when this process has got new shards

	gate *pause.Gate

	// loop runs the shared work while this process moves at least one shard.
	loop wait.While // beside all terms

	mu      sync.Mutex
	terms   [shard.Count]*term // nil if this process may not move the buckets of the shard
	fresh   shard.Set          // shards whose terms have begun since the last scan for unfinished moves
	lost    shard.Set          // shards that this process led, and that another process may lead now
	buckets map[store.BucketID]*bucket
	pauses  pause.State // as last read from the store
	jobs    Jobs
	lastJob uint64
	scanned Scan
	turns   int // number of buckets that have their turn, at most Options.Buckets
	line    line
	// copies has the ranges that are copied, compared or removed at present. sweeps has the ranges whose leftover
	// markers are deleted.
	copies, sweeps room
}

// bucket is the scheduler's entry for a bucket that has moves to make, or unused map nodes to delete.
type bucket struct {
	id store.BucketID
	x  *executor.Executor

	// The fields from wanted to need are guarded by Scheduler.mu.
	wanted  bool // the bucket has work, or may have
	running bool
	since   time.Time // when it became wanted, or when its last turn ended
	// parked is true if no move of the bucket is under way, and its next moves can't begin because moves are paused.
	parked bool
	// again is the earliest time at which the bucket may move again, after a failure or while the bucket is being
	// deleted.
	again    time.Time
	failures int
	// failed has the last error of each step of a move that failed. A success of the same step removes the error.
	failed  map[string]Failure
	collect time.Time   // when to delete unused map nodes again, zero if none are left
	pending []move.Goal // wanted changes that the executor has not got yet
	need    int         // rows per second, see KeepUp

	// The fields tidied and listed belong to the goroutine that moves the bucket now, or to RunShards before there is
	// one.
	tidied time.Time // when unused map nodes were last deleted, zero if not since the bucket got work
	listed bool      // the list of busy buckets has it: this process added or found it there
}

const (
	// keepEpochs is the number of replaced roots that are kept of each bucket's map.
	keepEpochs = 100
	// tidyEvery is the time between two deletions of the old roots and the unused map nodes of a bucket that moves.
	// Such a bucket keeps 100 replaced roots (keepEpochs) and those of this time. Its unused map nodes stay for
	// CollectAfter and at most twice this time.
	tidyEvery = 10 * time.Minute
	// keepJobs is the number of ended jobs (groups of moves) that are remembered.
	keepJobs = 100
)

// clocksApart is the maximum difference between the wall clocks of two processes: the one that moves rows, and the one
// that has paused the moves. Moves wait that much longer than the pause.
const clocksApart = time.Second

// New returns a scheduler for the buckets of the store s, whose maps are read and changed through m. The scheduler
// reads and writes nothing until Run is called.
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

// Run moves the ranges of all buckets until ctx ends, and returns when all its work has ended. Run may be called again:
// moves that were submitted and have not begun are still wanted. If the cause of the end was a Conflict, such as a lost
// lease, these moves are given up.
func (g *Scheduler) Run(ctx context.Context) error { return g.RunShards(ctx, shard.All) }

// tell wakes the loop of Run, because a bucket may have something to do.
func (g *Scheduler) tell() { wait.Signal(g.events) }

// want queues a bucket, so that its ranges are moved. If another process moves the bucket, want does nothing.
func (g *Scheduler) want(id store.BucketID) {
	g.mu.Lock()
	if g.term(id) != nil {
		g.bucket(id).want()
	}
	g.mu.Unlock()
	g.tell()
}

// want queues the bucket, so that its ranges are moved when fewer other buckets move. The caller holds Scheduler.mu.
func (b *bucket) want() {
	if !b.wanted && !b.running {
		b.since = time.Now()
	}
	b.wanted = true
}

// bucket returns the scheduler's entry for a bucket. If there is no entry, bucket makes one. The caller holds
// Scheduler.mu.
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

// goalsAtOnce is the maximum number of goals, which are wanted changes of a bucket's ranges, that an executor has at a
// time. The number is limited because an executor checks all its goals at each step.
const goalsAtOnce = 256

// feed gives waiting goals, which are wanted changes of the bucket's ranges, to the executor that carries them out. The
// result is the number of goals that the executor has afterwards. The caller holds Scheduler.mu.
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

// drop removes all goals, which are wanted changes of the bucket's ranges, that have not begun, and returns them. The
// caller holds Scheduler.mu.
func (b *bucket) drop() []move.Goal {
	all := append(b.x.Abort(), b.pending...)
	b.pending = nil
	return all
}

// idle is the longest time for which the loop of Run sleeps if no bucket has anything to do.
const idle = time.Minute

// start lets waiting buckets move, up to Options.Buckets at a time. The result is the time after which to call start
// again. While other buckets wait, a bucket stops after one batch, which is a group of moves that begin together.
// Otherwise it goes on until it has no goals (wanted changes of its ranges) left.
func (g *Scheduler) start() time.Duration {
	// The time in which a bucket moves is its turn. While no bucket waits, the batches of the bucket overlap. While
	// buckets wait, the bucket begins no other batch, and its turn ends when its batches are swept. The order of turns
	// is that of line. The goals of a bucket come together while the bucket waits, and begin as one batch.
	//
	// The next turn of a bucket begins with one more read of the root at SERIAL, which is little beside the swaps and
	// waits of a batch. A turn that ends with goals left writes nothing: the bucket stays in the list of busy ones. The
	// knowledge of the map client and the executor stays valid, as it is about an epoch, a batch or a node. No wait is
	// repeated, as nothing is in flight between turns. The price is that the batches of one bucket do not overlap while
	// others wait: a batch that copies for long holds up the goals that come meanwhile.
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
	return next // the end of a turn wakes the loop earlier
}

// queue returns the buckets that wait to move, beginning with the bucket that has waited longest. The result next is
// the time until another bucket may join them. Buckets that need nothing are forgotten. The caller holds Scheduler.mu.
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

// work moves ranges of bucket b and records the result. If no moves are left to make, work also deletes old roots and
// unused map nodes of the bucket.
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
	case store.KindOf(err) == store.Corrupt || errors.Is(err, mapcodec.ErrNewerVersion):
		// A retry does not help. Nothing more is tried until an operator asks for it, or the scan finds the bucket.
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

// move carries out the moves of bucket b. If other buckets wait, move ends early. The result `left` is true if the
// bucket still has moves to make.
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
			return false, nil // the bucket is only to be tidied
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
		// The deletion goes on, or was left unfinished: then the bucket is opened again.
		return false, store.Errorf(
			store.Unavailable, "bucket %s is being deleted; it is opened again if that does not end within %v", b.id,
			move.ReopenAfter,
		)
	}
	return false, g.list(ctx, b, false)
}

// list changes the stored list of buckets that may have a move under way. If busy is true, it adds bucket b to the
// list. If busy is false, it removes the bucket.
func (g *Scheduler) list(ctx context.Context, b *bucket, busy bool) error {
	err := g.busy.set(ctx, b.id, busy)
	if err == nil {
		b.listed = busy
	}
	return err
}

// ends reports whether this process is about to stop moving a bucket. In that case, errors of the bucket's moves do not
// count as failures. The caller holds Scheduler.mu.
func (g *Scheduler) ends(id store.BucketID) bool {
	return g.terms[shard.Of(id)] != nil && g.term(id) == nil
}

// observe records an event that the executor of bucket b reports, such as the end of a move, in the jobs and failures
// of the bucket.
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

// moving returns the ids of the buckets whose rows are being moved now.
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

// KeepUp sets the least rate at which rows of a bucket are moved, in rows copied and compared per second. Moves are not
// slowed down below this rate, but Options.RowsPerSecond still limits them. The rate lasts until the next call, or
// until the bucket has nothing left to do.
func (g *Scheduler) KeepUp(id store.BucketID, rowsPerSecond int) {
	// Without the rate, ranges under a load that keeps the store busy would grow faster than they are split.
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.buckets[id]; b != nil {
		b.need = rowsPerSecond
	}
}

// need returns the number of rows per second that must be moved so that moves keep up with writes. The number is the
// sum of the rates that KeepUp has set for the buckets that move now.
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

// probe makes one small read of the store, so that the throttle can measure how long the read takes. probe reads the
// root of the map of a bucket that moves, chosen at random.
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

// Abort gives up the moves that were submitted and have not begun. id is the bucket whose moves are given up, or nil
// for all buckets. The result is the number of moves given up. Moves that have begun go on to their end.
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
				b.x.Add(goal) // the executor still has to report its end
			} else {
				dropped++
			}
		}
	}
	return dropped
}

// Failure is the text of an error that a move met, and the time of the error.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// failure returns the text of the error err with the present time.
func (g *Scheduler) failure(err error) Failure { return Failure{At: time.Now(), Error: err.Error()} }

// Status is the state of a scheduler: whether it runs, its rate of moves, its buckets and its jobs.
type Status struct {
	// Running is true while this process may move the ranges of at least one bucket.
	Running bool
	// Rate is the present maximum number of rows moved per second, and MostRate is the highest value that Rate can
	// have. 0 means no limit.
	Rate, MostRate int
	Buckets        []BucketStatus
	Jobs           []Job
	Scan           Scan
}

// BucketStatus is the state of a bucket that has moves to make, or other work such as failed steps to repeat.
type BucketStatus struct {
	ID store.BucketID
	executor.Status
	// Running is true while the bucket moves. A bucket that does not move waits for other buckets, or for the time
	// Again after a failure, or until its moves are no longer paused. Paused is true if no move of the bucket may
	// begin.
	Running bool
	Paused  bool
	Again   time.Time
	// Failures are the errors of steps that are tried again, the newest error first.
	Failures []Failure
}

// Status returns the state of the scheduler. The buckets are in the order of their ids, and the jobs are ordered from
// the oldest to the newest.
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
