package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adopt"
)

// What the file of a copy says is printed; long keys are clipped.
func TestAdoptStatus(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "done.json")
	status := func(args ...string) (code int, out, errs string) {
		return ran(t, time.Millisecond, "", append([]string{"adopt", "status", file}, args...)...)
	}
	code, _, errs := status()
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, file)
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	code, _, errs = status()
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "the version of its form")

	long, _ := json.Marshal(strings.Repeat("k", 300))
	text := `{"version":1,"task":"s3 there to here","cuts":["m"],"rows":4000,"streams":[{"last":"c"},{"ended":true}],` +
		`"read":3000,"refused":22,"refusals":[{"key":` + string(long) + `,"fault":"it is bad"}],"seconds":10,` +
		`"saved":"2026-11-01T10:00:00Z"}`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, out, _ := status()
	require.Zero(t, code)
	lines := strings.Split(out, "\n")
	require.Equal(t, "s3 there to here", lines[0])
	require.Equal(t, "copying: 3,000 of about 4,000 rows (75.0 %), 1 of 2 streams have ended; 300 rows/s, "+
		"3s left at that rate", lines[1])
	require.Contains(t, lines[2], "saved 2026-11-01T10:00:00Z, ")
	require.Equal(t, []string{"22 rows refused", strings.Repeat("k", 256) + "… (300 bytes): it is bad", "and 21 more", ""},
		lines[3:])
	code, out, _ = status("--json")
	require.Zero(t, code)
	var s adopt.Status
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Equal(t, []any{"copying", int64(3000), int64(4000), 2, 1, 300.0, int64(22)},
		[]any{s.Phase, s.Read, s.Rows, s.Streams, s.StreamsEnded, s.RowsPerSecond, s.Refused})
	require.Equal(t, 1, strings.Count(out, `"version"`))

	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(text, `"last":"c"`, `"ended":true`, 1)), 0o600))
	code, out, _ = status()
	require.Zero(t, code)
	require.Contains(t, out, "copied: 3,000 of about 4,000 rows; 300 rows/s\n")

	// As an older release wrote it.
	require.NoError(t, os.WriteFile(file, []byte(`{"version":1,"task":"t","cuts":[],"rows":0,"streams":[{}]}`), 0o600))
	code, out, errs = status()
	require.Zero(t, code, errs)
	require.Equal(t, "t\ncopying: 0 of about 0 rows (0.0 %), 0 of 1 streams have ended; 0 rows/s\n0 rows refused\n", out)
}
