package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
)

// What rules would delete is shown, by ranges, and stays.
func TestWhatRulesWouldDelete(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	now := time.Now().UTC()
	day := func(ago int) string { return "d/" + now.AddDate(0, 0, -ago).Format(time.DateOnly) }
	require.NoError(t, s.c.CreateBucket(t.Context(), "days", []byte(day(9)), []byte(day(7)), []byte(day(4))))
	for ago := range 10 {
		require.NoError(t, s.c.Bucket("days").Put(t.Context(), fmt.Append([]byte(day(ago)), "/x"), nil))
	}
	rules := func(text string) string {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, []byte("rules:\n- "+text), 0o600))
		return file
	}
	good := rules("{bucket: da*, prefix: d/, keep: 120h, time: 2006-01-02}")
	out := s.ok("retention", "--rules", good)
	require.Contains(t, out, fmt.Sprintf("would delete the keys from %s/x to %s/x", day(9), day(6)))
	require.Contains(t, out, "1 range as a whole")
	require.Contains(t, out, "parts of 1 range")
	var old adminapi.Old
	require.NoError(t, json.Unmarshal([]byte(s.ok("retention", "days", "--rules", good, "--json")), &old))
	require.Len(t, old.Drops, 1)
	require.Equal(t, day(5), old.Drops[0].To.String())
	require.Contains(t, s.ok("retention", "--rules", rules("{bucket: days, prefix: d/, keep: 1h, time: written}")),
		"nothing is old")
	time.Sleep(time.Millisecond)
	out = s.ok("retention", "--rules", rules("{bucket: days, prefix: d/, keep: 1us, time: written}"))
	require.Regexp(t, fmt.Sprintf("would delete 10 rows in 3 ranges, put before .*, with keys from %s/x to %s/x", day(9),
		day(0)), out)
	n := 0
	for _, err := range s.c.Bucket("days").All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 10, n, "nothing is deleted")

	require.Contains(t, s.ok("retention", "b", "--rules", good), "nothing is old, by 1 rule")
	code, out, errs := s.ran("", "retention", "--rules", rules("{bucket: b, keep: 1h, prefix: k, time: decimal-s}"))
	require.Equal(t, daemon.ExitFailed, code)
	require.Contains(t, errs, "a rule can't be applied")
	require.Contains(t, out, "it has 3 digits, not 10")
	code, out, _ = s.ran("", "retention", "--rules", rules("{bucket: days, keep: 1h, prefix: d/, time: decimal-ms}"))
	require.Equal(t, daemon.ExitFailed, code)
	require.Contains(t, out, "it has 4 digits, not 13")
	code, _, errs = s.ran("", "retention")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "without --retention")
	code, _, errs = s.ran("", "retention", "missing", "--rules", good)
	require.Equal(t, daemon.ExitRefused, code, errs)
	code, _, errs = s.ran("", "retention", "--rules", rules("{bucket: b, keep: 0s, time: 2006}"))
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "keep is 0s")
}

// The status has what rules have deleted, and when they run next.
func TestStatusOfRetention(t *testing.T) {
	now := time.Now()
	s := &engine.RetentionStatus{
		Rules: []string{"a rule"}, Next: now.Add(5 * time.Minute),
		Last: &engine.RetentionRun{Began: now.Add(-55 * time.Minute), Ended: now, Buckets: 2, Whole: 3, Rows: 30_000},
		Drops: []engine.Drop{
			{Bucket: "b", Rule: "a rule", Began: now.Add(-time.Hour), First: []byte("k1"), Last: []byte("k2"), Whole: 3, Rows: 7},
			{Bucket: "c", Rule: "a rule", Began: now.Add(-2 * time.Hour), Error: "it is away"},
		},
	}
	var out bytes.Buffer
	printRetention(&failing{w: &out}, s, true, now)
	require.Contains(t, out.String(), "1 rule of retention, next run in 5m0s; last run 55m0s ago: 2 buckets, 3 ranges as a whole")
	require.Contains(t, out.String(), "1h0m0s ago: b (a rule)\n  deleted the keys from k1 to k2")
	require.Contains(t, out.String(), "2h0m0s ago: c (a rule)\n  failed: it is away")
	out.Reset()
	printRetention(&failing{w: &out}, s, false, now)
	require.Empty(t, out.String())
}
