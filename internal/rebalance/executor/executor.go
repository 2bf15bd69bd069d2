package executor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Maps is what an executor needs of a map client. In the embedded form it must be the
// client that all of the process uses: the executor waits for the leases of that one only.
type Maps interface {
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	// Look returns the root that this data centre or this process knows; it may not be the newest one.
	Look(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Wait(ctx context.Context, id store.BucketID) error
	Stamp() partmap.Stamp
	// LeavesNotes reports whether all movers of the store know notes.
	LeavesNotes() bool
	move.Maps
	Above(ctx context.Context) (store.Timestamp, error)
}

// Store is what else an executor needs of a store. It reads and writes rows everywhere (see
// store.Everywhere).
type Store interface {
	store.Rows
	store.Nodes
}

// Options of an executor. Zero values are the defaults.
type Options struct {
	// Pace limits the rows copied and compared, SweepPace the rows that sweeps read.
	// Executors may share them. nil: no limit, and for SweepPace the same as Pace.
	Pace, SweepPace *wait.Pacer
	// Parallel is the number of ranges worked on at once, default 4.
	Parallel int
	// Room is asked before a range is worked on, and returns when it may be; end tells that the work has ended. Sweeps
	// have room of their own. It fails if ctx ends. nil: there is always room.
	Room func(ctx context.Context, sweep bool) (end func(), err error)
	// Writers is the number of batches of one range written at once; default 4, and 2
	// while Pace has no limit.
	Writers int
	// PageRows is the number of rows of one read, default 1,000.
	PageRows int
	// BatchRows is the number of rows of one write, at most 500; default 200, and 500 while
	// Pace has no limit.
	BatchRows int
	// WriteTimeout is how long after its read a row may be written; later it is read
	// again. Default 10 s.
	WriteTimeout time.Duration
	// CollectAfter is how long map nodes stay once no root names them, for readers of
	// older maps. Default 1 h.
	CollectAfter time.Duration
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
	// Gate is asked before moves begin; nil: they are never paused.
	Gate *pause.Gate
	// NewID draws partition ids; uuid.New if nil.
	NewID func() uuid.UUID
	// Observe gets each event, from several goroutines; it must not block.
	Observe func(Event)
	// Failpoint is for tests. It is called at each named point; detail
	// distinguishes effects that run at once, on goroutines of their own. An error ends the executor as if it
	// had been killed there: Run returns it and leaves everything as it is.
	Failpoint func(ctx context.Context, point, detail string) error
}

func (o Options) withDefaults() Options {
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.PageRows = min(cmp.Or(o.PageRows, 1000), store.MaxPageRows)
	o.BatchRows = min(o.BatchRows, maxBatchRows)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.CollectAfter = cmp.Or(o.CollectAfter, time.Hour)
	o.Pace = cmp.Or(o.Pace, wait.NewPacer(0))
	o.SweepPace = cmp.Or(o.SweepPace, o.Pace)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.New
	}
	if o.Room == nil {
		o.Room = func(context.Context, bool) (func(), error) { return func() {}, nil }
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Failpoint == nil {
		o.Failpoint = func(context.Context, string, string) error { return nil }
	}
	return o
}

// Executor moves the ranges of one bucket. Its methods are safe for concurrent use; Run is
// for one goroutine at a time.
type Executor struct {
	store  Store
	rows   store.Rows // everywhere, without notes
	maps   Maps
	bucket store.BucketID
	o      Options

	slots   chan struct{} // one per range worked on
	sweeps  chan struct{} // one per range swept: sweeps don't wait for long copies
	unnamed move.Unnamed

	mu      sync.Mutex
	goals   []move.Goal
	held    *pause.Pause                          // nothing may begin under it; nil for none
	yields  bool                                  // a Run begins no batch after its first one
	news    chan struct{}                         // has an element when goals, held or yields changed
	seen    map[string]store.Timestamp            // highest timestamps of ranges that were compared
	unsure  map[string]map[string]store.Timestamp // copies of unknown outcome: by range, then by key
	status  Status                                // without the counts
	batches map[uint64]*Progress                  // of batches in flight
	begun   []begun                               // goals in flight
	total   Progress
}

// New makes an executor for a bucket. It does nothing before Run.
func New(s Store, m Maps, bucket store.BucketID, o Options) *Executor {
	o = o.withDefaults()
	return &Executor{
		store:   s,
		rows:    WithoutNotes(store.Everywhere(s)),
		maps:    m,
		bucket:  bucket,
		o:       o,
		slots:   make(chan struct{}, o.Parallel),
		sweeps:  make(chan struct{}, o.Parallel),
		news:    make(chan struct{}, 1),
		seen:    map[string]store.Timestamp{},
		unsure:  map[string]map[string]store.Timestamp{},
		batches: map[uint64]*Progress{},
	}
}

// Add adds goals. Those that are met already, or impossible on the map, only end with an
// event.
func (x *Executor) Add(goals ...move.Goal) {
	x.mu.Lock()
	x.goals = append(x.goals, goals...)
	x.mu.Unlock()
	wait.Signal(x.news)
}

// Abort drops all goals whose moves have not begun, and returns them. Moves in flight go on.
func (x *Executor) Abort() []move.Goal {
	x.mu.Lock()
	defer x.mu.Unlock()
	dropped := x.goals
	x.goals = nil
	return dropped
}

// Hold sets the pause, nil for none. Under a pause no move begins; moves in flight go on.
func (x *Executor) Hold(p *pause.Pause) {
	x.mu.Lock()
	changed := (x.held == nil) != (p == nil)
	x.held = p
	x.mu.Unlock()
	if changed {
		wait.Signal(x.news)
	}
}

// Yield says whether others wait for Run to end. While they do, a Run that has begun a batch begins no other one, and
// returns when nothing is in flight. The goals that are left wait for the next Run. A Run that has begun nothing yet
// begins one batch all the same: so every Run gets something done.
func (x *Executor) Yield(on bool) {
	x.mu.Lock()
	changed := x.yields != on
	x.yields = on
	x.mu.Unlock()
	if changed {
		wait.Signal(x.news)
	}
}

// wanted returns the goals, the pause, and what Yield said.
func (x *Executor) wanted() (goals []move.Goal, held *pause.Pause, yields bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.goals), x.held, x.yields
}

// drop forgets goals that have ended.
func (x *Executor) drop(ended func(g *move.Goal) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goals = slices.DeleteFunc(x.goals, func(g move.Goal) bool { return ended(&g) })
}
