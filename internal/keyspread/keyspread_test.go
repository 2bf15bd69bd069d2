package keyspread

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Estimates change no answer, only what it costs. So they are held to exact values here:
// nothing else would notice that one is off.

func texts(s ...string) (out [][]byte) {
	for _, x := range s {
		out = append(out, []byte(x))
	}
	return out
}

// What is learned from names: the head, and the alphabet of each place behind it.
func TestWhatNamesTell(t *testing.T) {
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	type want struct {
		head   string
		places []string // with a dollar sign: a name may end before it
		apart  float64
	}
	for _, c := range []struct {
		names        []string
		fixed, carry int
		want         *want
	}{
		{[]string{"img-001", "img-002", "img-003"}, 0, 0, nil}, // too few
		{[]string{"img-001", "img-002", "img-003", "img-004"}, 0, 0,
			&want{"img-", []string{digits, digits, digits}, 1}},
		{[]string{"img-004", "img-003", "img-002", "img-001"}, 0, 0,
			&want{"img-", []string{digits, digits, digits}, 1}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 4, 0,
			&want{"img-", []string{digits, digits, digits}, 10}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 5, 0, &want{"img-0", []string{digits, digits}, 10}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 0, 1,
			&want{"img-", []string{digits, digits, digits}, 10}},
		// The step is not checked.
		{[]string{"a/bx", "a/by", "a/bz", "a/bza"}, 0, 0, &want{"a/b", []string{lower, "$" + lower}, 0}},
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 0, 1, &want{"ab", []string{lower, digits}, 1}},
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 0, 2, &want{"a", []string{lower, lower, digits}, 1}},
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 1, 3, &want{"a", []string{lower, lower, digits}, 1}},
		// No digit seen: letters. Else hexadecimal.
		{[]string{"0a", "0b", "0e", "0f"}, 1, 0, &want{"0", []string{lower}, 5.0 / 3}},
		{[]string{"x0a", "x1b", "x2e", "x3f"}, 0, 0,
			&want{"x", []string{digits + "abcdef", digits + "abcdef"}, 53.0 / 3}},
		{[]string{"x0a", "x1b", "x2e", "x3g"}, 0, 0, &want{"x", []string{digits, lower}, 84.0 / 3}},
		{[]string{"x0A", "x1B", "x2E", "x3F"}, 0, 0,
			&want{"x", []string{digits + "ABCDEF", digits + "ABCDEF"}, 53.0 / 3}},
		{[]string{"x0A", "x1B", "x2E", "x3G"}, 0, 0, &want{"x", []string{digits, upper}, 84.0 / 3}},
		{[]string{"n-", "n-1", "n-2", "n-3"}, 0, 0, &want{"n-", []string{"$" + digits}, 4.0 / 3}},
		{[]string{"a.b", "a.c", "a_b", "a_c"}, 0, 0, &want{"a", []string{"._", lower}, 27.0 / 3}},
		{[]string{"same", "same", "same", "same"}, 0, 0, nil}, // no way on
		{[]string{"v9", "v:", "v;", "v<"}, 0, 0, &want{"v", []string{digits + ":;<"}, 1}},
		{[]string{"v`", "va", "v{", "v|"}, 0, 0, &want{"v", []string{"`" + lower + "{|"}, 28.0 / 3}},
	} {
		p, ok := learn(texts(c.names...), c.fixed, c.carry)
		if c.want == nil {
			require.False(t, ok, "%q", c.names)
			continue
		}
		require.True(t, ok, "%q", c.names)
		require.Equal(t, c.want.head, string(p.head), "%q", c.names)
		all := 1.0
		var places []string
		for _, pl := range p.places {
			text := string(pl.symbols)
			if pl.end {
				text = "$" + text
			}
			places = append(places, text)
			all *= float64(len(text))
		}
		require.Equal(t, c.want.places, places, "%q", c.names)
		require.Equal(t, all, p.size)
		worth := all
		for _, pl := range p.places {
			worth /= float64(pl.base())
			require.Equal(t, worth, pl.worth)
		}
		if c.names[0] != "a/bx" {
			require.InDelta(t, c.want.apart, p.step, 1e-9, "%q", c.names)
		}
	}
	// Places and numbers are bounded, so that they stay exact.
	long := make([][]byte, 4)
	for i := range long {
		long[i] = append(bytes.Repeat([]byte("0"), 60), byte('0'+i))
		long[i][0] = byte('0' + i)
	}
	p, ok := learn(long, 0, 0)
	require.True(t, ok)
	require.Len(t, p.places, 15, "10^15 is below 2^50, and 10^16 is not")
	ends := texts("a", "a"+string(bytes.Repeat([]byte("-"), 100)), "b", "c")
	p, ok = learn(ends, 0, 0)
	require.True(t, ok)
	require.LessOrEqual(t, len(p.places), 48)
	require.LessOrEqual(t, p.size, float64(1<<50))
}

