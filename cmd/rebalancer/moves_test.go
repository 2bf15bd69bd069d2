package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// server is a process that moves ranges, with a bucket "b" of keys k000 to k199.
type server struct {
	t   *testing.T
	url string
	c   *listing.Client
}

func serveMoves(t *testing.T) *server {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	for i := range 200 {
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k%03d", i), []byte("v")))
	}
	r := engine.New(engine.Options{
		Store: s, Buckets: c, Balance: &balancer.Options{Policy: policy.Policy{MaxRows: 100}},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	h := httptest.NewServer(adminapi.New(r))
	t.Cleanup(func() { h.Close(); stop(); <-done })
	return &server{t, h.URL, c}
}

func (s *server) ran(stdin string, args ...string) (code int, out, errs string) {
	s.t.Helper()
	var o, e bytes.Buffer
	code = run(context.Background(), append(args, "--admin", s.url), stdio{strings.NewReader(stdin), &o, &e, time.Now})
	return code, o.String(), e.String()
}

func (s *server) ok(args ...string) string {
	s.t.Helper()
	code, out, errs := s.ran("", args...)
	require.Zero(s.t, code, "%q: %s", args, errs)
	return out
}

func (s *server) cuts() (cuts []string) {
	s.t.Helper()
	var m adminapi.Map
	require.NoError(s.t, json.Unmarshal([]byte(s.ok("map", "show", "b", "--format", "json")), &m))
	for i, p := range m.Partitions {
		if i > 0 {
			require.Equal(s.t, string(m.Partitions[i-1].End), string(p.Start))
			cuts = append(cuts, string(p.Start))
		}
	}
	return cuts
}

func TestCommandsThatMove(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	out := s.ok("split", "b", "--at", "k050", "--at", "k100", "--dry-run")
	require.Contains(t, out, "k05 k1")
	require.Contains(t, out, "nothing was done")
	require.Empty(t, s.cuts())
	out = s.ok("split", "b", "--at", "k050", "--at", "k100")
	require.Contains(t, out, "done: 100 rows copied")
	require.Equal(t, []string{"k05", "k1"}, s.cuts())
	require.Contains(t, s.ok("split", "b", "--at", "k050", "--at", "k100"), "nothing moves")

	require.Contains(t, s.ok("merge", "b", "--range", "..k1"), "done: 100 rows copied")
	require.Equal(t, []string{"k1"}, s.cuts())
	code, _, errs := s.ran("", "merge", "b", "--range", "..k1", "--range", "k1..")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "more than max_rows (100)")
	s.ok("merge", "b", "--range", "..k1", "--range", "k1..", "--force")
	require.Empty(t, s.cuts())

	var a adminapi.Answer
	require.NoError(t, json.Unmarshal([]byte(s.ok("refresh", "b", "--format", "json")), &a))
	require.Equal(t, scheduler.JobDone, a.Job.State)
	require.EqualValues(t, 200, a.Job.Rows)

	file := filepath.Join(t.TempDir(), "cuts")
	require.NoError(t, os.WriteFile(file, []byte("a\nk\\xff\nz\\\\\n"), 0o600))
	s.ok("presplit", "b", "--at-file", file, "--pin-for", "1h")
	require.Equal(t, []string{"a", "k\xff", "z\\"}, s.cuts())
	require.Contains(t, s.ok("map", "show", "b"), `k\xff`)
	require.Contains(t, s.ok("map", "show", "b"), "pinned until")
	code, _, errs = s.ran("", "merge", "b", "--range", "..k\\xff")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "pinned until")

	code, out, errs = s.ran("x3\nx1\nx2\nx4\nx1\n", "presplit", "b", "--count", "4", "--like", "-")
	require.Zero(t, code, errs)
	require.Equal(t, []string{"a", "k\xff", "x2", "x3", "x4", "z\\"}, s.cuts(), out)

	total := 0
	for _, err := range s.c.Bucket("b").All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		total++
	}
	require.Equal(t, 200, total)
}

