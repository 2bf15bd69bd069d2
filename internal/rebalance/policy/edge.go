package policy

import (
	"bytes"
	"math"

	"github.com/evenkeel/evenkeel/counter"
)

// If a range grows at one place, as with reversed times or a leading date, halving it moves each row about once: one
// half never grows again, the other is soon full. So the cut goes beside the place that grows, which gets a fresh
// partition for its few rows; the rest stays, full. A roll does the same above the highest key.

const (
	// enoughGrowth is the least share of the rows that must have come since Range.Earlier.
	enoughGrowth = 0.05
	// local is the share of the growth from which a part may be smaller than the minimum: it will not be for long.
	local = 0.75
	// overhead is the cost of a move's swaps and waits, as a share of the maximum.
	overhead = 0.01
)

// edge cuts a range that grows at one place beside that place, unless the growth is spread.
func (p *Policy) edge(r *Range, d *Decision) bool {
	if d.Why == Load || r.Stats.Spread >= p.Spread || len(r.Quanta) < 4 {
		return false
	}
	at, yes := edge(r.Quanta, r.Earlier, p.MinRows, p.MaxRows)
	if !yes {
		return false
	}
	d.cut(r.Quanta, []int{at})
	end := "low"
	if d.Stay == 0 {
		end = "high"
	}
	d.Text += "; it grows at its " + end + " end, which goes to a partition of its own"
	return true
}

// edge returns before which quantum to cut where growth is local: of all cuts in two the one that gains the most room
// for growth per row moved.
//
// Room is -ln(rows/max) of each part, weighted by its share of the growth: about how many times it can double. For even
// growth that is the entropy of the shares, which determines the number of splits of a load.
func edge(now, earlier []counter.Quantum, minRows, maxRows int64) (at int, yes bool) {
	share, ok := growth(now, earlier)
	if !ok {
		return 0, false
	}
	if below(now, earlier) {
		return 1, true // what comes next lies lower still: a roll downwards
	}
	rows := rows(now)
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

// below reports whether nearly all new rows lie below the earlier ones.
func below(now, earlier []counter.Quantum) bool {
	came, under := rows(now)-rows(earlier), int64(0)
	for i, q := range now {
		if i+1 < len(now) && bytes.Compare(now[i+1].Key, earlier[1].Key) <= 0 {
			under += q.Rows
		}
	}
	return float64(under-earlier[0].Rows) >= 0.9*float64(came)
}

// growth returns each quantum's share of the new rows. It is unknown if there are few, or many rows were deleted.
func growth(now, earlier []counter.Quantum) (share []float64, ok bool) {
	if len(earlier) < 8 {
		return nil, false
	}
	all := rows(now)
	if float64(all-rows(earlier)) < enoughGrowth*float64(all) {
		return nil, false
	}
	// The rows of an earlier quantum are taken to lie at its key.
	share = make([]float64, len(now))
	k, below, sum := 0, 0.0, 0.0
	for i := range now {
		had := 0.0
		for k < len(earlier) && (i+1 == len(now) || bytes.Compare(earlier[k].Key, now[i+1].Key) < 0) {
			had += float64(earlier[k].Rows)
			k++
		}
		// The noise of one quantum is balanced by the next ones.
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
