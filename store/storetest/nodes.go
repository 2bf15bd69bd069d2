package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runNodes(t *testing.T) {
	t.Run("nodes", s.nodes)
	t.Run("nodes of buckets know nothing of each other", s.nodesApart)
	t.Run("a scan finds every node of the bucket once", s.nodeScan)
}

func (s *suite) nodes(t *testing.T) {
	ctx, b, id := t.Context(), newBucket(), newNodeID()
	_, err := s.store.Node(ctx, b, id)
	requireKind(t, store.NotFound, err)
	require.NoError(t, s.store.DeleteNode(ctx, b, id), "deleting what is not there")

	id = newNodeID()
	blob := []byte("a node\x00\xff")
	require.NoError(t, s.store.WriteNode(ctx, b, id, blob))
	require.NoError(t, s.store.WriteNode(ctx, b, id, blob), "writing the same again")
	want := string(blob)
	clear(blob)
	for range 2 {
		got, err := s.store.Node(ctx, b, id)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		clear(got)
	}
	for range 2 {
		require.NoError(t, s.store.DeleteNode(ctx, b, id))
		_, err = s.store.Node(ctx, b, id)
		requireKind(t, store.NotFound, err)
	}
}

func (s *suite) nodesApart(t *testing.T) {
	ctx, a, b, id := t.Context(), newBucket(), newBucket(), newNodeID()
	b = a
	b[15]++
	require.NoError(t, s.store.WriteNode(ctx, a, id, []byte("a")))
	_, err := s.store.Node(ctx, b, id)
	requireKind(t, store.NotFound, err)
	require.NoError(t, s.store.WriteNode(ctx, b, id, []byte("b")))
	require.NoError(t, s.store.DeleteNode(ctx, a, id))
	got, err := s.store.Node(ctx, b, id)
	require.NoError(t, err)
	require.Equal(t, "b", string(got))
	ids, err := s.store.ScanNodes(ctx, a, store.NodeID{}, 10)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func (s *suite) nodeScan(t *testing.T) {
	ctx, b, beside := t.Context(), newBucket(), newBucket()
	beside = b
	beside[15]++
	want := map[store.NodeID]bool{}
	for i := range s.scale(90) + 10 {
		id := newNodeID()
		require.NoError(t, s.store.WriteNode(ctx, b, id, fmt.Append(nil, i)))
		if i%5 == 0 {
			require.NoError(t, s.store.DeleteNode(ctx, b, id))
		} else {
			want[id] = true
		}
		require.NoError(t, s.store.WriteNode(ctx, beside, newNodeID(), []byte("beside")))
	}
	for _, limit := range []int{1, 7, 1000} {
		found := map[store.NodeID]bool{}
		for after := (store.NodeID{}); ; {
			ids, err := s.store.ScanNodes(ctx, b, after, limit)
			require.NoError(t, err)
			if len(ids) == 0 {
				break
			}
			require.LessOrEqual(t, len(ids), limit)
			for _, id := range ids {
				require.False(t, found[id], "%s is found twice", id)
				found[id] = true
			}
			after = ids[len(ids)-1]
		}
		require.Equal(t, want, found)
	}
}
