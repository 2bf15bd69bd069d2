package cassandrastore

import (
	"bytes"
	"math/big"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// halve cuts an interval of keys in two, at about the middle of the possible keys. Where it has
// no end, the dead keys most likely begin like the start (all keys of a prefix were deleted): the
// cut is then the first key that shares the start's bytes only up to the last but one. It fails
// where the interval has only one key.
func halve(b store.Bounds) (low, high store.Bounds, ok bool) {
	var cut []byte
	if len(b.End) == 0 && len(b.Start) > 0 {
		cut = store.PrefixEnd(b.Start[:len(b.Start)-1])
	}
	if cut == nil {
		cut = middle(b.Start, b.End)
	}
	if cut == nil {
		cut = append(slices.Clone(b.Start), 0) // the very next key
		if len(cut) > store.MaxKeyBytes || len(b.End) > 0 && bytes.Compare(cut, b.End) >= 0 {
			return b, b, false
		}
	}
	low, high = b, b
	low.End = cut
	high.Start, high.StartExclusive = cut, false
	return low, high, true
}

// middle returns a key strictly between start and end (empty: plus infinity), about halfway if
// keys are read as fractions to the base 256; nil if there is none within the longest key.
func middle(start, end []byte) []byte {
	// One digit more than both have is enough to lie strictly between, unless
	// the end is the start followed by zeros.
	n := min(max(len(start), len(end))+1, store.MaxKeyBytes)
	number := func(key []byte) *big.Int {
		return new(big.Int).SetBytes(append(slices.Clone(key), make([]byte, n-len(key))...))
	}
	sum := number(end)
	if len(end) == 0 {
		sum.Lsh(big.NewInt(1), uint(8*n)) // plus infinity is 1.0
	}
	sum.Add(sum, number(start))
	cut := shortest(sum.Rsh(sum, 1).FillBytes(make([]byte, n)), start)
	if bytes.Compare(cut, start) <= 0 || len(end) > 0 && bytes.Compare(cut, end) >= 0 {
		return nil
	}
	return cut
}

// shortest shortens cut to two digits behind what it shares with start, if it stays above it: a
// cut need not be exact, and short ones are easier to read.
func shortest(cut, start []byte) []byte {
	common := 0
	for common < len(cut) && common < len(start) && cut[common] == start[common] {
		common++
	}
	if common+2 < len(cut) {
		short := cut[:common+2]
		if bytes.Compare(short, start) > 0 {
			return short
		}
	}
	return cut
}

// inParts cuts bounds at the given keys, which are sorted; keys outside are ignored.
func inParts(b store.Bounds, cuts [][]byte) []store.Bounds {
	var parts []store.Bounds
	for _, cut := range cuts {
		if bytes.Compare(cut, b.Start) <= 0 {
			continue
		}
		if len(b.End) > 0 && bytes.Compare(cut, b.End) >= 0 {
			break
		}
		part := b
		part.End = cut
		parts = append(parts, part)
		b.Start, b.StartExclusive = cut, false
	}
	return append(parts, b)
}
