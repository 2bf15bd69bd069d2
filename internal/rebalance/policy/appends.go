package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// appended reports whether most of the puts to a range go above its highest key, as with keys that begin with a time. s
// are the counters of the range.
func (j *judge) appended(s *counter.Stats) bool {
	return s.AppendShare >= j.AppendShare && s.AppendsPerS >= j.AppendsPerS && len(s.Top) > 0
}

// rolls decides where empty ranges are cut ahead of appends, by decisions of the kind Roll. Neighbouring ranges that
// look appended to count as one stream of appends. A range that the appends have left still looks appended to for a
// while.
//
// The last range of a stream gets empty ranges for the keys to come. An earlier range gets empty ranges only if it
// still takes puts of its own, which are a second stream of appends.
func (j *judge) rolls() {
	var stream []int // the indexes of the stream's ranges
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
	// countDelay is the time between two reports of the counts of a range.
	countDelay = time.Second
	// left is the least number of rows of a range, as a share of the maximum, when appends have filled the range and
	// gone on to the next range.
	left = 0.7
)

// own reports whether a range still takes appends of its own, although appends have gone on to later ranges. The
// parameters are the counters of the range (s), of the next range (next) and of the last range of the stream (last).
func (j *judge) own(s, next, last *counter.Stats) bool {
	// Without appends of its own, the range would have got its last put before the last range of the stream got its
	// last put.
	since := 2 * countDelay
	if s.PutsPerS > 0 { // slow appends come seldom
		since += time.Duration(min(3/s.PutsPerS, j.Cool.Seconds()) * float64(time.Second))
	}
	if last.LastPut.Sub(s.LastPut) > since {
		return false
	}
	return float64(s.Rows) < left*float64(j.MaxRows) || float64(next.Puts) > 4*countDelay.Seconds()*next.PutsPerS
}

// rate returns the number of rows per second that a stream of appends adds. It is computed from all ranges that the
// appends went through. The parameter stream has the indexes of these ranges.
func (j *judge) rate(stream []int) float64 {
	// The rate of a single range is wrong if the appends have just reached or left that range.
	const enough = 10 * time.Second
	at := func(k int) *counter.Stats { return &j.Ranges[stream[k]].Stats }
	last := len(stream) - 1
	puts, rate := int64(0), at(last).AppendsPerS
	for k := last; k > 0; k-- {
		puts += at(k).Puts
		if took := at(last).LastPut.Sub(at(k - 1).LastPut); took >= 3*countDelay {
			// Some of the puts are reported together with the last put to the earlier range.
			rate = float64(puts) / (took + countDelay/2).Seconds()
			if took >= enough {
				break
			}
		}
	}
	return min(rate, 4*at(last).AppendsPerS) // unless the appends have ended
}

