package balancer

import (
	"context"
	"iter"
	"sync"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// places remembers a key for each partition, near which the bucket's map has the range of the partition. So the range
// is found without a walk through the whole map. The keys are hints: a wrong or forgotten one costs one walk through
// the map.
//
// A place is the start of a range that lies margin or a few more ranges lower, or a prefix of that start. Neighbours
// share a place, so that a partition takes some 50 bytes.
type places struct {
	mu sync.Mutex
	of map[store.PartitionID]string
}

const (
	// placesKept is the maximum number of partitions with a place, placeBytes the maximum length of a place.
	placesKept = 1 << 19
	placeBytes = 256
)

func (p *places) get(id store.PartitionID) (near string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	near, ok = p.of[id]
	return near, ok
}

// put stores the key near as the place of range rg: a search of the bucket's map for rg begins there. poor is true if
// near may be too close to the range. Then an earlier place is kept.
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

// walk returns the ranges of a bucket's map from the range that contains the key from upwards. On the way it remembers
// where in the map each range was found.
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
