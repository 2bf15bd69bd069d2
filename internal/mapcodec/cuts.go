package mapcodec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"sort"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// Cuts is an immutable, ordered list of keys for fast lookups. (The keys cut all keys of a bucket into ranges.) All
// keys are in a single array of bytes. The head of a key is the eight bytes after the prefix that all keys share, as a
// big-endian integer. The short of a key is its head reduced to 32 bits:
//
//	keys     src/net/url.go   src/os/exec.go   src/os/file.go     all share "src/"
//	heads    "net/url."       "os/exec."       "os/file."
//	shorts   the upper bits of the distance from the first head
//
// A search compares shorts in a dense array, heads only where shorts are equal, and keys only where heads are equal.
// The search neither allocates nor follows pointers. Heads are "poor man's normalized keys" (Graefe and Larson, "B-Tree
// Indexes and CPU Caches", 2001).
//
// Only the first key may be empty; it stands for minus infinity. Cuts are safe for concurrent use.
type Cuts struct {
	keys   []byte
	ends   []uint32 // ends[i] is where the i-th key ends within keys
	heads  []uint64 // the heads of all keys but an empty first key
	shorts []uint32 // (heads[i] - heads[0]) >> drop
	tops   []uint32 // every stride-th short, so that a search touches few cache lines
	drop   uint     // number of low bits that shorts lack, so that the last short fits into 32 bits
	prefix int      // length of the prefix that all keys but an empty first key share
	skip   int      // 1 if the first key is empty, else 0
}

// stride is 16, the number of 4-byte integers in a cache line. A search in a sorted list of integers first searches
// every 16th integer, and these have a small list of their own. For 1,000 integers the small list takes four cache
// lines, which stay in the processor's cache. So a search waits for memory only once.
const stride = 16

// Len returns the number of keys in the list.
func (c *Cuts) Len() int { return len(c.ends) }

// At returns the i-th key of the list, counted from 0. The key shares memory with the list and is read-only.
func (c *Cuts) At(i int) []byte {
	var from uint32
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.keys[from:c.ends[i]:c.ends[i]]
}

// End returns the key at which the range ends that begins at the i-th key of the list. This is the next key of the
// list. For the highest key of the list, it is the parameter last.
func (c *Cuts) End(i int, last []byte) []byte {
	if i+1 < len(c.ends) {
		return c.At(i + 1)
	}
	return last
}

// Find returns the index of the highest key of the list that is at or below key. The result is -1 if key is below all
// keys of the list. The range that begins at the found key contains key.
func (c *Cuts) Find(key []byte) int { return c.search(key, 0) }

// FindBefore returns the index of the highest key of the list that is below key, or -1 if no key is. The range that
// begins at the found key contains the keys directly below key, as a search in descending order needs. An empty key
// stands for plus infinity.
func (c *Cuts) FindBefore(key []byte) int {
	if len(key) == 0 {
		return len(c.ends) - 1
	}
	return c.search(key, -1)
}

// search returns the index of the highest key of the list that is low enough, or -1 if no key is. If most is 0, these
// are the keys at or below key. If most is -1, these are the keys below key.
func (c *Cuts) search(key []byte, most int) int {
	p := c.prefix
	// The first key that is not empty is at the front of keys.
	if prefix := c.keys[:p]; len(key) < p || string(key[:p]) != string(prefix) {
		if string(key) < string(prefix) {
			return c.skip - 1
		}
		return len(c.ends) - 1
	}
	return c.lowerBound(head(key, p), key, most) - 1 + c.skip
}

// lowerBound returns how many keys of the list are low enough. If most is 0, these are the keys at or below key. If
// most is -1, these are the keys below key. An empty first key of the list does not count. h is the integer made of the
// eight bytes of key that follow the prefix which all keys of the list share.
func (c *Cuts) lowerBound(h uint64, key []byte, most int) int {
	if len(c.heads) == 0 || h < c.heads[0] {
		return 0
	}
	wide := (h - c.heads[0]) >> c.drop
	if wide > math.MaxUint32 {
		return len(c.heads)
	}
	short := uint32(wide)
	// tops[i] is shorts[i*stride]: the index is after the last top below short, and at
	// the latest that of the next top.
	lo := 0
	if above := lowerBound(c.tops, short); above > 0 {
		from := (above-1)*stride + 1
		lo = from + lowerBound(c.shorts[from:min(above*stride, len(c.shorts))], short)
	}
	if lo < len(c.shorts) && c.shorts[lo] == short {
		return c.searchTied(lo, h, key, most)
	}
	return lo
}

// lowerBound returns the index of the first number that is x or higher. The numbers must ascend. The result is
// len(numbers) if all of them are lower.
func lowerBound[T uint32 | uint64](numbers []T, x T) int {
	// Each step compares three numbers, whose loads are independent, and continues in one of four quarters. The
	// processor can't predict which quarter, so the step computes the quarter without a branch.
	lo, n := 0, len(numbers)
	for n > 3 {
		q := n >> 2
		lo += q&below(numbers[lo+q-1], x) + q&below(numbers[lo+2*q-1], x) + q&below(numbers[lo+3*q-1], x)
		n -= 3 * q
	}
	for ; n > 0 && numbers[lo] < x; n-- {
		lo++
	}
	return lo
}

