package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// neighbours finds, for each range, the nearest lower range and the nearest higher range that have rows or are appended
// to. The results are the fields below and above of the judge.
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

// merges decides which small ranges are joined with neighbours. Empty ranges come first, since merges of empty ranges
// copy nothing. The other small ranges follow in the order of their keys, so that no small range is left over between
// two merges.
func (j *judge) merges() {
	var small []int
	for i := range j.Ranges {
		s := &j.Ranges[i].Stats
		// A range that will reach the minimum before long is left to grow; merge handles appends.
		gain := max(j.grown(i), j.growing(s)*rent*j.Cool.Seconds())
		least := j.sized(s).MinRows
		if j.of[i] == nil && s.Rows < least && (s.Rows+int64(gain) < least || j.appended(s)) && !emptying(s, j.Horizon) {
			small = append(small, i)
		}
	}
	slices.SortStableFunc(small, func(a, b int) int {
		return cmp.Compare(min(j.Ranges[a].Stats.Rows, 1), min(j.Ranges[b].Stats.Rows, 1))
	})
	before := slices.Clone(j.of)
	if j.mergeAll(small, 0) {
		// Merges that will pay within Horizon are made now as well, so neighbours become one decision.
		for i, v := range j.of {
			if before[i] == nil && v != nil && v.Why == Cooling {
				j.of[i] = nil
			}
		}
		j.mergeAll(small, j.Horizon)
	}
	j.adjoin()
}

// mergeAll decides about the merges of the small ranges with the given indexes. A merge is made if its benefit exceeds
// the cost of its copies now or soon. The parameter `within` is the time that counts as soon, and may be 0. The result
// copies is true if one of the merges copies rows.
func (j *judge) mergeAll(small []int, within time.Duration) (copies bool) {
	for _, i := range small {
		if j.of[i] == nil {
			j.merge(i, within)
		}
		copies = copies || j.of[i] != nil && j.of[i].Kind == Merge && j.of[i].Copies > 0
	}
	return copies
}

// adjoin combines decisions to merge neighbouring ranges into one decision if they lie side by side and are not too
// large together.
func (j *judge) adjoin() {
	for i := range j.of {
		a := j.of[i]
		if a == nil || a.Kind != Merge || a.Copies == 0 || a.To == len(j.of) {
			continue
		}
		b := j.of[a.To]
		if b == nil || b.Kind != Merge || b.Copies == 0 || b.To-a.From > mergedAtOnce ||
			j.Budget.Rows > 0 && a.Copies+b.Copies > j.Budget.Rows {
			continue
		}
		v := *a
		v.To, v.Rows, v.Copies = b.To, a.Rows+b.Rows, a.Copies+b.Copies
		v.Cuts = append(v.Cuts[:len(v.Cuts):len(v.Cuts)], j.Ranges[b.From].Start)
		if len(a.Cuts) == 0 {
			v.Text += "; and so are others beside it"
		}
		j.set(v)
	}
}

// mergedAtOnce is the maximum number of ranges that one merge joins into fewer ranges.
const mergedAtOnce = 64

