package mapclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/evenkeel/evenkeel/store"
)

// Rows are ordered by their writers' clocks: a client whose clock is ahead makes
// rows that the others can't replace for as long, one whose clock is behind writes
// rows that nobody sees. So each process compares its wall clock with those of the
// store's servers whenever it polls a map clock, and writes stop while it is off.
//
// Each server has one vote, its newest answer, and the median decides, so that one
// server with a wrong clock stops nobody. An answer counts until it is old, or
// until the wall clock and the monotonic clock of the process disagree about how
// old it is: then the one was stepped, or the machine was suspended, and what was
// measured before says nothing any more.

// DefaultClockSkew is how far a client's wall clock may be from the servers' by
// default. Two clients within it are within twice that of each other, which is
// what movers allow for when they remove a range, and when they wait (waitUnder).
const DefaultClockSkew = 500 * time.Millisecond

// ErrClockOff says that the process's wall clock is not known to be near enough to
// those of the store's servers: it must not write.
var ErrClockOff = errors.New("the wall clock is off")

// Skew is what a client knows of its wall clock.
type Skew struct {
	// Ahead is by how much it is ahead of the servers' (negative: behind), the
	// median of the servers asked lately. The truth is within Bound of it.
	Ahead, Bound time.Duration
	// Servers are those asked lately, by name. Without any, nothing is known.
	Servers []ServerClock
}

// ServerClock is by how much this process's wall clock is ahead of one server's.
type ServerClock struct {
	Server       string
	Ahead, Bound time.Duration
}

// Skew tells what is known of the wall clock at this moment. In the embedded form,
// and over a store whose servers have no clocks, nothing is.
func (c *Client) Skew() Skew {
	if c.net == nil || c.net.skew == nil {
		return Skew{}
	}
	return c.net.skew.now()
}

// CheckClock fails with ErrClockOff (Unavailable) unless the process's wall clock
// is known to be within Options.MaxClockSkew of those of the store's servers. Who
// is about to draw a timestamp asks. It measures where nothing is known.
func (c *Client) CheckClock(ctx context.Context) error {
	if c.net == nil || c.net.skew == nil {
		return nil
	}
	err := c.net.skew.check(ctx)
	if err != nil {
		c.net.counts.clockRefusals.Add(1)
	}
	return err
}

// skewWatch compares wall clocks.
type skewWatch struct {
	n     *network
	clock store.WallClock
	limit time.Duration

	asking  singleflight.Group
	verdict atomic.Pointer[verdict]

	mu      sync.Mutex
	answers map[string]skewAnswer // by server
	taken   int                   // answers since there was none
}

// skewAnswer is what one server said last.
type skewAnswer struct {
	ServerClock
	at instant
}

// verdict is what the answers say.
type verdict struct {
	at   instant // of the newest answer
	err  error
	firm bool // enough was measured to refuse for
}

const (
	// firmAfter is how many answers it takes to refuse writes: a single one may
	// come from the one server that is wrong.
	firmAfter = 3
	// answersCount for so many leases, and leastAnswerAge at least.
	answersCount   = 10
	leastAnswerAge = 10 * time.Second
	// steadyFraction of the limit is how far the clocks may part unnoticed.
	steadyFraction = 10
	// resolution of a server's answer.
	resolution = time.Millisecond
	// A server's clock runs wrong by an aDrift-th at most: what is known of it fades by
	// that. Clocks that are slewed run wrong by a two-thousandth.
	aDrift = 1000
)

func newSkewWatch(n *network, clock store.WallClock, limit time.Duration) *skewWatch {
	return &skewWatch{n: n, clock: clock, limit: limit, answers: map[string]skewAnswer{}}
}

// counts reports whether what was measured then says something about now.
func (w *skewWatch) counts(then, now instant) bool {
	return !leaseOver(then, now, max(answersCount*w.n.lease, leastAnswerAge)) && w.steady(then, now)
}

// steady reports whether both clocks have run alike. They differ a little where
// the wall clock is being slewed.
func (w *skewWatch) steady(then, now instant) bool {
	apart := (now.wall - then.wall) - (now.mono - then.mono)
	return max(apart, -apart) <= w.limit/steadyFraction
}

// begin measures in the background, unless somebody does.
func (w *skewWatch) begin() { w.asking.DoChan("", w.measure) }

// check is CheckClock.
func (w *skewWatch) check(ctx context.Context) error {
	if known, err := w.known(); known {
		return err
	}
	var measured error
	for range 2 * firmAfter { // some may fail
		result := w.asking.DoChan("", w.measure)
		select {
		case r := <-result:
			measured = r.Err
		case <-ctx.Done():
			return store.Wrap("compare the wall clock with the servers'", context.Cause(ctx))
		}
		if known, err := w.known(); known {
			return err
		}
	}
	if measured == nil {
		measured = errors.New("it keeps being stepped") // no answer counted even a moment later
	}
	return store.Errorf(store.Unavailable, "%w, or may be: it could not be compared with those of the store's servers: %w", ErrClockOff, measured)
}

