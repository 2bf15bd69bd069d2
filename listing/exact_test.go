package listing

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Guesses and estimates change no answer, only what it costs. So they are held to exact
// values here: nothing else would notice that one is off.

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
		{[]string{"img-001", "img-002", "img-003", "img-004"}, 0, 0, &want{"img-", []string{digits, digits, digits}, 1}},
		{[]string{"img-004", "img-003", "img-002", "img-001"}, 0, 0, &want{"img-", []string{digits, digits, digits}, 1}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 4, 0, &want{"img-", []string{digits, digits, digits}, 10}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 5, 0, &want{"img-0", []string{digits, digits}, 10}},
		{[]string{"img-010", "img-020", "img-030", "img-040"}, 0, 1, &want{"img-", []string{digits, digits, digits}, 10}},
		{[]string{"a/bx", "a/by", "a/bz", "a/bza"}, 0, 0, &want{"a/b", []string{lower, "$" + lower}, 27.0 * 2.0 / 3.0 / 1}}, // checked below
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 0, 1, &want{"ab", []string{lower, digits}, 1}},
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 0, 2, &want{"a", []string{lower, lower, digits}, 1}},
		{[]string{"abx0", "abx1", "abx2", "abx3"}, 1, 3, &want{"a", []string{lower, lower, digits}, 1}},
		{[]string{"0a", "0b", "0e", "0f"}, 1, 0, &want{"0", []string{lower}, 5.0 / 3}},                                     // no digit seen: letters
		{[]string{"x0a", "x1b", "x2e", "x3f"}, 0, 0, &want{"x", []string{digits + "abcdef", digits + "abcdef"}, 53.0 / 3}}, // hexadecimal
		{[]string{"x0a", "x1b", "x2e", "x3g"}, 0, 0, &want{"x", []string{digits, lower}, 84.0 / 3}},
		{[]string{"x0A", "x1B", "x2E", "x3F"}, 0, 0, &want{"x", []string{digits + "ABCDEF", digits + "ABCDEF"}, 53.0 / 3}},
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
		require.Equal(t, all, p.all)
		worth := all
		for _, pl := range p.places {
			worth /= float64(pl.base())
			require.Equal(t, worth, pl.worth)
		}
		if c.names[0] != "a/bx" {
			require.InDelta(t, c.want.apart, p.apart, 1e-9, "%q", c.names)
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
	require.LessOrEqual(t, p.all, float64(1<<50))
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
		if p.apart != float64(step) { // digits that nobody has seen in common places
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
		require.Equal(t, bytes.IndexByte([]byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), b) >= 0, isLetter(b), "%q", b)
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
		require.Equal(t, c.want, string(between([]byte(c.lo), []byte(c.hi), c.at)), "%+v", c)
	}
	long := bytes.Repeat([]byte("z"), store.MaxKeyBytes-8)
	require.Len(t, between(append(long[:len(long):len(long)], 'a'), append(long[:len(long):len(long)], 'c'), 0.5), store.MaxKeyBytes)
	longer := append(bytes.Clone(long), 'z')
	lo := append(bytes.Clone(longer), 'a')
	require.Equal(t, lo, between(lo, append(bytes.Clone(longer), 'c'), 0.5), "there is no room for it")
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
		require.InDelta(t, c.want, logWidth([]byte(c.lo), []byte(c.hi)), 1e-6, "%+v", c)
	}
	require.Equal(t, 0, commonLength(nil, []byte("a")))
	require.Equal(t, 1, commonLength([]byte("a"), []byte("a")))
	require.Equal(t, 2, commonLength([]byte("abc"), []byte("abd")))
	require.Equal(t, 2, commonLength([]byte("ab"), []byte("abd")))
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
	parts := []part{
		{keys: run(0, 10), weight: 10},
		{gap: span{lo: []byte("k\x40"), hi: []byte("k\x80")}, weight: 80},
		{keys: run(900, 10), weight: 10},
	}
	at := []float64{0, 0.05, 0.099, 0.1, 0.5, 0.899, 0.9, 0.95, 0.999}
	got := cutParts(parts, at)
	require.Len(t, got, len(at))
	require.Equal(t, []string{"k000", "k005", "k009"}, []string{string(got[0]), string(got[1]), string(got[2])})
	require.Equal(t, "k\x40", string(got[3]), "the beginning of the gap")
	require.Equal(t, "k\x60\x00\x00\x00\x00\x00\x00\x00", string(got[4]))
	require.Equal(t, []string{"k900", "k905", "k909"}, []string{string(got[6]), string(got[7]), string(got[8])})
	require.Empty(t, cutParts(parts, []float64{1}), "nothing is beyond the end")
	require.Equal(t, []int{1, 3}, mostUrgent([]part{{urgency: 1}, {urgency: 8}, {keys: run(0, 1), urgency: 100}, {urgency: 4}}, 4), "those half as urgent as the first")
	require.Equal(t, []int{1}, mostUrgent([]part{{urgency: 1}, {urgency: 8}, {urgency: 3.9}}, 4))
	require.Equal(t, []int{0, 1}, mostUrgent([]part{{urgency: 5}, {urgency: 8}, {urgency: 4}}, 2))
	require.Equal(t, []int{0, 1}, mostUrgent([]part{{urgency: 8}, {urgency: 8}, {urgency: 8}}, 2), "the first ones at a tie")
	require.Empty(t, mostUrgent([]part{{keys: run(0, 1)}}, 3))
	require.Empty(t, mostUrgent(nil, 3))
}

