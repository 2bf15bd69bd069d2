package move

import (
	"bytes"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Goal is the wanted layout of one interval of keys: the keys at which it is to be cut into ranges. It says what is
// wanted and not how, so that it can be given again after a crash. A goal that is met needs no work.
type Goal struct {
	// Start and End are the first key and the end of the interval. Both must be cuts (bounds of ranges) of the
	// partition map. An empty End is plus infinity.
	Start keytext.Key `json:"start"`
	End   keytext.Key `json:"end"`
	// Cuts are all cuts that are wanted inside the interval, in ascending order. Without cuts the interval is to be one
	// range. A goal that only splits is also met if the interval has further cuts, since another goal may have cut it
	// meanwhile.
	Cuts keytext.Keys `json:"cuts"`
	// Stay is for a goal that splits a single range: the number, counted from 0, of the new range that stays in the old
	// partition. If Stay is negative, all new ranges move to fresh partitions. A wanted range that exists already stays
	// anyway.
	Stay int `json:"-"`
	// Keep is for a goal that replaces several ranges: the numbers, counted from 0, of the new ranges that stay in
	// their partitions. Each of them must lie within one present range, and no two in the same one.
	Keep []int `json:"-"`
	// Leave is a partition that all rows of the interval must leave, even if the interval has the wanted cuts already.
	// It serves e.g. to rewrite a range. Zero means that no partition must be left.
	Leave store.PartitionID `json:"-"`
	// PinUntil is the Unix time in seconds until which ranges must not be merged across the cuts; 0 means that they may
	// be merged at any time.
	PinUntil int64 `json:"-"`

	// Rows is about the number of rows in the interval, and Copies about the number of rows that the move copies. Kind
	// is the kind of move, Cause is the reason in one word, and Why is the reason in a sentence for people. These
	// fields are only reported: Equal and Judge ignore them.
	Rows   int64  `json:"rows"`
	Copies int64  `json:"rows_copied"`
	Kind   string `json:"-"`
	Cause  string `json:"-"`
	Why    string `json:"-"`
}

// Split returns the goal of cutting the range from start to end at the keys in cuts. The new range with the number
// stay, counted from 0, keeps the range's partition. The others move to fresh partitions.
func Split(start, end []byte, stay int, cuts ...[]byte) Goal {
	return Goal{Start: start, End: end, Cuts: cuts, Stay: stay}
}

// Merge returns the goal of joining all ranges from start to end into one range, in a fresh partition.
func Merge(start, end []byte) Goal { return Goal{Start: start, End: end, Stay: -1} }

// Refresh returns the goal of rewriting the range rg into a fresh partition. The bounds of the range do not change. The
// tombstones of its present partition, which slow down reads, are left behind.
func Refresh(rg *partmap.Range) Goal {
	return Goal{Start: rg.Start, End: rg.End, Stay: -1, Leave: rg.Partition}
}

// Verdict is the state of a goal (a wanted layout of ranges) on the present partition map: met already, ready to begin,
// blocked by other moves, or impossible.
type Verdict uint8

const (
	// Met means that the partition map has the ranges that the goal wants.
	Met Verdict = iota
	// Ready means that the goal's move can begin.
	Ready
	// Blocked means that other moves, or the goal's own, have to end first.
	Blocked
	// Impossible means that the goal does not fit the partition map, e.g. because its start is not a cut of the map.
	Impossible
)

// Judge returns the state of the goal g (a wanted layout of ranges) at the time `now`, by the ranges of the bucket's
// partition map in v. The function fresh returns ids for new partitions. If the verdict is Ready, the second result is
// the move that begins the work. If the verdict is Impossible, the error says why.
func (g *Goal) Judge(v *View, now time.Time, fresh func() store.PartitionID) (Verdict, partmap.Move, error) {
	if err := g.check(); err != nil {
		return Impossible, partmap.Move{}, err
	}
	ranges, tiled := v.within(g.Start, g.End)
	if !tiled {
		return Impossible, partmap.Move{}, store.Errorf(store.InvalidArgument,
			"[%q, %q) does not begin and end at cuts of bucket %s", g.Start, g.End, v.Root.Bucket)
	}
	mine := map[store.PartitionID]bool{}
	for i := range ranges {
		mine[ranges[i].Partition] = true
	}
	for i := range v.Ranges {
		rg := &v.Ranges[i]
		if mine[rg.Partition] && (moving(rg) || rg.SweepPending && overlap(g.Start, g.End, rg.Start, rg.End)) {
			return Blocked, partmap.Move{}, nil
		}
	}
	if g.met(ranges) {
		return Met, partmap.Move{}, nil
	}
	for i := range ranges[1:] {
		rg := &ranges[i+1]
		kept := slices.ContainsFunc(g.Cuts, func(c []byte) bool { return string(c) == string(rg.Start) })
		if rg.PinUntil > now.Unix() && !kept {
			return Impossible, partmap.Move{}, store.Errorf(store.InvalidArgument,
				"the cut %q is pinned until %s: nothing joins across it", rg.Start,
				time.Unix(rg.PinUntil, 0).UTC().Format(time.RFC3339))
		}
	}
	return Ready, g.move(ranges, fresh), nil
}

// check returns an error if the wanted cuts do not ascend, or do not lie inside the goal's interval of keys. No
// partition map can have such ranges.
func (g *Goal) check() error {
	last := g.Start
	for i, c := range g.Cuts {
		if bytes.Compare(c, last) <= 0 || len(g.End) > 0 && bytes.Compare(c, g.End) >= 0 {
			return store.Errorf(store.InvalidArgument,
				"cut %d, %q, is not above the one before it and below the end %q", i, c, g.End)
		}
		last = c
	}
	return nil
}

// starts returns the first key of each range that the goal wants, in ascending order.
func (g *Goal) starts() [][]byte { return append([][]byte{g.Start}, g.Cuts...) }

func (g *Goal) met(ranges []partmap.Range) bool {
	if g.split() {
		return !slices.ContainsFunc(g.Cuts, func(cut []byte) bool {
			_, there := slices.BinarySearchFunc(ranges, cut, func(rg partmap.Range, cut []byte) int {
				return bytes.Compare(rg.Start, cut)
			})
			return !there
		})
	}
	starts := g.starts()
	if len(ranges) != len(starts) {
		return false
	}
	for i := range ranges {
		if string(ranges[i].Start) != string(starts[i]) || !g.Leave.IsZero() && ranges[i].Partition == g.Leave {
			return false
		}
	}
	return true
}

// split reports whether the goal only splits a range, and lets one of the new ranges stay in the range's partition. The
// result is false for goals that merge, that rewrite a range, or that replace several ranges.
func (g *Goal) split() bool {
	return g.Stay >= 0 && len(g.Cuts) > 0 && len(g.Keep) == 0 && g.Leave.IsZero()
}

func (g *Goal) move(ranges []partmap.Range, fresh func() store.PartitionID) partmap.Move {
	m := partmap.Move{Start: g.Start, End: g.End}
	starts := g.starts()
	for i, s := range starts {
		end := g.End
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		p := partmap.Part{Start: s}
		if i > 0 {
			p.PinUntil = g.PinUntil
		}
		if !g.stays(ranges, i, s, end) {
			p.To = fresh()
		}
		m.Parts = append(m.Parts, p)
	}
	return m
}

// stays reports whether a range that the goal wants keeps the partition that its rows are in. The wanted range has the
// number i, and the keys from start to end. ranges has the present ranges of the goal's interval. If several of these
// ranges share a partition, no wanted range keeps that partition.
func (g *Goal) stays(ranges []partmap.Range, i int, start, end []byte) bool {
	if !g.Leave.IsZero() {
		return false
	}
	if len(ranges) == 1 {
		return i == g.Stay
	}
	if slices.Contains(g.Keep, i) {
		return slices.ContainsFunc(ranges, func(rg partmap.Range) bool {
			below := len(rg.End) == 0 || len(end) > 0 && bytes.Compare(end, rg.End) <= 0
			return bytes.Compare(rg.Start, start) <= 0 && below && alone(ranges, rg.Partition)
		})
	}
	return slices.ContainsFunc(ranges, func(rg partmap.Range) bool {
		return string(rg.Start) == string(start) && string(rg.End) == string(end) && alone(ranges, rg.Partition)
	})
}

// alone reports whether exactly one of the given ranges has its rows in the partition with this id.
func alone(ranges []partmap.Range, id store.PartitionID) bool {
	n := 0
	for i := range ranges {
		if ranges[i].Partition == id {
			n++
		}
	}
	return n == 1
}

// Equal reports whether two goals want the same layout of the same interval of keys. Fields that are only for reports,
// such as Rows and Why, are not compared.
func (g *Goal) Equal(o *Goal) bool {
	return string(g.Start) == string(o.Start) && string(g.End) == string(o.End) &&
		g.Stay == o.Stay && slices.Equal(g.Keep, o.Keep) && g.Leave == o.Leave &&
		g.PinUntil == o.PinUntil && slices.EqualFunc(g.Cuts, o.Cuts, bytes.Equal)
}
