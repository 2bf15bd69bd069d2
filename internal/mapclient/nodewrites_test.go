package mapclient_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// roundTrip is the time of a write of a node in distant.
const roundTrip = 80 * time.Millisecond

// distant is a store with a data centre far away: each write of a node takes a round trip. It counts these writes.
type distant struct {
	store.Store
	t  *testing.T
	mu sync.Mutex
	// begun and ended are all writes of nodes, most is the largest number under way at one time.
	begun, ended, most int
}

func (d *distant) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	d.mu.Lock()
	d.begun++
	d.most = max(d.most, d.begun-d.ended)
	d.mu.Unlock()
	time.Sleep(roundTrip)
	err := d.Store.WriteNode(ctx, b, id, blob)
	d.mu.Lock()
	d.ended++
	d.mu.Unlock()
	return err
}

func (d *distant) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if t == store.Roots {
		require.Zero(d.t, d.underWay(), "a root is swapped before the nodes that it names are written")
	}
	return d.Store.Swap(ctx, t, key, old, next)
}

func (d *distant) underWay() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun - d.ended
}

// splitAll makes a change that cuts a range in every segment of a map, so that all of the map's nodes are new.
func splitAll(t *testing.T, c *mapclient.Client, id store.BucketID) partmap.Change {
	root, err := c.Load(t.Context(), id)
	require.NoError(t, err)
	edit := c.Edit(t.Context(), root)
	var moves []partmap.Move
	i := 0
	for rg, err := range c.Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		if i++; i%100 == 0 {
			moves = append(moves, partmap.Move{Start: rg.Start, End: rg.End, Parts: []partmap.Part{
				{Start: rg.Start},
				{Start: append(append([]byte{}, rg.Start...), '5'), To: store.PartitionID(uuid.New())},
			}})
		}
	}
	_, err = edit.Begin(moves...)
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	return change
}

// A change of many segments takes few round trips, at most sixteen nodes being written at one time, and the root is
// swapped after all of them.
func TestTheNodesOfAChangeAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &distant{Store: memstore.New(), t: t}
		c := mapclient.NewEmbedded(s, mapclient.Options{})
		id := store.BucketID(uuid.New())
		trips := func(f func()) int {
			began := time.Now()
			f()
			return int(time.Since(began) / roundTrip)
		}
		created := trips(func() {
			_, err := c.Create(t.Context(), id, cutsOf(20_000))
			require.NoError(t, err)
		})
		nodes := s.begun
		require.Greater(t, nodes, 20)
		require.Equal(t, (nodes+15)/16, created, "to create a map of %d nodes", nodes)
		change := splitAll(t, c, id)
		require.Greater(t, len(change.Nodes), 20)
		swapped := trips(func() { require.NoError(t, c.Swap(t.Context(), change)) })
		require.Equal(t, (len(change.Nodes)+15)/16, swapped, "to write %d nodes", len(change.Nodes))
		require.Equal(t, 16, s.most)
	})
}

// Each write of a node fails in turn, in each way. The map stays as it was, no write is under way any more when Swap
// returns, and the change can be made anew, also after the writes that were late have landed.
func TestEachWriteOfANodeFails(t *testing.T) {
	run := func(t *testing.T, fail faulttest.Case) (writes int) {
		inner := &distant{Store: memstore.New(), t: t}
		s, faults := fail.Store(inner)
		c := mapclient.NewEmbedded(s, mapclient.Options{})
		id := store.BucketID(uuid.New())
		before, err := c.Create(t.Context(), id, cutsOf(2_000))
		require.NoError(t, err)
		sound := func(epoch uint64) {
			root, err := c.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, epoch, root.Epoch)
			require.Empty(t, partmap.Validate(root, c.Reader(t.Context(), id)))
		}
		change := splitAll(t, c, id)
		faults.Enable(true)
		err = c.Swap(t.Context(), change)
		faults.Enable(false)
		if fail.Way == nil {
			require.NoError(t, err)
			return len(change.Nodes)
		}
		require.ErrorContains(t, err, "write node ")
		require.Equal(t, fail.Way.Kind, store.KindOf(err))
		require.Zero(t, inner.underWay())
		sound(before.Epoch)
		again := splitAll(t, c, id)
		require.NoError(t, c.Swap(t.Context(), again))
		require.NoError(t, faults.Flush(t.Context()))
		sound(before.Epoch + 1)
		return 0
	}
	writes := 0
	synctest.Test(t, func(t *testing.T) { writes = run(t, faulttest.Case{}) })
	require.Greater(t, writes, 2)
	faulttest.Each(t, map[faultstore.Op]int{faultstore.WriteNode: writes}, func(fail faulttest.Case) {
		synctest.Test(t, func(t *testing.T) { run(t, fail) })
	})
}
