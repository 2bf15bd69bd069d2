package balancer

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
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

// Store is the part of a store that a balancer reads: rows of partitions, and the keys of tables such as that of all
// roots.
type Store interface {
	counter.Slicer
	Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error)
}

// Maps is the interface through which a balancer reads the maps of buckets. A look at a bucket uses the root that this
// data centre has (Look). Moves are decided by the newest root (Load).
type Maps interface {
	Look(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
}

// Mover is the part of the rebalancer that carries out the moves which a balancer decides. scheduler.Scheduler is one.
type Mover interface {
	// Submit requests the moves of a plan. what describes them for people.
	Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job
	// Job returns the state of requested moves; false: the job is no longer known.
	Job(id string) (scheduler.Job, bool)
	// Held reports whether no decision must be made about a bucket now.
	Held(id store.BucketID) bool
	// InFlight returns the number of partitions that take part in moves, and the number of rows that these moves copy,
	// in all buckets.
	InFlight() (moves int, rows int64)
	// KeepUp sets the number of rows per second that the moves of a bucket need. Moves are not slowed down below that
	// number.
	KeepUp(id store.BucketID, rowsPerSecond int)
	// Pace waits until a number of rows may be counted.
	Pace(ctx context.Context, rows int) error
}

// Balancer looks at the buckets of a store again and again, and splits, merges and rewrites ranges that need it. Its
// methods are safe for concurrent use, but Run is for one goroutine at a time.
type Balancer struct {
	store  Store
	maps   Maps
	mover  Mover
	counts counter.Backend
	o      Options

	// counted are the last recounts. Their quanta are the places where a range can be cut.
	counted *lru.Cache[store.PartitionID, *counter.Count]
	// explained are the last decisions about buckets.
	explained *lru.Cache[store.BucketID, []Explained]
	// seen are the last looks at buckets.
	seen   *lru.Cache[store.BucketID, sighting]
	queue  queue
	agenda *agenda
	places places
	// small remembers the times since which ranges have had few rows.
	small *lru.Cache[beginning, few]
	// tails are ranges that are appended to. ageing says which sizes are to be confirmed by a recount; it is used only
	// with deciding held.
	tails  *lru.Cache[store.BucketID, []tail]
	ageing ageing
	// tick is the time of the last interval; only turn uses it. back is when the counters came back.
	tick, back time.Time
	// led are the shards at the last turn. anew is true if everything is to be looked at since the shards have changed.
	// Only turn uses them.
	led  shard.Set
	anew bool
	// lost is true if LookAtAll has asked for a look at everything.
	lost atomic.Bool
	// deciding is held from the moment at which the moves in flight are read until the moves decided from them are in
	// flight, too. So concurrent decisions keep one budget.
	deciding sync.Mutex

	mu    sync.Mutex
	scan  scan
	jobs  map[string]*job
	state Status
	round Round // the present round
	why   map[store.PartitionID]Reason
	mark  uint64
	gone  []store.Partition // partitions that the counters should forget
}

// sighting is the result of the last look at a bucket, as far as the next look needs it.
type sighting struct {
	traffic float64   // reads and writes per second
	whole   time.Time // when all ranges were last looked at
	blank   bool      // no rows had been put into the bucket yet
	begun   time.Time // when rows were first seen after a blank look; zero: long ago
	spread  bool      // a range grows all over
}

// job is a group of moves in one bucket that were given to the mover together.
type job struct {
	bucket store.BucketID
	moves  []submitted
}

// submitted is one move among those that were given to the mover together.
type submitted struct {
	kind    policy.Kind
	leaving []store.Partition // partitions that are empty when the move has ended
	span    span
}

const (
	// countsKept is the maximum number of recounts that are remembered, bucketsKept that of looks at buckets.
	countsKept  = 4096
	bucketsKept = 100_000
	// explainedKept is the maximum number of buckets whose decisions can be explained. Inputs take some 400 bytes per
	// range.
	explainedKept = 64
	// smallKept is the maximum number of small ranges that are remembered, in some 150 bytes each.
	smallKept = 1 << 17
	// soonest is the least pause between two turns.
	soonest = time.Second
	// FullEvery is the pause between two looks at everything.
	FullEvery = time.Hour
	// countsAtOnce is the number of concurrent recounts.
	countsAtOnce = 2
	// errorsKept is the maximum number of errors that a round keeps.
	errorsKept = 10
	// whyKept is the maximum number of reasons that are remembered, in some 300 bytes each.
	whyKept = 1000
)

// New returns a balancer for the buckets of the store s. It reads nothing until Run is called.
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

// newLRU returns a cache of at most size elements. The least recently used ones are dropped.
func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // the size is positive
	}
	return c
}

// Run looks after the buckets until ctx ends: it splits, merges and rewrites ranges that need it. It returns the cause
// of the end of ctx when all its work has ended.
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
		b.led = shard.All // no shards come later, as there are no others
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

// begin discards the state of an earlier Run, so that all buckets are looked at anew. Another process may have looked
// after them meanwhile.
func (b *Balancer) begin() {
	b.mu.Lock()
	b.mark, b.scan = 0, scan{}
	b.mu.Unlock()
	b.tick = time.Time{}
	if b.o.Next != nil {
		b.tick = b.o.Now()
	}
}
