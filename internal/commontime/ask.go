package commontime

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// askAll asks all servers of this data centre for the time of day, and returns when enough servers have answered. If
// another goroutine is asking them already, askAll waits for the end of those questions instead.
func (c *Clock) askAll(ctx context.Context) error {
	// The answers that are still to come are newer than the call.
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

// wake makes sure that the servers are asked for their time of day in the background. The parameter `now` is the
// instant of the call. The background work ends when wake was not called for restAfter.
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

// rests reports whether the servers no longer need to be asked for their time in the background. That is so if no
// timestamp was needed within the last restAfter.
func (c *Clock) rests() bool {
	return c.now().Mono-time.Duration(c.used.Load()) >= restAfter
}

// keepListing reads the list of the store's servers every listEvery. It returns once no timestamp was needed within the
// last restAfter.
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
		c.list(c.now(), listEvery/2)
	}
}

// follow starts to ask the server s for its time of day in the background, if that is not done already. The questions
// end when the server has left the list of servers, or when no timestamp was needed for restAfter. The caller holds mu.
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

// keepAsking asks the server s for its time of day again and again, in short series of questions with pauses between
// them. It ends when the server has left the list of servers, or when no timestamp was needed for restAfter. For a
// server of this data centre, the pauses are shorter while many writes wait for the time to pass. The parameter a has
// the answers so far.
func (c *Clock) keepAsking(s store.Server, a *answer) {
	pace, better := pace{pause: slowest}, false
	for asked := s.Near; ; asked = true { // round has asked the near servers already
		c.mu.Lock()
		a.followed = c.awake && c.answers[s.Name] == a
		followed := a.followed
		least := c.leastPause()
		pause, patience := max(slowest, least), resting // for another data centre: its distance matters more
		if s.Near {
			helps := better && !c.farWaits()
			pause, patience = pace.next(c.counts.waits.Load(), helps, least)
		}
		if !asked {
			pause = 0
		}
		c.mu.Unlock()
		if !followed || wait.Sleep(c.ctx, pause) != nil {
			return
		}
		better = c.look(&s, a, patience)
	}
}

// leastPause returns the shortest allowed pause between two short series of questions to one server. The pause grows
// with the number of servers, and with the number of processes that ask the servers. The caller holds mu.
func (c *Clock) leastPause() time.Duration {
	shared := min(rarest, time.Duration(c.shared.Load())*perProcess)
	return max(quickest, shared, time.Duration(len(c.servers))*perServer)
}

// farWaits reports whether writes wait mostly because the clocks of other data centres differ. More questions to
// servers of this data centre would then hardly help.
func (c *Clock) farWaits() bool {
	// The result is true if that part of the wait is at least farShare times the uncertainty about the clocks of this
	// data centre.
	s := c.state.Load()
	return s != nil && s.beyond >= farShare*s.width()
}

// pace computes the pauses between short series of questions to one server for its time of day. The pause is long while
// no write has to wait for the time to pass. It is short while the questions shorten the waits of writes. There is at
// most one series for each perLook waiting writes, however many processes ask.
type pace struct {
	pause time.Duration
	waits int64 // number of waits of writes until the last look
}

// next returns the pause before the next short series of questions to a server, and the patience of that series. The
// patience is how many questions may fail to make the server's time more exact before the series ends. The parameters
// are:
//   - waits: the number of writes so far that had to wait
//   - helps: true if the last series has made the server's time more exact
//   - least: the shortest allowed pause
func (p *pace) next(waits int64, helps bool, least time.Duration) (pause time.Duration, patience int) {
	most := max(slowest, least)
	waited := waits - p.waits
	if waited > 0 { // one look for perLook writes that have waited since the last one
		least = max(least, min(most, p.pause*perLook/time.Duration(waited)))
	}
	switch {
	case waited == 0:
		p.pause += p.pause / 2
	case !helps:
		p.pause *= 2
	default:
		p.pause = least
	}
	p.pause, p.waits = max(min(p.pause, most), least), waits
	if p.pause >= slowest && (waited < perLook || !helps) {
		return p.pause, resting
	}
	return p.pause, patient
}

// look asks the server s for its time of day, in a short series of questions. The parameter a has the answers so far,
// from which an interval is known that contains the time of the server's clock. The result better is true if this
// interval has become narrower. The series ends when
//   - the interval is not much wider than one and a half times the fastest round trip, or
//   - as many questions as the parameter patience have failed to narrow the interval by an eighth.
//
// A server of another data centre is asked once, but a few times at the first contact, so that its distance is known.
func (c *Clock) look(s *store.Server, a *answer, patience int) (better bool) {
	// One quick answer among many slow ones is enough.
	//
	// Answers are truncated to the resolution of a millisecond. So each question is sent so that it arrives when the
	// middle of the interval is at a tick of the server's clock. The answer tells on which side of the tick the clock
	// is. That leaves half of the interval and of the round trip: some four questions for a millisecond, as against
	// forty to meet a tick by chance.
	before, _, _ := c.interval(a)
	for patience > 0 {
		if s.Near && c.aim(a) != nil {
			break
		}
		was, _, _ := c.interval(a)
		if _, ok := c.ask(s, a); !ok {
			break
		}
		now, trip, answers := c.interval(a)
		if !s.Near && answers >= enough-1 || s.Near && now.width() <= trip+trip/2+fine {
			break
		}
		if now.width() >= was.width()-was.width()/8 {
			patience--
		}
	}
	after, _, _ := c.interval(a)
	return after.width() < before.width()
}

