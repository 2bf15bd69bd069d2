package mapcodec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// TestCutsAgainstOracle compares every lookup with a plain search over the keys.
func TestCutsAgainstOracle(t *testing.T) {
	rng := seed.New(t)
	for range 250 {
		style := keystyle.Any(rng)
		keys := keystyle.Some(rng, style, 1+rng.IntN(60))
		ask := keystyle.Probes(rng, style, keys)
		if rng.IntN(2) == 0 {
			keys = slices.Insert(keys, 0, []byte{})
		}
		checkCuts(t, rng, keys, ask)
	}
}

// TestTiedCutsAgainstOracle is about cuts whose integers do not tell them apart:
// clusters of equal shorts, and within them of equal heads, and keys around each.
func TestTiedCutsAgainstOracle(t *testing.T) {
	rng := seed.New(t)
	for range 400 {
		keys, ask := tiedKeys(rng)
		if rng.IntN(3) == 0 {
			keys = slices.Insert(keys, 0, []byte{})
		}
		checkCuts(t, rng, keys, ask)
	}
}

// tiedKeys makes up to some hundred keys, sometimes one, in clusters that are far
// apart but close within, and keystyle.Probes at, just below and just above each head.
func tiedKeys(rng *rand.Rand) (keys, ask [][]byte) {
	base, spread := rng.Uint64()>>rng.IntN(64), 1+rng.IntN(63)
	key := func(h uint64, tail string) []byte {
		return append(binary.BigEndian.AppendUint64([]byte("same/"), h), tail...)
	}
	tails := []string{"", "\x00", "a", "ab", "b", "\xff"}
	for range 1 + rng.IntN(5) {
		cluster := base + rng.Uint64()>>spread
		for range rng.IntN(40) {
			h := cluster + rng.Uint64N(1<<rng.IntN(34))
			for range 1 + rng.IntN(3) {
				keys = append(keys, key(h, tails[rng.IntN(len(tails))]))
			}
			for d := range uint64(3) {
				ask = append(ask, key(h+d-1, tails[rng.IntN(len(tails))]))
			}
		}
	}
	keys = append(keys, key(base, ""))
	if rng.IntN(8) == 0 {
		keys = keys[:1]
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	first, last := keys[0], keys[len(keys)-1]
	for _, h := range []uint64{0, base - 1, base, base + 1, base + 1<<32, math.MaxUint64, rng.Uint64()} {
		ask = append(ask, key(h, ""), key(h, "a"))
	}
	return keys, append(ask, first, last, first[:len(first)-1], append(slices.Clip(last), 0), []byte("sam"),
		[]byte("t"))
}

// checkCuts compares lookups of the keys to ask for with a plain search over keys.
func checkCuts(t *testing.T, rng *rand.Rand, keys, ask [][]byte) {
	t.Helper()
	c := NewCuts(len(keys), func(i int) []byte { return keys[i] })
	require.Equal(t, len(keys), c.Len())
	require.Equal(t, [3]int{len(c.keys), len(c.ends), len(c.tops)}, [3]int{cap(c.keys), cap(c.ends), cap(c.tops)})
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
	}
	require.Equal(t, len(keys)-1, c.FindBefore(nil))
}

// TestFewCuts: none, and the lowest key alone.
func TestFewCuts(t *testing.T) {
	for n, keys := range [][][]byte{{}, {{}}} {
		checkCuts(t, seed.New(t), keys, [][]byte{{0}, []byte("k")})
		c := NewCuts(n, func(i int) []byte { return keys[i] })
		require.Equal(t, n-1, c.FindBefore(nil))
	}
}

// TestCutsThatUseAllBits: the last short is the highest there is.
func TestCutsThatUseAllBits(t *testing.T) {
	keys := [][]byte{make([]byte, 8), bytes.Repeat([]byte{0xff}, 8), bytes.Repeat([]byte{0xff}, 9)}
	checkCuts(t, seed.New(t), keys, append(keys, []byte{0xff}, bytes.Repeat([]byte{0xff}, 10)))
}

// TestCommonPrefixIsLeftOut of the heads, which else are all the same: lookups would have
// to compare keys.
func TestCommonPrefixIsLeftOut(t *testing.T) {
	all := []string{"", "long/long/a", "long/long/b", "long/long/c"}
	for _, keys := range [][]string{all, all[1:]} {
		c := NewCuts(len(keys), func(i int) []byte { return []byte(keys[i]) })
		require.Equal(t, []uint64{'a' << 56, 'b' << 56, 'c' << 56}, c.heads)
		require.Equal(t, len("long/long/"), c.prefix)
	}
}

func TestCutsDoNotAllocate(t *testing.T) {
	rng := seed.New(t)
	keys := keystyle.Some(rng, keystyle.Styles["long common prefix"], 1000)
	c := NewCuts(len(keys), func(i int) []byte { return keys[i] })
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, k := range keys {
			c.Find(k)
			c.FindBefore(k)
		}
	}))
}

// TestMemoryIsCounted: what is said to be allocated is what Go's allocator takes.
func TestMemoryIsCounted(t *testing.T) {
	for n, want := range map[int]int64{
		0: 0, 1: 8, 8: 8, 9: 16, 64: 64, 65: 72, 128: 128, 129: 144, 1000: 1024, 1024: 1024, 1025: 1152, 30_000: 30_720,
		32 << 10:   32 << 10,
		32<<10 + 1: 40 << 10, 40 << 10: 40 << 10, 40<<10 + 1: 48 << 10,
	} {
		require.Equal(t, want, allocated(n), "%d bytes", n)
	}
}
