package sim_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/sim"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a run leaves much garbage and keeps little
	os.Exit(m.Run())
}

// form is a simulation that TestManySeeds runs, and the test that repeats a seed.
type form struct {
	run  func(*testing.T, uint64) sim.Report
	test string
}

var forms = map[string]form{
	"embedded":  {protocol(sim.Random), "TestProtocolHolds"},
	"network":   {protocol(sim.RandomNet), "TestProtocolHoldsOverTheNetwork"},
	"centres":   {protocol(sim.RandomCentres), "TestProtocolHoldsInTwoDataCentres"},
	"retention": {onStage(sim.RunRetention), "TestRetentionHoldsInTwoDataCentres"},
	"objects":   {onStage(sim.RunObjects), "TestObjectsHoldInTwoDataCentres"},
	"adoption":  {onStage(sim.RunAdoption), "TestAdoptionHoldsInTwoDataCentres"},
	"restores":  {onStage(sim.RunRestores), "TestRestoresHoldInTwoDataCentres"},
}

func protocol(draw func(uint64) sim.Config) func(*testing.T, uint64) sim.Report {
	return func(t *testing.T, seed uint64) sim.Report { return run(t, draw(seed)) }
}

func onStage(run func(sim.Config) sim.Report) func(*testing.T, uint64) sim.Report {
	return func(t *testing.T, seed uint64) sim.Report { return staged(t, run, sim.RandomStage(seed)) }
}

// total is what many runs did together.
type total struct {
	mu                                sync.Mutex
	begun                             time.Time
	next, first                       uint64
	seeds, violations                 int
	steps, swaps, cuts, acked, unsure int
}

func (s *total) add(r sim.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	if r.Err != nil {
		s.violations++
	}
	s.steps += r.Steps
	s.swaps += r.Swaps
	s.cuts += r.Outages
	s.acked += r.Acked
	s.unsure += r.Unknown
}

func (s *total) log(t *testing.T, form string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%s: %d seeds from %d on, %.1f/s, %d violations; %d steps, %d map changes, %d outages, %d acknowledged and "+
		"%d unknown writes", form, s.seeds, s.first, float64(s.seeds)/time.Since(s.begun).Seconds(), s.violations, s.steps,
		s.swaps, s.cuts, s.acked, s.unsure)
}

// As many seeds of each form as EVENKEEL_SIM_SEEDS says, on all processors: make sim SEEDS=n FORMS="centres network".
// The first seed is drawn, so that runs of different days add up.
func TestManySeeds(t *testing.T) {
	n, err := strconv.ParseUint(os.Getenv("EVENKEEL_SIM_SEEDS"), 10, 64)
	if err != nil {
		t.Skip("only with a number of seeds: make sim SEEDS=n")
	}
	wanted := strings.Fields(os.Getenv("EVENKEEL_SIM_FORMS"))
	if len(wanted) == 0 {
		wanted = slices.Sorted(maps.Keys(forms))
	}
	for _, name := range wanted {
		f, there := forms[name]
		require.True(t, there, "no form %q", name)
		sum := total{begun: time.Now(), first: rand.Uint64() / 2}
		t.Run(name, func(t *testing.T) {
			for range runtime.GOMAXPROCS(0) {
				t.Run("worker", func(t *testing.T) {
					t.Parallel()
					for said := time.Now(); ; {
						sum.mu.Lock()
						seed := sum.first + sum.next
						sum.next++
						over := sum.next > n
						sum.mu.Unlock()
						if over {
							return
						}
						r := f.run(t, seed)
						sum.add(r)
						if r.Err != nil {
							t.Errorf("%v\nrepeat with: EVENKEEL_SEED=%d go test -run '^%s$' ./internal/test/sim", r.Err, seed, f.test)
						}
						if time.Since(said) > time.Minute {
							said = time.Now()
							sum.log(t, name)
						}
					}
				})
			}
		})
		sum.log(t, name)
	}
}
