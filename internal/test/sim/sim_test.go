package sim_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/test/sim"
)

// run runs one simulation in a bubble and checks its history.
func run(t *testing.T, c sim.Config) (r sim.Report) {
	synctest.Test(t, func(*testing.T) { r = sim.Run(c) })
	if r.Err != nil {
		return r
	}
	if c.Centres != nil {
		return r // package history knows one data centre
	}
	// Outside of the bubble: the search is limited by real time.
	found := append(r.History.Check(), r.History.Linearizable(c.Register(), time.Minute)...)
	if c.Net != nil && c.Net.Servers > 0 {
		found = append(found, r.History.Overtaken()...)
	}
	for _, v := range found {
		r.Err = errors.Join(r.Err, errors.New(v.String()))
	}
	return r
}

// all means all seeds and all mistakes that a simulation has: make sim, once a week. Else make test tries a fifth of the
// seeds and a quarter of the mistakes, drawn anew each time. A run that is repeated with its seed leaves nothing out.
var all = os.Getenv("EVENKEEL_SIM_ALL") != "" || os.Getenv("EVENKEEL_SEED") != ""

// many returns n, or 5 n with all seeds. With the race detector, which makes each simulation several times slower, it
// returns fewer: a simulation lets one actor act at a time anyway.
func many(n int) int {
	switch {
	case race.Enabled || testing.Short():
		return race.Fewer(n)
	case all:
		return 5 * n
	}
	return n
}

// sampled returns a function that says whether to look for the next mistake.
func sampled(t *testing.T) func() bool {
	draw := seed.New(t)
	return func() bool { return all || draw.IntN(4) == 0 }
}

