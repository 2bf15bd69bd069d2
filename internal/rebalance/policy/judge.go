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
	}
	j.traffic = max(j.traffic, in.Traffic)
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
		if j.of[i] == nil {
			j.set(j.none(i, Within, ""))
		}
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
	traffic float64     // of the bucket, per second
	of      []*Decision // of each range
	made    []Decision  // what of points to
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
	want, grown, why, text := j.parts(s)
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
	if s.Rows >= j.MinRows { // a small one is merged, which does the same
		return j.refresh(i)
	}
	return Decision{}, false
}

// refresh rewrites a partition with too many tombstones.
func (j *judge) refresh(i int) (Decision, bool) {
	r := &j.Ranges[i]
	s := &r.Stats
	if j.MaxDead <= 0 || s.Dead <= j.MaxDead {
		return Decision{}, false
	}
	if j.cooling(r) > 0 {
		return j.none(i, Cooling, "%d tombstones, but its partition was made less than %v ago", s.Dead, j.Cool), true
	}
	v := j.decision(Refresh, i, Dead, "%d tombstones, more than %d", s.Dead, j.MaxDead)
	v.Copies = s.Rows
	return v, true
}

// parts returns into how many ranges one should be cut (1: it stays), how many rows it will have at the horizon, and
// why.
func (j *judge) parts(s *counter.Stats) (n, grown int64, why Why, text string) {
	grown = s.Rows
	soon := s.Rows // when the next decision takes effect
	lead := j.lead(s.Rows)
	// A range that is too large is cut in any case: growth is then taken to be everywhere unless it is known where.
	over := s.Rows > j.MaxRows && s.Spread == 0 && s.AppendShare < j.AppendShare
	// The slow rate shows growth that lasts, the fast one that it has not ended.
	if g := min(s.GrowthRowsPerS, s.PutsPerS); g > 0 && (s.Spread >= j.Spread || over) {
		most := j.GrowBy * float64(s.Rows)
		if j.GrowBy > 0 && g*j.lead(j.MaxRows).Seconds() > float64(j.MaxRows) {
			// Moves could not keep up with this growth later: the range is cut now, while it is small.
			most = max(most, j.RushBy*float64(j.MaxRows))
		}
		grown += int64(min(g*j.Horizon.Seconds(), most))
		soon += int64(min(g*lead.Seconds(), most))
	}
	grown = max(grown, soon)
	n = max(1, ceil(grown, j.TargetRows))
	switch {
	case s.Rows > j.MaxRows:
		return max(n, 2), grown, Rows, fmt.Sprintf("%d rows, more than max_rows (%d)", s.Rows, j.MaxRows)
	case soon > j.MaxRows && s.Rows >= j.EarlyRows:
		return max(n, 2), grown, Forecast, fmt.Sprintf("%d rows and %.1f more per second: %d within %v", s.Rows,
			s.GrowthRowsPerS, soon, lead.Round(100*time.Millisecond))
	}
	return 1, grown, "", ""
}

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
				j.roll(i, j.rate(stream))
			case j.own(s, &j.Ranges[stream[k+1]].Stats, last):
				j.roll(i, s.AppendsPerS)
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
	if last.LastPut.Sub(s.LastPut) > 2*countDelay {
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
	return rate
}

// roll cuts ahead of a range that is appended to, if it and the empty ranges above it will be full before the next
// decision but one takes effect. It moves nothing, so an estimate is good enough.
func (j *judge) roll(i int, rate float64) {
	s := &j.Ranges[i].Stats
	if j.Ranges[i].Moves || rate < j.AppendsPerS {
		return
	}
	gain := rate * 2 * j.Lead.Seconds()
	if float64(s.Rows)+gain < float64(j.MaxRows) {
		return
	}
	if !s.Known && s.Rows+int64(gain) < j.MaxRows/2 {
		return // count it first: there is time
	}
	if s.Rows > j.MaxRows+int64(gain/2) {
		return // the roll came too late, or its keys went elsewhere: split it
	}
	last := i
	for last+1 < len(j.Ranges) && j.empty(last+1) {
		last++
	}
	room := max(0, float64(j.MaxRows-s.Rows)) + float64(last-i)*forecast.Fill*float64(j.MaxRows)
	text := fmt.Sprintf("%d rows and %.1f appended per second: full in %.0f s", s.Rows, rate, room/rate)
	if last > i && room >= gain {
		j.set(j.none(i, Rolled, "%s; %d empty ranges above it take what is appended next", text, last-i))
		return
	}
	if last > i {
		j.set(j.none(i, Rolled, "%s; ranges are cut ahead of it", text))
	}
	if j.Ranges[last].Moves {
		j.set(j.none(last, Moving, "it moves at present"))
		return
	}
	v := j.decision(Roll, last, Appends, "%s", text)
	v.Appended, v.Rate = i, rate
	v.Ahead = int(min(math.Ceil(gain/float64(j.MaxRows)), 1<<16)) + 1
	if more := v.Ahead - (last - i); more > 0 {
		v.Ahead = max(more, v.Ahead/2)
	}
	j.set(v)
}

