package move

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// View is the part of a bucket's partition map, at one epoch (version), that matters for moves: the ranges that move
// now, and the ranges whose layout is to change. A View is never changed once it is made.
type View struct {
	Root *partmap.Root
	// Ranges are, in order of their keys, the ranges that move, the ranges that overlap a goal's interval, and all
	// other ranges in the same partitions.
	Ranges []partmap.Range
}

// Maps reads the ranges of a bucket's partition map, forwards and backwards. mapclient.Client implements it.
type Maps interface {
	Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error]
	RangeBefore(ctx context.Context, r *partmap.Root, cut []byte) (partmap.Range, bool, error)
	RangesSince(ctx context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error]
}

// Look reads the part of a bucket's partition map that Next needs: the ranges that move, and the ranges in the
// intervals of the goals (wanted layouts). The parameter s is what this process knows about the batches (groups of
// moves) in flight, e.g. where they are. If that is not known of a batch, Look searches the whole map. Look fails with
// the first error of m.
func Look(ctx context.Context, root *partmap.Root, m Maps, s *Seen, goals []Goal) (*View, error) {
	s.look(root)
	wanted := make([]store.Bounds, len(goals))
	for i := range goals {
		wanted[i] = store.Bounds{Start: goals[i].Start, End: goals[i].End}
	}
	v, err := look(ctx, root, m, slices.Concat(wanted, s.spans()), goals)
	if err != nil || v.complete() {
		return v, err
	}
	// Another process began a batch, or this one before a restart. Its ranges changed
	// when it began.
	found := map[uint64][]partmap.Range{}
	for rg, err := range m.RangesSince(ctx, root, root.Batches[0].ID) {
		if err != nil {
			return nil, err
		}
		if moving(&rg) || rg.SweepPending {
			found[rg.Batch] = append(found[rg.Batch], rg)
		}
	}
	for id, ranges := range found {
		s.Began(id, spans(ranges))
	}
	return look(ctx, root, m, slices.Concat(wanted, s.spans()), goals)
}

// Spans returns the intervals of keys that the ranges of the view cover. Neighbouring ranges make one interval.
func (v *View) Spans() []store.Bounds { return spans(v.Ranges) }

// complete reports whether the view has all ranges of all batches (groups of moves) in flight. A root says how many
// ranges each batch has.
func (v *View) complete() bool {
	count := map[uint64]uint64{}
	for i := range v.Ranges {
		count[v.Ranges[i].Batch]++
	}
	return !slices.ContainsFunc(v.Root.Batches, func(b partmap.Batch) bool { return count[b.ID] != b.Ranges })
}

// look reads the given intervals of keys of a bucket's partition map, and returns a view of these ranges:
//   - the ranges that move or that a goal (a wanted layout) concerns, and
//   - all other ranges in the same partitions, for which look also reads beyond the intervals.
func look(ctx context.Context, root *partmap.Root, m Maps, spans []store.Bounds, goals []Goal) (*View, error) {
	v := &View{Root: root}
	// The ranges of one partition are neighbours: a run of them is kept or dropped as a
	// whole.
	var run []partmap.Range
	keep := false
	flush := func() {
		if keep {
			v.Ranges = append(v.Ranges, run...)
		}
		run, keep = nil, false
	}
	take := func(rg partmap.Range) {
		if len(run) > 0 && run[0].Partition != rg.Partition {
			flush()
		}
		run = append(run, rg)
		keep = keep || moving(&rg) || rg.SweepPending || wanted(goals, &rg)
	}
	var next []byte // end of the keys read so far; nil: nothing was read
	for _, s := range joined(spans) {
		if next != nil && len(next) == 0 {
			break // all was read
		}
		for rg, err := range m.Ranges(ctx, root, later(s.Start, next)) {
			if err != nil {
				return nil, err
			}
			if err := before(ctx, root, m, &rg, next, take); err != nil {
				return nil, err
			}
			// Beyond the span only the rest of a run counts.
			if len(s.End) > 0 && bytes.Compare(rg.Start, s.End) >= 0 &&
				(len(run) == 0 || run[0].Partition != rg.Partition) {
				break
			}
			take(rg)
			next = append([]byte{}, rg.End...)
		}
	}
	flush()
	return v, nil
}

// before calls take for each range that is in the same partition as the range rg but has lower keys, in ascending
// order. `next` is the end of the keys that were read before, or nil if nothing was read. Ranges below `next` are left
// out.
func before(
	ctx context.Context, root *partmap.Root, m Maps, rg *partmap.Range, next []byte, take func(partmap.Range),
) error {
	var left []partmap.Range
	for at := rg.Start; string(at) != string(next); {
		b, found, err := m.RangeBefore(ctx, root, at)
		if err != nil {
			return err
		}
		if !found || b.Partition != rg.Partition {
			break
		}
		left = append(left, b)
		at = b.Start
	}
	for _, b := range slices.Backward(left) {
		take(b)
	}
	return nil
}

func later(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return b
	}
	return a
}

// joined returns the given intervals of keys in ascending order, and makes one interval of those that overlap or touch.
// It sorts its argument in place.
func joined(spans []store.Bounds) (out []store.Bounds) {
	slices.SortFunc(spans, func(a, b store.Bounds) int { return bytes.Compare(a.Start, b.Start) })
	for _, s := range spans {
		n := len(out)
		if n == 0 || len(out[n-1].End) > 0 && bytes.Compare(s.Start, out[n-1].End) > 0 {
			out = append(out, s)
		} else if last := &out[n-1]; len(last.End) > 0 && (len(s.End) == 0 || bytes.Compare(s.End, last.End) > 0) {
			last.End = s.End
		}
	}
	return out
}

func wanted(goals []Goal, rg *partmap.Range) bool {
	for i := range goals {
		if overlap(goals[i].Start, goals[i].End, rg.Start, rg.End) {
			return true
		}
	}
	return false
}

// overlap reports whether the intervals [a, b) and [c, d) have a key in common. An empty b or d is plus infinity.
func overlap(a, b, c, d []byte) bool {
	return (len(d) == 0 || string(a) < string(d)) && (len(b) == 0 || string(c) < string(b))
}

func moving(rg *partmap.Range) bool { return !rg.To.IsZero() }

// of returns the view's ranges that belong to the batch (group of moves) with the given id, in order.
func (v *View) of(batch uint64) (out []partmap.Range) {
	for _, rg := range v.Ranges {
		if rg.Batch == batch {
			out = append(out, rg)
		}
	}
	return out
}

// within returns the view's ranges that overlap the keys from start to end. The result tiled is true if these ranges
// begin exactly at start, end exactly at end, and have no gap.
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
