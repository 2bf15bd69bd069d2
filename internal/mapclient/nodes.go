package mapclient

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// node is a decoded node of a map. It is either a segment, which holds entries, or an index node, which names other
// nodes; the field for the other kind is empty. The fields are values, not pointers, to save a memory access in each
// lookup.
type node struct {
	segment mapcodec.Segment
	index   mapcodec.Index
	links   links // a link for each child of the index node; nil in a segment
}

// check makes sure that the node n fits its parent node, in the map of root r. The parameter c is the reference to the
// node in the parent, and height is the height that the parent expects. If they disagree, the error is of kind Corrupt.
func (n *node) check(r *partmap.Root, c partmap.Child, height uint8) error {
	// The cache finds a node by its id alone, so the check is repeated for each parent that names the node.
	switch {
	case n.links != nil:
		return n.index.Check(c.Start, height, r.Epoch)
	case height != 0:
		return store.Errorf(
			store.Corrupt, "node %s of bucket %s is a segment, its parent says that it has height %d", c.Node, r.Bucket, height,
		)
	}
	return n.segment.Check(c.Start, r.Epoch)
}

// slot is the place of one node of a map in the cache. A parent node points to the slots of its children, and not to
// the nodes themselves. So an evicted node leaves nothing but its slot in memory.
type slot struct {
	node  atomic.Pointer[node] // nil once the node is evicted
	used  atomic.Bool
	bytes int64
}

func (s *slot) mark() *atomic.Bool { return &s.used }
func (s *slot) size() int64        { return s.bytes }
func (s *slot) evict() bool {
	s.node.Store(nil)
	return true
}

// links are pointers from a cached node of a map to the cache's slots for its children, the nodes directly below. A
// lookup that follows these pointers needs no lock, and no search in the cache.
type links []atomic.Pointer[slot]

// get returns the node to which the i-th of the links leads: the i-th child of a cached node of a map. It returns nil
// if the link is not set yet, or if the child is evicted.
func (l links) get(i int) *node {
	s := l[i].Load()
	if s == nil {
		return nil
	}
	touch(&s.used)
	return s.node.Load()
}

const (
	// slotBytes is the memory, in bytes, of a slot, which holds a cached node. linkBytes is that of a link, a pointer
	// to a slot.
	slotBytes = 40
	linkBytes = 8
)

// nodes is the cache of decoded nodes of the maps of all buckets. It reads missing nodes from the store.
type nodes struct {
	store   store.Nodes
	cache   *lru[store.NodeID, *slot]
	loading shared // loads under way, by node id
}

// loadTimeout bounds the time for reading a node of a map from the store. Several callers may share a read, so a read
// does not end with the context of one caller.
const loadTimeout = 10 * time.Second

// child returns a node of the map of root r, from the cache or from the store. The parameter c is the reference to the
// node in its parent. child sets the parent's link l, so that the next lookup finds the node without a search. It fails
// with Corrupt if the node contradicts its parent.
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

// loaded is a decoded node of a map, together with its slot in the cache. The node stays usable even after the cache
// has evicted it.
type loaded struct {
	slot *slot
	node *node // nil: the node is not in the cache
}

// cached returns the node with this id and its slot in the cache. If the cache does not have the node, the field node
// of the result is nil.
func (n *nodes) cached(id store.NodeID) (l loaded) {
	if s, ok := n.cache.peek(id); ok {
		l = loaded{s, s.node.Load()}
	}
	return l
}

// load reads the node id of the map of bucket b from the store, and adds the node to the cache. Concurrent calls for
// the same node share a single read. height is 0 for a segment, else the height of the index node.
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

// read reads the node id of the map of bucket b from the store and decodes it. height is 0 for a segment, else the
// height of the index node. The results are the node, and its memory in bytes.
func (n *nodes) read(ctx context.Context, b store.BucketID, id store.NodeID, height uint8) (*node, int64, error) {
	blob, err := n.store.Node(ctx, b, id)
	if err != nil {
		return nil, 0, store.Wrap(fmt.Sprintf("read node %s of bucket %s", id, b), err)
	}
	if height == 0 {
		s, err := mapcodec.DecodeSegment(b, id, blob)
		if err != nil {
			return nil, 0, err
		}
		return &node{segment: *s}, s.Bytes() + slotBytes + nodeBytes, nil
	}
	x, err := mapcodec.DecodeIndex(b, id, blob)
	if err != nil {
		return nil, 0, err
	}
	return &node{index: *x, links: make(links, x.Len())}, x.Bytes() + slotBytes + nodeBytes + int64(x.Len())*linkBytes, nil
}

// nodeBytes is the memory, in bytes, that a cached node of a map takes besides its decoded content.
const nodeBytes = 256

// writesAtOnce is the greatest number of nodes of one change of a map that are written at the same time. Further nodes
// wait. Each write is a round trip to the farthest data centre.
const writesAtOnce = 16

// write writes the new nodes of a change of the map of bucket b. It returns when all writes have ended, with the error
// of the one that failed first. After an error, some of the nodes may be stored, now or later. They do no harm: no root
// names them, and the collector of unused nodes deletes them.
func (n *nodes) write(ctx context.Context, b store.BucketID, nodes []partmap.Node) error {
	// The order of the writes does not matter, although index nodes name other nodes: a reader comes to a node only
	// from a root, and the root is swapped after all writes.
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
