package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Element is one element of a key, encoded. Its zero value is no element.
type Element struct{ encoded []byte }

// The codes of the types. Those of elements in descending order are their complements, from
// 0x80 on.
const (
	codeBytes  = 0x01
	codeString = 0x02
	codeZero   = 0x14 // integers of n bytes have the codes codeZero ± n
	codeFloat  = 0x21
	codeFalse  = 0x26
	codeTrue   = 0x27
	codeUUID   = 0x30

	descending = 0x80

	// Within strings a zero byte is followed by escaped, at their end by ended. FoundationDB has
	// nothing there: then "a" is a prefix of "a\x00b", and so of keys with another first element.
	escaped = 0xFF
	ended   = 0x01
)

// Of returns a key of these elements in their order: keys compare like their first
// elements, then like their second ones, and so on. It is a prefix of exactly the keys that
// begin with the same elements, and so the Prefix of a query for them.
func Of(elements ...Element) []byte {
	n := 0
	for _, e := range elements {
		n += len(e.encoded)
	}
	key := make([]byte, 0, n)
	for _, e := range elements {
		key = append(key, e.encoded...)
	}
	return key
}

// Desc turns the order of an element around: what is greatest comes first. Desc of Desc is
// the element itself.
func Desc(e Element) Element {
	out := make([]byte, len(e.encoded))
	for i, c := range e.encoded {
		out[i] = ^c
	}
	return Element{out}
}

// String is a text, in the order of its bytes, which need not be UTF-8.
func String(s string) Element { return text(codeString, []byte(s)) }

// Bytes are in bytewise order.
func Bytes(b []byte) Element { return text(codeBytes, b) }

func text(code byte, b []byte) Element {
	out := make([]byte, 0, len(b)+8)
	out = append(out, code)
	for _, c := range b {
		if out = append(out, c); c == 0 {
			out = append(out, escaped)
		}
	}
	return Element{append(out, 0, ended)}
}

// Uint is an integer; it takes as few bytes as it needs, and compares with Int.
func Uint(v uint64) Element {
	n := bytesOf(v)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return Element{append([]byte{codeZero + byte(n)}, b[8-n:]...)}
}

// Int is an integer, negative ones first; it takes as few bytes as it needs.
func Int(v int64) Element {
	if v >= 0 {
		return Uint(uint64(v))
	}
	size := -uint64(v)
	n := bytesOf(size)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], ^size)
	return Element{append([]byte{codeZero - byte(n)}, b[8-n:]...)}
}

// Time is a time in whole microseconds since 1970, as an Int: finer parts are cut off.
// Cassandra has this resolution, too. Times must lie within 290,000 years of 1970.
func Time(t time.Time) Element { return Int(t.UnixMicro()) }

// Float is a number in the order of IEEE 754: -0 comes before 0. NaNs with a sign come
// before all numbers, others behind them.
func Float(v float64) Element {
	u := math.Float64bits(v)
	if u>>63 != 0 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	return Element{binary.BigEndian.AppendUint64([]byte{codeFloat}, u)}
}

// Bool is false or true, in this order.
func Bool(v bool) Element {
	if v {
		return Element{[]byte{codeTrue}}
	}
	return Element{[]byte{codeFalse}}
}

// UUID is in bytewise order, which is that of time for version 7.
func UUID(u [16]byte) Element { return Element{append([]byte{codeUUID}, u[:]...)} }

func bytesOf(v uint64) int { return (bits.Len64(v) + 7) / 8 }

// Reader takes a key apart. Its methods return the next element, ascending or not; after an
// error they return zero values, and End returns that error.
type Reader struct {
	rest []byte
	err  error
}

// Read begins with the first element of the key, which must not change while it is read.
func Read(key []byte) *Reader { return &Reader{rest: key} }

// End returns an error if the next element was missing, damaged or of another type, or if
// elements are left.
func (r *Reader) End() error {
	if r.err == nil && len(r.rest) > 0 {
		return fmt.Errorf("keys: %d more bytes, beginning with 0x%02x", len(r.rest), r.rest[0])
	}
	return r.err
}

// Rest returns what has not been read yet.
func (r *Reader) Rest() []byte { return r.rest }

// String returns the next element, which must be a String.
func (r *Reader) String() string { return string(r.text("a string", codeString)) }

// Bytes returns the next element, which must be Bytes. It shares no memory with the key.
func (r *Reader) Bytes() []byte { return r.text("bytes", codeBytes) }

