package storetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runReopen(t *testing.T) {
	t.Run("reopened", func(t *testing.T) {
		t.Run("rows, tombstones and removals are as before", s.reopenRows)
		t.Run("registers, their history and nodes are as before", s.reopenRegisters)
	})
}

func (s *suite) reopen(t *testing.T, st store.Store) store.Store {
	reopened := s.Reopen(t, st)
	t.Cleanup(func() { _ = reopened.Close() })
	return reopened
}

// reopenRows tests that a store keeps its rows when the store is closed and opened again. It applies many random
// sequences of writes, and reopens the store after each third of them. An old write that arrives after a reopening must
// not become visible if a newer write has won before.
func (s *suite) reopenRows(t *testing.T) {
	ctx, st := t.Context(), s.open(t)
	type history struct {
		ops []operation
		ps  []store.Partition
	}
	all := make([]history, s.scale(60))
	for i := range all {
		r := s.rand(t.Name(), i)
		all[i].ops = randomHistory(r)
		r.Shuffle(len(all[i].ops), func(a, b int) { all[i].ops[a], all[i].ops[b] = all[i].ops[b], all[i].ops[a] })
		for range partitionsPerHistory {
			all[i].ps = append(all[i].ps, newPartition())
		}
	}
	const parts = 3
	for part := range parts {
		for _, h := range all {
			for _, o := range h.ops[len(h.ops)*part/parts : len(h.ops)*(part+1)/parts] {
				require.NoError(t, o.apply(ctx, st, h.ps))
			}
		}
		st = s.reopen(t, st)
		for i, h := range all {
			done := h.ops[:len(h.ops)*(part+1)/parts]
			for n, p := range h.ps {
				err := s.checkPartition(ctx, st, p, visible(done, n), trickyKeys, s.rand(t.Name(), -i))
				require.NoError(t, err, "partition %d, after\n%s", n, formatHistory(done))
			}
		}
	}
}

func (s *suite) reopenRegisters(t *testing.T) {
	ctx, st := t.Context(), s.open(t)
	var registers []*register
	replaced := map[*register][]store.Record{}
	for _, table := range store.Tables() {
		for range 3 {
			registers = append(registers, newRegister(ctx, t, st, table))
		}
	}
	b, gone := newBucket(), newNodeID()
	nodes := map[store.NodeID][]byte{}
	for round := range 3 {
		for i, r := range registers {
			for range i % 3 {
				replaced[r] = append([]store.Record{r.Record}, replaced[r]...)
				r.swap(ctx, t, st, fmt.Sprint("round ", round))
			}
		}
		id := newNodeID()
		nodes[id] = bytes.Repeat([]byte{byte(round)}, 1000)
		require.NoError(t, st.WriteNode(ctx, b, id, nodes[id]))
		require.NoError(t, st.WriteNode(ctx, b, gone, []byte("gone")))
		require.NoError(t, st.DeleteNode(ctx, b, gone))
		gone = newNodeID()

		st = s.reopen(t, st)
		for _, r := range registers {
			r.requireIs(t, st)
			stale := store.Version{Epoch: r.Epoch, Token: storekit.NewToken()}
			requireKind(t, store.Conflict, st.Swap(ctx, r.table, r.key, stale, nextRecord(stale, "never")))
			if r.table != store.Roots {
				continue
			}
			kept, err := st.History(ctx, store.BucketID(r.key), 0, 100)
			require.NoError(t, err)
			require.Len(t, kept, len(replaced[r]))
			for i := range kept {
				requireRecord(t, replaced[r][i], kept[i])
			}
		}
		ids, err := st.ScanNodes(ctx, b, store.NodeID{}, 100)
		require.NoError(t, err)
		require.Len(t, ids, len(nodes))
		for id, blob := range nodes {
			got, err := st.Node(ctx, b, id)
			require.NoError(t, err)
			require.Equal(t, blob, got)
		}
	}
}