// known reports whether the last verdict stands, and what it is.
func (w *skewWatch) known() (bool, error) {
	v := w.verdict.Load()
	if v == nil || !w.counts(v.at, w.n.now()) {
		return false, nil
	}
	return v.err == nil || v.firm, v.err
}

// measure asks one server.
func (w *skewWatch) measure() (any, error) {
	ctx, cancel := context.WithTimeout(w.n.ctx, w.limit)
	defer cancel()
	before := w.n.now()
	t, server, err := w.clock.Time(ctx)
	after := w.n.now()
	if err == nil && !w.steady(before, after) {
		err = store.Errorf(store.Unavailable, "the wall clock was stepped meanwhile")
	}
	if err != nil {
		w.n.counts.skewFailures.Add(1)
		return nil, err
	}
	w.n.counts.skewAnswers.Add(1)
	took := after.mono - before.mono
	w.learn(skewAnswer{at: after, ServerClock: ServerClock{
		Server: server, Ahead: before.wall + took/2 - time.Duration(t.UnixNano()), Bound: took/2 + resolution,
	}})
	return nil, nil
}

// learn takes in an answer and comes to a verdict.
func (w *skewWatch) learn(a skewAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for server, old := range w.answers {
		if !w.counts(old.at, a.at) {
			delete(w.answers, server)
		}
	}
	if len(w.answers) == 0 {
		w.taken = 0
	}
	w.taken++
	if old, known := w.answers[a.Server]; known {
		a.ServerClock = narrowed(old, a)
	}
	w.answers[a.Server] = a
	s := summary(w.answers)
	v := &verdict{at: a.at, firm: w.taken >= firmAfter}
	if off := max(s.Ahead, -s.Ahead); off+s.Bound > w.limit {
		v.err = store.Errorf(store.Unavailable, "%w: %s, more than %v allows: writes stop until it is right (check NTP or chrony on this machine and there)", ErrClockOff, s, w.limit)
	}
	w.verdict.Store(v)
}

// narrowed is what an answer says together with the one before it. A store that is so
// busy that it answers late says little of the time, but clocks that were right a moment
// ago are right still, as long as this process's was not stepped (steady) and nothing
// contradicts it: an answer that does stands for itself, for then the server's was set.
func narrowed(old, a skewAnswer) ServerClock {
	mono, wall := a.at.mono-old.at.mono, a.at.wall-old.at.wall
	ahead, bound := old.Ahead+wall-mono, old.Bound+mono/aDrift
	low, high := max(a.Ahead-a.Bound, ahead-bound), min(a.Ahead+a.Bound, ahead+bound)
	if low > high {
		return a.ServerClock
	}
	return ServerClock{Server: a.Server, Ahead: low + (high-low)/2, Bound: (high - low) / 2}
}

func (w *skewWatch) now() Skew {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.n.now()
	count := map[string]skewAnswer{}
	for server, a := range w.answers {
		if w.counts(a.at, now) {
			count[server] = a
		}
	}
	return summary(count)
}

// summary finds the median. Of two in the middle it is the one that is nearer to
// this process's clock, which has a vote as well.
func summary(answers map[string]skewAnswer) (s Skew) {
	for _, a := range answers {
		s.Servers = append(s.Servers, a.ServerClock)
	}
	if len(s.Servers) == 0 {
		return s
	}
	slices.SortFunc(s.Servers, func(a, b ServerClock) int { return cmp.Compare(a.Ahead, b.Ahead) })
	middle := s.Servers[len(s.Servers)/2]
	if other := s.Servers[(len(s.Servers)-1)/2]; other.Ahead.Abs() < middle.Ahead.Abs() {
		middle = other
	}
	s.Ahead, s.Bound = middle.Ahead, middle.Bound
	slices.SortFunc(s.Servers, func(a, b ServerClock) int { return cmp.Compare(a.Server, b.Server) })
	return s
}

// String says which clock differs from which, and by how much.
func (s Skew) String() string {
	side := "ahead of"
	if s.Ahead < 0 {
		side = "behind"
	}
	by := fmt.Sprintf("%v (±%v) %s", s.Ahead.Abs().Round(time.Millisecond), s.Bound.Round(time.Millisecond), side)
	switch len(s.Servers) {
	case 0:
		return "it was not compared with any server's lately"
	case 1:
		return fmt.Sprintf("that of this process is %s that of %s", by, s.Servers[0].Server)
	}
	return fmt.Sprintf("that of this process is %s those of %d servers (their median)", by, len(s.Servers))
}