// Quanta of a partition: what of them is a stretch's, and the keys at shares of it.
func TestQuanta(t *testing.T) {
	quanta := []counter.Quantum{{Rows: 10}, {Key: []byte("c"), Rows: 20}, {Key: []byte("f"), Rows: 30}, {Key: []byte("k"), Rows: 40}}
	for _, c := range []struct {
		lo, hi string
		want   []int64
	}{
		{"", "", []int64{10, 20, 30, 40}},
		{"", "c", []int64{10}},
		{"", "d", []int64{10, 20}},
		{"c", "", []int64{20, 30, 40}},
		{"d", "k", []int64{20, 30}},
		{"d", "l", []int64{20, 30, 40}}, {"z", "", []int64{40}}, {"b", "b\x00", []int64{10}},
	} {
		x := stretch{span: span{lo: []byte(c.lo), hi: []byte(c.hi)}, weight: -1, quanta: quanta[:1]}
		x.takeQuanta(quanta)
		var rows []int64
		sum := 0.0
		for _, q := range x.quanta {
			rows = append(rows, int64(q.Rows))
			sum += float64(q.Rows)
		}
		require.Equal(t, c.want, rows, "%+v", c)
		require.Equal(t, sum, x.weight)
	}
	var got []string
	for _, key := range quantiles(quanta, 100, []float64{0, 0.05, 0.051, 0.2, 0.201, 0.45, 0.451, 0.999}) {
		got = append(got, string(key))
	}
	require.Equal(t, []string{"", "", "c", "c", "f", "f", "k", "k"}, got)
}

