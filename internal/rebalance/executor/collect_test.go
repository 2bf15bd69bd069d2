package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// vanishing is a store in which somebody else collects nodes too: Before is called
// before each node is read.
type vanishing struct {
	store.Store
	before func(id store.NodeID)
	// read, if set, says what is read of a node.
	read func(blob []byte) ([]byte, error)
	// lose, if set, says why a node can't be read.
	lose func(id store.NodeID) error
}

func (s *vanishing) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	if s.before != nil {
		s.before(id)
	}
	if s.lose != nil {
		if err := s.lose(id); err != nil {
			return nil, err
		}
	}
	blob, err := s.Store.Node(ctx, b, id)
	if err == nil && s.read != nil {
		return s.read(blob)
	}
	return blob, err
}

// A map of two levels of nodes: those at every height that it names stay, and those go
// that it named before. A node that somebody else deleted meanwhile is no failure.
func TestCollectFromATallMap(t *testing.T) {
	ctx := t.Context()
	s := &vanishing{Store: memstore.New()}
	defer func() { require.NoError(t, s.Close()) }()
	var cuts [][]byte
	for i := range 40 { // so long that few fit into a node
		cuts = append(cuts, fmt.Appendf(bytes.Repeat([]byte{byte('a' + i/2)}, 60_000), "%d", i%2))
	}
	f := newFixtureOf(t, s, cuts...)
	now := time.Now()
	x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Now: func() time.Time { return now }})
	for _, at := range []int{3, 20, 33} {
		x.Add(move.Merge(cuts[at], cuts[at+2]))
	}
	require.NoError(t, x.Run(ctx))
	root, err := mapclient.Of(f.c).Load(ctx, f.id)
	require.NoError(t, err)
	require.GreaterOrEqual(t, int(root.Height), 2)
	scan := func() []store.NodeID {
		ids, err := s.ScanNodes(ctx, f.id, store.NodeID{}, 10_000)
		require.NoError(t, err)
		return ids
	}
	all := scan()
	gone, waiting, err := x.Collect(ctx)
	require.NoError(t, err)
	require.Zero(t, gone)
	require.Greater(t, waiting, 2)

	// A node that can't be read, or is damaged, may name others: nothing goes.
	now = now.Add(time.Hour)
	reads := 0
	count := func(blob []byte) ([]byte, error) { reads++; return blob, nil }
	s.read = count
	y := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Now: func() time.Time { return now }, CollectAfter: 1})
	_, _, err = y.Collect(ctx)
	require.NoError(t, err)
	now = now.Add(time.Hour)
	for nth, most := 1, reads; nth <= most; nth++ {
		for _, damaged := range []bool{false, true} {
			reads = 0
			s.read = func(blob []byte) ([]byte, error) {
				if reads++; reads != nth {
					return blob, nil
				}
				if damaged {
					return append(blob[:len(blob)-1:len(blob)-1], blob[len(blob)-1]^1), nil
				}
				return nil, store.Errorf(store.Unavailable, "away")
			}
			gone, waiting, err := y.Collect(ctx)
			require.Error(t, err, "read %d of %d", nth, most)
			require.Zero(t, gone)
			require.Zero(t, waiting)
		}
	}
	s.read = nil
	require.Len(t, scan(), len(all))

	// One goes between the enumeration and the read, by somebody else.
	taken := store.NodeID{}
	s.before = func(id store.NodeID) {
		if (taken == store.NodeID{}) && !f.names(t, root, id) {
			taken = id
			require.NoError(t, s.DeleteNode(ctx, f.id, id))
		}
	}
	gone, left, err := x.Collect(ctx)
	require.NoError(t, err)
	require.NotEqual(t, store.NodeID{}, taken)
	require.Equal(t, waiting-1, gone)
	require.Zero(t, left)
	s.before = nil
	require.Len(t, scan(), len(all)-waiting)
	require.Len(t, f.ranges(t), 41-3) // every node is read
	gone, left, err = x.Collect(ctx)
	require.NoError(t, err)
	require.Zero(t, gone+left)
}

// A bucket that always moves is tidied again and again, so that must not read a whole map: of the segments only those
// are read that the map does not name.
func TestCollectDoesNotReadTheMap(t *testing.T) {
	var mu sync.Mutex
	var reads []store.NodeID
	s := &vanishing{Store: memstore.New()}
	defer func() { require.NoError(t, s.Close()) }()
	f := newFixtureOf(t, s, cuts(10_000, 10_000)...)
	now := time.Now()
	x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{Now: func() time.Time { return now }})
	x.Add(move.Merge(nil, key(2)), move.Merge(key(9000), key(9002)))
	require.NoError(t, x.Run(t.Context()))
	root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
	require.NoError(t, err)
	require.EqualValues(t, 1, root.Height)
	require.Greater(t, len(root.Children), 5)
	s.before = func(id store.NodeID) {
		mu.Lock()
		defer mu.Unlock()
		reads = append(reads, id)
	}
	_, waiting, err := x.Collect(t.Context())
	require.NoError(t, err)
	require.Positive(t, waiting)
	now = now.Add(time.Hour)
	gone, left, err := x.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, waiting, gone)
	require.Zero(t, left)
	require.Len(t, reads, 2*waiting)
	for _, c := range root.Children {
		require.NotContains(t, reads, c.Node)
	}
	s.before = nil
	require.Len(t, f.ranges(t), 9998)
}

// names reports whether a map names a node.
func (f *fixture) names(t *testing.T, root *partmap.Root, id store.NodeID) bool {
	level := root.Children
	for height := int(root.Height) - 1; ; height-- {
		var below []partmap.Child
		for _, c := range level {
			if c.Node == id {
				return true
			}
			if height > 0 {
				blob, err := f.s.(*vanishing).Store.Node(t.Context(), f.id, c.Node)
				require.NoError(t, err)
				index, err := mapcodec.DecodeIndex(f.id, c.Node, blob)
				require.NoError(t, err)
				for i := range index.Len() {
					below = append(below, partmap.Child{Start: index.At(i), Node: index.Node(i)})
				}
			}
		}
		if height == 0 {
			return false
		}
		level = below
	}
}

// A map of which a node is missing or damaged, be it far from what is to move, is broken.
func TestAMapWithADamagedNodeMovesNothing(t *testing.T) {
	for _, c := range []struct {
		ranges  int
		damaged bool
	}{{2500, false}, {2500, true}, {10_000, true}} {
		s, damaged := &vanishing{Store: memstore.New()}, c.damaged
		f := newFixtureOf(t, s, cuts(c.ranges, c.ranges)...)
		root, err := mapclient.Of(f.c).Load(t.Context(), f.id)
		require.NoError(t, err)
		require.EqualValues(t, 1, root.Height)
		require.EqualValues(t, c.ranges, root.Ranges)
		require.Greater(t, len(root.Children), 1)
		last := root.Children[len(root.Children)-1].Node
		blob, err := s.Node(t.Context(), f.id, last)
		require.NoError(t, err)
		if damaged {
			blob[len(blob)-1] ^= 1
			require.NoError(t, s.WriteNode(t.Context(), f.id, last, blob))
		} else {
			require.NoError(t, s.DeleteNode(t.Context(), f.id, last))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		x := executor.New(s, mapclient.Of(f.c), f.id, executor.Options{})
		x.Add(move.Merge(nil, key(2)))
		require.ErrorIs(t, x.Run(ctx), executor.ErrBrokenMap)
		now, err := mapclient.Of(f.c).Load(t.Context(), f.id)
		require.NoError(t, err)
		require.Equal(t, root.Epoch, now.Epoch)
		require.NoError(t, s.Close())
	}
}
