package partmap

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// Cuts is an ordered list of keys made for lookup: all keys in one array of
// bytes, and beside it, for each, the eight bytes after the prefix that all
// share as one big-endian integer. A search compares integers in a small dense
// array and touches a key only where the integers are equal, so it neither
// allocates nor chases pointers. (The idea is that of "poor man's normalized
// keys", Graefe and Larson, "B-Tree Indexes and CPU Caches", 2001.)
//
// Only the first cut may be empty; it stands for minus infinity. Cuts are
// immutable and safe for concurrent use.
type Cuts struct {
	keys   []byte
	ends   []uint32 // ends[i] is where the i-th key ends within keys
	heads  []uint64 // of keys[skip:]
	prefix []byte   // shared by all keys but an empty first one
	skip   int      // 1 if the first key is empty, else 0
}

// Len is the number of cuts.
func (c *Cuts) Len() int { return len(c.ends) }

// At returns the i-th cut. It shares memory with the cuts and is read-only.
func (c *Cuts) At(i int) []byte {
	var from uint32
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.keys[from:c.ends[i]:c.ends[i]]
}

// End returns the cut after the i-th, or last if there is none.
func (c *Cuts) End(i int, last []byte) []byte {
	if i+1 < len(c.ends) {
		return c.At(i + 1)
	}
	return last
}

// Find returns the place of the last cut that is not above key: the range that
// contains key begins there. -1: key is below all cuts.
func (c *Cuts) Find(key []byte) int { return c.search(key, 0) }

// FindBefore returns the place of the last cut below key: the highest keys below
// key are in the range that begins there. The empty key stands for plus
// infinity. -1: no cut is below key.
func (c *Cuts) FindBefore(key []byte) int {
	if len(key) == 0 {
		return len(c.ends) - 1
	}
	return c.search(key, -1)
}

// Under returns which ranges may hold keys that begin with prefix: the i-th,
// where lo <= i < hi. A range that begins before the first cut is not known
// here, so lo may be -1.
func (c *Cuts) Under(prefix []byte) (lo, hi int) {
	return c.Find(prefix), c.FindBefore(PrefixEnd(prefix)) + 1
}

// search returns the place of the last cut whose comparison with key is at most
// most (0: equal counts, -1: it does not).
func (c *Cuts) search(key []byte, most int) int {
	p := len(c.prefix)
	if len(key) < p || string(key[:p]) != string(c.prefix) {
		if string(key) < string(c.prefix) {
			return c.skip - 1
		}
		return len(c.ends) - 1
	}
	h := head(key[p:])
	heads := c.heads
	lo, n := 0, len(heads)
	for n > 0 {
		half := n >> 1
		if heads[lo+half] < h {
			lo += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	if lo == len(heads) || heads[lo] != h {
		return lo - 1 + c.skip
	}
	hi := lo + 1
	if hi < len(heads) && heads[hi] == h {
		hi += sort.Search(len(heads)-hi, func(i int) bool { return heads[hi+i] != h })
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if bytes.Compare(c.At(mid + c.skip)[p:], key[p:]) <= most {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1 + c.skip
}

// head is the first eight bytes of b as a big-endian integer, with zeros for
// those missing: where two heads differ they order as their keys do.
func head(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var h uint64
	for i, x := range b {
		h |= uint64(x) << (56 - 8*i)
	}
	return h
}

// Bytes is the memory that the cuts hold.
func (c *Cuts) Bytes() int64 { return int64(cap(c.keys) + 4*cap(c.ends) + 8*cap(c.heads)) }

// newCuts copies n keys, which have to be ascending.
func newCuts(n int, at func(i int) []byte) Cuts {
	total := 0
	for i := range n {
		total += len(at(i))
	}
	c := Cuts{keys: make([]byte, 0, total), ends: make([]uint32, 0, n)}
	for i := range n {
		c.keys = append(c.keys, at(i)...)
		c.ends = append(c.ends, uint32(len(c.keys)))
	}
	c.index()
	return c
}

// index builds the heads, when all keys are there.
func (c *Cuts) index() {
	n := len(c.ends)
	if n > 0 && c.ends[0] == 0 {
		c.skip = 1
	}
	if n > c.skip {
		// The keys ascend, so what the first and the last share all share.
		first, last := c.At(c.skip), c.At(n-1)
		c.prefix = first[:shared(first, last)]
	}
	c.heads = make([]uint64, 0, n-c.skip)
	for i := c.skip; i < n; i++ {
		c.heads = append(c.heads, head(c.At(i)[len(c.prefix):]))
	}
}

// shared is the length of the longest common prefix.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
