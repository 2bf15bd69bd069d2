package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/layouts"
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
