package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/store"
)

// errStopped is the error of the calls that are under way when a run ends.
var errStopped = errors.New("the simulation is over")

// actor is one client, or one mover from a start to its death. All goroutines of an actor have the actor in their
// contexts.
type actor struct {
	name   string
	client bool
	centre int // of two data centres
	// slow is true for an actor that is rarely chosen until the function ripe returns true.
	slow bool
	ripe func() bool
	lazy bool // chosen less often than others
	// The fields below are guarded by scheduler.mu.
	dead   bool
	gone   bool      // its process has ended
	paused time.Time // not chosen before
	weight float64   // in the scheduler's season
	season int
}

type actorKey struct{}

func withActor(ctx context.Context, a *actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func actorOf(ctx context.Context) *actor {
	a, _ := ctx.Value(actorKey{}).(*actor)
	if a == nil {
		return &actor{name: "nobody"}
	}
	return a
}

// parked is a goroutine that waits for its turn in the scheduler.
type parked struct {
	actor *actor
	what  call
	seq   int
	turn  chan bool // false: the call is lost with its actor
}

// call describes what a goroutine is about to do. The description is turned into text for traces only.
type call struct {
	op     string
	part   store.PartitionID
	of     store.Bounds
	rows   []store.Row
	epoch  uint64 // that a swap leads to
	answer bool   // the call is done
}

func (c call) String() string {
	text := c.op
	if c.answer {
		text = "answer to " + text
	}
	if !c.part.IsZero() {
		text += " " + name(c.part)
	}
	switch {
	case c.epoch > 0:
		text += fmt.Sprintf(" to %d", c.epoch)
	case c.rows != nil:
		for _, r := range c.rows {
			text += fmt.Sprintf(" %s@%d", r.Key, r.Timestamp)
			if cells.IsMarker(r.Value) {
				text += "M"
			}
		}
	case c.of.Start != nil || c.of.End != nil:
		text += fmt.Sprintf(" %q %q", c.of.Start, c.of.End)
	}
	return text
}

// works reports whether a mover continues its work with the call. Polls of its map client do not count as work.
func (p *parked) works() bool {
	return !p.actor.client && !p.actor.slow && p.what.op != "read clocks"
}

// compare orders waiting goroutines by what they are about to do, so that their order does not depend on the Go
// scheduler.
func (p *parked) compare(o *parked) int {
	a, b := &p.what, &o.what
	if c := cmp.Or(strings.Compare(p.actor.name, o.actor.name), strings.Compare(a.op, b.op),
		bytes.Compare(a.part[:], b.part[:]), bytes.Compare(a.of.Start, b.of.Start), bytes.Compare(a.of.End, b.of.End),
		cmp.Compare(a.epoch, b.epoch), len(a.rows)-len(b.rows)); c != 0 {
		return c
	}
	for i := range a.rows {
		x, y := &a.rows[i], &b.rows[i]
		if c := cmp.Or(bytes.Compare(x.Key, y.Key), cmp.Compare(x.Timestamp, y.Timestamp),
			bytes.Compare(x.Value, y.Value)); c != 0 {
			return c
		}
	}
	if a.answer != b.answer {
		if b.answer {
			return -1
		}
		return 1
	}
	return p.seq - o.seq
}

// scheduler runs one waiting goroutine at a time, chosen at random by a seed. Between two steps all other goroutines
// are blocked.
type scheduler struct {
	r     *rand.Rand
	trace func(string)
	// nap is the probability that virtual time advances before a step, by up to longest. The function weather may
	// disturb a process before each step. The function always checks the invariants of every moment.
	nap     float64
	longest time.Duration
	pace    float64 // see Config.Pace
	weather func()
	rest    time.Duration // by which time advances where no goroutine waits for its turn
	always  func()

	mu       sync.Mutex
	parked   []*parked // sorted
	free     []*parked // to be used again
	seq      int
	steps    int
	season   int // of the actors' weights
	moved    int // steps of movers
	hurry    int // number of goroutines that wait for a minute or so
	over     bool
	failures []error
}

// gate waits for the caller's turn. what describes what the caller is about to do. The result is false if the caller's
// actor died before its turn.
func (s *scheduler) gate(ctx context.Context, what string) bool {
	return s.gateCall(ctx, call{op: what})
}

func (s *scheduler) gateCall(ctx context.Context, what call) bool {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return false
	}
	var p *parked
	if n := len(s.free); n > 0 {
		p, s.free = s.free[n-1], s.free[:n-1]
	} else {
		p = &parked{turn: make(chan bool, 1)}
	}
	s.seq++
	p.actor, p.what, p.seq = actorOf(ctx), what, s.seq
	at, _ := slices.BinarySearchFunc(s.parked, p, (*parked).compare)
	s.parked = slices.Insert(s.parked, at, p)
	s.mu.Unlock()
	goes := <-p.turn
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, p)
	return goes
}

