package cassandrastore

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/internal/cqltable"
)

// place is a position between two rows of a partition, in a table of another application. It is given by the values of
// the first clustering columns: it lies before all rows with these values or, if the field after is true, behind them.
// Without values it is the beginning or the end of the partition.
type place struct {
	values [][]byte
	after  bool
}

// at returns the value of the clustering column with the number i (from 0) at the position p between two rows. It
// returns nil if the position has no value for the column.
func (p *place) at(i int) []byte {
	if i < len(p.values) {
		return p.values[i]
	}
	return nil
}

// is reports whether the position p, which lies between two rows, is given by exactly the first i+1 clustering columns.
// It must also lie on the wanted side: behind the rows with the position's values if after is true, else before them.
func (p *place) is(i int, after bool) bool { return len(p.values) == i+1 && p.after == after }

// halveRows returns a position cut between the positions low and high, in order to split a read of the rows between
// them. The position is about halfway in the first clustering column in which low and high differ. columns are the
// clustering columns, all in the ascending order of their types. The result ok is false if no position lies between low
// and high, or the order of a type is not known.
func halveRows(columns []cqltable.Column, low, high place) (cut place, ok bool) {
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
			return with(to, false), true // cuts would approach the higher string for ever; rows may have it
		case middle != nil:
			return with(middle, false), true
		case !low.is(i, true) && to != nil && !high.is(i, false):
			return with(from, true), true // between two neighbours
		case !low.is(i, true): // all rows have the lower value
			high = with(from, true)
		case to != nil: // all rows have the higher value
			low = with(to, false)
		default:
			return place{}, false
		}
	}
	return place{}, false
}

// numberSizes has the size in bytes of each CQL type whose values are numbers.
var numberSizes = map[string]int{"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "timestamp": 8, "date": 4}

// signOf returns the number to which the caller XORs a value of the CQL type typ, so that the values sort like unsigned
// numbers. It has only the sign bit of the type set. For dates, which are unsigned, it is 0.
func signOf(typ string) uint64 {
	if typ == "date" {
		return 0
	}
	return 1 << (8*numberSizes[typ] - 1)
}

// wireNumber returns a value of the CQL type typ in its wire format. v is the place of the value in the order of the
// type: the lowest value has 0.
func wireNumber(typ string, v uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, v^signOf(typ))[8-numberSizes[typ]:]
}

// least returns the lowest value of the CQL type typ, in its wire format. For strings this is the empty value.
func least(typ string) []byte {
	switch {
	case typ == "boolean":
		return []byte{0}
	case numberSizes[typ] > 0:
		return wireNumber(typ, 0)
	}
	return []byte{}
}

// between returns a value of the CQL type typ that lies about halfway above low and below high. It returns nil if there
// is no such value. A nil high means that there is no upper bound. The result known is false if the order of the type
// is not known.
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

// betweenNumbers returns a number of the CQL type typ about halfway above low and below high, in its wire format. The
// result is nil if there is none. A nil high means that there is no upper bound.
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
	if high == nil { // the last value is possible, too
		middle++
	}
	if middle == first {
		return nil
	}
	return wireNumber(typ, middle)
}

// betweenStrings returns a string of the CQL type typ above low and below high, or nil if there is none. A nil high
// means that there is no upper bound. The function treats a string as a sequence of digits, which are the bytes or, for
// a text, the characters.
func betweenStrings(typ string, low, high []byte) []byte {
	const surrogates, afterSurrogates = 0x800, 0xe000 // surrogates are no characters
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

// betweenDigits returns a sequence of digits that sorts above low and below high, or nil if there is none. Digits are 0
// to base-1. If open is true, there is no upper bound, and high is ignored. Otherwise the result is one of the shortest
// such sequences, the middle one.
func betweenDigits(base int64, low, high []int64, open bool) []int64 {
	// With the shortest sequences, repeated cuts come close to any value in a few steps for each digit. Halves of
	// fractions would not: a value, and the same value with zeros behind it, are equal as fractions.
	//
	// If open is set, dead rows most likely begin like low, since all keys of a prefix were deleted. So the result is
	// the first value that shares low's digits only up to the last but one.
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
	common := 0 // the beginning of both, and so of all digits between them
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
	case len(low) == 0: // high is low and a zero: nothing lies between
		return nil
	}
	return append(append(begin, low[0]), aboveDigits(base, low[1:])...)
}

// aboveDigits returns a sequence of digits, each 0 to base-1, that sorts above the sequence low. The result has as few
// digits as possible.
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
