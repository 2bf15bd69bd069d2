package countbook

import (
	"math"
	"time"
)

// A rate is a number of events per second in which recent events weigh more than old ones. An event that happened one
// time constant ago (a minute or an hour) counts 1/e of an event that happens now.
type rate struct {
	perS  float64
	since int64 // Unix milliseconds of the first event; 0: none yet
	at    int64 // Unix milliseconds of the last event
}

// These constants are the time constants of rates, and limits for measuring rates. A rate with the constant `fast`
// shows soon that a partition fills. The constant `slow` is for the growth on which forecasts are based.
const (
	fast = time.Minute
	slow = time.Hour
	// setBack tells a clock that was set back from clocks that differ. If an event is further than setBack before the
	// last event, the rate assumes that a clock was set back. The clocks of clients differ by less than setBack.
	setBack = 10 * time.Second
	// many is the number of events from which on a rate can be measured within a second.
	many = 200
)

// add counts n events in the rate. The events happened, evenly distributed, in the duration `over` that ended at the
// time `at`. constant is the time constant of the rate.
//
// The clocks of clients differ a little, so events before the newest moment count as of this moment. If a clock was set
// back, the measurement is shifted back with it.
func (r *rate) add(n float64, over time.Duration, at time.Time, constant time.Duration) {
	now := at.UnixMilli()
	if r.since == 0 {
		if n == 0 {
			return
		}
		r.since, r.at = now-max(over.Milliseconds(), 1), now
	}
	if back := r.at - now; back > setBack.Milliseconds() {
		r.since -= back
		r.at = now
	}
	now = max(now, r.at)
	if left := math.Abs(r.perS) * decay(now-r.at, constant) * constant.Seconds(); left < 0.5 && n >= leastPuts {
		// Nothing is left of the earlier load: a load that comes back is as new as the first one.
		r.since, r.perS = now-max(over.Milliseconds(), 1), 0
	}
	r.perS = r.perS*decay(now-r.at, constant) + n/constant.Seconds()*faded(over, constant)
	r.at = now
}

// get returns the rate at the time `at`, in events per second. The parameter constant is the time constant of the rate,
// e.g. a minute. Until that time has passed, the result is the mean since the first event.
func (r *rate) get(at time.Time, constant time.Duration) float64 {
	// The mean is taken over at least a sixtieth of the constant, or else the first event alone would look like a high
	// rate. After 200 events the mean is taken over at least a second. Otherwise a load that fills a partition within a
	// minute would look like a load that takes an hour.
	if r.since == 0 {
		return 0
	}
	now := max(at.UnixMilli(), r.at)
	least := constant.Milliseconds() / 60
	if math.Abs(r.perS)*constant.Seconds() >= many {
		least = time.Second.Milliseconds()
	}
	seen := 1 - decay(max(now-r.since, least), constant)
	return r.perS * decay(now-r.at, constant) / seen
}

// decay returns the weight that an event still has after ms milliseconds: 1 for a new event, 1/e after one time
// constant, and close to 0 for an old event.
func decay(ms int64, constant time.Duration) float64 {
	return math.Exp(-float64(ms) / float64(constant.Milliseconds()))
}

// faded returns the mean weight, at the end of the duration `over`, of events that were evenly distributed over this
// duration. An event weighs 1 when it happens, and 1/e after one time constant.
func faded(over, constant time.Duration) float64 {
	x := over.Seconds() / constant.Seconds()
	if x < 1e-6 {
		return 1
	}
	return -math.Expm1(-x) / x
}