// interval returns what the answers a of one server tell about its clock. The results are:
//   - v: an interval that contains the present time of the clock, or is as wide as can be before the first answer
//   - trip: the fastest round trip to the server
//   - answers: the number of its recent answers
func (c *Clock) interval(a *answer) (v interval, trip time.Duration, answers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.known {
		return interval{0, math.MaxInt64}, 0, 0
	}
	return a.later(a.at, c.now()), a.trips.fastest(), a.trips.answers
}

// aim waits for the best moment to ask a server for its time. A question tells the most if it arrives when the server's
// clock is at a tick. The clock is known to within an interval, so aim waits until the middle of the interval is at a
// tick. It fails when the Clock is closed.
func (c *Clock) aim(a *answer) error {
	// Timers are late, by 60 µs or more, and in an idle process by up to a millisecond. So aim sleeps less, by the
	// average lateness of earlier timers. If the sleep was too short or too long, aim waits for another tick, at most
	// mostAims times. From the second tick on, a quarter of the interval is near enough.
	for again := range mostAims {
		v, trip, _ := c.interval(a)
		near := v.width() / 16
		if again > 0 {
			near = v.width() / 4
		}
		left := untilTick(v.low+v.width()/2+trip/2, near)
		if left == 0 {
			return c.ctx.Err()
		}
		late := time.Duration(c.late.Load())
		if left -= late; left <= 0 {
			left += Resolution
		}
		begun := c.now()
		if err := c.sleep(c.ctx, left); err != nil {
			return err
		}
		slept, _ := c.now().Since(begun)
		// The average may miss a sample: of several goroutines that store it at once, one wins.
		c.late.Store(int64(late + (min(max(0, slept-left), mostLate)-late)/8))
	}
	return nil
}

// round asks all servers of this data centre for their time of day at once. It returns when the common time of a
// majority of these servers is known to within the duration coarse, or when no more answers can come.
func (c *Clock) round() {
	c.list(c.now(), c.reach())
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

// tell wakes the goroutine that waits for answers of servers (see round). It is called after each answer, and after a
// question has failed. The caller holds mu.
func (c *Clock) tell() {
	close(c.news)
	c.news = make(chan struct{})
}

// list reads the list of the store's servers anew if the known list is older than listEvery. It starts to ask new
// servers for their time of day, and forgets servers that are gone. The parameter `now` is the instant of the call, and
// patience is the time limit of the read.
func (c *Clock) list(now wait.Instant, patience time.Duration) {
	// A read takes longer than a question for the time. So patience may be longer than Options.Limit, and is longest
	// where no write waits for the list.
	c.mu.Lock()
	_, most := now.Since(c.listed)
	known := len(c.servers) > 0 && most < listEvery
	c.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	servers, err := c.store.Servers(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.servers) > 0 && now.Mono < c.listed.Mono {
		return // a later list came first
	}
	if c.failed = err; err != nil {
		c.counts.failures.Add(1)
		return
	}
	if !sameServers(c.servers, servers) {
		c.changed = now
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
	c.conclude(c.now())
}

// sameServers reports whether two lists have servers with the same names, in any order.
func sameServers(a, b []store.Server) bool {
	names := func(all []store.Server) (names []string) {
		for i := range all {
			names = append(names, all[i].Name)
		}
		slices.Sort(names)
		return names
	}
	return slices.Equal(names(a), names(b))
}

// ask asks the server s for its time of day, once, and adds the answer to a, which is what is known of the server's
// clock. The result t is the server's time. The result ok is false if the question failed.
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
	trip, _ := after.Since(before) // the shorter by the two clocks: too short makes writes wait, too long is wrong
	a.trips.add(max(0, trip), after.Mono)
	c.learn(a, answered(time.Duration(t.UnixNano()), Resolution, before, after), after)
	c.tell()
	return t, true
}

// learn adds an answer of a server to a, which is what is known of the server's clock. v is an interval that contains
// the clock's time at the instant `now`, by this answer. The known interval becomes the intersection of both. Then
// learn computes the common time of all servers anew. The caller holds mu.
func (c *Clock) learn(a *answer, v interval, now wait.Instant) {
	if a.known {
		if now.Mono < a.at.Mono {
			return // a later answer came first
		}
		both, agree := a.later(a.at, now).and(v)
		if agree {
			v = both
		} else {
			// The server's clock was set, or one of this machine's clocks was: the old interval is void.
			c.counts.contradictions.Add(1)
		}
	}
	a.interval, a.at, a.known = v, now, true
	c.conclude(now)
}

// conclude computes the common time of the store's servers at the instant `now` from what is known of their clocks. If
// too few servers have answered, the earlier result stays. The caller holds mu.
func (c *Clock) conclude(now wait.Instant) {
	near, far := c.sites(now)
	if v, ok := common(near, far, c.limit); ok {
		c.state.Store(&state{v, now, c.listed})
	}
}

// sites returns what is known of the servers' clocks at the instant `now`, by data centre. The result `near` is for
// this data centre, and far has one element for each other data centre. The caller holds mu.
func (c *Clock) sites(now wait.Instant) (near site, far []site) {
	others := map[string]int{}
	since, _ := now.Since(c.changed)
	near.young = since < unsettled
	for _, s := range c.servers {
		of := &near
		if !s.Near {
			at, known := others[s.DataCentre]
			if !known {
				at = len(far)
				others[s.DataCentre] = at
				far = append(far, site{name: s.DataCentre, trip: math.MaxInt64, young: near.young})
			}
			of = &far[at]
		}
		of.servers++
		a := c.answers[s.Name]
		if !a.known && a.failed == nil {
			of.pending++
		}
		if a.known {
			if _, most := now.Since(a.at); most < forget || !s.Near {
				of.clocks = append(of.clocks, a.later(a.at, now))
				of.trip = min(of.trip, a.trips.fastest())
				of.timed = of.timed || a.trips.timed
			}
		}
	}
	return near, far
}
