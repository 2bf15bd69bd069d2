package partmap

import (
	"bytes"

	"github.com/evenkeel/evenkeel/partmap/keyspread"
)

// Separator returns the shortest key s with a < s <= b, in new memory: the prefix of b that
// is one byte longer than what it shares with a; nil unless a < b. Cuts are separators, so
// that maps stay small where keys are long, as in prefix B-trees (Bayer and Unterauer, 1977).
func Separator(a, b []byte) []byte {
	if bytes.Compare(a, b) >= 0 {
		return nil
	}
	return bytes.Clone(b[:keyspread.Common(a, b)+1])
}
