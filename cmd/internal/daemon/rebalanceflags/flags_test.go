package rebalanceflags_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/internal/mapclient"
)

// A schedule says when to look, in UTC unless it names a zone.
func TestSchedules(t *testing.T) {
	at := time.Date(2026, 3, 31, 23, 58, 30, 0, time.FixedZone("", 7200)) // 21:58:30 UTC
	for _, c := range []struct {
		schedule string
		next     string
		gap      time.Duration
	}{
		{"*/10 * * * *", "2026-03-31T22:00:00Z", 10 * time.Minute},
		{"0 22-23,0-5 * * *", "2026-03-31T22:00:00Z", 17 * time.Hour},
		{"30 2 1 * *", "2026-04-01T02:30:00Z", 31 * 24 * time.Hour},
		{"CRON_TZ=Asia/Tokyo 0 9 * * *", "2026-04-01T00:00:00Z", 24 * time.Hour},
		{"@hourly", "2026-03-31T22:00:00Z", time.Hour},
	} {
		f := rebalanceflags.Flags{MaxRows: 100, Schedule: c.schedule}
		require.NoError(t, f.Validate(), c.schedule)
		require.Equal(t, c.gap, f.Interval(false), c.schedule)
		o := f.Options(false, time.Second)
		require.Equal(t, c.next, o.Next(at).UTC().Format(time.RFC3339), c.schedule)
		require.LessOrEqual(t, o.Policy.Lead, time.Hour+10*time.Second)
	}
	pause := time.Minute
	for _, f := range []rebalanceflags.Flags{
		{Schedule: "every ten minutes"}, {Schedule: "0 0 30 2 *"}, {Schedule: "60 * * * *"}, {Schedule: "* * * * * *"},
		{Schedule: "CRON_TZ=UTC"},
		{Schedule: "* * * * *", RebalanceInterval: &pause},
	} {
		f.MaxRows = 100
		require.ErrorContains(t, f.Validate(), "--schedule")
	}
}

// Limits of load and of bytes reach the policy, and wrong ones are refused.
func TestLimits(t *testing.T) {
	f := rebalanceflags.Flags{MaxRows: 100, MaxBytes: 5, LoadPerS: 6, LoadShare: 0.7}
	require.NoError(t, f.Validate())
	p := f.Options(true, time.Second).Policy
	require.Equal(t, int64(5), p.MaxBytes)
	require.Equal(t, [2]float64{6, 0.7}, [2]float64{p.LoadPerS, p.LoadShare})
	for flag, f := range map[string]rebalanceflags.Flags{
		"--max-bytes": {MaxBytes: -1}, "--load-per-s": {LoadPerS: -1}, "--load-share": {LoadShare: 1.1},
	} {
		f.MaxRows = 100
		require.ErrorContains(t, f.Validate(), flag)
	}
}

// TestPasswordsInTheClear bring a warning, which does not tell them.
func TestPasswordsInTheClear(t *testing.T) {
	for url, warned := range map[string]bool{
		"redis://:secret@10.0.0.9:6379/0": true, "redis://u:secret@redis.test": true,
		"rediss://:secret@10.0.0.9:6379/0": false,
		"redis://10.0.0.9:6379/0":          false, "redis://:secret@127.0.0.1:6379/0": false,
		"redis://:secret@localhost": false,
		"redis://:secret@[::1]:1":   false,
	} {
		var log bytes.Buffer
		b, err := (&rebalanceflags.Flags{Counter: url}).OpenCounter("", slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err, url)
		require.NoError(t, b.Close())
		require.Equal(t, warned, strings.Contains(log.String(), "in the clear"), url)
		require.NotContains(t, log.String(), "secret")
	}
}

// How a process knows sizes follows from its flags.
func TestCounting(t *testing.T) {
	const none, looks, redis, elsewhere = mapclient.NotCounted, mapclient.ByLooks, mapclient.InRedis, mapclient.Elsewhere
	off, on := time.Duration(0), time.Minute
	for _, c := range []struct {
		counter, schedule string
		every             *time.Duration
		here, away        mapclient.Counting
	}{
		{"redis://h", "", nil, redis, redis},
		{"redis://h", "", &on, redis, redis},
		{"redis://h", "@hourly", nil, redis, redis},
		{"redis://h", "", &off, none, redis},
		{"", "", nil, none, elsewhere},
		{"", "", &off, none, elsewhere},
		{"", "", &on, looks, looks},
		{"", "@hourly", nil, looks, looks},
	} {
		f := rebalanceflags.Flags{Counter: c.counter, Schedule: c.schedule, RebalanceInterval: c.every}
		require.Equal(t, c.here, f.Counting(false), "%+v", c)
		require.Equal(t, c.away, f.Counting(true), "%+v", c)
	}
}
