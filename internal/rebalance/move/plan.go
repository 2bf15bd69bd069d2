package move

import (
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// FromPlan returns the changes that turn today's ranges of a bucket into the ranges of the plan p. Each goal is one
// change: it replaces neighbouring ranges by other ranges. The goals are in the order of their keys. FromPlan fails
// with Conflict if the plan was made for other ranges than today's, and with InvalidArgument if the plan contradicts
// itself.
func FromPlan(p *rebalance.Plan, today []partmap.Range) (goals []Goal, err error) {
	was, err := laid(p)
	if err != nil {
		return nil, err
	}
	if err := fits(was, today); err != nil {
		return nil, err
	}
	var old []partmap.Range
	var parts []rebalance.Range
	for ranges := p.Ranges; len(today) > 0; {
		old, parts = next(today, ranges)
		today, ranges = today[len(old):], ranges[len(parts):]
		g := Goal{Start: old[0].Start, End: old[len(old)-1].End, Stay: -1}
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
		if len(old) == 1 && len(parts) == 1 {
			if g.Stay == 0 {
				continue // nothing changes
			}
			g.Leave = old[0].Partition
		}
		goals = append(goals, g)
	}
	return goals, nil
}

// next returns the first change of the plan that can be made on its own: `old` are ranges of today, and parts are the
// ranges of the plan that replace them. Both begin at the lowest key of the arguments. Both end at the lowest key at
// which a range ends in both layouts.
func next(today []partmap.Range, ranges []rebalance.Range) (old []partmap.Range, parts []rebalance.Range) {
	i, j := 1, 1
	for i < len(today) || j < len(ranges) {
		if j == len(ranges) || i < len(today) && rebalance.Key(today[i].Start) < ranges[j].Start {
			i++
		} else if i == len(today) || ranges[j].Start < rebalance.Key(today[i].Start) {
			j++
		} else {
			break
		}
	}
	return today[:i], ranges[:j]
}

// piece is an interval of keys that lay in one partition when the plan was made, and the id of that partition. It
// begins at the key start, and ends where the next piece starts.
type piece struct {
	start rebalance.Key
	id    string
}

// laid returns the layout for which the plan p was made, as intervals of keys with their partitions. It computes them
// from the plan: keys that the plan moves lay in Move.From, and all other keys lie where the plan leaves them. It fails
// with InvalidArgument if the plan contradicts itself.
func laid(p *rebalance.Plan) (out []piece, err error) {
	bad := func(format string, args ...any) ([]piece, error) {
		return nil, store.Errorf(store.InvalidArgument, "the plan contradicts itself: "+format, args...)
	}
	if len(p.Ranges) == 0 || p.Ranges[0].Start != "" {
		return bad("its first partition does not begin at the lowest key")
	}
	m := 0
	for i := range p.Ranges {
		r := &p.Ranges[i]
		end := rebalance.Key("")
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
				return bad("the moves to %s do not cover it: one begins at %s, not at %s", id(r.ID),
					quoted(x.Start), quoted(at))
			}
			out = append(out, piece{x.Start, x.From})
			at, whole = x.End, x.End == end
		}
		if !whole {
			return bad("the moves to %s end at %s, and it ends at %s", id(r.ID), quoted(at), quoted(end))
		}
	}
	if m < len(p.Moves) {
		return bad("there is a move to %s, which is not among its partitions, or not in their order", id(p.Moves[m].To))
	}
	return out, nil
}

// id returns the id of a partition in printable form.
func id(s string) string { return keytext.Format([]byte(s)) }

func quoted(k rebalance.Key) string { return `"` + keytext.Format([]byte(k)) + `"` }

// fits returns nil if the plan was made for today's ranges of the bucket, else an error of kind Conflict. pieces
// describes the ranges for which the plan was made, as intervals of keys with their partitions.
func fits(pieces []piece, today []partmap.Range) error {
	k := 0
	for i := range today {
		start, id := rebalance.Key(today[i].Start), today[i].Partition.String()
		if k == len(pieces) || pieces[k].start != start || pieces[k].id != id {
			return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: "+
				"now a range begins at %s, in partition %s. Plan again", quoted(start), id)
		}
		next := func() bool { return i+1 == len(today) || pieces[k].start < rebalance.Key(today[i+1].Start) }
		for k++; k < len(pieces) && pieces[k].id == id && next(); k++ {
		}
	}
	if k < len(pieces) {
		return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: "+
			"at %s there is no cut any more. Plan again", quoted(pieces[k].start))
	}
	return nil
}
