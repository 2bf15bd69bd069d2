package oncassandra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// TestBucketsThatAreNotThere: requests for buckets that nobody has made do not ask the
// cluster each, and a client of a bucket that is there is served beside them. A bucket
// that is made is there at once for the server that made it.
func TestBucketsThatAreNotThere(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.ServeSite(p.LaidOut(cassandra.Address(t)))
	g := siege.NewTarget(&siege.Target{Process: siege.Process{Pid: s.Cmd.Process.Pid, Admin: s.Admin}, S3: s.S3})
	client := &http.Client{}
	require.NoError(t, g.Must(t.Context(), client, siege.Key{}, "PUT", "/honest", nil))
	const names = 8
	lasts := atLeast(t, 3*time.Second)
	honest := &siege.Honest{Target: g, Bucket: "honest", Rate: 30, Seed: seed.Number(t)}
	// crowd lets many ask for something for some time, and counts what they asked.
	crowd := func(target func() string) int64 {
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		before, _ := g.Shots()
		var all sync.WaitGroup
		all.Go(func() {
			g.Crowd(ctx, 64, func(_ context.Context, c *siege.Conn, _ int) error {
				return c.Do(g.Text(siege.Key{}, "GET", target(), nil))
			})
		})
		report := honest.Run(ctx)
		all.Wait()
		after, answers := g.Shots()
		t.Logf("seed %d; %d requests, answers: %v; honest: %v", honest.Seed, after-before, answers, report)
		require.Empty(t, report.Wrong)
		return after - before
	}
	keys := crowd(func() string { return "/honest/missing" })
	buckets := crowd(func() string { return fmt.Sprintf("/missing-%d/k", rand.IntN(names)) })
	require.Greater(t, buckets, keys/2, "a bucket that is not there costs no more than a key that is not there")
	for i := range names {
		bucket := fmt.Sprintf("/missing-%d", i)
		require.Equal(t, 404, harness.Request(t, "GET", s.S3+bucket+"/k", "").Status)
		require.NoError(t, g.Must(t.Context(), client, siege.Key{}, "PUT", bucket, nil))
		require.NoError(t, g.Must(t.Context(), client, siege.Key{}, "PUT", bucket+"/k", []byte("v")))
	}
}
