package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// Even is the name, for Policy.Planner, of the simplest way to split a range: into ranges with equal numbers of rows.
// No planner weighs the costs of the cuts then.
const Even = "even"

// Planners returns the names that Policy.Planner may have: the names of all planners, and "even". An empty
// Policy.Planner has the same meaning as "even".
func Planners() []string { return append([]string{Even}, planner.Names()...) }

// generations and patience bound the genetic search for the cuts of one range. The search ends after so many
// generations in all (generations), or so many without a better plan (patience). It takes some milliseconds.
//
// Since the bounds are not times, the same range always gets the same cuts.
const (
	generations = 40
	patience    = 12
)

// planner returns the planner that finds the keys at which a range is cut. The error is not nil if Policy.Planner names
// no planner, e.g. Even. The range is cut into equal parts then.
func (p *Policy) planner() (rebalance.Planner, error) {
	return planner.New(p.Planner, planner.Options{Seed: p.Seed, Generations: generations, Patience: patience})
}

// split sets the keys at which the decision d cuts range r. If the places of the rows in the range are not known, d
// becomes a decision to count the rows exactly (Recount). If all rows lie at one place, d becomes a decision to do
// nothing (None).
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
	case err == nil && p.planned(pl, r, d):
	default: // also if the planner finds no range too large, since it does not see the forecast
		d.cut(r.Quanta, even(r.Quanta, int64(d.Parts)))
	}
	if len(d.Cuts) == 0 {
		d.refuse(NoCut, "all rows lie in one place")
	}
}

// today returns a copy of range r for finding its cuts, in which the last exact count is scaled up to the present
// number of rows. The result is r itself if the range does not grow evenly, or has no more rows than were counted.
func (p *Policy) today(r *Range) *Range {
	// A count consists of quanta, which are runs of neighbouring rows. An old count still shows where to cut a range
	// that grows evenly.
	was, is := rows(r.Quanta), r.Stats.Rows
	if r.Stats.Spread < p.Spread || was == 0 || is <= was {
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

// cut sets the keys at which the decision cuts a range, and the number of rows that are copied. The parameter q has the
// quanta of the range, which are runs of neighbouring rows. The range is cut before each quantum whose index is in the
// parameter at. The part with the most rows stays in its partition; of equal parts it is the last one.
func (d *Decision) cut(q []counter.Quantum, at []int) {
	// Appends go to the last part.
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

// rows returns the total number of rows in some quanta, which are runs of neighbouring rows with a number of rows each.
func rows(quanta []counter.Quantum) (n int64) {
	for _, q := range quanta {
		n += q.Rows
	}
	return n
}

// even returns the places at which to cut a range into n parts with about equal numbers of rows. q are the quanta of
// the range, which are runs of neighbouring rows. The range is cut before each quantum whose index is in the result.
// Each part has at least one row, so there may be fewer than n parts.
func even(q []counter.Quantum, n int64) (at []int) {
	rows := rows(q)
	below, last := int64(0), int64(0) // rows below quantum k, and rows below the last cut
	k := 0
	for i := int64(1); i < n; i++ {
		want := rows/n*i + rows%n*i/n
		// Go to the first cut with at least want rows below, or to the one before if that is nearer.
		for below < want {
			below += q[k].Rows
			k++
		}
		if k > 0 && want-(below-q[k-1].Rows) < below-want && below-q[k-1].Rows > last {
			k--
			below -= q[k].Rows
		}
		if below >= rows {
			break
		}
		if below > last {
			at = append(at, k)
			last = below
		}
	}
	return at
}

// planned lets the planner pl find the keys at which range r is cut, and sets these keys in the decision d. The result
// is false if the planner fails or finds no cut.
func (p *Policy) planned(pl rebalance.Planner, r *Range, d *Decision) bool {
	var quanta []rebalance.Quantum
	for k, q := range r.Quanta {
		if k == 0 || q.Rows > 0 {
			quanta = append(quanta, rebalance.Quantum{Key: rebalance.Key(q.Key), Rows: q.Rows})
		}
	}
	quanta[0].Key = "" // the planner sees a bucket of one partition
	all := rebalance.Partition{ID: "0", GrowthRowsPerS: r.Stats.GrowthRowsPerS, Quanta: quanta}
	l := &rebalance.Layout{Partitions: []rebalance.Partition{all}}
	made, err := pl.Plan(context.Background(), l, p.partLimits(r, d), rebalance.Costs(p.MaxRows))
	if err != nil {
		d.Text += fmt.Sprintf("; in equal parts, since the planner failed: %v", err)
		return false
	}
	d.Gap = &made.Optimality.Gap
	if len(made.Ranges) < 2 {
		return false
	}
	d.Copies, d.Stay = d.Rows, slices.IndexFunc(made.Ranges, func(x rebalance.Range) bool { return x.ID == "0" })
	if d.Stay >= 0 {
		d.Copies -= made.Ranges[d.Stay].Rows
	}
	for _, x := range made.Ranges[1:] {
		d.Cuts = append(d.Cuts, []byte(x.Start))
	}
	return true
}

// growth returns the factor, at least 1, by which the rows of range r are expected to grow until the end of the
// forecast (Policy.Horizon). For example, 2 means twice the present rows.
func (d *Decision) growth(r *Range) float64 {
	return float64(max(d.Grown, r.Stats.Rows)) / float64(max(r.Stats.Rows, 1))
}

// spare determines by how much each part of a split should exceed the minimum size of a range: by at least 1/25 of
// MinRows. Otherwise a few deletes would make a part small enough to be merged again. Ranges that are split early have
// smaller parts (see partLimits).
const spare = 25

// partLimits returns the limits by which a planner cuts range r. If the range grows, the maximum and the target are
// lower than those of the policy. So the new ranges keep the policy's maximum until the end of the forecast
// (Policy.Horizon).
func (p *Policy) partLimits(r *Range, d *Decision) rebalance.Limits {
	// New rows are expected where rows are already. The method Policy.beside handles growth at one place.
	rows := max(1, rows(r.Quanta))
	most, grown := float64(p.MaxRows), d.growth(r)
	l := rebalance.Limits{
		MaxRows: int64(most / grown), MinRows: p.MinRows + p.MinRows/spare, TargetRows: int64(float64(p.TargetRows) / grown),
	}
	l.MaxRows = max(1, min(l.MaxRows, rows-1)) // the range must be split
	// The minimum is low enough for parts that stay small if the growth does not come. It also allows two parts:
	// otherwise only a few rows would be cut off, which makes one small range instead of two good ones.
	l.MinRows = min(l.MinRows, l.MaxRows*6/10, rows*4/10)
	l.TargetRows = min(max(1, l.TargetRows, l.MinRows), l.MaxRows)
	return l
}
