package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/test/plannertest"
	"github.com/evenkeel/evenkeel/rebalance"
)

// ran runs the program with a clock that goes on by a tick each time it is read.
func ran(t *testing.T, tick time.Duration, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	clock := time.Unix(0, 0)
	code = run(context.Background(), args, stdio{strings.NewReader(stdin), &o, &e, func() time.Time {
		clock = clock.Add(tick)
		return clock
	}})
	return code, o.String(), e.String()
}

func file(t *testing.T, l *rebalance.Layout, limits rebalance.Limits) string {
	t.Helper()
	data, err := rebalance.EncodeLayout(l, limits)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "layout.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

const small = `{"bucket":"b","limits":{"max_rows":100,"min_rows":20,"target_rows":60},"partitions":[
	{"id":"p1","start":"","quanta":[{"key":"a","rows":90},{"key":{"b64":"bf8="},"rows":70}]},
	{"id":"p2","start":"o","quanta":[{"key":"o","rows":5}]}]}`

func TestTable(t *testing.T) {
	t.Parallel()
	code, out, errs := ran(t, time.Millisecond, small, "plan", "--layout", "-", "--objective", "rows")
	require.Empty(t, errs)
	require.Zero(t, code)
	var lines []string
	for _, l := range strings.Split(out, "\n") {
		lines = append(lines, strings.TrimRight(l, " "))
	}
	require.Equal(t, `Bucket b: 165 rows; max_rows 100, min_rows 20, target_rows 60
Planned by exact for the rows objective

rows moved      75 of 165 (45.5 %)
lower bound     75 (met)
moves           2
partitions      2 -> 2
over max_rows   1 -> 0
under min_rows  1 -> 0

Rows per partition  before                                  after
empty               0                                       0
under 20            1       ##############################  0
20 - 35             0                                       0
36 - 51             0                                       0
52 - 67             0                                       0
68 - 83             0                                       1      ##############################
84 - 100            0                                       1      ##############################
over 100            1       ##############################  0
over 200            0                                       0

From  to     start  end       rows  why
p1    new-1  m\xff  o         70    split: p1 has 160 rows, over max_rows 100
p2    new-1  o      (no end)  5     merge: p2 has 5 rows, under min_rows 20: joined with its neighbours
`, strings.Join(lines, "\n"))
}

// The JSON has the fields of the format, and nothing is lost in it.
func TestJSON(t *testing.T) {
	t.Parallel()
	for _, planner := range []string{"exact", "greedy", "genetic", "auto"} {
		for _, objective := range []string{"rows", "full"} {
			code, out, errs := ran(t, time.Millisecond, small, "plan", "--layout", "-", "--format", "json",
				"--planner", planner, "--objective", objective)
			require.Empty(t, errs)
			require.Zero(t, code)
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(out), &got))
			require.Equal(t, "b", got["bucket"])
			require.Equal(t, map[string]any{"id": "new-1", "start": map[string]any{"b64": "bf8="}, "rows": 75.0},
				got["partitions"].([]any)[1])
			require.Equal(t, map[string]any{"from": "p2", "to": "new-1", "start": "o", "end": "", "rows": 5.0,
				"reason": "merge: p2 has 5 rows, under min_rows 20: joined with its neighbours"},
				got["moves"].([]any)[1])
			require.Equal(t, 75.0, got["rows_moved"])
			require.Equal(t, map[string]any{"rows_moved_lower_bound": 75.0, "gap": 0.0}, got["optimality"])
			require.Equal(t, objective, got["objective"].(map[string]any)["kind"])
			require.Equal(t, planner == "genetic", got["generations"] != nil)
		}
	}
}

// A plan found under a time limit is repeated by the seed and generations that it
// prints, in a file of any kind.
func TestRepeatsWhatItPrints(t *testing.T) {
	t.Parallel()
	for _, k := range plannertest.Kinds() {
		l, limits := k.Make(rand.New(rand.NewPCG(5, 5)))
		path := file(t, l, limits)
		code, limited, _ := ran(t, 10*time.Millisecond, "", "plan", "--layout", path, "--format", "json",
			"--planner", "genetic", "--seed=-7", "--time-limit", "100ms")
		require.Zero(t, code)
		var printed struct {
			Seed        int64
			Generations int
		}
		require.NoError(t, json.Unmarshal([]byte(limited), &printed))
		require.Equal(t, int64(-7), printed.Seed)
		require.LessOrEqual(t, printed.Generations, 10, k.Name)
		code, again, _ := ran(t, time.Hour, "", "plan", "--layout", path, "--format", "json", "--planner", "genetic",
			"--seed=-7", "--generations", strconv.Itoa(printed.Generations))
		require.Zero(t, code)
		require.Equal(t, limited, again, k.Name)
	}
}

