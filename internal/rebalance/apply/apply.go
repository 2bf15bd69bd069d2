// Package apply turns plans into moves of the map that they were made for: spans that
// are cut anew, each between two cuts of today that stay cuts.
//
// It is pure: no I/O, neither the time nor chance of its own.
package apply

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/base/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/store"
)

// Range is a range of the map as it is, up to the start of the next.
type Range struct {
	Start     []byte
	Partition store.PartitionID
}

// Move is one span to be cut anew.
type Move struct {
	Goal move.Goal
	// Rows that it has, and Copies, those that change partition, as the plan has them.
	Rows, Copies int64
}

// Moves are those that lead from a map to the partitions of a plan, in the order of
// their keys, and notes on what is different from the plan. It fails with Conflict
// where the plan was made for another layout than the map's, and with InvalidArgument
// where it contradicts itself.
func Moves(p *plan.Plan, today []Range) (moves []Move, notes []string, err error) {
	before, err := layout(p)
	if err != nil {
		return nil, nil, err
	}
	if err := fits(before, today); err != nil {
		return nil, nil, err
	}
	placed := 0
	start := func(k int) plan.Key { return plan.Key(today[k].Start) }
	for i, j := 0, 0; i < len(today); {
		// Ranges i up to k of today become j up to l of the plan.
		k, l := i+1, j+1
		for {
			switch {
			case k < len(today) && (l == len(p.Ranges) || start(k) < p.Ranges[l].Start):
				k++
				continue
			case l < len(p.Ranges) && (k == len(today) || p.Ranges[l].Start < start(k)):
				l++
				continue
			}
			break
		}
		m := Move{Goal: move.Goal{Start: today[i].Start, Stay: -1}}
		if k < len(today) {
			m.Goal.End = today[k].Start
		}
		stays := int64(0)
		for n := j; n < l; n++ {
			r := &p.Ranges[n]
			m.Rows += r.Rows
			if n > j {
				m.Goal.Cuts = append(m.Goal.Cuts, []byte(r.Start))
			}
			for o := i; o < k; o++ {
				if r.ID != today[o].Partition.String() {
					continue
				}
				stays += r.Rows
				if k-i == 1 {
					m.Goal.Stay = n - j
				} else {
					m.Goal.Keep = append(m.Goal.Keep, n-j)
				}
			}
		}
		m.Copies = m.Rows - stays
		switch same := k-i == 1 && l-j == 1; {
		case !same:
			moves = append(moves, m)
		case m.Goal.Stay == 0: // it stays as it is
		case p.Ranges[j].Node != "":
			placed++
		default:
			m.Goal.Leave = today[i].Partition
			moves = append(moves, m)
		}
		i, j = k, l
	}
	if placed > 0 {
		notes = append(notes, fmt.Sprintf("%d partitions stay where they are, although the plan has them on other nodes: on which node a fresh partition comes to lie is not chosen yet", placed))
	}
	return moves, notes, nil
}

// piece is a run of keys that lay in one partition when a plan was made.
type piece struct {
	start plan.Key
	id    string
}

// layout finds out what a plan was made for: what it moves tells from where, and what
// it does not move stays where it was.
func layout(p *plan.Plan) (out []piece, err error) {
	bad := func(format string, args ...any) ([]piece, error) {
		return nil, store.Errorf(store.InvalidArgument, "the plan contradicts itself: "+format, args...)
	}
	if len(p.Ranges) == 0 || p.Ranges[0].Start != "" {
		return bad("its first partition does not begin at the lowest key")
	}
	m := 0
	for i := range p.Ranges {
		r := &p.Ranges[i]
		end := plan.Key("")
		if i+1 < len(p.Ranges) {
			if end = p.Ranges[i+1].Start; end <= r.Start {
				return bad("the start %s is not above the one before it", text(end))
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
				return bad("the moves to %s do not cover it: one begins at %s, not at %s", keytext.Format([]byte(r.ID)), text(x.Start), text(at))
			}
			out = append(out, piece{x.Start, x.From})
			at, whole = x.End, x.End == end
		}
		if !whole {
			return bad("the moves to %s end at %s, and it ends at %s", keytext.Format([]byte(r.ID)), text(at), text(end))
		}
	}
	if m < len(p.Moves) {
		return bad("there is a move to %s, which is not among its partitions, or not in their order", keytext.Format([]byte(p.Moves[m].To)))
	}
	return out, nil
}

func text(k plan.Key) string { return `"` + keytext.Format([]byte(k)) + `"` }

// fits fails unless pieces are those of the map.
func fits(pieces []piece, today []Range) error {
	k := 0
	for i := range today {
		start, id := plan.Key(today[i].Start), today[i].Partition.String()
		if k == len(pieces) || pieces[k].start != start || pieces[k].id != id {
			return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: now a range begins at %s, in partition %s. Plan again", text(start), id)
		}
		for k++; k < len(pieces) && pieces[k].id == id && (i+1 == len(today) || pieces[k].start < plan.Key(today[i+1].Start)); k++ {
		}
	}
	if k < len(pieces) {
		return store.Errorf(store.Conflict, "the bucket has changed since the plan was made: at %s there is no cut any more. Plan again", text(pieces[k].start))
	}
	return nil
}
