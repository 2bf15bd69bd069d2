package policysim

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// read reads a scenario's text.
func read(t *testing.T, lines ...string) *Scenario {
	t.Helper()
	s, err := Read(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return s
}

// play plays what is in a scenario's text.
func play(t *testing.T, lines ...string) *Report {
	t.Helper()
	r, err := Run(context.Background(), read(t, lines...))
	require.NoError(t, err)
	t.Logf("%+v", r.Total)
	return r
}

// A bucket into which ten times max_rows are loaded: cuts by forecast move less than cuts of what is too large
// already, and at rest nothing is over the limit.
func TestALoadAtRandomKeys(t *testing.T) {
	head := []string{"days: 0.02", "tenants: [{loads: [{rows: 10000, per_s: 50}]}]"}
	forecast := play(t, head...).Total
	late := play(t, append(head, "policy: {grow_by: 0}")...).Total
	require.Equal(t, int64(10_000), forecast.Rows)
	require.Less(t, forecast.MovedPerRow, late.MovedPerRow)
}

// A load that begins some time after the recorder is counted as it is: a program's recorder has flushed, if nothing,
// each second before.
func TestRatesOfALoadThatBeginsLater(t *testing.T) {
	for seed := range uint64(5) {
		s := read(t, "days: 0.0005", "tenants: [{loads: [{rows: 4000, per_s: 40}]}]")
		s.Seed += seed
		seen := 0.0
		_, err := run(t.Context(), s, func(_ store.BucketID, in *policy.Input, _ []policy.Decision) {
			if st := &in.Ranges[0].Stats; seen == 0 && st.Rows >= 300 {
				seen = st.PutsPerS
			}
		})
		require.NoError(t, err)
		require.InDelta(t, 40, seen, 6, "seed %d", s.Seed)
	}
}

// What grows at one end is cut there: halves would move each row about once.
func TestGrowthAtOneEnd(t *testing.T) {
	for kind, most := range map[Kind]float64{Reversed: 0.05, Dates: 0.5} {
		r := play(t, "days: 10", "step: 5m", fmt.Sprintf("tenants: [{kind: %s, per_minute: 1, count: 2}]", kind)).Total
		require.Greater(t, r.Partitions, int64(20))
		require.LessOrEqual(t, r.MovedPerRow, most, kind)
		require.LessOrEqual(t, r.Worst, 1.2, kind)
	}
}

// Appends are rolled: nearly no row ever moves, also where keys can't be foreseen.
func TestAppends(t *testing.T) {
	for opaque, most := range map[string]float64{"false": 0.01, "true": 0.05} {
		r := play(t, "days: 0.6", "step: 10s", "tenants: [{kind: append, per_minute: 20, opaque: "+opaque+"}]").Total
		require.Greater(t, r.Rolls, 8)
		require.LessOrEqual(t, r.MovedPerRow, most)
		require.LessOrEqual(t, r.Worst, 1.2)
	}
	without := play(t, "days: 0.6", "step: 10s", "policy: {roll: false}", "tenants: [{kind: append, per_minute: 20}]").Total
	require.Greater(t, without.MovedPerRow, 0.1,
		"it is rolling that spares the moves, more than a cut near the end does")
}

func TestOverwritesSplitNothing(t *testing.T) {
	r := play(t, "days: 0.5", "tenants: [{kind: overwrite, keys: 600, per_minute: 10}]").Total
	require.Zero(t, r.Splits+r.Merges+r.Rolls)
	require.Equal(t, int64(600), r.Rows)
	require.Equal(t, int64(1), r.Partitions)
}

func TestDeletionsAreMerged(t *testing.T) {
	r := play(t, "days: 4", "step: 1m",
		"tenants: [{kind: random, per_minute: 10, to: 1, delete_at: [2], delete_keep: 0.05}]").Total
	require.Greater(t, r.Splits, 5)
	require.Less(t, r.Rows, int64(1000))
	require.LessOrEqual(t, r.Partitions, int64(4))
}

// Counters that lie ten times cost recounts, not moves.
func TestLies(t *testing.T) {
	text := []string{"days: 1", "tenants: [{kind: random, per_minute: 0.5, count: 2}]"}
	honest := play(t, text...)
	lies := play(t, append(text, "counter: {times: 10}")...)
	require.Greater(t, lies.Recounts, honest.Recounts)
	require.Equal(t, honest.Total.Splits, lies.Total.Splits)
	require.Less(t, lies.Recounts, int64(2*24*3), "recounts in vain back off")
	lost := play(t, append(text, "counter: {lost: 0.05}")...)
	require.LessOrEqual(t, lost.Total.Worst, 1.2)
}

func TestAScenarioRepeats(t *testing.T) {
	text := []string{"days: 0.03", "tenants: [{loads: [{per_s: 1}, {keys: append, per_s: 1}, {keys: date-hash, per_s: 1}, " +
		"{do: delete, share: 0.5, per_s: 10, from: 20m}]}]"}
	require.Equal(t, play(t, text...), play(t, text...))
	require.NotEqual(t, play(t, text...), play(t, append(text, "seed: 2")...))
}

func TestPlanners(t *testing.T) {
	for _, planner := range policy.Planners() {
		r := play(t, "days: 0.04", "planner: "+planner, "tenants: [{kind: random, per_minute: 100, to: 0.035}]").Total
		require.Equal(t, r.Written, r.Rows, "no row is lost by moving")
		require.Positive(t, r.ByCause[policy.Rows]+r.ByCause[policy.Forecast])
	}
}

// requireReplay demands that a stored input gives the same decisions.
// It is called by goroutines of a balancer, which a failure must not end.
func requireReplay(t *testing.T, in *policy.Input, ds []policy.Decision) {
	stored, err := json.Marshal(in)
	require.NoError(t, err)
	var read policy.Input
	require.NoError(t, json.Unmarshal(stored, &read))
	assert.Equal(t, ds, policy.Decide(read))
}

// Every input of a run, stored and read back, gives the same decisions.
func TestInputsOfARunCanBeReplayed(t *testing.T) {
	s := read(t, "days: 0.1", "tenants: [{kind: random, per_minute: 50}, {kind: append, per_minute: 50}, "+
		"{kind: reversed, per_minute: 50}, {kind: random, per_minute: 30, to: 0.05, delete_at: [0.06], delete_keep: 0.05}]")
	kinds := map[policy.Kind]int{}
	_, err := run(t.Context(), s, func(_ store.BucketID, in *policy.Input, ds []policy.Decision) {
		requireReplay(t, in, ds)
		for _, d := range ds {
			kinds[d.Kind]++
		}
	})
	require.NoError(t, err)
	for _, k := range []policy.Kind{policy.Split, policy.Roll, policy.Merge, policy.None} {
		require.Positive(t, kinds[k], "%s: %v", k, kinds)
	}
}

// Moves take the time of their phases and of their rows at the pace; meanwhile writes go on, and go where the map says.
// None is under way at the end, when rows are counted.
func TestMovesTakeTheirTime(t *testing.T) {
	text := []string{"days: 0.05", "tenants: [{loads: [{rows: 3000, per_s: 3000}, {per_s: 1, from: 1s, to: 1h}]}]"}
	at := map[string]Result{}
	for name, change := range map[string]string{
		"as programs": "seed: 1", "slow pace": "pace: 20", "long phases": "phase: 1m",
	} {
		at[name] = play(t, append(text, change)...).Total
		require.Equal(t, at[name].New, at[name].Rows, "%s: no row is lost by moving", name)
		require.Positive(t, at[name].Moved)
	}
	programs := at["as programs"].LongestOver
	// A look, five waits, and 2,000 rows that are copied and compared at 200 per second.
	require.Greater(t, programs, 16*time.Second+20*time.Second)
	require.Less(t, programs, 2*time.Minute)
	require.Greater(t, at["slow pace"].LongestOver, programs+2*time.Minute)
	require.Greater(t, at["long phases"].LongestOver, programs+3*time.Minute)
}

// Rows above a cut ahead, when it takes effect, are copied, and reported so.
func TestRowsThatARollCopiesAreCounted(t *testing.T) {
	r := play(t, "days: 0.01", "tenants: [{loads: [{keys: append, gaps: wild, per_s: 20}]}]").Total
	require.Positive(t, r.Rolls)
	require.Positive(t, r.ByCause[policy.Appends])
	all := int64(0)
	for _, n := range r.ByCause {
		all += n
	}
	require.Equal(t, r.Moved, all)
}

// What a fault does is seen in what comes of it.
func TestFaults(t *testing.T) {
	appends := "tenants: [{loads: [{keys: append, per_s: 10, to: 20m}]}]"
	random := "tenants: [{loads: [{per_s: 10, to: 20m}]}]"
	for _, c := range []struct {
		what FaultKind
		load string
		seen bool
	}{
		{CountersAway, random, true}, {MovesAway, random, true},
		{CountersAway, appends, false}, // hot tails are read directly
		{MovesAway, appends, false},    // a reserve was cut ahead
	} {
		well := play(t, "days: 0.02", c.load).Total
		r := play(t, "days: 0.02", c.load, fmt.Sprintf("faults: [{what: %s, from: 5m, to: 15m}]", c.what)).Total
		require.Equal(t, c.seen, r.LongestOver > well.LongestOver, "%s: %v, without it %v", c.what, r.LongestOver,
			well.LongestOver)
		require.Equal(t, r.New, r.Rows)
	}
	slow := play(t, "days: 0.02", "tenants: [{name: quiet, count: 1000, start: {ranges: 1}}, {loads: [{per_s: 5}]}]",
		"faults: [{what: slow, by: 1m}]").Total
	fast := play(t, "days: 0.02", "tenants: [{name: quiet, count: 1000, start: {ranges: 1}}, {loads: [{per_s: 5}]}]").Total
	require.Greater(t, slow.Worst, fast.Worst)
}

// The patterns of keys, and how many requests a load makes.
func TestLoads(t *testing.T) {
	keys := func(load string) (out []request) {
		s := read(t, "days: 2", "tenants: [{loads: ["+load+"]}]")
		p := newPlayer(&s.Tenants[0], time.Unix(0, 0), s.end(), 1)
		for at := time.Duration(0); at < s.end(); at += time.Minute {
			p.until(at, func(r request) { out = append(out, r) })
		}
		return out
	}
	first := func(load string) (out []string) {
		for _, r := range keys(load) {
			out = append(out, string(r.do)+" "+r.key)
		}
		return out
	}
	require.Equal(t, []string{"put a/00000001", "put a/00000002"}, first("{keys: append, prefix: a/, rows: 2, per_s: 1}"))
	require.Equal(t, []string{"put 99999998", "put 99999997"}, first("{keys: descending, rows: 2, per_s: 1}"))
	require.Equal(t, []string{"put 1970-01-01/000001", "put 1970-01-02/000001"},
		first("{keys: date-counter, rows: 1, per_s: 1, every: 24h, times: 2}"))
	require.Equal(t, []string{"put 00000001", "put 00000002", "delete 00000001", "put 00000003", "delete 00000002"},
		first("{keys: append, rows: 3, per_s: 1}, {do: delete, keep: 1}"), "a queue")
	require.Len(t, keys("{per_s: 0.5, to: 10m}"), 300)
	require.Len(t, keys("{rows: 7}"), 7, "at once")
	require.Len(t, keys("{rows: 100, per_s: 1}, {do: delete, share: 0.25, per_s: 1, from: 10m}"), 125)
	all := keys("{rows: 100, per_s: 1}, {do: delete, share: 1, from: 10m}")
	require.Len(t, all, 200)
	seen := map[string]int{}
	for _, r := range all {
		seen[r.key]++
	}
	require.Len(t, seen, 100, "each is deleted once")
	days := map[string]bool{}
	for _, r := range keys("{keys: daily-name, per_s: 0.001}") {
		name, _, _ := strings.Cut(r.key, "/")
		days[name] = true
	}
	require.Len(t, days, 2)
	prefixes := map[string]bool{}
	for _, k := range first("{keys: append, prefixes: 100, rows: 10000, per_s: 1}") {
		prefixes[k[:len("put t00/")]] = true
	}
	require.Len(t, prefixes, 100)
	near := 0
	for _, r := range keys("{do: get, keys: hotspot, share: 0.4, within: 0.01, rows: 10000, per_s: 1}") {
		if strings.HasPrefix(r.key, "55") || strings.HasPrefix(r.key, "56") || strings.HasPrefix(r.key, "57") {
			near++
		}
	}
	require.InDelta(t, 4000, near, 300)
	last := ""
	for _, k := range first("{keys: uuidv7, rows: 100, per_s: 1}") {
		require.Less(t, last, k)
		last = k
	}
	// Requests do not depend on how time is cut.
	s := read(t, "days: 1", "tenants: [{loads: [{per_s: 0.1}, {do: delete, share: 0.5, per_s: 1, from: 3h}]}]")
	var coarse, fine []request
	a, b := newPlayer(&s.Tenants[0], time.Unix(0, 0), s.end(), 1), newPlayer(&s.Tenants[0], time.Unix(0, 0), s.end(), 1)
	a.until(s.end(), func(r request) { coarse = append(coarse, r) })
	for b.next() < never {
		b.until(b.next(), func(r request) { fine = append(fine, r) })
	}
	require.Equal(t, coarse, fine)
}

// Everything that is wrong is said, at once.
func TestWrongScenarios(t *testing.T) {
	_, err := Read(strings.NewReader("days: -1\nmax_rows: 3\nplanner: best\nphase: 1ms\n" +
		"faults: [{what: rain}, {what: slow}, {what: moves, from: 2h, to: 1h}]\n" +
		"tenants: [{kind: odd}, {kind: overwrite, per_minute: -1}, {}, {loads: [{keys: odd}, {do: eat}, {}, " +
		"{do: get, keep: 3}, {keys: again}, {gaps: wild, per_s: 1}, {per_s: 1, from: 2h, to: 1h}, {per_s: 1, times: 3}, " +
		"{per_s: 1, share: 2}, {first: 3, per_s: 1}]}]"))
	for _, part := range []string{"days is -1", "max_rows is 3", `planner is "best"`, `tenants[0].kind is "odd"`,
		"tenants[1].keys is 0", "tenants[1].per_minute is -1", "tenants[2] has neither", "phase 1ms",
		`tenants[3].loads[0].keys is "odd"`, `loads[1].do is "eat"`, "loads[2] has neither", "loads[3].keep",
		"loads[4].among is 0", `loads[5].gaps is "wild"`, "loads[6] lasts from 2h0m0s to 1h0m0s", "loads[7].times is 3",
		"loads[8].share is 2", "loads[9].first", `faults[0].what is "rain"`, "faults[1].by is 0s", "faults[2] lasts"} {
		require.ErrorContains(t, err, part)
	}
	for _, text := range []string{"", "days: 1", "days: 1\nnonsense: 2", "days: .nan\ntenants: [{kind: random}]", "[",
		"days: 1e9\ntenants: [{kind: random}]", "days: 1\nstep: 1ns\ntenants: [{kind: random}]",
		"days: 100\ntenants: [{loads: [{per_s: 1000}]}]", "days: 1\ntenants: [{kind: random, count: 10, start: {ranges: 200000}}]",
	} {
		_, err := Read(strings.NewReader(text))
		require.Error(t, err, text)
	}
}

// Each target is compared.
func TestTargets(t *testing.T) {
	s := read(t, "days: 1", "tenants: [{kind: random}]", "targets: {copied: 0.1, largest: 1.2, over: 1m, ranges: 5, "+
		"by_ideal: 1.5, tombstones: 2, hottest: 0.25}")
	good := Result{CopiedPerRow: 0.1, Worst: 1.2, LongestFar: time.Minute, Partitions: 3, Ideal: 2, Tombstones: 2,
		Hottest: 0.25, Undone: allowedUndone}
	require.Empty(t, s.missed(&good))
	for part, change := range map[string]func(*Result){
		"copied per row":      func(r *Result) { r.CopiedPerRow = 0.11 },
		"largest":             func(r *Result) { r.Worst = math.Inf(1) },
		"over 1.2":            func(r *Result) { r.LongestFar = 2 * time.Minute },
		"6 ranges":            func(r *Result) { r.Partitions, r.Ideal = 6, 6 },
		"x the fewest":        func(r *Result) { r.Partitions = 4 },
		"tombstones":          func(r *Result) { r.Tombstones = 2.1 },
		"requests":            func(r *Result) { r.Hottest = 0.3 },
		"undone per decision": func(r *Result) { r.Undone = 0.06 },
	} {
		bad := good
		change(&bad)
		missed := s.missed(&bad)
		require.Len(t, missed, 1)
		require.Contains(t, missed[0], part)
	}
	v := NewVerdict(s)
	v.Add(&Report{Total: good})
	bad := good
	bad.CopiedPerRow, bad.Worst = 0.2, 0.1
	v.Add(&Report{Total: bad})
	require.Len(t, v.Missed, 1, "the worst of each counts")
	require.Contains(t, v.Row(), "| 0.200 (0.1) | 1.20 (1.2) | 1m0s (1m0s) | 3 / 2 (5) |")
	require.Contains(t, v.Row(), "MISSED")
}

func TestBuiltinScenariosAreRight(t *testing.T) {
	require.Subset(t, Names(), []string{"giant", "lies", "load", "months", "speeds", "append-170"})
	for _, name := range Names() {
		s, known, err := Builtin(name)
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, name, s.Name)
		require.NotEmpty(t, s.Text)
	}
	_, known, err := Builtin("nothing")
	require.NoError(t, err)
	require.False(t, known)
}

func TestAnInterruptedRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s, _, err := Builtin("months")
	require.NoError(t, err)
	_, err = Run(ctx, s)
	require.ErrorIs(t, err, context.Canceled)
}
