package forecast

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// alphabet is the set of digits of one way to write numbers, such as hexadecimal. The digits are in the order of their
// bytes, so that numbers of the same length are sorted by their values.
type alphabet struct {
	name   string
	digits string
	value  [256]int16 // value of each byte as a digit, -1 if the byte is no digit
	common bool       // a usual alphabet, for which few keys are evidence enough
}

// has reports whether all bytes of the text are digits of this alphabet, e.g. of the hexadecimal digits.
func (a *alphabet) has(text []byte) bool {
	return !slices.ContainsFunc(text, func(b byte) bool { return a.value[b] < 0 })
}

// distinct appends to set each byte of more that set does not have yet, and returns the result.
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
	// alphabets are the sets of digits that numbers in text may have, those with fewer digits first. Only numbers whose
	// digits are in the order of their bytes can order keys.
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

// errUnpadded is the error for keys whose numbers have no leading zeros. The order of these keys is not the order of
// the numbers, since 10 sorts below 9.
var errUnpadded = fmt.Errorf("%w: numbers without leading zeros", errUnlike)

// number describes a part of the keys that is read as a number. Its digits are at the same positions in all keys, after
// a prefix that all keys share. Constant bytes may lie between the digits. Only some of the digits are read. Those to
// the left of them are the same in all keys, and those to the right are finer than needed:
//
//	key:     order/ 0000 00123 7f3a
//	field:          left pos
type number struct {
	alphabet *alphabet
	top      []byte // the highest key
	start    int    // position at which the number begins
	pos      []int  // positions of the window's digits in the key
	left     []int  // positions of the digits before the window
	all      []int  // positions of all digits
	differs  int    // first position at which the keys differ
	cap      uint64 // number of values that the window has: the alphabet's size to the power of the window's length
	varying  int    // number of the window's digits from the first one on that is not constant
}

const (
	// mostValue is the maximum number of values that the digits of a number can have, and the largest number that is
	// forecast.
	mostValue = 1 << 62
	// leftRoom is the maximum number of values of those digits of a number that are the same in all keys so far. A
	// forecast may exceed the numbers seen so far by this factor.
	leftRoom = 1 << 27
	// farthest is the number of bytes, counted from the first byte in which the keys differ, among which the digits of
	// a number are searched.
	farthest = 48
)

// findNumber returns the number in the keys that grows from key to key. The parameter t has the keys, and `from` is the
// index of the byte at which the search begins. If joined is true, constant bytes may lie between the digits of the
// number. The error is errUnlike or errUnpadded if there is no such number.
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
		return nil, errUnpadded // one key is a prefix of another
	}
	seen := make([][]byte, end-p) // the different bytes at each position
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
		start = p - 8 // no counter carries further to the left
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
	// The digits after the first difference.
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

