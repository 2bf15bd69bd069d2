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

// errStopped ends what is under way when a run is over.
var errStopped = errors.New("the simulation is over")

// actor is one client or one life of a mover. All of its goroutines carry it in
// their contexts.
type actor struct {
	name   string
	client bool
	// slow actors take their time until ripe says that now is a good moment.
	slow bool
	ripe func() bool
	lazy bool // it takes more time than others
	// Guarded by scheduler.mu.
	dead   bool
	gone   bool      // its process has ended
	paused time.Time // until then
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
	gone  chan bool // false: the call is lost with its actor
}

// scheduler lets one parked goroutine go on at a time, chosen by chance from a
// seed. Between two steps everything else stands still.
type scheduler struct {
	r     *rand.Rand
	trace func(string)
	// Before each step: with probability nap time goes on by up to longest; weather
	// may change; whatever holds at every moment is held to it.
	nap     float64
	longest time.Duration
	weather func()
	always  func()

	mu       sync.Mutex
	parked   []*parked
	seq      int
	steps    int
	weights  map[string]float64
	hurry    int // how many wait for something that takes a minute
	over     bool
	failures []error
}

// gate waits for the caller's turn; false: its actor died before.
func (s *scheduler) gate(ctx context.Context, what string) bool {
	p := &parked{actor: actorOf(ctx), what: what, gone: make(chan bool, 1)}
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return false
	}
	s.seq++
	p.seq = s.seq
	s.parked = append(s.parked, p)
	s.mu.Unlock()
	return <-p.gone
}

// fail notes a violation and ends the run.
func (s *scheduler) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over && len(s.failures) > 0 {
		return // what the end of the run does to those who were under way
	}
	text := fmt.Errorf("step %d: "+format, append([]any{s.steps}, args...)...).Error()
	s.failures = append(s.failures, errors.New(strings.ReplaceAll(text, padding, "...")))
}

func (s *scheduler) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

// run schedules until done, a violation, or too many steps.
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
				s.fail("everybody waits for something that does not come")
				return
			}
			time.Sleep(time.Millisecond + time.Duration(idle)*100*time.Microsecond)
		case s.steps >= maxSteps:
			s.fail("no end after %d steps", maxSteps)
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

// ready puts those who wait in an order that does not depend on how they came
// here, and counts those who could go on.
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

// pause keeps an actor from going on for a while.
func (s *scheduler) pause(a *actor, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(a.paused) {
		a.paused = until
	}
}

// hurried counts those who wait for something that takes a minute.
func (s *scheduler) hurried(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry += by
}

// step lets one go on. Weights make some actors slow for a while, so that runs
// differ in kind and not only in detail.
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
	does := !p.actor.dead || s.r.IntN(2) == 0
	if s.trace != nil {
		s.trace(fmt.Sprintf("%5d %s: %s%s", s.steps, p.actor.name, p.what,
			map[bool]string{true: "", false: " (lost)"}[does]))
	}
	p.gone <- does
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

// kill makes an actor's calls that are still parked happen or not, by chance.
func (s *scheduler) kill(a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.dead = true
}

// stop lets everybody go, with nothing done.
func (s *scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, p := range s.parked {
		p.gone <- false
	}
	s.parked = nil
}
