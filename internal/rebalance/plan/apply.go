package plan

import (
	"github.com/evenkeel/evenkeel/internal/base/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A Span is a run of keys between two cuts that a plan leaves where they are: today's
// ranges From up to To become ranges First up to Last of the plan.
type Span struct{ From, To, First, Last int }

// Same reports whether the plan leaves the cuts of a span as they are.
func (s Span) Same() bool { return s.To-s.From == 1 && s.Last-s.First == 1 }

// Spans divides a plan into the smallest parts that can be done one by one. today are the
// starts of today's ranges; both begin at the same key and ascend.
func Spans(today []Key, ranges []Range) (out []Span) {
	for s := (Span{}); s.From < len(today) && s.First < len(ranges); s.From, s.First = s.To, s.Last {
		s.To, s.Last = s.From+1, s.First+1
		for s.To < len(today) || s.Last < len(ranges) {
			if s.Last == len(ranges) || s.To < len(today) && today[s.To] < ranges[s.Last].Start {
				s.To++
			} else if s.To == len(today) || ranges[s.Last].Start < today[s.To] {
				s.Last++
			} else {
				break
			}
		}
		out = append(out, s)
	}
	return out
}

// Goals returns what leads from a map with the given ranges to the partitions of the plan,
// in the order of the keys. It fails with Conflict if the plan was made for another
// layout, and with InvalidArgument if the plan contradicts itself.
func (p *Plan) Goals(today []partmap.Range) (goals []move.Goal, err error) {
	before, err := p.before()
	if err != nil {
		return nil, err
	}
	if err := fits(before, today); err != nil {
		return nil, err
	}
	starts := make([]Key, len(today))
	for i := range today {
		starts[i] = Key(today[i].Start)
	}
	for _, s := range Spans(starts, p.Ranges) {
		old, parts := today[s.From:s.To], p.Ranges[s.First:s.Last]
		g := move.Goal{Start: old[0].Start, End: old[len(old)-1].End, Stay: -1}
		stays := int64(0)
		for n, r := range parts {
			g.Rows += r.Rows
			if n > 0 {
				g.Cuts = append(g.Cuts, []byte(r.Start))
			}
			for o := range old {
				if r.ID != old[o].Partition.String() {
					continue
				}
				stays += r.Rows
				if len(old) == 1 {
					g.Stay = n
				} else {
					g.Keep = append(g.Keep, n)
				}
			}
		}
		g.Copies = g.Rows - stays
		if s.Same() {
			if g.Stay == 0 {
				continue // nothing changes
			}
			g.Leave = old[0].Partition
		}
		goals = append(goals, g)
	}
	return goals, nil
}

// piece is a run of keys that lay in one partition when a plan was made.
type piece struct {
	start Key
	id    string
}

// before works out the layout that a plan was made for: keys that move lay in Move.From,
// the others stay where they are.
func (p *Plan) before() (out []piece, err error) {
	bad := func(format string, args ...any) ([]piece, error) {
		return nil, store.Errorf(store.InvalidArgument, "the plan contradicts itself: "+format, args...)
	}
	if len(p.Ranges) == 0 || p.Ranges[0].Start != "" {
		return bad("its first partition does not begin at the lowest key")
	}
	m := 0
	for i := range p.Ranges {
		r := &p.Ranges[i]
		end := Key("")
		if i+1 < len(p.Ranges) {
			if end = p.Ranges[i+1].Start; end <= r.Start {
				return bad("the start %s is not above the one before it", quoted(end))
			}
		}
		if m == len(p.Moves) || p.Moves[m].To != r.ID {
			out = append(out, piece{r.Start, r.ID})
			continue
		}
		at, whole := r.Start, false
		for ; m < len(p.Moves) && p.Moves[m].To == r.ID; m++ {
			x := &p.Moves[m]
			if x.Start != at || whole {
				return bad("the moves to %s do not cover it: one begins at %s, not at %s", text(r.ID), quoted(x.Start), quoted(at))
			}
			out = append(out, piece{x.Start, x.From})
			at, whole = x.End, x.End == end
		}
		if !whole {
			return bad("the moves to %s end at %s, and it ends at %s", text(r.ID), quoted(at), quoted(end))
		}
	}
	if m < len(p.Moves) {
		return bad("there is a move to %s, which is not among its partitions, or not in their order", text(p.Moves[m].To))
	}
	return out, nil
}

func quoted(k Key) string { return `"` + keytext.Format([]byte(k)) + `"` }

// fits fails unless pieces are the ranges of the map.
func fits(pieces []piece, today []partmap.Range) error {
	k := 0
	for i := range today {
		start, id := Key(today[i].Start), today[i].Partition.String()
		if k == len(pieces) || pieces[k].start != start || pieces[k].id != id {
			return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: "+
				"now a range begins at %s, in partition %s. Plan again", quoted(start), id)
		}
		next := func() bool { return i+1 == len(today) || pieces[k].start < Key(today[i+1].Start) }
		for k++; k < len(pieces) && pieces[k].id == id && next(); k++ {
		}
	}
	if k < len(pieces) {
		return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: "+
			"at %s there is no cut any more. Plan again", quoted(pieces[k].start))
	}
	return nil
}
