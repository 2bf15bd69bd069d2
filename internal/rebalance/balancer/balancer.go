package balancer

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Store is the part of a store that a balancer reads: the rows of partitions, and the keys of tables such as the table
// of the roots of all buckets.
type Store interface {
	countbook.Slicer
	Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error)
}

// Maps is the interface through which a balancer reads the map of each bucket, which lists the bucket's ranges and
// their partitions.
//   - Look returns the root of the map that this data centre has, which is enough for most checks.
//   - Load returns the newest root, which decisions to move rows need.
//   - Ranges returns the ranges of a map in the order of their keys, beginning with the range that holds a given key.
type Maps interface {
	Look(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Load(ctx context.Context, id store.BucketID) (*partmap.Root, error)
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
}

// Mover is the interface to the component that carries out the moves of rows which a balancer decides.
// scheduler.Scheduler implements Mover.
type Mover interface {
	// Submit requests the moves of a plan for a bucket, and returns the job that stands for the moves. what describes
	// the moves for people.
	Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job
	// Job returns the state of the requested moves whose job has the given id. The boolean result is false if the job
	// is no longer known.
	Job(id string) (scheduler.Job, bool)
	// Held reports whether no decision must be made about a bucket now, e.g. because its moves are paused.
	Held(id store.BucketID) bool
	// InFlight returns the number of partitions that take part in moves, and the number of rows that these moves copy,
	// in all buckets.
	InFlight() (moves int, rows int64)
	// KeepUp sets the number of rows per second that the moves of a bucket need to keep up with writes. Moves are not
	// slowed down below that number.
	KeepUp(id store.BucketID, rowsPerSecond int)
	// Pace waits until the given number of rows may be read by exact counts, which share a rate limit.
	Pace(ctx context.Context, rows int) error
}

// Balancer checks the buckets of a store again and again, and splits, merges and rewrites ranges that need it. The
// methods of a Balancer are safe for concurrent use, except that only one goroutine at a time may call Run.
type Balancer struct {
	store  Store
	maps   Maps
	mover  Mover
	counts counter.Backend
	o      Options

	// counted has the last exact count of each partition. The quanta of a count, which are runs of neighbouring rows,
	// are the places where a range can be cut.
	counted *lru.Cache[store.PartitionID, *counter.Count]
	// explained has the last decisions about each bucket, so that an operator can ask for them.
	explained *lru.Cache[store.BucketID, []Explained]
	// seen has the result of the last check of each bucket.
	seen   *lru.Cache[store.BucketID, sighting]
	queue  queue
	agenda *agenda
	places places
	// small has the time since when each small range has had few rows.
	small *lru.Cache[beginning, few]
	// tails has the ranges of each bucket to which keys are appended. ageing decides which old counts are repeated, and
	// is used only while deciding is held.
	tails  *lru.Cache[store.BucketID, []tail]
	ageing ageing
	// tick is the time at which the last interval began, and is used only by the method turn. back is the time at which
	// the counters came back after they could not be reached.
	tick, back time.Time
	// led is the set of shards of this process at the last call of the method turn. anew is true if all buckets must be
	// checked because the shards have changed. Only turn uses the two fields.
	led  shard.Set
	anew bool
	// lost is true if LookAtAll was called to ask for a check of all buckets.
	lost atomic.Bool
	// deciding is held from the moment at which the amount of unfinished moves is read until the moves that were
	// decided by that amount are submitted. So concurrent decisions keep to one budget.
	deciding sync.Mutex

	mu    sync.Mutex
	scan  scan
	jobs  map[string]*job
	state Status
	round Round // the results of the present interval
	why   map[store.PartitionID]Reason
	mark  uint64
	gone  []store.Partition // partitions that the counters should forget
}

// sighting is what is remembered of the last check of a bucket, for a comparison with the next check.
type sighting struct {
	traffic float64   // reads and writes per second
	whole   time.Time // when all ranges were last checked
	blank   bool      // no rows had been put into the bucket yet
	begun   time.Time // when rows were first seen after a blank check, zero if long ago
	spread  bool      // a range grows all over
}

// job is a group of moves in one bucket that were submitted together. The balancer checks the moved ranges again when
// the job has ended.
type job struct {
	bucket store.BucketID
	moves  []submitted
}

// submitted is one move of rows in a group of moves that were submitted together.
type submitted struct {
	kind    policy.Kind
	leaving []store.Partition // partitions that are empty when the move has ended
	span    span
}

const (
	// countsKept is the maximum number of exact counts that are remembered. bucketsKept is the maximum number of
	// buckets whose last check is remembered.
	countsKept  = 4096
	bucketsKept = 100_000
	// explainedKept is the maximum number of buckets whose last decisions can be explained. The input of a decision
	// takes some 400 bytes per range.
	explainedKept = 64
	// smallKept is the maximum number of small ranges that are remembered, with some 150 bytes for each.
	smallKept = 1 << 17
	// soonest is the pause between two calls of the method turn, which finds the buckets to check.
	soonest = time.Second
	// FullEvery is the time from one check of all ranges of all buckets to the next.
	FullEvery = time.Hour
	// countsAtOnce is the number of exact counts of ranges that run concurrently.
	countsAtOnce = 2
	// errorsKept is the maximum number of errors that are kept for one interval of checks.
	errorsKept = 10
	// whyKept is the maximum number of remembered reasons why nothing is done about a range, with some 300 bytes for
	// each.
	whyKept = 1000
)

// New returns a balancer for the buckets of the store s. m reads the maps of the buckets, mover carries out moves of
// rows, and counts are the counters that estimate the sizes of ranges. The balancer reads nothing until Run is called.
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

// newLRU returns a cache of at most size elements, from which the least recently used elements are dropped. size must
// be positive.
func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // the size is positive
	}
	return c
}

// Run checks the buckets until ctx ends, and splits, merges and rewrites ranges that need it. When ctx has ended and
// all work of the balancer has stopped, Run returns the cause of the end of ctx.
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

// begin makes a new Run check all buckets anew. It discards the state of an earlier Run, since another process may have
// moved ranges meanwhile.
func (b *Balancer) begin() {
	b.mu.Lock()
	b.mark, b.scan = 0, scan{}
	b.mu.Unlock()
	b.tick = time.Time{}
	if b.o.Next != nil {
		b.tick = b.o.Now()
	}
}
