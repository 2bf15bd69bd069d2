package move_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner/greedy"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// drawn is a random plan, with the ranges of the bucket for which it was made.
func drawn(t *testing.T, r *rand.Rand) (*rebalance.Plan, []partmap.Range) {
	t.Helper()
	l, limits := plannertest.Small(r, 20)
	var today []partmap.Range
	for i := range l.Partitions {
		p := &l.Partitions[i]
		var id store.PartitionID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		p.ID = id.String()
		rg := partmap.Range{Entry: partmap.Entry{Start: []byte(p.Start), Partition: id}}
		if i > 0 {
			today[i-1].End = rg.Start
		}
		today = append(today, rg)
	}
	plan, err := greedy.Planner{}.Plan(t.Context(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
	require.NoError(t, err)
	return plan, today
}

// The ranges that the goals ask for are those of the plan, each in the partition that the plan says, and the goals copy
// the rows that the plan moves.
func TestGoalsLeadToThePlan(t *testing.T) {
	for seed := range uint64(300) {
		plan, today := drawn(t, rand.New(rand.NewPCG(seed, 7)))
		goals, err := move.FromPlan(plan, today)
		require.NoError(t, err, "seed %d", seed)
		copies := int64(0)
		ids := map[string]string{} // of the partitions of ranges by their starts; fresh ones have none
		for i := range today {
			ids[string(today[i].Start)] = today[i].Partition.String()
		}
		for _, g := range goals {
			copies += g.Copies
			var old []partmap.Range
			for i := range today {
				start := string(today[i].Start)
				if start >= string(g.Start) && (len(g.End) == 0 || start < string(g.End)) {
					old = append(old, today[i])
					delete(ids, start)
				}
			}
			require.NotEmpty(t, old, "seed %d", seed)
			for n, start := range slices.Insert(slices.Clone([][]byte(g.Cuts)), 0, []byte(g.Start)) {
				ids[string(start)] = ""
				if len(old) == 1 && n == g.Stay {
					ids[string(start)] = old[0].Partition.String()
				}
				if slices.Contains(g.Keep, n) {
					at := slices.IndexFunc(old, func(o partmap.Range) bool {
						return len(o.End) == 0 || string(o.End) > string(start)
					})
					ids[string(start)] = old[at].Partition.String()
				}
			}
		}
		want := map[string]string{}
		for _, r := range plan.Ranges {
			want[string(r.Start)] = r.ID
			if !slices.ContainsFunc(today, func(o partmap.Range) bool { return o.Partition.String() == r.ID }) {
				want[string(r.Start)] = ""
			}
		}
		require.Equal(t, want, ids, "seed %d", seed)
		require.Equal(t, plan.RowsMoved, copies, "seed %d", seed)
	}
}

// A plan for other ranges than today's is refused, and so is one that contradicts itself.
func TestFromPlanRefuses(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 8))
		plan, today := drawn(t, r)
		other := slices.Clone(today)
		other[r.IntN(len(other))].Partition[15]++
		_, err := move.FromPlan(plan, other)
		require.Equal(t, store.Conflict, store.KindOf(err), "seed %d: %v", seed, err)

		if len(today) > 1 {
			fewer := slices.Delete(slices.Clone(today), 1, 2)
			_, err = move.FromPlan(plan, fewer)
			require.Equal(t, store.Conflict, store.KindOf(err), "seed %d: %v", seed, err)
		}
		if len(plan.Moves) > 0 {
			plan.Moves = plan.Moves[1:]
			_, err = move.FromPlan(plan, today)
			require.Error(t, err, "seed %d", seed)
		}
		plan.Ranges[0].Start = "a"
		_, err = move.FromPlan(plan, today)
		require.Equal(t, store.InvalidArgument, store.KindOf(err), "seed %d: %v", seed, err)
	}
}
