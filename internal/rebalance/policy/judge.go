package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// Judge decides what should be done about each range, without the cuts; see Decide.
func Judge(in *Input) []Decision {
	j := judge{Policy: &in.Policy, Input: in, of: make([]*Decision, len(in.Ranges)),
		made: make([]Decision, 0, len(in.Ranges))}
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		j.traffic += s.PutsPerS + s.DeletesPerS + s.ReadsPerS
		j.rows += s.Rows
		if j.growing(s) > 0 && j.spreads(s) {
			j.spreading += s.Rows
		}
	}
	j.traffic = max(j.traffic, in.Traffic)
	if n := len(in.Ranges); n > 0 && (len(in.Ranges[0].Start) > 0 || len(in.Ranges[n-1].End) > 0) {
		j.rows = max(j.rows, j.MaxRows+1) // a bucket with more ranges than these has filled one
	}
	j.neighbours()
	j.rolls()
	for i := range in.Ranges {
		if j.of[i] != nil {
			continue
		}
		if d, done := j.one(i); done {
			j.set(d)
		}
	}
	j.merges()
	for i := range in.Ranges {
		if j.of[i] != nil {
			continue
		}
		d, dead := j.refresh(i) // also of one that is too small to stay, but grows
		if !dead {
			d = j.none(i, Within, "")
		}
		j.set(d)
	}
	j.spend()
	n := 0
	for i := 0; i < len(j.of); i = j.of[i].To {
		n++
	}
	out := make([]Decision, 0, n)
	for i := 0; i < len(j.of); i = j.of[i].To {
		out = append(out, *j.of[i])
	}
	return out
}

type judge struct {
	*Policy
	*Input
	traffic float64 // of the bucket, per second
	// rows of the bucket, and of its ranges that grow all over.
	rows, spreading int64
	of              []*Decision // of each range
	made            []Decision  // what of points to
	// below and above are the nearest ranges with rows, of each.
	below, above []int
}

func (j *judge) set(d Decision) {
	j.made = append(j.made, d) // the memory of former ones stays where it is
	for i := d.From; i < d.To; i++ {
		j.of[i] = &j.made[len(j.made)-1]
	}
}

func (j *judge) decision(k Kind, i int, why Why, format string, args ...any) Decision {
	return Decision{Kind: k, From: i, To: i + 1, Rows: j.Ranges[i].Stats.Rows, Why: why,
		Text: fmt.Sprintf(format, args...)}
}

func (j *judge) none(i int, why Why, format string, args ...any) Decision {
	return j.decision(None, i, why, format, args...)
}

// one decides about a range alone; false: nothing is decided, and it may be merged.
func (j *judge) one(i int) (Decision, bool) {
	r := &j.Ranges[i]
	s := &r.Stats
	if r.Moves {
		return j.none(i, Moving, "it moves at present"), true
	}
	if !s.Known {
		return j.recount(i, Unknown, "its size is not known"), true
	}
	if v, yes := j.filling(i); yes {
		return v, true
	}
	want, grown, why, text, count := j.parts(s)
	if want > 1 {
		switch {
		case s.Rows <= 1:
			return j.none(i, OneKey, "%s, but it is one key only", text), true
		case !j.fresh(s):
			return j.recount(i, Suspect, "%s, as it is counted", text), true
		}
		v := j.decision(Split, i, why, "%s", text)
		v.Parts = int(min(want, s.Rows))
		v.Copies, v.Grown = s.Rows-s.Rows/int64(v.Parts), grown
		return v, true
	}
	// An estimate errs by some percent: a range that may be too large, and nearly is by estimate, is counted.
	if s.AtMost > j.MaxRows && s.Rows > j.MaxRows/10*8 && !j.fresh(s) {
		return j.recount(i, Suspect, "%d rows, as it is counted, but there may be %d", s.Rows, s.AtMost), true
	}
	if v, yes := j.load(i); yes {
		return v, true
	}
	if count && !j.fresh(s) {
		if v := j.recount(i, Suspect, "%d rows, and growing", s.Rows); v.Kind == Recount {
			return v, true
		}
	}
	if s.Rows >= j.MinRows { // a small one is merged, which does the same
		return j.refresh(i)
	}
	return Decision{}, false
}

