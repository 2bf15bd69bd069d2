package policysim

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// variable names the scenarios that are played over the real parts, as patterns of names with commas between them; the
// number of seeds follows a colon: "append-*,burst-*:5". Without it short ones are played, with one seed.
const variable = "EVENKEEL_SCENARIOS"

// short are scenarios that take a second or two over the real parts, and reach their targets.
var short = []string{"burst-150-1s", "burst-300-60s", "burst-600-60s", "burst-900-60s"}

// missed are scenarios that miss a target over the real parts.
var missed = []string{
	"absent", "append-170", "appends-100", "burst-3000-60s", "date-counter", "date-hash", "queue-3000", "random-1000m",
	"random-100m", "random-10m", "random-300m", "random-30m", "swing", "uuidv7-100", "uuidv7-17",
}

// Over the real parts, in virtual time, each scenario reaches its targets, the worst of its seeds counted; and the
// simulator comes to about the same. Where ranges flap it does not: chance decides how often.
func TestScenariosOverTheRealParts(t *testing.T) {
	names, seeds := short, 1
	if v := os.Getenv(variable); v != "" {
		patterns, n, given := strings.Cut(v, ":")
		if given {
			var err error
			seeds, err = strconv.Atoi(n)
			require.NoError(t, err)
		}
		names = nil
		for _, name := range Names() {
			s, _, err := Builtin(name)
			require.NoError(t, err)
			if s.Targets == nil && !slices.Contains(strings.Split(patterns, ","), name) {
				continue // it lasts for months
			}
			if slices.ContainsFunc(strings.Split(patterns, ","), func(p string) bool {
				ok, err := path.Match(p, name)
				require.NoError(t, err)
				return ok
			}) {
				names = append(names, name)
			}
		}
	}
	require.NotEmpty(t, names, "%s names no scenario", variable)
	t.Log("\n" + verdictHead)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, err := Builtin(name)
			require.NoError(t, err)
			v, simulated := NewVerdict(s), NewVerdict(s)
			for range seeds {
				v.Add(real(t, s, nil))
				r, err := Run(t.Context(), s)
				require.NoError(t, err)
				simulated.Add(r)
				s.Seed++
			}
			t.Log(v.Row())
			t.Log("simulated:", simulated.Row())
			if len(v.Missed) == 0 {
				requireLike(t, v, simulated)
			}
			for _, m := range v.Missed {
				if slices.Contains(missed, name) {
					t.Log("missed, as is known:", m)
				} else {
					t.Error(m)
				}
			}
		})
	}
}

// Over the real parts short loads come to about the same as in the simulator, some time after they have ended: before,
// there may or may not be a reserve just now. Each input of a decision, stored and read back, gives that decision.
func TestTheRealPartsComeToTheSame(t *testing.T) {
	for name, load := range map[string]string{
		"random":            "{per_s: 5, to: 40m}",
		"appends":           "{keys: append, per_s: 5, to: 40m}",
		"descending":        "{keys: descending, per_s: 2, to: 40m}",
		"hotspot":           "{keys: hotspot, per_s: 5, to: 40m}",
		"a queue":           "{keys: append, per_s: 5, to: 40m}, {do: delete, keep: 300, to: 40m}",
		"deletes at random": "{rows: 3000, per_s: 20}, {do: delete, share: 0.9, per_s: 20, from: 10m}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := read(t, "days: 0.08", "tenants: [{loads: ["+load+"]}]")
			v, simulated := NewVerdict(s), NewVerdict(s)
			v.Add(real(t, s, func(_ store.BucketID, in *policy.Input, ds []policy.Decision) { requireReplay(t, in, ds) }))
			r, err := Run(t.Context(), s)
			require.NoError(t, err)
			simulated.Add(r)
			t.Logf("%s, simulated %s", v.Row(), simulated.Row())
			requireLike(t, v, simulated)
		})
	}
}

// requireLike demands that a simulation comes to about the same as the real parts.
func requireLike(t *testing.T, real, simulated *Verdict) {
	near := func(what string, a, b, most float64) {
		require.LessOrEqual(t, math.Abs(a-b), most, "%s: %.3g over the real parts, %.3g simulated", what, a, b)
	}
	// Whether a range is cut once more is chance where few rows come.
	one := float64(real.s.MaxRows) / max(1, real.requests)
	near("rows copied per row", real.CopiedPerRow, simulated.CopiedPerRow, 0.05+0.2*real.CopiedPerRow+one)
	near("the largest partition", real.Worst, simulated.Worst, 0.1+0.2*real.Worst)
	near("ranges", float64(real.Partitions), float64(simulated.Partitions), 2+0.1*float64(real.Partitions))
	near("tombstones", real.Tombstones, simulated.Tombstones, 0.2+0.2*real.Tombstones)
	near("the hottest range's share", real.Hottest, simulated.Hottest, 0.1)
}