// Names that count are guessed exactly, in any base and direction, as far as they have
// the same head; and what is guessed has the number that was meant.
func TestNamesThatCountAreGuessed(t *testing.T) {
	r := seed.New(t)
	for range 300 {
		step := 1 + r.IntN(20)
		base := []int{10, 16}[r.IntN(2)]
		head := []string{"", "p/", "2024-"}[r.IntN(3)]
		name := func(i int) []byte {
			text := strconv.FormatInt(int64(i), base)
			return append([]byte(head), append(bytes.Repeat([]byte("0"), 6-len(text)), text...)...)
		}
		most := 1
		for range 6 {
			most *= base
		}
		first := r.IntN(most / 4)
		var names [][]byte
		for i := range 16 { // enough to show every kind of digit
			names = append(names, name(first+i*step))
		}
		p, ok := learn(names, len(head), 0)
		require.True(t, ok)
		if base == 16 && !bytes.ContainsAny(bytes.Join(names, nil)[len(head):], "abcdef") {
			continue // they look decimal
		}
		if p.step != float64(step) { // digits that nobody has seen in common places
			continue
		}
		last := first + 15*step
		for _, n := range []int{0, 1, 7, 100} {
			ahead, back := last+n*step, last-n*step
			if got := p.ahead(name(last), float64(n), false); ahead < most && got != nil {
				require.Equal(t, string(name(ahead)), string(got), "%d on from %s", n, name(last))
			}
			if got := p.ahead(name(last), float64(n), true); back >= 0 && got != nil {
				require.Equal(t, string(name(back)), string(got), "%d back from %s", n, name(last))
			}
		}
	}
	p, ok := learn(texts("k0000", "k0001", "k0002", "k0003"), 0, 0)
	require.True(t, ok)
	for _, c := range []struct {
		key     string
		n       float64
		reverse bool
		want    string
	}{
		{"k0003", 1, false, "k0004"},
		{"k0003", 9996, false, "k9999"},
		{"k0003", 9997, false, ""},
		{"k0003", 3, true, "k0000"},
		{"k0003", 4, true, ""},
		{"k9990", 5, false, "k9995"},
		{"k1", 1, false, "k1001"},
		{"k00035", 1, false, "k0004"},
		{"kx", 1, true, "k9999"},
		{"j0003", 1, false, ""},
		{"k0003", 0.4, false, "k0003"},
		{"k0003", 0.6, false, "k0004"},
		{"k", 2, false, "k0002"},
		{"k00/3", 7, false, "k0007"},
	} {
		require.Equal(t, c.want, string(p.ahead([]byte(c.key), c.n, c.reverse)), "%+v", c)
	}
	// Names may end: the shorter one comes first.
	p, ok = learn(texts("n-", "n-1", "n-2", "n-3"), 0, 0)
	require.True(t, ok)
	require.Equal(t, 0.0, p.number([]byte("n-")))
	require.Equal(t, 1.0, p.number([]byte("n-0")))
	require.Equal(t, 10.0, p.number([]byte("n-9")))
	require.Equal(t, 1.0, p.number([]byte("n-/")), "a name below all symbols, and above the one that ends")
	require.Equal(t, "n-", string(p.ahead([]byte("n-1"), 1.5, true)))
	require.Equal(t, "n-4", string(p.ahead([]byte("n-1"), 2, false)))
}