func TestProtocolHolds(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(40), func(seed uint64) bool {
		r := run(t, sim.Random(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Kills += r.Kills
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Pages += r.Pages
		return true
	})
	t.Logf("%+v", sum)
}

// Each client and each mover is a process with its own clocks, and leases hold for a time.
func TestProtocolHoldsOverTheNetwork(t *testing.T) {
	var sum sim.Report
	deleted := 0
	seed.Each(t, many(20), func(seed uint64) bool {
		r := run(t, sim.RandomNet(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Kills += r.Kills
		sum.Deaths += r.Deaths
		sum.Leases += r.Leases
		sum.Collected += r.Collected
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Pages += r.Pages
		if r.Deleted {
			deleted++
		}
		return true
	})
	t.Logf("%d buckets deleted, %+v", deleted, sum)
}

// Clients and movers are in two data centres, whose link delays, loses and is cut.
func TestProtocolHoldsInTwoDataCentres(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(4), func(seed uint64) bool {
		r := run(t, sim.RandomCentres(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Kills += r.Kills
		sum.Deaths += r.Deaths
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Outages += r.Outages
		sum.Later += r.Later
		sum.Refused += r.Refused
		return true
	})
	t.Logf("%+v", sum)
}

// The configurations that reveal mistakes pass without mistakes.
func TestProtocolHoldsWhereItIsHard(t *testing.T) {
	for _, c := range []struct {
		name  string
		tune  func(c *sim.Config)
		seeds int
	}{{"deadly", deadly, 4}, {"writing", writing, 4}, {"crossing", crossing, 30}, {"crossingTwice", crossingTwice,
		20}, {"late", late, 80}, {"overtaken", overtaken, 60}, {"overtakenByTwo", overtakenByTwo, 20}, {"loose", loose, 2},
		{"purging", purging, 4}} {
		t.Run(c.name, func(t *testing.T) {
			seed.Each(t, many(c.seeds), func(seed uint64) bool {
				config := sim.Random(seed)
				c.tune(&config)
				require.NoError(t, run(t, config).Err)
				return true
			})
		})
	}
}

// mistakes are all of them, each with the configuration that reveals it.
var mistakes = []struct {
	name string
	on   func(m *sim.Mistakes)
	// tune makes runs that reveal it more frequent.
	tune func(c *sim.Config)
	// seeds is the number within which it must be found: at least ten times the mean.
	seeds int
	// watched: only the invariants of the inside find it within these seeds.
	watched bool
	// net: in the network form.
	net bool
	// two: in two data centres.
	two bool
	// rare: found within minutes, and looked for with EVENKEEL_SIM_TIME only.
	rare bool
}{
	{name: "PlainDeletes", on: func(m *sim.Mistakes) { m.PlainDeletes = true }, seeds: 3000},
	{name: "DeleteBoth", on: func(m *sim.Mistakes) { m.DeleteBoth = true }, seeds: 3000},
	{name: "NoWait", on: func(m *sim.Mistakes) { m.NoWait = true }, seeds: 3000},
	{name: "NoRewait", on: func(m *sim.Mistakes) { m.NoRewait = true }, tune: deadly, seeds: 3000},
	{name: "SkipMarking", on: func(m *sim.Mistakes) { m.SkipMarking = true }, seeds: 3000},
	{name: "FreshTimestamps", on: func(m *sim.Mistakes) { m.FreshTimestamps = true }, seeds: 3000},
	{name: "LoseMarkers", on: func(m *sim.Mistakes) { m.LoseMarkers = true }, tune: crossing, seeds: 30000},
	{name: "SkipDraining", on: func(m *sim.Mistakes) { m.SkipDraining = true }, seeds: 3000},
	{name: "RedoElsewhere", net: true, on: func(m *sim.Mistakes) { m.RedoElsewhere = true }, tune: redone, seeds: 3000},
	{name: "LateSweep", on: func(m *sim.Mistakes) { m.LateSweep = true }, tune: crossingTwice, seeds: 10000},
	{name: "SweepUnchecked", on: func(m *sim.Mistakes) { m.SweepUnchecked = true }, tune: loose, seeds: 300,
		watched: true},
	{name: "NoWriteThrough", on: func(m *sim.Mistakes) { m.NoWriteThrough = true }, tune: late, seeds: 15000},
	{name: "PlainCopies", on: func(m *sim.Mistakes) { m.PlainCopies = true }, tune: overtaken, seeds: 15000},
	{name: "NoUncopy", on: func(m *sim.Mistakes) { m.NoUncopy = true }, tune: overtaken, seeds: 15000},
	{name: "NoDeleteThrough", on: func(m *sim.Mistakes) { m.NoDeleteThrough = true }, tune: overtaken, seeds: 15000},
	{name: "DeleteThroughAtOnce", on: func(m *sim.Mistakes) { m.DeleteThroughAtOnce = true }, tune: overtakenOnce,
		seeds: 15000},
	{name: "UncopyUnchecked", on: func(m *sim.Mistakes) { m.UncopyUnchecked = true }, tune: overtakenByTwo,
		seeds: 15000},
	{name: "MixedMerge", on: func(m *sim.Mistakes) { m.MixedMerge = true }, seeds: 3000},
	{name: "NoVerify", on: func(m *sim.Mistakes) { m.NoVerify = true }, tune: late, seeds: 15000},
	{name: "RemoveWhole", on: func(m *sim.Mistakes) { m.RemoveWhole = true }, seeds: 3000},
	{name: "RemoveOld", on: func(m *sim.Mistakes) { m.RemoveOld = true }, seeds: 3000, watched: true},
	{name: "UsedDestination", on: func(m *sim.Mistakes) { m.UsedDestination = true }, seeds: 3000},
	{name: "SkipSweep", on: func(m *sim.Mistakes) { m.SkipSweep = true }, seeds: 3000, watched: true},
	{name: "TornPage", on: func(m *sim.Mistakes) { m.TornPage = true }, tune: writing, seeds: 300},
	{name: "PurgeNewer", on: func(m *sim.Mistakes) { m.PurgeNewer, m.Unwatched = true, true }, tune: purging, seeds: 3000},
	{name: "PurgeUnknown", on: func(m *sim.Mistakes) { m.PurgeUnknown, m.Unwatched = true, true }, tune: purging,
		seeds: 3000},
	{name: "PurgeByCall", on: func(m *sim.Mistakes) { m.PurgeByCall, m.Unwatched = true, true }, tune: purging,
		seeds: 3000},

	{name: "BumpFirst", net: true, on: func(m *sim.Mistakes) { m.BumpFirst = true }, seeds: 3000},
	{name: "RootBeforeClock", net: true, on: func(m *sim.Mistakes) { m.RootBeforeClock = true }, seeds: 3000},
	{name: "NoLookAfterWrite", net: true, on: func(m *sim.Mistakes) { m.NoLookAfterWrite = true }, tune: stormy,
		seeds: 3000},
	{name: "NoLookAfterRead", net: true, on: func(m *sim.Mistakes) { m.NoLookAfterRead = true }, tune: stormy,
		seeds: 3000},
	{name: "ActWhileClosing", net: true, on: func(m *sim.Mistakes) { m.ActWhileClosing = true }, tune: deleting,
		seeds: 3000},
	{name: "WaitByFirstClock", net: true, on: func(m *sim.Mistakes) { m.WaitByFirstClock = true }, tune: stepping,
		seeds: 3000},
	{name: "OthersBump", net: true, on: func(m *sim.Mistakes) { m.OthersBump = true }, tune: lagging, seeds: 3000},
	{name: "CollectByAge", net: true, on: func(m *sim.Mistakes) { m.CollectByAge = true }, tune: long, seeds: 3000},
	{name: "TornRoot", net: true, on: func(m *sim.Mistakes) { m.TornRoot = true }, tune: torn, seeds: 3000},
	{name: "NoRewaitOverTheNetwork", net: true, on: func(m *sim.Mistakes) { m.NoRewait = true }, tune: deadly,
		seeds: 3000},
	{name: "LeaseByMonotonic", net: true, on: func(m *sim.Mistakes) { m.LeaseByMonotonic = true }, tune: stormy,
		seeds: 3000},
	{name: "RootUnacknowledged", net: true, on: func(m *sim.Mistakes) { m.RootUnacknowledged = true }, tune: lagging,
		seeds: 3000},
	{name: "BumpUnacknowledged", net: true, on: func(m *sim.Mistakes) { m.BumpUnacknowledged = true }, tune: lagging,
		seeds: 3000},
	{name: "ShortLease", net: true, on: func(m *sim.Mistakes) { m.ShortLease = true }, seeds: 3000},
	{name: "EmptyAtHome", net: true, on: func(m *sim.Mistakes) { m.EmptyAtHome = true }, tune: deleting, seeds: 5000},
	{name: "OwnClock", net: true, on: func(m *sim.Mistakes) { m.OwnClock = true }, tune: timed, seeds: 3000},
	{name: "NearConfirm", two: true, rare: true, on: func(m *sim.Mistakes) { m.NearConfirm = true }, tune: apart,
		seeds: 3000},
	{name: "NearPurge", two: true, on: func(m *sim.Mistakes) { m.NearPurge, m.Unwatched = true, true }, tune: apart,
		seeds: 300},
	{name: "NearMover", two: true, on: func(m *sim.Mistakes) { m.NearMover = true }, tune: apart, seeds: 300},
	{name: "NoReadRepair", two: true, on: func(m *sim.Mistakes) { m.NoReadRepair = true }, tune: apart, seeds: 300},
	{name: "NoPassing", net: true, on: func(m *sim.Mistakes) { m.NoPassing = true }, tune: timed, seeds: 3000},
}

// apart: news takes as long as some leases, and clients delete ranges.
func apart(c *sim.Config) {
	c.Centres.Delay, c.Centres.Lose, c.Centres.Cut, c.Ranges, c.Deletes = time.Second, 0.2, 1.3, true, false
}

// stormy: processes are disturbed often.
func stormy(c *sim.Config) { c.Net.Weather = 0.02 }

// stepping: the same, with few clients.
func stepping(c *sim.Config) { c.Net.Weather, c.Clients, c.LongKeys, c.Keys = 0.03, 2, false, 4 }

// lagging: replicas lag for longer than a lease.
func lagging(c *sim.Config) { c.Net.Lag, c.Net.Torn, c.Movers = time.Second, 0.5, 2 }

// deleting: the bucket is often empty, and a client tries to delete it.
func deleting(c *sim.Config) {
	c.Deletes, c.Keys, c.Writes, c.Clients, c.LongKeys = true, 1, 70, 4, false
}

// long: the map has nodes.
func long(c *sim.Config) {
	c.LongKeys, c.Keys, c.Net.Stall, c.Movers, c.Rounds, c.Deletes, c.Loose = true, 12, 0.3, 1, 4, false, false
}

// torn: many clients load the map while replicas lag.
func torn(c *sim.Config) {
	c.Net.Lag, c.Net.Torn, c.Net.Weather, c.Net.Cut, c.Clients, c.Keys = time.Second, 1, 0.03, 0.5, 4, 6
}

// timed: timestamps are of the servers' common time; clients share few keys.
func timed(c *sim.Config) {
	c.Net.Servers, c.Net.Apart, c.Net.Weather, c.Keys, c.Writes, c.Clients, c.LongKeys = 3, 30*time.Millisecond, 0, 4,
		70, 4, false
	c.Sparse, c.Ops, c.Movers, c.Loose, c.Kill, c.Late, c.Faults, c.Deletes = false, 15, 1, false, 0, 0,
		faultstore.Rates{}, false
}

// deadly: movers die often.
func deadly(c *sim.Config) { c.Kill = 0.15 }

// writing: readers rarely repair what is lost.
func writing(c *sim.Config) { c.Clients, c.Keys, c.Writes, c.Late = 4, 12, 90, 0 }

// purging: ranges are deleted while others put.
func purging(c *sim.Config) { c.Ranges, c.Deletes, c.Clients, c.Keys, c.Writes = true, false, 4, 4, 80 }

// crossing: few writes under neighbouring leases to the same key, without later writes.
func crossing(c *sim.Config) {
	c.Clients, c.Keys, c.Writes, c.Late, c.Kill = 4, 1, 90, 0, 0
	c.Sparse, c.Ops, c.Rounds, c.Movers, c.Loose = true, 6, 1, 1, false
}

// crossingTwice: the same, and the next move follows.
func crossingTwice(c *sim.Config) {
	crossing(c)
	c.Rounds, c.Ops = 3, 12
}

// late: many puts land late, and their keys have few other writes.
func late(c *sim.Config) {
	c.Late, c.Writes, c.Kill, c.Faults, c.Clients, c.Keys = 0.5, 40, 0, faultstore.Rates{}, 3, 2
	c.Sparse, c.Ops, c.Rounds, c.Movers, c.Loose = true, 10, 2, 1, false
}

// overtaken: many plain deletes land late, where their rows are being copied.
func overtaken(c *sim.Config) {
	late(c)
	c.Late, c.Writes, c.Clients, c.Keys, c.Ops = 0.5, 50, 4, 2, 12
}

// overtakenByTwo: the same with two movers that verify.
func overtakenByTwo(c *sim.Config) {
	overtaken(c)
	c.Movers, c.Rounds = 2, 3
}

// overtakenOnce: one mover again, and few writes.
func overtakenOnce(c *sim.Config) {
	overtaken(c)
	c.Writes = 20
}

// redone: puts are lost, and deletes of their keys follow.
func redone(c *sim.Config) {
	late(c)
	c.Writes, c.Ops, c.Late, c.Rounds = 60, 12, 0.8, 3
}

// loose: movers that do not wait for each other.
func loose(c *sim.Config) {
	c.Loose, c.Movers, c.Rounds, c.Kill, c.Writes, c.Clients = true, 3, 6, 0, 70, 4
}

// The configurations that reveal mistakes of the network form pass without mistakes.
func TestProtocolHoldsWhereItIsHardOverTheNetwork(t *testing.T) {
	for _, c := range []struct {
		name  string
		tune  func(c *sim.Config)
		seeds int
	}{{"deadly", deadly, 2}, {"stormy", stormy, 2}, {"lagging", lagging, 2}, {"deleting", deleting, 12}, {"long", long,
		2}, {"torn", torn, 1}, {"timed", timed, 4}, {"redone", redone, 8}} {
		t.Run(c.name, func(t *testing.T) {
			seed.Each(t, many(c.seeds), func(seed uint64) bool {
				config := sim.RandomNet(seed)
				c.tune(&config)
				require.NoError(t, run(t, config).Err)
				return true
			})
		})
	}
}

func TestMistakesAreFound(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("needs many seeds: make sim")
	}
	wanted := sampled(t)
	for _, m := range mistakes {
		if !wanted() || m.rare && os.Getenv("EVENKEEL_SIM_TIME") == "" {
			continue
		}
		for _, unwatched := range []bool{false, true} {
			name := m.name
			if unwatched {
				if m.watched || os.Getenv("EVENKEEL_SIM_TIME") == "" {
					continue // needs more seeds: make soak
				}
				name += "/ByClientsAlone"
			}
			t.Run(name, func(t *testing.T) {
				found := false
				n := 0
				seed.Each(t, m.seeds, func(seed uint64) bool {
					n++
					c := sim.Random(seed)
					switch {
					case m.net:
						c = sim.RandomNet(seed)
					case m.two:
						c = sim.RandomCentres(seed)
					}
					m.on(&c.Mistakes)
					if m.tune != nil {
						m.tune(&c)
					}
					c.Mistakes.Unwatched = c.Mistakes.Unwatched || unwatched
					r := run(t, c)
					if found = r.Err != nil; found {
						t.Logf("found with seed %d, the %dth: %v", seed, n, r.Err)
					}
					return !found
				})
				require.True(t, found, "no invariant was violated with %d seeds", n)
			})
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	seed.Each(t, race.Fewer(10), func(seed uint64) bool {
		var traces [2][]string
		for i := range traces {
			c := sim.Random(seed)
			switch seed % 3 {
			case 0:
				c = sim.RandomNet(seed)
			case 1:
				c = sim.RandomCentres(seed)
			}
			c.Trace = func(s string) { traces[i] = append(traces[i], s) }
			require.NoError(t, run(t, c).Err)
		}
		require.NotEmpty(t, traces[0])
		for i := range min(len(traces[0]), len(traces[1])) {
			require.Equal(t, traces[0][i], traces[1][i], "step %d of %d and %d", i, len(traces[0]), len(traces[1]))
		}
		return true
	})
}

// A mover dies at every failpoint, one per run, and its next life continues: the cuts are
// those of a run without deaths, and nothing is lost or left behind (I10).
func TestKilledAtEveryPoint(t *testing.T) {
	seed.Each(t, 1, func(seed uint64) bool {
		c := sim.Random(seed)
		c.Movers, c.Clients, c.Kill, c.Loose, c.Late, c.Faults = 1, 2, 0, false, 0, faultstore.Rates{}
		c.Deletes = false // a bucket that is deleted at another moment has another layout
		calm := run(t, c)
		require.NoError(t, calm.Err)
		require.NotZero(t, calm.Points)
		var sample faulttest.Sample
		for c.KillAt = 1; c.KillAt <= calm.Points; c.KillAt++ {
			if sample.Skips() {
				continue
			}
			r := run(t, c)
			require.NoError(t, r.Err, "killed at %d", c.KillAt)
			require.Equal(t, 1, r.Kills, "killed at %d", c.KillAt)
			require.Equal(t, calm.Cuts, r.Cuts, "killed at %d", c.KillAt)
		}
		t.Logf("killed at each of %d points", calm.Points)
		return true
	})
}
