package oncassandra

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// restless splits, merges and refreshes ranges of a bucket, one move after the
// other, until it is stopped.
type restless struct {
	t      *testing.T
	store  cassandrastore.Store
	maps   *mapclient.Client
	client *listing.Client
	bucket store.BucketID
	keys   []string

	moves  atomic.Int64
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func startMoves(t *testing.T, o cassandrastore.Options, l *crowd, lease time.Duration) *restless {
	s := harness.Open(t, o)
	m := &restless{t: t, store: s, maps: harness.Maps(t, s, lease), keys: l.keys}
	m.client = harness.Client(t, s, m.maps, listing.Options{})
	for info, err := range m.client.Buckets(t.Context(), l.bucket, "") {
		require.NoError(t, err)
		m.bucket = info.ID
		break
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	r := seed.New(t)
	m.work.Go(func() {
		x := executor.New(s, m.maps, m.bucket, executor.Options{Observe: func(e executor.Event) {
			if e.Kind == executor.GoalRefused {
				t.Errorf("refused: %v", e.Err)
			}
		}})
		for ctx.Err() == nil {
			goal, err := m.goal(ctx, r)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // the map can't be read just now
				continue
			}
			x.Add(goal)
			if err := x.Run(ctx); err == nil {
				m.moves.Add(1)
			} else if ctx.Err() == nil {
				t.Errorf("a move ended with %v", err)
				return
			}
		}
	})
	return m
}

func (m *restless) ranges(ctx context.Context) (out []partmap.Range, err error) {
	root, err := m.maps.Load(ctx, m.bucket)
	if err != nil {
		return nil, err
	}
	for rg, err := range m.maps.Ranges(ctx, root, nil) {
		if err != nil {
			return nil, err
		}
		out = append(out, rg)
	}
	return out, nil
}

// goal is some move that fits the map as it is.
func (m *restless) goal(ctx context.Context, r *rand.Rand) (move.Goal, error) {
	ranges, err := m.ranges(ctx)
	if err != nil {
		return move.Goal{}, err
	}
	i := r.IntN(len(ranges))
	rg := &ranges[i]
	switch key := []byte(m.keys[r.IntN(len(m.keys))]); {
	case len(ranges) > 8 && i > 0:
		return move.Merge(ranges[i-1].Start, rg.End), nil
	case rg.Contains(key) && string(key) != string(rg.Start):
		return move.Split(rg.Start, rg.End, r.IntN(3)-1, key), nil
	}
	return move.Refresh(rg), nil
}

// progress waits until so many more moves have come to their end.
func (m *restless) progress(moves int64) {
	m.t.Helper()
	from, begun := m.moves.Load(), time.Now()
	for m.moves.Load() < from+moves {
		if time.Since(begun) > 2*time.Minute {
			m.t.Fatalf("only %d moves of %d came to their end in two minutes", m.moves.Load()-from, moves)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stop stops where it is, possibly in the middle of a move.
func (m *restless) stop() {
	m.cancel()
	m.work.Wait()
}

// end has another mover bring what is under way to its end, and checks everything
// that the keyspace holds.
func (m *restless) end(o cassandrastore.Options, lease time.Duration) {
	m.t.Helper()
	s := harness.Open(m.t, o)
	other := harness.Maps(m.t, s, lease)
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(m.t, executor.New(s, other, m.bucket, executor.Options{}).Run(ctx))
	var open []string
	summary, err := repair.New(s, harness.Client(m.t, s, other, listing.Options{}),
		repair.Options{Report: func(f repair.Finding) {
			if f.Open() {
				open = append(open, f.String())
			}
		}}).All(ctx)
	require.NoError(m.t, err)
	require.Empty(m.t, open)
	m.t.Logf("%d moves; checked: %+v", m.moves.Load(), summary)
}
