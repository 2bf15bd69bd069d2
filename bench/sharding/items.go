package sharding

import (
	"fmt"
	"slices"
)

// Items are distinct keys of the same length, in ascending order. All keys are in one byte slice, so that reading a key
// costs little beside an assignment to a shard.
type Items struct {
	keys  []byte
	width int
}

// NewItems returns n items. Items of different seeds differ.
func NewItems(n int, seed uint64) Items {
	const width = 20 + 1 + 10
	items := Items{keys: make([]byte, 0, n*width), width: width}
	for i := range n {
		items.keys = fmt.Appendf(items.keys, "%020d/%010d", seed, i)
	}
	return items
}

// Len returns the number of items.
func (s Items) Len() int { return len(s.keys) / s.width }

// At returns the i-th item. The caller must not change the bytes.
func (s Items) At(i int) []byte { return s.keys[i*s.width : (i+1)*s.width : (i+1)*s.width] }

// above returns the i-th item. For i = Len, above returns a key that is higher than all items.
func (s Items) above(i int) []byte {
	if i < s.Len() {
		return s.At(i)
	}
	return append(slices.Clone(s.At(i-1)), 0)
}
