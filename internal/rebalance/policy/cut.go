package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/genetic"
)

// Even is the value of Policy.Planner for cuts into equal parts. No planner, which would weigh costs, is used then.
const Even = "even"

// Planners returns the names that Policy.Planner may have: those of all planners, and Even. An empty Policy.Planner
// means Even, and is not returned.
func Planners() []string { return append([]string{Even}, planner.Names...) }

// generations and patience bound the genetic search for the cuts of one range: the total number of generations, and the
// number of generations without a better plan. A count is used and not a clock, so the same range always gets the same
// cuts. A search takes some milliseconds.
const (
	generations = 40
	patience    = 12
)

// planner returns the planner that finds the cuts of a range. nil: ranges are cut into equal parts, without a planner.
func (p *Policy) planner() (plan.Planner, error) {
	if p.Planner == "" || p.Planner == Even {
		return nil, nil
	}
	return planner.New(p.Planner, genetic.Options{Seed: p.Seed, Generations: generations, Patience: patience})
}

// split sets the cuts of the decision d to split range r. If it is not known where the rows of the range lie, d becomes
// a decision to count them exactly (Recount). If all rows lie at one place, d becomes a decision to do nothing (None).
func (p *Policy) split(r *Range, d *Decision) {
	if len(r.Quanta) == 0 {
		// The last recount was made by another process, or was forgotten.
		*d = Decision{Kind: Recount, From: d.From, To: d.To, Rows: d.Rows, Why: Suspect,
			Text: d.Text + "; where its rows lie is not known"}
		return
	}
	r = p.today(r)
	d.Rows = rows(r.Quanta)
	switch pl, err := p.planner(); {
	case d.Why == Load:
		d.byLoad(r)
	case p.beside(r, d):
	case err == nil && pl != nil && p.planned(pl, r, d):
	default: // also if the planner finds no range too large, since it does not see the forecast
		d.cut(r.Quanta, even(r.Quanta, int64(d.Parts)))
	}
	if len(d.Cuts) == 0 {
		d.refuse(NoCut, "all rows lie in one place")
	}
}

// today returns range r with the counts of its quanta scaled to its present number of rows. A quantum is a run of
// neighbouring rows that the last exact count found. If the range grows evenly, an older count still shows where to
// cut, but the sizes of the parts must be the present ones.
func (p *Policy) today(r *Range) *Range {
	was, is := rows(r.Quanta), r.Stats.Rows
	if r.Stats.Spread < p.Spread || was <= 0 || is <= was {
		return r
	}
	x := *r
	x.Quanta = slices.Clone(r.Quanta)
	before, now := int64(0), int64(0)
	for i := range x.Quanta {
		before += x.Quanta[i].Rows
		to := int64(float64(is) * (float64(before) / float64(was)))
		x.Quanta[i].Rows, now = to-now, to
	}
	return &x
}

// cut sets the cuts of a decision, with the number of rows that are copied. A range consists of the quanta q, which are
// runs of neighbouring rows, and at has the indexes of the quanta before which the range is cut. The part with the most
// rows stays in its partition. Of equal parts the last one stays, since appends go there.
func (d *Decision) cut(q []counter.Quantum, at []int) {
	largest, from := int64(-1), 0
	for k := range len(at) + 1 {
		to := len(q)
		if k < len(at) {
			to = at[k]
			d.Cuts = append(d.Cuts, q[to].Key)
		}
		if n := rows(q[from:to]); n >= largest {
			largest, d.Stay = n, k
		}
		from = to
	}
	d.Copies = d.Rows - largest
}

// rows returns the total number of rows of some quanta. A quantum is a run of neighbouring rows.
func rows(quanta []counter.Quantum) (n int64) {
	for _, q := range quanta {
		n += q.Rows
	}
	return n
}

// even returns where to cut a range into n parts of about equal size. The range consists of the quanta q, which are
// runs of neighbouring rows. The results are the indexes of the quanta before which cuts lie. Each part has rows. There
// may be fewer than n parts.
func even(q []counter.Quantum, n int64) (at []int) {
	rows := rows(q)
	below, last := int64(0), int64(0) // rows below quantum k, and rows below the last cut
	k := 0
	for i := int64(1); i < n; i++ {
		want := rows/n*i + rows%n*i/n
		// Go to the first cut with at least want rows below, or to the one before if that is nearer.
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

// planned lets the planner pl find the cuts of range r, and sets them in the decision d. False: the planner finds
// nothing to do, or fails.
func (p *Policy) planned(pl plan.Planner, r *Range, d *Decision) bool {
	quanta := make([]plan.Quantum, 0, len(r.Quanta))
	for k, q := range r.Quanta {
		if k == 0 || q.Rows > 0 {
			quanta = append(quanta, plan.Quantum{Key: plan.Key(q.Key), Rows: q.Rows})
		}
	}
	quanta[0].Key = "" // the planner sees a bucket of one partition
	l := &plan.Layout{Partitions: []plan.Partition{{ID: "0", GrowthRowsPerS: r.Stats.GrowthRowsPerS, Quanta: quanta}}}
	made, err := pl.Plan(context.Background(), l, p.partLimits(r, d), plan.Costs(p.MaxRows))
	if err != nil {
		d.Text += fmt.Sprintf("; in equal parts, since the planner failed: %v", err)
		return false
	}
	d.Gap = &made.Optimality.Gap
	if len(made.Ranges) < 2 {
		return false
	}
	d.Copies, d.Stay = d.Rows, slices.IndexFunc(made.Ranges, func(x plan.Range) bool { return x.ID == "0" })
	if d.Stay >= 0 {
		d.Copies -= made.Ranges[d.Stay].Rows
	}
	for _, x := range made.Ranges[1:] {
		d.Cuts = append(d.Cuts, []byte(x.Start))
	}
	return true
}

// growth returns the factor by which the rows of range r are expected to grow until the end of the forecast
// (Policy.Horizon). It is at least 1.
func (d *Decision) growth(r *Range) float64 {
	return float64(max(d.Grown, r.Stats.Rows)) / float64(max(r.Stats.Rows, 1))
}

// spare sets the least size of the parts of a split a little above the least size of a range: at MinRows plus 1/25 of
// MinRows. Otherwise a few deletes would have the parts merged again.
const spare = 25

// partLimits returns the limits by which a planner cuts range r today. The parts should keep the policy's limits until
// the end of the forecast (Policy.Horizon). So the limits are smaller than the policy's limits if the range grows. New
// rows are expected to come where rows are. Growth at one place is handled by the method beside.
func (p *Policy) partLimits(r *Range, d *Decision) plan.Limits {
	rows := max(1, rows(r.Quanta))
	most, grown := float64(p.MaxRows), d.growth(r)
	l := plan.Limits{
		MaxRows: int64(most / grown), MinRows: p.MinRows + p.MinRows/spare, TargetRows: int64(float64(p.TargetRows) / grown),
	}
	l.MaxRows = max(1, min(l.MaxRows, rows-1)) // the range must be split
	// The minimum is low enough for parts that stay small if the growth does not come. It also allows two parts:
	// otherwise only a few rows would be cut off, which makes one small range instead of two good ones.
	l.MinRows = min(l.MinRows, l.MaxRows*6/10, rows*4/10)
	l.TargetRows = min(max(1, l.TargetRows, l.MinRows), l.MaxRows)
	return l
}