// Which part of a span a range has, and what is left once something was passed.
func TestSpans(t *testing.T) {
	keys := []string{"", "a", "b", "b\x00", "c", "d"}
	inside := func(s *span, key string) bool {
		k := []byte(key)
		return !s.done && (bytes.Compare(k, s.lo) > 0 || bytes.Equal(k, s.lo) && (!s.exclusive || len(s.lo) == 0)) && (len(s.hi) == 0 || bytes.Compare(k, s.hi) < 0)
	}
	probes := []string{"0", "a", "a5", "b", "b\x00", "b5", "c", "c5", "d", "d5", "b\x01"}
	for _, lo := range keys {
		for _, hi := range keys {
			for _, exclusive := range []bool{false, true} {
				for _, reverse := range []bool{false, true} {
					base := span{lo: []byte(lo), hi: []byte(hi), exclusive: exclusive && lo != "", reverse: reverse}
					base.settle()
					for _, k := range probes {
						s := base
						require.Equal(t, s.done, s.done && !inside(&s, k) || s.done)
						before := !s.done && !inside(&s, k) && (!reverse && (k < lo || k == lo) || reverse && hi != "" && k >= hi)
						require.Equal(t, s.done || before, s.passed([]byte(k)), "%+v %q", s, k)
						s.passKey([]byte(k))
						for _, other := range probes {
							want := inside(&base, other) && (!reverse && other > k || reverse && other < k)
							require.Equal(t, want, inside(&s, other), "%+v beyond %q: %q", base, k, other)
						}
						s = base
						s.passPrefix([]byte(k))
						for _, other := range probes {
							under := bytes.HasPrefix([]byte(other), []byte(k))
							want := inside(&base, other) && !under && (!reverse && other > k || reverse && other < k)
							require.Equal(t, want, inside(&s, other), "%+v beyond the prefix %q: %q", base, k, other)
						}
					}
					for _, start := range keys {
						for _, end := range keys {
							if end != "" && start >= end {
								continue
							}
							rg := partmap.Range{Entry: partmap.Entry{Start: []byte(start)}, End: []byte(end)}
							b := base.within(&rg)
							for _, k := range probes {
								in := (k > string(b.Start) || k == string(b.Start) && !b.StartExclusive) && (len(b.End) == 0 || k < string(b.End))
								inRange := k >= start && (end == "" || k < end)
								if !base.done {
									require.Equal(t, inside(&base, k) && inRange, in, "%+v in [%q, %q): %q", base, start, end, k)
								}
							}
							s := base
							s.passRange(&rg)
							for _, k := range probes {
								want := inside(&base, k) && (!reverse && end != "" && k >= end || reverse && start != "" && k < start)
								require.Equal(t, want, inside(&s, k), "%+v beyond [%q, %q): %q", base, start, end, k)
							}
							require.True(t, s.passedRange(&rg), "%+v [%q, %q)", base, start, end)
						}
					}
				}
			}
		}
	}
	// What PrefixEnd has no end for is passed with everything behind it.
	s := span{}
	s.passPrefix([]byte("\xff"))
	require.True(t, s.done)
	s = span{reverse: true}
	s.passPrefix([]byte("\xff"))
	require.False(t, s.done)
	require.Equal(t, "\xff", string(s.hi))
	require.False(t, math.IsNaN(logWidth(nil, nil)))
}

// Tokens of other forms and lengths are refused, whatever their sum says.
func TestTokensOfOtherForms(t *testing.T) {
	id, q := store.BucketID{1}, Query{}
	s := span{lo: []byte("k")}
	good := s.token(id, &q)
	var r span
	require.NoError(t, r.resume(good, id, &q))
	require.Equal(t, span{lo: []byte("k")}, r)
	s.exclusive = true
	require.NoError(t, r.resume(s.token(id, &q), id, &q))
	require.True(t, r.exclusive)
	empty := span{}
	r = span{}
	require.NoError(t, r.resume(empty.token(id, &q), id, &q), "the beginning is a place too")
	require.Equal(t, span{lo: []byte{}}.lo, append([]byte{}, r.lo...))
	back := Query{Reverse: true}
	rs := span{reverse: true}
	require.ErrorIs(t, rs.resume(rs.token(id, &back), id, &back), ErrBadToken, "a token in reverse has a bound")
	rs.hi = []byte("k")
	token := rs.token(id, &back)
	r = span{reverse: true}
	require.NoError(t, r.resume(token, id, &back))
	require.Equal(t, "k", string(r.hi))
	long := span{lo: bytes.Repeat([]byte("k"), store.MaxKeyBytes), exclusive: true}
	token = long.token(id, &q)
	require.LessOrEqual(t, len(token), 87_400)
	r = span{}
	require.NoError(t, r.resume(token, id, &q))
	require.ErrorIs(t, r.resume(token+"A", id, &q), ErrBadToken)
}
