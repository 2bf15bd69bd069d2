package balancer

import (
	"context"
	"iter"
	"sync"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// places remembers in which part of a map the ranges of partitions lie, so that what was written to is found without
// going through the whole map. It holds hints: a place that is wrong, or forgotten, costs one walk through the map.
//
// A place is the start of a range that lies margin or a few more ranges lower, or a prefix of that. Neighbours share
// it, so that a partition takes some 50 bytes.
type places struct {
	mu sync.Mutex
	of map[store.PartitionID]string
}

const (
	placesKept = 1 << 19
	placeBytes = 256
)

func (p *places) get(id store.PartitionID) (near string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	near, ok = p.of[id]
	return near, ok
}

// put notes the place of a range. If it is a poor one, an earlier one is kept.
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
			for x := range p.of { // any
				delete(p.of, x)
				if n--; n == 0 {
					break
				}
			}
		}
		p.of[id] = near
	}
}

// walk goes through the ranges of a map, beginning with the one that contains from, and notes where they lie.
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