// refresh rewrites a partition with too many tombstones, unless it will have no rows before it has twice as many: then
// it is merged or refreshed for nothing.
func (j *judge) refresh(i int) (Decision, bool) {
	s := &j.Ranges[i].Stats
	empty := s.Rows == 0 && s.PutsPerS == 0 // nothing is copied
	if j.MaxDead <= 0 || s.Dead <= j.MaxDead && (!empty || s.Dead <= j.MaxDead/4) {
		return Decision{}, false
	}
	if s.Rows > 0 && s.DeletesPerS > 2*s.PutsPerS && s.Rows+s.Dead < 2*j.MaxDead-j.MaxDead/8 &&
		float64(s.Rows) < s.DeletesPerS*j.Cool.Seconds() {
		return j.none(i, Emptying, "%d tombstones, but its %d rows are being deleted", s.Dead, s.Rows), true
	}
	v := j.decision(Refresh, i, Dead, "%d tombstones, more than %d", s.Dead, j.MaxDead)
	v.Copies = s.Rows
	return v, true
}

// parts returns into how many ranges one should be cut (1: it stays), how many rows it will have at the horizon, and
// why. count: it is worth a recount, since it may have to be cut soon.
func (j *judge) parts(s *counter.Stats) (n, grown int64, why Why, text string, count bool) {
	grown = s.Rows
	soon := s.Rows // when the next decision takes effect
	lead := j.lead(max(s.Rows, min(j.spreading, together*j.MaxRows)))
	if g := j.growing(s); g > 0 && j.spreads(s) {
		// A load goes on for a share of the time that it has lasted: nobody knows more. Of one that has filled a range
		// already much is believed.
		early := believed * float64(s.Rows)
		if j.rows > j.MaxRows {
			early = max(early, min(j.GrowBy, 1)*float64(s.Rows))
		}
		most := min(j.GrowBy, 1) * float64(s.Rows)
		if j.rows > j.MaxRows {
			most = j.GrowBy * float64(s.Rows)
		}
		if lasted := float64(s.Rows) / g; j.GrowBy > 0 && g*lead.Seconds() > float64(j.MaxRows) &&
			j.rows > j.MaxRows && lasted > seen*lead.Seconds() {
			// Moves could not keep up with this growth later: the range is cut now, while it is small.
			most = max(most, j.RushBy*float64(s.Rows))
		}
		soon += int64(min(g*lead.Seconds(), early))
		grown += int64(min(g*max(j.Horizon, lead).Seconds(), most))
		count = float64(s.Rows)+g*lead.Seconds() > float64(j.MaxRows) && s.Rows >= j.MaxRows/3
	}
	grown = max(grown, soon)
	n = max(1, ceil(grown, j.TargetRows))
	switch {
	case s.Rows > j.MaxRows:
		return max(n, 2), grown, Rows, fmt.Sprintf("%d rows, more than max_rows (%d)", s.Rows, j.MaxRows), true
	case soon > j.MaxRows && s.Rows >= j.EarlyRows:
		return max(n, 2), grown, Forecast, fmt.Sprintf("%d rows and %.1f more per second: %d within %v", s.Rows,
			s.GrowthRowsPerS, soon, lead.Round(100*time.Millisecond)), true
	}
	return 1, grown, "", "", count
}

// spreads reports whether a range grows all over. One that is too large is cut in any case: growth is then taken to be
// everywhere unless it is known where.
func (j *judge) spreads(s *counter.Stats) bool {
	return s.Spread >= j.Spread || s.Rows > j.MaxRows && s.Spread == 0 && s.AppendShare < j.AppendShare
}

const (
	// believed is how long a load is expected to go on, as a share of the time that it has lasted; less would come too
	// late, more cuts what ends before.
	believed = 0.5
	// seen is the share of the time which moves take that a rush must have lasted to be believed.
	seen = 1. / 3
	// together is how many full ranges of a bucket have to be moved at the same time: those that grow alike.
	together = 4
)

// lead is Lead plus the time to move so many rows.
func (j *judge) lead(rows int64) time.Duration {
	if j.MovedPerS <= 0 {
		return j.Lead
	}
	return j.Lead + time.Duration(float64(rows)/j.MovedPerS*float64(time.Second))
}

// ceil is a/b rounded up.
func ceil(a, b int64) int64 { return (a + b - 1) / max(b, 1) }

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

// growing is how many rows per second a range gains: the slow rate shows growth that lasts, the fast one that it has
// not ended, and so does the time of the last put, at once.
func (j *judge) growing(s *counter.Stats) float64 {
	if j.silent(s) {
		return 0
	}
	return max(0, min(s.GrowthRowsPerS, s.PutsPerS))
}

