package sharding

import (
	"fmt"
	"slices"
)

// Items are distinct keys of one length, in ascending order, in one array, so
// that reading them costs little beside an assignment.
type Items struct {
	keys  []byte
	width int
}

// NewItems draws n items: a seed's are different from another's.
func NewItems(n int, seed uint64) Items {
	const width = 20 + 1 + 10
	items := Items{keys: make([]byte, 0, n*width), width: width}
	for i := range n {
		items.keys = fmt.Appendf(items.keys, "%020d/%010d", seed, i)
	}
	return items
}

// Len is how many there are.
func (s Items) Len() int { return len(s.keys) / s.width }

// At returns the i-th item, read-only.
func (s Items) At(i int) []byte { return s.keys[i*s.width : (i+1)*s.width : (i+1)*s.width] }

// above returns the i-th item, or for i = Len a key above the last.
func (s Items) above(i int) []byte {
	if i < s.Len() {
		return s.At(i)
	}
	return append(slices.Clone(s.At(i-1)), 0)
}
