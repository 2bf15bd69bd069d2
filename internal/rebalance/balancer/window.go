package balancer

import (
	"bytes"
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

const (
	// wholeUpTo is the number of ranges up to which all ranges of a bucket are decided about together. In a larger
	// bucket only the ranges that are due are decided about, together with some neighbours. margin is the number of
	// neighbours on either side.
	wholeUpTo = 128
	margin    = 8
	// windowRanges is the maximum number of neighbouring ranges that are decided about together, apart from the
	// neighbours on either side. batchRanges is the number of ranges whose counts one request asks for.
	windowRanges = 1024
	batchRanges  = 4096
	// reach is the maximum number of ranges that are added on one side of a group of neighbouring ranges because its
	// last ranges are empty.
	reach = 512
)

// window is a run of neighbouring ranges of a bucket. Decisions are made about the ranges marked in core, which are due
// for a check. The other ranges are neighbours, which show what lies beside the core:
//
//	… - - - n n n C C n C n n n - - - …     C: core, n: neighbours, -: not in the window
type window struct {
	ranges []partmap.Range
	core   []bool
	stats  []counter.Stats
}

// add appends the range rg to the window. The parameter core is true if a decision is to be made about the range, and
// false if the range is only a neighbour.
func (w *window) add(rg *partmap.Range, core bool) {
	w.ranges, w.core = append(w.ranges, *rg), append(w.core, core)
}

// cut ends a window that has become too long, and returns a copy of it. The next window is in w: it begins with the
// last ranges of the copy, as many as keep says. The first 8 (margin) of these ranges are only neighbours from then on,
// about which no decisions are made.
func (w *window) cut(keep int) *window {
	out := &window{ranges: slices.Clone(w.ranges), core: slices.Clone(w.core)}
	n := max(0, len(w.ranges)-keep)
	w.ranges, w.core = slices.Delete(w.ranges, 0, n), slices.Delete(w.core, 0, n)
	clear(w.core[:min(margin, len(w.core))])
	return out
}

// whole reports whether the window, which is a run of neighbouring ranges, has all ranges of its bucket.
func (w *window) whole() bool {
	return len(w.ranges[0].Start) == 0 && len(w.ranges[len(w.ranges)-1].End) == 0
}

// windows calls f for groups of neighbouring ranges of a bucket, in the order of their keys, so that f decides about
// the ranges. The parameter v is the check of the bucket, and root is the root of the bucket's map. The groups together
// have all ranges that v must cover, and some neighbours of these ranges.
func (b *Balancer) windows(ctx context.Context, root *partmap.Root, v *visit, f func(*window) error) error {
	if v.whole || root.Ranges <= wholeUpTo {
		_, err := b.gather(ctx, root, nil, func(*partmap.Range) bool { return true }, f)
		return err
	}
	found := map[store.PartitionID]bool{}
	wanted := func(rg *partmap.Range) bool {
		hit := false
		for _, id := range [...]store.PartitionID{rg.Partition, rg.To} {
			if v.parts[id] {
				hit, found[id] = true, true
			}
		}
		return hit || slices.ContainsFunc(v.spans, func(s span) bool { return overlap(rg, &s.Bounds) })
	}
	if seeks, known := b.seeks(v); known {
		var all []*window
		poor, err := b.gather(ctx, root, seeks, wanted, func(w *window) error {
			all = append(all, w)
			return nil
		})
		if err != nil {
			return err
		}
		if !poor && len(found) == len(v.parts) {
			for _, w := range all {
				if err := f(w); err != nil {
					return err
				}
			}
			return nil
		}
	}
	// The map has changed, or the place of a partition was forgotten, or a partition is not in the map any more.
	_, err := b.gather(ctx, root, nil, wanted, f)
	return err
}

// overlap reports whether the range rg and the interval of keys s have keys in common.
func overlap(rg *partmap.Range, s *store.Bounds) bool {
	return (len(s.End) == 0 || bytes.Compare(rg.Start, s.End) < 0) && (len(rg.End) == 0 || bytes.Compare(rg.End, s.Start) > 0)
}

// seeks returns the keys at which searches of the bucket's map must begin, in order to find all ranges of the check v.
// The keys ascend. The boolean result is false if no key is known for some partitions; the whole map must then be read.
func (b *Balancer) seeks(v *visit) ([]string, bool) {
	keys := make([]string, 0, len(v.parts)+len(v.spans))
	for id := range v.parts {
		near, ok := b.places.get(id)
		if !ok {
			return nil, false
		}
		keys = append(keys, near)
	}
	for i := range v.spans {
		keys = append(keys, string(v.spans[i].near))
	}
	slices.Sort(keys)
	return slices.Compact(keys), true
}

// gather calls f for groups of neighbouring ranges, in the order of their keys. Each group has ranges for which wanted
// returns true, and neighbours of these ranges. seeks has the keys at which searches of the bucket's map begin, or is
// nil if the whole map is to be read. The result poor is true if a group may lack neighbours with lower keys.
func (b *Balancer) gather(
	ctx context.Context, root *partmap.Root, seeks []string, wanted func(*partmap.Range) bool, f func(*window) error,
) (poor bool, err error) {
	everywhere := seeks == nil
	if everywhere {
		seeks = []string{""}
	}
	for len(seeks) > 0 {
		w := &window{}
		hit, lacks, rest := false, 0, 0 // lacks: the number of neighbours still to be added
		for rg, err := range b.walk(ctx, root, []byte(seeks[0])) {
			if err != nil {
				return false, err
			}
			for len(seeks) > 0 && (len(rg.End) == 0 || seeks[0] < string(rg.End)) {
				seeks, rest = seeks[1:], 4*margin
			}
			core := wanted(&rg)
			w.add(&rg, core)
			if core {
				poor = poor || !hit && len(w.ranges) <= margin && len(w.ranges[0].Start) > 0
				hit, lacks = true, margin+1
			}
			lacks, rest = lacks-1, rest-1
			switch {
			case hit && lacks == 0:
				hit = false
				if err := f(w.cut(margin)); err != nil {
					return false, err
				}
			case hit && len(w.ranges) >= windowRanges+2*margin:
				// The window goes on: its last ranges are decided about in the next window, with their neighbours
				// above.
				out := w.cut(2 * margin)
				clear(out.core[len(out.core)-margin:])
				if err := f(out); err != nil {
					return false, err
				}
			case !hit && len(w.ranges) > 4*margin:
				w.cut(margin)
			}
			if !everywhere && rest <= 0 && lacks <= 0 {
				break
			}
		}
		if hit {
			if err := f(w); err != nil {
				return false, err
			}
		}
	}
	return poor, nil
}

// batches calls f for several groups of neighbouring ranges at a time. The counts of all ranges in one call are read by
// few requests. The parameter v is the check of the bucket, which says which ranges the groups must cover. The
// parameter root is the root of the bucket's map.
func (b *Balancer) batches(ctx context.Context, root *partmap.Root, v *visit, f func([]*window) error) error {
	var batch []*window
	n := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := b.widen(ctx, root, batch); err != nil {
			return err
		}
		if err := f(batch); err != nil {
			return err
		}
		batch, n = nil, 0
		return nil
	}
	err := b.windows(ctx, root, v, func(w *window) error {
		batch = append(batch, w)
		if n += len(w.ranges); n < batchRanges {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// widen reads the counts of ws, which are groups of neighbouring ranges, and adds ranges to some groups. If a group
// begins or ends with empty ranges, the next ranges on that side are added.
func (b *Balancer) widen(ctx context.Context, root *partmap.Root, ws []*window) error {
	// The empty ranges may have been cut in advance for appends, which the counts of the range beyond them show.
	low, high := make([]int, len(ws)), make([]int, len(ws)) // numbers of ranges added at each side
	for more := 2 * margin; ; more *= 2 {
		if err := b.readStats(ctx, root.Bucket, ws); err != nil {
			return err
		}
		again := false
		for i, w := range ws {
			if last := len(w.ranges) - 1; len(w.ranges[last].End) > 0 && high[i] < reach && w.empty(last) {
				n := len(w.ranges)
				for rg, err := range b.walk(ctx, root, w.ranges[last].End) {
					if err != nil {
						return err
					}
					w.add(&rg, false)
					if high[i]++; len(w.ranges)-n == more {
						break
					}
				}
				again = true
			}
			if len(w.ranges[0].Start) > 0 && low[i] < reach && w.empty(0) {
				below, err := b.below(ctx, root, &w.ranges[0], more)
				if err != nil {
					return err
				}
				low[i] += len(below)
				again = again || len(below) > 0
				w.ranges = append(below, w.ranges...)
				w.core = append(make([]bool, len(below)), w.core...)
				w.stats = append(make([]counter.Stats, len(below)), w.stats...)
			}
		}
		if !again {
			return nil
		}
	}
}

// readStats reads the counts of those ranges in ws that have no counts yet. ws are groups of neighbouring ranges of a
// bucket.
func (b *Balancer) readStats(ctx context.Context, id store.BucketID, ws []*window) error {
	var parts []store.Partition
	var into []*counter.Stats
	for _, w := range ws {
		w.stats = append(w.stats, make([]counter.Stats, len(w.ranges)-len(w.stats))...)
		for i := range w.stats {
			if s := &w.stats[i]; s.Partition == (store.Partition{}) {
				// While a range moves, new rows are counted with its new partition.
				parts, into = append(parts, store.Partition{Bucket: id, ID: w.ranges[i].WriteTo()}), append(into, s)
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	stats, err := b.counts.Stats(ctx, parts)
	for i := range stats {
		*into[i] = stats[i]
	}
	return err
}

// below returns about n ranges right below the range rg, in the order of their keys. root is the root of the bucket's
// map. The result is empty if the place of rg in the map is not known.
func (b *Balancer) below(ctx context.Context, root *partmap.Root, rg *partmap.Range, n int) ([]partmap.Range, error) {
	var out []partmap.Range
	for first := rg; len(out) < n && len(first.Start) > 0; first = &out[0] {
		near, known := b.places.get(first.Partition)
		if !known || near >= string(first.Start) {
			break
		}
		var more []partmap.Range
		for x, err := range b.walk(ctx, root, []byte(near)) {
			if err != nil {
				return nil, err
			}
			if len(more) > 8*margin || bytes.Compare(x.Start, first.Start) > 0 {
				return out, nil // the map has changed since that place was noted
			}
			if bytes.Equal(x.Start, first.Start) {
				break
			}
			more = append(more, x)
		}
		if len(more) == 0 {
			break
		}
		out = append(more, out...)
	}
	return out, nil
}

// empty reports whether range i of the window has no rows and takes no puts. A range of unknown size counts as empty
// only while it takes part in a move.
func (w *window) empty(i int) bool {
	s := &w.stats[i]
	return (s.Known || moves(&w.ranges[i])) && s.Rows == 0 && s.PutsPerS == 0
}