// silent reports whether a range gets no puts any more: its rate, which fades slowly, says that some did not come.
func (j *judge) silent(s *counter.Stats) bool {
	if s.LastPut.IsZero() {
		return false
	}
	since := j.Now.Sub(s.LastPut)
	missed := s.PutsPerS * fades.Seconds() * math.Expm1(min(since.Minutes()/fades.Minutes(), 100))
	return since > ended && missed > missing
}

const (
	// A load has ended when for so long no put has come, and so many did not come.
	ended   = 5 * time.Second
	missing = 5
	// fades is the time constant of Stats.PutsPerS.
	fades = time.Minute
)

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

// neighbours finds the nearest ranges below and above each that have rows, or take appends.
func (j *judge) neighbours() {
	n := len(j.Ranges)
	j.below, j.above = make([]int, n), make([]int, n)
	last := -1
	there := func(i int) bool { return j.Ranges[i].Stats.Rows > 0 || j.appended(&j.Ranges[i].Stats) }
	for i := range n {
		if j.below[i] = last; there(i) {
			last = i
		}
	}
	last = n
	for i := n - 1; i >= 0; i-- {
		if j.above[i] = last; there(i) {
			last = i
		}
	}
}

// load splits a range that takes too much of its bucket's traffic.
func (j *judge) load(i int) (Decision, bool) {
	r := &j.Ranges[i]
	s := &r.Stats
	load := s.PutsPerS + s.DeletesPerS + s.ReadsPerS
	if j.LoadPerS <= 0 || load < j.LoadPerS || load < j.LoadShare*j.traffic {
		return Decision{}, false
	}
	text := fmt.Sprintf("%.0f reads and writes per second, %.0f %% of the bucket's", load, 100*load/j.traffic)
	switch {
	case s.Rows <= 1:
		return j.none(i, OneKey, "%s, but it is one key only", text), true
	case j.appended(s):
		return j.none(i, AtTail, "%s, but appends all go to one end: no cut divides them", text), true
	case s.Rows < 2*j.MinRows:
		return Decision{}, false // its parts would be merged again
	case j.cooling(r) > 0:
		return j.none(i, Cooling, "%s, but its partition was made less than %v ago", text, j.Cool), true
	case !j.fresh(s):
		return j.recount(i, Suspect, "%s", text), true
	}
	v := j.decision(Split, i, Load, "%s", text)
	v.Parts, v.Copies, v.Grown = 2, s.Rows/2, s.Rows
	return v, true
}

// fresh reports whether the last recount is good enough to cut by: it is young, and little has changed since, or all
// growth is spread, which leaves cuts where they are. So a load that is faster than recounts is cut all the same.
func (j *judge) fresh(s *counter.Stats) bool {
	if s.Recounted.IsZero() || j.Now.Sub(s.Recounted) > j.Fresh {
		return false
	}
	grew := s.Rows > s.RecountedRows && s.RecountedRows >= max(s.Rows/3, j.EarlyRows/2)
	return !changed(s) || grew && s.Spread >= j.Spread && s.GrowthRowsPerS > 0
}

// changed reports whether the rows differ by more than a fifth from the last recount.
func changed(s *counter.Stats) bool {
	return max(s.Rows-s.RecountedRows, s.RecountedRows-s.Rows) > s.Rows/5
}

// maxFruitless is the number of recounts in a row that led to nothing, after which an estimate counts as wrong even if it
// says that much has changed.
const maxFruitless = 3

// cooling returns how long a range must wait for decisions that are not urgent.
func (j *judge) cooling(r *Range) time.Duration { return r.Created.Add(j.Cool).Sub(j.Now) }

// recount decides on a recount, unless the last one led to nothing and is too recent.
func (j *judge) recount(i int, why Why, format string, args ...any) Decision {
	s := &j.Ranges[i].Stats
	pause := j.Recount << min(max(s.Fruitless, 0), 30)
	if pause <= 0 || pause > j.MaxRecount {
		pause = j.MaxRecount
	}
	wait := !changed(s) || s.Fruitless >= maxFruitless
	if next := s.Recounted.Add(pause); why == Suspect && wait && !s.Recounted.IsZero() && next.After(j.Now) &&
		!j.Now.Before(s.Recounted) {
		return j.none(i, Backing, "%s; the last recount found %d rows, the next one is due in %v",
			fmt.Sprintf(format, args...), s.RecountedRows, next.Sub(j.Now).Round(time.Second))
	}
	return j.decision(Recount, i, why, format, args...)
}

