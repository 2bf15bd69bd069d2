package partmap

import (
	"bytes"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeparatorIsTheShortest(t *testing.T) {
	rng := random(t)
	for range 5000 {
		style := anyStyle(rng)
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

func TestPrefixEnd(t *testing.T) {
	rng := random(t)
	for range 5000 {
		style := anyStyle(rng)
		prefix, key := style(rng), style(rng)
		prefix = prefix[:rng.IntN(len(prefix)+1)]
		end := PrefixEnd(prefix)
		within := string(key) >= string(prefix) && (end == nil || string(key) < string(end))
		if within != bytes.HasPrefix(key, prefix) {
			t.Fatalf("key %q, prefix %q, end %q", key, prefix, end)
		}
	}
}

// TestCutsAgainstOracle compares every lookup with a plain search over the keys.
func TestCutsAgainstOracle(t *testing.T) {
	rng := random(t)
	for range 250 {
		style := anyStyle(rng)
		keys := someKeys(rng, style, 1+rng.IntN(60))
		ask := probes(rng, style, keys)
		if rng.IntN(2) == 0 {
			keys = slices.Insert(keys, 0, []byte{})
		}
		c := newCuts(len(keys), func(i int) []byte { return keys[i] })
		require.Equal(t, len(keys), c.Len())
		for i := range keys {
			require.True(t, bytes.Equal(keys[i], c.At(i)))
		}
		for _, k := range ask {
			notAbove := sort.Search(len(keys), func(i int) bool { return string(keys[i]) > string(k) }) - 1
			below := sort.Search(len(keys), func(i int) bool { return string(keys[i]) >= string(k) }) - 1
			if got := c.Find(k); got != notAbove {
				t.Fatalf("Find(%q) in %q is %d, want %d", k, keys, got, notAbove)
			}
			if got := c.FindBefore(k); got != below {
				t.Fatalf("FindBefore(%q) in %q is %d, want %d", k, keys, got, below)
			}
			checkUnder(t, &c, keys, k)
			checkUnder(t, &c, keys, k[:rng.IntN(len(k)+1)])
		}
		require.Equal(t, len(keys)-1, c.FindBefore(nil))
	}
}

// checkUnder: a range holds a key with the prefix if and only if it has a key in
// common with [prefix, PrefixEnd(prefix)).
func checkUnder(t *testing.T, c *Cuts, keys [][]byte, prefix []byte) {
	t.Helper()
	lo, hi := c.Under(prefix)
	end := PrefixEnd(prefix)
	for i := range keys {
		next := c.End(i, nil)
		holds := (next == nil || string(next) > string(prefix)) && (end == nil || string(keys[i]) < string(end))
		if holds != (lo <= i && i < hi) {
			t.Fatalf("range %d of %q under %q: [%d, %d)", i, keys, prefix, lo, hi)
		}
	}
}

func TestCutsDoNotAllocate(t *testing.T) {
	rng := random(t)
	keys := someKeys(rng, keyStyles["long common prefix"], 1000)
	c := newCuts(len(keys), func(i int) []byte { return keys[i] })
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, k := range keys {
			c.Find(k)
			c.FindBefore(k)
		}
	}))
}
