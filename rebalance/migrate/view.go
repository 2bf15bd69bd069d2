package migrate

import (
	"iter"

	"github.com/evenkeel/evenkeel/partmap"
)

// View is a bucket's map at one epoch, as far as moves and goals are concerned.
// It is read-only.
type View struct {
	Root *partmap.Root
	// Ranges in order: those of batches in flight, those that a goal's span
	// overlaps, and all others of the same partitions. They are not everything
	// there is: see Look.
	Ranges []partmap.Range
}

// Look goes through all ranges of a root, in order, and keeps what Next needs to
// know for these goals. It fails with the first error of ranges.
func Look(root *partmap.Root, ranges iter.Seq2[partmap.Range, error], goals []Goal) (*View, error) {
	v := &View{Root: root}
	// The ranges of one partition are neighbours, so a run of them is kept or
	// dropped as a whole.
	var run []partmap.Range
	keep := false
	flush := func() {
		if keep {
			v.Ranges = append(v.Ranges, run...)
		}
		run, keep = run[:0], false
	}
	for rg, err := range ranges {
		if err != nil {
			return nil, err
		}
		if len(run) > 0 && run[0].Partition != rg.Partition {
			flush()
		}
		run = append(run, rg)
		keep = keep || moving(&rg) || rg.SweepPending || wanted(goals, &rg)
	}
	flush()
	return v, nil
}

func wanted(goals []Goal, rg *partmap.Range) bool {
	for i := range goals {
		if overlap(goals[i].Start, goals[i].End, rg.Start, rg.End) {
			return true
		}
	}
	return false
}

// overlap reports whether [a, b) and [c, d) have a key in common; an empty end
// is plus infinity.
func overlap(a, b, c, d []byte) bool {
	return (len(d) == 0 || string(a) < string(d)) && (len(b) == 0 || string(c) < string(b))
}

func moving(rg *partmap.Range) bool { return !rg.To.IsZero() }

// of returns the ranges that take part in a batch.
func (v *View) of(batch uint64) (out []partmap.Range) {
	for _, rg := range v.Ranges {
		if rg.Batch == batch {
			out = append(out, rg)
		}
	}
	return out
}

// within returns the ranges of a span and whether they tile it.
func (v *View) within(start, end []byte) (out []partmap.Range, tiled bool) {
	for _, rg := range v.Ranges {
		if overlap(start, end, rg.Start, rg.End) {
			out = append(out, rg)
		}
	}
	n := len(out)
	tiled = n > 0 && string(out[0].Start) == string(start) && string(out[n-1].End) == string(end)
	for i := 1; tiled && i < n; i++ {
		tiled = string(out[i-1].End) == string(out[i].Start)
	}
	return out, tiled
}
