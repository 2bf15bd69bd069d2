package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// Plans of random layouts, applied to an embedded store, lead to the partitions of the
// plan: the same cuts, what is kept where it was, no more rows copied than planned,
// all keys there. A plan that has been applied fits no more.
func TestAppliedPlansAreWhatWasPlanned(t *testing.T) {
	t.Parallel()
	r := seed.New(t)
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	defer s.Close()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	defer mapclient.Of(c).Close()
	b := engine.New(engine.Options{Store: s, Buckets: c, Balance: &balancer.Options{}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(ctx)
	}()
	defer func() { stop(); <-done }()
	h := httptest.NewServer(adminapi.New(b))
	defer h.Close()
	dir := t.TempDir()
	several := 0 // spans of several ranges that are cut anew and keep some
	for round := range 25 {
		bucket := fmt.Sprintf("b%d", round)
		var cuts [][]byte
		for _, k := range slices.Sorted(slices.Values(r.Perm(200)[:r.IntN(12)])) {
			cuts = append(cuts, fmt.Appendf(nil, "k%03d\xff", k))
		}
		require.NoError(t, c.CreateBucket(t.Context(), bucket, cuts...))
		rows := 1 + r.IntN(200)
		keys := slices.Sorted(slices.Values(r.Perm(200)[:rows]))
		for _, k := range keys {
			require.NoError(t, c.Bucket(bucket).Put(t.Context(), fmt.Appendf(nil, "k%03d", k), []byte("v")))
		}
		before := rangesOf(t, c, bucket)
		l := rebalance.Layout{Bucket: bucket}
		for _, rg := range before {
			p := rebalance.Partition{ID: rg.Partition.String(), Start: rebalance.Key(rg.Start)}
			for _, k := range keys {
				if key := fmt.Appendf(nil, "k%03d", k); rg.Contains(key) {
					if len(p.Quanta) == 0 {
						key = rg.Start
					}
					p.Quanta = append(p.Quanta, rebalance.Quantum{Key: rebalance.Key(key), Rows: 1})
				}
			}
			l.Partitions = append(l.Partitions, p)
		}
		most := int64(5 + r.IntN(60))
		limits := rebalance.Limits{MaxRows: most, MinRows: most / 3, TargetRows: most * 6 / 10}
		kind := []rebalance.Kind{rebalance.Rows, rebalance.Full}[r.IntN(2)]
		name := []string{"exact", "greedy", "genetic"}[r.IntN(3)]
		planner, err := planner.New(name, planner.Options{Seed: int64(round), Generations: 5})
		require.NoError(t, err)
		o := rebalance.Costs(most)
		o.Kind = kind
		p, err := planner.Plan(t.Context(), &l, limits, o)
		require.NoError(t, err)
		data, err := json.Marshal(p)
		require.NoError(t, err)
		file := filepath.Join(dir, bucket)
		require.NoError(t, os.WriteFile(file, data, 0o600))

		var a adminapi.Answer
		code, out, errs := ran(t, time.Millisecond, "", "apply", "--plan", file, "--yes", "--format", "json", "--admin", h.URL)
		require.Zero(t, code, "%s%s\n%s", out, errs, data)
		require.NoError(t, json.Unmarshal([]byte(out), &a))
		copies := int64(0)
		for _, x := range a.Moves {
			copies += x.Copies
		}
		require.Equal(t, p.RowsMoved, copies, "%s", data)

		after := rangesOf(t, c, bucket)
		require.Len(t, after, len(p.Ranges), "%s", data)
		was := map[string]bool{}
		for _, rg := range before {
			was[rg.Partition.String()] = true
		}
		for i, rg := range after {
			require.Equal(t, string(p.Ranges[i].Start), string(rg.Start), "%s", data)
			if was[p.Ranges[i].ID] {
				require.Equal(t, p.Ranges[i].ID, rg.Partition.String(), "%s", data)
				several++
			} else {
				require.False(t, was[rg.Partition.String()], "%s", data)
			}
		}
		var got []string
		for e, err := range c.Bucket(bucket).All(t.Context(), listing.Query{}) {
			require.NoError(t, err)
			got = append(got, string(e.Key))
		}
		require.Len(t, got, rows)
		if len(p.Moves) > 0 {
			code, _, errs = ran(t, time.Millisecond, "", "apply", "--plan", file, "--yes", "--admin", h.URL)
			require.Equal(t, daemon.ExitRefused, code)
			require.Contains(t, errs, "has changed since the plan was made")
		}
	}
	require.Positive(t, several)
	sum, err := repair.New(s, c, repair.Options{Report: func(f repair.Finding) { t.Logf("%+v", f) }}).All(t.Context())
	require.NoError(t, err)
	require.Zero(t, sum.Problems, "%+v", sum)
}

func rangesOf(t *testing.T, c *listing.Client, bucket string) (out []partmap.Range) {
	t.Helper()
	id, err := c.BucketID(t.Context(), bucket)
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(t.Context(), id)
	require.NoError(t, err)
	for rg, err := range mapclient.Of(c).Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		rg.Start, rg.End = bytes.Clone(rg.Start), bytes.Clone(rg.End)
		out = append(out, rg)
	}
	return out
}

// Whoever is asked decides.
func TestApplyAsks(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	id := rangesOf(t, s.c, "b")[0].Partition.String()
	plan := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(plan, []byte(`{"bucket":"b","partitions":[{"id":"`+id+`","start":"","rows":100},{"id":"new-1","start":"k1","rows":100}],
		"moves":[{"from":"`+id+`","to":"new-1","start":"k1","end":"","rows":100,"reason":"split: because"}],"rows_moved":100}`), 0o600))
	code, _, errs := s.ran("y\n", "apply", "--plan", plan)
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, errs, "--yes")
	require.Contains(t, s.ok("apply", "--plan", plan, "--dry-run"), "nothing was done")
	real := terminal
	terminal = func(any) bool { return true }
	defer func() { terminal = real }()
	for _, no := range []string{"", "\n", "n\n", "never\n"} {
		code, out, errs := s.ran(no, "apply", "--plan", plan)
		require.Equal(t, daemon.ExitRefused, code)
		require.Contains(t, out, "Apply? [y/N]")
		require.Contains(t, errs, "nothing was done")
		require.Empty(t, s.cuts())
	}
	code, out, errs := s.ran("y\n", "apply", "--plan", plan)
	require.Zero(t, code, errs)
	require.Contains(t, out, "done: 100 rows copied")
	require.Equal(t, []string{"k1"}, s.cuts())
	for _, bad := range []struct{ text, says string }{
		{`{}`, "is no plan"}, {`nonsense`, "is no plan"},
		{`{"bucket":"b","partitions":[{"id":"x","start":"a","rows":1}]}`, "contradicts itself"},
		{`{"bucket":"b","partitions":[{"id":"x","start":"","rows":1}]}`, "has changed"},
		{`{"bucket":"nope","partitions":[{"id":"x","start":"","rows":1}]}`, "no bucket"},
	} {
		require.NoError(t, os.WriteFile(plan, []byte(bad.text), 0o600))
		code, _, errs := s.ran("y\n", "apply", "--plan", plan)
		require.Equal(t, daemon.ExitRefused, code, bad.text)
		require.Contains(t, errs, bad.says)
	}
	for _, args := range []string{"apply", "apply b --plan x", "apply --plan x --exact"} {
		code, _, _ := s.ran("", strings.Fields(args)...)
		require.Equal(t, daemon.ExitUsage, code, args)
	}
}
