package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
	"github.com/evenkeel/evenkeel/bench/layouts/bench"
)

// ran runs the program.
func ran(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}} {
		code, out, errs := ran(t, args...)
		require.Zero(t, code)
		require.Empty(t, errs)
		require.Contains(t, out, "Begin like this")
		require.Contains(t, out, "Exit codes")
	}
	code, _, errs := ran(t, "nonsense")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `Run "layoutbench --help" for help.`)
	code, _, errs = ran(t, "layouts", "--format", "xml")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `Run "layoutbench layouts --help" for help.`)
}

func TestLayoutsArePrinted(t *testing.T) {
	code, out, _ := ran(t, "layouts")
	require.Zero(t, code)
	code, js, _ := ran(t, "layouts", "--format", "json")
	require.Zero(t, code)
	var kinds []layouts.Kind
	require.NoError(t, json.Unmarshal([]byte(js), &kinds))
	require.Equal(t, layouts.Kinds(), kinds)
	for _, k := range kinds {
		require.Contains(t, out, k.Name)
	}
}

// A small run over Pebble, all of it checked as it always is, and what it refuses.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	code, out, errs := ran(t, "run", "--store", "pebble", "--keys", "2000", "--pages", "2", "--sets", "dates,zipf,feed",
		"--json", file, "--time", "119s")
	require.Zero(t, code, errs)
	require.Contains(t, out, "everything that was read was right")
	require.Contains(t, out, "left out: what growth costs", "it takes two minutes")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var r bench.Report
	require.NoError(t, json.Unmarshal(text, &r))
	seen := map[string]bool{}
	for _, l := range r.Lines {
		require.Positive(t, l.P50)
		seen[l.Set+" "+l.Layout] = true
	}
	for _, want := range []string{"dates evenkeel", "dates wide", "dates hash256", "dates prefix", "zipf evenkeel",
		"zipf bare", "feed days", "feed daysxN", "feed evenkeel"} {
		require.True(t, seen[want], "%s: %v", want, seen)
	}
	for _, args := range [][]string{{"--keys", "1"}, {"--layouts", "none"}, {"--sets", "none"}, {"--store", "none"},
		{"--time", "-1s"}} {
		code, _, errs := ran(t, append([]string{"run"}, args...)...)
		require.Equal(t, exitUsage, code, errs)
	}
}
