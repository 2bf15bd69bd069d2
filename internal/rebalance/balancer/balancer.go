package balancer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
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
	seen   *lru.Cache[store.BucketID, sighting]
	queue  queue
	agenda *agenda
	places places
	// small remembers since when partitions are small.
	small *lru.Cache[store.PartitionID, few]
	// tails are ranges that are appended to. ageing says which sizes are to be confirmed; it is used while deciding is
	// held.
	tails  *lru.Cache[store.BucketID, []tail]
	ageing ageing
	// tick is the time of the last interval, of Step only.
	tick time.Time
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
}

// scan is a look at everything.
type scan struct {
	Began   time.Time // of the last one; zero: there was none
	running bool
	sizes   Sizes
	failed  bool
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
	// smallKept is of how many small partitions it is remembered since when, in some 150 bytes each.
	smallKept = 1 << 17
	// soonest is the least pause between two looks.
	soonest = time.Second
	// fullEvery is the pause between two looks at everything.
	fullEvery = time.Hour
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
		small:     newLRU[store.PartitionID, few](smallKept),
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
	var work sync.WaitGroup
	for range countsAtOnce {
		work.Go(func() {
			for b.Count(ctx, true) {
			}
		})
	}
	for range looksAtOnce {
		work.Go(func() {
			for b.visit(ctx, true) {
			}
		})
	}
	begin := make(chan struct{}, 1)
	work.Go(func() {
		for {
			select {
			case <-begin:
				b.everything(ctx, func() bool {
					for b.agenda.remaining() >= 2*scansAtOnce {
						select {
						case <-b.agenda.room:
						case <-ctx.Done():
							return false
						}
					}
					return true
				})
			case <-ctx.Done():
				return
			}
		}
	})
	defer work.Wait()
	b.set(func(s *Status) { s.Running = true })
	defer b.set(func(s *Status) { s.Running = false })
	b.begin()
	for ctx.Err() == nil {
		if b.turn(ctx) {
			signal(begin)
		}
		if b.o.Sleep(ctx, min(soonest, max(time.Millisecond, b.o.Every/2))) != nil {
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

// Step looks once at the buckets that are due, one after the other. A simulation calls Step and Count instead of Run.
// It is for one goroutine at a time.
func (b *Balancer) Step(ctx context.Context) {
	drain := func() bool {
		for b.visit(ctx, false) {
		}
		return ctx.Err() == nil
	}
	if b.turn(ctx) {
		b.everything(ctx, drain)
	}
	drain()
}

// turn finds out what is to be looked at now. scan: all buckets are.
func (b *Balancer) turn(ctx context.Context) (scanning bool) {
	now := b.o.Now()
	if now.Before(b.tick) {
		b.tick = now // a clock that was set back must not stop the looks until it is there again
	}
	interval := b.o.due(b.tick, now)
	if interval {
		b.tick = now
		b.mu.Lock()
		if b.round.Ended.IsZero() {
			b.publishLocked(now) // it goes on
		}
		b.round = Round{Began: now}
		if now.Before(b.scan.Began) {
			b.scan.Began = now
		}
		scanning = !b.scan.running && (b.scan.Began.IsZero() || b.o.Exact || now.Sub(b.scan.Began) >= fullEvery)
		b.mu.Unlock()
	}
	b.finish()
	err := b.take(ctx)
	b.answered(ctx, err)
	if err != nil {
		if interval { // else it is tried again at the interval
			b.failed(errors.Join(err, b.rollTails(ctx)))
			b.publish(now)
		}
		return false
	}
	if scanning {
		b.mu.Lock()
		// Backends keep microseconds.
		b.scan, b.round.Everything = scan{Began: now.Truncate(time.Microsecond), running: true}, true
		b.mu.Unlock()
	}
	b.agenda.turn(now, interval)
	if interval && !scanning && b.agenda.idle() {
		b.publish(now)
	}
	return scanning
}

// failed notes an error of the present round.
func (b *Balancer) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.round.errors == 0 {
		b.o.Logger.Warn("looking after the sizes of partitions met an error", "error", err)
	}
	if b.round.errors++; b.round.errors <= errorsKept {
		b.round.Err = errors.Join(b.round.Err, err)
	}
}

// publish shows what has been looked at since the interval began.
func (b *Balancer) publish(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(now)
}

func (b *Balancer) publishLocked(now time.Time) {
	if b.round.Began.IsZero() {
		if b.round.Err == nil {
			return
		}
		b.round.Began = now
	}
	b.round.Ended = now
	b.state.Round = b.round
}

func (b *Balancer) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
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
		for i := range x.moves {
			m := &x.moves[i]
			b.agenda.changed(x.bucket, m.span)
			if !known || i >= len(j.Goals) || j.Goals[i].Stage != scheduler.Met {
				continue
			}
			b.gone = append(b.gone, m.leaving...)
			b.state.Moved[m.kind] += j.Goals[i].Copied
			for _, p := range m.leaving {
				delete(b.why, p.ID)
			}
		}
	}
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
	b.mark, b.gone = next, b.gone[len(gone):]
	b.mu.Unlock()
	for _, p := range written {
		b.agenda.look(p, time.Time{})
		// A new bucket may grow fast.
		if b.o.Next == nil && !b.seen.Contains(p.Bucket) {
			b.agenda.hurry(p.Bucket)
		}
	}
	return nil
}

