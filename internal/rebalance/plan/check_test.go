package plan_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/plan"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
)

func sample() (*plan.Layout, plan.Limits) {
	q := func(k plan.Key, rows int64) plan.Quantum { return plan.Quantum{Key: k, Rows: rows} }
	return &plan.Layout{Bucket: "b", Partitions: []plan.Partition{
		{ID: "p1", Quanta: []plan.Quantum{q("a", 40), q("c", 50), q("e", 60)}},
		{ID: "p2", Start: "f", Quanta: []plan.Quantum{q("f", 5)}},
		{ID: "p3", Start: "h", Quanta: []plan.Quantum{q("i", 8), q("k", 12)}},
		{ID: "new-1", Start: "m", Pinned: true},
	}}, plan.Limits{MaxRows: 100, MinRows: 20, TargetRows: 60, HorizonS: 60}
}

// The plan of the sample is known: p1 keeps the larger part, what is small is
// joined with what is beside it, and the pinned start stays. The id new-1 is
// taken.
func TestPlanOfSample(t *testing.T) {
	l, limits := sample()
	p, err := exact.Planner{}.Plan(context.Background(), l, limits, plan.Objective{Kind: plan.Rows})
	require.NoError(t, err)
	require.Empty(t, plan.Check(l, limits, p))
	require.Equal(t, []plan.Range{
		{ID: "p1", Start: "", Rows: 90},
		{ID: "new-2", Start: "e", Rows: 65},
		{ID: "p3", Start: "h", Rows: 20},
		{ID: "new-1", Start: "m", Rows: 0, Pinned: true},
	}, p.Ranges)
	require.Equal(t, []plan.Move{
		{From: "p1", To: "new-2", Start: "e", End: "f", Rows: 60,
			Reason: plan.Reason{Cause: plan.Split, Text: "p1 has 150 rows, over max_rows 100"}},
		{From: "p2", To: "new-2", Start: "f", End: "h", Rows: 5,
			Reason: plan.Reason{
				Cause: plan.Merge, Text: "p2 has 5 rows, under min_rows 20: joined with its neighbours",
			}},
	}, p.Moves)
	require.Equal(t, int64(65), p.RowsMoved)
	require.Empty(t, p.Notes)
}

// Each way to break a rule is found.
func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *plan.Plan)
		want  string
	}{
		"bucket":    {func(p *plan.Plan) { p.Bucket = "c" }, `bucket: is "c", the layout's is "b"`},
		"no ranges": {func(p *plan.Plan) { p.Ranges = nil }, `partitions: there must be at least one`},
		"gap below": {
			func(p *plan.Plan) { p.Ranges[0].Start = "a" },
			`partitions[0].start: is "a": no partition holds the keys below it`,
		},
		"order": {
			func(p *plan.Plan) { p.Ranges[2].Start = "e" },
			`partitions[2].start: is "e", not above the start before it, "e"`,
		},
		"cut": {
			func(p *plan.Plan) { p.Ranges[1].Start = "d" },
			`partitions[1].start: is "d": neither the key of a quantum nor a start of the layout`,
		},
		"pin": {
			func(p *plan.Plan) { p.Ranges = p.Ranges[:3] },
			`partitions: none starts at "m", which partitions[3] of the layout pins`,
		},
		"rows": {
			func(p *plan.Plan) { p.Ranges[2].Rows++ },
			`partitions[2].rows: is 21, the layout has 20 there`,
		},
		"over": {
			func(p *plan.Plan) { p.Ranges[1].Start = "f"; p.Ranges[0].Rows = 150 },
			`partitions[0].rows: is 150, over max_rows 100, and can be divided`,
		},
		"no id": {func(p *plan.Plan) { p.Ranges[1].ID = "" }, `partitions[1].id: is empty`},
		"id twice": {
			func(p *plan.Plan) { p.Ranges[2].ID = "new-2" },
			`partitions[2].id: "new-2" is the id of another range too`,
		},
		"kept twice": {
			func(p *plan.Plan) { p.Ranges[1].ID = "p1" },
			`partitions[1].id: "p1" is kept by partitions[0] already: an old id keeps one contiguous part`,
		},
		"receives above": {
			func(p *plan.Plan) { p.Ranges[1].Start = "f"; p.Ranges[2].Start = "i"; p.Ranges[1].ID = "p2" },
			`partitions[1].id: "p2" receives keys: it held ["f", "h") and would hold ["f", "i")`,
		},
		"receives below": {
			func(p *plan.Plan) { p.Ranges[2].Start = "f" },
			`partitions[2].id: "p3" receives keys: it held ["h", "m") and would hold ["f", "m")`,
		},
		"move missing": {
			func(p *plan.Plan) { p.Moves = p.Moves[:1] },
			`moves: are 1, must be 2: one for each part of an old range that changes its partition`,
		},
		"move wrong": {
			func(p *plan.Plan) { p.Moves[1].End = "i" },
			`moves[1]: is {From:p2 To:new-2 Start:f End:i Rows:5 Reason:: }, ` +
				`must be {From:p2 To:new-2 Start:f End:h Rows:5 Reason:: }`,
		},
		"no reason": {func(p *plan.Plan) { p.Moves[1].Reason = plan.Reason{} }, `moves[1].reason: is empty`},
		"sum":       {func(p *plan.Plan) { p.RowsMoved-- }, `rows_moved: is 64, the moves have 65`},
	} {
		l, limits := sample()
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, plan.Objective{Kind: plan.Rows})
		require.NoError(t, err)
		c.spoil(p)
		var got []string
		for _, problem := range plan.Check(l, limits, p) {
			got = append(got, problem.String())
		}
		require.Contains(t, got, c.want, name)
	}
}

