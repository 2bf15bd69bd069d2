package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
)

func (s *server) puts(bucket string, keys ...string) {
	s.t.Helper()
	var batch []listing.Entry
	for _, k := range keys {
		batch = append(batch, listing.Entry{Key: []byte(k), Value: []byte("v")})
	}
	require.NoError(s.t, s.c.Bucket(bucket).PutBatch(s.t.Context(), batch))
}

func counted(format string, from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf(format, i))
	}
	return keys
}

func TestPresplitByRate(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	require.NoError(t, s.c.CreateBucket(t.Context(), "orders"))
	s.puts("orders", counted("order-%08d", 1, 61)...)

	// max_rows is 100: 90 each, of which 60 are there; 12,000 rows come.
	out := s.ok("presplit", "orders", "--append", "--rate", "100/s", "--for", "2m", "--dry-run")
	require.Contains(t, out, "learned from 60 keys: zero-padded number after 'order-', step 1.00")
	require.Contains(t, out, "nothing was done")
	require.Contains(t, out, "the cuts:\n  order-0000009\n  order-0000018\n")
	code, out, errs := s.ran("", "presplit", "orders", "--append", "--rate", "6k/min", "--for", "2m", "--format", "json")
	require.Zero(t, code, errs)
	var a adminapi.Answer
	require.NoError(t, json.Unmarshal([]byte(out), &a))
	require.Equal(t, scheduler.Learned{Method: "number", How: "zero-padded number after 'order-', step 1.00", Sure: 1, Keys: 60, Each: 90}, *a.Learned)
	require.Len(t, a.Moves, 1)
	require.Len(t, a.Moves[0].Cuts, 134)
	require.Zero(t, a.Job.Rows, "no row moves")
	require.Contains(t, s.ok("presplit", "orders", "--append", "--rate", "360000/h", "--for", "2m"), "ahead already")

	var m adminapi.Map
	require.NoError(t, json.Unmarshal([]byte(s.ok("map", "show", "orders", "--format", "json")), &m))
	require.Len(t, m.Partitions, 135)
	for _, p := range m.Partitions[1:] {
		require.WithinDuration(t, time.Now().Add(time.Hour+2*time.Minute), p.PinnedUntil, time.Minute, "an hour longer than the load")
	}
	s.puts("orders", counted("order-%08d", 61, 12_061)...)
	starts := map[string]bool{}
	rows := 0
	for _, p := range m.Partitions {
		n := 0
		for item, err := range s.c.Bucket("orders").All(t.Context(), listing.Query{From: p.Start, To: p.End}) {
			require.NoError(t, err)
			starts[string(item.Key)] = true
			n++
		}
		require.LessOrEqual(t, n, 100, p.Start)
		rows += n
	}
	require.Equal(t, 12_060, rows)

	// Keys like those to come, for a bucket that is empty; and another pin.
	require.NoError(t, s.c.CreateBucket(t.Context(), "empty"))
	now := time.Now().UTC().Truncate(time.Second)
	var like strings.Builder
	for i := range 500 {
		fmt.Fprintf(&like, "logs/%s-%03d\n", now.Add(time.Duration(i-500)*time.Second).Format("2006/01/02/15:04:05"), i)
	}
	code, out, errs = s.ran(like.String(), "presplit", "empty", "--append", "--rate", "1M/d", "--for", "1h", "--max-rows", "10k", "--like", "-", "--pin-for", "0")
	require.Equal(t, daemon.ExitUsage, code, "%s%s", out, errs)
	code, out, errs = s.ran(like.String(), "presplit", "empty", "--append", "--rate", "1M/d", "--for", "1h", "--max-rows", "10000", "--like", "-", "--pin-for", "0")
	require.Zero(t, code, errs)
	require.Contains(t, out, "learned from 500 keys: time after 'logs/', to the second")
	require.NotContains(t, s.ok("map", "show", "empty"), "pinned until")
}

func TestPresplitByRateRefuses(t *testing.T) {
	t.Parallel()
	s := serveMoves(t)
	for _, bucket := range []string{"empty", "random", "few"} {
		require.NoError(t, s.c.CreateBucket(t.Context(), bucket))
	}
	s.puts("random", counted("user-%d", 1, 2000)...)
	s.puts("few", "a1", "a2", "a3")
	for _, c := range []struct {
		args string
		in   string
		code int
		says string
	}{
		{
			"presplit random --append --rate 1000 --for 2h", "", daemon.ExitUsage,
			"a rate needs a unit: 1000/s, 1000/min or 1000/h",
		},
		{"presplit random --append --rate 1000/fortnight --for 2h", "", daemon.ExitUsage, "s, min, h or d"},
		{"presplit random --append --rate=-5/s --for 2h", "", daemon.ExitUsage, "above 0"},
		{"presplit random --append --rate 5Q/s --for 2h", "", daemon.ExitUsage, "above 0"},
		{"presplit random --append --rate /s --for 2h", "", daemon.ExitUsage, "above 0"},
		{"presplit random --append --for 2h", "", daemon.ExitUsage, "--append needs --rate"},
		{"presplit random --append --rate 5/s", "", daemon.ExitUsage, "--append needs --for"},
		{"presplit random --append --rate 5/s --for 1h --max-rows -1", "", daemon.ExitUsage, "--max-rows"},
		{"presplit random --append --rate 5/s --for 1h --count 3", "", daemon.ExitUsage, "--count"},
		{"presplit random --rate 5/s --at-file -", "a\n", daemon.ExitUsage, "go with --append"},
		{"presplit random --append --rate 100/s --for 2m", "", daemon.ExitRefused, "without leading zeros"},
		{"presplit random --append --rate 100/s --for 2m", "", daemon.ExitRefused, "--at-file"},
		{"presplit empty --append --rate 100/s --for 2m", "", daemon.ExitRefused, "the bucket is empty"},
		{"presplit few --append --rate 100/s --for 2m", "", daemon.ExitRefused, "3 keys"},
		{"presplit b --append --rate 100/s --for 2m", "", daemon.ExitRefused, "a digit more"},
		{"presplit b --append --rate 100000/min --for 24h", "", daemon.ExitRefused, "more than 4000"},
		{"presplit empty --append --rate 100/s --for 2m --like -", "", daemon.ExitRefused, "no keys"},
		{"presplit none --append --rate 100/s --for 2m", "", daemon.ExitRefused, `no bucket "none"`},
	} {
		code, out, errs := s.ran(c.in, strings.Fields(c.args)...)
		require.Equal(t, c.code, code, "%s: %s%s", c.args, out, errs)
		require.Contains(t, errs, c.says, c.args)
	}
}
