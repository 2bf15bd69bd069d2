package main

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A batch that nobody ends keeps a pause from becoming quiet: that is said, with a code of
// its own, and the pause stays.
func TestPauseWhileSomethingMoves(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	r := engine.New(engine.Options{Store: st, Buckets: c, Balance: &balancer.Options{}})
	h := httptest.NewServer(adminapi.New(r))
	t.Cleanup(h.Close)
	s := &server{t, h.URL, c}
	id, err := s.c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	maps := mapclient.Of(s.c)
	root, err := maps.Load(t.Context(), id)
	require.NoError(t, err)
	edit := partmap.NewEdit(root, maps.Stamp(), nil)
	_, err = edit.Begin(partmap.Move{Parts: []partmap.Part{{To: store.PartitionID(uuid.New())}}})
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	require.NoError(t, maps.Swap(t.Context(), change))

	code, out, errs := s.ran("", "pause", "--wait", "--timeout", "3s", "--progress", "plain")
	require.Equal(t, exitMoving, code, errs)
	require.Empty(t, out)
	require.Contains(t, errs, "1 bucket still moves: b (marking)\n", "the progress")
	require.Contains(t, errs, "after 3s they have not ended: 1 bucket still moves: b (marking); ")
	require.Contains(t, errs, "no process leads, so nothing comes to its end")
	require.Contains(t, s.ok("status"), "All moves are paused")
	// Somebody leads: it comes to its end, under the pause.
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	require.Contains(t, s.ok("pause", "--wait", "--format", "json"), `"moving": []`)
	stop()
	<-done
}
