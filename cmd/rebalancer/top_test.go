package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// serveCounted is a process that counts sizes, with the buckets busy, of 500 rows, and quiet.
func serveCounted(t *testing.T) *server {
	s, counts := memstore.New(), countbook.NewMemory(nil)
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{Every: -1})
	c, err := listing.New(s, listing.Options{Recorder: recorder})
	require.NoError(t, err)
	for _, name := range []string{"busy", "quiet"} {
		require.NoError(t, c.CreateBucket(t.Context(), name))
	}
	for i := range 500 {
		require.NoError(t, c.Bucket("busy").Put(t.Context(), fmt.Appendf(nil, "k%03d", i), []byte("v")))
	}
	require.NoError(t, recorder.Flush(t.Context()))
	balance := balancer.For(100_000, 0, time.Hour, time.Second)
	r := engine.New(engine.Options{Store: s, Buckets: c, Counts: counts, Balance: &balance})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	h := httptest.NewServer(adminapi.New(r))
	t.Cleanup(func() { h.Close(); stop(); <-done; _ = recorder.Close(context.Background()) })
	return &server{t, h.URL, c}
}

// TestTop: the busiest buckets first, as a table and as JSON, once and until it is ended.
func TestTop(t *testing.T) {
	s := serveCounted(t)
	out := s.ok("top", "--once")
	require.Regexp(t, `(?m)^bucket +writes/s +reads/s +rows`, out)
	require.Regexp(t, `(?m)^busy +[1-9][0-9.]* +0\.0 +at least 500 `, out)
	require.Less(t, strings.Index(out, "busy"), strings.Index(out, "quiet"))
	require.NotContains(t, out, "\x1b", "it is no terminal")
	require.NotContains(t, s.ok("top", "--once", "--limit", "1"), "quiet")
	var look struct {
		Version int
		Buckets []adminapi.Figures
	}
	require.NoError(t, json.Unmarshal([]byte(s.ok("top", "--once", "--json")), &look))
	require.Equal(t, 1, look.Version)
	require.Equal(t, "busy", look.Buckets[0].Bucket)
	require.EqualValues(t, 500, look.Buckets[0].Rows)

	code, _, errs := s.ran("", "top", "--every", "10ms")
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "--every is at least 1s")

	ctx, stop := context.WithCancel(t.Context())
	live := &stopping{stop: stop, after: 2}
	terminal = func(any) bool { return true }
	defer func() { terminal = func(any) bool { return false } }()
	args := []string{"top", "--every", "1s", "--admin", s.url}
	require.Zero(t, run(ctx, args, stdio{strings.NewReader(""), live, &bytes.Buffer{}, time.Now}))
	require.Equal(t, 2, strings.Count(live.String(), clearScreen))
}

// stopping ends a command after some writes.
type stopping struct {
	bytes.Buffer
	stop  func()
	after int
}

func (s *stopping) Write(b []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.stop()
	}
	return s.Buffer.Write(b)
}

// TestHeatAsText: keys downwards, time to the right, darker for more.
func TestHeatAsText(t *testing.T) {
	var b bytes.Buffer
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	drawHeat(&failing{w: &b}, &adminapi.Heat{
		Bucket: "photos", From: at, To: at.Add(3 * time.Minute), StepS: 60,
		Times: []int64{0, 60, 120, 180}, Keys: []adminapi.Key{adminapi.Key(""), adminapi.Key("m\xff"), adminapi.Key("")},
		Metrics: map[string]adminapi.Cells{"writes": {Unit: "requests/s", Max: 900, Cells: []float64{-1, -1, 0, 900, 1, 450}}},
		Events:  []heat.Event{{Kind: "split", Start: []byte("m"), Began: at, Why: "too many rows"}},
	}, "writes")
	require.Equal(t, `writes of photos, requests/s; 2026-03-01T12:00:00Z to 2026-03-01T12:03:00Z, 1m0s a column
(first)                  |? .| 1
m\xff                    |?@+| 450
'.' is up to 100, '@' 900 requests/s; '?': not known
12:00:00 split [m, (no end)): too many rows
`, b.String())
}

// TestMapShowHeat asks the server for the picture.
func TestMapShowHeat(t *testing.T) {
	s := serveCounted(t)
	require.Contains(t, s.ok("map", "show", "busy", "--heat"), "writes of busy, requests/s;")
	var p adminapi.Heat
	require.NoError(t, json.Unmarshal([]byte(s.ok("map", "show", "busy", "--heat", "--metric", "rows", "--json")), &p))
	require.Len(t, p.Metrics, 1)
	code, _, errs := s.ran("", "map", "show", "busy", "--heat", "--last", "1000h")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "7 days")
	code, _, _ = s.ran("", "map", "show", "busy", "--heat", "--epoch", "1")
	require.Equal(t, daemon.ExitUsage, code)
	code, _, errs = serveMoves(t).ran("", "map", "show", "b", "--heat")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "nobody looks after sizes here")
}