type planner func(l *plan.Layout) *plan.Plan

func (p *planner) Plan(_ context.Context, l *plan.Layout, _ plan.Limits, _ plan.Objective) (*plan.Plan, error) {
	return (*p)(l), nil
}

func TestCheckedRefusesAndBounds(t *testing.T) {
	l, limits := sample()
	rows := plan.Objective{Kind: plan.Rows}
	good, err := exact.Planner{}.Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)

	bad := planner(func(*plan.Layout) *plan.Plan { p := *good; p.RowsMoved = 1; return &p })
	_, err = plan.Checked(&bad, exact.Planner{}).Plan(context.Background(), l, limits, rows)
	var problems plan.Problems
	require.True(t, errors.As(err, &problems), "%v", err)

	// Today's layout with p1 halved leaves p2 under the minimum, so it may move
	// fewer rows than the best plan that leaves none: the bound says so.
	g := plan.NewGrid(l, limits)
	d := plan.Draft{
		{Start: 0, Keep: true}, {Start: 3}, {Start: 4, Keep: true}, {Start: 5, Keep: true}, {Start: 8, Keep: true},
	}
	lazy := planner(func(*plan.Layout) *plan.Plan { return g.Plan(d, rows) })
	p, err := plan.Checked(&lazy, exact.Planner{}).Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)
	require.Equal(t, plan.Optimality{LowerBound: 60, Gap: 0}, p.Optimality)

	p, err = plan.Checked(exact.Planner{}, exact.Planner{}).Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)
	require.Equal(t, plan.Optimality{LowerBound: 65, Gap: 0}, p.Optimality)
}

// A tally of parts is the score of the whole, and terms add up to the cost.
func TestScoreTerms(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		l, limits := plannertest.Small(r, 12)
		plannertest.Load(r, l)
		limits.MaxWritesPerS = 20
		o := plan.Costs(limits.MaxRows)
		o.Weights.Spread = 1
		g := plan.NewGrid(l, limits)
		d, err := exact.Solve(context.Background(), g)
		require.NoError(t, err)
		s := g.Score(d, o)
		tally := plan.NewTally(g)
		for i, p := range d {
			tally.Add(p.Start, d.End(g, i), p.Keep)
		}
		_, _, cost := tally.Counts(o.Weights)
		require.InDelta(t, s.Cost, cost, 1e-9*(1+cost), "seed %d", seed)

		// The terms, once more from their definitions, by the plan alone.
		p := g.Plan(d, o)
		spread, load, forecast, capped := 0.0, 0.0, 0.0, int64(0)
		for i := range l.Partitions {
			for _, q := range l.Partitions[i].Quanta {
				capped += min(q.Rows, limits.MaxRows)
			}
		}
		tooMany := float64(len(p.Ranges)) - max(1, math.Ceil(float64(capped)/float64(limits.MaxRows)))
		require.GreaterOrEqual(t, tooMany, 0.0, "seed %d", seed)
		target := float64(max(limits.TargetRows, 1))
		for i, r := range p.Ranges {
			writes, growth := plannertest.Rates(l, p, i)
			spread += float64((r.Rows-limits.TargetRows)*(r.Rows-limits.TargetRows)) / target
			forecast += max(0, float64(r.Rows)+growth*limits.HorizonS-float64(limits.MaxRows))
			load += max(0, writes/limits.MaxWritesPerS-1) * float64(limits.TargetRows)
		}
		want := []float64{float64(p.RowsMoved), float64(len(p.Moves)), tooMany, spread, forecast, load}
		total := 0.0
		for i, term := range s.Terms {
			require.InDelta(t, want[i], term.Value, 1e-6*(1+want[i]), "seed %d: %s", seed, term.Name)
			total += term.Value * term.Weight
		}
		require.InDelta(t, total, s.Cost, 1e-6*(1+total), "seed %d", seed)
	}
}

func TestHistogramCountsEachRangeOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		l, limits := plannertest.Small(r, 12)
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, plan.Objective{Kind: plan.Rows})
		require.NoError(t, err)
		before, after, over := 0, 0, 0
		for _, b := range plan.Histogram(l, limits, p) {
			before, after = before+b.Before, after+b.After
			if len(b.Label) > 4 && b.Label[:5] == "over " {
				over += b.After
			}
		}
		require.Equal(t, []int{len(l.Partitions), len(p.Ranges), p.Score.OverMax + p.Score.Undividable},
			[]int{before, after, over}, "seed %d", seed)
	}
}
