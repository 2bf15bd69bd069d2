package forecast

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/partmap"
)

// alphabet is the digits of a way to write numbers, in their bytes' order.
type alphabet struct {
	name   string
	digits string
	value  [256]int16 // -1: no digit
	common bool       // so few keys are enough to believe it
}

// has reports whether all bytes are digits.
func (a *alphabet) has(text []byte) bool {
	return !slices.ContainsFunc(text, func(b byte) bool { return a.value[b] < 0 })
}

// distinct appends those of more to set that are not in it.
func distinct(set []byte, more ...byte) []byte {
	for _, b := range more {
		if bytes.IndexByte(set, b) < 0 {
			set = append(set, b)
		}
	}
	return set
}

func newAlphabet(name, digits string) *alphabet {
	a := &alphabet{name: name, digits: digits, common: name == "decimal" || name == "hexadecimal" || name == "binary"}
	for i := range a.value {
		a.value[i] = -1
	}
	for i := range len(digits) {
		a.value[digits[i]] = int16(i)
	}
	return a
}

const (
	numerals = "0123456789"
	lower    = "abcdefghijklmnopqrstuvwxyz"
	upper    = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func allBytes() string {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return string(all)
}

var (
	decimal = newAlphabet("decimal", numerals)
	binary  = newAlphabet("binary", allBytes())
	// alphabets of text, those with fewer digits first. Only those whose digits are in the order of their bytes can be
	// in keys in order.
	alphabets = []*alphabet{
		decimal,
		newAlphabet("hexadecimal", numerals+"abcdef"),
		newAlphabet("hexadecimal", numerals+"ABCDEF"),
		newAlphabet("alphabetic", lower),
		newAlphabet("alphabetic", upper),
		newAlphabet("base 32", "0123456789abcdefghjkmnpqrstvwxyz"), // Crockford's
		newAlphabet("base 32", "0123456789ABCDEFGHJKMNPQRSTVWXYZ"),
		newAlphabet("base 32", "0123456789abcdefghijklmnopqrstuv"), // RFC 4648, "extended hex"
		newAlphabet("base 32", "0123456789ABCDEFGHIJKLMNOPQRSTUV"),
		newAlphabet("base 36", numerals+lower),
		newAlphabet("base 36", numerals+upper),
		newAlphabet("base 58", "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"),
		newAlphabet("base 62", numerals+upper+lower),
		newAlphabet("base 64", "-"+numerals+upper+"_"+lower),
	}
)

// errUnpadded says that numbers have no leading zeros.
var errUnpadded = fmt.Errorf("%w: numbers without leading zeros", errUnlike)

// number is a part of each key that is read as a number: a prefix that they share, then digits of one alphabet at the
// same places, with constant bytes between them perhaps. Only some digits are looked at, the window: those to the left
// of it are the same in all keys, those to the right too fine.
type number struct {
	alphabet *alphabet
	top      []byte // the highest key
	start    int    // where the number begins
	pos      []int  // of the window's digits, in the key
	left     []int  // of the digits before the window
	all      []int  // of all digits
	differs  int    // where the keys differ first
	cap      uint64 // what the window holds: its alphabet's size to the power of its length
	varying  int    // how many digits of the window lie at or after the first that is not constant
}

const (
	// A window holds so much at most.
	mostValue = 1 << 62
	// Of what keys share a window has digits for so many times of what they differ in.
	leftRoom = 1 << 27
	// So far to the right of the first difference digits are looked for.
	farthest = 48
)

// findNumber finds what grows, in the keys from position from on. With joined it reads on over constant bytes between
// digits.
func findNumber(t *tail, from int, joined bool) (*number, error) {
	top := t.top()
	p := max(t.differ(), from)
	end := len(top)
	for _, k := range t.keys {
		end = min(end, len(k))
	}
	longer := end
	end = min(end, p+farthest)
	if p >= end {
		return nil, errUnpadded // a key is the beginning of another
	}
	seen := make([][]byte, end-p) // the bytes at each position
	for _, k := range t.keys {
		for i, b := range k[p:end] {
			seen[i] = distinct(seen[i], b)
		}
	}
	n := &number{top: bytes.Clone(top), differs: p}
	if n.alphabet = findAlphabet(top, p, seen); n.alphabet == nil {
		return nil, errUnlike
	}
	// Digits before the first difference.
	start := p
	for start > from && n.alphabet.value[top[start-1]] >= 0 {
		start--
	}
	if n.alphabet == binary && p-start > 8 {
		start = p - 8 // further than that no counter carries
	}
	// Letters in front of zeros are a name, not digits: "ID000017A".
	if !numeral(top[start]) && n.alphabet != binary {
		for i := start; i < p; i++ {
			if top[i] == '0' {
				start = i
				break
			}
			if numeral(top[i]) {
				break
			}
		}
	}
	n.start = start
	for i := start; i < p; i++ {
		n.all = append(n.all, i)
	}
	// And after it.
	last := p
	for i := p; i < end; i++ {
		if s := seen[i-p]; n.alphabet.has(s) {
			n.all = append(n.all, i)
			last = i + 1
		} else if !joined || len(s) > 1 || alnum(top[i]) {
			break
		}
	}
	if n.alphabet == decimal {
		// Does the number end at the same place in every key?
		for _, k := range t.keys {
			if (len(k) > last && numeral(k[last])) != (len(top) > last && numeral(top[last])) && last <= longer {
				return nil, errUnpadded
			}
		}
	}
	n.window(p)
	return n, nil
}

func numeral(b byte) bool { return '0' <= b && b <= '9' }

func alnum(b byte) bool { return numeral(b) || 'a' <= b|0x20 && b|0x20 <= 'z' }

// findAlphabet finds the alphabet of the number whose first difference is at p. In it few digits may have been seen
// yet; the position that differs next, if it belongs to the same number, has gone through them all.
func findAlphabet(top []byte, p int, seen [][]byte) *alphabet {
	union := seen[0]
	for i := 1; i < len(seen); i++ {
		if len(seen[i]) == 1 {
			if b := top[p+i]; !alnum(b) && printable(b) {
				break
			}
			continue
		}
		wider := distinct(slices.Clip(union), seen[i]...)
		if fit := smallest(wider); fit != nil && (fit != binary || smallest(union) == binary || i == 1) {
			union = wider
		}
		break
	}
	found := smallest(union)
	if found == nil || found == binary || found == decimal {
		return found
	}
	// What else is in the word decides between the alphabets with letters.
	for i := range seen {
		if len(seen[i]) == 1 && !alnum(top[p+i]) {
			break
		}
		wider := distinct(slices.Clip(union), seen[i]...)
		fit := smallest(wider)
		if fit == nil || fit == binary {
			break
		}
		union, found = wider, fit
	}
	return found
}

// smallest is the alphabet with the fewest digits that has all bytes of a text; nil: none has.
func smallest(text []byte) *alphabet {
	for _, a := range alphabets {
		if a.has(text) {
			return a
		}
	}
	if slices.ContainsFunc(text, func(b byte) bool { return !printable(b) }) {
		return binary
	}
	return nil
}

func printable(b byte) bool { return b >= 0x20 && b < 0x7f }

// window chooses the digits to look at, where the keys differ first at p.
func (n *number) window(p int) {
	base := uint64(len(n.alphabet.digits))
	at := 0
	for n.all[at] < p {
		at++
	}
	from, room := at, uint64(1)
	for from > 0 && room*base <= leftRoom {
		room *= base
		from--
	}
	n.cap = room
	to := at
	for to < len(n.all) && n.cap <= mostValue/base {
		n.cap *= base
		to++
	}
	n.left, n.pos, n.varying = n.all[:from], n.all[from:to], to-at
}

// of is the number of a key; digits that it does not have are zero.
func (n *number) of(key []byte) uint64 {
	v, base := uint64(0), uint64(len(n.alphabet.digits))
	for _, i := range n.pos {
		v *= base
		if i < len(key) {
			v += uint64(max(0, n.alphabet.value[key[i]]))
		}
	}
	return v
}

// key is the prefix that keys of number v have; false: the number has no room for it.
func (n *number) key(v uint64) ([]byte, bool) {
	base := uint64(len(n.alphabet.digits))
	out := bytes.Clone(n.top[:n.pos[len(n.pos)-1]+1])
	carry := v / n.cap
	v %= n.cap
	for i := len(n.pos) - 1; i >= 0; i-- {
		out[n.pos[i]] = n.alphabet.digits[v%base]
		v /= base
	}
	for i := len(n.left) - 1; i >= 0 && carry > 0; i-- {
		at := n.left[i]
		d := uint64(n.alphabet.value[out[at]]) + carry
		out[at] = n.alphabet.digits[d%base]
		carry = d / base
	}
	return out, carry == 0
}

// cut is the shortest key above all of numbers below v and not above those of v.
func (n *number) cut(v uint64) ([]byte, bool) {
	at, ok := n.key(v)
	if !ok {
		return nil, false
	}
	before, ok := n.key(v - 1)
	if !ok {
		return nil, false
	}
	return partmap.Separator(before, at), true
}

// grid is the largest power of the alphabet's size that is not above x, at least 1.
func (n *number) grid(x float64) uint64 {
	base := uint64(len(n.alphabet.digits))
	g := uint64(1)
	for float64(g*base) <= x && g < n.cap/base {
		g *= base
	}
	return g
}

// values are the numbers of the keys, less the first one's.
func (n *number) values(keys [][]byte) (xs []float64, first uint64, ok bool) {
	if len(keys) < 2 {
		return nil, 0, false
	}
	first = n.of(keys[0])
	xs = make([]float64, len(keys))
	for i, k := range keys {
		v := n.of(k)
		if v < first || i > 0 && float64(v-first) < xs[i-1] {
			return nil, 0, false
		}
		xs[i] = float64(v - first)
	}
	return xs, first, xs[len(xs)-1] > 0
}

// like are the last of keys that have the same bytes before the window, and are as long.
func (n *number) like(keys [][]byte) [][]byte {
	from, to := n.pos[0], n.pos[len(n.pos)-1]
	i := len(keys)
	for i > 0 && len(keys[i-1]) > to && string(keys[i-1][:from]) == string(n.top[:from]) {
		i--
	}
	return keys[i:]
}

// full says whether the keys fill all that a number of such length can be, by chance: the highest of random keys are
// near to the end of all.
func (n *number) full(l *line) bool {
	if l.uneven < counts {
		return false
	}
	base := uint64(len(n.alphabet.digits))
	// Digits before it that are not the last of the alphabet speak for a number, unless they are few: the end of a name
	// perhaps.
	const few = 2
	before := 0
	for _, i := range n.all {
		if i >= n.differs {
			break
		}
		if n.alphabet.value[n.top[i]] != int16(base-1) {
			before++
		}
	}
	if before > few {
		return false
	}
	space := uint64(1)
	for range n.varying {
		space *= base
	}
	const gaps = 12 // from the end; by chance more in one case of 100,000
	return float64(space-n.of(n.top)%space) <= gaps*l.perRow
}

// counts is how uneven the gaps of a number are at most that counts rows, some of which were deleted perhaps. Times and
// random numbers are more uneven.
const counts = 0.5

// precise is how many units of the value a partition has to have, so that nothing is needed of what follows the number.
const precise = 50

// aheadByNumber forecasts keys by a number in them.
func aheadByNumber(t *tail) (*Forecast, error) {
	f, coarse, err := byNumber(t, false)
	if err == nil && !coarse || err != nil && !errors.Is(err, errUnlike) {
		return f, err
	}
	// What comes behind it may tell rows apart that have the same number, or nearly.
	finer, still, ferr := byNumber(t, true)
	switch {
	case ferr == nil && finer != nil && (f == nil || !still):
		return finer, nil
	case err != nil:
		return nil, err
	case f == nil:
		return nil, cannot("more rows than a partition is to have share one number")
	}
	return f, nil
}

// byNumber forecasts keys by a number (see findNumber). coarse: few numbers fall into one partition, or (f is nil) too
// few.
func byNumber(t *tail, joined bool) (f *Forecast, coarse bool, err error) {
	n, err := findNumber(t, 0, joined)
	if err != nil {
		return nil, false, err
	}
	xs, first, ok := n.values(t.keys)
	if !ok {
		return nil, false, errUnlike
	}
	l := fit(xs)
	if below, _, ok := n.values(n.like(t.below)); ok {
		l.thinner(below)
	}
	if !l.even(len(xs)) || !n.alphabet.common && len(xs) < 32 {
		return nil, false, errUnlike
	}
	if n.full(&l) {
		return nil, false, cannot("they are spread over all that there is room for, like random ones (the highest is %s)",
			text(t.top()))
	}
	if err := t.inOrder(); err != nil {
		return nil, false, err
	}
	f = &Forecast{Method: Number, Counted: l.uneven < counts, Sure: l.sure(), How: n.describe(&l)}
	return n.ahead(t, f, first, xs[len(xs)-1], l.perRow, l.missing)
}

// ahead adds the cuts to f. The next rows come at from, in units above the first key's; each takes per units.
func (n *number) ahead(
	t *tail, f *Forecast, first uint64, from, per, missing float64,
) (_ *Forecast, coarse bool, err error) {
	each := t.o.Each * per
	g := n.grid(each / 200)
	at := from + max(t.o.First/4, t.o.First-missing)*per
	top := n.of(n.top)
	for range t.o.N {
		if at > mostValue {
			return nil, false, n.short(t)
		}
		v := max((first+uint64(at))/g*g, top+1)
		cut, ok := n.cut(v)
		if !ok {
			return nil, false, n.short(t)
		}
		if !f.add(t, cut, (float64(v-first)-from)/per+missing) {
			return nil, true, nil // the same number again
		}
		if each < precise {
			at = float64(v - first) // so that none has more than wanted
		}
		at += each
	}
	return f, each < precise, nil
}

// short is the error where a number has too few digits.
func (n *number) short(t *tail) error {
	kind := "the number"
	if n.alphabet != decimal {
		kind = "the " + n.alphabet.name + " number"
	}
	return cannot("%s %s in %s has no room for so many more: it would get a digit more, and sort below", kind,
		quoted(n.prefix()), text(t.top()))
}

// inOrder fails if keys were not written in about their order.
func (t *tail) inOrder() error {
	if len(t.written) < 2*Fewest {
		return nil
	}
	up, down := 0, 0
	half := len(t.written) / 2
	for i := range len(t.written) - half {
		switch d := t.written[i+half] - t.written[i]; {
		case d > 0:
			up++
		case d < 0:
			down++
		}
	}
	if float64(up) < 0.75*float64(up+down) {
		return cannot("they are not appended: of the highest keys %.0f %% were written later than lower ones",
			100*float64(up)/math.Max(1, float64(up+down)))
	}
	return nil
}

// describe says for people what number grows.
func (n *number) describe(l *line) string {
	kind := n.alphabet.name + " number"
	if n.alphabet == decimal {
		kind = "number"
		if n.top[n.start] == '0' {
			kind = "zero-padded number"
		}
	}
	// The window's last digit may not be the number's.
	finer := len(n.all) - len(n.left) - len(n.pos)
	step := l.perRow * math.Pow(float64(len(n.alphabet.digits)), float64(finer))
	return fmt.Sprintf("%s %s, step %s", kind, quoted(n.prefix()), steps(step))
}

// prefix is what stands before the number, for people.
func (n *number) prefix() []byte {
	at := n.start
	if n.alphabet == binary {
		for at < n.differs && printable(n.top[at]) {
			at++ // most likely no digits
		}
	}
	return n.top[:at]
}

func steps(x float64) string {
	if x >= 1e6 || x < 0.01 {
		return fmt.Sprintf("%.2e", x)
	}
	return fmt.Sprintf("%.2f", x)
}