// Int returns the next element, which must be an Int, or a Uint of at most the greatest int64.
func (r *Reader) Int() int64 {
	negative, size := r.integer()
	switch {
	case negative && size <= 1<<63:
		return -int64(size)
	case !negative && size <= math.MaxInt64:
		return int64(size)
	}
	r.fail("an integer that is out of range")
	return 0
}

// Uint returns the next element, which must be a Uint, or an Int that is not negative.
func (r *Reader) Uint() uint64 {
	negative, size := r.integer()
	if negative {
		r.fail("an integer that is out of range")
		return 0
	}
	return size
}

// Time returns the next element, which must be a Time.
func (r *Reader) Time() time.Time { return time.UnixMicro(r.Int()) }

// Float returns the next element, which must be a Float.
func (r *Reader) Float() float64 {
	var b [8]byte
	if _, ok := r.fixed("a float", b[:], func(code byte) bool { return code == codeFloat }); !ok {
		return 0
	}
	u := binary.BigEndian.Uint64(b[:])
	if u>>63 != 0 {
		return math.Float64frombits(u &^ (1 << 63))
	}
	return math.Float64frombits(^u)
}

// Bool returns the next element, which must be a Bool.
func (r *Reader) Bool() bool {
	code, _ := r.fixed("a boolean", nil, func(code byte) bool { return code == codeFalse || code == codeTrue })
	return code == codeTrue
}

// UUID returns the next element, which must be a UUID.
func (r *Reader) UUID() (u [16]byte) {
	r.fixed("a UUID", u[:], func(code byte) bool { return code == codeUUID })
	return u
}

var errEnds = errors.New("keys: the key ends within an element")

func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("keys: %s", what)
	}
}

// code returns the code of the next element, as if it ascended, and the mask by which its
// bytes differ from that.
func (r *Reader) code() (code, mask byte, ok bool) {
	if r.err != nil {
		return 0, 0, false
	}
	if len(r.rest) == 0 {
		r.err = errors.New("keys: the key has no more elements")
		return 0, 0, false
	}
	if code = r.rest[0]; code >= descending {
		mask = 0xFF
	}
	return code ^ mask, mask, true
}

// fixed reads an element of a code that fits, whose bytes fill b.
func (r *Reader) fixed(what string, b []byte, fits func(code byte) bool) (code byte, ok bool) {
	code, mask, ok := r.code()
	if !ok {
		return 0, false
	}
	if !fits(code) {
		r.fail(fmt.Sprintf("the next element, of code 0x%02x, is not %s", code, what))
		return 0, false
	}
	if len(r.rest) < 1+len(b) {
		r.err = errEnds
		return 0, false
	}
	for i := range b {
		b[i] = r.rest[1+i] ^ mask
	}
	r.rest = r.rest[1+len(b):]
	return code, true
}

// integer reads an integer. Only its shortest form is one: else one integer had several keys.
func (r *Reader) integer() (negative bool, size uint64) {
	code, _, ok := r.code()
	if !ok {
		return negative, 0
	}
	n := int(code) - codeZero
	if negative = n < 0; negative {
		n = -n
	}
	if n > 8 {
		r.fail(fmt.Sprintf("the next element, of code 0x%02x, is not an integer of at most 64 bits", code))
		return negative, 0
	}
	var b [8]byte
	if _, ok := r.fixed("", b[8-n:], func(byte) bool { return true }); !ok {
		return negative, 0
	}
	size = binary.BigEndian.Uint64(b[:])
	if negative {
		size = 1<<(8*n) - 1 - size // for n = 8 the shift gives 0, and 0 - 1 is all bits
	}
	if bytesOf(size) != n {
		r.fail("an integer that is not in its shortest form")
		return negative, 0
	}
	return negative, size
}

func (r *Reader) text(what string, want byte) []byte {
	code, mask, ok := r.code()
	if !ok {
		return nil
	}
	if code != want {
		r.fail(fmt.Sprintf("the next element, of code 0x%02x, is not %s", code, what))
		return nil
	}
	out, b := []byte{}, r.rest[1:]
	for {
		n := bytes.IndexByte(b, mask) // a zero byte
		if n < 0 || n+1 == len(b) {
			r.err = errEnds
			return nil
		}
		for _, c := range b[:n] {
			out = append(out, c^mask)
		}
		after := b[n+1] ^ mask
		b = b[n+2:]
		switch after {
		case escaped:
			out = append(out, 0)
		case ended:
			r.rest = b
			return out
		default:
			r.fail(fmt.Sprintf("0x%02x behind a zero byte", after))
			return nil
		}
	}
}
