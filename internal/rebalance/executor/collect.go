package executor

import (
	"context"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Collect deletes stored nodes that the bucket's partition map no longer uses. A node is deleted once it has been known
// to be unused for Options.CollectAfter, so Collect must be called from time to time. Run may run meanwhile. The
// results are:
//   - gone: the number of deleted nodes
//   - waiting: the number of unused nodes that must be kept for now
func (x *Executor) Collect(ctx context.Context) (gone, waiting int, err error) {
	// What is known about nodes is in memory only: a restart delays the deletion.
	// The nodes are read before the root. So a node that this root does not name was never named, or is not named any
	// more.
	ids, err := x.nodes(ctx)
	if err != nil {
		return 0, 0, store.Wrap("list the map nodes of bucket "+x.bucket.String(), err)
	}
	if len(ids) == 0 {
		return 0, 0, nil
	}
	root, err := x.maps.Load(ctx, x.bucket)
	if err != nil {
		return 0, 0, err
	}
	named, err := x.named(ctx, root)
	if err != nil {
		return 0, 0, err
	}
	unnamed, err := x.epochs(ctx, slices.DeleteFunc(ids, func(id store.NodeID) bool { return named[id] }))
	if err != nil {
		return 0, 0, err
	}
	x.mu.Lock()
	due := x.unnamed.Due(root.Epoch, named, unnamed, x.o.Now(), x.o.CollectAfter)
	x.mu.Unlock()
	waiting = len(unnamed) - len(due)
	if len(due) == 0 {
		return 0, waiting, nil
	}
	return len(due), waiting, x.do(ctx, nil, move.Collect{Nodes: due})
}

// nodes returns the ids of all stored nodes of the bucket's partition map, whether the present map names them or not.
func (x *Executor) nodes(ctx context.Context) (all []store.NodeID, err error) {
	var after store.NodeID
	for {
		ids, err := x.store.ScanNodes(ctx, x.bucket, after, 1000)
		if err != nil || len(ids) == 0 {
			return all, err
		}
		all = append(all, ids...)
		after = ids[len(ids)-1]
	}
}

// named returns the ids of all nodes of the partition map whose root is root: index nodes and segments. It reads only the
// index nodes, which name the segments. Stored nodes that are not named are not in use.
func (x *Executor) named(ctx context.Context, root *partmap.Root) (map[store.NodeID]bool, error) {
	named := map[store.NodeID]bool{}
	var down func(c partmap.Child, height uint8) error
	down = func(c partmap.Child, height uint8) error {
		if named[c.Node] = true; height == 0 {
			return nil
		}
		blob, err := x.store.Node(ctx, x.bucket, c.Node)
		if err != nil {
			return store.Wrap(mapcodec.NodeOp("read index node", x.bucket, c.Node), err)
		}
		index, err := mapcodec.DecodeIndex(x.bucket, c.Node, blob)
		if err == nil {
			err = index.Check(c.Start, height, root.Epoch)
		}
		for i := 0; err == nil && i < index.Len(); i++ {
			err = down(partmap.Child{Start: index.At(i), Node: index.Node(i)}, height-1)
		}
		return err
	}
	for _, c := range root.Children {
		if err := down(c, root.Height-1); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// epochs returns the map nodes with the given ids, each with the epoch (version of the partition map) for which the
// node was written. Nodes that are no longer stored are left out.
func (x *Executor) epochs(ctx context.Context, ids []store.NodeID) (all []move.Node, err error) {
	for _, id := range ids {
		blob, err := x.store.Node(ctx, x.bucket, id)
		if store.KindOf(err) == store.NotFound {
			continue
		}
		if err != nil {
			return nil, store.Wrap(fmt.Sprintf("read node %s of bucket %s", id, x.bucket), err)
		}
		epoch, err := mapcodec.NodeEpoch(x.bucket, id, blob)
		if err != nil {
			return nil, err
		}
		all = append(all, move.Node{ID: id, Epoch: epoch})
	}
	return all, nil
}

// collect deletes the map nodes with the given ids from the store, one by one.
func (x *Executor) collect(ctx context.Context, nodes []store.NodeID) error {
	for _, id := range nodes {
		if err := x.failpoint(ctx, "collect node", id.String()); err != nil {
			return err
		}
		if err := x.retry(ctx, func() error { return x.store.DeleteNode(ctx, x.bucket, id) }); err != nil {
			return err
		}
	}
	return nil
}
