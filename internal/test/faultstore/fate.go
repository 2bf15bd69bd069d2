package faultstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Op is a method of a store, such as Put, for which faults can be configured and counted.
type Op uint8

// The operations of a store. Each operation has its own Rates and Counts.
const (
	Put Op = iota
	Delete
	Remove
	Get
	Slice
	Read
	Swap
	Scan
	History
	Forget
	WriteNode
	Node
	DeleteNode
	ScanNodes
	Partitions
	Acknowledge
	opCount
)

var opNames = [opCount]string{
	"put", "delete", "remove", "get", "slice", "read", "swap", "scan", "history",
	"forget", "write node", "node", "delete node", "scan nodes", "partitions", "acknowledge",
}

func (o Op) String() string {
	if o < opCount {
		return opNames[o]
	}
	return "unknown operation"
}

func (o Op) writes() bool {
	switch o {
	case Put, Delete, Remove, Swap, Forget, WriteNode, DeleteNode:
		return true
	}
	return false
}

// repeatable reports whether Cassandra itself may do the write twice (by a hint or a replay), so that faultstore may,
// too. These are the writes whose timestamp makes the second one harmless.
func (o Op) repeatable() bool { return o == Put || o == Delete || o == Remove }

// Ending is how a call of a store ends: with the answer, or with one of several failures.
type Ending uint8

// The endings of a call. Rates describes what each of them does.
const (
	Answered Ending = iota
	Refused
	Lost
	Late
)

// Fault is the failure that the function Options.Choose chooses for one call.
type Fault struct {
	Ending Ending
	// Kind is the kind of the error. By the contract of a store, a call with the ending Lost or Late fails with Timeout
	// or Unavailable.
	Kind store.Kind
}

// A fate is everything that will happen to one call: its ending, its delays, and whether it is repeated. The fate is
// drawn when the call begins.
type fate struct {
	op            Op
	ending        Ending
	kind          store.Kind // of the error when lost or late
	before, after time.Duration
	strays        bool // if the delay before outlasts the context, the write still lands
	repeat        bool
	wait          int     // calls until the late or repeated write lands
	short         float64 // the share of a page that is kept; 0: all
}

func (f fate) err() error {
	return store.Wrap(f.op.String(), store.Errorf(f.kind, "%w", ErrInjected))
}

// A pendingWrite is a write that will be done later. It is done at the beginning of the first call after call number
// due.
type pendingWrite struct {
	op   Op
	due  int
	node string // of WriteNode and DeleteNode, else empty
	do   func(ctx context.Context) error
	ctx  context.Context // of the call, without its end
}

// begin counts a call of the operation op, draws the call's fate, and does the pending writes that are due. The number
// of random draws does not depend on the rates. So if one rate changes, the faults of the other rates stay where they
// were.
func (f *Faults) begin(op Op) fate {
	f.mu.Lock()
	f.calls++
	calls := f.calls
	f.counts[op].Calls++
	fate := fate{op: op}
	switch {
	case f.off || f.closed:
	case f.options.Choose != nil:
		f.nth[op]++
		fault := f.options.Choose(op, f.nth[op])
		fate.ending, fate.kind, fate.wait = fault.Ending, fault.Kind, f.options.MaxLate
		if fault.Ending == Late && !op.writes() {
			fate.ending = Lost
		}
	default:
		fate = f.draw(op)
	}
	f.mu.Unlock()
	// A write whose outcome is unknown even when it lands late is one more that
	// may be applied or not.
	_ = f.land(func(w pendingWrite) bool { return w.due < calls }, pendingWrite.byItself)
	return fate
}

func (w pendingWrite) byItself() error { return w.do(w.ctx) }

func (f *Faults) draw(op Op) fate {
	rates, ok := f.options.PerOp[op]
	if !ok {
		rates = f.options.Rates
	}
	u := func() float64 { return f.rand.Float64() }
	d := fate{op: op, kind: store.Timeout, wait: 1 + f.rand.IntN(f.options.MaxLate), strays: u() < 0.5}
	how, unavailable, delay, share, afterwards, repeat, short, kept := u(), u(), u(), u(), u(), u(), u(), u()
	if unavailable < 0.25 {
		d.kind = store.Unavailable
	}
	switch {
	case how < rates.Refuse:
		d.ending, d.kind = Refused, store.Unavailable
	case how < rates.Refuse+rates.Lose:
		d.ending = Lost
	case how < rates.Refuse+rates.Lose+rates.Late && op.writes():
		d.ending = Late
	}
	if delay < rates.Delay && f.options.Sleep != nil {
		d.before = time.Duration(share * float64(f.options.MaxDelay))
		if afterwards < 0.5 {
			d.before, d.after = 0, d.before
		}
	}
	d.repeat = repeat < rates.Repeat && op.repeatable() && d.ending != Refused && d.ending != Late
	if short < rates.Short {
		d.short = max(kept, 1e-9)
	}
	return d
}

