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
			// Some of them are told together with the last put to the earlier range.
			rate = float64(puts) / (took + countDelay/2).Seconds()
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
	gain := j.gain(rate)
	queue := j.MaxDead > 0 && s.Rows > 0 && s.DeletesPerS > s.PutsPerS/4 && !j.silent(s) &&
		(s.Dead > j.MaxDead/2 || s.Dead > 0 && float64(s.Rows+s.Dead)+rate*j.Lead.Seconds() > float64(j.mostDead()))
	if begins(s) {
		gain *= unsure
	}
	if float64(s.Rows)+gain < float64(j.MaxRows) && !queue {
		return
	}
	if !s.Known && float64(s.Rows)+rate*j.Lead.Seconds() < float64(j.MaxRows) {
		return // count it first: there is time until the next look
	}
	last := i
	for k := last + dir; k >= 0 && k < len(j.Ranges) && j.empty(k); k += dir {
		last = k
	}
	n := (last - i) * dir
	reserve := 0.0
	if !queue && !forecast.Timed(s.Top, j.Now) && j.proven(i, dir) {
		reserve = j.reserve(rate)
	}
	room := j.room(s.Rows, n)
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
	if n > 0 && room >= max(gain, reserve) && !queue {
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
	v.Ahead = j.soon(rate, n)
	if more := int(math.Ceil(spareReserve*reserve/(forecast.Fill*float64(j.MaxRows)))) - n; more > v.Ahead {
		v.Ahead, v.Reserve = more, true
	}
	j.set(v)
	for k := last - dir; (k-i)*dir > 0; k -= dir { // more are needed beyond these: none is one too many
		if j.of[k] == nil && !j.Ranges[k].Moves {
			j.set(j.none(k, Rolled, "%s", cutAhead))
		}
	}
}

// cutAhead says why an empty range is left alone.
const cutAhead = "it is empty, cut ahead of keys that come next"

// begins reports whether counters have been told of a load once only, some time ago, and perhaps of a moment of it: the
// newest keys say how fast it is.
func begins(s *counter.Stats) bool {
	return s.Puts > 0 && float64(s.Puts) < 2.5*countDelay.Seconds()*s.PutsPerS
}

// unsure is by how many times such a load may be faster than counted.
const unsure = 10

// gain is how many rows are appended before the next decision but one takes effect.
func (p *Policy) gain(rate float64) float64 { return rate * 2 * p.Lead.Seconds() }

// room is how many rows a range with so many, and n empty ones beyond it, have room for.
func (p *Policy) room(rows int64, n int) float64 {
	return max(0, float64(p.MaxRows-rows)) + float64(n)*forecast.Fill*float64(p.MaxRows)
}

// soon is how many ranges to cut beyond n that are there, for what comes soon.
func (p *Policy) soon(rate float64, n int) int {
	all := int(min(math.Ceil(p.gain(rate)/float64(p.MaxRows)), 1<<16)) + 1
	if more := all - n; more > 0 {
		return max(more, all/2)
	}
	return all
}

const (
	// A stream has a reserve if it has filled so many ranges, as far as is seen, and if it is of that many at least; it
	// is of mostReserved at most: each costs an entry of the map, and a read to who lists across it.
	leastReserved = 2
	mostReserved  = 96
	// spareReserve is by how much a reserve is made larger than it has to be, so that this is seldom.
	spareReserve = 1.25
)

// reserve is the room, in rows, that there is to be ahead of a stream; 0: what comes soon is enough.
func (p *Policy) reserve(rate float64) float64 {
	rows := rate * p.Reserve.Seconds()
	if rows < leastReserved*float64(p.MaxRows) {
		return 0
	}
	return min(rows, mostReserved/spareReserve*forecast.Fill*float64(p.MaxRows))
}

// proven reports whether the stream that has come to a range has filled ranges before it.
func (j *judge) proven(i, dir int) bool {
	for n := 1; n <= leastReserved; n++ {
		k := i - n*dir
		if k < 0 || k >= len(j.Ranges) || !j.passed(k, dir) {
			return false
		}
	}
	return true
}

