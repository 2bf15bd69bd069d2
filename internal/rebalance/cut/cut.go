// Package cut turns verdicts of a policy into moves: at which keys ranges that are
// to be split are cut, which part stays in its partition, and what a merge joins.
//
// It is the step between package policy, which knows sizes and no keys, and package
// migrate, which knows keys and no sizes. The simulation and the live balancing take
// it alike, so that what the one shows is what the other does.
//
// It is pure: no I/O, neither the time nor chance of its own.
package cut

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Range is a range with all that a cut of it is decided by.
type Range struct {
	// Start and End are its bounds; the empty start is the lowest key, the empty end
	// plus infinity.
	Start, End []byte
	// Quanta are where its rows lie, as a recount that is fresh found them: the first
	// key is empty and stands for the start. They belong to the caller, and are only
	// read. Where the estimate has grown by more than a quarter since, count again: a
	// load is fast. A range without quanta is taken to be empty: do not leave them out
	// of one that is not, but fix it.
	Quanta []counter.Quantum
	// Earlier are quanta of the same range at an earlier time, best when it had about
	// a tenth less rows; estimates (counter.Source.Quanta) are good enough. They tell
	// where it grows. nil: that is not known. See Trail.
	Earlier []counter.Quantum
	Stats   counter.Stats
	// Pinned says that its start stays a cut.
	Pinned bool
	// Fixed says that nothing may be done to it: it moves, cools down, has a verdict of
	// its own, or was not counted. It is there only as a border.
	Fixed bool
}

// Rows are those of the quanta.
func (r *Range) Rows() (n int64) {
	for _, q := range r.Quanta {
		n += q.Rows
	}
	return n
}

// Zone is a run of neighbouring ranges, each of which begins where the one before
// ends: those of a verdict, and perhaps neighbours that a planner may take in.
type Zone struct {
	Ranges []Range
	// First is the index of Ranges[0] in the layout that was judged, by which verdicts
	// name ranges.
	First int
}

// Move is one span to be cut anew, in the sense of move.Goal.
type Move struct {
	// From and To name the ranges of the layout that are in it: those from From up to
	// To.
	From, To int
	// Start and End bound it; Cuts are all its cuts in between.
	Start, End []byte
	Cuts       [][]byte
	// Stay is which part of a single range stays in its partition; negative: none does.
	Stay int
	// Rows that it has, and Copies, those that change partition.
	Rows, Copies int64
	Why          policy.Why
	Text         string
}

// Goal is what package migrate is asked for.
func (m *Move) Goal() move.Goal {
	return move.Goal{Start: m.Start, End: m.End, Cuts: m.Cuts, Stay: m.Stay, Rows: m.Rows, Copies: m.Copies}
}

// Cutter makes moves of a verdict.
//
// Cut takes a Split or a Merge about ranges of the zone. The moves are in the order
// of their keys and do not overlap; fixed ranges are in none of them, pinned starts
// stay cuts. There are none where nothing can be done: all rows of a split lie in
// one quantum. An error means that ctx ended, that the verdict does not fit the
// zone, or that a planner broke the rules.
//
// Cutters are safe for concurrent use.
type Cutter interface {
	Cut(ctx context.Context, z *Zone, v *policy.Verdict, p *policy.Policy) ([]Move, error)
}

// Even cuts a split into parts alike, as many as the verdict says, of which the
// largest stays; and joins exactly what a merge names. What grows at one end is cut
// there (see Edge).
type Even struct{}

// Cut implements Cutter.
func (Even) Cut(_ context.Context, z *Zone, v *policy.Verdict, p *policy.Policy) ([]Move, error) {
	if err := z.check(v); err != nil {
		return nil, err
	}
	if v.Kind == policy.Merge {
		return []Move{z.join(v)}, nil
	}
	i := v.From - z.First
	if m, yes := z.edge(v, p); yes {
		return []Move{m}, nil
	}
	return z.parts(v, even(z.Ranges[i].Quanta, int64(v.Parts))), nil
}

// check refuses verdicts that do not fit the zone.
func (z *Zone) check(v *policy.Verdict) error {
	from, to := v.From-z.First, v.To-z.First
	switch {
	case v.Kind != policy.Split && v.Kind != policy.Merge:
		return fmt.Errorf("cut: nothing is cut for a verdict of kind %s", v.Kind)
	case from < 0 || to > len(z.Ranges) || from >= to || v.Kind == policy.Split && to-from != 1:
		return fmt.Errorf("cut: the verdict is about ranges %d up to %d, the zone has those from %d up to %d", v.From, v.To, z.First, z.First+len(z.Ranges))
	}
	for i := from; i < to; i++ {
		if z.Ranges[i].Fixed {
			return fmt.Errorf("cut: range %d is fixed, and the verdict is about it", z.First+i)
		}
		if i > from && z.Ranges[i].Pinned {
			return fmt.Errorf("cut: the verdict joins across the start of range %d, which is pinned", z.First+i)
		}
	}
	return nil
}

// move is a span of the ranges from..to of the zone without cuts.
func (z *Zone) move(from, to int, v *policy.Verdict) Move {
	m := Move{
		From: z.First + from, To: z.First + to, Start: z.Ranges[from].Start, End: z.Ranges[to-1].End,
		Stay: -1, Why: v.Why, Text: v.Text,
	}
	for i := from; i < to; i++ {
		m.Rows += z.Ranges[i].Rows()
	}
	m.Copies = m.Rows
	return m
}

// join makes the ranges of a merge one.
func (z *Zone) join(v *policy.Verdict) Move { return z.move(v.From-z.First, v.To-z.First, v) }

// parts cuts the range of a split before the given quanta. The largest part stays,
// the last one of equals: what is appended later goes there.
func (z *Zone) parts(v *policy.Verdict, at []int) []Move {
	if len(at) == 0 {
		return nil
	}
	i := v.From - z.First
	q := z.Ranges[i].Quanta
	m := z.move(i, i+1, v)
	largest, from := int64(-1), 0
	for k := range len(at) + 1 {
		to := len(q)
		if k < len(at) {
			to = at[k]
			m.Cuts = append(m.Cuts, q[to].Key)
		}
		n := int64(0)
		for _, x := range q[from:to] {
			n += x.Rows
		}
		if n >= largest {
			largest, m.Stay = n, k
		}
		from = to
	}
	m.Copies = m.Rows - largest
	return []Move{m}
}

// even returns before which quanta to cut so that there are n parts as alike as
// quanta allow, each with rows.
func even(q []counter.Quantum, n int64) (at []int) {
	rows := int64(0)
	for _, x := range q {
		rows += x.Rows
	}
	below, last := int64(0), int64(0) // rows below quantum k, and below the last cut
	k := 0
	for i := int64(1); i < n; i++ {
		want := rows/n*i + rows%n*i/n
		// To the first cut at or above what is wanted, or the one before if that is nearer.
		for k < len(q) && below < want {
			below += q[k].Rows
			k++
		}
		if k > 0 && want-(below-q[k-1].Rows) < below-want && below-q[k-1].Rows > last {
			k--
			below -= q[k].Rows
		}
		if k >= len(q) || below >= rows {
			break
		}
		if below > last {
			at = append(at, k)
			last = below
		}
	}
	return at
}