// roll decides whether to cut new, empty ranges ahead of appends to range i. The parameter rate is the number of rows
// that the appends add per second. dir is 1 where keys ascend, -1 where keys descend. There are three reasons to cut:
//   - Range i and the empty ranges beyond it may be full when the second decision from now takes effect, which is after
//     twice Policy.Lead.
//   - Range i may be full by then, and the empty ranges beyond it have less room than the reserve for these appends
//     (see reserve).
//   - Range i is used as a queue. After a cut, the tombstones (marks of deleted rows) stay behind in the old range.
func (j *judge) roll(i int, rate float64, dir int) {
	// An estimate of the number of rows is enough for a cut, since cuts of empty ranges move no rows. If a range is
	// too large, empty ranges are cut first. The large range is split when the appends have gone on to the next range.
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
		return // the size is counted first: there is time until the next look
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
		// A range that is too large, or has too many tombstones, is judged by the other rules when the stream has gone
		// on.
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
	if queue { // the empty ranges are too far away: cut inside this range
		last, n = i, 0
	}
	if j.Ranges[last].Moves || j.of[last] != nil && last != i {
		return // or another stream comes from the other side
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

// cutAhead is the text of a decision to leave an empty range as it is. Such a range was cut before the first of its
// keys came.
const cutAhead = "it is empty, cut ahead of keys that come next"

// begins reports whether the load on a range has just begun. The parameter s has the counters of the range, which have
// received about one report so far. The counted rate may then be wrong, and the times of the newest keys in the range
// show the rate better.
func begins(s *counter.Stats) bool {
	return s.Puts > 0 && float64(s.Puts) < 2.5*countDelay.Seconds()*s.PutsPerS
}

// unsure is how many times too low the counted rate of a load may be if the load has just begun (see begins).
const unsure = 10

// gain returns the number of rows that appends add within twice Policy.Lead, at a given rate in rows per second. After
// that time the second decision from now takes effect.
func (p *Policy) gain(rate float64) float64 { return rate * 2 * p.Lead.Seconds() }

// room returns the number of rows that still fit into a range and into n empty ranges beyond it. The parameter rows is
// the number of rows that the range has now.
func (p *Policy) room(rows int64, n int) float64 {
	return max(0, float64(p.MaxRows-rows)) + float64(n)*forecast.Fill*float64(p.MaxRows)
}

// soon returns the number of empty ranges to cut, in addition to n existing empty ranges, for the rows that appends
// will add within twice Policy.Lead. rate is the number of rows appended per second.
func (p *Policy) soon(rate float64, n int) int {
	all := int(min(math.Ceil(p.gain(rate)/float64(p.MaxRows)), 1<<16)) + 1
	if more := all - n; more > 0 {
		return max(more, all/2)
	}
	return all
}

const (
	// leastReserved is the number of ranges that appends must have filled, as far as the counts show, before empty
	// ranges are kept in reserve for them. leastReserved is also the minimum number of ranges of a reserve, and
	// mostReserved the maximum number. Each empty range costs an entry in the map of the bucket's ranges, and one read
	// for each listing across the range.
	leastReserved = 2
	mostReserved  = 96
	// spareReserve is the factor by which a reserve of empty ranges is made larger than necessary, so that the reserve
	// is seldom extended.
	spareReserve = 1.25
)

// reserve returns the number of rows for which empty ranges are kept in reserve ahead of appends. The parameter rate is
// the number of rows appended per second. For slow appends the result is 0, and they get empty ranges only for the rows
// that come next.
func (p *Policy) reserve(rate float64) float64 {
	rows := rate * p.Reserve.Seconds()
	if rows < leastReserved*float64(p.MaxRows) {
		return 0
	}
	return min(rows, mostReserved/spareReserve*forecast.Fill*float64(p.MaxRows))
}

// proven reports whether appends have filled several ranges before they reached range i, so that the appends will
// probably go on. At least two ranges (leastReserved) must have been filled. dir is 1 where keys ascend, -1 where keys
// descend.
func (j *judge) proven(i, dir int) bool {
	for n := 1; n <= leastReserved; n++ {
		k := i - n*dir
		if k < 0 || k >= len(j.Ranges) || !j.passed(k, dir) {
			return false
		}
	}
	return true
}

// passed reports whether appends have filled range i and gone on to the next range, as far as the counts show. dir is 1
// where keys ascend, -1 where keys descend.
func (j *judge) passed(i, dir int) bool {
	s := &j.Ranges[i].Stats
	if s.Rows == 0 || dir > 0 {
		return s.Rows > 0 && s.AppendShare >= j.AppendShare
	}
	return s.AppendShare < j.AppendShare && s.Spread > 0 && s.Spread < j.Spread
}

// passing is how long appends usually take to reach an empty range that was cut in advance for them. It is a multiple
// of Policy.Lead.
const passing = 4

// again says how soon a growing range is counted again: when it has gained 1/200 of MaxRows since its last exact count.
// Such a count finds the place at which the range grows.
const again = 200

// filling returns the decision about a range i that grows at one place and will be full within twice Policy.Lead. The
// decision is
//   - to do nothing, if the empty ranges beside range i have room for the rows that come next, or
//   - to count the rows exactly, if the last exact count is too old to show the place of growth, or
//   - to cut the range beside that place, or to cut empty ranges for the keys to come.
//
// The boolean result is false if the range is not of this kind, or if its last exact count shows no place to cut.
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
		// The keys come in no order. The place gets a partition of its own if it is dense enough to be told apart, and
		// as late as possible.
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

// empty reports whether range i has no rows and takes no puts. A range of unknown size counts as empty only while it
// takes part in a move.
func (j *judge) empty(i int) bool {
	// Such a range was presumably just cut for keys to come.
	r := &j.Ranges[i]
	return (r.Stats.Known || r.Moves) && r.Stats.Rows == 0 && r.Stats.PutsPerS == 0
}

// ahead reports whether range i is an empty range that was presumably cut in advance for keys to come. The result is
// true if nearby ranges are appended to (below range i only) or grow at one place.
func (j *judge) ahead(i int) bool {
	if j.Ranges[i].Stats.Rows > 0 {
		return false
	}
	near := func(k int, rate float64) bool {
		rows := max(j.gain(rate), j.reserve(rate))
		most := 2 + 2*math.Ceil(rows/float64(j.MaxRows))
		return math.Abs(float64(i-k)) <= most
	}
	streams := func(k int) bool { // range k grows at one place, as far as is seen
		s := &j.Ranges[k].Stats
		rate := j.growing(s)
		return rate >= j.AppendsPerS && s.Spread < j.Spread && !j.appended(s) && near(k, rate)
	}
	// A range to which a stream has just come shows neither its rate nor appends: the range before it still does. So
	// two ranges with rows are looked at on each side.
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

// waits reports whether the cut between two ranges must stay, because appends may go on across it. The parameter cut is
// the index of the range above the cut. The result is true if
//   - the range on one side is not small (Policy.MinRows), and its puts went to the end beside the cut, as far as its
//     counters show, and
//   - on the other side are only empty ranges, up to that end of the bucket.
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