// below returns -1 (all bits set) if a < b, else 0. It computes the result without a branch, which the processor could
// mispredict.
func below[T uint32 | uint64](a, b T) int {
	_, borrow := bits.Sub64(uint64(a), uint64(b), 0)
	return -int(borrow)
}

// searchTied finishes a search for key in which 32 bits do not decide: those of key and of the list's key at index lo
// are equal. It compares the first 64 bits (the heads), and whole keys if the heads are equal, too. The result is the
// index of the first key x with bytes.Compare(x, key) > most.
func (c *Cuts) searchTied(lo int, h uint64, key []byte, most int) int {
	// Usually no second key has the same 32 bits. Then the branches are predictable, and the processor continues while
	// it waits for the head.
	switch {
	case c.heads[lo] > h:
		return lo
	case c.heads[lo] < h:
		if lo+1 == len(c.shorts) || c.shorts[lo+1] != c.shorts[lo] {
			return lo + 1
		}
		if lo += lowerBound(c.heads[lo:], h); lo == len(c.heads) || c.heads[lo] != h {
			return lo
		}
	}
	return c.searchEqual(lo, key, most)
}

// searchEqual finishes a search for key in which 64 bits do not decide: those of key and of the list's key at index lo,
// and perhaps of keys after it, are equal. It compares whole keys. The result is the index of the first key x with
// bytes.Compare(x, key) > most.
func (c *Cuts) searchEqual(lo int, key []byte, most int) int {
	h, hi := c.heads[lo], lo+1
	if hi < len(c.heads) && c.heads[hi] == h {
		hi += sort.Search(len(c.heads)-hi, func(i int) bool { return c.heads[hi+i] != h })
	}
	p := c.prefix
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if bytes.Compare(c.At(mid + c.skip)[p:], key[p:]) <= most {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// head returns the eight bytes of key that begin at index from, as a big-endian integer. A shorter key is padded with
// zero bytes. If the heads of two keys differ, the lower head belongs to the lower key.
func head(key []byte, from int) uint64 {
	rest := key[from:]
	switch {
	case len(rest) >= 8:
		return binary.BigEndian.Uint64(rest)
	case len(key) >= 8:
		return binary.BigEndian.Uint64(key[len(key)-8:]) << (64 - 8*len(rest))
	}
	var h uint64
	for i, x := range rest {
		h |= uint64(x) << (56 - 8*i)
	}
	return h
}

// Bytes returns an estimate of the memory, in bytes, that the list of keys takes. A cache uses the estimate to bound
// its size.
func (c *Cuts) Bytes() int64 {
	return allocated(cap(c.keys)) + allocated(4*cap(c.ends)) + allocated(8*cap(c.heads)) +
		allocated(4*cap(c.shorts)) + allocated(4*cap(c.tops))
}

// allocated returns an estimate of the bytes that Go's allocator takes for a slice of n bytes. Above 32 KiB the
// allocator rounds up to pages of 8 KiB. Below, it rounds up to size classes, about eight between two powers of two.
func allocated(n int) int64 {
	step := 8 << 10
	if n <= 32<<10 {
		step = max(1<<bits.Len(uint(n))/16, 8)
	}
	return int64((n + step - 1) / step * step)
}

// NewCuts returns a list for lookups with copies of n keys. The function at returns the i-th key. The keys must ascend.
func NewCuts(n int, at func(i int) []byte) Cuts {
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

// index prepares a list of keys for fast searches. It computes the length of the prefix that all keys share, and two
// integers for each key: the first 64 and 32 bits after the prefix. All keys must be in the list before the call.
func (c *Cuts) index() {
	n := len(c.ends)
	if n > 0 && c.ends[0] == 0 {
		c.skip = 1
	}
	if n == c.skip {
		return // no key has a head
	}
	// The keys ascend, so a prefix that the first and the last key share is shared by all keys.
	c.prefix = keyspread.Common(c.At(c.skip), c.At(n-1))
	c.heads = make([]uint64, n-c.skip)
	for i := range c.heads {
		c.heads[i] = head(c.At(i+c.skip), c.prefix)
	}
	c.drop = uint(max(0, bits.Len64(c.heads[len(c.heads)-1]-c.heads[0])-32))
	c.shorts = make([]uint32, len(c.heads))
	c.tops = make([]uint32, 0, (len(c.heads)+stride-1)/stride)
	for i, h := range c.heads {
		c.shorts[i] = uint32((h - c.heads[0]) >> c.drop)
		if i%stride == 0 {
			c.tops = append(c.tops, c.shorts[i])
		}
	}
}
