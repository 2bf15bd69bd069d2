package commontime

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/base/wait"
	"github.com/evenkeel/evenkeel/store"
)

// round is a call that those who need it at the same time share. Whoever comes while
// one is under way waits for that one: its answers are newer than the call.
type round struct {
	mu   sync.Mutex
	done chan struct{} // of the one under way
}

// join begins a round, unless one is under way, and waits for its end. f ends by
// itself in bounded time.
func (r *round) join(ctx context.Context, f func()) error {
	r.mu.Lock()
	done := r.done
	if done == nil {
		done = make(chan struct{})
		r.done = done
		go func() {
			f()
			r.mu.Lock()
			r.done = nil
			r.mu.Unlock()
			close(done)
		}()
	}
	r.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return store.Wrap("ask the store's servers for the time", context.Cause(ctx))
	}
}

// wake keeps the servers being asked for a while.
func (c *Clock) wake(now wait.Instant) {
	c.used.Store(int64(now.Mono))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.awake && !c.closed {
		c.awake = true
		c.work.Go(c.keepListing)
		for i := range c.servers {
			c.follow(&c.servers[i])
		}
	}
}

// rests reports whether no timestamp was asked for of late.
func (c *Clock) rests() bool {
	return c.now().Mono-time.Duration(c.used.Load()) >= restAfter
}

// keepListing keeps the list of servers fresh until the clock rests.
func (c *Clock) keepListing() {
	for {
		if wait.Sleep(c.ctx, listEvery) != nil {
			return
		}
		c.mu.Lock()
		c.awake = !c.rests()
		awake := c.awake
		c.mu.Unlock()
		if !awake {
			return
		}
		c.list(c.now())
	}
}

// follow asks a server again and again, in the background, until the clock rests or
// the server is no longer one; under mu.
func (c *Clock) follow(s *store.Server) {
	a := c.answers[s.Name]
	if a == nil {
		a = &answer{}
		c.answers[s.Name] = a
	}
	if !a.followed && !c.closed {
		a.followed = true
		server := *s
		c.work.Go(func() { c.keepAsking(server, a) })
	}
}

func (c *Clock) keepAsking(s store.Server, a *answer) {
	pace, better := pace{pause: slowest}, false
	for {
		c.mu.Lock()
		a.followed = c.awake && c.answers[s.Name] == a
		followed := a.followed
		pause := slowest // the way to another data centre tells more than a newer answer would
		if s.Near {
			pause = pace.next(c.counts.passed.Load(), c.counts.waits.Load(), better, len(c.servers))
		}
		c.mu.Unlock()
		if !followed || wait.Sleep(c.ctx, pause) != nil {
			return
		}
		better = c.look(&s, a)
	}
}

// pace is how often a server is looked at: seldom as long as the time is known well
// enough that no write waits for it, and often while writes wait and looks help.
type pace struct {
	pause         time.Duration
	writes, waits int64 // until the last look
}

// next is the pause before the next look, of so many servers that are looked at; better
// tells whether the last look has narrowed what is known.
func (p *pace) next(writes, waits int64, better bool, servers int) time.Duration {
	least := max(quickest, time.Duration(servers)*perServer)
	switch waited := waits - p.waits; {
	case waited == 0:
		p.pause += p.pause / 2
	case !better:
		p.pause *= 2
	case oftenWaits*waited > writes-p.writes:
		p.pause = least
	default:
		p.pause = min(p.pause, quick)
	}
	p.pause, p.writes, p.waits = max(min(p.pause, slowest), least), writes, waits
	return p.pause
}

// look asks a server again and again, and tells whether its clock is known better
// afterwards. Answers are truncated to the resolution: the two between which the clock
// goes on to the next unit, a tick, tell the most, and the more the quicker they come.
// A look ends when the clock has ticked ticks times and is known better. It goes on
// where the server is busy: one quick answer among many slow ones is enough.
func (c *Clock) look(s *store.Server, a *answer) (better bool) {
	width := func() time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !a.known {
			return math.MaxInt64
		}
		return a.later(a.at, c.now()).width()
	}
	before := width()
	var last time.Time
	ticked := 0
	for i := range mostQuestions {
		t, ok := c.ask(s, a)
		if !ok || !s.Near || c.ctx.Err() != nil {
			break
		}
		if i > 0 && !t.Equal(last) {
			ticked++
		}
		if last = t; ticked >= ticks && width() < before {
			break
		}
	}
	return width() < before
}

// askAll asks all servers at once. It ends when enough have answered, or all that will.
func (c *Clock) askAll() {
	c.list(c.now())
	c.mu.Lock()
	for i := range c.servers {
		s := c.servers[i]
		a := c.answers[s.Name]
		if s.Near && !c.closed {
			c.open++
			c.work.Go(func() {
				c.ask(&s, a)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.open--
				c.tell()
			})
		}
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		open, news := c.open, c.news
		c.mu.Unlock()
		if v, known := c.at(c.now()); open == 0 || known && v.width() <= coarse {
			return
		}
		<-news
	}
}

// tell wakes askAll; under mu.
func (c *Clock) tell() {
	close(c.news)
	c.news = make(chan struct{})
}

// list reads the list of servers, where what is known is old, and follows new ones.
func (c *Clock) list(now wait.Instant) {
	c.mu.Lock()
	_, most := now.Since(c.listed)
	known := len(c.servers) > 0 && most < listEvery
	c.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.limit)
	defer cancel()
	servers, err := c.store.Servers(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed = err; err != nil {
		c.counts.failures.Add(1)
		return
	}
	c.servers, c.listed = servers, now
	members := make(map[string]bool, len(servers))
	for i := range servers {
		members[servers[i].Name] = true
		c.follow(&servers[i])
	}
	for name := range c.answers {
		if !members[name] {
			delete(c.answers, name)
		}
	}
}

// ask asks one server and learns from its answer.
func (c *Clock) ask(s *store.Server, a *answer) (t time.Time, ok bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.limit)
	defer cancel()
	before := c.now()
	t, err := c.store.Time(ctx, s.Name)
	after := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.failed = err; err != nil {
		c.counts.failures.Add(1)
		return t, false
	}
	c.counts.answers.Add(1)
	c.learn(a, answered(time.Duration(t.UnixNano()), store.TimeResolution, before, after), after)
	c.tell()
	return t, true
}

// learn takes in what a server's clock is known to be at an instant, and finds the
// common time anew; under mu.
func (c *Clock) learn(a *answer, v interval, now wait.Instant) {
	if a.known {
		if now.Mono < a.at.Mono {
			return // another answer came at the same time
		}
		both, agree := a.later(a.at, now).and(v)
		if agree {
			v = both
		} else {
			// The server's clock was set, or this machine's were: what was known before
			// says nothing any more.
			c.counts.contradictions.Add(1)
		}
	}
	a.interval, a.at, a.known = v, now, true
	near, far := c.sites(now)
	if v, ok := common(near, far, c.limit); ok {
		c.state.Store(&state{v, now})
	}
}

// sites is what is known of all data centres at an instant; under mu.
func (c *Clock) sites(now wait.Instant) (near site, far []site) {
	others := map[string]int{}
	for _, s := range c.servers {
		of := &near
		if !s.Near {
			at, known := others[s.DataCentre]
			if !known {
				at = len(far)
				others[s.DataCentre] = at
				far = append(far, site{})
			}
			of = &far[at]
		}
		of.servers++
		if a := c.answers[s.Name]; a.known {
			if _, most := now.Since(a.at); most < forget {
				of.clocks = append(of.clocks, a.later(a.at, now))
			}
		}
	}
	return near, far
}