func TestLettersAndDigits(t *testing.T) {
	for c := range 256 {
		b := byte(c)
		require.Equal(t, bytes.IndexByte([]byte("0123456789"), b) >= 0, isDigit(b), "%q", b)
		letters := []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
		require.Equal(t, bytes.IndexByte(letters, b) >= 0, isLetter(b), "%q", b)
	}
}

// Keys between others, and how far they are apart.
func TestKeysBetween(t *testing.T) {
	eight := func(s string) string { return (s + "\x00\x00\x00\x00\x00\x00\x00\x00")[:8] }
	for _, c := range []struct {
		lo, hi string
		at     float64
		want   string
	}{
		{"a", "c", 0.5, eight("b")},
		{"a", "c", 0, "a"},
		{"xa", "xc", 0.5, "x" + eight("b")},
		{"", "\x80", 0.5, eight("\x40")},
		{"", "", 0.25, "\x40\x00\x00\x00\x00\x00\x00\x00"},
		{"c", "a", 0.5, "c"},
		{"a", "a\x00", 0.5, "a"},
		{"abc", "abd", 0.5, "ab" + eight("c\x80")},
		{"a", "b", 0.75, eight("a\xc0")},
	} {
		require.Equal(t, c.want, string(Between([]byte(c.lo), []byte(c.hi), c.at)), "%+v", c)
	}
	long := bytes.Repeat([]byte("z"), store.MaxKeyBytes-8)
	long = long[:len(long):len(long)]
	require.Len(t, Between(append(long, 'a'), append(long, 'c'), 0.5), store.MaxKeyBytes)
	longer := append(bytes.Clone(long), 'z')
	lo := append(bytes.Clone(longer), 'a')
	require.Equal(t, lo, Between(lo, append(bytes.Clone(longer), 'c'), 0.5), "there is no room for it")
	for _, c := range []struct {
		lo, hi string
		want   float64
	}{
		{"", "", 64},
		{"", "\x80", 63},
		{"\x40", "\x80", 62},
		{"x\x40", "x\x80", 54},
		{"xx\x40", "xx\x80", 46},
		{"a", "a\x00", -8},
		{"\x80", "", 63},
	} {
		require.InDelta(t, c.want, Width([]byte(c.lo), []byte(c.hi)), 1e-6, "%+v", c)
	}
	require.Equal(t, 0, Common(nil, []byte("a")))
	require.Equal(t, 1, Common([]byte("a"), []byte("a")))
	require.Equal(t, 2, Common([]byte("abc"), []byte("abd")))
	require.Equal(t, 2, Common([]byte("ab"), []byte("abd")))
	require.EqualValues(t, 0x6200000000000000, number([]byte("ab"), 1))
	require.EqualValues(t, 0, number([]byte("ab"), 2))
	require.EqualValues(t, 0, number([]byte("ab"), 3))
	require.EqualValues(t, uint64(0x6162636465666768), number([]byte("abcdefghij"), 0))
}