// findAlphabet returns the kind of digits of a number in the keys, e.g. hexadecimal digits, or nil if the bytes are no
// digits. top is the highest key. The parameter p is the position of the first byte in which the keys differ. seen has
// the different bytes at each position from p on.
func findAlphabet(top []byte, p int, seen [][]byte) *alphabet {
	// At p only a few digits of the alphabet may occur. So the next position at which the keys differ is checked, too,
	// because all digits may occur at that position if it belongs to the same number.
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
	// The other bytes of the word decide between the alphabets with letters.
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

// smallest returns the alphabet (set of digits) with the fewest digits that has all bytes of the text, e.g. the decimal
// digits for "123". The result is nil if no alphabet has all bytes.
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

// window chooses the digits of the number that are read from the keys. They are few enough for their value not to be
// too large. The parameter p is the position of the first byte in which the keys differ.
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

// of returns the number that the key contains. If the key is too short, the missing digits count as zero.
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

// key returns the beginning of all keys that contain the number v. The boolean result is false if v needs more digits
// than the keys have room for.
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

// cut returns the shortest key between the keys with numbers below v and the keys with v or more. A new range can begin
// there. The boolean result is false if v needs more digits than the keys have room for.
func (n *number) cut(v uint64) ([]byte, bool) {
	at, ok := n.key(v)
	if !ok {
		return nil, false
	}
	before, ok := n.key(v - 1)
	if !ok {
		return nil, false
	}
	return keyspread.Separator(before, at), true
}

// grid returns the step to which numbers are rounded, so that keys made from them are short. The step is the largest
// power of the number's base that is at most x, and at least 1. For example, it is 100 for an x of 250 in decimal
// digits.
func (n *number) grid(x float64) uint64 {
	base := uint64(len(n.alphabet.digits))
	g := uint64(1)
	for float64(g*base) <= x && g < n.cap/base {
		g *= base
	}
	return g
}

// values returns the numbers in the given keys, as differences from the first one. The result first is the number in
// the first key, and xs has the differences. The result ok is false if
//   - there are fewer than two keys, or
//   - a number is lower than the number before, or
//   - all numbers are equal.
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

// like returns the keys whose numbers can be compared with the number in the highest known key. Such keys have the same
// bytes before the digits that are read, and are long enough to have all these digits. like goes down from the highest
// of the given keys, and stops at the first one that does not fit.
func (n *number) like(keys [][]byte) [][]byte {
	from, to := n.pos[0], n.pos[len(n.pos)-1]
	i := len(keys)
	for i > 0 && len(keys[i-1]) > to && string(keys[i-1][:from]) == string(n.top[:from]) {
		i--
	}
	return keys[i:]
}

// full reports whether the numbers in the keys look random, so that they allow no forecast. It is true if the highest
// of them lie near the largest number with that many digits. The parameter l is the line through the numbers.
func (n *number) full(l *line) bool {
	if l.uneven < counts {
		return false
	}
	base := uint64(len(n.alphabet.digits))
	// If more than `few` leading digits are below the alphabet's highest, the keys are a counter. Fewer such digits may
	// be the end of a name.
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
	// most average gaps between the highest number and the end; random keys exceed them in one case of 100,000
	const gaps = 12
	return float64(space-n.of(n.top)%space) <= gaps*l.perRow
}

// counts is the limit up to which a number in the keys is taken for a counter of rows, even if some rows were deleted.
// It is the standard deviation of the gaps between the numbers, divided by the mean gap. The gaps of times and random
// numbers vary more.
const counts = 0.5

// precise is the least number of different values of the number in the keys within one partition. With fewer, cuts
// between the values are not exact enough, and the digits after the number are needed, too.
const precise = 50

// aheadByNumber returns a forecast of the next keys from a number that the keys contain, e.g. the number in
// order/00123. t has the highest keys of the range.
func aheadByNumber(t *tail) (*Forecast, error) {
	f, coarse, err := byNumber(t, false)
	if err == nil && !coarse || err != nil && !errors.Is(err, errUnlike) {
		return f, err
	}
	// The digits behind the number may tell apart rows that have the same number, or nearly.
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

// byNumber returns a forecast of the next keys from a number in the keys. The parameter t has the highest keys. If
// joined is true, constant bytes may lie between the digits of the number. The results are:
//   - f: the forecast, or nil if two cuts would be at the same number
//   - coarse: true if the cuts are not exact enough, because one partition has fewer than 50 (precise) different
//     numbers
//   - err: errUnlike or errUnpadded if there is no such number, or an *Unpredictable
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

// ahead adds the wanted cuts (keys at which new ranges begin) to the forecast f, and returns f. All numbers are
// differences from the number in the first key, which is first. The other parameters are:
//   - t: the highest keys of the range, and the settings of the forecast
//   - from: the number above which new rows are expected
//   - per: the growth of the number from one new row to the next
//   - missing: the number of late rows that are expected below the number from
//
// The result coarse is true if cuts between numbers are not exact enough.
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
			return nil, true, nil // the same number as that of the last cut
		}
		if each < precise {
			at = float64(v - first) // no partition gets more rows than wanted
		}
		at += each
	}
	return f, each < precise, nil
}

// short returns the error for keys whose number has too few digits for the next values. Keys with more digits would
// sort below the present ones. The parameter t has the highest keys, for the text of the error.
func (n *number) short(t *tail) error {
	kind := "the number"
	if n.alphabet != decimal {
		kind = "the " + n.alphabet.name + " number"
	}
	return cannot("%s %s in %s has no room for so many more: it would get a digit more, and sort below", kind,
		quoted(n.prefix()), text(t.top()))
}

// inOrder returns nil if the keys were written in about the order in which they sort, as appended keys are. It compares
// keys in the lower half with keys in the upper half: three quarters of the pairs must be in order. The result is also
// nil if too few times are known.
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

// describe returns a description of the growing number in the keys for people, e.g. "number after 'order/', step
// 10.00". l is the line through the numbers of the keys.
func (n *number) describe(l *line) string {
	kind := n.alphabet.name + " number"
	if n.alphabet == decimal {
		kind = "number"
		if n.top[n.start] == '0' {
			kind = "zero-padded number"
		}
	}
	// The number may have digits behind the window's last one.
	finer := len(n.all) - len(n.left) - len(n.pos)
	step := l.perRow * math.Pow(float64(len(n.alphabet.digits)), float64(finer))
	return fmt.Sprintf("%s %s, step %s", kind, quoted(n.prefix()), steps(step))
}

// prefix returns the bytes of the keys before their number, for texts.
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
