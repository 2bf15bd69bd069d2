package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// appended reports whether puts go above the highest key.
func (j *judge) appended(s *counter.Stats) bool {
	return s.AppendShare >= j.AppendShare && s.AppendsPerS >= j.AppendsPerS && len(s.Top) > 0
}

// rolls decides about the ranges that are appended to. Neighbours that were appended to are one stream: appends that
// have just gone on to a next range leave ranges behind that look the same. Only the last one is rolled, and others
// that still take puts: those are streams of their own.
func (j *judge) rolls() {
	var stream []int // its ranges
	end := func() {
		for k, i := range stream {
			s := &j.Ranges[i].Stats
			last := &j.Ranges[stream[len(stream)-1]].Stats
			switch {
			case k == len(stream)-1:
				j.roll(i, j.rate(stream), 1)
			case j.own(s, &j.Ranges[stream[k+1]].Stats, last):
				j.roll(i, s.AppendsPerS, 1)
			}
		}
		stream = stream[:0]
	}
	for i := range j.Ranges {
		switch s := &j.Ranges[i].Stats; {
		case j.appended(s):
			stream = append(stream, i)
		case s.Rows > 0 || s.Puts > 0: // an empty range does not end a stream
			end()
		}
	}
	end()
}

const (
	// countDelay is how often counts come.
	countDelay = time.Second
	// left is how full a range is, as a share of the maximum, when appends have left it.
	left = 0.7
)

// own reports whether a range still takes appends of its own although a later one is appended to as well. If the
// appends had gone on there, all puts there would be later than the last one here.
func (j *judge) own(s, next, last *counter.Stats) bool {
	since := 2 * countDelay
	if s.PutsPerS > 0 { // slow appends are seldom
		since += time.Duration(min(3/s.PutsPerS, j.Cool.Seconds()) * float64(time.Second))
	}
	if last.LastPut.Sub(s.LastPut) > since {
		return false
	}
	return float64(s.Rows) < left*float64(j.MaxRows) || float64(next.Puts) > 4*countDelay.Seconds()*next.PutsPerS
}

// rate is how many rows per second a stream appends that has gone through ranges: all puts to later ranges came after
// the last put to an earlier one. The rates of the ranges are too high or too low where it has only begun or ended.
func (j *judge) rate(stream []int) float64 {
	const enough = 10 * time.Second
	at := func(k int) *counter.Stats { return &j.Ranges[stream[k]].Stats }
	last := len(stream) - 1
	puts, rate := int64(0), at(last).AppendsPerS
	for k := last; k > 0; k-- {
		puts += at(k).Puts
		if took := at(last).LastPut.Sub(at(k - 1).LastPut); took >= 3*countDelay {
			rate = float64(puts) / took.Seconds()
			if took >= enough {
				break
			}
		}
	}
	return min(rate, 4*at(last).AppendsPerS) // unless they have ended
}

// roll cuts ahead of a range that is appended to, if it and the empty ranges beyond it will be full before the next
// decision but one takes effect; or if it is a queue, whose tombstones stay behind. It moves nothing, so an estimate is
// good enough, and what is too large already is rolled first, and split when the appends have left it. dir is 1 where
// keys ascend, -1 where they descend.
func (j *judge) roll(i int, rate float64, dir int) {
	defer j.limits(i)()
	s := &j.Ranges[i].Stats
	if rate < j.AppendsPerS || j.AppendShare > 1 || j.silent(s) && s.Rows <= j.MaxRows {
		return
	}
	gain := rate * 2 * j.Lead.Seconds()
	queue := j.MaxDead > 0 && s.Dead > j.MaxDead/2 && s.Rows > 0 && s.DeletesPerS > s.PutsPerS/4 && !j.silent(s)
	if float64(s.Rows)+gain < float64(j.MaxRows) && !queue {
		return
	}
	if !s.Known && s.Rows+int64(gain) < j.MaxRows/2 {
		return // count it first: there is time
	}
	last := i
	for k := last + dir; k >= 0 && k < len(j.Ranges) && j.empty(k); k += dir {
		last = k
	}
	n := (last - i) * dir
	room := max(0, float64(j.MaxRows-s.Rows)) + float64(n)*forecast.Fill*float64(j.MaxRows)
	text := fmt.Sprintf("%d rows and %.1f appended per second: full in %.0f s", s.Rows, rate, room/rate)
	if queue {
		text = fmt.Sprintf("%d tombstones, and %.1f appended per second", s.Dead, rate)
	}
	if n > 0 && !j.Ranges[i].Moves {
		// What is too large, or has too many tombstones, is judged like others when the stream has left it.
		within := s.Rows <= j.MaxRows && (j.MaxDead <= 0 || s.Dead <= j.MaxDead)
		fresh := j.Now.Sub(j.Ranges[i+dir].Created) < passing*j.Lead && !j.silent(s)
		if within && !queue || fresh {
			j.set(j.none(i, Rolled, "%s; %d empty ranges beyond it take what is appended next", text, n))
		}
		if queue && fresh {
			return
		}
	}
	if n > 0 && room >= gain && !queue {
		return
	}
	if queue { // the empty ranges are too far away
		last, n = i, 0
	}
	if j.Ranges[last].Moves {
		if j.of[last] == nil {
			j.set(j.none(last, Moving, "it moves at present"))
		}
		return
	}
	if j.of[last] != nil && last != i {
		return // another stream comes from the other side
	}
	v := j.decision(Roll, last, Appends, "%s", text)
	if queue {
		v.Why = Dead
	}
	v.Appended, v.Rate, v.Down = i, rate, dir < 0
	v.Ahead = int(min(math.Ceil(gain/float64(j.MaxRows)), 1<<16)) + 1
	if more := v.Ahead - n; more > 0 {
		v.Ahead = max(more, v.Ahead/2)
	}
	j.set(v)
}

