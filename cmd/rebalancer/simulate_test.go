package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/policysim"
)

func simulate(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), append([]string{"simulate"}, args...),
		stdio{strings.NewReader(""), &o, &e, time.Now})
	return code, o.String(), e.String()
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: mine\ndays: 0.02\n"+
		"tenants: [{kind: random, per_minute: 100}]\ntargets: {ranges: 1}\n"), 0o600))
	code, table, errs := simulate(file)
	require.Zero(t, code, errs)
	require.Contains(t, table, "mine: 0.02 days in ")
	require.Contains(t, table, "MISSED: ")
	code, _, errs = simulate(file, "--check")
	require.Equal(t, daemon.ExitFailed, code)
	require.Contains(t, errs, "1 targets were missed")
	code, text, _ := simulate(file, "--format", "json")
	require.Zero(t, code)
	var r policysim.Report
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Equal(t, int64(2880), r.Total.Written)
	_, again, _ := simulate(file, "--format", "json")
	require.Equal(t, text, again)
	_, other, _ := simulate(file, "--format", "json", "--seed", "7")
	require.NotEqual(t, text, other)

	code, _, errs = simulate("nothing-like-it")
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "months")
	for _, args := range [][]string{{}, {file, "--all"}, {"--list", "--all"}, {file, "--seeds", "-1"}} {
		code, _, _ = simulate(args...)
		require.Equal(t, daemon.ExitUsage, code, args)
	}
	require.NoError(t, os.WriteFile(file, []byte("days: 1\nnonsense: 2\n"), 0o600))
	code, _, errs = simulate(file)
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "nonsense")
	code, text, _ = simulate("--list")
	require.Zero(t, code)
	for _, name := range policysim.Names() {
		require.Contains(t, text, name+" ")
	}
}

// With several seeds the worst figures are compared with the targets, in a table or as JSON.
func TestSimulateSeveralSeeds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: mine\ndays: 0.01\n"+
		"tenants: [{loads: [{rows: 2000, per_s: 20}]}]\ntargets: {copied: 5, ranges: 1}\n"), 0o600))
	code, table, errs := simulate(file, "--seeds", "2", "--progress", "plain")
	require.Zero(t, code, errs)
	require.Contains(t, table, "| mine | 0.")
	require.Contains(t, table, " (5) | ")
	require.Contains(t, table, " | MISSED |")
	require.Contains(t, errs, "1 of 1: mine, 0.0 days")
	code, text, errs := simulate(file, "--seeds", "2", "--format", "json", "--check")
	require.Equal(t, daemon.ExitFailed, code)
	require.Contains(t, errs, "1 of 1 scenarios missed a target")
	var v []policysim.Verdict
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	require.Len(t, v, 1)
	require.Equal(t, 2, v[0].Runs)
	require.Len(t, v[0].Missed, 1)
	require.Equal(t, 5.0, *v[0].Targets.Copied)
}
