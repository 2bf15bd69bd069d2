package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/counter"
)

// The price of a split is that of its cuts: its parts, and the rows that it says are copied.
func TestPriceOfASplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := planned(rapid.SampledFrom(Planners()).Draw(t, "planner"))
		r := counted(rapid.SampledFrom([]int{60, 700, 1001, 1500, 6000}).Draw(t, "rows"))
		r.Start, r.End = []byte("0"), []byte("z")
		if n := len(r.Quanta); rapid.Bool().Draw(t, "times") {
			grows(r, n*3/4, n, rapid.SampledFrom([]int64{-1, 0, 1}).Draw(t, "step"))
		}
		d := toSplit(r.Stats.Rows, rapid.IntRange(2, 40).Draw(t, "parts"))
		p.split(r, &d)
		in := Input{Policy: *p, Ranges: []Range{*r}}
		price, known := in.Price(&d)
		require.True(t, known)
		require.Equal(t, sizes(r, &d), price.Parts)
		require.Equal(t, d.Copies, price.After.RowsMoved)
		require.Equal(t, len(d.Cuts)+1, price.After.Partitions)
		require.Zero(t, price.Today.RowsMoved)
		if p.Planner == "exact" && d.Gap != nil {
			require.InDelta(t, price.Least, price.After.Cost, 1e-6, "no cuts cost less")
		}
	})
}

// Merges copy everything, and save the rent of the ranges too many.
func TestPriceOfAMerge(t *testing.T) {
	in := Input{Policy: Default(1000), Ranges: []Range{
		{Stats: counter.Stats{Rows: 100}}, {Start: []byte("m"), Stats: counter.Stats{Rows: 60}},
	}}
	price, known := in.Price(&Decision{Kind: Merge, To: 2, Stay: -1})
	require.True(t, known)
	require.Equal(t, []int64{160}, price.Parts)
	require.InDelta(t, 500, price.Today.Cost, 1e-9, "one range too many")
	require.Zero(t, price.Least, "it has no cuts by rows")
	byLoad := toSplit(1010, 2)
	byLoad.Why, byLoad.Cuts = Load, [][]byte{key(400)}
	load := Input{Policy: Default(1000), Ranges: []Range{*counted(1010)}}
	atOneKey, known := load.Price(&byLoad)
	require.True(t, known)
	require.Zero(t, atOneKey.Least, "nor has this one")
	require.InDelta(t, 160+2*10, price.After.Cost, 1e-9, "the rows, and two moves")

	for _, d := range []Decision{{Kind: None, To: 1}, {Kind: Roll, To: 1}, {Kind: Split, To: 1}} {
		_, known = in.Price(&d)
		require.False(t, known, "%v", d)
	}
}
