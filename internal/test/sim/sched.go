package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// errStopped ends the calls that are under way when a run ends.
var errStopped = errors.New("the simulation is over")

// actor is one client or one life of a mover. All of its goroutines carry it in
// their contexts.
type actor struct {
	name   string
	client bool
	// slow actors are rarely chosen until ripe returns true.
	slow bool
	ripe func() bool
	lazy bool // chosen less often than others
	// Guarded by scheduler.mu.
	dead   bool
	gone   bool      // its process has ended
	paused time.Time // not chosen before
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

// parked is a goroutine that waits for its turn.
type parked struct {
	actor *actor
	what  string
	seq   int
	turn  chan bool // false: the call is lost with its actor
}

// scheduler runs one parked goroutine at a time, chosen at random with a seed. Between two
// steps all others are blocked.
type scheduler struct {
	r     *rand.Rand
	trace func(string)
	// Before each step virtual time advances by up to longest, with probability nap;
	// weather may disturb a process; always checks the invariants of every moment.
	nap     float64
	longest time.Duration
	weather func()
	always  func()

	mu       sync.Mutex
	parked   []*parked
	seq      int
	steps    int
	weights  map[string]float64
	hurry    int // number of goroutines that wait for a minute or so
	over     bool
	failures []error
}

// gate waits for the caller's turn. It returns false if its actor died before.
func (s *scheduler) gate(ctx context.Context, what string) bool {
	p := &parked{actor: actorOf(ctx), what: what, turn: make(chan bool, 1)}
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return false
	}
	s.seq++
	p.seq = s.seq
	s.parked = append(s.parked, p)
	s.mu.Unlock()
	return <-p.turn
}

// fail records a violation and ends the run.
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

// run schedules until done returns true, a violation, or maxSteps.
func (s *scheduler) run(done func() bool, maxSteps int) {
	idle := 0
	s.weights = map[string]float64{}
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
			time.Sleep(time.Millisecond + time.Duration(idle)*100*time.Microsecond)
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

// ready sorts the parked goroutines, so that their order does not depend on the Go
// scheduler, and counts those that can continue.
func (s *scheduler) ready() (n int) {
	slices.SortFunc(s.parked, func(a, b *parked) int {
		if c := strings.Compare(a.actor.name, b.actor.name); c != 0 {
			return c
		}
		if c := strings.Compare(a.what, b.what); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
	for _, p := range s.parked {
		if s.weight(p.actor) > 0 {
			n++
		}
	}
	return n
}

// pause blocks an actor for a time.
func (s *scheduler) pause(a *actor, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(a.paused) {
		a.paused = until
	}
}

// hurried adds to the number of goroutines that wait for a minute or so, for which
// time advances faster.
func (s *scheduler) hurried(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry += by
}

// step runs one parked goroutine. Random weights make some actors slow for a time, so
// that also rare interleavings occur.
func (s *scheduler) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r.IntN(60) == 0 {
		s.weights = map[string]float64{}
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
	executed := !p.actor.dead || s.r.IntN(2) == 0
	if s.trace != nil {
		s.trace(fmt.Sprintf("%5d %s: %s%s", s.steps, p.actor.name, p.what,
			map[bool]string{true: "", false: " (lost)"}[executed]))
	}
	p.turn <- executed
}

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
	w, ok := s.weights[a.name]
	if !ok {
		w = []float64{1, 1, 1, 4, 0.1, 0.01}[s.r.IntN(6)]
		if a.lazy {
			w /= 10
		}
		s.weights[a.name] = w
	}
	return w
}

// kill marks an actor as dead: each of its parked calls is executed or lost, at random.
func (s *scheduler) kill(a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.dead = true
}

// stop releases all parked goroutines; their calls are not executed.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, p := range s.parked {
		p.turn <- false
	}
	s.parked = nil
}