// passing is within how many times Lead a stream has reached a range that was cut ahead of it.
const passing = 4

// again is the part of the maximum, 1 / again, by which a range must grow before it is looked once more for where it does.
const again = 200

// filling decides about a range that grows at one place, and will be full before the next decision but one takes effect,
// if counters do not see appends to it: it is counted, which shows where it grows, and then rolled, or cut beside that
// place.
func (j *judge) filling(i int) (Decision, bool) {
	r := &j.Ranges[i]
	s := &r.Stats
	g := j.growing(s)
	if g == 0 || s.Spread >= j.Spread || s.Rows < j.EarlyRows || j.appended(s) {
		return Decision{}, false
	}
	gain := g * 2 * j.Lead.Seconds()
	if float64(s.Rows)+gain < float64(j.MaxRows) {
		return Decision{}, false
	}
	text := fmt.Sprintf("%d rows and %.1f more per second at one place", s.Rows, g)
	below, above := 0, 0
	for below < i && j.empty(i-1-below) {
		below++
	}
	for i+1+above < len(j.Ranges) && j.empty(i+1+above) {
		above++
	}
	n := max(below, above)
	if room := float64(j.MaxRows-s.Rows) + float64(n)*forecast.Fill*float64(j.MaxRows); n > 0 && room >= gain &&
		s.Rows <= j.MaxRows {
		return j.none(i, Rolled, "%s; %d empty ranges beside it take what comes next", text, n), true
	}
	if !j.fresh(s) {
		if s.Rows <= j.MaxRows && s.Rows-s.RecountedRows < j.MaxRows/again && j.Now.Sub(s.Recounted) < j.MaxRecount {
			return Decision{}, false // that recount showed no place to cut
		}
		return j.recount(i, Suspect, "%s, as it is counted", text), true
	}
	found := streams(r.Quanta)
	if len(found) == 0 {
		return Decision{}, false
	}
	x := &found[0]
	down, up := x.Dir < 0 && x.from == 0, x.Dir > 0 && x.to == len(r.Quanta)
	switch {
	case len(found) == 1 && (down || up):
		if j.roll(i, g, x.Dir); j.of[i] != nil {
			return *j.of[i], true
		}
	case len(found) > 1 || x.Dir != 0:
		v := j.decision(Split, i, Forecast, "%s", text)
		v.Parts, v.Copies, v.Grown = 2, s.Rows/2, s.Rows
		return v, true
	}
	return Decision{}, false
}

// empty reports whether a range has no rows and no puts. One that moves was presumably just cut ahead.
func (j *judge) empty(i int) bool {
	r := &j.Ranges[i]
	return (r.Stats.Known || r.Moves) && r.Stats.Rows == 0 && r.Stats.PutsPerS == 0
}

// ahead reports whether an empty range was cut ahead of a stream: of appends below it, or of what comes to a neighbour
// at one place.
func (j *judge) ahead(i int) bool {
	if j.Ranges[i].Stats.Rows > 0 {
		return false
	}
	near := func(k int, rate float64) bool {
		most := 2 + 2*math.Ceil(rate*2*j.Lead.Seconds()/float64(max(j.MaxRows, 1)))
		return math.Abs(float64(i-k)) <= most
	}
	streams := func(k int) bool { // at one place, as far as is seen
		s := &j.Ranges[k].Stats
		rate := j.growing(s)
		return rate >= j.AppendsPerS && s.Spread < j.Spread && !j.appended(s) && near(k, rate)
	}
	if k := j.below[i]; k >= 0 {
		s := &j.Ranges[k].Stats
		if j.appended(s) && near(k, s.AppendsPerS) || streams(k) {
			return true
		}
	}
	k := j.above[i]
	return k < len(j.Ranges) && streams(k)
}