// merges joins small ranges with neighbours, smallest first.
func (j *judge) merges() {
	if j.MinRows <= 0 {
		return
	}
	var small []int
	for i := range j.Ranges {
		s := &j.Ranges[i].Stats
		// A range that will reach the minimum before long is left to grow; merge handles appends.
		gain := max(j.grown(i), j.growing(s)*rent*j.Cool.Seconds())
		if j.of[i] == nil && s.Rows < j.MinRows && (s.Rows+int64(gain) < j.MinRows || j.appended(s)) {
			small = append(small, i)
		}
	}
	slices.SortStableFunc(small, func(a, b int) int {
		return cmp.Compare(j.Ranges[a].Stats.Rows, j.Ranges[b].Stats.Rows)
	})
	for _, i := range small {
		if j.of[i] == nil {
			j.merge(i)
		}
	}
}

// mergedAtOnce is the most ranges that one merge joins.
const mergedAtOnce = 64

func (j *judge) merge(i int) {
	from, to := i, i+1
	rows := j.Ranges[i].Stats.Rows
	grown := j.grown(i)
	why, text := Lonely, "it has no neighbour that fits"
	if j.appended(&j.Ranges[i].Stats) {
		if v, dead := j.refresh(i); dead {
			j.set(v)
			return
		}
		if rows > 0 || !j.silent(&j.Ranges[i].Stats) { // else the appends have left it
			j.set(j.none(i, Appends, "%d rows, but it fills by appends", rows))
			return
		}
	}
	if j.ahead(i) {
		j.set(j.none(i, Rolled, "it is empty, cut ahead of keys that come next"))
		return
	}
	// joins reports whether range k may join across the start of range cut.
	joins := func(k, cut int) bool {
		switch r := &j.Ranges[k]; {
		case j.of[k] != nil && j.of[k].Kind == None && j.of[k].Why == Moving:
			why, text = Moving, "its neighbour moves at present"
		case j.of[k] != nil:
		case j.Ranges[cut].PinUntil.After(j.Now):
			why, text = Pinned, "the cut beside it is pinned until "+j.Ranges[cut].PinUntil.UTC().Format(time.RFC3339)
		case j.appended(&r.Stats) && (r.Stats.Rows > 0 || !j.silent(&r.Stats)) || j.ahead(k):
			why, text = Appends, "its neighbour is appended to"
		case float64(rows+r.Stats.Rows)+grown+j.grown(k) > float64(j.TargetRows):
			// Else it would be split again before long.
		default:
			return true
		}
		return false
	}
	for rows < j.MinRows && to-from < mergedAtOnce {
		left, right := from > 0 && joins(from-1, from), to < len(j.Ranges) && joins(to, to)
		k := -1
		switch {
		case left && (!right || j.Ranges[from-1].Stats.Rows <= j.Ranges[to].Stats.Rows):
			k = from - 1
		case right:
			k = to
		}
		if k < 0 || rows == 0 && to-from > 1 && j.Ranges[k].Stats.Rows > 0 {
			break // what is empty is joined for nothing
		}
		from, to = min(from, k), max(to, k+1)
		rows += j.Ranges[k].Stats.Rows
		grown += j.grown(k)
	}
	due := time.Duration(0)
	if to-from > 1 {
		due = j.due(from, to, rows)
	}
	switch v, dead := j.refresh(i); {
	case to-from > 1 && (due == 0 || dead && v.Kind == Refresh):
		j.set(Decision{
			Kind: Merge, From: from, To: to, Rows: rows, Copies: rows, Why: Rows,
			Text: fmt.Sprintf("%d rows, fewer than min_rows (%d); together %d", j.Ranges[i].Stats.Rows, j.MinRows, rows),
		})
	case dead:
		j.set(v)
	case to-from > 1:
		v := j.none(i, Cooling, "%d rows, fewer than min_rows (%d): to copy %d rows for a merge is worth it in %v",
			j.Ranges[i].Stats.Rows, j.MinRows, rows, due.Round(time.Second))
		v.Until = j.Now.Add(due).Round(0).UTC() // as it is read back
		j.set(v)
	case len(j.Ranges) > 1: // else it is a small bucket
		j.set(j.none(i, why, "%d rows, fewer than min_rows (%d), but %s", rows, j.MinRows, text))
	}
}

