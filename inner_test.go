package evenkeel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// kept is a store that several DBs of a test use, and that no DB closes.
type kept struct{ memstore.Store }

func (kept) Close() error { return nil }

// uncounted are counters that can fail.
type uncounted struct {
	counter.Backend
	fails atomic.Bool
}

func (u *uncounted) Stats(ctx context.Context, parts []store.Partition) ([]counter.Stats, error) {
	if u.fails.Load() {
		return nil, store.Errorf(store.Unavailable, "no counters here")
	}
	return u.Backend.Stats(ctx, parts)
}

func (*uncounted) Close() error { return nil }

// openShared opens a store as a process named name does that shares the store with others.
func openShared(t *testing.T, s memstore.Store, counts counter.Backend, name string, o Options) *DB {
	t.Helper()
	db, err := open(t.Context(), kept{s}, assembly.Options{
		Shared: &mapclient.Options{Lease: 200 * time.Millisecond}, Self: processes.Process{Name: name},
		Counting: mapclient.InRedis, OpenCounter: func() (counter.Backend, error) { return counts, nil },
	}, &o, &engine.Candidate{Name: name, Lease: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// TestProcessesKnowWhoMoves: all name the one that leads, and an Unbalanced one leads nothing, but sees what all share.
func TestProcessesKnowWhoMoves(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	counts := &uncounted{Backend: countbook.NewMemory(nil)}
	aside := openShared(t, s, counts, "aside", Options{Unbalanced: true})
	status, err := aside.Status(ctx)
	require.NoError(t, err)
	require.Empty(t, status.Leaders)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0], "16 of 16 groups of buckets")

	leads := openShared(t, s, counts, "leads", Options{MaxRows: 1000})
	harness.Eventually(t, "a leader", func() bool {
		status, err = leads.Status(ctx)
		require.NoError(t, err)
		return status.Leading && len(status.Problems) == 0
	})
	require.Equal(t, []string{"leads"}, status.Leaders)
	harness.Eventually(t, "the name of the leader", func() bool {
		status, err = aside.Status(ctx)
		require.NoError(t, err)
		return len(status.Problems) == 0
	})
	require.Equal(t, Status{Leaders: []string{"leads"}}, status)
	moves, err := aside.Moves(ctx)
	require.NoError(t, err)
	require.Empty(t, moves)

	// Sizes need no leader, but the counters.
	require.NoError(t, aside.CreateBucket(ctx, "b"))
	require.NoError(t, aside.Bucket("b").Put(ctx, []byte("key"), []byte("value")))
	size := func() (all []Size, err error) {
		for s, err := range aside.Sizes(ctx, "b", nil) {
			if err != nil {
				return all, err
			}
			all = append(all, s)
		}
		return all, nil
	}
	harness.Eventually(t, "a count", func() bool {
		all, err := size()
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0].Rows == 1
	})
	// The console of a process that moves nothing shows all processes, and the counters.
	cluster := func() (c adminapi.Cluster) {
		w := httptest.NewRecorder()
		aside.Handler(HandlerOptions{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/cluster", nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
		return c
	}
	require.True(t, cluster().Counters.OK)
	counts.fails.Store(true)
	c := cluster()
	require.False(t, c.Counters.OK)
	require.Len(t, c.Processes, 2)
	all, err := size()
	require.Empty(t, all)
	require.ErrorIs(t, err, store.Unavailable)
	require.ErrorContains(t, err, "no counters here")
}

// forgetful is a store that once does not have a node of a map any more.
type forgetful struct {
	kept
	forgets atomic.Bool
}

func (f *forgetful) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	if f.forgets.Swap(false) {
		return nil, store.Errorf(store.NotFound, "the node was deleted")
	}
	return f.Store.Node(ctx, b, id)
}

// TestSizesGoOnWithTheNextMap: nodes of old maps are deleted after a while, and an iteration may take longer.
func TestSizesGoOnWithTheNextMap(t *testing.T) {
	ctx, s := t.Context(), &forgetful{kept: kept{memstore.New()}}
	db, err := open(ctx, s, assembly.Options{}, &Options{Unbalanced: true}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	const ranges = 5000
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, fmt.Appendf(nil, "%04d", i))
	}
	require.NoError(t, db.CreateBucket(ctx, "b", cuts...))
	var n int
	var last []byte
	for size, err := range db.Sizes(ctx, "b", nil) {
		require.NoError(t, err)
		require.Equal(t, string(last), string(size.Start))
		last = size.End
		if n++; n == sizesAtOnce+1 {
			set := func([]byte) ([]byte, error) { return []byte("another map"), nil }
			require.NoError(t, door.Bucket(db.Bucket("b")).ChangeSettings(ctx, set))
			s.forgets.Store(true)
		}
	}
	require.Equal(t, ranges, n)
	require.False(t, s.forgets.Load(), "the node was asked for")

	// A map that lacks a node, and is the newest, is damaged.
	again, err := open(ctx, s, assembly.Options{}, &Options{Unbalanced: true}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, again.Close()) }()
	s.forgets.Store(true)
	for _, err = range again.Sizes(ctx, "b", nil) {
	}
	require.ErrorIs(t, err, store.Corrupt)
}

