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
	clocks  []interval
	servers int // also those without an answer
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
	// beyond bounds how far the clocks of the other data centres are ahead.
	beyond time.Duration
}

func (b bounds) later(then, now wait.Instant) bounds {
	b.interval = b.interval.later(then, now)
	return b
}

// latest bounds the clocks of a majority of each data centre's servers.
func (b bounds) latest() time.Duration { return b.high + b.beyond }

// common bounds the common time by the clocks of the near data centre and the known ones of the
// others; unknown ones differ from the near ones by apart at most. false: too few of the near
// servers have answered.
func common(near site, far []site, apart time.Duration) (b bounds, ok bool) {
	if b.interval, ok = near.narrowest(); !ok {
		return b, false
	}
	for i := range far {
		most := apart
		if latest, ok := far[i].latest(); ok {
			most = min(most, latest-b.high)
		}
		b.beyond = max(b.beyond, most)
	}
	return b, true
}
