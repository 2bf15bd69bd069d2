package cut

import (
	"context"
	"strconv"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Planned lets a planner cut. What grows at one end is cut there, like by Even.
type Planned struct {
	// Planner is best one whose work is bounded by a count and not by a clock, so that
	// the same zone gives the same moves.
	Planner plan.Planner
	// Made is told of each plan, whether it is followed or not; nil: nobody is.
	Made func(*plan.Plan)
	// Weights of the full objective; nil: Weights of the policy's maximum.
	Weights *plan.Weights
}

// Weights are those of the full objective for ranges of so many rows at most. They
// differ from rebalance.DefaultWeights in two points. A move costs a hundredth of the
// maximum, whatever that is. And evenness counts for little: in a range that grows
// all over, each split to come costs what it moves, and of all ways to cut the one
// that leaves a quarter moves the fewest rows over a whole load (docs/policy.md).
func Weights(maxRows int64) plan.Weights {
	w := plan.DefaultWeights
	w.Moves = overhead * float64(maxRows)
	w.Spread = 0.3
	return w
}

// Cut implements Cutter.
func (c Planned) Cut(ctx context.Context, z *Zone, v *policy.Verdict, p *policy.Policy) ([]Move, error) {
	if err := z.check(v); err != nil {
		return nil, err
	}
	o := plan.Objective{Kind: plan.Full, Weights: Weights(p.MaxRows)}
	if c.Weights != nil {
		o.Weights = *c.Weights
	}
	if v.Kind == policy.Merge {
		return c.merge(ctx, z, v, p, o)
	}
	if m, yes := z.edge(v, p); yes {
		return []Move{m}, nil
	}
	return c.split(ctx, z, v, p, o)
}

func (c Planned) plan(ctx context.Context, l *plan.Layout, limits plan.Limits, o plan.Objective) (*plan.Plan, error) {
	plan, err := c.Planner.Plan(ctx, l, limits, o)
	if err == nil && c.Made != nil {
		c.Made(plan)
	}
	return plan, err
}

// split plans one range.
func (c Planned) split(ctx context.Context, z *Zone, v *policy.Verdict, p *policy.Policy, o plan.Objective) ([]Move, error) {
	i := v.From - z.First
	l := z.layout(i, i+1)
	limits := limitsOf(&z.Ranges[i], v, p)
	// Rows move now; evenness is that of the rows that there will be.
	o.Weights.Spread *= float64(max(v.Grown, v.Rows)) / float64(max(v.Rows, 1))
	plan, err := c.plan(ctx, l, limits, o)
	if err != nil {
		return nil, err
	}
	moves := z.moves(i, i+1, plan, v)
	if len(moves) == 0 {
		// A planner that does not see why (bytes, load) finds nothing wrong.
		return z.parts(v, even(z.Ranges[i].Quanta, int64(v.Parts))), nil
	}
	return moves, nil
}

// spare is the part of the minimum that parts have more: or a few deletes would have
// them merged.
const spare = 25

// limitsOf are those of the parts of a split: such that they keep the policy's at the
// horizon, when there are more rows. What a range gains is spread like its rows here
// (see Edge for the other case), so the horizon is seen by limits that are smaller
// today, which planners that know nothing of growth respect as well.
func limitsOf(r *Range, v *policy.Verdict, p *policy.Policy) plan.Limits {
	rows := max(1, r.Rows())
	most, grown := float64(p.MaxRows), float64(max(v.Grown, v.Rows))/float64(max(v.Rows, 1))
	if p.MaxBytes > 0 && r.Stats.Bytes > 0 {
		most = min(most, float64(p.MaxBytes)*float64(rows)/float64(r.Stats.Bytes))
	}
	l := plan.Limits{MaxRows: int64(most / grown), MinRows: p.MinRows + p.MinRows/spare, TargetRows: int64(float64(p.TargetRows) / grown)}
	if v.Why == policy.Load {
		l.MaxRows = min(l.MaxRows, (rows+1)/2) // load is taken to be spread like rows
	}
	l.MaxRows = max(1, min(l.MaxRows, rows-1)) // it is to be split in any case
	l.MinRows = min(l.MinRows, l.MaxRows*6/10) // no smaller than it must be, if it comes to nothing
	l.TargetRows = min(max(1, l.TargetRows, l.MinRows), l.MaxRows)
	return l
}

// merge plans the ranges of a merge, with a neighbour on each side that may be
// touched. Where no plan does better, they are joined as the verdict says.
func (c Planned) merge(ctx context.Context, z *Zone, v *policy.Verdict, p *policy.Policy, o plan.Objective) ([]Move, error) {
	from, to := v.From-z.First, v.To-z.First
	plain := []Move{z.join(v)}
	if from > 0 && !z.Ranges[from-1].Fixed {
		from--
	}
	if to < len(z.Ranges) && !z.Ranges[to].Fixed {
		to++
	}
	l := z.layout(from, to)
	limits := plan.Limits{MaxRows: p.MaxRows, MinRows: p.MinRows, TargetRows: p.TargetRows, HorizonS: max(p.Cool, p.Horizon).Seconds()}
	plan, err := c.plan(ctx, l, limits, o)
	if err != nil {
		return nil, err
	}
	moves := z.moves(from, to, plan, v)
	if !z.better(plan, moves, plain, p) {
		return plain, nil
	}
	return moves, nil
}

// better says whether the moves of a plan heal as much as a plain merge, for no more
// rows, and leave nothing that will be split or merged again.
func (z *Zone) better(plan *plan.Plan, moves, plain []Move, p *policy.Policy) bool {
	copies := int64(0)
	for i := range moves {
		copies += moves[i].Copies
	}
	if len(moves) == 0 || copies >= plain[0].Copies || plan.Score.UnderMin > 0 {
		return false
	}
	for i := range moves {
		m := &moves[i]
		if len(m.Cuts) > 0 {
			return false // only whole ranges are joined
		}
		grown := 0.0
		for k := m.From; k < m.To; k++ {
			grown += p.Gain(&z.Ranges[k-z.First].Stats)
		}
		if float64(m.Rows)+grown > float64(p.TargetRows) {
			return false
		}
	}
	return true
}

// layout is ranges of a zone as planners see them. Their ids are their indices in
// the zone.
func (z *Zone) layout(from, to int) *plan.Layout {
	l := &plan.Layout{Partitions: make([]plan.Partition, 0, to-from)}
	for i := from; i < to; i++ {
		r := &z.Ranges[i]
		p := plan.Partition{ID: strconv.Itoa(i), Start: plan.Key(r.Start), Pinned: r.Pinned && i > from, GrowthRowsPerS: r.Stats.GrowthRowsPerS}
		if i == from {
			p.Start = "" // for the planner all keys begin here
		}
		for k, q := range r.Quanta {
			key := plan.Key(q.Key)
			if k == 0 {
				key = p.Start
			}
			p.Quanta = append(p.Quanta, plan.Quantum{Key: key, Rows: q.Rows})
		}
		l.Partitions = append(l.Partitions, p)
	}
	return l
}

// moves turns a plan for the ranges from up to to into as many spans as there are
// parts that can be cut by themselves: between two starts that are cuts today and stay
// cuts. Of several ranges that are cut anew together, none keeps a part (see
// move.Goal), so that more rows may change partition than planned.
func (z *Zone) moves(from, to int, whole *plan.Plan, v *policy.Verdict) (out []Move) {
	today := make([]plan.Key, to-from) // the first one begins at the lowest key, for the planner
	for k := 1; k < len(today); k++ {
		today[k] = plan.Key(z.Ranges[from+k].Start)
	}
	for _, s := range plan.Spans(today, whole.Ranges) {
		if m, changes := z.span(from+s.From, from+s.To, whole.Ranges[s.First:s.Last], v); changes {
			out = append(out, m)
		}
	}
	return out
}

// span is the move that cuts the ranges first up to after of the zone like a part of
// a plan.
func (z *Zone) span(first, after int, parts []plan.Range, v *policy.Verdict) (m Move, changes bool) {
	if after-first == 1 && len(parts) == 1 {
		return m, false // what a planner would place elsewhere stays
	}
	m = z.move(first, after, v)
	for k, r := range parts {
		if k > 0 {
			m.Cuts = append(m.Cuts, []byte(r.Start))
		}
		if after-first == 1 && r.ID == strconv.Itoa(first) {
			m.Stay = k
			m.Copies = m.Rows - r.Rows
		}
	}
	return m, true
}
