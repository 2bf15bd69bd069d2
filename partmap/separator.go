package partmap

import (
	"bytes"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// Separator returns the shortest key s with a < s <= b, in new memory, or nil if a is not below b. The result is a
// prefix of b, longer by one byte than the common prefix of a and b: for "photos/cat" and "photos/dog" it is
// "photos/d". Maps are cut at separators, so that they stay small even if keys are long, as in prefix B-trees (Bayer
// and Unterauer, 1977).
func Separator(a, b []byte) []byte {
	if bytes.Compare(a, b) >= 0 {
		return nil
	}
	return bytes.Clone(b[:keyspread.Common(a, b)+1])
}
