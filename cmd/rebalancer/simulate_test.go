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

	"github.com/evenkeel/evenkeel/internal/rebalance/policysim"
)

func simulate(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), append([]string{"simulate"}, args...),
		stdio{strings.NewReader(""), &o, &e, time.Now})
	return code, o.String(), e.String()
}

func TestSimulate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: mine\ndays: 0.1\ntenants: [{kind: random, per_minute: 100}]\n"),
		0o600))
	code, table, errs := simulate(file)
	require.Zero(t, code, errs)
	require.Contains(t, table, "mine: 0.1 days in 144 steps")
	code, text, _ := simulate(file, "--format", "json")
	require.Zero(t, code)
	var r policysim.Report
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Equal(t, int64(14_400), r.Total.Written)
	_, again, _ := simulate(file, "--format", "json")
	require.Equal(t, text, again)
	_, other, _ := simulate(file, "--format", "json", "--seed", "7")
	require.NotEqual(t, text, other)

	code, _, errs = simulate("nothing-like-it")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "months")
	require.NoError(t, os.WriteFile(file, []byte("days: 1\nnonsense: 2\n"), 0o600))
	code, _, errs = simulate(file)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "nonsense")
}
