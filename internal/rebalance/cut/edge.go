package cut

import (
	"bytes"
	"fmt"
	"math"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Where a range grows at one place and not all over, as it does with reversed times
// or with a date in front, halves of it are split again and again: one half is left
// as it is for good, the other is soon full, and each row moves about once. The cut
// belongs beside the place that grows, which goes to a fresh partition with the few
// rows that it has, while the rest stays, full. It is the mirror of a roll, which
// does the same above the highest key.

const (
	// enoughGrowth is the least share of the rows that must have come since Earlier.
	enoughGrowth = 0.05
	// local is how much of the growth a part must take to be one that grows; it may be
	// smaller than the minimum, for it will not be for long.
	local = 0.75
	// overhead is what a move costs apart from its rows, in shares of the maximum: its
	// swaps and waits.
	overhead = 0.01
)

// edge cuts a range that grows at one place there. It is in question only where the
// policy has not found growth all over.
func (z *Zone) edge(v *policy.Verdict, p *policy.Policy) (m Move, yes bool) {
	i := v.From - z.First
	r := &z.Ranges[i]
	if v.Why != policy.Rows && v.Why != policy.Forecast && v.Why != policy.Bytes {
		return m, false
	}
	if r.Stats.Spread >= p.Spread || len(r.Quanta) < 4 {
		return m, false
	}
	at, yes := edge(r.Quanta, r.Earlier, p.MinRows, p.MaxRows)
	if !yes {
		return m, false
	}
	m = z.parts(v, []int{at})[0]
	end := "low"
	if m.Stay == 0 {
		end = "high"
	}
	m.Text = fmt.Sprintf("%s; it grows at its %s end, which goes to a partition of its own", v.Text, end)
	return m, true
}

// edge returns before which quantum to cut where growth is local. Among all cuts in
// two it takes the one that gains the most room for what grows per row moved.
//
// Room is measured as -ln(rows/max) of each part, weighted by the share of the growth
// that it takes: about how many times it can double. Where rows grow evenly that is
// the entropy of the shares, by which the number of splits that a load takes goes.
func edge(now, earlier []counter.Quantum, minRows, maxRows int64) (at int, yes bool) {
	share, ok := growth(now, earlier)
	if !ok {
		return 0, false
	}
	if below(now, earlier) {
		return 1, true // what comes next lies lower still: a roll downwards
	}
	rows := int64(0)
	for _, q := range now {
		rows += q.Rows
	}
	best := 0.0
	low, grown := int64(0), 0.0
	for k := 1; k < len(now); k++ {
		low += now[k-1].Rows
		grown += share[k-1]
		high := rows - low
		if low <= 0 || high <= 0 || max(low, high) > maxRows {
			continue
		}
		if low < minRows && grown < local || high < minRows && 1-grown < local {
			continue // what does not grow would stay too small
		}
		moved := min(low, high)
		gain := -grown*math.Log(float64(low)/float64(maxRows)) - (1-grown)*math.Log(float64(high)/float64(maxRows))
		if gain /= float64(moved) + overhead*float64(maxRows); gain > best {
			best, at = gain, k
		}
	}
	return at, at > 0
}

// below says whether nearly all of the rows that came since earlier lie below those
// that were there.
func below(now, earlier []counter.Quantum) bool {
	came, under := -earlier[0].Rows, int64(0)
	for _, q := range earlier[1:] {
		came -= q.Rows
	}
	for i, q := range now {
		came += q.Rows
		if i+1 < len(now) && bytes.Compare(now[i+1].Key, earlier[1].Key) <= 0 {
			under += q.Rows
		}
	}
	return float64(under-earlier[0].Rows) >= 0.9*float64(came)
}

// growth returns which share of the rows that came since earlier each quantum took.
// It is not known where there were few, or many went.
func growth(now, earlier []counter.Quantum) (share []float64, ok bool) {
	if len(earlier) < 8 {
		return nil, false
	}
	rows := 0.0
	for _, q := range now {
		rows += float64(q.Rows)
	}
	was := 0.0
	for _, q := range earlier {
		was += float64(q.Rows)
	}
	if rows-was < enoughGrowth*rows {
		return nil, false
	}
	// The earlier rows below each cut of now. Within an earlier quantum the share of
	// today's quanta that lie in it is the best guess, and that its rows lie at its key,
	// where one was, the simplest.
	share = make([]float64, len(now))
	k, below, sum := 0, 0.0, 0.0
	for i := range now {
		had := 0.0
		for k < len(earlier) && (i+1 == len(now) || bytes.Compare(earlier[k].Key, now[i+1].Key) < 0) {
			had += float64(earlier[k].Rows)
			k++
		}
		// Noise of a quantum is made good in the next ones.
		below += float64(now[i].Rows) - had
		if g := min(below, float64(now[i].Rows)); g > 0 {
			share[i] = g
			below -= g
			sum += g
		}
	}
	if sum <= 0 {
		return nil, false
	}
	for i := range share {
		share[i] /= sum
	}
	return share, true
}
