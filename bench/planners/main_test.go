package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bound is one, and what searches longer or from a better plan ends no higher.
func TestNoPlanIsBelowTheBound(t *testing.T) {
	for name, s := range map[string]situation{
		"one range": situations()[0], "budget": {play: coupled(5, system{budget: 1. / 3})},
		"all": {play: coupled(2, system{budget: 1. / 5, waves: 2, meet: true, nodes: 3, heat: 2})},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.play(rand.New(rand.NewPCG(3, 1)), 3)
			cost := map[string]float64{}
			for _, p := range o.plans {
				require.GreaterOrEqual(t, p.cost, o.bound*(1-1e-9), p.planner)
				cost[p.planner] = p.cost
			}
			if s.name == "" {
				require.LessOrEqual(t, slices.Max(slices.Collect(maps.Values(cost))), o.asIs)
			}
		})
	}
}

// The choice is that of all choices: on problems small enough to try every one.
func TestBoundAndPlansBesideAllChoices(t *testing.T) {
	for seed := range uint64(2) {
		c := system{budget: 0.4, waves: 1, meet: true, nodes: 3, heat: 1}
		p := c.draw(rand.New(rand.NewPCG(seed, 5)), 2)
		x := newChoice(p)
		least := x.total()
		for a := range p.items[0] {
			for b := range p.items[1] {
				x.set(0, a)
				x.set(1, b)
				if x.allowed() {
					least = min(least, x.total())
				}
			}
		}
		require.LessOrEqual(t, p.bound(), least*(1+1e-9))
		for _, r := range p.solve(seed) {
			require.GreaterOrEqual(t, r.cost, least*(1-1e-9), r.planner)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run(&b, 1, "range"))
	require.Contains(t, b.String(), "| range | a quarter leaves |")
	require.Equal(t, 2+7, strings.Count(b.String(), "\n"))
	require.ErrorContains(t, run(&b, 1, "nothing"), "budget-100")
}