// passed reports whether a range was filled by a stream, as far as is seen.
func (j *judge) passed(i, dir int) bool {
	s := &j.Ranges[i].Stats
	if s.Rows == 0 || dir > 0 {
		return s.Rows > 0 && s.AppendShare >= j.AppendShare
	}
	return s.AppendShare < j.AppendShare && s.Spread > 0 && s.Spread < j.Spread
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
	gain := j.gain(g)
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
	n, dir := above, 1
	if below > above {
		n, dir = below, -1
	}
	need := gain
	if n > 0 && j.proven(i, dir) {
		need = max(gain, j.reserve(g))
	}
	if n > 0 && j.room(s.Rows, n) >= need && s.Rows <= j.MaxRows {
		return j.none(i, Rolled, "%s; %d empty ranges beside it take what comes next", text, n), true
	}
	if !j.fresh(s) {
		if s.Rows <= j.MaxRows && s.Rows-s.RecountedRows < j.MaxRows/again && j.Now.Sub(s.Recounted) < j.MaxRecount {
			return Decision{}, false // that recount showed no place to cut
		}
		return j.recount(i, Suspect, "%s, as it is counted", text), true
	}
	v := j.decision(Split, i, Forecast, "%s", text)
	v.Parts, v.Copies, v.Grown = 2, s.Rows/2, s.Rows
	found := streams(r.Quanta)
	if len(found) == 0 {
		// In no order: the place gets a partition of its own, if it can be told, as late as possible.
		full := float64(s.Rows)+g*j.lead(s.Rows).Seconds() > float64(j.MaxRows)
		_, denser := j.place(r.Quanta)
		return v, full && denser > dense
	}
	x := &found[0]
	down, up := x.Dir < 0 && x.from == 0, x.Dir > 0 && x.to == len(r.Quanta)
	switch {
	case len(found) == 1 && (down || up):
		if j.roll(i, g, x.Dir); j.of[i] != nil {
			return *j.of[i], true
		}
	case len(found) > 1 || x.Dir != 0:
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
		rows := max(j.gain(rate), j.reserve(rate))
		most := 2 + 2*math.Ceil(rows/float64(max(j.MaxRows, 1)))
		return math.Abs(float64(i-k)) <= most
	}
	streams := func(k int) bool { // at one place, as far as is seen
		s := &j.Ranges[k].Stats
		rate := j.growing(s)
		return rate >= j.AppendsPerS && s.Spread < j.Spread && !j.appended(s) && near(k, rate)
	}
	// What has just come to a range says neither how fast nor whether it is appended: the next one is where it was before.
	for k, n := j.below[i], 0; k >= 0 && n < 2; k, n = j.below[k], n+1 {
		s := &j.Ranges[k].Stats
		if j.appended(s) && near(k, s.AppendsPerS) || streams(k) {
			return true
		}
		if s.Rows >= j.EarlyRows {
			break
		}
	}
	for k, n := j.above[i], 0; k < len(j.Ranges) && n < 2; k, n = j.above[k], n+1 {
		if streams(k) {
			return true
		}
		if j.Ranges[k].Stats.Rows >= j.EarlyRows {
			break
		}
	}
	return false
}

// waits reports whether a cut lies between the newest end of a stream and empty ranges up to the end of the bucket: if it
// has stopped, and goes on, one is needed again, and to join them would copy rows for nothing.
func (j *judge) waits(cut int) bool {
	low, high := &j.Ranges[cut-1].Stats, &j.Ranges[cut].Stats
	n := len(j.Ranges)
	switch {
	case low.Rows >= j.MinRows && high.Rows == 0 && high.Puts == 0:
		return j.above[cut] == n && len(j.Ranges[n-1].End) == 0 && low.AppendShare >= j.AppendShare
	case high.Rows >= j.MinRows && low.Rows == 0 && low.Puts == 0:
		return j.below[cut-1] < 0 && len(j.Ranges[0].Start) == 0 && high.Spread > 0 && high.Spread < j.Spread &&
			high.AppendShare < j.AppendShare
	}
	return false
}
