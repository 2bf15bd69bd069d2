package balancer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Only what grows while it moves, or waits to, makes moves hurry.
func TestNeed(t *testing.T) {
	l := &policy.Input{}
	for range 6 {
		l.Ranges = append(l.Ranges, policy.Range{Stats: counter.Stats{PutsPerS: 10}})
	}
	core := []bool{true, true, true, true, true, true}
	verdict := func(i int, k policy.Kind, w policy.Why) policy.Decision {
		return policy.Decision{Kind: k, Why: w, From: i, To: i + 1}
	}
	v := []policy.Decision{
		verdict(0, policy.Split, policy.Load), verdict(1, policy.None, policy.Within),
		verdict(2, policy.Recount, policy.Suspect),
		verdict(3, policy.None, policy.Cooling), {Kind: policy.Merge, Why: policy.Rows, From: 4, To: 6},
	}
	require.Zero(t, need(l, v, core))
	for _, x := range []policy.Decision{
		verdict(0, policy.Split, policy.Rows), verdict(0, policy.Split, policy.Forecast),
		verdict(0, policy.None, policy.Moving), verdict(0, policy.None, policy.Spent),
	} {
		v[0] = x
		require.InDelta(t, 200, need(l, v, core), 1e-9, "%v", x)
	}
	core[0] = false
	require.Zero(t, need(l, v, core), "that is for the look at that range")
}
