package realkeys

import (
	"bytes"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestKeySetsAreSortedDistinctAndLegal(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"real":           Collect(30_000, 1),
		"awkward":        Awkward(5_000, 1, false),
		"awkward binary": Awkward(5_000, 1, true),
	} {
		require.True(t, slices.IsSortedFunc(keys, func(a, b []byte) int { return bytes.Compare(a, b) }), name)
		require.Equal(t, len(keys), len(slices.CompactFunc(slices.Clone(keys), bytes.Equal)), name)
		longest := 0
		for _, k := range keys {
			require.NotEmpty(t, k, name)
			longest = max(longest, len(k))
			if name == "awkward" {
				require.True(t, utf8.Valid(k), "%q", k)
			}
		}
		require.LessOrEqual(t, longest, maxKeyBytes, name)
		if name != "real" {
			require.Equal(t, maxKeyBytes, longest, name)
		}
	}
	require.Equal(t, Awkward(1000, 7, true), Awkward(1000, 7, true), "the same seed makes the same keys")
}
