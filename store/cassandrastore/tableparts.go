package cassandrastore

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"
)

// place is a place in a partition of a Table: before all rows whose clustering columns begin with values, or after
// them. Without values it is the end of the partition on that side.
type place struct {
	values [][]byte
	after  bool
}

// at returns the value of a column, nil if the place has none.
func (p *place) at(i int) []byte {
	if i < len(p.values) {
		return p.values[i]
	}
	return nil
}

// is reports whether the place is before, or after, the rows that begin with all values of low's first i columns and v.
func (p *place) is(i int, after bool) bool { return len(p.values) == i+1 && p.after == after }

// halveRows returns a place between two, about halfway between the values of the first clustering column in which they
// differ; false: there is none, or it is not known. Columns have the ascending order of their types.
func halveRows(columns []TableColumn, low, high place) (cut place, ok bool) {
	for i, c := range columns {
		from, to := low.at(i), high.at(i)
		if from == nil {
			from = least(c.Type)
		}
		if from != nil && to != nil && bytes.Equal(from, to) {
			continue
		}
		common := low.values[:min(i, len(low.values))]
		if len(common) < i {
			common = high.values[:i]
		}
		with := func(v []byte, after bool) place { return place{append(slices.Clone(common), v), after} }
		middle, known := between(c.Type, from, to)
		switch {
		case !known:
			return place{}, false
		case middle != nil && to != nil && len(middle) > len(to) && !high.is(i, false):
			return with(to, false), true // strings come closer to the higher one without an end, and rows may have it
		case middle != nil:
			return with(middle, false), true
		case !low.is(i, true) && to != nil && !high.is(i, false):
			return with(from, true), true // between two neighbours
		case !low.is(i, true): // all rows have the lower value
			high = with(from, true)
		case to != nil: // all rows have the higher one
			low = with(to, false)
		default:
			return place{}, false
		}
	}
	return place{}, false
}

var numberSizes = map[string]int{"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8, "date": 4}

// signOf is the bit that is inverted so that numbers of a type sort as unsigned ones.
func signOf(typ string) uint64 {
	if typ == "date" {
		return 0
	}
	return 1 << (8*numberSizes[typ] - 1)
}

func wireNumber(typ string, v uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, v^signOf(typ))[8-numberSizes[typ]:]
}

// least is the first value of a type, if its order is known.
func least(typ string) []byte {
	switch {
	case typ == "boolean":
		return []byte{0}
	case numberSizes[typ] > 0:
		return wireNumber(typ, 0)
	}
	return []byte{}
}

// between returns a value of a type above low and below high, about halfway, nil if there is none; without a high one
// (nil) there is no bound. known: the type's order is.
func between(typ string, low, high []byte) (v []byte, known bool) {
	switch typ {
	case "blob", "text", "ascii":
		return betweenStrings(typ, low, high), true
	case "boolean":
		if low[0] == 0 && high == nil {
			return []byte{1}, true
		}
		return nil, true
	}
	if numberSizes[typ] == 0 {
		return nil, false
	}
	return betweenNumbers(typ, low, high), true
}

func betweenNumbers(typ string, low, high []byte) []byte {
	size := numberSizes[typ]
	number := func(wire []byte) uint64 {
		return binary.BigEndian.Uint64(append(make([]byte, 8-size), wire...)) ^ signOf(typ)
	}
	first, last := number(low), uint64(math.MaxUint64)>>(64-8*size)
	if high != nil {
		last = number(high)
	}
	if first >= last {
		return nil
	}
	middle := first + (last-first)/2
	if high == nil { // the last one is possible, too
		middle++
	}
	if middle == first {
		return nil
	}
	return wireNumber(typ, middle)
}

// betweenStrings reads values as fractions whose digits are bytes, or the characters of a text.
func betweenStrings(typ string, low, high []byte) []byte {
	const surrogates, afterSurrogates = 0x800, 0xe000 // are no characters
	base := map[string]int64{"blob": 256, "ascii": utf8.RuneSelf, "text": utf8.MaxRune + 1 - surrogates}[typ]
	digits := func(value []byte) (out []int64) {
		if typ != "text" {
			for _, b := range value {
				out = append(out, int64(b))
			}
			return out
		}
		for _, r := range string(value) {
			if r >= afterSurrogates {
				r -= surrogates
			}
			out = append(out, int64(r))
		}
		return out
	}
	middle := betweenDigits(base, digits(low), digits(high), high == nil)
	if middle == nil {
		return nil
	}
	value := []byte{}
	for _, d := range middle {
		switch {
		case typ != "text":
			value = append(value, byte(d))
		case d >= afterSurrogates-surrogates:
			value = utf8.AppendRune(value, rune(d+surrogates))
		default:
			value = utf8.AppendRune(value, rune(d))
		}
	}
	return value
}

// betweenDigits returns digits above low and below high, or above low if it is open; nil: there are none. Of all such it
// returns one of the shortest, in their middle: so cuts come to each value in a few steps for each of its digits. Halves
// of fractions would not: a value and the same one with zeros behind it are equal as fractions.
//
// Where it is open, dead rows most likely begin like low (all of a prefix were deleted): the result is the first value
// that shares low's digits only up to the last but one.
func betweenDigits(base int64, low, high []int64, open bool) []int64 {
	if open {
		for n := len(low) - 1; n > 0; n-- {
			if low[n-1]+1 < base {
				return append(slices.Clone(low[:n-1]), low[n-1]+1)
			}
		}
		return aboveDigits(base, low)
	}
	if slices.Compare(low, high) >= 0 {
		return nil
	}
	common := 0 // what both begin with, all between them do, too
	for common < len(low) && low[common] == high[common] {
		common++
	}
	begin := slices.Clone(low[:common])
	low, high = low[common:], high[common:]
	first, last := int64(0), high[0]
	if len(low) > 0 {
		first = low[0] + 1
	}
	if len(high) == 1 {
		last--
	}
	switch {
	case first <= last:
		return append(begin, first+(last-first)/2)
	case len(low) == 0: // high is low and a zero
		return nil
	}
	return append(append(begin, low[0]), aboveDigits(base, low[1:])...)
}

// aboveDigits is betweenDigits without a high end.
func aboveDigits(base int64, low []int64) []int64 {
	n := 0
	for n < len(low) && low[n] == base-1 {
		n++
	}
	first := int64(0)
	if n < len(low) {
		first = low[n] + 1
	}
	return append(slices.Clone(low[:n]), first+(base-1-first)/2)
}
