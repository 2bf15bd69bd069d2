package balancer

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the settings of a balancer, e.g. the policy by which ranges are split, and the interval between checks.
type Options struct {
	// Policy has the limits and parameters of the decisions about ranges. Policy is required.
	Policy policy.Policy
	// Every is the interval between two checks of the ranges that were written to. The default is 30 s.
	Every time.Duration
	// Next returns the time at which the next interval begins, given the time of the last one, by the wall clock. If
	// Next is nil, an interval begins when Run is called, and another one each time that Every has passed.
	Next func(time.Time) time.Time
	// Exact is true where writes are not recorded by counters, so that all ranges are counted exactly at each check.
	Exact bool
	// Confirm is the age at which the exact count of a full range is repeated in the background. Counters may miss
	// writes or lose counts, and are corrected by the new count. The counts of smaller ranges are repeated sooner,
	// after an hour at the earliest. If Confirm is 0, counts are not repeated. ConfirmPerS is the maximum number of
	// rows per second that repeated counts read, on average.
	Confirm     time.Duration
	ConfirmPerS float64
	// Led returns the set of shards whose buckets this process checks at present. If Led is nil, the process checks all
	// shards.
	Led func() shard.Set
	// Threads run the concurrent work of the balancer. If Threads is nil, the work runs in goroutines. Simulations use
	// Coroutines.
	Threads Threads
	// Now returns the time of the wall clock. If Now is nil, time.Now is called.
	Now func() time.Time
	// Decided is called with the input of the policy and the decisions made from the input, before the decisions are
	// carried out. Decided must not change or keep its arguments. If Decided is nil, there are no calls.
	Decided func(store.BucketID, *policy.Input, []policy.Decision)
	// Changed is called with the partitions whose counts may have changed since the last call, because the partitions
	// took requests or were counted. If Changed is nil, there are no calls.
	Changed func([]store.Partition)
	// Logger logs errors, and the decisions that move ranges. If Logger is nil, nothing is logged.
	Logger *slog.Logger
}

// For returns the options of a balancer whose ranges have at most maxRows rows. moveRate is the number of rows per
// second that moves copy and compare, or 0 for no limit. The parameter `every` is the interval between two checks. The
// parameter wait is the longest time that one wait of a move lasts.
func For(maxRows int64, moveRate int, every, wait time.Duration) Options {
	p := policy.Default(maxRows)
	// Counts are one or two seconds old, and the first wait includes one for clocks.
	p.Effect = 2*wait + 3*time.Second
	// With longer intervals some cuts come too late: a forecast for a whole day would be worse.
	p.Lead = min(every, time.Hour) + p.Effect
	p.Budget.Rows = 20 * maxRows
	if moveRate > 0 {
		p.MovedPerS = float64(moveRate) / 2 // each row is copied and compared
		// Moves that have not begun can still be decided anew.
		p.Budget.Rows = min(p.Budget.Rows, int64(p.MovedPerS*inFlight.Seconds()))
	}
	return Options{Policy: p, Every: every, Confirm: 24 * time.Hour, ConfirmPerS: float64(cmp.Or(moveRate, 20_000)) / 10}
}

// inFlight limits the automatic moves that have not ended. Together they may copy at most as many rows as can be moved
// in this time.
const inFlight = time.Minute

// withDefaults returns a copy of the options in which each unset field has its default, e.g. an interval of 30 s.
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

// due reports whether the next regular interval begins, in which buckets are checked. The parameter last is the time at
// which the last interval began, or zero if there was none.
func (o *Options) due(last, now time.Time) bool {
	if o.Next != nil {
		return !now.Before(o.Next(last))
	}
	return last.IsZero() || now.Sub(last) >= o.Every
}
