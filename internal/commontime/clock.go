package commontime

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Resolution is the resolution of the time of day that a store reads from its servers: store.WallClock.Time truncates
// the time to a multiple of this unit.
const Resolution = time.Millisecond

// Options are the options of a Clock, which draws timestamps from the clocks of a store's servers. A zero field has the
// default.
type Options struct {
	// Limit is the greatest uncertainty about the time with which a write still gets a timestamp; beyond it Next fails.
	// It limits two things: the uncertainty about the clocks of this data centre, and the difference between the clocks
	// of two data centres. If the clocks of two data centres can't be compared, the Clock assumes that they differ by
	// Limit. 0 means DefaultLimit; the least is MinLimit.
	Limit time.Duration
	// Wall and Monotonic replace the two clocks of this machine, for tests; nil means the real clock.
	Wall      func() time.Time
	Monotonic func() time.Duration
}

// DefaultLimit is the value of Options.Limit if that is zero. If the servers' clocks are known less exactly, no write
// gets a timestamp.
const DefaultLimit = 500 * time.Millisecond

// ErrUnknown means that a write can't get a timestamp, since the time of the store's servers is not known exactly
// enough. The text of the error names the cause.
var ErrUnknown = errors.New("the time of the store's servers is not known well enough to write")

const (
	// quickest is the least pause between two short series of questions to a server for its time of day (two looks). In
	// that pause the interval within which the server's clock is known becomes wider by 10 µs.
	quickest = 25 * time.Millisecond
	// slowest is the pause between two looks at a server (short series of questions) while no write has to wait. Many
	// servers or processes make the pause longer.
	slowest = time.Second
	// perServer, multiplied by the number of servers in the list, is the least pause between two looks at a server
	// (short series of questions): with 50 servers, each server is looked at every 500 ms at most.
	perServer = 10 * time.Millisecond
	// perProcess, multiplied by the number of processes that ask the servers, is the least pause between two looks at a
	// server (short series of questions) by one process. So all processes together make at most 200 looks at a server
	// in a second. rarest bounds this pause. In a pause of rarest the interval within which a clock is known becomes
	// wider by 4 ms.
	perProcess = 5 * time.Millisecond
	rarest     = 10 * time.Second
	// perLook is the number of waiting writes for which one look at a server (a short series of questions) is made. If
	// fewer writes wait, the pauses between looks are longer.
	perLook = 8
	// farShare says when more questions to the servers of this data centre are useless: when writes wait for the clocks
	// of another data centre at least farShare times as long as the uncertainty about the clocks here.
	farShare = 10
	// patient and resting are how many questions of one look (short series of questions) may fail to make a server's
	// time more exact before the look ends. patient applies while writes wait, resting while few or no writes do.
	patient = 36
	resting = 2
	// mostAims is the largest number of ticks of a server's clock for which one question waits (see aim).
	mostAims = 20
	// mostLate bounds the average lateness of timers that aim measures. A timer that is later was late because the
	// process did not run.
	mostLate = Resolution / 2
	// fine is an uncertainty about a clock that is small enough not to be reduced further: a put takes a hundred times
	// as long.
	fine = 10 * time.Microsecond
	// restAfter is how long the Clock goes on asking servers for their time after the last timestamp was needed.
	restAfter = 10 * time.Second
	// coarse is the uncertainty about the common time above which Next asks all servers first: the questions take less
	// time than the wait for a timestamp of such uncertainty.
	coarse = 5 * time.Millisecond
	// listEvery is the time between two reads of the list of the store's servers.
	listEvery = 10 * time.Second
	// oldList is the age from which a list of servers is too old to draw timestamps. unsettled is how long after a
	// change of the list the Clock allows for two servers that join or leave at once. The reason for oldList: Cassandra
	// lets servers join at least 30 s apart, so two younger lists differ by one server.
	oldList   = 25 * time.Second
	unsettled = time.Minute
	// forget is how long an answer of a server of this data centre counts. An answer of another data centre counts
	// until a better answer comes, since the data centre may be cut off; drift makes the answer worse meanwhile.
	forget = time.Minute
	// remember is how long, at least, the fastest round trip to a server is remembered.
	remember = 10 * time.Minute
	// spin is the longest wait without a timer: in an idle process a timer takes a millisecond more. If the
	// clock stands still, as in a test, a timer is used after mostStill reads of the clock.
	spin      = 200 * time.Microsecond
	mostStill = 100
	// recheck is the longest sleep of Passed before it checks whether answers of servers have come.
	recheck = 25 * time.Millisecond
	// tries is the number of times that Next asks all servers for their time before it gives up.
	tries = 3
)

