package sim_test

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/test/sim"
)

// staged runs one simulation on a stage in a bubble.
func staged(t *testing.T, run func(sim.Config) sim.Report, c sim.Config) (r sim.Report) {
	synctest.Test(t, func(*testing.T) { r = run(c) })
	return r
}

func TestRetentionHoldsInTwoDataCentres(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(4), func(seed uint64) bool {
		r := staged(t, sim.RunRetention, sim.RandomStage(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Dropped += r.Dropped
		sum.Outages += r.Outages
		sum.Later += r.Later
		return true
	})
	require.Positive(t, sum.Dropped)
	t.Logf("%+v", sum)
}

func TestObjectsHoldInTwoDataCentres(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(4), func(seed uint64) bool {
		r := staged(t, sim.RunObjects, sim.RandomStage(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Dropped += r.Dropped
		sum.Uploads += r.Uploads
		sum.Outages += r.Outages
		sum.Later += r.Later
		return true
	})
	t.Logf("%+v", sum)
}

func TestAdoptionHoldsInTwoDataCentres(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(10), func(seed uint64) bool {
		r := staged(t, sim.RunAdoption, sim.RandomStage(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Outages += r.Outages
		sum.Later += r.Later
		return true
	})
	t.Logf("%+v", sum)
}

func TestRestoresHoldInTwoDataCentres(t *testing.T) {
	var sum sim.Report
	seed.Each(t, many(4), func(seed uint64) bool {
		r := staged(t, sim.RunRestores, sim.RandomStage(seed))
		require.NoError(t, r.Err)
		sum.Steps += r.Steps
		sum.Swaps += r.Swaps
		sum.Acked += r.Acked
		sum.Unknown += r.Unknown
		sum.Shown += r.Shown
		sum.Absent += r.Absent
		sum.Restores += r.Restores
		sum.Outages += r.Outages
		sum.Later += r.Later
		return true
	})
	require.Positive(t, sum.Restores)
	t.Logf("%+v", sum)
}

// Mistakes of what lies above listings are found.
func TestMistakesOnStageAreFound(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("needs many seeds: make sim")
	}
	wanted := sampled(t)
	for _, m := range []struct {
		name string
		run  func(sim.Config) sim.Report
		on   func(m *sim.Mistakes)
		// rare: found within a minute, and looked for with EVENKEEL_SIM_TIME only.
		rare bool
	}{
		{"a retention that looks at one data centre", sim.RunRetention, func(m *sim.Mistakes) { m.NearPurge = true }, false},
		{"a retention that deletes by the time of its call", sim.RunRetention,
			func(m *sim.Mistakes) { m.PurgeByCall = true }, true},
		{"a cleaner that reads and writes in one data centre", sim.RunObjects,
			func(m *sim.Mistakes) { m.NearCleaner = true }, false},
		{"an adoption that reads the source before its mark", sim.RunAdoption,
			func(m *sim.Mistakes) { m.ReadBeforeMark = true }, false},
		{"a catch-up that looks at one data centre", sim.RunAdoption,
			func(m *sim.Mistakes) { m.NearCatchUp = true }, false},
		{"a mover that leaves no notes", sim.RunRestores, func(m *sim.Mistakes) { m.NoNotes = true }, false},
		{"a repair that takes a purge for a move", sim.RunRestores,
			func(m *sim.Mistakes) { m.PurgeForMove = true }, false},
		{"a repair that looks at one data centre", sim.RunRestores,
			func(m *sim.Mistakes) { m.NearRepair = true }, false},
		{"snapshots of rows that are far apart", sim.RunRestores,
			func(m *sim.Mistakes) { m.FarSnapshots = true }, true},
		{"snapshots of maps long after those of rows", sim.RunRestores,
			func(m *sim.Mistakes) { m.LateMaps = true }, true},
	} {
		if !wanted() || m.rare && os.Getenv("EVENKEEL_SIM_TIME") == "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found, n := false, 0
			seed.Each(t, 1500, func(seed uint64) bool {
				n++
				c := sim.RandomStage(seed)
				m.on(&c.Mistakes)
				r := staged(t, m.run, c)
				if found = r.Err != nil; found {
					t.Logf("found with seed %d, the %dth: %v", seed, n, r.Err)
				}
				return !found
			})
			require.True(t, found, "nothing was violated with %d seeds", n)
		})
	}
}

// Of objects, adoptions and restores a seed gives the same run mostly: IDs of versions and of what a repair makes, and
// pauses before another try, are drawn at random.
func TestSameSeedSameRetention(t *testing.T) {
	seed.Each(t, race.Fewer(5), func(seed uint64) bool {
		var traces [2][]string
		for i := range traces {
			c := sim.RandomStage(seed)
			c.Trace = func(s string) { traces[i] = append(traces[i], s) }
			require.NoError(t, staged(t, sim.RunRetention, c).Err)
		}
		require.Equal(t, traces[0], traces[1])
		return true
	})
}