func TestCommandsThatShow(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	require.Contains(t, s.ok("status"), "Nothing moves")
	s.ok("split", "b", "--at", "k050")
	out := s.ok("status")
	require.Contains(t, out, "This process leads")
	require.Regexp(t, `1 +b +split .* done +200? *50|1 +b +split .* done +50 +50 +50`, out)
	var st adminapi.Status
	require.NoError(t, json.Unmarshal([]byte(s.ok("status", "--format", "json")), &st))
	require.True(t, st.Leading)

	require.Regexp(t, `(?s)epoch +changed .*\n7 .*open +2.*\n1 .*open +1 `, s.ok("map", "history", "b"))
	out = s.ok("map", "diff", "b", "--from", "1")
	require.Contains(t, out, "epoch 1 to 7 of b: 1 ranges to 2")
	require.Contains(t, out, "- [(first), (no end))")
	require.Contains(t, out, "+ [k05, (no end))")
	require.Contains(t, s.ok("map", "show", "b", "--epoch", "1"), "epoch 1 of b")

	require.Contains(t, s.ok("pause", "b", "--dry-run"), "nothing was done")
	require.Contains(t, s.ok("pause", "b"), "b paused")
	require.Contains(t, s.ok("pause", "b", "--wait"), "b: paused already, since ")
	require.Contains(t, s.ok("status"), "The moves of b are paused since ")
	code, _, errs := s.ran("", "split", "b", "--at", "k100", "--no-wait")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "moves are paused since ")
	require.Contains(t, s.ok("split", "b", "--at", "k100", "--dry-run"), "nothing was done")
	require.Contains(t, s.ok("abort", "b"), "0 moves dropped")
	require.Contains(t, s.ok("resume"), "all buckets resumed")
	require.Contains(t, s.ok("resume"), "nothing was paused")
	out = s.ok("pause", "--wait", "--why", "a snapshot", "--for", "1h")
	require.Contains(t, out, "all buckets paused\nnothing moves: 2 maps looked at\n")
	require.Regexp(t, `All moves are paused since .* \(a snapshot\), until `, s.ok("status"))
	s.ok("resume", "b")
	require.Contains(t, s.ok("status"), "All moves are paused")
	s.ok("resume")
	require.NotContains(t, s.ok("status"), "paused")
	require.Equal(t, []string{"k05"}, s.cuts())
}