// count adds a fault that has happened to the counts of the operation op. The function add changes the counts.
func (f *Faults) count(op Op, add func(*Counts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add(&f.counts[op])
}

// call runs one call with a random fate. The function do does the real call. If op writes, do may run after call has
// returned, so do must not use memory of the caller. node names the map node that op writes or deletes, or is empty.
func (f *Faults) call(ctx context.Context, op Op, node string, do func(ctx context.Context) error) (fate, error) {
	if ctx.Err() != nil {
		return fate{op: op}, do(ctx)
	}
	d := f.begin(op)
	if node != "" {
		f.landNode(node)
	}
	if d.ending == Refused {
		f.count(op, func(c *Counts) { c.Refused++ })
		return d, d.err()
	}
	if err := f.delay(ctx, op, d.before); err != nil {
		if op.writes() && d.strays {
			f.postpone(ctx, d, node, do)
			f.count(op, func(c *Counts) { c.Late++ })
		}
		return d, err
	}
	if d.ending == Late {
		f.postpone(ctx, d, node, do)
		f.count(op, func(c *Counts) { c.Late++ })
		return d, d.err()
	}
	err := do(ctx)
	if d.repeat && (err == nil || store.OutcomeUnknown(err)) {
		f.postpone(ctx, d, node, do)
		f.count(op, func(c *Counts) { c.Repeated++ })
	}
	if slow := f.delay(ctx, op, d.after); slow != nil && store.KindOf(err) != store.InvalidArgument {
		return d, slow
	}
	if d.ending == Lost && store.KindOf(err) != store.InvalidArgument {
		f.count(op, func(c *Counts) { c.Lost++ })
		return d, d.err()
	}
	return d, err
}

func (f *Faults) delay(ctx context.Context, op Op, d time.Duration) error {
	if d == 0 {
		return nil
	}
	f.count(op, func(c *Counts) { c.Delayed++ })
	return store.Wrap(op.String(), f.options.Sleep(ctx, d))
}

// postpone adds the write do to the pending writes, which are done during later calls. d is the fate of the call.
func (f *Faults) postpone(ctx context.Context, d fate, node string, do func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		w := pendingWrite{op: d.op, due: f.calls + d.wait, node: node, do: do, ctx: context.WithoutCancel(ctx)}
		f.pending = append(f.pending, w)
	}
}

// land does the pending writes for which the function chosen returns true, in the order in which they are due, by the
// function do. The result joins the errors of the writes whose outcome is unknown.
func (f *Faults) land(chosen func(pendingWrite) bool, do func(pendingWrite) error) error {
	f.mu.Lock()
	if len(f.pending) == 0 {
		f.mu.Unlock()
		return nil
	}
	var now []pendingWrite
	f.pending = slices.DeleteFunc(f.pending, func(w pendingWrite) bool {
		if chosen(w) {
			now = append(now, w)
			return true
		}
		return false
	})
	for _, w := range now {
		f.landing[w.node]++
	}
	f.mu.Unlock()

	slices.SortStableFunc(now, func(a, b pendingWrite) int { return cmp.Compare(a.due, b.due) })
	var unknown []error
	for _, w := range now {
		err := do(w)
		if store.OutcomeUnknown(err) {
			unknown = append(unknown, err)
		}
		f.mu.Lock()
		f.counts[w.op].Landed++
		f.landing[w.node]--
		if f.landing[w.node] == 0 {
			delete(f.landing, w.node)
		}
		f.landed.Broadcast()
		f.mu.Unlock()
	}
	return errors.Join(unknown...)
}

// landNode does the pending writes of one map node, and waits for those that other calls are doing at the moment. Nodes
// have no timestamps by which an older write could lose. Without landNode a deleted node could come back.
func (f *Faults) landNode(node string) {
	_ = f.land(func(w pendingWrite) bool { return w.node == node }, pendingWrite.byItself)
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.landing[node] > 0 {
		f.landed.Wait()
	}
}

// shorten returns how many of the n items of a page are kept: all, or at least one if the fate d makes the page short.
func (f *Faults) shorten(d fate, n int) int {
	if d.short == 0 || n < 2 {
		return n
	}
	f.count(d.op, func(c *Counts) { c.Short++ })
	return min(n-1, 1+int(d.short*float64(n-1)))
}
