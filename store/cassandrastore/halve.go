package cassandrastore

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// halve cuts an interval of keys in two, at about the middle of the keys that
// could lie in it. Where there is no end, dead keys most likely begin like the
// start (everything under a prefix, deleted): the cut is then the first key that
// shares the start's bytes only up to the last but one. It fails where there is
// only one key.
func halve(b store.Bounds) (low, high store.Bounds, ok bool) {
	var cut []byte
	if len(b.End) == 0 && len(b.Start) > 0 {
		cut = beyondPrefix(b.Start[:len(b.Start)-1])
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

// beyondPrefix is the smallest key above all that begin with prefix; nil if there
// is none.
func beyondPrefix(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			cut := slices.Clone(prefix[:i+1])
			cut[i]++
			return cut
		}
	}
	return nil
}

// middle is a key strictly between start and end (empty: plus infinity), about
// halfway when both are read as fractions to the base 256; nil if there is none
// within the longest key.
func middle(start, end []byte) []byte {
	// One digit more than both have is enough to lie strictly between, unless
	// the end is the start followed by zeros.
	n := max(len(start), len(end)) + 1
	if n > store.MaxKeyBytes {
		n = store.MaxKeyBytes
	}
	digit := func(key []byte, i int) int {
		if i < len(key) {
			return int(key[i])
		}
		return 0
	}
	sum := make([]int, n)
	carry := 0
	for i := n - 1; i >= 0; i-- {
		sum[i] = digit(start, i) + digit(end, i) + carry
		carry = sum[i] >> 8
		sum[i] &= 0xff
	}
	if len(end) == 0 {
		carry++ // plus infinity is 1.0
	}
	cut := make([]byte, n)
	rest := carry
	for i, d := range sum {
		v := rest<<8 | d
		cut[i] = byte(v >> 1)
		rest = v & 1
	}
	cut = shortest(cut, start)
	if bytes.Compare(cut, start) <= 0 || len(end) > 0 && bytes.Compare(cut, end) >= 0 {
		return nil
	}
	return cut
}

// shortest drops digits from the end of cut for as long as it stays above start
// by two digits: a cut need not be exact, and short ones read better.
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

// inParts cuts bounds at those of the sorted keys that lie within.
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