// Clock gives out timestamps for writes. It computes them from the common time of a store's servers: the time that the
// clocks of a majority of the servers show, within bounds. A process needs one Clock per store. A Clock is safe for
// concurrent use.
type Clock struct {
	store store.WallClock
	limit time.Duration
	now   func() wait.Instant
	sleep func(context.Context, time.Duration) error

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	state  atomic.Pointer[state]
	used   atomic.Int64 // Instant.Mono of the last need of a timestamp
	rounds singleflight.Group
	counts counts
	late   atomic.Int64 // average lateness of timers in nanoseconds, as aim has measured it
	shared atomic.Int64 // number of processes of this data centre that use the servers, at least

	mu      sync.Mutex // guards the fields from here to failed
	closed  bool
	work    sync.WaitGroup
	awake   bool // the servers are asked in the background
	servers []store.Server
	listed  wait.Instant       // when servers was read last
	changed wait.Instant       // when these servers were listed first
	answers map[string]*answer // by the name of the server
	open    int                // number of unanswered questions of round
	news    chan struct{}      // closed after each answer
	failed  error              // error of the last read of the list of servers

	stamps sync.Mutex
	last   store.Timestamp // the highest timestamp given out
	seen   atomic.Int64    // the highest timestamp given to Seen
	early  atomic.Int64    // the highest timestamp given to Seen before the common time was known
}

// answer is what a Clock knows about the clock of one server: the interval within which the clock's time was at some
// instant, and how the last questions went.
type answer struct {
	interval
	at       wait.Instant
	known    bool
	followed bool  // it is asked in the background
	failed   error // error of the last question; nil: it was answered
	trips    trips
}

// state is the common time of the store's servers at an instant, within bounds. The field listed tells how old the list
// of servers was from which the common time was computed.
type state struct {
	bounds
	at     wait.Instant
	listed wait.Instant // when the list of servers was read
}

