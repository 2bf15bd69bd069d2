package move

import (
	"bytes"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Goal is the wanted layout of one span of keys. It describes the end and not the steps, so
// it can be given again after a crash: a goal that is met needs nothing.
type Goal struct {
	// Start and End are cuts of the map (an empty End is plus infinity).
	Start keytext.Key `json:"start"`
	End   keytext.Key `json:"end"`
	// Cuts are all cuts wanted inside the span, ascending; none makes it one range. A split
	// is also met where there are more cuts: another goal may have cut the span further
	// before the split is judged.
	Cuts keytext.Keys `json:"cuts"`
	// Stay is the part, counted from 0, that stays in its partition where a single range is
	// split. Negative: none does. Parts that are ranges already always stay.
	Stay int `json:"-"`
	// Keep are the parts, counted from 0, that stay in their partitions where several
	// ranges are recut together: each part within one range, no two in the same one.
	Keep []int `json:"-"`
	// Leave is a partition that the span must leave, even if it is cut as wanted; zero for
	// none.
	Leave store.PartitionID `json:"-"`
	// PinUntil pins the cuts (Unix seconds); 0 for no pin.
	PinUntil int64 `json:"-"`

	// Rows is about how many rows the span has, Copies how many of them the move copies,
	// Kind what the move does, Cause the reason in one word and Why in a sentence, for people. They
	// are reported only: Equal and Judge ignore them.
	Rows   int64  `json:"rows"`
	Copies int64  `json:"rows_copied"`
	Kind   string `json:"-"`
	Cause  string `json:"-"`
	Why    string `json:"-"`
}

// Split cuts one range at cuts; part number stay does not move.
func Split(start, end []byte, stay int, cuts ...[]byte) Goal {
	return Goal{Start: start, End: end, Cuts: cuts, Stay: stay}
}

// Merge joins the ranges of a span, in a fresh partition.
func Merge(start, end []byte) Goal { return Goal{Start: start, End: end, Stay: -1} }

// Refresh rewrites a range into a fresh partition, without the tombstones of its present
// one.
func Refresh(rg *partmap.Range) Goal {
	return Goal{Start: rg.Start, End: rg.End, Stay: -1, Leave: rg.Partition}
}

// Verdict is the state of a goal.
type Verdict uint8

const (
	// Met: the map is as wanted.
	Met Verdict = iota
	// Ready: its move can begin.
	Ready
	// Blocked: moves in flight have to end first, possibly its own.
	Blocked
	// Impossible: it does not fit the map.
	Impossible
)

// Judge returns the state of a goal; if it is Ready, the move that begins it; if it is
// Impossible, the reason. fresh draws partition ids.
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

// check refuses goals that fit no map.
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

// starts are the starts of the parts.
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

// split reports whether the goal only cuts.
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

// stays reports whether the i-th part needs no move. Of several ranges that share a
// partition, none may stay in it while others leave.
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

// alone reports whether a partition has one range only.
func alone(ranges []partmap.Range, id store.PartitionID) bool {
	n := 0
	for i := range ranges {
		if ranges[i].Partition == id {
			n++
		}
	}
	return n == 1
}

// Equal reports whether two goals want the same layout of the same span.
func (g *Goal) Equal(o *Goal) bool {
	return string(g.Start) == string(o.Start) && string(g.End) == string(o.End) &&
		g.Stay == o.Stay && slices.Equal(g.Keep, o.Keep) && g.Leave == o.Leave &&
		g.PinUntil == o.PinUntil && slices.EqualFunc(g.Cuts, o.Cuts, bytes.Equal)
}