// empty reports whether a range has no rows and no puts. One that moves was presumably just cut ahead.
func (j *judge) empty(i int) bool {
	r := &j.Ranges[i]
	return (r.Stats.Known || r.Moves) && r.Stats.Rows == 0 && r.Stats.PutsPerS == 0
}

// ahead reports whether an empty range lies above one that is appended to.
func (j *judge) ahead(i int) bool {
	for ; i > 0 && j.Ranges[i].Stats.Rows == 0; i-- {
		if j.appended(&j.Ranges[i-1].Stats) {
			return true
		}
	}
	return false
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
		// A range that will reach the minimum is left to grow; merge handles appends.
		if j.of[i] == nil && s.Rows < j.MinRows && (s.Rows+int64(j.grown(i)) < j.MinRows || j.appended(s)) {
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

func (j *judge) merge(i int) {
	from, to := i, i+1
	rows := j.Ranges[i].Stats.Rows
	grown := j.grown(i)
	why, text := Lonely, "it has no neighbour that fits"
	if j.appended(&j.Ranges[i].Stats) {
		j.set(j.none(i, Appends, "%d rows, but it fills by appends", j.Ranges[i].Stats.Rows))
		return
	}
	if j.ahead(i) {
		j.set(j.none(i, Rolled, "it is empty, cut ahead of keys that are appended"))
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
		case j.cooling(&j.Ranges[i]) > 0 || j.cooling(r) > 0:
			why, text = Cooling, fmt.Sprintf("its partition, or its neighbour's, was made less than %v ago", j.Cool)
		case j.appended(&r.Stats) || j.ahead(k):
			why, text = Appends, "its neighbour is appended to"
		case float64(rows+r.Stats.Rows)+grown+j.grown(k) > float64(j.TargetRows):
			// Else it would be split again before long.
		default:
			return true
		}
		return false
	}
	for rows < j.MinRows {
		left, right := from > 0 && joins(from-1, from), to < len(j.Ranges) && joins(to, to)
		k := to
		switch {
		case !left && !right:
			if to-from == 1 {
				if v, yes := j.refresh(i); yes {
					j.set(v)
					return
				}
				if len(j.Ranges) == 1 {
					return // a small bucket
				}
				j.set(j.none(i, why, "%d rows, fewer than min_rows (%d), but %s", rows, j.MinRows, text))
				return
			}
			k = -1
		case left && (!right || j.Ranges[from-1].Stats.Rows <= j.Ranges[to].Stats.Rows):
			from--
			k = from
		default:
			to++
		}
		if k < 0 {
			break
		}
		rows += j.Ranges[k].Stats.Rows
		grown += j.grown(k)
	}
	if j.countFirst(from, to) {
		return
	}
	j.set(Decision{
		Kind: Merge, From: from, To: to, Rows: rows, Copies: rows, Why: Rows,
		Text: fmt.Sprintf("%d rows, fewer than min_rows (%d); together %d", j.Ranges[i].Stats.Rows, j.MinRows, rows),
	})
}

// countFirst decides on recounts of the ranges to be merged that are not fresh: of all, or of none if one must wait.
// False: all are fresh.
func (j *judge) countFirst(from, to int) bool {
	var counts []Decision
	fresh, wait := true, false
	for k := from; k < to; k++ {
		v := j.none(k, Backing, "to be merged, when its neighbours are counted")
		if s := &j.Ranges[k].Stats; !j.fresh(s) {
			v = j.recount(k, Suspect, "to be merged: %d rows, as it is counted", s.Rows)
			fresh, wait = false, wait || v.Kind == None
		}
		counts = append(counts, v)
	}
	if fresh {
		return false
	}
	for _, v := range counts {
		if v.Kind == Recount && wait {
			v = j.none(v.From, Backing, "to be merged, when its neighbours are counted")
		}
		j.set(v)
	}
	return true
}

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
