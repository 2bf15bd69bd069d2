package commontime

import (
	"cmp"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// drift bounds how much the speeds of two clocks may differ: by at most 1/drift of the time that passes. That is 200 µs
// per second, as Google's TrueTime assumes.
const drift = 5000

// interval bounds the time that a clock shows at some instant: at least low and at most high. Both are durations since
// 1970.
type interval struct{ low, high time.Duration }

func (v interval) width() time.Duration { return v.high - v.low }

// later returns what is known of a clock at a later instant. v is the interval of the clock's time at the instant
// `then`; the result is the interval at the instant `now`. The result is wider than v, since the speeds of clocks
// differ (see drift).
func (v interval) later(then, now wait.Instant) interval {
	least, most := now.Since(then)
	return interval{v.low + least - least.Abs()/drift, v.high + most + most.Abs()/drift}
}

// answered returns the interval within which the time of a server's clock was at the instant `after`, when the server's
// answer came. The question was sent at the instant `before`. The server read its clock in between; the clock showed t,
// truncated to a multiple of resolution.
func answered(t, resolution time.Duration, before, after wait.Instant) interval {
	v := interval{t, t + resolution}.later(before, after)
	v.low = t
	return v
}

// and returns the intersection of two intervals of time. The bool is false if the intervals have no time in common.
func (v interval) and(other interval) (interval, bool) {
	v.low, v.high = max(v.low, other.low), min(v.high, other.high)
	return v, v.low <= v.high
}

// untilTick returns how long a clock that shows the time t takes to its next tick, which is a multiple of
// Resolution. The result is zero if a tick is at most the duration `near` before or after t.
func untilTick(t, near time.Duration) time.Duration {
	since := t % Resolution
	if left := Resolution - since; min(since, left) > near {
		return left
	}
	return 0
}

// site is what is known, at one instant, of the clocks of the servers in one data centre.
type site struct {
	name string
	// clocks are the intervals of the servers that have answered.
	clocks  []interval
	servers int           // number of servers, also of those without an answer
	pending int           // number of servers that may still give their first answer
	trip    time.Duration // fastest round trip to one of the servers of another data centre
	timed   bool          // trip is the fastest of several round trips
	// young is true if the list of servers has changed less than unsettled ago. Other processes may still have another
	// list.
	young bool
}

// needed returns how many servers' clocks must agree in order to show the time of a data centre. Clocks agree if one
// interval of time contains them all. Usually a majority is needed. While the list of servers has just changed, one
// more is needed if the number of servers is odd, since other processes may have another list. Even then, a majority is
// enough if
//   - fewer servers answer than that number, or
//   - the narrowest interval that contains so many clocks is wider than Settled or than limit.
func (s *site) needed(limit time.Duration) int {
	// The higher number includes a server of every majority of a list that differs by two servers.
	// The reason for the exceptions: a server that fails, or is slow, must not hold up a process that has just begun.
	majority, most := s.servers/2+1, s.servers-(s.servers-2)/2
	if !s.young || most <= majority || len(s.clocks)+s.pending < most {
		return majority
	}
	if v, ok := s.covering(most); ok && v.width() > min(limit, Settled) {
		return majority
	}
	return most
}

// covering returns the narrowest interval of time that contains the clocks of k servers of a data centre. The result ok
// is false if fewer than k servers have answered.
func (s *site) covering(k int) (best interval, ok bool) {
	if len(s.clocks) < k {
		return best, false
	}
	// The loop goes through the intervals from the highest low end downwards. All intervals visited begin at
	// v.low or above, so the k of them that end first give the narrowest interval from v.low.
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

// latest returns a time that at least k of the servers' clocks in a data centre surely do not exceed. It is the lowest
// such time. At least k servers must have answered.
func (s *site) latest(k int) time.Duration {
	byHigh := slices.SortedFunc(slices.Values(s.clocks), func(a, b interval) int { return cmp.Compare(a.high, b.high) })
	return byHigh[k-1].high
}

// bounds are the bounds of the common time of a store's servers at some instant: the time that the clocks of a majority
// of the servers show.
type bounds struct {
	// interval contains the clocks of a majority of the servers of this data centre.
	interval
	// beyond is how far above the interval a timestamp has to be, so that it is above the clocks of the other data
	// centres, too.
	beyond time.Duration
	// several is true if the store has other data centres than this one.
	several bool
	// others are the differences between the clocks of this data centre and those of each other data centre, where the
	// clocks can be compared.
	others []difference
}

// difference says how far the clocks of another data centre are ahead of those of this one. It is an interval that
// contains the difference, which is negative if the other clocks are behind. In both data centres the clocks of a
// majority of the servers count.
type difference struct {
	dataCentre string
	interval
}

// least returns the time by which the clocks of two data centres surely differ, whichever is ahead. It is 0 if the
// clocks may be equal.
func (d *difference) least() time.Duration { return max(0, d.low, -d.high) }

// off returns the data centre whose clocks differ the most from those of this one. The result found is true only if
// they surely differ by more than limit.
func (b bounds) off(limit time.Duration) (worst difference, found bool) {
	for _, d := range b.others {
		if d.least() > max(limit, worst.least()) {
			worst, found = d, true
		}
	}
	return worst, found
}

// later returns the bounds of the common time at a later instant. The bounds b are those at the instant `then`; the
// result is those at the instant `now`. The result is wider than b, since the speeds of clocks differ.
func (b bounds) later(then, now wait.Instant) bounds {
	b.interval = b.interval.later(then, now)
	return b
}

// latest returns the upper bound of the common time: a time that the clocks of a majority of this data centre's servers
// do not exceed. It also takes into account the clocks of other data centres, as of the last news from there.
func (b bounds) latest() time.Duration { return b.high + b.beyond }

// Settled is the time after which a write that was acknowledged in one data centre is below all new timestamps of the
// others. This holds even for a process that has not heard of the write. So movers of rows wait at least this long
// (docs/protocol.md).
const Settled = 100 * time.Millisecond

// unheard returns the least time that news from another data centre takes to come here. It is half of the fastest round
// trip to that data centre, but at most Settled. It is zero until several round trips are known.
func (s *site) unheard() time.Duration {
	// A single round trip may be long for another reason than the distance: perhaps this process did not run when the
	// answer came.
	if !s.timed {
		return 0
	}
	return min(s.trip/2, Settled)
}

// common computes bounds of the time on which the clocks of a store's servers agree. The parameter `near` is what is
// known of the clocks in this data centre, and far is what is known of those in the others. If the clocks of another
// data centre can't be compared with those of this one, they are assumed to differ by at most limit. The result ok is
// false if too few servers of this data centre have answered.
func common(near site, far []site, limit time.Duration) (b bounds, ok bool) {
	// Clocks can't be compared if too few servers of the other data centre have answered, or if its clocks are not
	// known to within the limit and a round trip. For example, two of three servers have answered, and one of the two
	// clocks is wrong; or a data centre has been cut off for half an hour. Clocks that are known are covered even if
	// they differ by more than limit: otherwise the order of writes would be lost.
	if b.interval, ok = near.covering(near.needed(limit)); !ok {
		return b, false
	}
	b.several = len(far) > 0
	for i := range far {
		f, most := &far[i], limit
		k := f.needed(limit)
		if there, ok := f.covering(k); ok {
			most = f.latest(k) - f.unheard() - b.high
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

// trips remembers the fastest of the recent round trips to a server. Time is divided into periods. trips keeps the
// fastest round trip of the present period and of the period before. A period lasts at least for the time `remember`,
// and has at least 4 answers (enough), so nothing is forgotten while no answers come.
type trips struct {
	since       time.Duration // when the present span began, by the monotonic clock
	answers     int           // number of answers in the present span
	now, before time.Duration // fastest round trips of the present span and of the one before it
	timed       bool          // a span has had enough answers
}

// enough is the number of answers of a server from which on its distance counts as known.
const enough = 4

// add records one round trip to a server. trip is its duration, and at is the time at which it ended, by the monotonic
// clock.
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

// fastest returns the duration of the fastest remembered round trip to a server.
func (t *trips) fastest() time.Duration { return min(t.now, t.before) }