// New returns a Clock that draws timestamps from the time of the servers of the store s. The Clock asks no server
// before it is used. New fails with InvalidArgument if Options.Limit is below MinLimit.
func New(s store.WallClock, o Options) (*Clock, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Limit < MinLimit {
		return nil, store.Errorf(store.InvalidArgument, "the limit of the common time is %v: at least %v", o.Limit,
			MinLimit)
	}
	c := &Clock{
		store: s, limit: o.Limit, now: wait.Instants(o.Wall, o.Monotonic), sleep: wait.Sleep,
		answers: map[string]*answer{}, news: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// MinLimit is the least allowed value of Options.Limit, the greatest uncertainty about the time with which writes go
// on. It leaves enough time for a round trip to a server, and for twice the resolution of the servers' answers.
const MinLimit = 10 * time.Millisecond

// SharedBy tells the Clock how many processes ask the same servers for the time, this process included. The more
// processes there are, the less often each of them asks, so that the questions of all processes to one server are
// bounded.
func (c *Clock) SharedBy(processes int) { c.shared.Store(int64(processes)) }

// Close ends the questions to servers for their time of day. Next still works for a while, until the last answers are
// too old.
func (c *Clock) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}

// Next draws n consecutive timestamps (n >= 1) for writes and returns the first. The timestamps are above
//   - all timestamps that this Clock returned from Next before, and all timestamps that were given to Seen;
//   - the timestamps of all writes of this data centre that had been acknowledged (see Passed) before the call;
//   - the timestamps of acknowledged writes of another data centre, if these writes were known here, or were
//     acknowledged longer ago than Settled.
//
// Next fails with ErrUnknown (Unavailable), or with Timeout if ctx ends.
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

// Passed waits until the servers' time has passed the timestamp ts. From then on, any process draws timestamps above
// ts. A writer calls it between a write at ts and its acknowledgement, so that later writes have higher timestamps.
// Passed fails with Timeout if ctx ends first.
func (c *Clock) Passed(ctx context.Context, ts store.Timestamp) error {
	var begun time.Duration
	var before wait.Instant
	still := 0 // number of times in a row that the clock has not moved
	for waited := false; ; waited = true {
		now := c.now()
		v, known := c.at(now) // without the check of the list of servers: Next has made it for ts shortly before
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
		if !known { // ts is another process's: this process has not asked yet
			if err := c.askAll(ctx); err != nil {
				return err
			}
			left = recheck
		}
		// Answers that come meanwhile may end the wait early.
		if err := wait.Sleep(ctx, min(left, recheck)); err != nil {
			return store.Wrap("wait until the timestamp has passed", err)
		}
	}
}

// Seen tells the Clock of a timestamp ts that a read has returned, so that later timestamps of this Clock are above ts.
// Seen ignores a timestamp that is higher than any process can have drawn by now.
func (c *Clock) Seen(ts store.Timestamp) {
	// ts counts even if its write is not acknowledged yet. A timestamp that is too high comes from a process with a
	// wrong time, and would push up all later timestamps.
	if int64(ts) <= c.seen.Load() {
		return
	}
	v, known := c.at(c.now())
	switch {
	case !known: // Next will decide whether ts is believed
		raise(&c.early, ts)
	case ts <= micros(v.low): // Next is above ts anyway
	case ts > c.highest(v):
		c.counts.unbelieved.Add(1)
	default:
		raise(&c.seen, ts)
	}
}

// highest returns an upper bound of the timestamps that any process may have drawn so far. The parameter v is the
// common time of the servers as this process knows it.
func (c *Clock) highest(v bounds) store.Timestamp {
	// With several data centres, the bound is four times reach above latest, the upper bound of v. No clock of a server
	// is above latest by more than the time that news takes from its data centre, which is less than reach. Another
	// process may be above some clock by its own uncertainty. That is at most the limit and a round trip, each at most
	// reach; or twice the limit, if that process can't compare the clocks. The rest is for timestamps that the other
	// process was given by Seen. In a single data centre only the limit matters.
	if !v.several {
		return micros(v.latest() + 4*c.limit)
	}
	return micros(v.latest() + 4*c.reach())
}

// reach returns the time limit for an answer from a server of another data centre. It is Options.Limit, but at least
// DefaultLimit, since the server may be far away.
func (c *Clock) reach() time.Duration { return max(c.limit, DefaultLimit) }

// raise sets the value a to the timestamp ts if ts is higher than the present value. It is safe for concurrent use.
func raise(a *atomic.Int64, ts store.Timestamp) {
	for was := a.Load(); was < int64(ts) && !a.CompareAndSwap(was, int64(ts)); {
		was = a.Load()
	}
}

// Above returns a timestamp above all timestamps that any process of the store has drawn so far. A removal of rows at
// this timestamp hides even writes that arrive late. Above fails with ErrUnknown (Unavailable), or with Timeout if ctx
// ends.
func (c *Clock) Above(ctx context.Context) (store.Timestamp, error) {
	v, err := c.narrow(ctx)
	if err != nil {
		return 0, err
	}
	return c.highest(v) + 1, nil
}

// micros returns the timestamp, which counts microseconds, for the duration t since 1970.
func micros(t time.Duration) store.Timestamp { return store.Timestamp(t / time.Microsecond) }

// at returns bounds of the common time of the store's servers at the instant `now`. The bool is false if too few
// servers have answered so far.
func (c *Clock) at(now wait.Instant) (bounds, bool) {
	s := c.state.Load()
	if s == nil {
		return bounds{}, false
	}
	return s.later(s.at, now), true
}

// current returns bounds of the common time of the store's servers at the instant `now`. The bool is false if too few
// servers have answered so far, or if the list of servers is too old to draw timestamps.
func (c *Clock) current(now wait.Instant) (bounds, bool) {
	s := c.state.Load()
	if s == nil {
		return bounds{}, false
	}
	_, age := now.Since(s.listed)
	return s.later(s.at, now), age < oldList
}

// narrow returns bounds of the common time of the store's servers that are narrow enough to draw timestamps. If the
// known bounds are too wide, narrow first asks all servers of this data centre, at most tries times. It fails with
// ErrUnknown if
//   - the bounds are too wide even after that, or
//   - the clocks of another data centre differ too much.
func (c *Clock) narrow(ctx context.Context) (bounds, error) {
	now := c.now()
	c.wake(now)
	for try := 0; ; try++ {
		v, known := c.current(now)
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

// fresh reports whether the known common time is based on an answer younger than coarse (5 ms) at the instant `now`.
// Another question to a server would then hardly help. The common time must be known.
func (c *Clock) fresh(now wait.Instant) bool {
	_, most := now.Since(c.state.Load().at)
	return most < coarse
}

// refusal returns the error of a Clock that can't draw a timestamp: ErrUnknown, with the cause. Its kind is
// Unavailable. The parameter v has the bounds of the common time, which are set only if known is true.
func (c *Clock) refusal(v bounds, known bool) error {
	c.mu.Lock()
	cause := c.failed
	near, answering := 0, 0
	_, age := c.now().Since(c.listed)
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
	case near > 0 && age >= oldList:
		why = fmt.Sprintf("the list of them was read %v ago, and at most %v are allowed", age.Round(time.Second), oldList)
	default:
		why = fmt.Sprintf("%d of %d servers of this data centre have told theirs, a majority is needed", answering,
			near)
	}
	if cause != nil {
		return store.Errorf(store.Unavailable, "%w: %s: %w", ErrUnknown, why, cause)
	}
	return store.Errorf(store.Unavailable, "%w: %s", ErrUnknown, why)
}