func TestMovesOfJobsAndOfOthers(t *testing.T) {
	a, b := store.BucketID{1}, store.BucketID{2}
	asked := time.Unix(1_800_000_000, 0)
	goal := func(start, end string, kind string, copies int64) move.Goal {
		return move.Goal{Start: []byte(start), End: []byte(end), Kind: kind, Copies: copies, Rows: 1000, Why: "why"}
	}
	inBatch := func(id uint64, phase partmap.Phase, copied int64) executor.BatchStatus {
		return executor.BatchStatus{
			Batch: partmap.Batch{ID: id, Phase: phase}, Progress: executor.Progress{Copied: copied},
		}
	}
	s := engine.Status{
		Buckets: []scheduler.BucketStatus{
			{ID: a, Status: executor.Status{Batches: []executor.BatchStatus{
				inBatch(7, partmap.Copying, 200), inBatch(9, partmap.Settled, 50), inBatch(11, partmap.Settled, 5),
			}}},
			{ID: b, Status: executor.Status{Batches: []executor.BatchStatus{inBatch(7, partmap.Draining, 3)}}},
		},
		Jobs: []scheduler.Job{
			{Bucket: a, What: "split", Asked: asked, Ended: asked, Goals: []scheduler.GoalState{
				{Goal: goal("0", "1", "", 60), Stage: scheduler.Met, Batch: 9},
			}},
			{Bucket: a, What: "balance", Asked: asked, Goals: []scheduler.GoalState{
				{Goal: goal("a", "b", "split", 300), Stage: scheduler.Begun, Batch: 7},
				{Goal: goal("b", "c", "merge", 100), Stage: scheduler.Begun, Batch: 7},
				{Goal: goal("c", "d", "split", 100), Stage: scheduler.Waiting},
				{Goal: goal("d", "e", "split", 100), Stage: scheduler.Refused, Err: errors.New("no")},
				{Goal: goal("e", "f", "split", 10), Stage: scheduler.Begun, Batch: 8},
			}},
			{Bucket: a, What: "presplit", Asked: asked, Goals: []scheduler.GoalState{
				{Goal: goal("f", "", "", 0), Stage: scheduler.Waiting},
			}},
		},
	}
	name := func(id store.BucketID) string { return map[store.BucketID]string{a: "A", b: "B"}[id] }
	in := func(start, end, kind, phase string, rows, copied int64) Move {
		return Move{
			Bucket: "A", Start: []byte(start), End: []byte(end), Kind: kind, Phase: phase, Rows: rows, Copied: copied,
			Why: "why", Asked: asked,
		}
	}
	others := func(bucket, phase string, copied int64) Move {
		return Move{
			Bucket: bucket, Kind: "resumed", Phase: phase, Copied: copied,
			Why: "begun by another process, or before a restart",
		}
	}
	require.Equal(t, []Move{
		in("a", "b", "split", "copying", 300, 150), in("b", "c", "merge", "copying", 100, 50),
		in("c", "d", "split", "waiting", 100, 0), in("e", "f", "split", "sweeping", 10, 10),
		in("f", "", "presplit", "waiting", 0, 0),
		others("A", "sweeping", 5), others("B", "draining", 3),
	}, movesOf(&s, name))
	require.Empty(t, movesOf(&engine.Status{}, name))
}
