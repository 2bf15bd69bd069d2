package adminapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// What is asked about a bucket is answered by the process that leads its shard, whatever other shards the asked process
// leads, and also while nobody leads shard 0.
func TestRequestsGoToTheLeaderOfTheShard(t *testing.T) {
	s := memstore.New()
	p := start(t, s, "first")
	bucket, of := "", 0
	for n := 0; of == 0; n++ {
		bucket = fmt.Sprint("bucket-", n)
		require.NoError(t, p.c.CreateBucket(t.Context(), bucket))
		id, err := p.c.BucketID(t.Context(), bucket)
		require.NoError(t, err)
		of = shard.Of(id)
	}
	const there = "http://there"
	ctx, stop := context.WithCancel(context.Background())
	leads, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- leader.New(s, leader.Options{Work: leader.Work(fmt.Sprint(leader.Moves, "-", of)), Admin: there}).Try(ctx,
			func(ctx context.Context) error { close(leads); <-ctx.Done(); return nil })
	}()
	<-leads
	defer func() { stop(); require.NoError(t, <-ended) }()
	goesThere := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode, path)
		var problem adminapi.Problem
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
		require.Equal(t, there, problem.Leader.Admin, path)
	}
	for _, when := range []string{"it leads none", "it leads others"} {
		t.Run(when, func(t *testing.T) {
			goesThere("POST", "/v1/moves", fmt.Sprintf(`{"bucket":%q,"kind":"refresh"}`, bucket))
			goesThere("POST", "/v1/abort", fmt.Sprintf(`{"bucket":%q}`, bucket))
			goesThere("POST", "/v1/sizes?bucket="+bucket, "")
			goesThere("POST", "/v1/recount", fmt.Sprintf(`{"bucket":%q}`, bucket))
			goesThere("POST", "/v1/plan", fmt.Sprintf(`{"bucket":%q}`, bucket))
			goesThere("GET", "/v1/explain?bucket="+bucket, "")
		})
		if !p.r.Leading() {
			p.leads(t)
		}
	}
}
