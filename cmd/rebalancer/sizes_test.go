package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance"
)

// The commands that look at the sizes of a live bucket say what is there, and touch
// nothing.
func TestCommandsThatLookAtSizes(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	counts := k.counts()
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{Every: -1})
	defer recorder.Close(t.Context())
	c := k.client(k.s, recorder)
	require.NoError(t, c.CreateBucket(t.Context(), "b", []byte("k\xff"), []byte("m")))
	for _, i := range rand.New(rand.NewPCG(k.seed, 1)).Perm(900) {
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k%03d", i), []byte("v")))
	}
	for i := range 50 {
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k\xff%d", i), []byte("v")))
	}
	d := k.run("daemon", 1000)
	until(t, "it leads and has looked", func() bool { s := d.status(t); return s.Leading && s.Round.Counted >= 3 })
	ok := func(args ...string) string {
		t.Helper()
		code, out, errs := ran(t, time.Millisecond, "", append(args, "--admin", d.url)...)
		require.Zero(t, code, "%q: %s%s", args, out, errs)
		return out
	}
	refused := func(code int, says string, args ...string) {
		t.Helper()
		got, out, errs := ran(t, time.Millisecond, "", append(args, "--admin", d.url)...)
		require.Equal(t, code, got, "%q: %s", args, out)
		require.Contains(t, errs, says)
	}
	epoch := func() uint64 {
		id, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		root, err := mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		return root.Epoch
	}
	before := epoch()

	out := ok("recount", "b")
	require.Contains(t, out, "has 900 rows")
	require.Contains(t, out, "950 rows in 3 ranges; the counters were off by 0 altogether")
	// What nobody told the counters is the drift.
	untold := k.client(k.s, nil)
	for i := range 30 {
		require.NoError(t, untold.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "a%d", i), []byte("v")))
	}
	require.Contains(t, ok("recount", "b", "--range", "m.."), "off by 0 altogether")
	require.Contains(t, ok("recount", "b", "--range", "..b"), "930 rows, ")
	var re struct {
		Epoch    uint64
		Recounts []balancer.Recounted
	}
	require.NoError(t, json.Unmarshal([]byte(ok("recount", "b", "--format", "json")), &re))
	require.Len(t, re.Recounts, 3)
	require.EqualValues(t, 930, re.Recounts[0].Rows)
	require.EqualValues(t, 930, re.Recounts[0].Estimate, "the counters were corrected")

	require.Regexp(t, `\(first\) +k\\xff +930 +930, .* none +within limits`, ok("status", "b"))
	var st struct {
		Version int
		Ranges  []adminapi.Size
	}
	require.NoError(t, json.Unmarshal([]byte(ok("status", "b", "--json")), &st))
	require.Equal(t, 1, st.Version)
	require.Len(t, st.Ranges, 3)
	require.EqualValues(t, 50, st.Ranges[1].Rows)
	require.True(t, st.Ranges[2].Known)

	for _, exact := range []string{"--exact", "--format=table"} {
		data := ok("layout", "export", "b", exact)
		l, limits, err := rebalance.DecodeLayout([]byte(data))
		require.NoError(t, err, data)
		require.Len(t, l.Partitions, 3)
		require.EqualValues(t, 1000, limits.MaxRows)
		require.EqualValues(t, 930, l.Partitions[0].Rows())
		require.EqualValues(t, "k\xff", l.Partitions[1].Start)
		require.EqualValues(t, 50, l.Partitions[1].Rows())
		require.Greater(t, len(l.Partitions[0].Quanta), 100)
		file := filepath.Join(t.TempDir(), "layout.json")
		require.NoError(t, os.WriteFile(file, []byte(data), 0o600))
		code, fromFile, errs := ran(t, time.Millisecond, "", "plan", "--layout", file, "--planner", "exact",
			"--objective", "rows")
		require.Zero(t, code, errs)
		require.Contains(t, fromFile, "980 rows; max_rows 1,000")
		require.Equal(t, fromFile, ok("plan", "b", "--planner", "exact", "--objective", "rows", exact))
	}
	refused(daemon.ExitRefused, "no bucket", "status", "nope")
	refused(daemon.ExitRefused, "no bucket", "layout", "export", "nope")
	refused(daemon.ExitRefused, "no bucket", "recount", "nope")
	refused(daemon.ExitUsage, "not both", "plan", "b", "--layout", "x")
	refused(daemon.ExitUsage, "name a bucket", "plan")
	require.Equal(t, before, epoch(), "nothing was touched")
}
