package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

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
		least := j.sized(s).MinRows
		if j.of[i] == nil && s.Rows < least && (s.Rows+int64(gain) < least || j.appended(s)) {
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
	defer j.limits(i)()
	from, to := i, i+1
	bytes := j.Ranges[i].Stats.Bytes
	rows := j.Ranges[i].Stats.Rows
	grown, load := j.grown(i), requests(&j.Ranges[i].Stats)
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
		rows, bytes = rows+j.Ranges[k].Stats.Rows, bytes+j.Ranges[k].Stats.Bytes
		grown, load = grown+j.grown(k), load+requests(&j.Ranges[k].Stats)
	}
	due, soon := time.Duration(0), false
	if to-from > 1 {
		due = j.due(from, to, rows)
		// A merge before long saves the refreshes.
		soon = due <= j.Cool
		for k := from; k < to; k++ {
			soon = soon && j.Ranges[k].Stats.Dead < 2*j.MaxDead-j.MaxDead/8
		}
	}
	switch v, dead := j.refresh(i); {
	case to-from > 1 && due == 0:
		j.set(Decision{
			Kind: Merge, From: from, To: to, Rows: rows, Copies: rows, Why: Rows,
			Text: fmt.Sprintf("%d rows, fewer than min_rows (%d); together %d", j.Ranges[i].Stats.Rows, j.MinRows, rows),
		})
	case dead && !soon:
		j.set(v)
	case to-from > 1:
		for k := from; k < to; k++ {
			if _, dead := j.refresh(k); k != i && !(soon && dead) {
				continue
			}
			v := j.none(k, Cooling, "%d rows, fewer than min_rows (%d): to copy %d rows for a merge is worth it in %v",
				j.Ranges[k].Stats.Rows, j.MinRows, rows, due.Round(time.Second))
			v.Until = j.Now.Add(due).Round(0).UTC() // as it is read back
			j.set(v)
		}
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
	// Together they pay sooner, but each has to be small for a while: a load that comes and goes within the hour would
	// split again what is joined, and what a split made is not joined within the hour.
	return max(0, (need-held)/time.Duration(to-from-1), min(need, 2*j.Cool)-least)
}

// rent is in how many times Cool a range too many costs as much as to copy a full one.
const rent = 6

// grown is how many rows a range gains while a merge should last.
func (j *judge) grown(i int) float64 {
	return max(0, j.Ranges[i].Stats.GrowthRowsPerS) * max(j.Cool, j.Horizon).Seconds()
}
