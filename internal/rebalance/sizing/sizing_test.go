package sizing

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// plan is a plan of two data centres 80 ms apart.
func plan(change func(in *Input)) *Input {
	in := &Input{
		Servers: 10, Nodes: 6, DataCentres: 2, RoundTrip: 80 * time.Millisecond, Paxos: V2,
		Buckets: 1000, BusyBuckets: 100, Keys: 1e9, KeyBytes: 50, ValueBytes: 120, Objects: true,
		Inserts: 100, Appends: 100, Requests: 1000, MaxRows: 100_000, MoveRate: 20_000, CleanRate: 20_000,
		Lease: 3 * time.Second, MapCacheMiB: 64, NodeRequests: 10_000, NodeGiB: 2000, RedisGiB: 64,
	}
	change(in)
	return in
}

func (in *Input) line(t *testing.T, what string) Line {
	t.Helper()
	lines := Of(in)
	at := slices.IndexFunc(lines, func(l Line) bool { return l.What == what })
	require.GreaterOrEqual(t, at, 0, what)
	return lines[at]
}

// TestFiguresAreThoseOfRuns compares the formulae with runs (bench/results/apart.md and parts.md, docs/benchmarks.md;
// those of before with what the code did then).
func TestFiguresAreThoseOfRuns(t *testing.T) {
	t.Parallel()
	v1 := plan(func(in *Input) { in.Paxos = V1 })
	v2 := plan(func(*Input) {})
	figure := func(what string, change func(in *Input)) float64 { return plan(change).line(t, what).Figure }
	questions := func(servers int) func(in *Input) {
		return func(in *Input) {
			in.DataCentres, in.Nodes, in.Servers, in.Inserts, in.Appends = 1, 3, servers, 1000, 0
		}
	}
	alone := func(in *Input) { in.Servers = 1 }
	const day = 24 * 3600
	for _, x := range []struct {
		what          string
		computed, run float64
	}{
		{"split of 5,000 rows, v1", v1.batch(2500).Seconds(), 30.9},
		{"the same, with no other work", v1.batch(2500).Seconds(), 30.1},
		{"the same, before", v1.batch(2500).Seconds(), 33.7},
		{"split of 5,000 rows, v2", v2.batch(2500).Seconds(), 24.7},
		{"the same, in virtual time", v2.batch(2500).Seconds(), 28},
		{"the same, before", v2.batch(2500).Seconds(), 30.1},
		{"copy of 2,500 rows", (v2.moved(2500) - rangeTakes).Seconds() / 2, 0.8},
		{"batches a minute of 8 buckets at once, v1", 8 * perMinute(v1.batch(2500)), 14},
		{"swap in virtual time, v2", v2.rounds(swapRoundsV1, swapRounds).Seconds(), 0.33},
		{"polls of a server", v2.polls() / 10, 17.8},
		{"renewals of a leader", figure("swaps a minute of the busiest record at SERIAL", func(in *Input) {
			in.Inserts, in.Appends = 0, 0
		}), 10},
		{"questions at a node, 1 process", plan(questions(1)).questions(), 194},
		{"the same, 10", plan(questions(10)).questions(), 1507},
		{"the same, 100", plan(questions(100)).questions(), 3874},
		{"the same, 100 that write more", plan(func(in *Input) {
			questions(100)(in)
			in.Inserts = 10_000
		}).questions(), 4967},
		{"the same, 100 that hardly write", plan(func(in *Input) {
			questions(100)(in)
			in.Inserts = 1
		}).questions(), 426},
		{"roots a second at SERIAL, 8 at once, 160 ms each", rootsPerSecond(8, 160*time.Millisecond), 50},
		{"the same, 240 ms each", rootsPerSecond(8, 240*time.Millisecond), 33},
		{"look at a bucket of 100,000 ranges", 1e5 * lookAtARange.Seconds(), 0.147},
		{"cached buckets, bytes each", rootBytes, 18.7 * (1 << 20) / 20_000},
		{"nodes of maps, bytes each of their 1,000 ranges", mapBytes * 1000, 64 * (1 << 20) / 738},
		{"merges a second, 10 requests each", mergesPerS / math.Pow(10, mergeGrowth), 46_000},
		{"the same, 100 requests each", mergesPerS / math.Pow(100, mergeGrowth), 18_000},
		{"connections of a node, 1,000 servers", figure("connections of a node", func(in *Input) {
			in.Servers = 1000
		}), 1500},
		{"MiB of the caches of a server that has everything", figure("memory of a server's caches of maps",
			func(in *Input) { in.Keys, in.Buckets = 1e12, 1e6 }) / (1 << 20), 64 * 13. / 8},
		{"ranges of 10^9 keys", v2.ranges(), 15_000},
		{"hours of a recount", figure("recount of all rows", alone) / 3600, 4.6},
		{"days of confirmations", figure("confirmation of all sizes", alone) / day, 5.8},
		{"hours of a round of the cleaner", figure("round of the cleaners over all rows", alone) / 3600, 14},
		{"rows that move a second at most", plan(alone).line(t, "rows that move a second").Limit, 10_000},
		{"the same, 10 servers", v2.line(t, "rows that move a second").Limit, 100_000},
		{"the same, 100 servers for 16 shards", plan(func(in *Input) {
			in.Servers = 100
		}).line(t, "rows that move a second").Limit, 160_000},
	} {
		require.InEpsilon(t, x.run, x.computed, 0.2, x.what)
	}
}

