// Package faultstore wraps a store and does to its callers what a distributed
// store may do by contract, and nothing else: calls fail before or after they
// were applied, writes land late or twice, answers are slow, pages are short.
// It returns nothing stale or torn, and breaks no order that the contract keeps.
//
// The faults are drawn from a seed, so that the same calls in the same order
// meet the same faults.
package faultstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// ErrInjected is the cause of every error that is not the inner store's own.
var ErrInjected = errors.New("injected fault")

// Rates are the probabilities, 0 to 1, of the faults of one call. Refuse, Lose
// and Late exclude each other; their sum is at most 1.
type Rates struct {
	// Refuse fails with Unavailable; nothing is done.
	Refuse float64
	// Lose does what was asked but loses the answer: Timeout, or as the contract
	// allows Unavailable, also instead of a Conflict or NotFound.
	Lose float64
	// Late fails a write like Lose, but does it only after some further calls:
	// what was called later is done sooner. It does nothing to reads.
	Late float64
	// Repeat does a put, delete or removal once more, after some further calls.
	Repeat float64
	// Delay calls Options.Sleep before or after what was asked is done. A write
	// whose context ends before is done late, or never.
	Delay float64
	// Short ends a page of rows, keys or ids before its limit. Histories are
	// left alone: they have no sign of more.
	Short float64
}

// Options say which faults there are. The zero Options has none.
type Options struct {
	Seed uint64
	// Rates hold for every operation that PerOp does not name.
	Rates Rates
	PerOp map[Op]Rates
	// Choose, if set, takes the place of Rates and Seed: it says how call number nth
	// of an operation ends, counted from 1 while faults are on. So a test can fail
	// each call of a run in turn. It is called with a lock held, and late writes land
	// after MaxLate further calls; a read that is Late is Lost.
	Choose func(op Op, nth int) Fault
	// MaxLate is the most further calls after which a late or repeated write is
	// done; 0 means 20.
	MaxLate int
	// Sleep waits for a delay, or fails when the context ends: wait.Sleep,
	// say. nil means no delays.
	Sleep func(ctx context.Context, d time.Duration) error
	// MaxDelay is the longest delay; 0 means one second.
	MaxDelay time.Duration
}

// Faults steers and counts the faults of one wrapped store. It is safe for
// concurrent use.
type Faults struct {
	options Options

	mu      sync.Mutex
	rand    *rand.Rand
	off     bool
	closed  bool
	calls   int
	pending []pendingWrite
	landing map[string]int // writes under way to land, by node
	landed  *sync.Cond     // one of them has
	counts  [opCount]Counts
	nth     [opCount]int // calls for Options.Choose
}

// Counts says what was done to calls. Refused, Lost and Late are never the same
// call.
type Counts struct {
	Calls, Refused, Lost, Late, Repeated, Delayed, Short int
	// Landed are the late and repeated writes done so far.
	Landed int
}

// New wraps inner. The store that it returns has exactly those of the optional
// interfaces EachQuorum and PartitionLister that inner has, and always
// Acknowledger: over a store without it, with what says as much. Closing it closes
// inner; writes that have not landed by then never do.
func New(inner store.Store, o Options) (store.Store, *Faults) {
	if o.MaxLate == 0 {
		o.MaxLate = 20
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = time.Second
	}
	f := &Faults{options: o, rand: rand.New(rand.NewPCG(o.Seed, 0)), landing: map[string]int{}}
	f.landed = sync.NewCond(&f.mu)
	return withPowers(&faulty{rows: rows{f, inner}, inner: inner}), f
}

// Enable turns faults on (as they are at first) or off. What is pending still
// lands while they are off.
func (f *Faults) Enable(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = !on
}

// Flush does every late or repeated write that is pending, and waits for those
// that land at this moment. It returns the errors of those whose outcome is
// unknown even so.
func (f *Faults) Flush(ctx context.Context) error {
	err := f.land(func(pendingWrite) bool { return true }, func(w pendingWrite) error { return w.do(ctx) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.landing) > 0 {
		f.landed.Wait()
	}
	return err
}

// Pending returns the number of writes that have yet to land.
func (f *Faults) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Counts sums up the faults of some operations, or of all if none is named.
func (f *Faults) Counts(ops ...Op) (sum Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for op, c := range f.counts {
		if len(ops) > 0 && !slices.Contains(ops, Op(op)) {
			continue
		}
		sum.Calls += c.Calls
		sum.Refused += c.Refused
		sum.Lost += c.Lost
		sum.Late += c.Late
		sum.Repeated += c.Repeated
		sum.Delayed += c.Delayed
		sum.Short += c.Short
		sum.Landed += c.Landed
	}
	return sum
}
