package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
)

// Each target is read from the line that it is about, the right way round.
func TestTargets(t *testing.T) {
	r := newReport(Options{Keys: fullKeys, Stores: []string{Pebble, Cassandra}})
	line := func(set, measure, layout string, ratio float64) {
		r.Lines = append(r.Lines, Line{
			Store: Cassandra, Set: set, Measure: measure, Layout: layout, N: 9, P50: 1, Ratio: ratio, Least: ratio / 2,
			Most: ratio * 2, Of: 10,
		})
	}
	line(setReal, deepPage, nameBare, 0.8)
	line(setReal, deepPage, nameMany, 1.05)
	line(setReal, deepPage, layouts.NameHash, 7.5)
	line(setReal, deepPage, nameNaive, 61)
	line(setReal, putsAlone, nameBare, 0.96)
	line(setReal, putsAtOnce, nameBare, 0.9)
	line(setReal, putsOne, layouts.NameEvenkeel, 1)
	line(setReal, putsOne, nameSingly, 6)
	line(setReal, parallelAll, nameBare, 0.7981)
	r.Lines = append(r.Lines, Line{
		Store: Cassandra, Set: setPaths, Measure: folderPage, Layout: layouts.NameEvenkeel, N: 1, Rows: 4100,
		Requests: 1100,
	})
	require.Equal(t, []target{
		{Cassandra, "page of 1000: time relative to bare", "1.25 (0.62 to 2.50)", "at most 1.1", missed},
		{Cassandra, "page of 1000, many ranges: time relative to few", "1.05 (0.53 to 2.10)", "at most 1.1", met},
		{
			Cassandra, "page of 1000 from 256 hash buckets, lazy merge: time relative to evenkeel",
			"7.50 (3.75 to 15.00)", "at least 8", missed,
		},
		{Cassandra, "the same, naive merge", "61 (30 to 122)", "at least 60", met},
		{Cassandra, "puts by 1 worker: throughput relative to bare", "0.96 (0.48 to 1.92)", "at least 0.95", met},
		{Cassandra, "puts by 64 workers: throughput relative to bare", "0.90 (0.45 to 1.80)", "at least 0.95", missed},
		{
			Cassandra, "1280 puts into one partition by PutBatch: throughput relative to 64 workers with single puts",
			"6.00 (3.00 to 12.00)", "at least 2.5", met,
		},
		{Cassandra, "scan by 4 readers: throughput relative to bare", "0.7981 (0.40 to 1.60)", "at least 0.8", missed},
		{Cassandra, "1000 common prefixes: read per prefix", "4.1 rows, 1.1 requests", "at most 10 rows", met},
	}, r.targets())
}

// What is measured of a small map is measured as of a large one.
func TestLookupsAreMeasured(t *testing.T) {
	figures, err := lookups(t.Context(), mapSize{ranges: 30_000, runs: 3, each: 100 * time.Microsecond, bound: 1 << 20})
	require.NoError(t, err)
	require.Len(t, figures, 7)
	require.Equal(t, "lookup in a map of 30000 ranges at random over all of it", figures[0].What)
	require.InDelta(t, 500, *figures[0].Most, 0)
	require.InDelta(t, 150, *figures[1].Most, 0)
	require.Nil(t, figures[2].Most)
	require.Zero(t, figures[5].Value, "allocations: %s", figures[5].Note)
	require.Contains(t, figures[6].What, "30000 ranges, its cache bounded to 1 MiB")
	require.Less(t, figures[6].Value, 2.0, "30,000 ranges take 2.6 MiB: the bound holds")
}

func TestSwapsAreSummedUp(t *testing.T) {
	ms := time.Millisecond
	f := swapFigure(Cassandra, 1000,
		&mapbench.Swaps{
			Took:      []time.Duration{8 * ms, 9 * ms, 60 * ms, 7 * ms, 51 * ms},
			Rewriting: []time.Duration{9 * ms, 60 * ms, 51 * ms},
		})
	require.Equal(t, "slowest swap of the root of a map of 1000 ranges, in moves as a split makes them, Cassandra",
		f.What)
	require.Equal(t, "60 ms (of 5, 2 of them above 50; p50 9.0, of those that write nodes 51.0)", f.reached())
	require.InDelta(t, 50, *f.Most, 0)
}
