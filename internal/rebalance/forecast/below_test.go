package forecast

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Descending keys are cut ahead as ascending ones are: each part gets about as many rows as asked for.
func TestBelow(t *testing.T) {
	begun := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, key := range map[string]func(n int) []byte{
		"padded numbers":        func(n int) []byte { return fmt.Appendf(nil, "key-%08d", 99_999_999-3*n) },
		"over a digit":          func(n int) []byte { return fmt.Appendf(nil, "key-%08d", 10_000_700-n) },
		"hexadecimal":           func(n int) []byte { return fmt.Appendf(nil, "%012x", 1<<40-n*1000) },
		"with a name behind it": func(n int) []byte { return fmt.Appendf(nil, "log/%010d.json", 5_000_000_000-n*7) },
		"bytes": func(n int) []byte {
			v := uint64(1)<<60 - uint64(n)<<20
			return []byte{byte(v >> 56), byte(v >> 48), byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), 0, 1}
		},
		"reversed milliseconds": func(n int) []byte {
			return fmt.Appendf(nil, "%013d", 9_999_999_999_999-begun.Add(time.Duration(n)*time.Second/20).UnixMilli())
		},
	} {
		t.Run(name, func(t *testing.T) {
			const seen, each = 500, 300
			var keys [][]byte
			var written []int64
			for n := seen - 1; n >= 0; n-- {
				keys = append(keys, key(n))
				written = append(written, begun.Add(time.Duration(n)*time.Second/20).UnixMicro())
			}
			f, err := Below(keys, Options{
				First: 100, Each: each, N: 4, RowsPerSecond: 20, Now: begun.Add(seen * time.Second / 20), Written: written,
			})
			require.NoError(t, err)
			require.Len(t, f.Cuts, 4)
			require.Contains(t, f.How, "descending")
			last := 0
			for i, c := range f.Cuts {
				n := seen
				for bytes.Compare(key(n), c) >= 0 {
					n++
				}
				require.InDelta(t, 100+i*each, n-seen, 40, "cut %d, %q", i, c)
				require.Greater(t, n, last)
				last = n
			}
		})
	}
}

// Whatever the keys are: cuts lie below the lowest, strictly descending, or there is an error.
func TestBelowAnyKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.SampledFrom([]byte("0159afz-\x00\xff")), 1, 6), 8, 40,
			func(k []byte) string { return string(k) }).Draw(t, "keys")
		slices.SortFunc(keys, bytes.Compare)
		f, err := Below(keys, Options{First: 1, Each: 10, N: 5})
		if err != nil {
			return
		}
		require.NotEmpty(t, f.Cuts)
		require.Len(t, f.Rows, len(f.Cuts))
		above := keys[0]
		for i, c := range f.Cuts {
			if i > 0 {
				require.Negative(t, bytes.Compare(c, above))
			}
			require.LessOrEqual(t, bytes.Compare(c, above), 0)
			above = c
		}
	})
}
