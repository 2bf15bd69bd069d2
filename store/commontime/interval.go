package commontime

import (
	"cmp"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
)

// drift bounds the difference in speed between a server's clock and this machine's: one part in
// so many, 200 µs per second, as TrueTime assumes.
const drift = 5000

// interval holds a clock's time, since 1970, at some instant.
type interval struct{ low, high time.Duration }

func (v interval) width() time.Duration { return v.high - v.low }

// later is the interval at a later instant.
func (v interval) later(then, now wait.Instant) interval {
	least, most := now.Since(then)
	return interval{v.low + least - least.Abs()/drift, v.high + most + most.Abs()/drift}
}

// answered is the interval, at the instant after, of a clock that was read between two instants
// and truncated to the resolution.
func answered(t, resolution time.Duration, before, after wait.Instant) interval {
	v := interval{t, t + resolution}.later(before, after)
	v.low = t
	return v
}

// and returns the intersection of two intervals; false if it is empty.
func (v interval) and(other interval) (interval, bool) {
	v.low, v.high = max(v.low, other.low), min(v.high, other.high)
	return v, v.low <= v.high
}

// site is the known clocks of one data centre at one instant.
type site struct {
	name    string
	clocks  []interval
	servers int           // also those without an answer
	trip    time.Duration // the fastest round trip to a server of another data centre
	timed   bool          // trip is the fastest of several
}

func (s *site) majority() int { return s.servers/2 + 1 }

// narrowest returns the narrowest interval that holds the clocks of a majority of
// the servers; false if fewer have answered.
func (s *site) narrowest() (best interval, ok bool) {
	k := s.majority()
	if len(s.clocks) < k {
		return best, false
	}
	// From the highest low end downwards: all intervals visited begin at or above it, and
	// those of them that end first make the majority.
	byLow := slices.SortedFunc(slices.Values(s.clocks), func(a, b interval) int { return cmp.Compare(b.low, a.low) })
	highs := make([]time.Duration, 0, len(byLow))
	for _, v := range byLow {
		at, _ := slices.BinarySearch(highs, v.high)
		highs = slices.Insert(highs, at, v.high)
		if len(highs) < k {
			continue
		}
		if now := (interval{v.low, highs[k-1]}); !ok || now.width() < best.width() {
			best, ok = now, true
		}
	}
	return best, ok
}

// latest returns the lowest bound above the clocks of a majority; false if fewer
// have answered.
func (s *site) latest() (time.Duration, bool) {
	if len(s.clocks) < s.majority() {
		return 0, false
	}
	byHigh := slices.SortedFunc(slices.Values(s.clocks), func(a, b interval) int { return cmp.Compare(a.high, b.high) })
	return byHigh[s.majority()-1].high, true
}

// bounds hold the common time at some instant.
type bounds struct {
	// interval holds the clocks of a majority of the near servers.
	interval
	// beyond is how far above that a timestamp has to be for the clocks of the other data centres.
	beyond time.Duration
	// several: there are other data centres.
	several bool
	// others are the data centres whose clocks can be compared with the near ones.
	others []difference
}

// difference holds the time of the clocks of a majority of another data centre's servers less that
// of a majority of the near ones.
type difference struct {
	dataCentre string
	interval
}

// least is the least by which the clocks differ.
func (d *difference) least() time.Duration { return max(0, d.low, -d.high) }

// off returns the data centre whose clocks differ the most, if that is surely more than limit.
func (b bounds) off(limit time.Duration) (worst difference, found bool) {
	for _, d := range b.others {
		if d.least() > max(limit, worst.least()) {
			worst, found = d, true
		}
	}
	return worst, found
}

func (b bounds) later(then, now wait.Instant) bounds {
	b.interval = b.interval.later(then, now)
	return b
}

// latest bounds the clocks of a majority of the near servers, and what those of the others were
// when the last news from there was sent.
func (b bounds) latest() time.Duration { return b.high + b.beyond }

// Settled bounds for how long a write that is acknowledged in one data centre may be above new
// timestamps in another one. Who waits for so long need not hear of the write: in the waits of
// movers (docs/protocol.md) it is the margin.
const Settled = 100 * time.Millisecond

// unheard is the least time of news from another data centre that timestamps allow for: half of the
// fastest round trip, or Settled. The package comment has the reason. A single round trip may have been
// long for another reason than the way, as that the process did not run when the answer came: before
// several of them nothing is allowed for.
func (s *site) unheard() time.Duration {
	if !s.timed {
		return 0
	}
	return min(s.trip/2, Settled)
}

// common bounds the common time by the clocks of the near data centre and those of the others. Where
// too few servers of another one have told theirs, its clocks are taken to differ by limit at most.
// What is known is covered also beyond the limit, as its order would be lost otherwise, but for
// clocks that are not known to within the limit and a round trip: two of three servers have told
// theirs, and one of these is wrong, or a cut has lasted for half an hour. Such clocks can't be compared
// any more. false: too few of the near servers have answered.
func common(near site, far []site, limit time.Duration) (b bounds, ok bool) {
	if b.interval, ok = near.narrowest(); !ok {
		return b, false
	}
	b.several = len(far) > 0
	for i := range far {
		f, most := &far[i], limit
		if there, ok := f.narrowest(); ok {
			latest, _ := f.latest()
			most = latest - f.unheard() - b.high
			if there.width() > limit+f.trip {
				most = min(most, limit)
			} else {
				b.others = append(b.others, difference{f.name, interval{there.low - b.high, there.high - b.low}})
			}
		}
		b.beyond = max(b.beyond, most)
	}
	return b, true
}

// trips has the fastest round trip of the last answers of a server: of the time remember at least, and
// of enough at least. Without answers, as in a cut, nothing is forgotten.
type trips struct {
	since       time.Duration // when the present span began
	answers     int           // of the present span
	now, before time.Duration // the fastest of that span and of the one before it
	timed       bool          // there were enough at some time
}

// enough is how many answers tell how long the way is. The first contact has one less (look), so these
// come from two looks, a second apart.
const enough = 4

// add adds a round trip that ended at an instant of the monotonic clock.
func (t *trips) add(trip, at time.Duration) {
	switch {
	case t.answers == 0:
		t.since, t.now, t.before = at, trip, trip
	case at-t.since < remember || t.answers < enough:
		t.now = min(t.now, trip)
	default:
		t.since, t.answers, t.now, t.before = at, 0, trip, t.now
	}
	t.answers++
	t.timed = t.timed || t.answers >= enough
}

func (t *trips) fastest() time.Duration { return min(t.now, t.before) }
