package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// A split is explained in words, and its stored input gives the same decisions again.
func TestExplain(t *testing.T) {
	t.Parallel()
	k := newKeyspace(t)
	recorder := counter.NewRecorder(k.counts(), counter.RecorderOptions{Every: -1})
	defer recorder.Close(t.Context())
	c := k.client(k.s, recorder)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	for _, i := range rand.New(rand.NewPCG(k.seed, 1)).Perm(1500) {
		require.NoError(t, c.Bucket("b").Put(t.Context(), fmt.Appendf(nil, "k%04d", i), []byte("v")))
	}
	require.NoError(t, recorder.Flush(t.Context()))
	d := k.run("daemon", 1000)
	until(t, "it has split", func() bool {
		id, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		root, err := mapclient.Of(c).Load(t.Context(), id)
		return err == nil && root.Ranges > 1
	})
	explain := func(args ...string) (code int, out, errs string) {
		return ran(t, time.Millisecond, "", append([]string{"explain", "--admin", d.url}, args...)...)
	}
	code, out, errs := explain("b")
	require.Zero(t, code, errs)
	require.Contains(t, out, "max_rows 1,000, min_rows 250")
	require.Contains(t, out, "split: rows: 1500 rows, more than max_rows (1000)")
	require.Regexp(t, `cut at k\d+.*; [\d,]+ of 1,500 rows are copied`, out)
	require.Contains(t, out, "about 1,500 rows, 1,500 by a recount")
	require.Contains(t, out, " ranges of [(first), (no end)); max_rows")
	require.Regexp(t, `partitions afterwards: .*\d+ \(stay\).* rows; cost in rows: .* ranges [\d,]+ \(the cheapest cuts: [\d,]+\); as it is: 1,000 = forecast 1,000`, out)

	code, out, errs = explain("b", "--format", "json")
	require.Zero(t, code, errs)
	var e adminapi.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &e))
	require.NotEmpty(t, e.Looks)
	require.Equal(t, policy.Split, e.Looks[0].Decisions[0].Kind)
	for _, l := range e.Looks {
		require.Equal(t, l.Decisions, policy.Decide(*l.Input))
	}
	code, _, errs = explain("nope")
	require.Equal(t, daemon.ExitRefused, code)
	require.Contains(t, errs, "no bucket")
}
