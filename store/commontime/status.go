package commontime

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

type counts struct {
	answers, failures, contradictions, refusals, unbelieved, passed, waits, waited atomic.Int64
}

// Counts is what a clock has done so far.
type Counts struct {
	// Answers of servers to which time it is; Failures are the questions without one.
	Answers, Failures int64
	// Contradictions are answers that can't be true together with the ones before:
	// a server's clock was set, or this machine's were.
	Contradictions int64
	// Refusals is how often Next failed.
	Refusals int64
	// Unbelieved is how often a read returned a timestamp that no process of the
	// store can have given out.
	Unbelieved int64
	// Waits is how often Passed had to wait, and Waited how long, together.
	Waits  int64
	Waited time.Duration
}

// Counts tells what the clock has done so far.
func (c *Clock) Counts() Counts {
	n := &c.counts
	return Counts{
		Answers: n.answers.Load(), Failures: n.failures.Load(), Contradictions: n.contradictions.Load(),
		Refusals: n.refusals.Load(), Unbelieved: n.unbelieved.Load(),
		Waits: n.waits.Load(), Waited: time.Duration(n.waited.Load()),
	}
}

// Status is what a clock knows at one moment.
type Status struct {
	// Known: the common time is known. Width is how well: latest less earliest.
	Known bool
	Width time.Duration
	// Ahead is by how much this machine's wall clock is ahead of the common time
	// (negative: behind). Nothing depends on it.
	Ahead time.Duration
	// Servers are those that have answered lately, by name.
	Servers []ServerClock
	// Silent is how many servers have not.
	Silent int
	// Apart is by how much two servers' clocks are known to differ, at least.
	Apart time.Duration
}

// ServerClock is by how much one server's clock is ahead of this machine's wall
// clock (negative: behind). The truth is within Bound of it.
type ServerClock struct {
	Name, Address, DataCentre string
	Near                      bool
	Ahead, Bound              time.Duration
}

// Status tells what is known at this moment. It asks nobody.
func (c *Clock) Status() Status {
	now := c.now()
	v, known := c.at(now)
	s := Status{Known: known}
	if known {
		s.Width, s.Ahead = v.latest()-v.low, time.Duration(now.Wall.UnixNano())-(v.low+v.width()/2)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var lows, highs []time.Duration
	for _, server := range c.servers {
		a := c.answers[server.Name]
		if _, most := now.Since(a.at); !a.known || most >= forget {
			s.Silent++
			continue
		}
		v := a.later(a.at, now)
		lows, highs = append(lows, v.low), append(highs, v.high)
		s.Servers = append(s.Servers, ServerClock{
			Name: server.Name, Address: server.Address, DataCentre: server.DataCentre, Near: server.Near,
			Ahead: v.low + v.width()/2 - time.Duration(now.Wall.UnixNano()), Bound: v.width() / 2,
		})
	}
	if len(lows) > 0 {
		s.Apart = max(0, slices.Max(lows)-slices.Min(highs))
	}
	slices.SortFunc(s.Servers, func(a, b ServerClock) int { return cmp.Compare(a.Name, b.Name) })
	return s
}