// Shares of a weight fall on the keys that are known, and between those that are not.
func TestCutParts(t *testing.T) {
	run := func(from, n int) (keys [][]byte) {
		for i := range n {
			keys = append(keys, fmt.Appendf(nil, "k%03d", from+i))
		}
		return keys
	}
	parts := []Part{
		{Keys: run(0, 10), Weight: 10},
		{Gap: store.Bounds{Start: []byte("k\x40"), End: []byte("k\x80")}, Weight: 80},
		{Keys: run(900, 10), Weight: 10},
	}
	at := []float64{0, 0.05, 0.099, 0.1, 0.5, 0.899, 0.9, 0.95, 0.999}
	got := CutParts(parts, at)
	require.Len(t, got, len(at))
	require.Equal(t, []string{"k000", "k005", "k009"}, []string{string(got[0]), string(got[1]), string(got[2])})
	require.Equal(t, "k\x40", string(got[3]), "the beginning of the gap")
	require.Equal(t, "k\x60\x00\x00\x00\x00\x00\x00\x00", string(got[4]))
	require.Equal(t, []string{"k900", "k905", "k909"}, []string{string(got[6]), string(got[7]), string(got[8])})
	require.Empty(t, CutParts(parts, []float64{1}), "nothing is beyond the end")
	mixed := []Part{{Urgency: 1}, {Urgency: 8}, {Keys: run(0, 1), Urgency: 100}, {Urgency: 4}}
	require.Equal(t, []int{1, 3}, MostUrgent(mixed, 4), "those half as urgent as the first")
	require.Equal(t, []int{1}, MostUrgent([]Part{{Urgency: 1}, {Urgency: 8}, {Urgency: 3.9}}, 4))
	require.Equal(t, []int{0, 1}, MostUrgent([]Part{{Urgency: 5}, {Urgency: 8}, {Urgency: 4}}, 2))
	tied := []Part{{Urgency: 8}, {Urgency: 8}, {Urgency: 8}}
	require.Equal(t, []int{0, 1}, MostUrgent(tied, 2), "the first ones at a tie")
	require.Empty(t, MostUrgent([]Part{{Keys: run(0, 1)}}, 3))
	require.Empty(t, MostUrgent(nil, 3))
}

// A gap is as dense as the run beside it, but hardly more than four times as wide.
func TestEstimate(t *testing.T) {
	run := texts("b\x00", "b\x40", "b\x80")
	require.InDelta(t, 3.0, Estimate([]byte("c\x00"), []byte("c\x80"), run, 7), 1e-6)
	require.InDelta(t, 1.5, Estimate([]byte("c\x00"), []byte("c\x40"), run, 7), 1e-6)
	require.InDelta(t, 6.0, Estimate([]byte("c"), []byte("d"), run, 7), 1e-6)
	require.InDelta(t, 12.0, Estimate([]byte("c"), []byte("e"), run, 7), 1e-6)
	require.InDelta(t, 12*math.Exp2(0.01), Estimate([]byte("c"), []byte("g"), run, 7), 1e-6)
	require.InDelta(t, 3*math.Exp2(2+(9-2)/100.0), Estimate(nil, nil, run, 7), 1e-6)
	require.Equal(t, 7.0, Estimate([]byte("c"), []byte("d"), run[:1], 7), "one key has no density")
	require.Equal(t, 7.0, Estimate([]byte("c"), []byte("d"), nil, 7))
	require.NotZero(t, Estimate([]byte("c"), []byte("d"), run[:2], 7))
}

// Letters before the places change only where the places overflow.
func TestPredict(t *testing.T) {
	names := texts("kx6", "kx7", "kx8", "kx9")
	for _, c := range []struct {
		n       float64
		reverse bool
		want    string
	}{
		{0, false, "kx9"}, {1, false, "ky0"}, {11, false, "kz0"}, {9, true, "kx0"}, {239, true, "ka0"},
		{170, false, "lo9"},
		{26 * 26 * 10, false, ""},
	} {
		require.Equal(t, c.want, string(Predict(names, 0, []byte("kx9"), c.n, c.reverse)), "%+v", c)
	}
	require.Equal(t, "", string(Predict(names, 1, []byte("kx9"), 260, false)), "fixed bytes stay")
	require.Nil(t, Predict(names, 1, []byte("x"), 1, false))
	require.Nil(t, Predict(names[:3], 0, []byte("kx9"), 1, false))
}