// What is wrong is said, with a code of its own, and nothing is changed.
func TestCommandsRefuse(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	s.ok("presplit", "b", "--at-file", write(t, "m\n"), "--pin-for", "0")
	before := s.ok("map", "show", "b", "--format", "json")
	for _, c := range []struct {
		args string
		in   string
		code int
		says string
	}{
		{"split none --at a", "", daemon.ExitRefused, `no bucket "none"`},
		{"split b", "", daemon.ExitUsage, "--at"},
		{"split b --at=", "", daemon.ExitRefused, "outside the bucket"},
		{`split b --at \x`, "", daemon.ExitUsage, "backslash"},
		{"merge b --range a", "", daemon.ExitUsage, "START..END"},
		{"merge b --range a..b..c", "", daemon.ExitUsage, "not clear"},
		{"merge b --range a..b", "", daemon.ExitRefused, "not cut at a"},
		{"merge b --range ..m --range n..", "", daemon.ExitRefused, "not neighbours"},
		{"merge b --range m..a", "", daemon.ExitRefused, "ends before it begins"},
		{"refresh b --range ..x", "", daemon.ExitRefused, "not cut at x"},
		{"presplit b", "", daemon.ExitUsage, "--at-file"},
		{"presplit b --at-file - --count 3", "", daemon.ExitUsage, "--count"},
		{"presplit b --at-file - --like x", "", daemon.ExitUsage, "--like goes with --count"},
		{"presplit b --count 3", "", daemon.ExitUsage, "--like"},
		{"presplit b --count 1 --like -", "", daemon.ExitUsage, "at least 2"},
		{"presplit b --count 3 --like -", "a\nb\na\n", daemon.ExitRefused, "too few for 3 ranges"},
		{"presplit b --at-file -", "b\na\n", daemon.ExitRefused, "line 2: the cut a is below"},
		{"presplit b --at-file -", "a\na\n", daemon.ExitRefused, "line 2: the cut a repeats"},
		{"presplit b --at-file -", "a\n\n", daemon.ExitRefused, "line 2: the line is empty"},
		{"presplit b --at-file -", "", daemon.ExitRefused, "no cuts"},
		{"presplit b --at-file /nowhere", "", daemon.ExitFailed, "/nowhere"},
		{"presplit b --at-file - --pin-for -1h", "a\n", daemon.ExitUsage, "--pin-for"},
		{"map show none", "", daemon.ExitRefused, `no bucket "none"`},
		{"map show b --epoch 99", "", daemon.ExitRefused, "newest epoch"},
		{"map diff b --from 99", "", daemon.ExitRefused, "newest epoch"},
		{"map history b --limit 0", "", daemon.ExitUsage, "--limit"},
		{"pause none", "", daemon.ExitRefused, `no bucket "none"`},
		{"pause --wait --timeout 0s", "", daemon.ExitUsage, "--timeout"},
		{"resume none", "", daemon.ExitRefused, `no bucket "none"`},
		{"status --keyspace x", "", daemon.ExitUsage, "only with --cassandra"},
		{"status --admin nonsense", "", daemon.ExitUsage, "--admin"},
		{"status --admin http://127.0.0.1:1", "", daemon.ExitFailed, "can't be reached"},
		{"split b --at a --cassandra 127.0.0.1:1 --local-dc x --no-wait", "", daemon.ExitUsage, "--no-wait"},
		{"split b --at a --cassandra 127.0.0.1:1", "", daemon.ExitUsage, "--local-dc"},
		{"split b --at a --cassandra 127.0.0.1:1 --local-dc x --move-rate -1", "", daemon.ExitUsage, "--move-rate"},
	} {
		args := strings.Fields(c.args)
		if !strings.Contains(c.args, "--admin") {
			args = append(args, "--admin", s.url)
		}
		var o, e bytes.Buffer
		code := run(context.Background(), args, stdio{strings.NewReader(c.in), &o, &e, time.Now})
		require.Equal(t, c.code, code, "%s: %s%s", c.args, o.String(), e.String())
		require.Contains(t, e.String(), c.says, c.args)
	}
	require.Equal(t, before, s.ok("map", "show", "b", "--format", "json"))
}

func write(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	j := &scheduler.Job{Phase: "verifying", Rows: 1000, Copied: 1000, Verified: 500}
	require.Equal(t, "split b, verifying: of 1,000 rows 1,000 copied, 500 compared, 0 swept over (50 %), 150 rows/s, 10s left", progressLine("split b", j, 10*time.Second))
	// More was written meanwhile than was counted before.
	j = &scheduler.Job{Phase: "sweeping", Rows: 1000, Copied: 1100, Verified: 1200, Searched: 700}
	require.Equal(t, "split b, sweeping: of 1,000 rows 1,000 copied, 1,000 compared, 700 swept over (90 %), 270 rows/s, 1s left", progressLine("split b", j, 10*time.Second))
	require.Equal(t, "split b: of 1,000 rows 0 copied, 0 compared, 0 swept over", progressLine("split b", &scheduler.Job{Rows: 1000}, time.Second))
	require.Equal(t, "x: of 0 rows 0 copied, 0 compared, 0 swept over", progressLine("x", &scheduler.Job{}, time.Second))
}

// Ids of jobs are a process's own: one that was started again at the same address gives another job the id that a
// command waits for.
func TestAnotherJobOfTheSameID(t *testing.T) {
	asked := time.Now().UTC()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		later := asked.Add(time.Hour)
		_ = json.NewEncoder(w).Encode(scheduler.Job{ID: "1", Name: "other", Asked: later, Ended: later})
	}))
	defer h.Close()
	c, err := adminapi.NewClient(h.URL, "")
	require.NoError(t, err)
	var f moveFlags
	_, err = f.follow(t.Context(), stdio{err: &bytes.Buffer{}}, c, scheduler.Job{ID: "1", Name: "b", Asked: asked})
	require.ErrorContains(t, err, "started again")
}