// fail records a violation of an invariant, which ends the run.
func (s *scheduler) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over && len(s.failures) > 0 {
		return // calls that the end of the run interrupts
	}
	text := fmt.Errorf("step %d: "+format, append([]any{s.steps}, args...)...).Error()
	s.failures = append(s.failures, errors.New(strings.ReplaceAll(text, padding, "...")))
}

func (s *scheduler) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

// run schedules goroutines until no goroutine waits and the function done returns true. A violation, a deadlock, or
// more than maxSteps steps end run earlier.
func (s *scheduler) run(done func() bool, maxSteps int) {
	idle := 0
	s.season = 1
	for !s.failed() {
		synctest.Wait()
		s.mu.Lock()
		n, ready := len(s.parked), s.ready()
		hurry := s.hurry > 0 && s.r.IntN(10) == 0
		s.mu.Unlock()
		switch {
		case n == 0 && done():
			return
		case ready == 0:
			if idle++; idle > 20_000 {
				s.fail("deadlock: no goroutine can continue")
				return
			}
			rest := s.rest
			if idle > 60 { // nobody pauses before another try: all wait for something far away
				rest *= 20
			}
			time.Sleep(max(time.Millisecond+time.Duration(idle)*100*time.Microsecond, rest))
		case s.steps >= maxSteps:
			s.fail("still running after %d steps", maxSteps)
			return
		case hurry:
			time.Sleep(time.Duration(s.r.Int64N(int64(5 * time.Second))))
		case s.r.Float64() < s.nap:
			time.Sleep(time.Duration(s.r.Int64N(int64(s.longest))))
		default:
			idle = 0
			s.weather()
			s.always()
			s.step()
		}
	}
}

// ready returns the number of waiting goroutines that can continue, i.e. whose actors are not paused.
func (s *scheduler) ready() (n int) {
	for _, p := range s.parked {
		if s.weight(p.actor) > 0 {
			n++
		}
	}
	return n
}

// pause blocks the actor a for the time d.
func (s *scheduler) pause(a *actor, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(a.paused) {
		a.paused = until
	}
}

// hurried adds `by` to the number of goroutines that wait for a minute or so. While the number is above 0, time
// advances faster.
func (s *scheduler) hurried(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry += by
}

// step runs one waiting goroutine. Random weights make some actors slow for a time, so that also rare interleavings
// occur.
func (s *scheduler) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r.IntN(60) == 0 {
		s.season++
	}
	total := 0.0
	for _, p := range s.parked {
		total += s.weight(p.actor)
	}
	x := s.r.Float64() * total
	i, last := 0, 0
	for ; i < len(s.parked); i++ {
		w := s.weight(s.parked[i].actor)
		if w == 0 {
			continue
		}
		last = i
		if x -= w; x < 0 {
			break
		}
	}
	i = last
	p := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	s.steps++
	if p.works() {
		s.moved++
	}
	executed := !p.actor.dead || s.r.IntN(2) == 0
	if s.trace != nil {
		s.trace(fmt.Sprintf("%5d %s: %s%s", s.steps, p.actor.name, p.what,
			map[bool]string{true: "", false: " (lost)"}[executed]))
	}
	p.turn <- executed
}

var weights = [...]float64{1, 1, 1, 4, 0.1, 0.01}

func (s *scheduler) weight(a *actor) float64 {
	if !a.paused.IsZero() && !a.dead && time.Now().Before(a.paused) {
		return 0
	}
	if a.slow {
		if a.ripe() {
			return 0.3
		}
		return 0.003
	}
	if a.season != s.season {
		a.season, a.weight = s.season, weights[s.r.IntN(len(weights))]
		if a.lazy {
			a.weight /= 10
		}
	}
	return a.weight
}

// ahead reports whether clients must wait for the movers, as Config.Pace demands.
func (s *scheduler) ahead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace > 0 && float64(s.steps-s.moved) > 300+s.pace*float64(s.moved)
}

// kill marks an actor as dead. Each of its waiting calls is executed or lost, at random.
func (s *scheduler) kill(a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.dead = true
}

// stop releases all waiting goroutines. Their calls are not executed.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, p := range s.parked {
		p.turn <- false
	}
	s.parked = nil
}
