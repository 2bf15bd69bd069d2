// Package keystyle draws keys for tests of maps and lists of keys.
package keystyle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
)

// A Maker draws keys of one style; several styles, because what breaks codecs
// and searches is what many keys have in common.
type Maker func(rng *rand.Rand) []byte

// Styles are the makers by their names.
var Styles = map[string]Maker{
	"tiny alphabet": func(rng *rand.Rand) []byte {
		return fromAlphabet(rng, "\x00a\xff", 1+rng.IntN(12))
	},
	"long common prefix": func(rng *rand.Rand) []byte {
		return append([]byte("tenant-0000000000000001/photos/2024/"), fromAlphabet(rng, "01", 1+rng.IntN(20))...)
	},
	"decimal": func(rng *rand.Rand) []byte { return fmt.Appendf(nil, "%020d", rng.Uint64N(1<<40)) },
	"random": func(rng *rand.Rand) []byte {
		k := make([]byte, 1+rng.IntN(24))
		for i := range k {
			k[i] = byte(rng.Uint32())
		}
		return k
	},
	"short and long": func(rng *rand.Rand) []byte {
		return fromAlphabet(rng, "abcdefgh", []int{2, 3, 60}[rng.IntN(3)])
	},
	"zeros at the end": func(rng *rand.Rand) []byte {
		return append([]byte{'k', byte(rng.IntN(4))}, make([]byte, rng.IntN(30))...)
	},
}

func fromAlphabet(rng *rand.Rand, alphabet string, n int) []byte {
	k := make([]byte, n)
	for i := range k {
		k[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return k
}

// Any draws a style, in an order that the seed decides.
func Any(rng *rand.Rand) Maker {
	names := []string{"tiny alphabet", "long common prefix", "decimal", "random", "short and long", "zeros at the end"}
	return Styles[names[rng.IntN(len(names))]]
}

// Some draws up to n different keys, sorted.
func Some(rng *rand.Rand, style Maker, n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = style(rng)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// Probes are keys at, just above and just below each cut, and some others.
func Probes(rng *rand.Rand, style Maker, cuts [][]byte) [][]byte {
	out := [][]byte{{0}, {0xff, 0xff, 0xff}}
	for _, c := range cuts {
		out = append(out, c, append(slices.Clone(c), 0), append(slices.Clone(c), 0xff))
		if len(c) > 1 {
			out = append(out, c[:len(c)-1])
		}
		if b := c[len(c)-1]; b > 0 {
			below := slices.Clone(c)
			below[len(c)-1]--
			out = append(out, below)
		}
	}
	for range 20 {
		out = append(out, style(rng))
	}
	return out
}
