package commontime

import (
	"context"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// askAll asks all servers, or waits for the answers if that is under way: these are newer than
// the call.
func (c *Clock) askAll(ctx context.Context) error {
	done := c.rounds.DoChan("", func() (any, error) {
		c.round()
		return nil, nil
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return store.Wrap("ask the store's servers for the time", context.Cause(ctx))
	}
}

// wake starts asking the servers in the background, for restAfter.
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

// rests reports whether no timestamp was needed for restAfter.
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

// follow asks a server repeatedly in the background, until the clock rests or the server has
// left. mu is held.
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
	for asked := s.Near; ; asked = true { // round has asked the near ones
		c.mu.Lock()
		a.followed = c.awake && c.answers[s.Name] == a
		followed := a.followed
		pause := slowest // of another data centre: its distance matters more than newer answers
		if s.Near {
			helps := better && !c.farWaits()
			pause = pace.next(c.counts.passed.Load(), c.counts.waits.Load(), helps, len(c.servers))
		}
		if !asked {
			pause = 0
		}
		c.mu.Unlock()
		if !followed || wait.Sleep(c.ctx, pause) != nil {
			return
		}
		better = c.look(&s, a)
	}
}

// farWaits reports whether writes wait for the clocks of another data centre. If they do, looks at near clocks would
// shorten the wait by less than a farShare of it.
func (c *Clock) farWaits() bool {
	s := c.state.Load()
	return s != nil && s.beyond >= farShare*s.width()
}

// pace is the pause between two looks at a server, adapted to the writes. The pause is long while no write has to wait,
// and short while writes wait and looks help. A look serves at least perLook waiting writes. So the number of looks
// that all processes make at a server depends on how much is written, and not on how many processes write.
type pace struct {
	pause         time.Duration
	writes, waits int64 // counts at the last look
}

// next returns the pause before the next look at one of the given number of servers. helps: the last look has
// narrowed the server's interval, and so made the waits of writes shorter.
func (p *pace) next(writes, waits int64, helps bool, servers int) time.Duration {
	least := max(quickest, time.Duration(servers)*perServer)
	waited := waits - p.waits
	if waited > 0 { // one look for perLook writes that have waited since the last one
		least = max(least, min(slowest, p.pause*perLook/time.Duration(waited)))
	}
	switch {
	case waited == 0:
		p.pause += p.pause / 2
	case !helps:
		p.pause *= 2
	case oftenWaits*waited > writes-p.writes:
		p.pause = least
	default:
		p.pause = min(p.pause, quick)
	}
	p.pause, p.writes, p.waits = max(min(p.pause, slowest), least), writes, waits
	return p.pause
}

// look asks a server several times, and reports whether its interval is narrower afterwards.
// Answers are truncated to the resolution, so the two answers around a tick of the clock narrow
// it the most, and the more the quicker they come. A look ends when the clock has ticked ticks
// times and the interval is narrower. It goes on while the server is busy: one quick answer
// among many slow ones is enough. A server of another data centre is asked once, but for the first
// contact: how far away it is has to be known.
func (c *Clock) look(s *store.Server, a *answer) (better bool) {
	width := func() time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !a.known {
			return math.MaxInt64
		}
		return a.later(a.at, c.now()).width()
	}
	answers := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return a.trips.answers
	}
	before := width()
	var last time.Time
	ticked := 0
	for i := range mostQuestions {
		t, ok := c.ask(s, a)
		if !ok || !s.Near && answers() >= enough-1 || c.ctx.Err() != nil {
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

// round asks all servers at once. It ends when enough have answered, or no more answers come.
func (c *Clock) round() {
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

// tell wakes round. mu is held.
func (c *Clock) tell() {
	close(c.news)
	c.news = make(chan struct{})
}

// list reads the list of servers if the known one is old, and follows new servers.
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

// ask asks one server and applies its answer.
func (c *Clock) ask(s *store.Server, a *answer) (t time.Time, ok bool) {
	patience := c.limit
	if !s.Near {
		patience = c.reach()
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
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
	trip, _ := after.Since(before) // one that is too short makes writes wait, one that is too long is wrong
	a.trips.add(max(0, trip), after.Mono)
	c.learn(a, answered(time.Duration(t.UnixNano()), store.TimeResolution, before, after), after)
	c.tell()
	return t, true
}

// learn applies an interval of a server's clock at an instant, and computes the common time. mu
// is held.
func (c *Clock) learn(a *answer, v interval, now wait.Instant) {
	if a.known {
		if now.Mono < a.at.Mono {
			return // a later answer came first
		}
		both, agree := a.later(a.at, now).and(v)
		if agree {
			v = both
		} else {
			// The server's clock was set, or one of this machine's: the old interval is
			// void.
			c.counts.contradictions.Add(1)
		}
	}
	a.interval, a.at, a.known = v, now, true
	near, far := c.sites(now)
	if v, ok := common(near, far, c.limit); ok {
		c.state.Store(&state{v, now})
	}
}

// sites returns the known clocks of all data centres at an instant. mu is held.
func (c *Clock) sites(now wait.Instant) (near site, far []site) {
	others := map[string]int{}
	for _, s := range c.servers {
		of := &near
		if !s.Near {
			at, known := others[s.DataCentre]
			if !known {
				at = len(far)
				others[s.DataCentre] = at
				far = append(far, site{name: s.DataCentre, trip: math.MaxInt64})
			}
			of = &far[at]
		}
		of.servers++
		if a := c.answers[s.Name]; a.known {
			if _, most := now.Since(a.at); most < forget || !s.Near {
				of.clocks = append(of.clocks, a.later(a.at, now))
				of.trip = min(of.trip, a.trips.fastest())
				of.timed = of.timed || a.trips.timed
			}
		}
	}
	return near, far
}
