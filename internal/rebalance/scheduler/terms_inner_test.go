package scheduler

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// endsSoon is a context that ends after a number of looks at it.
type endsSoon struct {
	context.Context
	looks int
}

func (c *endsSoon) Err() error {
	if c.looks--; c.looks >= 0 {
		return nil
	}
	return context.Canceled
}

// A term may end at any moment, and so while the scheduler gives turns to the buckets of its shards.
func TestATermThatEndsWhileTurnsBegin(t *testing.T) {
	for looks := range 8 {
		synctest.Test(t, func(t *testing.T) {
			c, err := listing.New(memstore.New(), listing.Options{})
			require.NoError(t, err)
			defer mapclient.Of(c).Close()
			g := New(memstore.New(), mapclient.Of(c), Options{})
			var id store.BucketID
			of := &term{ctx: &endsSoon{t.Context(), looks}}
			g.enter(shard.All, of)
			g.mu.Lock()
			g.bucket(id).want()
			g.mu.Unlock()
			g.start()
			of.work.Wait()
		})
	}
}

// What was requested of a process is not left waiting there, to be done some day, once another process leads the shard:
// it fails. The same is true of what comes later.
func TestWhatWasRequestedFailsWhenTheShardIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		g := New(s, mapclient.Of(c), Options{})
		plan := &Plan{Moves: []move.Goal{{Cuts: [][]byte{[]byte("m")}}}}
		lost := store.Errorf(store.Conflict, "another process leads")
		a, b := store.BucketID{1}, store.BucketID{2}
		var waiting [2]Job
		for i, id := range []store.BucketID{a, b} {
			waiting[i] = g.Submit(id, "split", plan)
			require.Equal(t, JobWaiting, waiting[i].State, "before the process leads")
		}
		ctx, lose := context.WithCancelCause(t.Context())
		g.enter(shard.Only(1), &term{ctx: ctx})
		lose(lost)
		g.leave(shard.Only(1))
		j, _ := g.Job(waiting[0].ID)
		require.Equal(t, JobFailed, j.State)
		require.ErrorIs(t, j.Err(), store.Conflict)
		require.Equal(t, JobFailed, g.Submit(a, "split", plan).State)
		g.want(a)
		require.Len(t, g.buckets, 1)
		require.False(t, g.Held(a))

		j, _ = g.Job(waiting[1].ID)
		require.Equal(t, JobWaiting, j.State, "of another shard")
		ctx, stop := context.WithCancel(t.Context())
		g.enter(shard.Only(2), &term{ctx: ctx})
		stop()
		g.leave(shard.Only(2))
		j, _ = g.Job(waiting[1].ID)
		require.Equal(t, JobWaiting, j.State, "the shard was not lost: Run has ended")
		g.enter(shard.Only(1), &term{ctx: t.Context()})
		require.Equal(t, JobWaiting, g.Submit(a, "split", plan).State)
	})
}
