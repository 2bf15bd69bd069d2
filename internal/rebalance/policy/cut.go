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

// Even names what cuts a range into equal parts, without a planner.
const Even = "even"

// Planners lists the values of Policy.Planner.
func Planners() []string { return append([]string{Even}, planner.Names...) }

// The genetic search for the cuts of one range is bounded by a count, not by a clock: it takes some milliseconds, and
// the same range gets the same cuts.
const (
	generations = 40
	patience    = 12
)

// planner returns the planner that cuts; nil: none does.
func (p *Policy) planner() (plan.Planner, error) {
	if p.Planner == "" || p.Planner == Even {
		return nil, nil
	}
	return planner.New(p.Planner, genetic.Options{Seed: p.Seed, Generations: generations, Patience: patience})
}

// split finds the cuts of a range that is split.
func (p *Policy) split(r *Range, d *Decision) {
	if len(r.Quanta) == 0 {
		// Its last count was made by another process, or was forgotten.
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
	default: // also where a planner finds nothing wrong, because it does not see load
		d.cut(r.Quanta, even(r.Quanta, int64(d.Parts)))
	}
	if len(d.Cuts) == 0 {
		d.refuse(NoCut, "all rows lie in one place")
	}
}

// today is a range with quanta for the rows that it has today. Where growth is spread a recount of fewer is enough to cut
// by, but parts must be as large as they are now.
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

// cut cuts before the given quanta. The largest part stays; of equals the last, since appends go there.
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

func rows(quanta []counter.Quantum) (n int64) {
	for _, q := range quanta {
		n += q.Rows
	}
	return n
}

// even returns before which quanta to cut for n parts as equal as quanta allow, each with rows.
func even(q []counter.Quantum, n int64) (at []int) {
	rows := rows(q)
	below, last := int64(0), int64(0) // rows below quantum k, and below the last cut
	k := 0
	for i := int64(1); i < n; i++ {
		want := rows/n*i + rows%n*i/n
		// To the first cut at or above the wanted rows, or the one before if that is nearer.
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

// planned has a planner cut a range. False: it finds nothing to do, or fails.
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

// growth is by how many times there will be more rows at the horizon.
func (d *Decision) growth(r *Range) float64 {
	return float64(max(d.Grown, r.Stats.Rows)) / float64(max(r.Stats.Rows, 1))
}

// spare is the share of the minimum that parts have in addition, or a few deletes would have them merged.
const spare = 25

// partLimits are the limits of the parts of a split, such that the parts keep the policy's limits at the horizon. Rows
// are taken to come where rows are (beside handles the other case), so planners get smaller limits today.
func (p *Policy) partLimits(r *Range, d *Decision) plan.Limits {
	rows := max(1, rows(r.Quanta))
	most, grown := float64(p.MaxRows), d.growth(r)
	l := plan.Limits{
		MaxRows: int64(most / grown), MinRows: p.MinRows + p.MinRows/spare, TargetRows: int64(float64(p.TargetRows) / grown),
	}
	l.MaxRows = max(1, min(l.MaxRows, rows-1)) // it must be split
	// No smaller than necessary if the growth does not come; and two parts must be possible, or a few rows would be cut
	// off, which makes one small range, not two.
	l.MinRows = min(l.MinRows, l.MaxRows*6/10, rows*4/10)
	l.TargetRows = min(max(1, l.TargetRows, l.MinRows), l.MaxRows)
	return l
}
