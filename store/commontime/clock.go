package commontime

import (
	"context"
	"errors"
	"fmt"
	"golang.org/x/sync/singleflight"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Options of a Clock. Zero values are the defaults.
type Options struct {
	// Limit is the most by which the bounds of the near servers' clocks may differ for Next to
	// work, and the clocks of two data centres; it is assumed of those that can't be compared.
	// DefaultLimit if zero.
	Limit time.Duration
	// Wall and Monotonic are the two clocks of this machine; the real ones if nil.
	Wall      func() time.Time
	Monotonic func() time.Duration
}

// DefaultLimit is the default of Options.Limit.
const DefaultLimit = 500 * time.Millisecond

// ErrUnknown: the common time is not known well enough to write. The error's text names the
// cause.
var ErrUnknown = errors.New("the time of the store's servers is not known well enough to write")

const (
	// The pauses between looks at a server are from quickest to slowest, and with many
	// servers at least perServer for each. While some writes have to wait they are quick at
	// most, and while more than one in oftenWaits has to, quickest, but never quicker than perLook of
	// them wait. A look ends after ticks ticks of the clock, or mostQuestions questions.
	quickest      = 25 * time.Millisecond
	quick         = 60 * time.Millisecond
	slowest       = time.Second
	oftenWaits    = 5
	perServer     = 10 * time.Millisecond
	perLook       = 2
	farShare      = 10
	ticks         = 2
	mostQuestions = 48
	// restAfter is how long after the last timestamp the servers are still asked.
	restAfter = 10 * time.Second
	// coarse is the width above which Next asks all servers first: that takes less time than
	// to wait until the timestamp has passed.
	coarse = 5 * time.Millisecond
	// listEvery is the time between reads of the list of servers.
	listEvery = 10 * time.Second
	// forget is how long an answer of a near server counts. That of another data centre counts
	// until there is a better one: drift makes it worse, but in a cut nothing is better.
	forget = time.Minute
	// remember is for how long the fastest round trip counts.
	remember = 10 * time.Minute
	// spin is the longest wait without a timer: in an idle process a timer takes a
	// millisecond more. After mostStill looks at a clock that stands still, as in a test, a
	// timer is used all the same.
	spin      = 200 * time.Microsecond
	mostStill = 100
	// tries is how often Next asks all servers before it gives up.
	tries = 3
)

// Clock knows the common time. It is safe for concurrent use; a process needs one per store.
type Clock struct {
	store store.WallClock
	limit time.Duration
	now   func() wait.Instant

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	state  atomic.Pointer[state]
	used   atomic.Int64 // Mono of the last timestamp
	rounds singleflight.Group
	counts counts

	mu      sync.Mutex // guards what follows
	closed  bool
	work    sync.WaitGroup
	awake   bool // the servers are asked in the background
	servers []store.Server
	listed  wait.Instant
	answers map[string]*answer // of each server
	open    int                // pending questions of round
	news    chan struct{}      // closed after each answer
	failed  error              // of the last list of servers

	stamps sync.Mutex
	last   store.Timestamp // the highest one given out
	seen   atomic.Int64    // the highest one that a read returned
	early  atomic.Int64    // the same, for reads before the time was known
}

// answer is what is known about one server's clock.
type answer struct {
	interval
	at       wait.Instant
	known    bool
	followed bool  // it is asked in the background
	failed   error // of the last question
	trips    trips
}

// state is the common time at an instant.
type state struct {
	bounds
	at wait.Instant
}

// New makes a clock. It asks no server before it is used. It fails with InvalidArgument where
// an option is out of bounds.
func New(s store.WallClock, o Options) (*Clock, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Limit < MinLimit {
		return nil, store.Errorf(store.InvalidArgument, "the limit of the common time is %v: at least %v", o.Limit,
			MinLimit)
	}
	c := &Clock{
		store: s, limit: o.Limit, now: wait.Instants(o.Wall, o.Monotonic),
		answers: map[string]*answer{}, news: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// MinLimit is the least Options.Limit: twice the resolution of answers and a round trip.
const MinLimit = 10 * time.Millisecond

// Close stops asking. Next fails once the last answers are too old.
func (c *Clock) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}

// Next returns the first of n consecutive timestamps (n >= 1). They are above all timestamps
// that it returned before, that were given to Seen, and that had been acknowledged (Passed) before
// the call: by processes of this data centre, and by those of another one if that was known here, or
// Settled ago. It fails with ErrUnknown (Unavailable), or Timeout when ctx ends.
func (c *Clock) Next(ctx context.Context, n int) (store.Timestamp, error) {
	v, err := c.narrow(ctx)
	if err != nil {
		c.counts.refusals.Add(1)
		return 0, err
	}
	if early := c.early.Swap(0); early > 0 {
		c.Seen(store.Timestamp(early))
	}
	c.stamps.Lock()
	defer c.stamps.Unlock()
	first := max(micros(v.latest())+1, c.last+1, store.Timestamp(c.seen.Load())+1)
	c.last = first + store.Timestamp(n) - 1
	return first, nil
}

// Passed returns when the earliest common time has passed ts: later timestamps of every process
// are above it. Only then a write at ts may be acknowledged. It fails with Timeout when ctx
// ends first.
func (c *Clock) Passed(ctx context.Context, ts store.Timestamp) error {
	c.counts.passed.Add(1)
	var begun time.Duration
	var before wait.Instant
	still := 0 // times that time stood still
	for waited := false; ; waited = true {
		now := c.now()
		v, known := c.at(now)
		left := time.Duration(ts+1)*time.Microsecond - v.low
		if known && left <= 0 {
			if waited {
				c.counts.waits.Add(1)
				c.counts.waited.Add(int64(now.Mono - begun))
			}
			return nil
		}
		if !waited {
			begun = now.Mono
			c.wake(now)
		}
		if still++; now != before {
			still, before = 0, now
		}
		if known && left <= spin && still < mostStill {
			if err := ctx.Err(); err != nil {
				return store.Wrap("wait until the timestamp has passed", context.Cause(ctx))
			}
			runtime.Gosched()
			continue
		}
		if !known { // the timestamp is another process's
			if err := c.askAll(ctx); err != nil {
				return err
			}
			left = quickest
		}
		// Answers that come meanwhile may end the wait early.
		if err := wait.Sleep(ctx, min(left, quickest)); err != nil {
			return store.Wrap("wait until the timestamp has passed", err)
		}
	}
}

// Seen records a timestamp that a read returned: later timestamps are above it, though its
// writer may still wait in Passed. One above every possible timestamp is ignored: a client
// without a bound wrote it, and all later timestamps would have to exceed it.
func (c *Clock) Seen(ts store.Timestamp) {
	if int64(ts) <= c.seen.Load() {
		return
	}
	v, known := c.at(c.now())
	switch {
	case !known: // Next judges it
		raise(&c.early, ts)
	case ts <= micros(v.low): // Next is above it anyway
	case ts > c.highest(v):
		c.counts.unbelieved.Add(1)
	default:
		raise(&c.seen, ts)
	}
}

// highest is the highest timestamp that any process may have given out so far. No clock is above
// latest by more than the news may take from there, which is less than reach. That process's latest
// is above some clock by what is uncertain, the limit and a round trip at most, which is as much as
// reach each; or by twice the limit, where it can't compare. The rest is for what it may have seen.
// In a single data centre only the limit matters.
func (c *Clock) highest(v bounds) store.Timestamp {
	if !v.several {
		return micros(v.latest() + 4*c.limit)
	}
	return micros(v.latest() + 4*c.reach())
}

// reach is for how long a server of another data centre is waited for: it may be farther away than
// the clocks differ.
func (c *Clock) reach() time.Duration { return max(c.limit, DefaultLimit) }

// raise sets a to ts if that is higher.
func raise(a *atomic.Int64, ts store.Timestamp) {
	for was := a.Load(); was < int64(ts) && !a.CompareAndSwap(was, int64(ts)); {
		was = a.Load()
	}
}

// Above returns a timestamp above all that any process of the store has given out so far, for
// removals that must hide writes which arrive late. It fails like Next.
func (c *Clock) Above(ctx context.Context) (store.Timestamp, error) {
	v, err := c.narrow(ctx)
	if err != nil {
		return 0, err
	}
	return c.highest(v) + 1, nil
}

// micros converts a time to a timestamp.
func micros(t time.Duration) store.Timestamp { return store.Timestamp(t / time.Microsecond) }

// at returns the common time at an instant, if it is known.
func (c *Clock) at(now wait.Instant) (bounds, bool) {
	s := c.state.Load()
	if s == nil {
		return bounds{}, false
	}
	return s.later(s.at, now), true
}

// narrow returns the common time, narrow enough to write. If it is not, narrow asks all servers,
// a few times.
func (c *Clock) narrow(ctx context.Context) (bounds, error) {
	now := c.now()
	c.wake(now)
	for try := 0; ; try++ {
		v, known := c.at(now)
		width := v.width()
		_, off := v.off(c.limit)
		switch {
		case known && off: // questions to near servers don't help
			return v, c.refusal(v, known)
		case known && width <= coarse, known && width <= c.limit && (try > 0 || c.fresh(now)):
			return v, nil
		case try == tries || c.ctx.Err() != nil:
			return v, c.refusal(v, known)
		}
		if err := c.askAll(ctx); err != nil {
			return v, err
		}
		now = c.now()
	}
}

// fresh reports whether a server has just answered, so that another question would not help.
func (c *Clock) fresh(now wait.Instant) bool {
	_, most := now.Since(c.state.Load().at)
	return most < coarse
}

// refusal is the error of a Clock that gives out no timestamp.
func (c *Clock) refusal(v bounds, known bool) error {
	c.mu.Lock()
	cause := c.failed
	near, answering := 0, 0
	for _, s := range c.servers {
		if s.Near {
			near++
			a := c.answers[s.Name]
			if a != nil && a.known {
				answering++
			}
			if a != nil && cause == nil {
				cause = a.failed
			}
		}
	}
	c.mu.Unlock()
	var why string
	off, isOff := v.off(c.limit)
	switch {
	case c.ctx.Err() != nil:
		why = "the client is closed"
	case known && isOff:
		side := "ahead of"
		if off.low < 0 {
			side = "behind"
		}
		return store.Errorf(store.Unavailable, "%w: the clocks of most servers of data centre %s are at least %v %s those"+
			" of this one, more than %v allows (check NTP or chrony on the servers of both)", ErrUnknown, off.dataCentre,
			off.least().Round(time.Millisecond), side, c.limit)
	case known:
		why = fmt.Sprintf("a majority of their clocks is known to within %v only, more than %v allows: they are"+
			" apart, or answer late"+
			" (check NTP or chrony on the servers, and their load)", v.width().Round(time.Millisecond), c.limit)
	default:
		why = fmt.Sprintf("%d of %d servers of this data centre have told theirs, a majority is needed", answering,
			near)
	}
	if cause != nil {
		return store.Errorf(store.Unavailable, "%w: %s: %w", ErrUnknown, why, cause)
	}
	return store.Errorf(store.Unavailable, "%w: %s", ErrUnknown, why)
}