func TestWrongLayouts(t *testing.T) {
	t.Parallel()
	code, out, errs := ran(t, 0,
		`{"limits":{"max_rows":5,"min_rows":6},"partitions":[{"id":"p","start":"","quanta":[{"key":"a","rows":-1}]}],"x":1} y`,
		"plan", "--layout", "-")
	require.Equal(t, daemon.ExitUnusable, code)
	require.Empty(t, out)
	require.Equal(t, `rebalancer: standard input is no layout:
  x: unknown field
  line 1, byte 116: something follows the layout: "y"
  limits.min_rows: is 6, above max_rows, which is 5
  partitions[0].quanta[0].rows: is negative: -1
`, errs)

	// A file full of problems is cut short.
	var b strings.Builder
	b.WriteString(`{"limits":{"max_rows":5},"partitions":[{"id":"p","start":""`)
	for range 1500 {
		b.WriteString(`},{"id":"","start":""`)
	}
	b.WriteString("}]}")
	code, _, errs = ran(t, 0, b.String(), "plan", "--layout", "-")
	require.Equal(t, daemon.ExitUnusable, code)
	require.True(t, strings.HasSuffix(errs, "\n  and 2000 more\n"), errs[len(errs)-50:])

	_, _, err := readLayout("-", strings.NewReader(small), int64(len(small)))
	require.NoError(t, err)
	_, _, err = readLayout("-", strings.NewReader(small), int64(len(small)-1))
	require.ErrorContains(t, err, "larger than")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "layout.json")
	require.NoError(t, os.WriteFile(path, []byte(small), 0o600))
	for want, lines := range map[int][]string{
		0: {"plan --layout " + path, "plan --help", "--help", "",
			"plan --layout " + path + " --weight spread=2 --weight moves=0"},
		daemon.ExitFailed: {"plan --layout /nowhere/at-all", "plan --layout " + filepath.Dir(path)},
		daemon.ExitUsage: {"plan", "plans", "plan --layout " + path + " --planner best",
			"plan --layout " + path + " --format xml",
			"plan --layout " + path + " --weight beauty=2", "plan --layout " + path + " --weight spread=-2",
			"plan --layout " + path + " --weight spread=NaN",
			"plan --layout " + path + " --generations -1", "plan --layout " + path + " --time-limit 0s",
			"plan --layout " + path + " extra"},
		daemon.ExitUnusable: {"plan --layout -"},
	} {
		for _, line := range lines {
			code, out, errs := ran(t, time.Millisecond, "", strings.Fields(line)...)
			require.Equal(t, want, code, "%s\n%s", line, errs)
			require.Equal(t, code == 0, errs == "", line)
			require.Equal(t, code != 0, out == "", line)
		}
	}
}

// What the limits ask for and nothing can give is said, and planned around.
func TestImpossibleLimits(t *testing.T) {
	t.Parallel()
	for layout, want := range map[string]string{
		`{"limits":{"max_rows":10,"min_rows":10},"partitions":[{"id":"p","start":"","quanta":[{"key":"a","rows":35},{"key":"b","rows":1}]}]}`: "1 ranges stay over max_rows 10",
		`{"limits":{"max_rows":10,"min_rows":9},"partitions":[{"id":"p","start":"","quanta":[{"key":"a","rows":7},{"key":"b","rows":7}]}]}`:   "2 ranges stay under min_rows 9",
		`{"limits":{"max_rows":10,"min_rows":9},"partitions":[{"id":"p","start":"","quanta":[{"key":"a","rows":7}]}]}`:                        "no minimum applies",
		`{"limits":{"max_rows":10,"target_rows":50},"partitions":[{"id":"p","start":"","quanta":[{"key":"a","rows":7}]}]}`:                    "target_rows 50 is not between",
	} {
		for _, planner := range []string{"exact", "greedy", "genetic"} {
			code, out, errs := ran(t, time.Millisecond, layout, "plan", "--layout", "-", "--planner", planner)
			require.Zero(t, code, errs)
			require.Contains(t, out, want)
		}
	}
}

// BenchmarkLargePlans is the whole command, a process of its own, on the two sizes
// that must be planned fast: what a user waits for, with reading and printing.
func BenchmarkLargePlans(b *testing.B) {
	thousand, limits := plannertest.Thousand(rand.New(rand.NewPCG(1, 1)), 1000, 100)
	huge, _ := plannertest.Huge(rand.New(rand.NewPCG(1, 1)), 100000)
	dir := b.TempDir()
	program := filepath.Join(dir, "rebalancer")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(b, err, "%s", out)
	for _, c := range []struct {
		name string
		l    *rebalance.Layout
	}{{"1000x100", thousand}, {"100000", huge}} {
		data, err := rebalance.EncodeLayout(c.l, limits)
		require.NoError(b, err)
		path := filepath.Join(dir, c.name+".json")
		require.NoError(b, os.WriteFile(path, data, 0o600))
		for _, objective := range []string{"rows", "full"} {
			for _, planner := range []string{"greedy", "exact", "genetic"} {
				b.Run(c.name+"/"+objective+"/"+planner, func(b *testing.B) {
					for b.Loop() {
						cmd := exec.Command(program, "plan", "--layout", path, "--planner", planner, "--objective",
							objective, "--seed", "1", "--format", "json")
						cmd.Stderr = os.Stderr
						out, err := cmd.Output()
						require.NoError(b, err)
						require.True(b, json.Valid(out))
					}
				})
			}
		}
	}
}
