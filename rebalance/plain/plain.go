// Package plain judges which ranges to split and which to merge, from exact counts
// of their rows and nothing else. It is pure: no I/O, neither the time nor chance of
// its own.
package plain

import (
	"bytes"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/rebalance/migrate"
)

// Limits say how many rows ranges should have.
type Limits struct {
	// MaxRows is the most: what has more is split.
	MaxRows int64
	// MinRows is the fewest: what has fewer is merged with its neighbours. 0: never.
	MinRows int64
	// TargetRows is what parts of a split are near to, and the most that a merge may
	// come to: well below MaxRows, so that a merge is not split again.
	TargetRows int64
	// MergeAfter is how old the partitions of ranges must be before they are merged.
	MergeAfter time.Duration
}

// DefaultTarget is the target of a maximum: 60 %.
func DefaultTarget(maxRows int64) int64 { return max(1, maxRows/10*6+maxRows%10*6/10) }

// Range is a range as counted. Ranges are given in order; two of which one begins
// where the other ends are neighbours.
type Range struct {
	Start, End []byte
	// Rows in it.
	Rows int64
	// Cuts are where it can be cut, in order; a part of them is enough, the more the
	// more even the parts. None where it was not counted for a split.
	Cuts []Cut
	// Moves: nothing can be asked of it at present.
	Moves bool
	// PinUntil pins its start (Unix seconds); Created is when its partition was made
	// (Unix seconds).
	PinUntil, Created int64
}

// Cut is a key at which a range can be cut, with the rows of the range below it.
type Cut struct {
	At    []byte
	Below int64
}

// Kind is what a verdict comes to.
type Kind string

// The kinds of verdicts.
const (
	Split Kind = "split"
	Merge Kind = "merge"
	// None: a range is outside the limits, and nothing is done about it for now.
	None Kind = "none"
)

// Verdict is what is to be done about ranges outside the limits, or why nothing is.
type Verdict struct {
	Kind   Kind
	Goal   migrate.Goal // of None only the range that it is about
	Rows   int64        // of all its ranges
	Copies int64        // those of them that change partition
	Reason string
}

// Judge looks at the ranges of one bucket, or at some of them.
func Judge(ranges []Range, l Limits, now time.Time) (out []Verdict) {
	taken := make([]bool, len(ranges))
	for i := range ranges {
		r := &ranges[i]
		if r.Rows <= l.MaxRows {
			continue
		}
		taken[i] = true
		if r.Moves {
			out = append(out, none(r, "%d rows, but it moves at present", r.Rows))
			continue
		}
		out = append(out, split(r, l))
	}
	if l.MinRows <= 0 {
		return out
	}
	for i := range ranges {
		if !taken[i] && ranges[i].Rows < l.MinRows {
			if v, ok := merge(ranges, taken, i, l, now); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

func none(r *Range, format string, args ...any) Verdict {
	return Verdict{Kind: None, Goal: migrate.Goal{Start: r.Start, End: r.End}, Rows: r.Rows, Reason: fmt.Sprintf(format, args...)}
}

// split cuts a range into as few parts as come below the target, as even as its cuts
// allow. The largest part stays where it is.
func split(r *Range, l Limits) Verdict {
	v := Verdict{Kind: Split, Rows: r.Rows, Goal: migrate.Goal{Start: r.Start, End: r.End}}
	n := (r.Rows + l.TargetRows - 1) / l.TargetRows
	var sizes []int64
	below := int64(0)
	at := 0
	for i := int64(1); i < n; i++ {
		want := r.Rows/n*i + r.Rows%n*i/n
		// The cut that is nearest to where one is wanted.
		for at+1 < len(r.Cuts) && distance(r.Cuts[at+1].Below, want) <= distance(r.Cuts[at].Below, want) {
			at++
		}
		if at >= len(r.Cuts) {
			break
		}
		c := r.Cuts[at]
		if c.Below <= below || c.Below >= r.Rows {
			continue // that one is taken, or cuts off nothing
		}
		v.Goal.Cuts = append(v.Goal.Cuts, c.At)
		sizes = append(sizes, c.Below-below)
		below = c.Below
	}
	if len(v.Goal.Cuts) == 0 {
		return none(r, "%d rows, more than max_rows (%d), but there is nowhere to cut", r.Rows, l.MaxRows)
	}
	sizes = append(sizes, r.Rows-below)
	largest := 0
	for i, s := range sizes {
		if s > sizes[largest] {
			largest = i
		}
	}
	v.Goal.Stay = largest
	v.Copies = r.Rows - sizes[largest]
	v.Reason = fmt.Sprintf("%d rows, more than max_rows (%d)", r.Rows, l.MaxRows)
	return v
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// merge joins a small range with its neighbours, each time the smaller one, until it
// is not small any more or would come above the target.
func merge(ranges []Range, taken []bool, i int, l Limits, now time.Time) (v Verdict, outside bool) {
	lo, hi, rows := i, i, ranges[i].Rows
	why := "it has no neighbour to be merged with"
	// fits says whether the j-th range, beside the cut of the at-th, may join.
	fits := func(j, at int) bool {
		switch r := &ranges[j]; {
		case !bytes.Equal(ranges[at-1].End, ranges[at].Start):
			return false
		case ranges[at].PinUntil > now.Unix():
			why = "the cut beside it is pinned"
		case r.Moves || ranges[i].Moves:
			why = "it moves at present, or its neighbour does"
		case taken[j]:
		case rows+r.Rows > l.TargetRows:
			why = fmt.Sprintf("with its neighbour it would come above the target (%d)", l.TargetRows)
		case now.Sub(time.Unix(r.Created, 0)) < l.MergeAfter || now.Sub(time.Unix(ranges[i].Created, 0)) < l.MergeAfter:
			why = fmt.Sprintf("it cools down: it or its neighbour was made less than %v ago", l.MergeAfter)
		default:
			return true
		}
		return false
	}
	for rows < l.MinRows {
		left, right := lo > 0 && fits(lo-1, lo), hi+1 < len(ranges) && fits(hi+1, hi+1)
		switch {
		case !left && !right:
			if lo == hi {
				if len(ranges[i].Start) == 0 && len(ranges[i].End) == 0 {
					return v, false // the only range of a small bucket is no trouble
				}
				return none(&ranges[i], "%d rows, fewer than min_rows (%d), but %s", rows, l.MinRows, why), true
			}
		case left && (!right || ranges[lo-1].Rows <= ranges[hi+1].Rows):
			lo--
			rows += ranges[lo].Rows
			continue
		default:
			hi++
			rows += ranges[hi].Rows
			continue
		}
		break
	}
	for j := lo; j <= hi; j++ {
		taken[j] = true
	}
	return Verdict{
		Kind: Merge, Goal: migrate.Merge(ranges[lo].Start, ranges[hi].End), Rows: rows, Copies: rows,
		Reason: fmt.Sprintf("%d rows, fewer than min_rows (%d); with its neighbours %d", ranges[i].Rows, l.MinRows, rows),
	}, true
}
