package cassandrastore

import (
	"bytes"

	"github.com/evenkeel/evenkeel/store"
)

// halve cuts an interval of keys in two, as betweenDigits does. It fails where the interval has only one key.
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
