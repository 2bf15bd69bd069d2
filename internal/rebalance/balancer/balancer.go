package balancer

import (
	"context"
	"iter"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Store is what a balancer reads.
type Store interface {
	counter.Slicer
	Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error)
}

// Maps is the interface through which a balancer reads maps. A look uses the root that this data centre has (Look).
// Moves are decided by the newest root (Load).
type Maps interface {
	Look(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
}

// Mover carries out what a balancer decides, like scheduler.Scheduler.
type Mover interface {
	// Submit requests moves.
	Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job
	// Job returns their state; false: it is no longer known.
	Job(id string) (scheduler.Job, bool)
	// Held reports whether nothing must be decided about a bucket now.
	Held(id store.BucketID) bool
	// InFlight returns how many partitions take part in moves, and how many rows are still to be copied, in all
	// buckets.
	InFlight() (moves int, rows int64)
	// KeepUp sets how many rows per second the moves of a bucket need: they are not slowed down below that.
	KeepUp(id store.BucketID, rowsPerSecond int)
	// Pace waits until so many rows may be counted.
	Pace(ctx context.Context, rows int) error
}

// Balancer keeps the buckets of a store in shape. Its methods are safe for concurrent use; Run is for one goroutine at
// a time.
type Balancer struct {
	store  Store
	maps   Maps
	mover  Mover
	counts counter.Backend
	o      Options

	// counted are recounts, whose quanta are the places where a range can be cut.
	counted *lru.Cache[store.PartitionID, *counter.Count]
	// explained are the last decisions about buckets.
	explained *lru.Cache[store.BucketID, []Explained]
	// seen are buckets that were looked at.
	seen   *lru.Cache[store.BucketID, sighting]
	queue  queue
	agenda *agenda
	places places
	// small remembers since when ranges are small.
	small *lru.Cache[beginning, few]
	// tails are ranges that are appended to. ageing says which sizes are to be confirmed; it is used while deciding is
	// held.
	tails  *lru.Cache[store.BucketID, []tail]
	ageing ageing
	// tick is the time of the last interval, of turn only; back is when the counters came back.
	tick, back time.Time
	// led are the shards at the last turn, and anew is whether everything is to be looked at since they are others; of
	// turn only.
	led  shard.Set
	anew bool
	// deciding is held from the moment at which it is known what is in flight until what is decided is.
	deciding sync.Mutex

	mu    sync.Mutex
	scan  scan
	jobs  map[string]*job
	state Status
	round Round // the present one
	why   map[store.PartitionID]Reason
	mark  uint64
	gone  []store.Partition // to be forgotten by the counters
}

// sighting is a look at a bucket.
type sighting struct {
	traffic float64   // reads and writes per second
	whole   time.Time // when all ranges were looked at last
	blank   bool      // nothing had been put into it yet
	begun   time.Time // when something had been for the first time; zero: long ago
	spread  bool      // a range grows all over
}

// job is what was submitted to the mover.
type job struct {
	bucket store.BucketID
	moves  []submitted
}

// submitted is one move of a job.
type submitted struct {
	kind    policy.Kind
	leaving []store.Partition // empty when it has ended
	span    span
}

const (
	countsKept  = 4096
	bucketsKept = 100_000
	// explainedKept bounds the buckets whose decisions can be explained, by inputs of some 400 bytes per range.
	explainedKept = 64
	// smallKept is of how many small ranges it is remembered since when, in some 150 bytes each.
	smallKept = 1 << 17
	// soonest is the least pause between two looks.
	soonest = time.Second
	// FullEvery is the pause between two looks at everything.
	FullEvery = time.Hour
	// countsAtOnce is how many recounts are made at once.
	countsAtOnce = 2
	// errorsKept bounds the errors of a round.
	errorsKept = 10
	// whyKept bounds the reasons that are remembered, in some 300 bytes each.
	whyKept = 1000
)

// New makes a balancer. Nothing is read until Run.
func New(s Store, m Maps, mover Mover, counts counter.Backend, o Options) *Balancer {
	b := &Balancer{
		store: s, maps: m, mover: mover, counts: counts, o: o.withDefaults(),
		counted:   newLRU[store.PartitionID, *counter.Count](countsKept),
		explained: newLRU[store.BucketID, []Explained](explainedKept),
		seen:      newLRU[store.BucketID, sighting](bucketsKept),
		small:     newLRU[beginning, few](smallKept),
		tails:     newLRU[store.BucketID, []tail](tailBuckets),
		agenda:    newAgenda(uint64(o.Policy.Seed)), places: places{of: map[store.PartitionID]string{}},
		jobs: map[string]*job{}, why: map[store.PartitionID]Reason{},
	}
	b.queue.init()
	b.state.Decided, b.state.Moved = map[Decision]int64{}, map[policy.Kind]int64{}
	return b
}

func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // the size is positive
	}
	return c
}

// Run works until ctx ends, and returns when all that it did has ended.
func (b *Balancer) Run(ctx context.Context) error {
	defer b.set(func(s *Status) { s.Sizes = Sizes{} })
	defer b.beside(countsAtOnce, func(int) {
		for b.count(ctx) {
		}
	})()
	defer b.beside(looksAtOnce, func(int) {
		for b.visit(ctx) {
		}
	})()
	begin := make(chan struct{}, 1)
	defer b.beside(1, func(int) {
		for b.o.Threads.Wait(ctx, begin) == nil {
			b.everything(ctx)
		}
	})()
	b.set(func(s *Status) { s.Running = true })
	defer b.set(func(s *Status) { s.Running = false })
	b.begin()
	if b.led = 0; b.o.Led() == shard.All {
		b.led = shard.All // nothing more comes
	}
	for ctx.Err() == nil {
		if b.turn(ctx) {
			wait.Signal(begin)
		}
		if b.o.Threads.Sleep(ctx, min(soonest, max(time.Millisecond, b.o.Every/2))) != nil {
			break
		}
	}
	return store.Wrap("keep buckets in shape", context.Cause(ctx))
}

// begin forgets what was looked at: another process may have led since.
func (b *Balancer) begin() {
	b.mu.Lock()
	b.mark, b.scan = 0, scan{}
	b.mu.Unlock()
	b.tick = time.Time{}
	if b.o.Next != nil {
		b.tick = b.o.Now()
	}
}