// everything has all buckets looked at; room is called before each page of them and waits until there is room for
// more.
func (b *Balancer) everything(ctx context.Context, room func() bool) {
	b.mu.Lock()
	began := b.scan.Began
	b.mu.Unlock()
	err := func() error {
		for keys, err := range store.KeyPages(ctx, b.store, store.Roots) {
			if err != nil {
				return store.Wrap("list all buckets", err)
			}
			for _, key := range keys {
				if s, seen := b.seen.Peek(store.BucketID(key)); seen && !s.whole.Before(began) {
					continue // it was due anyway
				}
				b.agenda.everything(store.BucketID(key), b.o.Now())
				if !room() {
					return context.Cause(ctx)
				}
			}
		}
		return nil
	}()
	for ctx.Err() == nil && b.agenda.remaining() > 0 && room() {
		select {
		case <-b.agenda.room:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil && err != nil {
		b.failed(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publishLocked(b.o.Now())
	b.scan.running = false
	if err != nil {
		b.scan.Began = time.Time{} // it begins anew at the next interval
		return
	}
	if !b.scan.failed {
		b.state.Sizes = b.scan.sizes
	}
	for id, r := range b.why {
		if r.noted.Before(began) {
			delete(b.why, id)
		}
	}
}

// visit looks at one bucket, and waits for one if asked to; false: there is none, or ctx has ended. If it fails, what
// was to be looked at stays due.
func (b *Balancer) visit(ctx context.Context, wait bool) bool {
	v, ok := b.agenda.next(ctx, b.o.Now, wait)
	if !ok {
		return false
	}
	var o *outcome
	var err error
	held := b.mover.Held(v.id)
	if !held {
		o, err = b.lookAt(ctx, v)
	}
	if store.KindOf(err) == store.NotFound { // it was deleted
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		b.failed(store.Wrap("look at bucket "+v.id.String(), err))
	}
	now := b.o.Now()
	b.mu.Lock()
	if o != nil {
		b.round.Ended = time.Time{}
		b.round.Buckets++
		b.round.Ranges += o.ranges
		if o.whole && b.scan.running && err == nil && o.before.whole.Before(b.scan.Began) {
			b.scan.sizes.sum(&o.sizes)
		}
	}
	b.scan.failed = b.scan.failed || v.scan && err != nil
	b.mu.Unlock()
	if b.agenda.done(v, o != nil && o.whole, held || err != nil, now) || err != nil {
		b.publish(now)
	}
	return ctx.Err() == nil
}

// Status of a balancer.
type Status struct {
	// Running: this process looks after the buckets now.
	Running bool
	// Round is what was looked at since the last interval began, or since the one before if that goes on.
	Round Round
	// Late is for how long the bucket that waits longest has been due to be looked at; looks at everything apart.
	Late time.Duration
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
	// Err joins the first errors.
	Err error

	errors int
}

// Reason says why nothing is done about a range.
type Reason struct {
	Bucket     store.BucketID
	Start, End []byte
	Verdict    policy.Decision

	noted time.Time
}

// reasons notes why nothing is done about some ranges of a window's core, and that there is no reason about the others.
// Balancer.mu is held.
func (b *Balancer) reasons(w *window, in *policy.Input, decisions []policy.Decision, id store.BucketID) {
	for i := range decisions {
		d := &decisions[i]
		for k := d.From; k < d.To; k++ {
			if p := w.ranges[k].Partition; w.core[k] {
				delete(b.why, p)
				if k == d.From && d.Kind == policy.None && d.Why != policy.Within && len(b.why) < whyKept {
					b.why[p] = Reason{Bucket: id, Start: bytes.Clone(w.ranges[d.From].Start),
						End: bytes.Clone(w.ranges[d.To-1].End), Verdict: *d, noted: in.Now}
				}
			}
		}
	}
}

// Status returns what was done so far.
func (b *Balancer) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Round.Why = make([]Reason, 0, min(len(b.why), reasonsKept))
	for _, r := range slices.SortedFunc(maps.Values(b.why), func(a, b Reason) int {
		return cmp.Or(bytes.Compare(a.Bucket[:], b.Bucket[:]), bytes.Compare(a.Start, b.Start))
	}) {
		if len(s.Round.Why) < reasonsKept {
			s.Round.Why = append(s.Round.Why, r)
		}
	}
	s.Late = b.agenda.late(b.o.Now())
	s.Decided, s.Moved = maps.Clone(s.Decided), maps.Clone(s.Moved)
	s.Waiting = b.queue.len()
	return s
}
