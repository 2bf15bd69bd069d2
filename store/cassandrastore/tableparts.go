package cassandrastore

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
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
	}
	common := 0 // what both begin with, all between them do, too
	for !open && common < min(len(low), len(high)) && low[common] == high[common] {
		common++
	}
	begin := low[:common:common]
	low, high = low[common:], high[min(common, len(high)):]
	one, digitBase := big.NewInt(1), big.NewInt(base)
	first, last := new(big.Int), new(big.Int) // of low and of high the first n digits
	for n := 1; n <= max(len(low), len(high))+1; n++ {
		next := func(v *big.Int, digits []int64) {
			if v.Mul(v, digitBase); n <= len(digits) {
				v.Add(v, big.NewInt(digits[n-1]))
			}
		}
		next(first, low)
		next(last, high)
		from, to := new(big.Int).Set(first), new(big.Int).Set(last)
		if n <= len(low) {
			from.Add(from, one)
		}
		switch {
		case open:
			to.Exp(digitBase, big.NewInt(int64(n)), nil)
			to.Sub(to, one)
		case n >= len(high):
			to.Sub(to, one)
		}
		if from.Cmp(to) > 0 {
			continue
		}
		middle, digit, out := from.Add(from, to).Rsh(from, 1), new(big.Int), make([]int64, n)
		for i := n - 1; i >= 0; i-- {
			middle.DivMod(middle, digitBase, digit)
			out[i] = digit.Int64()
		}
		return append(begin, out...)
	}
	return nil
}
