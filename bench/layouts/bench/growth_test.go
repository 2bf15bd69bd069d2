package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// Every layout has a row for each kind of growth that it can be laid out in.
func TestGrowthHasARowForEachLayout(t *testing.T) {
	rows := map[string]map[string]Growth{}
	sets := growthSets()
	require.Len(t, sets, 3)
	for _, s := range sets {
		counted, err := growthCounted(t.Context(), s, s.entries(8000))
		require.NoError(t, err)
		rows[s.name] = map[string]Growth{}
		for _, g := range counted {
			require.Equal(t, s.name, g.Set)
			rows[s.name][g.Layout] = g
		}
	}
	for _, k := range layouts.Kinds() {
		switch k.Name {
		case layouts.NameEvenkeel: // measured
		case layouts.NameDays, layouts.NameDaysN, layouts.NameSlices:
			require.Contains(t, rows[setFeed], k.Name)
		case layouts.NameWide, layouts.NamePostgres:
			for name := range rows {
				require.Contains(t, rows[name], k.Name)
			}
		default:
			require.Contains(t, rows[setMD5], k.Name)
			require.Contains(t, rows[setAppend], k.Name)
		}
	}
	require.InDelta(t, 1, rows[setMD5][layouts.NameHash].Moved, 0.1)
	require.InDelta(t, 1, rows[setMD5][layouts.NamePrefix].Moved, 0)
	require.Equal(t, "cannot", (&Growth{Moved: rows[setAppend][layouts.NamePrefix].Moved}).moved())
	require.Zero(t, rows[setFeed][layouts.NameDays].Moved)
}

// The largest partitions of a feed are counted as a table of days would.
func TestLargestInTime(t *testing.T) {
	g, err := layouts.NewGenerator(1, 2)
	require.NoError(t, err)
	var entries []layouts.Entry
	day := layouts.Epoch
	for _, n := range []int{3, 9, 2, 10} { // 12 in the first half
		for i := range n {
			id, err := g.Next(day.Add(time.Duration(i) * time.Hour))
			require.NoError(t, err)
			entries = append(entries, layouts.Entry{Key: id.Key()})
		}
		day = day.AddDate(0, 0, 20)
	}
	for layout, want := range map[string][2]int{layouts.NameDays: {9, 10}, layouts.NameSlices: {12, 12}} {
		half, all, err := largestInTime(t.Context(), layout, entries)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{half, all}, layout)
	}
	one, some, err := largestInTime(t.Context(), layouts.NameDaysN, entries)
	require.NoError(t, err)
	require.LessOrEqual(t, one, some)
	require.Less(t, some, 10, fmt.Sprint("in ", daysN, " parts"))
	_, _, err = largestInTime(t.Context(), layouts.NameDays, []layouts.Entry{{Key: []byte("no id")}})
	require.Error(t, err)
}