// merge decides about the small range i. First it collects neighbours to be joined with the range, one at a time and
// the smaller one first, as far as they fit. The merge is made if it is worth the cost of its copies now or soon. The
// parameter `within` is the time that counts as soon, and may be 0. If there is no merge, the range is rewritten
// because of too many tombstones, or is left as it is.
func (j *judge) merge(i int, within time.Duration) {
	defer j.limits(i)()
	from, to := i, i+1
	bytes := j.Ranges[i].Stats.Bytes
	rows := j.Ranges[i].Stats.Rows
	grown, load := j.grown(i), requests(&j.Ranges[i].Stats)
	why, text := Lonely, "it has no neighbour that fits"
	until := time.Time{}
	if j.appended(&j.Ranges[i].Stats) {
		if v, dead := j.refresh(i); dead {
			j.set(v)
			return
		}
		if rows > 0 || !j.silent(&j.Ranges[i].Stats) { // else the appends have gone on to another range
			j.set(j.none(i, Appends, "%d rows, but it fills by appends", rows))
			return
		}
	}
	if j.ahead(i) {
		j.set(j.none(i, Rolled, "%s", cutAhead))
		return
	}
	soon := false // a neighbour will be empty: the merge waits and includes it
	// joins reports whether range k may be joined. cut is the index of the range whose start would no longer be a cut.
	joins := func(k, cut int) bool {
		switch r := &j.Ranges[k]; {
		case j.of[k] != nil && j.of[k].Kind == None && j.of[k].Why == Moving:
			why, text = Moving, "its neighbour moves at present"
		case j.of[k] != nil:
		case emptying(&r.Stats, j.Horizon):
			soon = true
		case j.Ranges[cut].PinUntil.After(j.Now):
			until = utc(j.Ranges[cut].PinUntil)
			why, text = Pinned, "the cut beside it is pinned until "+until.Format(time.RFC3339)
		case j.appended(&r.Stats) && (r.Stats.Rows > 0 || !j.silent(&r.Stats)) || j.ahead(k):
			why, text = Appends, "its neighbour is appended to"
		case j.waits(cut):
			why, text = Rolled, "the empty range at the end takes what is appended when that goes on"
		case float64(rows+r.Stats.Rows)+grown+j.grown(k) > float64(j.TargetRows):
			// Else it would be split again before long.
		case j.MaxBytes > 0 && float64(bytes+r.Stats.Bytes)*float64(j.MaxRows) > float64(j.MaxBytes)*float64(j.TargetRows):
		case j.hot(load+requests(&r.Stats), apart):
			why, text = Load, "together with its neighbour it would take too much of the bucket's traffic"
		default:
			return true
		}
		return false
	}
	// Small neighbours are joined into as few ranges as can hold their rows. Otherwise the rows would soon be copied
	// again.
	all := j.run(i)
	share := (all + ceil(all, j.TargetRows) - 1) / max(ceil(all, j.TargetRows), 1)
	wants := func(k int) bool {
		if j.Ranges[k].Stats.Rows < j.MinRows {
			return rows < max(share, j.MinRows)
		}
		return rows < j.MinRows && (to-from == 1 || !j.nothing(rows, to-from))
	}
	for to-from < mergedAtOnce {
		left := from > 0 && wants(from-1) && joins(from-1, from)
		right := to < len(j.Ranges) && wants(to) && joins(to, to)
		k := -1
		switch {
		case left && (!right || j.Ranges[from-1].Stats.Rows <= j.Ranges[to].Stats.Rows):
			k = from - 1
		case right:
			k = to
		}
		if k < 0 || rows == 0 && to-from > 1 && j.Ranges[k].Stats.Rows > 0 {
			break // empty ranges are joined alone, which copies nothing
		}
		from, to = min(from, k), max(to, k+1)
		rows, bytes = rows+j.Ranges[k].Stats.Rows, bytes+j.Ranges[k].Stats.Bytes
		grown, load = grown+j.grown(k), load+requests(&j.Ranges[k].Stats)
	}
	var due time.Duration
	if to-from > 1 {
		if due = j.due(from, to, rows); due <= within {
			due = 0
		}
		if soon {
			due = max(due, waitsFor)
		}
		// A merge before long makes a refresh of each range unnecessary.
		soon = due <= j.Cool
		for k := from; k < to; k++ {
			soon = soon && j.Ranges[k].Stats.Dead < j.mostDead()
		}
	}
	switch v, dead := j.refresh(i); {
	case to-from > 1 && due == 0:
		j.set(Decision{
			Kind: Merge, From: from, To: to, Rows: rows, Copies: rows, Why: Rows,
			Text: fmt.Sprintf("%d rows, fewer than min_rows (%d); together %d", j.Ranges[i].Stats.Rows, j.MinRows, rows),
		})
	case dead && (!soon || purged(&j.Ranges[i].Stats)):
		j.set(v)
	case to-from > 1:
		for k := from; k < to; k++ {
			_, dead := j.refresh(k)
			if less := j.Ranges[k].Stats.Rows < j.MinRows; k != i && (dead && !soon || !dead && !less) {
				continue
			}
			v := j.none(k, Cooling, "%d rows, fewer than min_rows (%d): to copy %d rows for a merge is worth it in %v",
				j.Ranges[k].Stats.Rows, j.MinRows, rows, due.Round(time.Second))
			v.Until = utc(j.Now.Add(due))
			j.set(v)
		}
	case len(j.Ranges) > 1: // else the whole bucket is small
		v := j.none(i, why, "%d rows, fewer than min_rows (%d), but %s", rows, j.MinRows, text)
		if why == Pinned {
			v.Until = until
		}
		j.set(v)
	}
}

