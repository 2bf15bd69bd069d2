package rebalance_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// A plan that a program stored as JSON is the same plan when it is read again.
func TestPlansAreReadBackAsWritten(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 6))
		l, limits := plannertest.Small(r, 12)
		plannertest.Load(r, l)
		for _, o := range []rebalance.Objective{{Kind: rebalance.Rows}, rebalance.Costs(limits.MaxRows)} {
			p, err := planner.New("genetic", planner.Options{Seed: 7, Generations: 3})
			require.NoError(t, err)
			plan, err := p.Plan(t.Context(), l, limits, o)
			require.NoError(t, err)
			data, err := json.Marshal(plan)
			require.NoError(t, err)
			var read rebalance.Plan
			require.NoError(t, json.Unmarshal(data, &read))
			again, err := json.Marshal(&read)
			require.NoError(t, err)
			require.Equal(t, string(data), string(again), "seed %d", seed)
			require.Len(t, read.Score.Terms, len(plan.Score.Terms))
			require.Empty(t, rebalance.Check(l, limits, &read), "seed %d", seed)
			require.False(t, read.Score.Better(&plan.Score), "seed %d", seed)
			require.False(t, plan.Score.Better(&read.Score), "seed %d", seed)
		}
	}
}

// A score that a program made itself, without squares, has 0 of them.
func TestScoreWithoutSquares(t *testing.T) {
	data, err := json.Marshal(rebalance.Score{Kind: rebalance.Rows})
	require.NoError(t, err)
	require.Contains(t, string(data), `"squared_deviation":0`)
	var none, zero, one rebalance.Score
	require.NoError(t, json.Unmarshal(data, &zero))
	require.NoError(t, json.Unmarshal([]byte(`{"squared_deviation":1}`), &one))
	for _, s := range []*rebalance.Score{&none, &zero} {
		require.True(t, s.Better(&one))
		require.False(t, one.Better(s))
		require.False(t, s.Better(&none))
		require.False(t, s.Better(&zero))
	}
	require.Error(t, json.Unmarshal([]byte(`{"terms":[]}`), &one))
}
