package commontime

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

type counts struct {
	answers, failures, contradictions, refusals, unbelieved, passed, waits, waited atomic.Int64
}

// Counts are counters of a Clock.
type Counts struct {
	// Answers of servers, and questions that failed.
	Answers, Failures int64
	// Contradictions are answers that contradict earlier ones: a server's clock was set, or
	// one of this machine's.
	Contradictions int64
	// Refusals are failures of Next.
	Refusals int64
	// Unbelieved are timestamps given to Seen that no process of the store can have given
	// out.
	Unbelieved int64
	// Waits are the calls of Passed that had to wait, and Waited their total time.
	Waits  int64
	Waited time.Duration
}

// Counts returns the counters.
func (c *Clock) Counts() Counts {
	n := &c.counts
	return Counts{
		Answers: n.answers.Load(), Failures: n.failures.Load(), Contradictions: n.contradictions.Load(),
		Refusals: n.refusals.Load(), Unbelieved: n.unbelieved.Load(),
		Waits: n.waits.Load(), Waited: time.Duration(n.waited.Load()),
	}
}

// Status is the state of a Clock.
type Status struct {
	// Known: the common time is known. Width is latest less earliest.
	Known bool
	Width time.Duration
	// Ahead is how far this machine's wall clock is ahead of the common time (negative:
	// behind). Nothing depends on it.
	Ahead time.Duration
	// Servers are those that have answered recently, by name.
	Servers []ServerClock
	// Silent is the number of the other servers.
	Silent int
	// Apart is the least by which two servers' clocks must differ.
	Apart time.Duration
	// DataCentres are the other ones whose clocks can be compared.
	DataCentres []DataCentreClocks
}

// DataCentreClocks are the clocks of most servers of another data centre: Ahead of those of this one
// (negative: behind), give or take Bound. Refused: they differ by more than Options.Limit, so Next fails.
type DataCentreClocks struct {
	DataCentre   string
	Ahead, Bound time.Duration
	Refused      bool
}

// ServerClock is one server's clock: Ahead of this machine's wall clock (negative: behind), give
// or take Bound.
type ServerClock struct {
	store.Server
	Ahead, Bound time.Duration
}

// Status returns the state. It asks no server.
func (c *Clock) Status() Status {
	now := c.now()
	v, known := c.at(now)
	s := Status{Known: known}
	if known {
		s.Width, s.Ahead = v.latest()-v.low, time.Duration(now.Wall.UnixNano())-(v.low+v.width()/2)
		for _, d := range v.others {
			s.DataCentres = append(s.DataCentres, DataCentreClocks{
				DataCentre: d.dataCentre, Ahead: d.low + d.width()/2, Bound: d.width() / 2, Refused: d.least() > c.limit,
			})
		}
		slices.SortFunc(s.DataCentres, func(a, b DataCentreClocks) int { return cmp.Compare(a.DataCentre, b.DataCentre) })
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
			Server: server, Ahead: v.low + v.width()/2 - time.Duration(now.Wall.UnixNano()), Bound: v.width() / 2,
		})
	}
	if len(lows) > 0 {
		s.Apart = max(0, slices.Max(lows)-slices.Min(highs))
	}
	slices.SortFunc(s.Servers, func(a, b ServerClock) int { return cmp.Compare(a.Name, b.Name) })
	return s
}
