package partmap

import (
	"bytes"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// Separator returns the shortest key s with a < s <= b, in new memory. It returns nil if a is not below b. The
// separator is a prefix of b, one byte longer than the common prefix of a and b. Cuts of maps are separators,
// so that maps stay small where keys are long, as in prefix B-trees (Bayer and Unterauer, 1977).
func Separator(a, b []byte) []byte {
	if bytes.Compare(a, b) >= 0 {
		return nil
	}
	return bytes.Clone(b[:keyspread.Common(a, b)+1])
}
