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
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Maps is the part of a client of partition maps that an executor uses. It reads and changes the maps, which say in
// which partition each key lies. In the embedded form, Maps must be the client that the whole process uses, because the
// executor waits only for the leases of this client.
type Maps interface {
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	// Look returns a root that this data centre or this process knows, which may be out of date. Load returns the
	// newest root.
	Look(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Wait(ctx context.Context, id store.BucketID) error
	Stamp() partmap.Stamp
	// LeavesNotes reports whether all programs that move ranges of the store know notes, which are rows that say where
	// moved rows are. Only then notes may be written.
	LeavesNotes() bool
	move.Maps
	Above(ctx context.Context) (store.Timestamp, error)
}

// Store is the part of a store that an executor uses: rows, and the nodes of maps. The executor reads and writes rows
// at the widest consistency of the store (see storekit.Everywhere).
type Store interface {
	store.Rows
	store.Nodes
}

// Options are the settings of an executor, which moves ranges of keys to other partitions: rates, concurrency and batch
// sizes. Zero values stand for the defaults.
type Options struct {
	// Pace limits the rows copied and compared per second; nil means no limit. SweepPace limits the rows per second
	// that are read in the search for deletion markers (sweeps); nil means that Pace limits them. Executors may share
	// both.
	Pace, SweepPace *wait.Pacer
	// Parallel is the maximum number of ranges that are copied, compared or removed at once, 4 by default. The same
	// number of ranges may be swept (searched for deletion markers) at once.
	Parallel int
	// Room limits the work of all executors of a process together. An executor calls Room before it works on a range,
	// and begins when Room returns. It calls the result `end` when the work has ended. The argument sweep is true for a
	// search for deletion markers, which has a limit of its own. Room fails if ctx ends. If Room is nil, there is no
	// limit.
	Room func(ctx context.Context, sweep bool) (end func(), err error)
	// Writers is the number of writes of one range that run at once. The default is 4, and 2 while Pace has no limit.
	Writers int
	// PageRows is the number of rows of one read. The default is 1,000, the maximum store.MaxPageRows.
	PageRows int
	// BatchRows is the number of rows of one write, at most 500. The default is 200, and 500 while Pace has no limit.
	BatchRows int
	// WriteTimeout is the maximum time from the read of a row to its write. A row that is not written in that time is
	// read again. The default is 10 s.
	WriteTimeout time.Duration
	// CollectAfter is the time for which map nodes stay stored after no root names them, for readers of older maps. The
	// default is 1 h.
	CollectAfter time.Duration
	// Now returns the wall clock; time.Now if nil.
	Now func() time.Time
	// Gate is asked before moves begin; while moves are paused, it forbids them. If Gate is nil, moves are never
	// paused.
	Gate *pause.Gate
	// NewID returns a new random id for a partition. If NewID is nil, uuid.New is used.
	NewID func() uuid.UUID
	// Observe is called with each event, such as the end of a step, from several goroutines. It must not block.
	Observe func(Event)
	// Failpoint is for tests. It is called at each named point of the executor's work. The argument detail
	// distinguishes steps that run concurrently. If it returns an error, Run stops at that point, as if the process had
	// been killed, and returns the error.
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

// Executor carries out the moves of the ranges of one bucket: it copies rows to new partitions, and changes the
// bucket's partition map. The methods are safe for concurrent use, but only one goroutine at a time may call Run.
type Executor struct {
	store  Store
	rows   store.Rows // rows everywhere, without notes
	maps   Maps
	bucket store.BucketID
	o      Options

	slots   chan struct{} // one element per range worked on
	sweeps  chan struct{} // one element per range swept: sweeps don't wait for long copies
	unnamed move.Unnamed

	mu      sync.Mutex
	goals   []move.Goal
	held    *pause.Pause                          // no move may begin during this pause; nil: no pause
	yields  bool                                  // a Run begins no batch after its first one
	news    chan struct{}                         // has an element when goals, held or yields changed
	seen    map[string]store.Timestamp            // highest timestamp of each range that was compared
	unsure  map[string]map[string]store.Timestamp // copies of unknown outcome: by range, then by key
	status  Status                                // without the counts
	batches map[uint64]*Progress                  // progress of the batches in flight
	begun   []begun                               // goals in flight
	total   Progress
}

// New returns an executor for the moves of one bucket. The executor does nothing before Run is called.
func New(s Store, m Maps, bucket store.BucketID, o Options) *Executor {
	o = o.withDefaults()
	return &Executor{
		store:   s,
		rows:    WithoutNotes(storekit.Everywhere(s)),
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

// Add gives Run more goals to fulfil. A goal is one wanted change of the bucket's ranges, such as a split. If a goal is
// met already, or cannot be met, no rows move for it. An event reports the end of each goal.
func (x *Executor) Add(goals ...move.Goal) {
	x.mu.Lock()
	x.goals = append(x.goals, goals...)
	x.mu.Unlock()
	wait.Signal(x.news)
}

// Abort drops and returns all goals whose moves have not begun. A goal is one wanted change of the bucket's ranges,
// such as a split. Moves that have begun go on.
func (x *Executor) Abort() []move.Goal {
	x.mu.Lock()
	defer x.mu.Unlock()
	dropped := x.goals
	x.goals = nil
	return dropped
}

// Hold pauses the moves of the bucket for the pause p, or ends the pause if p is nil. During a pause no move begins,
// but moves that have begun go on.
func (x *Executor) Hold(p *pause.Pause) {
	x.mu.Lock()
	changed := (x.held == nil) != (p == nil)
	x.held = p
	x.mu.Unlock()
	if changed {
		wait.Signal(x.news)
	}
}

// Yield tells the executor whether other buckets wait for the end of Run. While on is true, a call of Run begins only
// one group of moves, and returns when these moves have ended. The other goals wait for the next Run.
func (x *Executor) Yield(on bool) {
	// The first batch lets every Run make progress.
	x.mu.Lock()
	changed := x.yields != on
	x.yields = on
	x.mu.Unlock()
	if changed {
		wait.Signal(x.news)
	}
}

// wanted returns what callers have asked for. The results are:
//   - goals: the wanted changes of ranges
//   - held: the pause, or nil if moves are not paused
//   - yields: true if Run should end soon because other buckets wait
func (x *Executor) wanted() (goals []move.Goal, held *pause.Pause, yields bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.goals), x.held, x.yields
}

// drop removes the goals (wanted changes of ranges) for which the function ended returns true.
func (x *Executor) drop(ended func(g *move.Goal) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goals = slices.DeleteFunc(x.goals, func(g move.Goal) bool { return ended(&g) })
}
