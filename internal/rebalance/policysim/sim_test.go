package policysim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// play plays what is in a scenario's text.
func play(t *testing.T, lines ...string) *Report {
	t.Helper()
	s, err := Read(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
	r, err := Run(context.Background(), s)
	require.NoError(t, err)
	t.Logf("%+v", r.Total)
	return r
}

// A bucket into which thirty times max_rows are loaded: cuts by forecast move less
// than cuts of what is too large already, and at rest nothing is over the limit.
func TestALoadAtRandomKeys(t *testing.T) {
	head := []string{"days: 0.02", "step: 30s", "tenants: [{kind: random, per_minute: 3000, to: 0.00695}]"}
	forecast := play(t, head...).Total
	late := play(t, append(head, "policy: {grow_by: 0}")...).Total
	require.Equal(t, int64(30_000), forecast.Rows/1000*1000)
	require.Less(t, forecast.MovedPerRow, 0.5)
	require.Less(t, forecast.MovedPerRow, late.MovedPerRow)
	require.LessOrEqual(t, forecast.LongestOver, 30*time.Second, "one step")
	require.LessOrEqual(t, forecast.Worst, 1.6)
}

// Loads at random keys move at most half a row per row, at any speed, and what was cut
// stays cut.
func TestLoadsAtAnySpeed(t *testing.T) {
	for _, perMinute := range []float64{100, 300, 1000, 3000} {
		days := 25_000 / perMinute / 60 / 24
		r := play(t, fmt.Sprintf("days: %g", 2*days+0.05), "step: 30s",
			fmt.Sprintf("tenants: [{kind: random, per_minute: %g, to: %g}]", perMinute, days)).Total
		require.LessOrEqual(t, r.MovedPerRow, 0.5, "%g rows per minute", perMinute)
		require.LessOrEqual(t, r.LongestOver, 30*time.Second, "one step")
		require.Zero(t, r.SplitsUndone+r.MergesUndone)
	}
}

// What grows at one end is cut there: halves would move each row about once.
func TestGrowthAtOneEnd(t *testing.T) {
	for kind, most := range map[Kind]float64{Reversed: 0.05, Dates: 0.5} {
		r := play(t, "days: 10", "step: 5m", fmt.Sprintf("tenants: [{kind: %s, per_minute: 1, count: 2}]", kind)).Total
		require.Greater(t, r.Partitions, int64(20))
		require.LessOrEqual(t, r.MovedPerRow, most, kind)
		require.LessOrEqual(t, r.Worst, 1.1, kind)
	}
}

// Appends are rolled: nearly no row ever moves, also where keys can't be foreseen.
func TestAppends(t *testing.T) {
	for _, opaque := range []string{"false", "true"} {
		r := play(t, "days: 2", "step: 1m", "tenants: [{kind: append, per_minute: 20, opaque: "+opaque+"}]").Total
		require.Greater(t, r.Rolls, 20)
		require.LessOrEqual(t, r.MovedPerRow, 0.01)
		require.LessOrEqual(t, r.Worst, 1.2)
	}
	without := play(t, "days: 2", "step: 1m", "policy: {roll: false}", "tenants: [{kind: append, per_minute: 20}]").
		Total
	require.Greater(t, without.MovedPerRow, 0.1,
		"it is rolling that spares the moves, more than a cut near the end does")
}

func TestOverwritesSplitNothing(t *testing.T) {
	r := play(t, "days: 3", "step: 5m", "tenants: [{kind: overwrite, keys: 600, per_minute: 10}]").Total
	require.Zero(t, r.Splits+r.Merges+r.Rolls)
	require.Equal(t, int64(600), r.Rows)
	require.Equal(t, int64(1), r.Partitions)
}

func TestDeletionsAreMerged(t *testing.T) {
	r := play(t, "days: 4", "step: 5m",
		"tenants: [{kind: random, per_minute: 10, to: 1, delete_at: [2], delete_keep: 0.05}]").Total
	require.Greater(t, r.Splits, 5)
	require.Less(t, r.Rows, int64(1000))
	require.LessOrEqual(t, r.Partitions, int64(4))
}

// A queue that holds few rows at a time stays one range.
func TestAQueueStaysSmall(t *testing.T) {
	r := play(t, "days: 2", "step: 5m", "tenants: [{kind: queue, per_minute: 10}]").Total
	require.LessOrEqual(t, r.Partitions, int64(3))
	require.LessOrEqual(t, r.MovedPerRow, 0.05)
}

// Counters that lie ten times cost recounts, not moves.
func TestLies(t *testing.T) {
	text := []string{"days: 1", "step: 5m", "tenants: [{kind: random, per_minute: 0.5, count: 2}]"}
	honest := play(t, text...)
	lies := play(t, append(text, "counter: {times: 10}")...)
	require.Greater(t, lies.Recounts, honest.Recounts)
	require.Equal(t, honest.Total.Splits, lies.Total.Splits)
	require.Less(t, lies.Recounts, int64(2*24*3), "recounts in vain back off")
	lost := play(t, append(text, "counter: {lost: 0.05}")...)
	require.LessOrEqual(t, lost.Total.Worst, 1.2)
}

func TestAScenarioRepeats(t *testing.T) {
	text := []string{"days: 0.5", "step: 5m",
		"tenants: [{kind: random, per_minute: 10, count: 3}, {kind: append, per_minute: 10}, {kind: dates, per_minute: 5}]"}
	require.Equal(t, play(t, text...), play(t, text...))
	require.NotEqual(t, play(t, text...), play(t, append(text, "seed: 2")...))
}

func TestPlanners(t *testing.T) {
	for _, planner := range policy.Planners() {
		r := play(t, "days: 0.2", "step: 1m", "planner: "+planner, "tenants: [{kind: random, per_minute: 100}]").Total
		require.Equal(t, r.Written, r.Rows, "no row is lost by moving")
		require.Positive(t, r.ByCause[policy.Rows]+r.ByCause[policy.Forecast])
	}
}

// Everything that is wrong is said, at once.
func TestWrongScenarios(t *testing.T) {
	_, err := Read(strings.NewReader("days: -1\nmax_rows: 3\nplanner: best\ntenants: [{kind: odd}, {kind: overwrite, per_minute: -1}]"))
	for _, part := range []string{"days is -1", "max_rows is 3", `planner is "best"`, `tenants[0].kind is "odd"`,
		"tenants[1].keys is 0", "tenants[1].per_minute is -1"} {
		require.ErrorContains(t, err, part)
	}
	for _, text := range []string{"", "days: 1", "days: 1\nnonsense: 2", "days: .nan\ntenants: [{kind: random}]", "[",
		"days: 1e9\nstep: 1ns\ntenants: [{kind: random}]"} {
		_, err := Read(strings.NewReader(text))
		require.Error(t, err, text)
	}
}

func TestBuiltinScenariosAreRight(t *testing.T) {
	require.NotEmpty(t, Names())
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
