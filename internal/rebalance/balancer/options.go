package balancer

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store"
)

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
	// Led returns the shards whose buckets are looked after now; nil: all are.
	Led func() shard.Set
	// Threads are goroutines if nil. Simulations have others.
	Threads Threads
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
	// Decided is called with each input and what was decided from it, before that is carried out; nil: nothing is. It
	// must not change or keep them.
	Decided func(store.BucketID, *policy.Input, []policy.Decision)
	// Changed is called with the partitions whose counts may have changed since the last call, as they took requests or
	// were counted; nil: nothing is.
	Changed func([]store.Partition)
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
	if o.Led == nil {
		o.Led = func() shard.Set { return shard.All }
	}
	if o.Threads == nil {
		o.Threads = goroutines{}
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
