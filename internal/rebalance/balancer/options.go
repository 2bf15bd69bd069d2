package balancer

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the settings of a balancer.
type Options struct {
	// Policy has the limits and parameters of decisions; required.
	Policy policy.Policy
	// Every is the interval between two looks at the ranges that were written to; default 30 s.
	Every time.Duration
	// Next returns the time of the next round, given that of the last one, by the wall clock. nil: a round begins at
	// once when Run begins, and then every Every.
	Next func(time.Time) time.Time
	// Exact is true where writes are not recorded, so all ranges are counted at each look.
	Exact bool
	// Confirm is the age at which the recount of a full range is repeated in the background: some writers may not be
	// counted, and counts may be lost. Recounts of smaller ranges are repeated sooner, after an hour at the earliest.
	// 0: never. ConfirmPerS is the maximum number of rows per second that are read for that purpose, on average.
	Confirm     time.Duration
	ConfirmPerS float64
	// Led returns the shards whose buckets this process looks after now; nil: all shards.
	Led func() shard.Set
	// Threads run the concurrent work of a balancer; nil: goroutines. Simulations use Coroutines.
	Threads Threads
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
	// Decided is called with each input and the decisions made from it, before they are carried out. It must not change
	// or keep them. nil: no calls.
	Decided func(store.BucketID, *policy.Input, []policy.Decision)
	// Changed is called with the partitions whose counts may have changed since the last call, because they took
	// requests or were counted. nil: no calls.
	Changed func([]store.Partition)
	// Logger logs the decisions that move ranges, and errors; nil: nothing is logged.
	Logger *slog.Logger
}

// For returns options for ranges of at most maxRows rows. moveRate is the number of rows per second that are copied and
// compared (0: no limit). every is the interval between looks. wait is the maximum time of one wait of a move.
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

// inFlight is how long the automatic moves that go on at the same time may take together.
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

// due reports whether it is time for the next round of looks at buckets. last is when the last round began; zero: there
// was none.
func (o *Options) due(last, now time.Time) bool {
	if o.Next != nil {
		return !now.Before(o.Next(last))
	}
	return last.IsZero() || now.Sub(last) >= o.Every
}
