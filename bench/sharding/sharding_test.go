package sharding

import (
	"context"
	"math"
	"math/big"
	"slices"
	"sort"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

// Everything here is drawn from fixed seeds, so a figure is the same in every run.

// moved is what a scheme does to items on 20 shards.
func moved(t *testing.T, name string, items Items) (stays, std float64) {
	t.Helper()
	for _, s := range Schemes() {
		if s.Name == name {
			stays, std, err := move(s, items, 1, 20)
			require.NoError(t, err)
			return stays, std
		}
	}
	t.Fatal("no such scheme: " + name)
	return 0, 0
}

// TestKnownFigures: the figures that others published for 1,000,000 items on 20
// and 21 shards, with another hash.
func TestKnownFigures(t *testing.T) {
	items := NewItems(1_000_000, 1)
	for _, c := range []struct {
		name       string
		stays, std float64
	}{
		{"naive modulo", 4.77, 156.67},
		{"jump consistent hashing", 95.24, 237.10},
		{"Fibonacci hashing, then modulo", 4.80, 222.53},
		{"rendezvous hashing", 95.28, 218.09},
		// Not published: what the formulas say.
		{"Fibonacci hashing, range reduction", 50, 213},
	} {
		stays, std := moved(t, c.name, items)
		require.InDelta(t, c.stays, stays, 0.1, c.name)
		// 21 counts say a standard deviation within a third or so.
		require.InDelta(t, c.std, std, 0.5*c.std, c.name)
	}
	for name, want := range map[string]float64{
		"ranges, one split in halves":   97.5,
		"ranges, a quarter split off":   98.75,
		"ranges, a new one for appends": 100,
	} {
		stays, _ := moved(t, name, NewItems(10_000, 1))
		require.InDelta(t, want, stays, 1e-9, name)
	}
}

// TestRingsVaryAsPublished: the published figures of consistent hashing, drawn
// once each, lie within what 100 drawings give, and the mean is where it has to
// be: 1 of 21 items moves.
func TestRingsVaryAsPublished(t *testing.T) {
	for _, c := range []struct {
		replicas, items, seeds int
		stays, near, std       float64
	}{
		{1, 10_000, 100, 93.71, 1.5, 39_882.89},
		{100, 10_000, 30, 94.68, 0.3, 6_105.93},
		{1000, 100_000, 6, 95.25, 0.15, 1_227.54},
	} {
		s := ring(c.replicas, "")
		var stays, std []float64
		for seed := range c.seeds {
			p, d, err := move(s, NewItems(c.items, uint64(seed)), uint64(seed), 20)
			require.NoError(t, err)
			// Scaled to 1,000,000 items, without what hashing fewer of them adds.
			noise := math.Sqrt(float64(c.items) / 21 * 20 / 21)
			stays, std = append(stays, p), append(std, math.Sqrt(max(d*d-noise*noise, 0))*1_000_000/float64(c.items))
		}
		got := spread(stays)
		t.Logf("%s: stays %v, std %v", s.Name, got, spread(std))
		require.InDelta(t, 100*20/21., got.Mean, c.near, s.Name)
		require.LessOrEqual(t, got.Min, c.stays)
		require.GreaterOrEqual(t, got.Max, c.stays)
		got = spread(std)
		require.Less(t, got.Min, c.std, s.Name)
		require.Greater(t, got.Max, c.std, s.Name)
	}
}

// TestOnlyTheNewShardGains: what makes a scheme consistent; and that modulo and
// both forms of Fibonacci hashing are not.
func TestOnlyTheNewShardGains(t *testing.T) {
	items := NewItems(20_000, 3)
	for _, s := range Schemes() {
		before, after, err := s.grow(items, 3, 20)
		require.NoError(t, err)
		elsewhere := 0
		for i := range items.Len() {
			was, is := before(items.At(i)), after(items.At(i))
			require.GreaterOrEqual(t, was, 0)
			require.Less(t, was, 20)
			require.Less(t, is, 21)
			if was != is && is != 20 {
				elsewhere++
			}
		}
		switch s.Name {
		case "naive modulo", "Fibonacci hashing, then modulo", "Fibonacci hashing, range reduction":
			require.Positive(t, elsewhere, s.Name)
		default:
			require.Zero(t, elsewhere, s.Name)
		}
	}
}

// TestOrder: a scheme says truly whether neighbours stay neighbours.
func TestOrder(t *testing.T) {
	items := NewItems(10_000, 4)
	for _, s := range Schemes() {
		before, after, err := s.grow(items, 4, 20)
		require.NoError(t, err)
		for shards, assign := range map[int]Assign{20: before, 21: after} {
			changes := 0
			for i := 1; i < items.Len(); i++ {
				if assign(items.At(i)) != assign(items.At(i-1)) {
					changes++
				}
			}
			require.Equal(t, s.KeepsOrder, changes < shards, "%s: %d changes", s.Name, changes)
		}
	}
}

// TestJump holds jump to values of the paper's C++ code.
func TestJump(t *testing.T) {
	for _, c := range []struct {
		key         uint64
		shards, got int
	}{
		{1, 6, 0}, {1, 7, 6}, {1, 17, 6}, {1, 18, 17},
		{0xdeadbeef, 1, 0}, {0xdeadbeef, 5, 3}, {0xdeadbeef, 6, 5}, {0xdeadbeef, 17, 16},
		{0x0ddc0ffeebadf00d, 15, 2}, {0x0ddc0ffeebadf00d, 16, 15},
	} {
		require.Equal(t, c.got, jump(c.key, c.shards), "%x of %d", c.key, c.shards)
	}
}

// TestRingAndRendezvousAgainstBruteForce: no sorting and no search in the oracle.
func TestRingAndRendezvousAgainstBruteForce(t *testing.T) {
	const seed, shards, replicas = 5, 7, 3
	ringed, _, err := ring(replicas, "").grow(Items{}, seed, shards)
	require.NoError(t, err)
	highest := rendezvous(seed, shards)
	items := NewItems(5_000, seed)
	for i := range items.Len() {
		h := xxhash.Sum64(items.At(i))
		first, right, best := point{math.MaxUint64, -1}, point{math.MaxUint64, -1}, point{}
		for shard := range shards {
			for r := range replicas {
				p := point{xxhash.Sum64(append(shardName(seed, shard), '#', byte('0'+r))), shard}
				if p.at <= first.at {
					first = p
				}
				if p.at >= h && p.at <= right.at {
					right = p
				}
			}
			if w := mix(h ^ xxhash.Sum64(shardName(seed, shard))); w > best.at {
				best = point{w, shard}
			}
		}
		if right.shard < 0 {
			right = first
		}
		require.Equal(t, right.shard, ringed(items.At(i)))
		require.Equal(t, best.shard, highest(items.At(i)))
	}
}

// TestRangesAgainstSortedCuts: the map agrees with a binary search.
func TestRangesAgainstSortedCuts(t *testing.T) {
	items := NewItems(1_000, 6)
	cuts := []int{0, 10, 11, 500, 1_000}
	assign, err := lookup(items, cuts)
	require.NoError(t, err)
	for i := range items.Len() {
		require.Equal(t, sort.SearchInts(cuts, i+1)-1, assign(items.At(i)))
	}
	_, err = lookup(items, seq(0, 500))
	require.ErrorContains(t, err, "compare fewer shards")
}

func seq(from, to int) (s []int) {
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

func TestFibonacciIsTheGoldenRatio(t *testing.T) {
	phi := new(big.Float).SetPrec(200).SetInt64(5)
	phi.Sqrt(phi).Add(phi, big.NewFloat(1)).Quo(phi, big.NewFloat(2))
	part, _ := new(big.Float).Quo(new(big.Float).SetPrec(200).SetMantExp(big.NewFloat(1), 64), phi).Uint64()
	require.Equal(t, uint64(fibonacci), part|1)
	require.Equal(t, []int{0, 9, 10, 20},
		[]int{reduce(0, 21), reduce(math.MaxUint64/21*10-1, 21), reduce(math.MaxUint64/2, 21),
			reduce(math.MaxUint64, 21)})
}

func TestItemsAscend(t *testing.T) {
	items := NewItems(1_001, 7)
	require.Equal(t, 1_001, items.Len())
	for i := 1; i <= items.Len(); i++ {
		require.Greater(t, string(items.above(i)), string(items.At(i-1)))
	}
	require.False(t, slices.Equal(items.keys, NewItems(1_001, 8).keys))
}

func TestDeviation(t *testing.T) {
	require.InDelta(t, 2, deviation([]int{2, 4, 4, 4, 5, 5, 7, 9}), 1e-12)
	require.Equal(t, Spread{Mean: 2, Min: 1, Max: 3}, spread([]float64{3, 1, 2}))
}

func TestMeasure(t *testing.T) {
	ok := Options{Items: 1_000, Shards: 20, Seeds: 1, LongSeeds: 1, Workers: 1}
	require.NoError(t, ok.Check())
	for _, spoil := range []func(*Options){
		func(o *Options) { o.Items = 79 }, func(o *Options) { o.Shards = 0 }, func(o *Options) { o.Shards = 61 },
		func(o *Options) { o.Seeds = 0 }, func(o *Options) { o.LongSeeds = 0 }, func(o *Options) { o.Workers = 0 },
	} {
		o := ok
		spoil(&o)
		_, err := Measure(t.Context(), o, func(Row) {})
		require.Error(t, err)
	}
	most := ok
	most.Shards = 60 // the limit has to fit into a root
	var told []Row
	rows, err := Measure(t.Context(), most, func(r Row) { told = append(told, r) })
	require.NoError(t, err)
	require.Len(t, told, len(rows))
	require.Len(t, rows, len(Schemes()))
	for i, r := range rows {
		require.Equal(t, Schemes()[i].Name, told[i].Name)
		require.Positive(t, r.NanosPerItem)
		require.NotEmpty(t, r.Loses)
		require.LessOrEqual(t, r.StaysPercent.Min, r.StaysPercent.Max)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = Measure(ctx, ok, func(Row) {})
	require.ErrorIs(t, err, context.Canceled)
}
