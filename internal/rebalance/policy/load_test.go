package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func askedFor(keys ...string) *Range {
	r := &Range{Start: []byte("b"), End: []byte("y")}
	for _, k := range keys {
		r.Stats.Asked = append(r.Stats.Asked, counter.Asked{Key: []byte(k)})
	}
	return r
}

// A range is cut where its requests are divided, before or after a key that has many of them.
func TestDivideRequests(t *testing.T) {
	for _, c := range []struct {
		keys  string
		parts int
		cuts  string
		most  float64
	}{
		{"c d e f", 2, "e", 0.5},
		{"f e d c", 2, "e", 0.5},
		{"c d e f g h i j", 4, "e g i", 0.25},
		{"a a a z z c d", 2, "d", 0.5}, // of its partition, not of its range
		{"c c c d", 2, "d", 0.75},
		{"c d d d", 2, "d", 0.75},
		{"c c c c", 2, "", 1},
		{"b b b b", 2, "", 1},
		{"c c c d e e e e", 3, "d e", 0.5},
	} {
		r := askedFor(strings.Fields(c.keys)...)
		cuts, most := divide(r.asked(), c.parts)
		require.Equal(t, c.cuts, joinKeys(cuts), c.keys)
		require.InDelta(t, c.most, most, 1e-9, c.keys)
	}
}

func joinKeys(keys [][]byte) string {
	var s []string
	for _, k := range keys {
		s = append(s, string(k))
	}
	return strings.Join(s, " ")
}

// Cuts lie within the range, ascending, and each part has requests.
func TestDivisionsAreCuts(t *testing.T) {
	rng := seed.New(t)
	for range 2000 {
		keys := make([]string, 1+rng.IntN(64))
		for i := range keys {
			keys[i] = fmt.Sprintf("%c%d", 'a'+rune(rng.IntN(26)), rng.IntN(3))
		}
		r := askedFor(keys...)
		within := r.asked()
		if len(within) == 0 {
			continue
		}
		parts := 2 + rng.IntN(3)
		cuts, most := divide(within, parts)
		require.Less(t, len(cuts), parts)
		bounds := slices.Concat([][]byte{r.Start}, cuts, [][]byte{r.End})
		largest := 0
		for i := range bounds[1:] {
			n := 0
			for _, k := range within {
				if string(k) >= string(bounds[i]) && string(k) < string(bounds[i+1]) {
					n++
				}
			}
			require.Positive(t, n)
			largest = max(largest, n)
		}
		require.InDelta(t, float64(largest)/float64(len(within)), most, 1e-9)
	}
}

// The part with the most rows stays, wherever the requests go.
func TestASplitByLoadMovesFewRows(t *testing.T) {
	r := askedFor("c", "d", "e", "f")
	r.Quanta = []counter.Quantum{{Rows: 5}, {Key: []byte("e"), Rows: 10}, {Key: []byte("k"), Rows: 100}}
	r.Stats.Rows = 115
	d := Decision{Kind: Split, Why: Load, Parts: 2, Rows: 115}
	(&Policy{MaxRows: 1000}).split(r, &d)
	require.Equal(t, Decision{Kind: Split, Why: Load, Parts: 2, Rows: 115, Cuts: [][]byte{[]byte("e")}, Stay: 1, Copies: 5}, d)
}
