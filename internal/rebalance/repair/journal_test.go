package repair_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// journal is a store that writes down what is done to it. So a copy can be made of
// its rows as they were at any moment, and of its registers and nodes as they were at
// another one, tombstones and removals included: as when a cluster is restored from
// copies that were not taken at once.
type journal struct {
	store.Store

	mu  sync.Mutex
	ops []op
	// last is how many ops are let through before cancel is called; negative: any.
	last   int
	cancel context.CancelFunc
}

// kind says what an op is of.
type kind uint8

const (
	ofRow kind = iota
	ofRegister
	ofNode
	allKinds
)

type op struct {
	kind   kind
	at     store.PartitionID // of a row
	bucket store.BucketID    // of a row
	table  store.Table       // of a register
	do     func(ctx context.Context, s store.Store) error
	// root is the bucket of a swapped root, and phases are those of its batches.
	root   store.BucketID
	phases []partmap.Phase
}

func newJournal(s store.Store) *journal { return &journal{Store: s, last: -1} }

// now is how many ops were done; those that were acknowledged are among them.
func (j *journal) now() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.ops)
}

func (j *journal) note(ctx context.Context, o op) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last >= 0 && len(j.ops) >= j.last {
		j.cancel()
		return store.Errorf(store.Timeout, "interrupted")
	}
	err := o.do(ctx, j.Store)
	if err == nil {
		j.ops = append(j.ops, o)
	}
	return err
}

// copy makes in s the rows, the registers and the nodes of three moments.
func (j *journal) copy(t testing.TB, s store.Store, moments [allKinds]int) {
	j.copyApart(t, s, func(o *op) int { return moments[o.kind] })
}

// copyApart makes in s what there was at the moment of each op's kind and partition.
func (j *journal) copyApart(t testing.TB, s store.Store, moment func(o *op) int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.ops {
		if o := &j.ops[i]; i < moment(o) {
			require.NoError(t, o.do(ctx, s))
		}
	}
}

func (j *journal) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	kept := slices.Clone(rows)
	for i := range kept {
		kept[i].Key, kept[i].Value = bytes.Clone(kept[i].Key), bytes.Clone(kept[i].Value)
	}
	return j.note(ctx, op{at: p.ID, bucket: p.Bucket, do: func(ctx context.Context, s store.Store) error {
		return s.Put(ctx, p, kept...)
	}})
}

func (j *journal) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	key = bytes.Clone(key)
	return j.note(ctx, op{at: p.ID, bucket: p.Bucket, do: func(ctx context.Context, s store.Store) error {
		return s.Delete(ctx, p, key, ts)
	}})
}

func (j *journal) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	b.Start, b.End = bytes.Clone(b.Start), bytes.Clone(b.End)
	return j.note(ctx, op{at: p.ID, bucket: p.Bucket, do: func(ctx context.Context, s store.Store) error {
		return s.Remove(ctx, p, b, ts)
	}})
}

func (j *journal) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	key = bytes.Clone(key)
	next.Blob = bytes.Clone(next.Blob)
	o := op{kind: ofRegister, table: t, do: func(ctx context.Context,
		s store.Store) error {
		return s.Swap(ctx, t, key, old, next)
	}}
	if t == store.Roots {
		o.root = store.BucketID(key)
		if root, err := partmap.DecodeRoot(o.root, next); err == nil {
			for _, b := range root.Batches {
				o.phases = append(o.phases, b.Phase)
			}
		}
	}
	return j.note(ctx, o)
}

func (j *journal) WriteNode(ctx context.Context, b store.BucketID, id store.NodeID, blob []byte) error {
	blob = bytes.Clone(blob)
	return j.note(ctx, op{kind: ofNode, do: func(ctx context.Context, s store.Store) error {
		return s.WriteNode(ctx, b,
			id, blob)
	}})
}

func (j *journal) DeleteNode(ctx context.Context, b store.BucketID, id store.NodeID) error {
	return j.note(ctx, op{kind: ofNode, do: func(ctx context.Context, s store.Store) error {
		return s.DeleteNode(ctx,
			b, id)
	}})
}

func (j *journal) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	return j.Store.(store.PartitionLister).Partitions(ctx, after, limit)
}
