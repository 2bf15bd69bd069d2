package cassandrastore

import (
	"bytes"

	"github.com/evenkeel/evenkeel/store"
)

// halve cuts the interval of keys b into two intervals, low and high. It is used for a read that meets too many
// tombstones, which is repeated for the halves. The first key of high is about halfway, and as short as possible. The
// result ok is false if b has only one key, or if that key would be longer than a key may be.
func halve(b store.Bounds) (low, high store.Bounds, ok bool) {
	end := b.End
	if len(end) == 0 {
		end = nil
	}
	cut := betweenStrings("blob", b.Start, end)
	if cut == nil || len(cut) > store.MaxKeyBytes {
		return b, b, false
	}
	low, high = b, b
	low.End = cut
	high.Start, high.StartExclusive = cut, false
	return low, high, true
}

// inParts cuts the interval of keys b at each of the keys in cuts, and returns the smaller intervals in ascending
// order. cuts must be sorted. Keys outside b are ignored.
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