// TestMoreNeverCostsLess: whatever grows, no figure and no share becomes smaller. There are buckets for all shards, as
// those that come to an empty one bring a process to share the work.
func TestMoreNeverCostsLess(t *testing.T) {
	t.Parallel()
	const about = "%s: %s of %+v, then %+v"
	r := seed.New(t)
	for range 300 {
		n := func(most float64) int64 { return int64(math.Pow(most, r.Float64())) }
		in := *plan(func(in *Input) {
			in.Servers, in.DataCentres, in.Keys = int(n(2000)), 1+r.IntN(3), n(1e13)
			in.Nodes = in.DataCentres * int(2+n(500))
			in.Buckets = shard.Count + n(1e6)
			in.BusyBuckets = 1 + r.Int64N(in.Buckets)
			in.KeyBytes, in.ValueBytes = n(1000), n(1e5)
			in.Inserts, in.Appends, in.Requests = float64(n(1e6)-1), float64(n(1e6)-1), float64(n(1e7)-1)
			in.MaxRows, in.MoveRate = 1+n(1e6), r.IntN(2)*int(n(1e6))
			if in.RoundTrip = 0; in.DataCentres > 1 {
				in.RoundTrip = time.Duration(n(3e8))
			}
			in.Paxos = []Paxos{V1, V2}[r.IntN(2)]
		})
		require.NoError(t, in.Check())
		for what, grow := range map[string]func(in *Input){
			"keys":     func(in *Input) { in.Keys *= 1 + r.Int64N(5) },
			"requests": func(in *Input) { in.Requests *= 1 + r.Float64() },
			"buckets":  func(in *Input) { in.Buckets += n(1e6) },
		} {
			more := in
			grow(&more)
			for _, l := range Of(&in) {
				m := more.line(t, l.What)
				require.GreaterOrEqual(t, m.Figure*(1+1e-9), l.Figure, about, what, l.What, in, more)
				require.GreaterOrEqual(t, m.Share*(1+1e-9), l.Share, about, what, l.What, in, more)
			}
		}
	}
}

func TestTheFirstWallIsNamed(t *testing.T) {
	t.Parallel()
	in := plan(func(in *Input) { in.Servers, in.Inserts, in.NodeRequests = 1, 40_000, 1e6 })
	lines := Of(in)
	require.True(t, slices.IsSortedFunc(lines, func(a, b Line) int {
		switch {
		case a.Share > b.Share:
			return -1
		case a.Share < b.Share:
			return 1
		}
		return 0
	}))
	require.Equal(t, "The first wall: rows that move a second, at 400 % of the limit. What moves it: --move-rate.",
		Wall(lines))
	in.Inserts, in.Nodes = 10, 3000
	require.Contains(t, Wall(Of(in)), "No wall; the nearest: ")
}

// A plan that can't be is refused by the name of the flag.
func TestPlansThatCanNotBe(t *testing.T) {
	t.Parallel()
	for flag, change := range map[string]func(in *Input){
		"--servers":       func(in *Input) { in.Servers = 0 },
		"--nodes":         func(in *Input) { in.Nodes = 5 },
		"--data-centres":  func(in *Input) { in.DataCentres = 0 },
		"--busy-buckets":  func(in *Input) { in.BusyBuckets = in.Buckets + 1 },
		"--keys":          func(in *Input) { in.Keys = -1 },
		"--key-bytes":     func(in *Input) { in.KeyBytes = 0 },
		"--inserts":       func(in *Input) { in.Inserts = math.NaN() },
		"--requests":      func(in *Input) { in.Requests = math.Inf(1) },
		"--node-requests": func(in *Input) { in.NodeRequests = 0 },
		"--round-trip":    func(in *Input) { in.RoundTrip = 0 },
		"--round-trip is that between data centres: give": func(in *Input) { in.DataCentres = 1 },
		"--lease":    func(in *Input) { in.Lease = time.Millisecond },
		"--paxos":    func(in *Input) { in.Paxos = "v3" },
		"--max-rows": func(in *Input) { in.MaxRows = 1 },
	} {
		require.ErrorContains(t, plan(change).Check(), flag+" ")
	}
	require.NoError(t, plan(func(*Input) {}).Check())
}
