package balancer

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Store is what a balancer reads.
type Store interface {
	counter.Slicer
	Scan(ctx context.Context, t store.Table, after []byte, limit int) ([][]byte, error)
}

// Maps is what a balancer reads of maps.
type Maps interface {
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

// Options of a balancer.
type Options struct {
	// Policy is when to act; required.
	Policy policy.Policy
	// Every is the pause between two looks at what was written to, default 30 s.
	Every time.Duration
	// Next is when to look again after a look at a time, by the wall clock; nil: Every later, and at once when Run
	// begins.
	Next func(time.Time) time.Time
	// Exact: writes are not recorded, so everything is counted at each look.
	Exact bool
	// Confirm is how old the last recount of a full range may be until it is counted again, in the background: a
	// writer may not be counted, or counts be lost. One with fewer rows is counted sooner, after an hour at the
	// earliest. ConfirmPerS is how many rows per second are read for that at most, on average. 0: never.
	Confirm     time.Duration
	ConfirmPerS float64
	// Sleep waits; wait.Sleep if nil. For tests in virtual time.
	Sleep func(ctx context.Context, d time.Duration) error
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
	// Decided is called with each input and what was decided from it, before that is carried out; nil: nothing is. It
	// must not change or keep them.
	Decided func(store.BucketID, *policy.Input, []policy.Decision)
	// Logger logs what is decided; nil: nothing is logged.
	Logger *slog.Logger
}

// For returns options for partitions of at most maxRows rows, where moveRate rows per second are copied and compared
// (0: no limit), with a look at each interval every, and moves whose waits take at most wait each.
func For(maxRows int64, moveRate int, every, wait time.Duration) Options {
	p := policy.Default(maxRows)
	// Counts are a second or two old, and the first wait includes one for clocks.
	p.Effect = 2*wait + 3*time.Second
	// With longer intervals some cuts come too late: a forecast for a whole day would be worse.
	p.Lead = min(every, time.Hour) + p.Effect
	p.Budget.Rows = 20 * maxRows
	if moveRate > 0 {
		p.MovedPerS = float64(moveRate) / 2 // each is copied and compared
		// Moves that have not begun can still be decided anew.
		p.Budget.Rows = min(p.Budget.Rows, int64(p.MovedPerS*inFlight.Seconds()))
	}
	return Options{Policy: p, Every: every, Confirm: 24 * time.Hour, ConfirmPerS: float64(cmp.Or(moveRate, 20_000)) / 10}
}

// inFlight is how long automatic moves may take altogether.
const inFlight = time.Minute

func (o Options) withDefaults() Options {
	if o.Every <= 0 {
		o.Every = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = wait.Sleep
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// due reports whether to look again after the last look.
func (o *Options) due(last, now time.Time) bool {
	if o.Next != nil {
		return !now.Before(o.Next(last))
	}
	return last.IsZero() || now.Sub(last) >= o.Every
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
	seen  *lru.Cache[store.BucketID, struct{}]
	queue queue
	// small remembers since when partitions are small.
	small *lru.Cache[store.PartitionID, time.Time]
	// tails are ranges that are appended to. ageing says which sizes are to be confirmed. Of Run only.
	tails  *lru.Cache[store.BucketID, []tail]
	ageing ageing
	// Of Run only: the times of the last look at the interval and of the last one at everything (zero: none); and
	// random numbers.
	tick, full time.Time
	r          *rand.Rand

	mu    sync.Mutex
	watch map[store.BucketID]*watched
	jobs  map[string]*job
	state Status
	mark  uint64
	gone  []store.Partition // to be forgotten by the counters
}

// watched is a bucket that must be looked at.
type watched struct {
	// touched are its partitions that were written to since the last look. again: look at all of them, at the next
	// interval at the latest; soon: at once.
	touched     map[store.PartitionID]bool
	again, soon bool
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
}

const (
	countsKept  = 4096
	bucketsKept = 100_000
	// explainedKept bounds the inputs that are kept to explain decisions, of some 400 bytes per range.
	explainedKept = 64
	// smallKept is of how many small partitions it is remembered since when, in some 150 bytes each.
	smallKept = 1 << 17
	// soonest is the least pause between two looks.
	soonest = time.Second
	// fullEvery is the pause between two looks at everything.
	fullEvery = time.Hour
	// countsAtOnce is how many recounts are made at once.
	countsAtOnce = 2
)

// New makes a balancer. Nothing is read until Run.
func New(s Store, m Maps, mover Mover, counts counter.Backend, o Options) *Balancer {
	b := &Balancer{
		store: s, maps: m, mover: mover, counts: counts, o: o.withDefaults(),
		counted:   newLRU[store.PartitionID, *counter.Count](countsKept),
		explained: newLRU[store.BucketID, []Explained](explainedKept),
		seen:      newLRU[store.BucketID, struct{}](bucketsKept),
		small:     newLRU[store.PartitionID, time.Time](smallKept),
		tails:     newLRU[store.BucketID, []tail](tailBuckets),
		r:         rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		watch:     map[store.BucketID]*watched{}, jobs: map[string]*job{},
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
	var counting sync.WaitGroup
	for range countsAtOnce {
		counting.Go(func() {
			for b.Count(ctx, true) {
			}
		})
	}
	defer counting.Wait()
	b.set(func(s *Status) { s.Running = true })
	defer b.set(func(s *Status) { s.Running = false })
	b.begin()
	for ctx.Err() == nil {
		b.Step(ctx)
		if b.o.Sleep(ctx, min(soonest, max(time.Millisecond, b.o.Every/2))) != nil {
			break
		}
	}
	return store.Wrap("keep buckets in shape", context.Cause(ctx))
}

// begin forgets what was looked at: another process may have led since.
func (b *Balancer) begin() {
	b.mu.Lock()
	b.mark = 0
	b.mu.Unlock()
	b.tick, b.full = time.Time{}, time.Time{}
	if b.o.Next != nil {
		b.tick = b.o.Now()
	}
}

// Step looks once at the buckets that are due. Run calls it, at least every second; a simulation calls Step and Count
// instead of Run. It is for one goroutine at a time.
func (b *Balancer) Step(ctx context.Context) {
	now := b.o.Now()
	if now.Before(b.tick) {
		b.tick = now // a clock that was set back must not stop the looks until it is there again
	}
	if now.Before(b.full) {
		b.full = now
	}
	everything := b.full.IsZero() || b.o.Exact || now.Sub(b.full) >= fullEvery
	due := b.o.due(b.tick, now)
	b.finish()
	if due {
		b.tick = now
	}
	if err := b.look(ctx, due, due && everything); err == nil && due && everything {
		b.full = now
	}
}

func (b *Balancer) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

// watched finds or makes a bucket's entry. Balancer.mu is held.
func (b *Balancer) watched(id store.BucketID) *watched {
	w := b.watch[id]
	if w == nil {
		w = &watched{touched: map[store.PartitionID]bool{}}
		b.watch[id] = w
	}
	return w
}

// again marks a bucket to be looked at, at once or at the next interval.
func (b *Balancer) again(id store.BucketID, soon bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watched(id)
	w.again, w.soon = true, w.soon || soon
}

// finish notes which jobs have ended.
func (b *Balancer) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, x := range b.jobs {
		j, known := b.mover.Job(id)
		if known && j.Ended.IsZero() {
			continue
		}
		delete(b.jobs, id)
		w := b.watched(x.bucket)
		w.again, w.soon = true, true
		for i, m := range x.moves {
			if !known || i >= len(j.Goals) || j.Goals[i].Stage != scheduler.Met {
				continue
			}
			b.gone = append(b.gone, m.leaving...)
			b.state.Moved[m.kind] += j.Goals[i].Copied
		}
	}
}

// look looks at the buckets that are marked soon; at an interval at all that are marked or were written to, or at
// everything. An error of one bucket does not stop the others; all errors are joined.
func (b *Balancer) look(ctx context.Context, interval, everything bool) error {
	r := Round{Began: b.o.Now(), Everything: everything}
	err := b.take(ctx)
	b.answered(ctx, err)
	if err != nil && !interval {
		return err // it is tried again at the interval, and logged then
	}
	switch {
	case err != nil:
		err = errors.Join(err, b.rollTails(ctx, &r))
	case everything:
		err = b.everywhere(ctx, &r)
	default:
		for _, id := range b.due(interval) {
			if ctx.Err() != nil {
				break
			}
			err = errors.Join(err, b.bucket(ctx, &r, id))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		b.o.Logger.Warn("looking after the sizes of partitions met an error", "error", err)
	}
	r.Ended, r.Err = b.o.Now(), err
	if interval || err != nil {
		b.set(func(s *Status) {
			s.Round = r
			if everything && err == nil {
				s.Sizes = r.sizes
			}
		})
	}
	return err
}

// take reads which partitions were written to, and makes the counters forget those that are gone.
func (b *Balancer) take(ctx context.Context) error {
	b.mu.Lock()
	gone, mark := b.gone, b.mark
	b.mu.Unlock()
	written, next, err := b.counts.Written(ctx, mark)
	if err != nil {
		return store.Wrap("ask the counters what was written", err)
	}
	if len(gone) > 0 {
		if err := b.counts.Forget(ctx, gone...); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark, b.gone = next, b.gone[len(gone):]
	for _, p := range written {
		w := b.watched(p.Bucket)
		w.touched[p.ID] = true
		// A new bucket may grow fast.
		w.soon = w.soon || b.o.Next == nil && !b.seen.Contains(p.Bucket)
	}
	return nil
}

// due returns the buckets to look at, shuffled.
func (b *Balancer) due(interval bool) (ids []store.BucketID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range b.watch {
		if w.soon || interval {
			ids = append(ids, id)
		}
	}
	b.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// everywhere looks at all buckets.
func (b *Balancer) everywhere(ctx context.Context, r *Round) error {
	var failed error
	for keys, err := range store.KeyPages(ctx, b.store, store.Roots) {
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, key := range keys {
			id := store.BucketID(key)
			b.again(id, false)
			if err := b.bucket(ctx, r, id); err != nil {
				failed = err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return failed
}

// bucket looks at one bucket. If that fails, it stays marked.
func (b *Balancer) bucket(ctx context.Context, r *Round, id store.BucketID) error {
	b.mu.Lock()
	w := b.watch[id]
	delete(b.watch, id)
	b.mu.Unlock()
	if w == nil {
		return nil
	}
	back := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		now := b.watched(id)
		now.again = now.again || w.again
		for p := range w.touched {
			now.touched[p] = true
		}
	}
	if b.mover.Held(id) {
		back()
		return nil
	}
	err := b.lookAt(ctx, r, id, w)
	if err != nil {
		back()
	}
	if err == nil || store.KindOf(err) == store.NotFound { // it was deleted
		return nil
	}
	return store.Wrap("look at bucket "+id.String(), err)
}

// Status of a balancer.
type Status struct {
	// Running: this process looks after the buckets now.
	Running bool
	// Round is the last look at what was written to.
	Round Round
	// Away is since when the counters have not answered; zero: they do.
	Away time.Time
	// Sizes are those of the last look at everything.
	Sizes Sizes
	// Waiting is how many recounts are still to be made.
	Waiting int
	// Recounts made, the rows that they read, and by how many rows the estimates before them were off, in total.
	Recounts, Read, Drift int64
	// Decided counts decisions, Moved the rows that moves copied.
	Decided map[Decision]int64
	Moved   map[policy.Kind]int64

	// Plans made of splits, and how far the moved rows of the last one are above the fewest possible: 0.01 is one
	// percent.
	Plans int64
	Gap   float64
}

// Decision is a decision without its ranges.
type Decision struct {
	Kind policy.Kind
	Why  policy.Why
}

// Round is one look.
type Round struct {
	Began, Ended time.Time
	Everything   bool
	// Buckets and Ranges that were looked at.
	Buckets, Ranges int
	// Why are ranges outside the limits about which nothing is done, at most 100.
	Why []Reason
	Err error

	sizes Sizes
	need  float64 // rows per second, of the bucket that is looked at
}

// Reason says why nothing is done about a range.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Verdict    policy.Decision
}

// Status returns what was done so far.
func (b *Balancer) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Round.Why = slices.Clone(s.Round.Why)
	s.Decided, s.Moved = maps.Clone(s.Decided), maps.Clone(s.Moved)
	s.Waiting = b.queue.len()
	return s
}