// run returns the total number of rows in a run of small ranges: range i, which is small, and the small ranges next to
// it. At most 64 ranges (mergedAtOnce) on each side count.
func (j *judge) run(i int) (rows int64) {
	small := func(k int) bool { return j.of[k] == nil && j.Ranges[k].Stats.Rows < j.MinRows }
	for k := i; k < min(len(j.Ranges), i+mergedAtOnce) && small(k); k++ {
		rows += j.Ranges[k].Stats.Rows
	}
	for k := i - 1; k >= max(0, i-mergedAtOnce) && small(k); k-- {
		rows += j.Ranges[k].Stats.Rows
	}
	return rows
}

// waitsFor is the least time for which a merge is put off while the rows of a neighbouring range are being deleted.
// Once that range is empty, the merge need not copy its rows.
const waitsFor = time.Minute

// due returns the time until a merge of Ranges[from:to] is worth its cost. The result is 0 if the merge is worth its
// cost now. rows is the number of rows that the merge copies.
//
// Each unnecessary range has a running cost, called its rent. A merge is made when the rent so far equals the cost of
// copying the rows. The total cost is then at most twice the least possible cost, although nobody knows how long the
// ranges stay small. The rule is the solution of the ski rental problem.
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
	if all { // one of them is needed in any case
		held -= least
	}
	if rows == 0 && slices.ContainsFunc(j.Ranges[from:to], func(r Range) bool { return purged(&r.Stats) }) {
		return 0
	}
	if rows == 0 { // perhaps they were cut ahead of a stream that has just begun
		return max(0, j.Cool/10-least, passing*j.Lead-least)
	}
	need := time.Duration(rent * float64(j.Cool) * float64(rows) / float64(j.MaxRows))
	// Many ranges pay sooner, but each must also have been small for 2 x Cool. A load that comes and goes within that
	// time would split again what was joined, and a merge would undo splits that are younger.
	if j.nothing(rows, to-from) {
		return max(0, (need-held)/time.Duration(to-from-1))
	}
	return max(0, (need-held)/time.Duration(to-from-1), 2*j.Cool-least)
}

// nothing reports whether a merge of some ranges costs next to nothing: they have fewer than 1/20 of MaxRows on
// average. Such ranges are merged early, since even a later split would cost little. The parameter rows is the total
// number of rows of the ranges.
func (p *Policy) nothing(rows int64, ranges int) bool {
	const part = 20 // 1/20 of the maximum, on average
	return part*rows < int64(ranges)*p.MaxRows
}

// rent sets how much an unnecessary range costs: in 6 times Policy.Cool it costs as much as the copy of a full range.
// See the method due.
const rent = 6

// grown returns the number of rows that range i will gain in the time for which a merge should last. This time is
// Policy.Cool or Policy.Horizon, whichever is longer.
func (j *judge) grown(i int) float64 {
	s := &j.Ranges[i].Stats
	if !s.LastPut.IsZero() && j.Now.Sub(s.LastPut) > j.Cool {
		return 0 // the slow rate remembers a load that has ended
	}
	return max(0, s.GrowthRowsPerS) * max(j.Cool, j.Horizon).Seconds()
}
