// Package faultstore wraps a store, and injects the faults that a distributed store may show by its contract. Calls
// fail before or after they were applied, writes are applied late or twice, answers are slow, and pages are short. The
// wrapped store returns no stale or torn data, and keeps every order that the contract demands.
//
// The faults are drawn from a seed, so the same calls in the same order meet the same faults.
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

// ErrInjected is the cause of every error that faultstore injects, unlike the errors of the inner store.
var ErrInjected = errors.New("injected fault")

// Rates are the probabilities, from 0 to 1, of the faults of one call. Refuse, Lose and Late exclude each other, and
// their sum is at most 1.
type Rates struct {
	// Refuse is the probability that a call does nothing and fails with Unavailable.
	Refuse float64
	// Lose is the probability that a call is done but its answer is lost. The call fails with Timeout, or with
	// Unavailable as the contract allows, even if the answer was Conflict or NotFound.
	Lose float64
	// Late is the probability that a write fails as with Lose, and is done only after some further calls. So later
	// calls are done before the write. Reads are never late.
	Late float64
	// Repeat is the probability that a put, delete or removal is done a second time, after some further calls.
	Repeat float64
	// Delay is the probability that Options.Sleep is called before or after the call is done. A write whose context
	// ends during a delay before the write is done late or never.
	Delay float64
	// Short is the probability that a page of rows, keys or ids ends before its limit. Histories are never short, as
	// they do not say whether further entries exist.
	Short float64
}

// Options say which faults occur, and how often. The zero Options injects no faults.
type Options struct {
	Seed uint64
	// Rates are the probabilities of faults for every operation that PerOp does not name.
	Rates Rates
	PerOp map[Op]Rates
	// Choose, if not nil, replaces Rates and Seed. It returns how call number nth of the operation op ends, counted
	// from 1 while faults are on. So a test can fail each call of a run in turn. Choose is called with a lock held.
	// Late writes are done after MaxLate further calls, and a read with the ending Late is Lost.
	Choose func(op Op, nth int) Fault
	// MaxLate is the largest number of further calls after which a late or repeated write is done. 0 stands for 20.
	MaxLate int
	// Sleep waits for a delay, or returns an error if ctx ends, e.g. wait.Sleep. If Sleep is nil, there are no delays.
	Sleep func(ctx context.Context, d time.Duration) error
	// MaxDelay is the longest delay. 0 stands for one second.
	MaxDelay time.Duration
}

// Faults turns the faults of one wrapped store on and off, and counts the faults. The methods are safe for concurrent
// use.
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

// Counts are the numbers of calls and of injected faults. Each call counts as at most one of Refused, Lost and Late.
type Counts struct {
	Calls, Refused, Lost, Late, Repeated, Delayed, Short int
	// Landed is the number of late and repeated writes that were done so far.
	Landed int
}

// New returns a store that passes calls on to inner and injects faults, and the controls of the faults. The returned
// store has exactly those of the optional interfaces EachQuorum and PartitionLister that inner has. It always has
// Acknowledger, even if inner has not. Closing the returned store closes inner, and drops the late writes that were not
// done yet.
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

// Enable turns faults on or off. At first faults are on. Late and repeated writes are still done while faults are off.
func (f *Faults) Enable(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = !on
}

// Flush does all late and repeated writes that are pending, and waits for those that other calls are doing at the
// moment. The result joins the errors of the writes whose outcome is unknown even then.
func (f *Faults) Flush(ctx context.Context) error {
	err := f.land(func(pendingWrite) bool { return true }, func(w pendingWrite) error { return w.do(ctx) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.landing) > 0 {
		f.landed.Wait()
	}
	return err
}

// Pending returns the number of late and repeated writes that were not done yet.
func (f *Faults) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Counts returns the sum of the counts of the operations ops, or of all operations if ops is empty.
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
