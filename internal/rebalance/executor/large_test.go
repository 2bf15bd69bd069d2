package executor_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// nodeReads counts the reads of map nodes.
type nodeReads struct {
	store.Store
	n atomic.Int64
}

func (s *nodeReads) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	s.n.Add(1)
	return s.Store.Node(ctx, b, id)
}

// A bucket of very many ranges splits one of them without reading the whole map; and
// who finds the move in the middle reads no more than the nodes that changed since.
func TestASplitInALargeMapReadsLittle(t *testing.T) {
	ctx := t.Context()
	ranges := 100_000
	if os.Getenv("EVENKEEL_LARGE") != "" {
		ranges = 1_000_000
	}
	s := &nodeReads{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	cut := func(i int) []byte { return fmt.Appendf(nil, "%07d", i) }
	var cuts [][]byte
	for i := range ranges - 1 {
		cuts = append(cuts, cut(i))
	}
	id := store.BucketID(storekit.NewToken())
	root, err := mapclient.Of(c).Create(ctx, id, cuts)
	require.NoError(t, err)
	require.EqualValues(t, ranges, root.Ranges)

	// Killed in the middle, then ended by another one.
	x := executor.New(s, mapclient.Of(c), id, executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
		if point == "before swap verifying" {
			return context.Canceled
		}
		return nil
	}})
	x.Add(move.Split(cut(ranges/2), cut(ranges/2+1), 0, append(cut(ranges/2), 'm')))
	s.n.Store(0)
	require.ErrorIs(t, x.Run(ctx), context.Canceled)
	require.Less(t, s.n.Load(), int64(40))

	other, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	y := executor.New(s, mapclient.Of(other), id, executor.Options{})
	s.n.Store(0)
	require.NoError(t, y.Run(ctx))
	t.Logf("%d nodes read by who found it", s.n.Load())
	// One index node's segments at most.
	require.Less(t, s.n.Load(), int64(256+40))
	root, err = mapclient.Of(other).Load(ctx, id)
	require.NoError(t, err)
	require.EqualValues(t, ranges+1, root.Ranges)
	require.Empty(t, root.Batches)
}
