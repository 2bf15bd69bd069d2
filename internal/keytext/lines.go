package keytext

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrTooManyLines means that a list of keys has more lines than ParseLines was told to take.
var ErrTooManyLines = errors.New("too many lines")

// ParseLines parses a list of keys, such as those at which a bucket is divided into ranges. The list has one key per
// line in its text form (see Format), in ascending order. It has at most as many lines as the parameter most tells;
// otherwise ParseLines fails with ErrTooManyLines.
func ParseLines(data []byte, most int) ([][]byte, error) {
	var keys [][]byte
	n := 0
	for line := range bytes.Lines(data) {
		if n++; n > most {
			return nil, ErrTooManyLines
		}
		key, err := Parse(string(bytes.TrimRight(line, "\r\n")))
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case len(key) == 0:
			return nil, fmt.Errorf("line %d is empty", n)
		case len(keys) > 0 && bytes.Compare(keys[len(keys)-1], key) >= 0:
			return nil, fmt.Errorf("line %d, %s, is not above the line before it", n, Format(key))
		}
		keys = append(keys, key)
	}
	return keys, nil
}
