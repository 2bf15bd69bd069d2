package commontime

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

type counts struct {
	answers, failures, contradictions, refusals, unbelieved, waits, waited atomic.Int64
}

// Counts are counters of a Clock since its creation: how often it asked servers for their time, and how often writes
// waited.
type Counts struct {
	// Answers is the number of answers of servers. Failures is the number of questions that failed, including failed
	// reads of the list of servers.
	Answers, Failures int64
	// Contradictions is the number of answers that contradict earlier answers of the same server, because the server's
	// clock or a clock of this machine was set.
	Contradictions int64
	// Refusals is the number of calls of Next that failed.
	Refusals int64
	// Unbelieved counts the timestamps that Seen ignored, since no process of the store can have given them out.
	Unbelieved int64
	// Waits counts the calls of Passed that had to wait. Waited is the sum of their waits.
	Waits  int64
	Waited time.Duration
}

// Counts returns the counters of the Clock, such as the number of answers of servers and of waits of writes.
func (c *Clock) Counts() Counts {
	n := &c.counts
	return Counts{
		Answers: n.answers.Load(), Failures: n.failures.Load(), Contradictions: n.contradictions.Load(),
		Refusals: n.refusals.Load(), Unbelieved: n.unbelieved.Load(),
		Waits: n.waits.Load(), Waited: time.Duration(n.waited.Load()),
	}
}

// Status is the state of a Clock, for reports: the common time of the store's servers, and the clock of each server.
type Status struct {
	// Known is true if the common time is known. Width is the uncertainty about it: the difference between the latest
	// and the earliest possible common time.
	Known bool
	Width time.Duration
	// Ahead is how far this machine's wall clock is ahead of the common time; it is negative if the wall clock is
	// behind. No timestamp depends on Ahead.
	Ahead time.Duration
	// Servers are the clocks of the servers that have answered recently, ordered by name.
	Servers []ServerClock
	// Silent is the number of servers that have not answered recently.
	Silent int
	// Apart is the greatest time by which the clocks of any two of the servers surely differ.
	Apart time.Duration
	// DataCentres are the clocks of the other data centres, where they can be compared with those of this data centre.
	DataCentres []DataCentreClocks
}

// DataCentreClocks compares the clocks of another data centre with those of this data centre. In both, the clocks of
// most servers count. Ahead is how far the other clocks are ahead (negative: behind), give or take Bound. Refused is
// true if they differ by more than Options.Limit, so that Next fails.
type DataCentreClocks struct {
	DataCentre   string
	Ahead, Bound time.Duration
	Refused      bool
}

// ServerClock is the state of one server's clock, for reports. Ahead is how far the clock is ahead of this machine's
// wall clock (negative: behind), give or take Bound.
type ServerClock struct {
	store.Server
	Ahead, Bound time.Duration
}

// Status returns the present state of the Clock and of the servers' clocks, for reports. It asks no server.
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
