package commontime

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
)

// reading is a question for a far clock and its answer, by the near clock.
type reading struct{ asked, received, showed time.Duration }

func (r *reading) trip() time.Duration { return r.received - r.asked }

func (r *reading) ago(now time.Duration) time.Duration { return now - r.asked }

// distance is two data centres: the fastest ways there and back, how late answers mostly are, how far
// the far clock is ahead and how much faster it runs, and for how long the link has been cut.
type distance struct {
	there, back, late, ahead, cut time.Duration
	speed                         float64
}

func (d *distance) clock(now time.Duration) time.Duration {
	return now + d.ahead + time.Duration(d.speed*float64(now))
}

// rule is the time that a stamp has to be above, as far as the far clock is concerned.
type rule func(all []reading, now time.Duration) time.Duration

// instant is an instant of a machine whose two clocks agree.
func instant(now time.Duration) wait.Instant {
	return wait.Instant{Mono: now, Wall: time.Unix(0, int64(now))}
}

// product is the rule of a Clock.
func product(limit time.Duration) rule {
	return func(all []reading, now time.Duration) time.Duration {
		var a answer
		for _, r := range all {
			a.trips.add(r.trip(), r.received)
			v := answered(r.showed, Resolution, instant(r.asked), instant(r.received))
			if a.known {
				v, _ = a.later(a.at, instant(r.received)).and(v)
			}
			a.interval, a.at, a.known = v, instant(r.received), true
		}
		v, _ := common(
			site{clocks: []interval{{now, now}}, servers: 1},
			[]site{{
				clocks: []interval{a.later(a.at, instant(now))}, servers: 1, trip: a.trips.fastest(), timed: a.trips.timed,
			}}, limit,
		)
		if _, off := v.off(limit); off {
			return forEver
		}
		return v.latest()
	}
}

// forEver is the rule's answer where nothing is stamped.
const forEver = 1000 * time.Hour

// upper is the highest that the clock can show now, as one reading tells.
func upper(r *reading, now time.Duration) time.Duration {
	return r.showed + Resolution + r.ago(now) + r.ago(now)/drift
}

func fastest(all []reading) *reading {
	best := &all[0]
	for i := range all {
		if all[i].trip() < best.trip() {
			best = &all[i]
		}
	}
	return best
}

// mistakes are rules that are wrong somewhere.
var mistakes = map[string]rule{
	"the near clock alone": func([]reading, time.Duration) time.Duration { return 0 },
	"the receipt of an answer taken for its reading": func(all []reading, now time.Duration) time.Duration {
		r := fastest(all)
		return r.showed + now - r.received + (now-r.received)/drift - r.trip()/2
	},
	"the highest lower bound, whatever its age": func(all []reading, now time.Duration) (highest time.Duration) {
		for i := range all {
			since := now - all[i].received
			highest = max(highest, all[i].showed+since-since/drift)
		}
		return highest + fastest(all).trip()/2
	},
	"half of the slowest round trip": func(all []reading, now time.Duration) time.Duration {
		slowest := time.Duration(0)
		for i := range all {
			slowest = max(slowest, all[i].trip())
		}
		return upper(fastest(all), now) - slowest/2
	},
	"half of the round trip, however long": func(all []reading, now time.Duration) time.Duration {
		r := fastest(all)
		return upper(r, now) - r.trip()/2
	},
	"no drift in a cut": func(all []reading, now time.Duration) time.Duration {
		r := fastest(all)
		return r.showed + r.ago(now) - r.trip()/2
	},
	"no margin for faster news": func(all []reading, now time.Duration) time.Duration {
		r := fastest(all)
		return upper(r, now) - r.trip()
	},
	"covered up to the limit": func(all []reading, now time.Duration) time.Duration {
		return min(product(forEver)(all, now), now+DefaultLimit)
	},
}

// TestOrderOfTwoDataCentres: X is acknowledged in one, the news travels, and Y begins in the other. The rule
// orders all of these, for news that is up to twice as fast as the fastest answer, and each mistake does not.
func TestOrderOfTwoDataCentres(t *testing.T) {
	const ms = time.Millisecond
	var all []distance
	for _, ways := range [][2]time.Duration{{40, 40}, {10, 70}, {70, 10}, {5, 450}} {
		for _, ahead := range []time.Duration{-1000, -200, -30, 0, 5, 30, 200, 490, 1000} {
			for _, cut := range []time.Duration{0, 30, 120} {
				for _, speed := range []float64{0, 150e-6, 199e-6, -199e-6} {
					all = append(all, distance{
						there: ways[0] * ms, back: ways[1] * ms, late: 4 * ms, ahead: ahead * ms, cut: cut * time.Second, speed: speed,
					})
				}
			}
		}
	}
	seed.Each(t, 3, func(seed uint64) bool {
		wrong := map[string]int{}
		for n, d := range all {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			late := func() time.Duration { return time.Duration(r.ExpFloat64() * float64(d.late)) }
			var readings []reading
			for asked := time.Second; asked < 30*time.Second; asked += time.Second {
				read := asked + d.there + late()
				readings = append(readings, reading{asked, read + d.back + late(), d.clock(read).Truncate(Resolution)})
			}
			now := 31*time.Second + d.cut + time.Duration(r.Int64N(int64(10*time.Second)))
			for _, news := range []time.Duration{d.back, d.back / 2, Settled} {
				x := d.clock(now - news)
				y := product(DefaultLimit)(readings, now)
				require.GreaterOrEqual(t, y, x, "%+v, news %v", d, news)
				if d.ahead.Abs() < DefaultLimit {
					require.Less(t, y, max(now, d.clock(now))+30*ms+2*now/drift, "%+v", d)
				}
				for what, rule := range mistakes {
					if max(now, rule(readings, now)) < x {
						wrong[what]++
					}
				}
			}
			if d.ahead == 0 && d.cut == 0 && d.there == d.back {
				wait := product(DefaultLimit)(readings, now) - now
				require.Less(t, wait, 12*ms, "clocks agree: %+v", d)
			}
		}
		for what := range mistakes {
			require.Positive(t, wrong[what], "%s: not found", what)
		}
		t.Log(fmt.Sprint(wrong), "of", 3*len(all))
		return true
	})
}

// TestTrips: the fastest round trip counts for ten minutes and four answers at least, and without answers for ever.
// Before four there is none.
func TestTrips(t *testing.T) {
	const ms = time.Millisecond
	var trips trips
	add := func(at time.Duration, times ...time.Duration) {
		for _, trip := range times {
			trips.add(trip, at)
		}
	}
	add(time.Second, 80*ms)
	require.Equal(t, 80*ms, trips.fastest())
	add(2*time.Second, 40*ms, 90*ms)
	require.Equal(t, 40*ms, trips.fastest())
	require.False(t, trips.timed)
	add(3*time.Second, 90*ms)
	require.True(t, trips.timed)
	add(5*time.Hour, 60*ms)
	require.Equal(t, 40*ms, trips.fastest(), "the first answer after a cut")
	add(5*time.Hour+remember+time.Second, 70*ms)
	require.Equal(t, 40*ms, trips.fastest(), "after rests there are few answers, which may all be late")
	add(6*time.Hour, 80*ms, 80*ms)
	require.Equal(t, 40*ms, trips.fastest())
	add(7*time.Hour, 70*ms)
	require.Equal(t, 60*ms, trips.fastest(), "the way has become longer")
	add(7*time.Hour+time.Second, 10*ms)
	require.Equal(t, 10*ms, trips.fastest())
	require.True(t, trips.timed)
}
