package sim_test

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sim"
	"github.com/evenkeel/evenkeel/store/faultstore"
)

// run runs one simulation in a bubble of its own.
func run(t *testing.T, c sim.Config) (r sim.Report) {
	synctest.Test(t, func(*testing.T) { r = sim.Run(c) })
	return r
}

// seeds calls f with seeds until a time is over, or once with EVENKEEL_SEED.
func seeds(t *testing.T, least int, f func(seed uint64) bool) {
	if s := os.Getenv("EVENKEEL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		f(seed)
		return
	}
	d := 0 * time.Second
	if s := os.Getenv("EVENKEEL_SIM_TIME"); s != "" {
		var err error
		d, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	from := uint64(time.Now().UnixNano())
	n := 0
	for end := time.Now().Add(d); n < least || time.Now().Before(end); n++ {
		if !f(from + uint64(n)) {
			break
		}
	}
	t.Logf("%d seeds from %d on", n, from)
}

func TestProtocolHolds(t *testing.T) {
	var sum sim.Report
	seeds(t, 60, func(seed uint64) bool {
		r := run(t, sim.Random(seed))
		require.NoError(t, r.Err, "EVENKEEL_SEED=%d", seed)
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

// mistakes are all that can be switched on, each with the runs that give it away.
var mistakes = []struct {
	name string
	on   func(m *sim.Mistakes)
	// tune makes the runs in which it shows less rare.
	tune func(c *sim.Config)
	// seeds within which it has to be found.
	seeds int
	// watched: only the invariants that look inside find it in this time.
	watched bool
}{
	{name: "PlainDeletes", on: func(m *sim.Mistakes) { m.PlainDeletes = true }, seeds: 300},
	{name: "DeleteBoth", on: func(m *sim.Mistakes) { m.DeleteBoth = true }, seeds: 300},
	{name: "NoWait", on: func(m *sim.Mistakes) { m.NoWait = true }, seeds: 300},
	{name: "NoRewait", on: func(m *sim.Mistakes) { m.NoRewait = true }, tune: deadly, seeds: 300},
	{name: "SkipMarking", on: func(m *sim.Mistakes) { m.SkipMarking = true }, seeds: 300},
	{name: "FreshTimestamps", on: func(m *sim.Mistakes) { m.FreshTimestamps = true }, seeds: 300},
	{name: "LoseMarkers", on: func(m *sim.Mistakes) { m.LoseMarkers = true }, tune: crossing, seeds: 4000},
	{name: "SkipDraining", on: func(m *sim.Mistakes) { m.SkipDraining = true }, seeds: 300},
	{name: "RedoElsewhere", on: func(m *sim.Mistakes) { m.RedoElsewhere = true }, tune: late, seeds: 6000},
	{name: "LateSweep", on: func(m *sim.Mistakes) { m.LateSweep = true }, tune: crossingTwice, seeds: 6000},
	{name: "SweepUnchecked", on: func(m *sim.Mistakes) { m.SweepUnchecked = true }, tune: loose, seeds: 300, watched: true},
	{name: "NoWriteThrough", on: func(m *sim.Mistakes) { m.NoWriteThrough = true }, tune: shown, seeds: 6000},
	{name: "MixedMerge", on: func(m *sim.Mistakes) { m.MixedMerge = true }, seeds: 300},
	{name: "NoVerify", on: func(m *sim.Mistakes) { m.NoVerify = true }, tune: shown, seeds: 6000},
	{name: "RemoveWhole", on: func(m *sim.Mistakes) { m.RemoveWhole = true }, seeds: 300},
	{name: "RemoveOld", on: func(m *sim.Mistakes) { m.RemoveOld = true }, seeds: 300, watched: true},
	{name: "UsedDestination", on: func(m *sim.Mistakes) { m.UsedDestination = true }, seeds: 300},
	{name: "SkipSweep", on: func(m *sim.Mistakes) { m.SkipSweep = true }, seeds: 300, watched: true},
	{name: "TornPage", on: func(m *sim.Mistakes) { m.TornPage = true }, tune: writing, seeds: 300},
}

// deadly: movers die often.
func deadly(c *sim.Config) { c.Kill = 0.15 }

// writing: what is lost is not mended by readers.
func writing(c *sim.Config) { c.Clients, c.Keys, c.Writes, c.Late = 4, 12, 90, 0 }

// crossing: few writes under neighbouring leases meet on few keys, and nothing
// comes after them.
func crossing(c *sim.Config) {
	c.Clients, c.Keys, c.Writes, c.Late, c.Kill = 4, 2, 90, 0, 0
	c.Sparse, c.Ops, c.Rounds, c.Movers, c.Loose = true, 6, 1, 1, false
}

// crossingTwice: and the next move follows.
func crossingTwice(c *sim.Config) {
	crossing(c)
	c.Rounds, c.Ops = 3, 12
}

// late: many puts land late, and little else happens to their keys.
func late(c *sim.Config) {
	c.Late, c.Writes, c.Kill, c.Faults, c.Clients, c.Keys = 0.5, 40, 0, faultstore.Rates{}, 3, 2
	c.Sparse, c.Ops, c.Rounds, c.Movers, c.Loose = true, 10, 2, 1, false
}

// shown: what lands late is read before it is overwritten.
func shown(c *sim.Config) {
	late(c)
	c.Keys, c.Writes, c.Ops, c.Rounds = envi("K", 8), envi("W", 30), envi("O", 30), envi("R", 1)
	c.Think = envi("T", 100)
}

func envi(n string, d int) int {
	if v, err := strconv.Atoi(os.Getenv(n)); err == nil {
		return v
	}
	return d
}

// loose: movers that do not wait for each other.
func loose(c *sim.Config) {
	c.Loose, c.Movers, c.Rounds, c.Kill, c.Writes, c.Clients = true, 3, 6, 0, 70, 4
}

func TestMistakesAreFound(t *testing.T) {
	for _, m := range mistakes {
		for _, unwatched := range []bool{false, true} {
			name := m.name
			if unwatched {
				if m.watched {
					continue
				}
				name += "/ByClientsAlone"
			}
			t.Run(name, func(t *testing.T) {
				found := false
				n := 0
				seeds(t, m.seeds, func(seed uint64) bool {
					n++
					c := sim.Random(seed)
					m.on(&c.Mistakes)
					if m.tune != nil {
						m.tune(&c)
					}
					c.Mistakes.Unwatched = unwatched
					r := run(t, c)
					if found = r.Err != nil; found {
						t.Logf("seed %d, number %d: %v", seed, n, r.Err)
					}
					return !found
				})
				require.True(t, found, "not found with %d seeds", n)
			})
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	seeds(t, 20, func(seed uint64) bool {
		var traces [2][]string
		for i := range traces {
			c := sim.Random(seed)
			c.Trace = func(s string) { traces[i] = append(traces[i], s) }
			require.NoError(t, run(t, c).Err, "EVENKEEL_SEED=%d", seed)
		}
		require.NotEmpty(t, traces[0])
		for i := range min(len(traces[0]), len(traces[1])) {
			require.Equal(t, traces[0][i], traces[1][i], "EVENKEEL_SEED=%d, step %d of %d and %d", seed, i, len(traces[0]), len(traces[1]))
		}
		return true
	})
}
