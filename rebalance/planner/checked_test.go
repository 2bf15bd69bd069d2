package planner

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/grid"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/exact"
	"github.com/evenkeel/evenkeel/rebalance"
)

// made is a planner that makes its plans by a function.
type made func(l *rebalance.Layout) *rebalance.Plan

func (p made) Plan(
	_ context.Context, l *rebalance.Layout, _ rebalance.Limits, _ rebalance.Objective,
) (*rebalance.Plan, error) {
	return p(l), nil
}

func TestCheckedRefusesAndBounds(t *testing.T) {
	q := func(k rebalance.Key, rows int64) rebalance.Quantum { return rebalance.Quantum{Key: k, Rows: rows} }
	l := &rebalance.Layout{Bucket: "b", Partitions: []rebalance.Partition{
		{ID: "p1", Quanta: []rebalance.Quantum{q("a", 40), q("c", 50), q("e", 60)}},
		{ID: "p2", Start: "f", Quanta: []rebalance.Quantum{q("f", 5)}},
		{ID: "p3", Start: "h", Quanta: []rebalance.Quantum{q("i", 8), q("k", 12)}},
		{ID: "new-1", Start: "m", Pinned: true},
	}}
	limits := rebalance.Limits{MaxRows: 100, MinRows: 20, TargetRows: 60, HorizonS: 60}
	rows := rebalance.Objective{Kind: rebalance.Rows}
	good, err := exact.Planner{}.Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)

	bad := made(func(*rebalance.Layout) *rebalance.Plan { p := *good; p.RowsMoved = 1; return &p })
	_, err = checked{bad}.Plan(context.Background(), l, limits, rows)
	var problems rebalance.Problems
	require.True(t, errors.As(err, &problems), "%v", err)

	// Today's layout with p1 halved leaves p2 under the minimum, so it may move
	// fewer rows than the best plan that leaves none: the bound says so.
	g := grid.New(l, limits)
	d := grid.Draft{
		{Start: 0, Keep: true}, {Start: 3}, {Start: 4, Keep: true}, {Start: 5, Keep: true}, {Start: 8, Keep: true},
	}
	lazy := made(func(*rebalance.Layout) *rebalance.Plan { return g.Plan(d, rows) })
	p, err := checked{lazy}.Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)
	require.Equal(t, rebalance.Optimality{LowerBound: 60, Gap: 0}, p.Optimality)

	p, err = checked{exact.Planner{}}.Plan(context.Background(), l, limits, rows)
	require.NoError(t, err)
	require.Equal(t, rebalance.Optimality{LowerBound: 65, Gap: 0}, p.Optimality)
}

func TestRefusesWhatCannotBePlanned(t *testing.T) {
	l, none := &rebalance.Layout{Partitions: []rebalance.Partition{{ID: "p"}}}, &rebalance.Layout{}
	rows := rebalance.Objective{Kind: rebalance.Rows}
	for _, name := range Names() {
		p, err := New(name, Options{})
		require.NoError(t, err)
		var problems rebalance.Problems
		_, err = p.Plan(t.Context(), l, rebalance.Limits{}, rows)
		require.ErrorAs(t, err, &problems)
		require.EqualError(t, problems, "limits.max_rows: is 0, must be at least 1")
		_, err = p.Plan(t.Context(), none, rebalance.Limits{MaxRows: 1}, rows)
		require.EqualError(t, err, "partitions: there must be at least one")
		_, err = p.Plan(t.Context(), l, rebalance.Limits{MaxRows: 1}, rebalance.Objective{})
		require.EqualError(t, err, `no objective is called "": there are rows and full`)
		_, err = p.Plan(t.Context(), l, rebalance.Limits{MaxRows: 1}, rebalance.Objective{Kind: rebalance.Full})
		require.NoError(t, err)
	}
}
