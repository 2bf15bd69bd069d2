package counter

import (
	"math"
	"time"
)

// A rate is events per second, weighted by age: what happened one time constant
// ago counts 1/e of what happens now.
type rate struct {
	perS  float64
	since int64 // Unix milliseconds of the first event; 0: none yet
	at    int64 // of the last
}

// Time constants. The fast one notices a tail that fills, the slow one is what
// forecasts build on.
const (
	fast = time.Minute
	slow = time.Hour
	// setBack is more than the clocks of clients differ.
	setBack = 10 * time.Second
	// many is the number of events whose rate can be measured within a short time.
	many = 200
)

// add counts n events that are spread over some time up to at. Clocks of clients differ a
// little: events before the newest moment count as now. If a clock is set back the
// measurement is shifted with it.
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
		// Nothing is left of what was: a load that comes back is as new as the first one.
		r.since, r.perS = now-max(over.Milliseconds(), 1), 0
	}
	r.perS = r.perS*decay(now-r.at, constant) + n/constant.Seconds()*faded(over, constant)
	r.at = now
}

// get returns the rate at a time. Before a whole time constant has passed it is the mean since
// the first event, but over a sixtieth of the constant at least, or the first event would
// look like many. With many events a second is enough: a load that fills a partition within a
// minute must not look like one that takes an hour.
func (r *rate) get(at time.Time, constant time.Duration) float64 {
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

func decay(ms int64, constant time.Duration) float64 {
	return math.Exp(-float64(ms) / float64(constant.Milliseconds()))
}

// faded is the weight, at its end, of events that are spread over some time.
func faded(over, constant time.Duration) float64 {
	x := over.Seconds() / constant.Seconds()
	if x < 1e-6 {
		return 1
	}
	return -math.Expm1(-x) / x
}
