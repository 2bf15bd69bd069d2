package sim

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// journal records all writes to the rows of each data centre, and all changes of registers and nodes, in order. From a
// journal the store can be put back to what snapshots have of it, which the nodes of a cluster take at different
// moments. A moment is the number of entries before it.
type journal struct {
	mu  sync.Mutex
	all []entry
}

// entry is a write that was applied to the rows of a data centre, or a change of a register or a map node.
type entry struct {
	w      *written // nil: of a register or a node
	centre int
	do     func(store.Store) error // of a register or a node
	node   bool
	// root is the bucket whose map root was swapped. phases are the phases of the bucket's moves after the swap.
	root   store.BucketID
	phases []partmap.Phase
}

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, e)
}

// now returns the current moment. Everything that was acknowledged so far came before that moment.
func (j *journal) now() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.all)
}

// recorder is a store that records the changes of registers and map nodes in a journal.
type recorder struct {
	store.Store
	j *journal
}

func (x recorder) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := x.Store.Swap(ctx, t, key, old, next); err != nil {
		return err
	}
	key, next.Blob = bytes.Clone(key), bytes.Clone(next.Blob)
	e := entry{do: func(s store.Store) error { return s.Swap(context.Background(), t, key, old, next) }}
	if t == store.Roots {
		e.root = store.BucketID(key)
		if root, err := partmap.DecodeRoot(e.root, next); err == nil {
			for _, b := range root.Batches {
				e.phases = append(e.phases, b.Phase)
			}
		}
	}
	x.j.add(e)
	return nil
}

func (x recorder) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	if err := x.Store.WriteNode(ctx, b, id, blob); err != nil {
		return err
	}
	blob = bytes.Clone(blob)
	x.j.add(entry{node: true, do: func(s store.Store) error {
		return s.WriteNode(context.Background(), b, id, blob)
	}})
	return nil
}

// phases returns the phases of the moves of a bucket at a moment.
func (j *journal) phases(id store.BucketID, at int) []partmap.Phase {
	for _, e := range slices.Backward(j.all[:at]) {
		if e.root == id {
			return e.phases
		}
	}
	return nil
}

// swaps returns the moments right after the changes of a bucket's map root, from the moment from on.
func (j *journal) swaps(id store.BucketID, from int) (all []int) {
	for i := from; i < len(j.all); i++ {
		if j.all[i].root == id {
			all = append(all, i+1)
		}
	}
	return all
}
