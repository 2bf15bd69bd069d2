package mapbench

import (
	"bytes"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Each line names another one, and all are come by: what a read of memory at random
// is to be.
func TestMemoryIsOneRound(t *testing.T) {
	m := NewMemory(64 * 1000)
	seen, at := map[uint32]bool{}, uint32(0)
	for range m {
		at = m.Next(at)
		require.False(t, seen[at])
		seen[at] = true
	}
	require.Zero(t, at)
	require.Len(t, seen, 1000)
}

func TestKeysLieInTheMap(t *testing.T) {
	m, err := NewMap(t.Context(), 5000, 1<<20)
	require.NoError(t, err)
	defer m.Lease.Release()
	other, err := m.Another(t.Context(), 1<<20)
	require.NoError(t, err)
	defer other.Lease.Release()
	require.NoError(t, other.ReadAll(t.Context()))
	keys := NewKeys(m.Cuts, 3000)
	for i := range 1000 {
		k := keys.At(i)
		require.Len(t, k, keyBytes)
		require.Less(t, bytes.Compare(k, m.Cuts[3000]), 0)
		rg, err := other.Client.Find(t.Context(), other.Lease, k)
		require.NoError(t, err)
		require.Equal(t, k[:keyBytes-1], rg.Start[:keyBytes-1])
	}
	require.Equal(t, keys.At(1), keys.At(1+keyCount))
}

// Whole moves leave the map as it was, but for the partitions.
func TestSwapsAreThoseOfMoves(t *testing.T) {
	c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{})
	id, cuts := store.BucketID(uuid.New()), Cuts(3000)
	root, err := c.Create(t.Context(), id, cuts)
	require.NoError(t, err)
	starts := func() (out [][]byte, partitions map[store.PartitionID]bool) {
		root, err = c.Load(t.Context(), id)
		require.NoError(t, err)
		partitions = map[store.PartitionID]bool{}
		for rg, err := range c.Ranges(t.Context(), root, nil) {
			require.NoError(t, err)
			require.False(t, rg.SweepPending)
			require.Zero(t, rg.Phase)
			out = append(out, bytes.Clone(rg.Start))
			partitions[rg.Partition] = true
		}
		return out, partitions
	}
	before, had := starts()
	s := &Swaps{Maps: c, Bucket: id}
	require.NoError(t, s.Move(t.Context(), cuts[10], cuts[11]))
	require.NoError(t, s.Move(t.Context(), cuts[2500], cuts[2501]))
	require.Len(t, s.Took, 12)
	require.Len(t, s.Rewriting, 6)
	after, has := starts()
	require.Equal(t, before, after)
	kept := 0
	for p := range has {
		if had[p] {
			kept++
		}
	}
	require.Equal(t, len(before)-2, kept)
}
