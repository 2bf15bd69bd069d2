package forecast

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// Below forecasts keys that descend, such as reversed times, and returns keys at which to make empty ranges for them in
// advance (cuts). The cuts lie below the lowest key, each lower than the one before, with about the wanted number of
// rows between two. The parameter recent has the lowest keys of the range, without gaps, in ascending order. The errors
// are those of Ahead.
func Below(recent [][]byte, o Options) (*Forecast, error) {
	if err := check(recent, &o); err != nil {
		return nil, err
	}
	m := newMirror(recent)
	turned := make([][]byte, len(recent))
	for i, k := range recent {
		turned[len(recent)-1-i] = m.of(k)
	}
	if o.Written != nil {
		o.Written = slices.Clone(o.Written)
		slices.Reverse(o.Written)
	}
	for i := range turned[1:] {
		if bytes.Compare(turned[i], turned[i+1]) >= 0 {
			return nil, cannot("they descend, and are of several lengths")
		}
	}
	f, err := Ahead(turned, o)
	if err != nil {
		return nil, err
	}
	f.How = "descending: " + f.How
	low := recent[0]
	n := 0
	for i, c := range f.Cuts {
		// A key that reaches the cut of the mirrored keys begins with the cut's mirror image, or lies below it.
		cut := store.PrefixEnd(m.of(c))
		if cut == nil || bytes.Compare(cut, low) > 0 || n > 0 && bytes.Compare(cut, f.Cuts[n-1]) >= 0 {
			continue
		}
		f.Cuts[n], f.Rows[n] = cut, f.Rows[i]
		n++
	}
	if f.Cuts, f.Rows = f.Cuts[:n], f.Rows[:n]; n == 0 {
		return nil, cannot("no cut lies below the lowest key, %s", text(low))
	}
	return f, nil
}

// mirror turns keys that contain a descending number into keys that ascend, so that one forecast serves for both. It
// replaces each digit d of the number by b-1-d, where b is the base of the number. For example, 3 becomes 6 in decimal.
type mirror struct {
	from   int // length of the prefix that is not turned around
	digits *alphabet
}

func newMirror(keys [][]byte) mirror {
	from := keyspread.Common(keys[0], keys[len(keys)-1])
	var seen []byte
	for _, k := range keys {
		end := len(k)
		if i := slices.IndexFunc(k[from:], func(b byte) bool { return printable(b) && !alnum(b) }); i >= 0 {
			end = from + i // the number ends at the first punctuation mark
		}
		seen = distinct(seen, k[from:end]...)
	}
	m := mirror{from, smallest(seen)}
	if m.digits == nil {
		m.digits = binary
	}
	for m.from > 0 && m.digits.value[keys[0][m.from-1]] >= 0 && (m.digits != binary || from-m.from < 8) {
		m.from--
	}
	return m
}

// of returns the key with each digit of its number replaced by the opposite digit, e.g. 0 by 9. Another call with the
// result returns the key.
func (m *mirror) of(key []byte) []byte {
	out := bytes.Clone(key)
	for i := m.from; i < len(out); i++ {
		if v := m.digits.value[out[i]]; v >= 0 {
			out[i] = m.digits.digits[len(m.digits.digits)-1-int(v)]
		}
	}
	return out
}
