package keyspread

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestSeparatorIsTheShortest(t *testing.T) {
	rng := seed.New(t)
	for range 5000 {
		style := keystyle.Any(rng)
		a, b := style(rng), style(rng)
		switch c := bytes.Compare(a, b); {
		case c == 0:
			require.Nil(t, Separator(a, b))
			continue
		case c > 0:
			require.Nil(t, Separator(a, b))
			a, b = b, a
		}
		s := Separator(a, b)
		if string(a) >= string(s) || string(s) > string(b) {
			t.Fatalf("the separator of %q and %q is %q", a, b, s)
		}
		// Whatever lies between a and b begins as b does, so the only shorter
		// candidates are prefixes of b.
		for n := range len(s) {
			if string(b[:n]) > string(a) {
				t.Fatalf("the separator of %q and %q is %q, but %q is shorter", a, b, s, b[:n])
			}
		}
	}
}
