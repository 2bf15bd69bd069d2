package mapclient

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// node is a decoded index node or segment; the other one is empty. They are values, not
// pointers, to save a memory access in each lookup.
type node struct {
	segment partmap.Segment
	index   partmap.Index
	links   links // one per child of the index node; nil in a segment
}

// check refuses a node that contradicts its parent. The cache is by id, so each parent has to
// check.
func (n *node) check(r *partmap.Root, c partmap.Child, height uint8) error {
	switch {
	case n.links != nil:
		return partmap.CheckIndex(r, c, height, &n.index)
	case height != 0:
		return store.Errorf(
			store.Corrupt, "node %s of bucket %s is a segment, its parent says that it has height %d", c.Node, r.Bucket, height,
		)
	}
	return partmap.CheckSegment(r, c, &n.segment)
}

// slot is a cache entry of a node. Parents link to slots, not to nodes, so that an evicted
// node is garbage at once.
type slot struct {
	node  atomic.Pointer[node] // nil once evicted
	used  atomic.Bool
	bytes int64
}

func (s *slot) mark() *atomic.Bool { return &s.used }
func (s *slot) size() int64        { return s.bytes }
func (s *slot) evict() bool {
	s.node.Store(nil)
	return true
}

// links are the slots of a cached parent's children, so that a hit needs no lock and no
// lookup in the cache.
type links []atomic.Pointer[slot]

// get returns the i-th child's node if it is in the cache.
func (l links) get(i int) *node {
	s := l[i].Load()
	if s == nil {
		return nil
	}
	touch(&s.used)
	return s.node.Load()
}

const (
	slotBytes = 40
	linkBytes = 8
)

// nodes is the cache of decoded nodes, and the way to load them.
type nodes struct {
	store   store.Nodes
	cache   *lru[store.NodeID, *slot]
	loading shared
}

// loadTimeout bounds a load. Several callers share one, so it does not end with a caller's
// context.
const loadTimeout = 10 * time.Second

// child returns the node of a child that links do not have, and links it.
func (n *nodes) child(
	ctx context.Context, r *partmap.Root, c partmap.Child, height uint8, l *atomic.Pointer[slot],
) (*node, error) {
	got := n.cached(c.Node)
	if got.node == nil {
		var err error
		if got, err = n.load(ctx, r.Bucket, c.Node, height); err != nil {
			return nil, err
		}
	}
	if err := got.node.check(r, c, height); err != nil {
		return nil, err
	}
	got.slot.used.Store(true)
	l.Store(got.slot)
	return got.node, nil
}

// loaded is a slot with its node: the slot may be evicted at any time.
type loaded struct {
	slot *slot
	node *node // nil: not in the cache
}

func (n *nodes) cached(id store.NodeID) (l loaded) {
	if s, ok := n.cache.peek(id); ok {
		l = loaded{s, s.node.Load()}
	}
	return l
}

func (n *nodes) load(ctx context.Context, b store.BucketID, id store.NodeID, height uint8) (loaded, error) {
	got, err := n.loading.do(ctx, string(id[:]), fmt.Sprintf("load node %s of bucket %s", id, b), func() (any, error) {
		if l := n.cached(id); l.node != nil {
			return l, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		got, bytes, err := n.read(ctx, b, id, height)
		if err != nil {
			return nil, err
		}
		s := &slot{bytes: bytes}
		s.node.Store(got)
		n.cache.mu.Lock()
		defer n.cache.mu.Unlock()
		n.cache.add(id, s)
		return loaded{s, got}, nil
	})
	l, _ := got.(loaded)
	return l, err
}

func (n *nodes) read(ctx context.Context, b store.BucketID, id store.NodeID, height uint8) (*node, int64, error) {
	blob, err := n.store.Node(ctx, b, id)
	if err != nil {
		return nil, 0, store.Wrap(fmt.Sprintf("read node %s of bucket %s", id, b), err)
	}
	if height == 0 {
		s, err := partmap.DecodeSegment(b, partmap.Node{ID: id, Blob: blob})
		if err != nil {
			return nil, 0, err
		}
		return &node{segment: *s}, s.Bytes() + slotBytes + nodeBytes, nil
	}
	x, err := partmap.DecodeIndex(b, partmap.Node{ID: id, Blob: blob})
	if err != nil {
		return nil, 0, err
	}
	return &node{index: *x, links: make(links, x.Len())}, x.Bytes() + slotBytes + nodeBytes + int64(x.Len())*linkBytes, nil
}

// nodeBytes is what a node takes beside the segment or index node that it is.
const nodeBytes = 256

// writesAtOnce bounds the nodes of one change that are written at the same time. Each write is a round trip to the
// farthest data centre.
const writesAtOnce = 16

// write writes the nodes of a change and returns when no write is under way any more, with the error of the first one
// that failed. The order does not matter, although index nodes name other nodes: a reader comes to a node from a root
// only, and the root is swapped after all of them. After an error any of the nodes may be there, or arrive later. No
// root names them, and the collector deletes them.
func (n *nodes) write(ctx context.Context, b store.BucketID, nodes []partmap.Node) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(writesAtOnce)
	for _, node := range nodes {
		g.Go(func() error {
			err := gctx.Err()
			if err == nil {
				err = n.store.WriteNode(gctx, b, node.ID, node.Blob)
			}
			return store.Wrap(fmt.Sprintf("write node %s of bucket %s", node.ID, b), err)
		})
	}
	return g.Wait()
}