// due is how long it takes until a merge is worth it: until there have been too many ranges for as long as it takes to
// pay for copying the rows, by a rent for each. Who does not know for how long a thing will be of use pays so at most
// twice as much as who does (the ski rental problem).
func (j *judge) due(from, to int, rows int64) time.Duration {
	held, least, all := time.Duration(0), time.Duration(math.MaxInt64), true
	for k := from; k < to; k++ {
		r := &j.Ranges[k]
		if r.Stats.Rows >= j.MinRows {
			all = false
			continue
		}
		small := time.Duration(0)
		if !r.Small.IsZero() {
			small = max(0, j.Now.Sub(r.Small))
		}
		held, least = held+small, min(least, small)
	}
	if all { // one of them must be there
		held -= least
	}
	if rows == 0 { // it was perhaps cut ahead of what has just begun
		return max(0, j.Cool/10-least, passing*j.Lead-least)
	}
	need := time.Duration(rent * float64(j.Cool) * float64(rows) / float64(max(j.MaxRows, 1)))
	return max(0, need-held) / time.Duration(to-from-1)
}

// rent is in how many times Cool a range too many costs as much as to copy a full one.
const rent = 4

// grown is how many rows a range gains while a merge should last.
func (j *judge) grown(i int) float64 {
	return max(0, j.Ranges[i].Stats.GrowthRowsPerS) * max(j.Cool, j.Horizon).Seconds()
}

// spend refuses what exceeds the budget, the least urgent decisions first.
func (j *judge) spend() {
	var want []*Decision
	for i := 0; i < len(j.of); i = j.of[i].To {
		if v := j.of[i]; v.Kind == Split || v.Kind == Merge || v.Kind == Refresh {
			want = append(want, v)
		}
	}
	slices.SortStableFunc(want, func(a, b *Decision) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(b.Rows, a.Rows))
	})
	open := j.open()
	moves, rows := j.Input.Moves, j.Input.Rows
	for _, v := range want {
		urgent := v.Kind == Split && float64(v.Rows) > Urgent*float64(j.MaxRows)
		n := v.moves()
		over := j.Budget.Moves > 0 && moves+n > j.Budget.Moves || j.Budget.Rows > 0 && rows+v.Copies > j.Budget.Rows
		switch {
		case !open && !urgent:
			j.refuse(v, OffHours, "rows are moved at other hours")
		case over && (moves > 0 || rows > 0):
			j.refuse(v, Spent, fmt.Sprintf("%d moves of %d rows are in flight or come first", moves, rows))
		default:
			moves, rows = moves+n, rows+v.Copies
		}
	}
}

// refuse refuses a decision about each of its ranges.
func (j *judge) refuse(v *Decision, why Why, text string) {
	for i := v.From; i < v.To; i++ {
		no := j.decision(v.Kind, i, why, "%s", v.Text)
		no.refuse(why, text)
		j.set(no)
	}
}

// refuse makes a decision a None that says what it would have been.
func (d *Decision) refuse(why Why, text string) {
	*d = Decision{From: d.From, To: d.To, Kind: None, Rows: d.Rows, Why: why,
		Text: fmt.Sprintf("%s (%s), but %s", d.Kind, d.Text, text)}
}

// urgency orders decisions: splits of ranges that are too large, refreshes, other splits, merges.
func urgency(v *Decision) int {
	switch {
	case v.Kind == Split && v.Why == Rows:
		return 0
	case v.Kind == Refresh:
		return 1
	case v.Kind == Split:
		return 2
	}
	return 3
}

// moves is how many partitions take part, sources and destinations.
func (v *Decision) moves() int {
	switch v.Kind {
	case Split:
		return v.Parts
	case Merge:
		if v.Copies == 0 {
			return 1 // only the fresh one
		}
		return v.To - v.From + 1
	case Refresh:
		return 2
	}
	return 0
}

// open reports whether rows may be moved at this hour.
func (j *judge) open() bool {
	if len(j.Budget.Hours) == 0 {
		return true
	}
	const day = 24 * time.Hour
	at := j.Now.Sub(j.Now.UTC().Truncate(day)) % day
	for _, h := range j.Budget.Hours {
		if h.From < h.To && at >= h.From && at < h.To || h.From >= h.To && (at >= h.From || at < h.To) {
			return true
		}
	}
	return false
}
