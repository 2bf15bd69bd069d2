package keytext_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
)

// TestListsThatAreRefused: with the line, and what is wrong with it.
func TestListsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a\\q\n":      "line 1: ",
		"a\nb\\xz\n":  "line 2: ",
		"a\n\nb\n":    "line 2 is empty",
		"b\na\n":      "line 2, a, is not above the line before it",
		"a\nb\nb\r\n": "line 3, b, is not above the line before it",
		"b\\x00\nb\n": "line 2, b, is not above",
	} {
		keys, err := keytext.ParseLines([]byte(text), math.MaxInt)
		require.ErrorContains(t, err, want, "%q", text)
		require.Nil(t, keys)
	}
	keys, err := keytext.ParseLines([]byte("a\r\na\\x00\nb"), 3)
	require.NoError(t, err)
	require.Equal(t, [][]byte{{'a'}, {'a', 0}, {'b'}}, keys)
	_, err = keytext.ParseLines([]byte("a\nb\nc\nd\n"), 3)
	require.ErrorIs(t, err, keytext.ErrTooManyLines)
}
