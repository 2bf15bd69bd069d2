package keyspread

import (
	"bytes"
)

// Separator returns the shortest key s with a < s <= b, in new memory. For "photos/cat" and "photos/dog" it is
// "photos/d": the common prefix of both, and one more byte of b. The result is nil if a is not below b. Maps are cut at
// separators, so that they stay small even if keys are long, as in prefix B-trees (Bayer and Unterauer, 1977).
func Separator(a, b []byte) []byte {
	if bytes.Compare(a, b) >= 0 {
		return nil
	}
	return bytes.Clone(b[:Common(a, b)+1])
}
