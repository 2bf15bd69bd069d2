package executor

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/base/wait"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Maps is what an executor needs of a map client. In the embedded form it has to
// be the one that the process's clients use, or their leases are not waited for.
type Maps interface {
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Swap(ctx context.Context, change partmap.Change) error
	Wait(ctx context.Context, id store.BucketID) error
	Stamp() partmap.Stamp
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
	RangeBefore(ctx context.Context, r *partmap.Root, cut []byte) (partmap.Range, bool, error)
	Above(ctx context.Context) (store.Timestamp, error)
}

// Store is what an executor needs of a store beside the map. Rows are read and
// written everywhere (see store.Everywhere).
type Store interface {
	store.Rows
	store.Nodes
}

// Options of an executor; the zero value is good.
type Options struct {
	// Pace holds the rows that are copied and compared to a number per second, SweepPace
	// those that are swept over; executors may share them. nil: as many as possible, and
	// for sweeps the same Pace.
	Pace, SweepPace *wait.Pacer
	// Parallel is how many ranges are worked on at once, default 4.
	Parallel int
	// Writers is how many batches of one range are written at once; default 4, and 2
	// while Pace takes any number of rows.
	Writers int
	// PageRows is how many rows one read asks for, default 1,000.
	PageRows int
	// BatchRows is how many rows one write takes, at most 500; default 200, and 500
	// while Pace takes any number of rows.
	BatchRows int
	// WriteTimeout is how long after it was read a row may be written; later it
	// is read again. Default 10 s.
	WriteTimeout time.Duration
	// CollectAfter is how long map nodes stay for readers once no root names
	// them, default 1 h.
	CollectAfter time.Duration
	// MaxBatches and MaxRanges are move.Input's.
	MaxBatches, MaxRanges int
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
	// Gate is what moves begin through; nil: they are never paused.
	Gate *pause.Gate
	// NewID draws partition ids; uuid.New if nil.
	NewID func() uuid.UUID
	// Observe is told of each event, from several goroutines; it must not block.
	Observe func(Event)
	// Failpoint is called at each named point (see Failpoints). An error ends the
	// executor as if it had been killed there: Run returns it, and what was under
	// way is left as it is. detail tells apart what may run at the same time. For
	// tests.
	Failpoint func(ctx context.Context, point, detail string) error
}

func (o Options) withDefaults() Options {
	preset := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}
	preset(&o.Parallel, 4)
	preset(&o.PageRows, 1000)
	o.PageRows = min(o.PageRows, store.MaxPageRows)
	o.BatchRows = min(o.BatchRows, maxBatchRows)
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.CollectAfter <= 0 {
		o.CollectAfter = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.New
	}
	if o.Pace == nil {
		o.Pace = wait.NewPacer(0)
	}
	if o.SweepPace == nil {
		o.SweepPace = o.Pace
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Failpoint == nil {
		o.Failpoint = func(context.Context, string, string) error { return nil }
	}
	return o
}

// Executor moves the ranges of one bucket. Its methods are safe for concurrent
// use; Run is for one goroutine at a time.
type Executor struct {
	store  Store
	rows   store.Rows // everywhere
	maps   Maps
	bucket store.BucketID
	o      Options

	slots   chan struct{} // one per range worked on
	sweeps  chan struct{} // one per range that is swept: those don't wait behind long copies
	unnamed move.Unnamed

	mu      sync.Mutex
	goals   []move.Goal
	held    *pause.Pause  // under which nothing may begin; nil: there is none
	news    chan struct{} // has an element when goals or held have changed
	seen    map[string]store.Timestamp
	unsure  map[string]map[string]store.Timestamp // copies of unknown outcome: by range, then by key
	status  Status                                // but for what is counted elsewhere
	batches map[uint64]*progress                  // of those in flight
	total   progress
}

// New makes an executor for a bucket. It does nothing until Run.
func New(s Store, m Maps, bucket store.BucketID, o Options) *Executor {
	o = o.withDefaults()
	return &Executor{
		store:  s,
		rows:   store.Everywhere(s),
		maps:   m,
		bucket: bucket,
		o:      o,
		slots:  make(chan struct{}, o.Parallel),
		sweeps: make(chan struct{}, o.Parallel),
		news:   make(chan struct{}, 1),
		seen:   map[string]store.Timestamp{},
		unsure: map[string]map[string]store.Timestamp{},

		batches: map[uint64]*progress{},
	}
}

// Add asks for goals. Those that are met already, or that the map makes
// impossible, end with an event only.
func (x *Executor) Add(goals ...move.Goal) {
	x.mu.Lock()
	x.goals = append(x.goals, goals...)
	x.mu.Unlock()
	x.tell()
}

// Abort drops all goals whose moves have not begun, and returns them. What has
// begun only goes forward.
func (x *Executor) Abort() []move.Goal {
	x.mu.Lock()
	defer x.mu.Unlock()
	dropped := x.goals
	x.goals = nil
	return dropped
}

// Hold says under which pause moves are, nil for none: nothing begins then, and what has
// begun goes on to its end.
func (x *Executor) Hold(p *pause.Pause) {
	x.mu.Lock()
	changed := (x.held == nil) != (p == nil)
	x.held = p
	x.mu.Unlock()
	if changed {
		x.tell()
	}
}

func (x *Executor) tell() {
	select {
	case x.news <- struct{}{}:
	default:
	}
}

// wanted returns the goals, and the pause under which nothing may begin.
func (x *Executor) wanted() ([]move.Goal, *pause.Pause) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.goals), x.held
}

// drop forgets goals that have come to an end, one way or the other.
func (x *Executor) drop(ended func(g *move.Goal) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goals = slices.DeleteFunc(x.goals, func(g move.Goal) bool { return ended(&g) })
}
