package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/sizing"
)

func TestSizing(t *testing.T) {
	t.Parallel()
	args := []string{"sizing", "--keys", "1e9", "--inserts", "30000", "--node-requests", "1e6"}
	code, out, errs := ran(t, time.Second, "", args...)
	require.Zero(t, code, errs)
	require.Regexp(t, `^What +figure +limit +of it +moved by\n`, out)
	require.Regexp(t, `^.*\nrows that move a second +30,000/s +10,000/s +300 % +--move-rate\n`, out)
	require.Regexp(t, `(?m)^ranges +15,001 +- +- +--max-rows$`, out)
	require.Regexp(t, `(?m)^sizes known again after Redis lost all +25 s +- +- +more servers, up to 16$`, out)
	require.Regexp(t, `(?m)^recount of all rows +4.6 h +- +- +--move-rate$`, out)
	const wall = "The first wall: rows that move a second, at 300 % of the limit. What moves it: --move-rate."
	require.Contains(t, out, "\n\n"+wall+"\n")

	code, out, errs = ran(t, time.Second, "", append(args, "--json")...)
	require.Zero(t, code, errs)
	var got struct {
		Version int
		Wall    string
		Lines   []sizing.Line
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, 1, got.Version)
	require.Equal(t, wall, got.Wall)
	require.Equal(t, sizing.Line{
		What: "rows that move a second", Figure: 30_000, Unit: sizing.PerSecond, Limit: 10_000, Share: 3,
		MovedBy: "--move-rate",
	}, got.Lines[0])

	for flag, value := range map[string]string{
		"--keys": "1e16", "--servers": "0", "--paxos": "v3", "--busy-buckets": "2", "--round-trip": "1s",
	} {
		code, _, errs = ran(t, time.Second, "", "sizing", "--keys", "1", flag, value)
		require.Equal(t, daemon.ExitUsage, code, flag)
		require.Contains(t, errs, flag)
	}
	code, _, _ = ran(t, time.Second, "", "sizing")
	require.Equal(t, daemon.ExitUsage, code)
}
