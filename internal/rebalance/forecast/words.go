package forecast

import (
	"bytes"
	"math"
	"math/big"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// form is one known way to write a time in adjacent digits of a key, such as Unix time in seconds or UUIDv7.
type form struct {
	name     string
	alphabet string // name of the alphabet of the digits
	length   int    // digits of the word
	digits   int    // digits from the first on that are read as a number
	shift    uint   // bits by which the number is shifted right to get the time
	tick     int64  // nanoseconds in one unit of the time
	epoch    int64  // start of the time, in Unix milliseconds
	// strong is true if other digits rarely look like this form by chance. A form that is not strong is tried only if
	// the present time is known.
	strong bool
	// fits reports whether the given digits may be of this form. If fits is nil, any digits may.
	fits func(word []byte) bool
}

// twitter and discord are the times at which Snowflakes, which are ids that begin with a time, start to count. They are
// in Unix milliseconds. Twitter has invented Snowflakes, and Discord makes most of them.
const (
	twitter = 1288834974657
	discord = 1420070400000
)

// forms are the known ways to write a time in adjacent digits of a key, e.g. Unix time in seconds as 10 decimal digits.
// A time in bytes (the alphabet "binary") must be at the end of the key.
var forms = []form{
	{name: "Unix time in seconds", strong: true, alphabet: "decimal", length: 10, digits: 10, tick: 1e9},
	{name: "Unix time in milliseconds", strong: true, alphabet: "decimal", length: 13, digits: 13, tick: 1e6},
	{name: "Unix time in microseconds", strong: true, alphabet: "decimal", length: 16, digits: 16, tick: 1e3},
	{name: "Unix time in nanoseconds", strong: true, alphabet: "decimal", length: 19, digits: 19, tick: 1},
	{name: "Snowflake", alphabet: "decimal", length: 19, digits: 19, shift: 22, tick: 1e6, epoch: twitter},
	{name: "Snowflake", alphabet: "decimal", length: 19, digits: 19, shift: 22, tick: 1e6, epoch: discord},
	{name: "Snowflake", alphabet: "decimal", length: 18, digits: 18, shift: 22, tick: 1e6, epoch: discord},
	{name: "Unix time in seconds", alphabet: "hexadecimal", length: 8, digits: 8, tick: 1e9},
	{name: "ObjectId", alphabet: "hexadecimal", length: 24, digits: 8, tick: 1e9},
	{name: "UUIDv7", strong: true, alphabet: "hexadecimal", length: 32, digits: 12, tick: 1e6,
		fits: func(w []byte) bool { return w[12] == '7' }},
	{name: "ULID", strong: true, alphabet: "base 32", length: 26, digits: 10, tick: 1e6},
	{name: "KSUID", alphabet: "base 62", length: 27, digits: 27, shift: 128, tick: 1e9, epoch: 1400000000000},
	{name: "xid", alphabet: "base 32", length: 20, digits: 20, shift: 68, tick: 1e9},
	{name: "Unix time in seconds", alphabet: "binary", length: 4, digits: 4, tick: 1e9},
	{name: "Unix time in milliseconds", alphabet: "binary", length: 8, digits: 8, tick: 1e6},
	{name: "Unix time in microseconds", alphabet: "binary", length: 8, digits: 8, tick: 1e3},
	{name: "Unix time in nanoseconds", alphabet: "binary", length: 8, digits: 8, tick: 1},
	{name: "UUIDv7", strong: true, alphabet: "binary", length: 16, digits: 6, tick: 1e6,
		fits: func(w []byte) bool { return w[6]>>4 == 7 }},
	{name: "ULID", alphabet: "binary", length: 16, digits: 6, tick: 1e6},
}

// word is a run of adjacent digits in the keys that contains a time in a known form, such as a UUIDv7 or Unix time.
type word struct {
	*form
	alphabet *alphabet
	top      []byte
	pos      []int // positions of the digits that are read, in the key
	lead     int   // how many of these digits, from the first on, fit into 62 bits
	scale    float64
}

// findWords returns the times that keys may contain in a known form, such as UUIDv7. The parameter t has the keys. Each
// time is a run of adjacent digits that begins at or before the first byte in which the keys differ.
func findWords(t *tail) (found []*timeline) {
	top := t.top()
	p := t.differ()
	for i := 0; i <= p && i < len(top); i++ {
		begins := i == 0 || !alnum(top[i-1])
		for f := range forms {
			x := &forms[f]
			if !x.strong && t.written == nil && t.o.Now.IsZero() {
				continue
			}
			if x.alphabet == "binary" {
				if i != len(top)-x.length {
					continue
				}
			} else if !begins {
				continue
			}
			if w := newWord(x, top, i); w != nil {
				if l := w.timeline(t); l != nil {
					found = append(found, l)
				}
			}
		}
	}
	return found
}

// newWord returns a description of the time that a key contains, or nil if the key has none at the given place. The
// parameters are:
//   - f: the form of the time, such as UUIDv7
//   - top: the highest key of the range, from which the time is read
//   - at: the index in top of the first byte of the time
func newWord(f *form, top []byte, at int) *word {
	if f.alphabet == "binary" {
		if f.fits != nil && !f.fits(top[at:]) {
			return nil
		}
		return f.word(binary, top, at, false)
	}
	dashed := f.length == 32 && uuid(top[at:])
	end := at + f.length
	if dashed {
		end += 4
	}
	if end > len(top) || end < len(top) && alnum(top[end]) {
		return nil
	}
	digits := bytes.Clone(top[at:end])
	if dashed {
		digits = bytes.ReplaceAll(digits, []byte("-"), nil)
	}
	if len(digits) != f.length || f.fits != nil && !f.fits(digits) {
		return nil
	}
	for _, a := range alphabets {
		if a.name == f.alphabet && a.has(digits) {
			return f.word(a, top, at, dashed)
		}
	}
	return nil
}

func (f *form) word(a *alphabet, top []byte, at int, dashed bool) *word {
	w := &word{form: f, alphabet: a, top: bytes.Clone(top)}
	base := float64(len(a.digits))
	for i := 0; len(w.pos) < f.digits; i++ {
		if !dashed || top[at+i] != '-' {
			w.pos = append(w.pos, at+i)
		}
	}
	w.lead = min(f.digits, int(62/math.Log2(base)))
	if f.shift == 0 {
		w.lead = f.digits // times end before 2^63 does
	}
	w.scale = math.Pow(base, float64(f.digits-w.lead)) / math.Exp2(float64(f.shift))
	return w
}

// uuid reports whether the text begins with a UUID in its usual form, which has 36 characters with dashes between the
// groups of digits.
func uuid(text []byte) bool {
	return len(text) >= 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-'
}

// time returns the time that the digits in the given key stand for, in nanoseconds since 1970. The result ok is false
// if the key lacks the digits, or if the time is after the year 2116.
func (w *word) time(key []byte) (ns int64, ok bool) {
	v, base := uint64(0), uint64(len(w.alphabet.digits))
	for _, i := range w.pos[:w.lead] {
		if i >= len(key) || w.alphabet.value[key[i]] < 0 || v > math.MaxUint64/base-1 {
			return 0, false
		}
		v = v*base + uint64(w.alphabet.value[key[i]])
	}
	ticks := float64(v)
	if w.shift > 0 {
		ticks = math.Floor(ticks * w.scale)
		v = uint64(max(0, min(ticks, mostValue)))
	}
	const last = 1 << 62 // the year 2116
	if ticks*float64(w.tick)+float64(w.epoch)*1e6 >= last {
		return 0, false
	}
	return int64(v)*w.tick + w.epoch*1e6, true
}

// key returns the beginning of all keys that contain the time ns, which is in nanoseconds since 1970. key becomes the
// field timeline.key.
func (w *word) key(ns int64) []byte { return w.write(w.value(ns), len(w.pos)) }

func (w *word) value(ns int64) *big.Int {
	v := big.NewInt((ns - w.epoch*1e6) / w.tick)
	return v.Lsh(v, w.shift)
}

// write returns the beginning of a key that has the number v as its time. It ends after the given number of digits of
// the time.
func (w *word) write(v *big.Int, digits int) []byte {
	out := bytes.Clone(w.top[:w.pos[digits-1]+1])
	base, d := big.NewInt(int64(len(w.alphabet.digits))), new(big.Int)
	v = new(big.Int).Set(v)
	for i := digits - 1; i >= 0; i-- {
		v.DivMod(v, base, d)
		out[w.pos[i]] = w.alphabet.digits[d.Int64()]
	}
	return out
}

// cutAt returns a short key that divides the keys before the time ns from the keys with the time ns or later. ns is in
// nanoseconds since 1970. cutAt becomes the field timeline.cut.
func (w *word) cutAt(ns int64) []byte {
	v, digits, one := w.value(ns), len(w.pos), big.NewInt(1)
	if w.shift > 0 {
		// The digits of a shifted number do not end where the time ends. An error of an eighth of a tick does not
		// matter.
		base, room := big.NewInt(int64(len(w.alphabet.digits))), new(big.Int).Lsh(one, w.shift-3)
		by := big.NewInt(1)
		for next := new(big.Int).Mul(by, base); next.Cmp(room) <= 0 && digits > 1; next = new(big.Int).Mul(by, base) {
			by = next
			digits--
		}
		v.Add(v, by)
		v.Sub(v, one)
		v.Div(v, by)
	}
	return keyspread.Separator(w.write(new(big.Int).Sub(v, one), digits), w.write(v, digits))
}

func (w *word) timeline(t *tail) *timeline {
	l := &timeline{
		name: w.name, finest: tickName(w.form.tick), top: w.top, start: w.pos[0], end: w.pos[len(w.pos)-1] + 1,
		times: timesOf(t.keys, w.time), time: w.time,
		tick: func(ns int64) (from, to int64) { return floor(ns, w.form.tick) },
		key:  w.key, cut: w.cutAt,
	}
	if l.times == nil {
		return nil
	}
	return l
}

func tickName(tick int64) string {
	switch tick {
	case 1e9:
		return "second"
	case 1e6:
		return "millisecond"
	case 1e3:
		return "microsecond"
	}
	return "nanosecond"
}
