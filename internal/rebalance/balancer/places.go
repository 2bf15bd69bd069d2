package balancer

import (
	"context"
	"iter"
	"sync"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// places remembers, for each partition, a key at which a search of the bucket's map soon finds the range of the
// partition. Without it the whole map must be read. The keys are hints: a wrong or missing key only makes a search
// slower.
//
// The key is the start of a range, or a prefix of that start. When the key is remembered, that range lies 8 (margin) to
// 15 ranges lower, or nearer if the walk through the map began there. Neighbouring ranges share a key, so that a
// partition takes some 50 bytes.
type places struct {
	mu sync.Mutex
	of map[store.PartitionID]string
}

const (
	// placesKept is the maximum number of partitions whose places in the map are remembered. placeBytes is the maximum
	// length of the key that is remembered for a partition.
	placesKept = 1 << 19
	placeBytes = 256
)

// get returns the remembered key for the partition id. A search of the bucket's map for the partition should begin at
// that key. The result ok is false if no key is remembered for the partition.
func (p *places) get(id store.PartitionID) (near string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	near, ok = p.of[id]
	return near, ok
}

// put remembers the key near for the partition of range rg, as the key at which a later search of the bucket's map for
// rg begins. If poor is true, near may be too close to rg, and a key from an earlier call is kept.
func (p *places) put(rg *partmap.Range, near string, poor bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range [...]store.PartitionID{rg.Partition, rg.To} {
		if id == (store.PartitionID{}) {
			continue
		}
		old, known := p.of[id]
		if known && (poor || old == near) {
			continue
		}
		if !known && len(p.of) >= placesKept {
			n := placesKept / 16
			for x := range p.of { // in any order
				delete(p.of, x)
				if n--; n == 0 {
					break
				}
			}
		}
		p.of[id] = near
	}
}

// walk returns the ranges in a bucket's map, in the order of their keys. The parameter `from` is a key, and the range
// that contains it comes first. walk remembers, for each range, where in the map the range was found.
func (b *Balancer) walk(ctx context.Context, root *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		var below, near string
		n := 0
		for rg, err := range b.maps.Ranges(ctx, root, from) {
			if err != nil {
				yield(rg, err)
				return
			}
			if n%margin == 0 {
				below, near = near, string(rg.Start[:min(len(rg.Start), placeBytes)])
			}
			if n == 0 {
				below = near
			}
			b.places.put(&rg, below, n < margin && len(from) > 0)
			n++
			if !yield(rg, nil) {
				return
			}
		}
	}
}
