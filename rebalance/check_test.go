package rebalance_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/rebalance"
)

func sample() (*rebalance.Layout, rebalance.Limits) {
	q := func(k rebalance.Key, rows int64) rebalance.Quantum { return rebalance.Quantum{Key: k, Rows: rows} }
	return &rebalance.Layout{Bucket: "b", Partitions: []rebalance.Partition{
		{ID: "p1", Quanta: []rebalance.Quantum{q("a", 40), q("c", 50), q("e", 60)}},
		{ID: "p2", Start: "f", Quanta: []rebalance.Quantum{q("f", 5)}},
		{ID: "p3", Start: "h", Quanta: []rebalance.Quantum{q("i", 8), q("k", 12)}},
		{ID: "new-1", Start: "m", Pinned: true},
	}}, rebalance.Limits{MaxRows: 100, MinRows: 20, TargetRows: 60, HorizonS: 60}
}

// The plan of the sample is known: p1 keeps the larger part, what is small is
// joined with what is beside it, and the pinned start stays. The id new-1 is
// taken.
func TestPlanOfSample(t *testing.T) {
	l, limits := sample()
	p, err := exact.Planner{}.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
	require.NoError(t, err)
	require.Empty(t, rebalance.Check(l, limits, p))
	require.Equal(t, []rebalance.Range{
		{ID: "p1", Start: "", Rows: 90},
		{ID: "new-2", Start: "e", Rows: 65},
		{ID: "p3", Start: "h", Rows: 20},
		{ID: "new-1", Start: "m", Rows: 0, Pinned: true},
	}, p.Ranges)
	require.Equal(t, []rebalance.Move{
		{From: "p1", To: "new-2", Start: "e", End: "f", Rows: 60,
			Reason: rebalance.Reason{Cause: "split", Text: "p1 has 150 rows, over max_rows 100"}},
		{From: "p2", To: "new-2", Start: "f", End: "h", Rows: 5,
			Reason: rebalance.Reason{
				Cause: "merge", Text: "p2 has 5 rows, under min_rows 20: joined with its neighbours",
			}},
	}, p.Moves)
	require.Equal(t, int64(65), p.RowsMoved)
	require.Empty(t, p.Notes)
}

// Each way to break a rule is found.
func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *rebalance.Plan)
		want  string
	}{
		"bucket":    {func(p *rebalance.Plan) { p.Bucket = "c" }, `bucket: is "c", the layout's is "b"`},
		"no ranges": {func(p *rebalance.Plan) { p.Ranges = nil }, `partitions: there must be at least one`},
		"gap below": {
			func(p *rebalance.Plan) { p.Ranges[0].Start = "a" },
			`partitions[0].start: is "a": no partition holds the keys below it`,
		},
		"order": {
			func(p *rebalance.Plan) { p.Ranges[2].Start = "e" },
			`partitions[2].start: is "e", not above the start before it, "e"`,
		},
		"cut": {
			func(p *rebalance.Plan) { p.Ranges[1].Start = "d" },
			`partitions[1].start: is "d": neither the key of a quantum nor a start of the layout`,
		},
		"pin": {
			func(p *rebalance.Plan) { p.Ranges = p.Ranges[:3] },
			`partitions: none starts at "m", which partitions[3] of the layout pins`,
		},
		"rows": {
			func(p *rebalance.Plan) { p.Ranges[2].Rows++ },
			`partitions[2].rows: is 21, the layout has 20 there`,
		},
		"over": {
			func(p *rebalance.Plan) { p.Ranges[1].Start = "f"; p.Ranges[0].Rows = 150 },
			`partitions[0].rows: is 150, over max_rows 100, and can be divided`,
		},
		"no id": {func(p *rebalance.Plan) { p.Ranges[1].ID = "" }, `partitions[1].id: is empty`},
		"id twice": {
			func(p *rebalance.Plan) { p.Ranges[2].ID = "new-2" },
			`partitions[2].id: "new-2" is the id of another range too`,
		},
		"kept twice": {
			func(p *rebalance.Plan) { p.Ranges[1].ID = "p1" },
			`partitions[1].id: "p1" is kept by partitions[0] already: an old id keeps one contiguous part`,
		},
		"receives above": {
			func(p *rebalance.Plan) { p.Ranges[1].Start = "f"; p.Ranges[2].Start = "i"; p.Ranges[1].ID = "p2" },
			`partitions[1].id: "p2" receives keys: it held ["f", "h") and would hold ["f", "i")`,
		},
		"receives below": {
			func(p *rebalance.Plan) { p.Ranges[2].Start = "f" },
			`partitions[2].id: "p3" receives keys: it held ["h", "m") and would hold ["f", "m")`,
		},
		"move missing": {
			func(p *rebalance.Plan) { p.Moves = p.Moves[:1] },
			`moves: are 1, must be 2: one for each part of an old range that changes its partition`,
		},
		"move wrong": {
			func(p *rebalance.Plan) { p.Moves[1].End = "i" },
			`moves[1]: is {From:p2 To:new-2 Start:f End:i Rows:5 Reason:: }, ` +
				`must be {From:p2 To:new-2 Start:f End:h Rows:5 Reason:: }`,
		},
		"no reason": {func(p *rebalance.Plan) { p.Moves[1].Reason = rebalance.Reason{} }, `moves[1].reason: is empty`},
		"sum":       {func(p *rebalance.Plan) { p.RowsMoved-- }, `rows_moved: is 64, the moves have 65`},
	} {
		l, limits := sample()
		p, err := exact.Planner{}.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
		require.NoError(t, err)
		c.spoil(p)
		var got []string
		for _, problem := range rebalance.Check(l, limits, p) {
			got = append(got, problem.String())
		}
		require.Contains(t, got, c.want, name)
	}
}
