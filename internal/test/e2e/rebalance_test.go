package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
)

// moving is a listd that splits ranges by itself, and programs that know it.
type moving struct {
	*harness.Programs
	*harness.Server
}

func startMoving(p *harness.Programs, args ...string) *moving {
	p.T.Helper()
	m := &moving{p, p.Serve(args...)}
	m.Environment = []string{"EVENKEEL_SERVER=" + m.S3, "EVENKEEL_ADMIN_URL=" + m.Admin}
	return m
}

// lister lists a bucket over and over: what was loaded before must be there, all in
// order, and no answer may be an error. The end of ctx ends it in the middle of a
// listing, that of more only when it has come to the end of one.
func (m *moving) lister(ctx, more context.Context, bucket string, loaded [][]byte) (lists int) {
	for more.Err() == nil {
		n, last := 0, []byte(nil)
		for after := ""; ; {
			page, err := harness.GetPage(ctx, m.S3, bucket, after, 1000, false)
			if ctx.Err() != nil {
				return lists
			}
			if err != nil {
				m.T.Errorf("a page after %q: %v", after, err)
				return lists
			}
			for _, k := range page.Keys {
				if bytes.Compare(k, last) <= 0 {
					m.T.Errorf("%q comes after %q", k, last)
					return lists
				}
				last = k
				if n < len(loaded) {
					switch c := bytes.Compare(k, loaded[n]); {
					case c > 0:
						m.T.Errorf("%q is missing before %q", loaded[n], k)
						return lists
					case c == 0:
						n++
					}
				}
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if n != len(loaded) {
			m.T.Errorf("%d of %d keys were listed", n, len(loaded))
			return lists
		}
		lists++
	}
	return lists
}

// rest waits until nothing moves any more and no range is over the limit, and
// returns the sizes of the ranges.
func (m *moving) rest(bucket string, sorted [][]byte, most int) []int {
	m.T.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		var st adminapi.Status
		require.NoError(m.T, json.Unmarshal([]byte(m.Run("rebalancer", "status", "--format", "json")), &st))
		var mp adminapi.Map
		require.NoError(m.T, json.Unmarshal([]byte(m.Run("rebalancer", "map", "show", bucket, "--format", "json")),
			&mp))
		var sizes []int
		settled := true
		for _, p := range mp.Partitions {
			lo, _ := slices.BinarySearchFunc(sorted, []byte(p.Start), bytes.Compare)
			hi := len(sorted)
			if len(p.End) > 0 {
				hi, _ = slices.BinarySearchFunc(sorted, []byte(p.End), bytes.Compare)
			}
			sizes = append(sizes, hi-lo)
			settled = settled && p.Phase == "settled" && !p.SweepPending
		}
		if settled && len(st.Buckets) == 0 && slices.Max(sizes) <= most {
			return sizes
		}
		require.True(m.T, time.Now().Before(deadline), "it does not come to rest: %v; %+v", sizes, st)
		time.Sleep(500 * time.Millisecond)
	}
}

// A bucket that begins as one range is loaded while listd splits it: nobody meets an
// error, no listing lacks what was there, and at rest no range is over the limit.
// Killed with -9 in the middle of it and started again, the same.
func TestLoadedWhileItSplits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("loads many keys")
	}
	n := 24_000
	if os.Getenv("EVENKEEL_LARGE") != "" {
		n = 300_000
	}
	most := n / 30
	p := harness.Build(t)
	keys := realkeys.Collect(n, 7)
	half := len(keys) / 2
	first, second := filepath.Join(p.Dir, "first"), filepath.Join(p.Dir, "second")
	require.NoError(t, os.WriteFile(first, append(bytes.Join(keys[:half], []byte{0}), 0), 0o600))
	require.NoError(t, os.WriteFile(second, append(bytes.Join(keys[half:], []byte{0}), 0), 0o600))
	flags := []string{"--data", filepath.Join(p.Dir, "data"), "--max-rows", fmt.Sprint(most), "--rebalance-interval",
		"500ms"}
	load := func(m *moving, file string) {
		m.Run("listd", "load", "files", file, "-0", "--create", "--progress", "none")
	}
	listed := func(m *moving) [][]byte {
		return bytes.Split(bytes.TrimSuffix([]byte(m.Run("listd", "ls", "files", "--format", "null")), []byte{0}),
			[]byte{0})
	}

	m := startMoving(p, flags...)
	load(m, first)
	loaded := harness.SortedBySort(t, keys[:half])
	sizes := m.rest("files", loaded, most)
	t.Logf("%d keys in %d ranges, the largest of %d", half, len(sizes), slices.Max(sizes))
	require.Equal(t, harness.Sum(loaded), harness.Sum(listed(m)))

	// The second half goes in while everything is listed; the process is killed.
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	lists := 0
	wg.Go(func() { lists = m.lister(ctx, ctx, "files", loaded) })
	cut := p.Command(t.Context(), "listd", "load", "files", second, "-0", "--progress", "none", "--server", m.S3,
		"--patience", "1s", "--concurrency", "2")
	require.NoError(t, cut.Start())
	splits := func() int {
		var st adminapi.Status
		require.NoError(t, json.Unmarshal([]byte(m.Run("rebalancer", "status", "--format", "json")), &st))
		running := 0
		for _, b := range st.Buckets {
			running += len(b.Batches)
		}
		return running
	}
	for splits() == 0 { // in the middle of a move
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	wg.Wait()
	require.Empty(t, m.FailedRequests())
	m.Kill()
	require.Error(t, cut.Wait())

	m = startMoving(p, flags...)
	ctx, stop = context.WithCancel(t.Context())
	wg.Go(func() { lists += m.lister(t.Context(), ctx, "files", loaded) })
	load(m, second)
	all := harness.SortedBySort(t, keys)
	sizes = m.rest("files", all, most)
	stop()
	wg.Wait()
	t.Logf("%d keys in %d ranges, the largest of %d; %d whole listings meanwhile", len(keys), len(sizes),
		slices.Max(sizes), lists)
	require.Equal(t, harness.Sum(all), harness.Sum(listed(m)))
	require.Empty(t, m.FailedRequests())
	require.Positive(t, lists)
}
