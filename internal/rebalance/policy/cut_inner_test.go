package policy

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/rebalance"
)

// quanta have so many rows each, at k01, k02 and so on; the first one at the start.
func quanta(rows ...int64) (q []counter.Quantum) {
	for i, n := range rows {
		x := counter.Quantum{Rows: n}
		if i > 0 {
			x.Key = fmt.Appendf(nil, "k%02d", i)
		}
		q = append(q, x)
	}
	return q
}

// No part is made of what has no rows.
func TestQuantaWithoutRows(t *testing.T) {
	for _, c := range []struct {
		rows []int64
		n    int64
		want []int
	}{
		{[]int64{1, 1}, 2, []int{1}}, {[]int64{10, 0}, 2, nil}, {[]int64{5, 5, 0}, 2, []int{1}}, {[]int64{0, 10}, 2, nil},
		{[]int64{10, 0, 10}, 2, []int{1}}, {[]int64{4, 4, 4, 0}, 3, []int{1, 2}}, {nil, 2, nil},
	} {
		require.Equal(t, c.want, even(quanta(c.rows...), c.n), "%v in %d", c.rows, c.n)
	}
}

// The limits of a split keep to the policy's at the horizon, and split in any case.
func TestLimitsOfASplit(t *testing.T) {
	p := &Policy{MaxRows: 1000, MinRows: 100, TargetRows: 600}
	for _, c := range []struct {
		rows, grown  int64
		why          Why
		max, min, at int64
	}{
		{rows: 2000, max: 1000, min: 104, at: 600},
		{rows: 1000, max: 999, min: 104, at: 600},
		{rows: 500, max: 499, min: 104, at: 499},
		{rows: 100, max: 99, min: 40, at: 99},
		{rows: 1, max: 1, min: 0, at: 1},
		{rows: 2, max: 1, min: 0, at: 1},
		{rows: 0, max: 1, min: 0, at: 1},
		{rows: 2000, grown: 4000, max: 500, min: 104, at: 300},
		{rows: 2000, grown: 1000, max: 1000, min: 104, at: 600},
		{rows: 1001, why: Forecast, max: 1000, min: 104, at: 600},
	} {
		r := &Range{Quanta: quanta(c.rows), Stats: counter.Stats{Rows: c.rows}}
		l := p.partLimits(r, &Decision{Rows: c.rows, Grown: c.grown, Why: c.why})
		require.Equal(t, [3]int64{c.max, c.min, c.at}, [3]int64{l.MaxRows, l.MinRows, l.TargetRows}, "%+v", c)
	}
}

// A range that is cut early, while it is small, is cut in two that are about as large: a few rows alone would be joined
// again. That its last recount was of fewer rows changes nothing.
func TestAnEarlyCutIsNoSliver(t *testing.T) {
	for before, rows := range map[int]int64{485: 580, 500: 500} {
		p := Default(1000)
		r := counted(before)
		r.Stats.Rows, r.Stats.Spread = rows, 1
		d := Decision{Kind: Split, To: 1, Rows: rows, Parts: 2, Grown: 2 * rows, Why: Forecast}
		p.split(r, &d)
		require.Len(t, d.Cuts, 1)
		require.GreaterOrEqual(t, d.Copies, 4*rows/10)
	}
}

// fake is a planner that makes the plan that it is told.
type fake struct {
	plan *rebalance.Plan
	err  error
}

func (p fake) Plan(
	context.Context, *rebalance.Layout, rebalance.Limits, rebalance.Objective,
) (*rebalance.Plan, error) {
	return p.plan, p.err
}

// Where a planner fails or finds nothing to do, the parts are equal.
func TestPlannersThatDoNotHelp(t *testing.T) {
	p := &Policy{MaxRows: 30, MinRows: 1, TargetRows: 20}
	r := &Range{Quanta: quanta(10, 10, 10, 10), Stats: counter.Stats{Rows: 40}}
	d := Decision{Kind: Split, To: 1, Rows: 40, Parts: 2, Why: Rows}
	require.False(t, p.planned(fake{err: errors.New("out of time")}, r, &d))
	require.Contains(t, d.Text, "out of time")
	require.False(t, p.planned(fake{plan: &rebalance.Plan{}}, r, &d))
	require.Empty(t, d.Cuts)
	for _, name := range []string{"even", "no such planner"} {
		p.Planner = name
		x := d
		p.split(r, &x)
		require.Equal(t, Split, x.Kind)
		require.Equal(t, [][]byte{[]byte("k02")}, x.Cuts)
	}
}
