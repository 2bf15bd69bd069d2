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

// Element is one encoded element of a key, such as a string or a number. The function Of puts elements together to a
// key. The zero Element adds nothing to a key.
type Element struct{ encoded []byte }

// The first byte of an encoded element of a key is the code of its type, such as a string. All bytes of a descending
// element, where greater values come first, are inverted. So the code of a descending element is 0x80 or more.
const (
	codeBytes  = 0x01
	codeString = 0x02
	codeZero   = 0x14 // integers of n bytes have the codes codeZero ± n
	codeFloat  = 0x21
	codeFalse  = 0x26
	codeTrue   = 0x27
	codeUUID   = 0x30

	descending = 0x80

	// Within a string, each zero byte is followed by the byte escaped. The end of a string is a zero byte followed by
	// the byte ended. FoundationDB has no ended byte: there, the key of "a" is a prefix of the key of "a\x00b", and so
	// of keys with another first element.
	escaped = 0xFF
	ended   = 0x01
)

// Of returns the key that consists of the given elements, in their order. Keys are ordered by their first elements,
// then by their second elements, and so on. The key of the first elements is a prefix of all keys that begin with these
// elements, and of no others. For example, Of(String("alice")) as Query.Prefix lists all keys of alice.
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

// Desc returns the element e in descending order, so that keys with greater values come first, such as the newest time.
// Desc of a descending element is the ascending element again.
func Desc(e Element) Element {
	out := make([]byte, len(e.encoded))
	for i, c := range e.encoded {
		out[i] = ^c
	}
	return Element{out}
}

// String returns the text s as an element of a key. Texts are ordered by their bytes, which need not be UTF-8.
func String(s string) Element { return text(codeString, []byte(s)) }

// Bytes returns the byte string b as an element of a key. Byte strings are ordered bytewise.
func Bytes(b []byte) Element { return text(codeBytes, b) }

// text returns the bytes b as an element of a key. The code is codeString for the element of a String, or codeBytes for
// Bytes.
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

// Uint returns the unsigned integer v as an element of a key. The element takes a byte for its type and as few bytes as
// the integer needs. Elements of Uint and of Int are ordered together, by their numbers.
func Uint(v uint64) Element {
	n := bytesOf(v)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return Element{append([]byte{codeZero + byte(n)}, b[8-n:]...)}
}

// Int returns the integer v as an element of a key. Negative integers come first. The element takes a byte for its type
// and as few bytes as the integer needs.
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

// Time returns the time t as an element of a key: an Int of whole microseconds since 1970, as in Cassandra. Fractions
// of a microsecond are cut off. Times must lie within 290,000 years of 1970.
func Time(t time.Time) Element { return Int(t.UnixMicro()) }

// Float returns the floating-point number v as an element of a key, in the order of IEEE 754: -0 comes before 0. A NaN
// with its sign bit set comes before all numbers, any other NaN behind all numbers.
func Float(v float64) Element {
	u := math.Float64bits(v)
	if u>>63 != 0 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	return Element{binary.BigEndian.AppendUint64([]byte{codeFloat}, u)}
}

// Bool returns the truth value v as an element of a key: false comes before true.
func Bool(v bool) Element {
	if v {
		return Element{[]byte{codeTrue}}
	}
	return Element{[]byte{codeFalse}}
}

// UUID returns the UUID u as an element of a key. UUIDs are ordered bytewise; for UUIDs of version 7 this is the order
// of their times.
func UUID(u [16]byte) Element { return Element{append([]byte{codeUUID}, u[:]...)} }

// bytesOf returns the number of bytes, from 0 to 8, that the integer v needs in a key. The integer 0 needs 0 bytes.
func bytesOf(v uint64) int { return (bits.Len64(v) + 7) / 8 }

// Reader reads the elements of a key that Of has made. Each of its methods that is named for a type, such as Int,
// returns the next element of the key, whether the element is ascending or descending. After an error these methods
// return zero values, and the method End returns the error.
type Reader struct {
	rest []byte
	err  error
}

// Read returns a Reader that stands before the first element of the key. The key must not change while the Reader is in
// use.
func Read(key []byte) *Reader { return &Reader{rest: key} }

// End returns nil if all elements of the key were read without an error. Otherwise it returns an error: an element was
// missing, damaged or of another type, or elements are left. So a caller checks for errors once, at the end of the key.
func (r *Reader) End() error {
	if r.err == nil && len(r.rest) > 0 {
		return fmt.Errorf("keys: %d more bytes, beginning with 0x%02x", len(r.rest), r.rest[0])
	}
	return r.err
}

// Rest returns the bytes of the key that have not been read yet. They share the memory of the key.
func (r *Reader) Rest() []byte { return r.rest }

// String returns the next element of the key, which the function String must have made. After an error it returns "".
func (r *Reader) String() string { return string(r.text("a string", codeString)) }

// Bytes returns the next element of the key, which the function Bytes must have made. The result shares no memory with
// the key. After an error it is nil.
func (r *Reader) Bytes() []byte { return r.text("bytes", codeBytes) }

// Int returns the next element of the key. The function Int must have made the element, or Uint from a number of at
// most math.MaxInt64. After an error the result is 0.
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

// Uint returns the next element of the key. The function Uint must have made the element, or Int from a number that is
// not negative. After an error the result is 0.
func (r *Reader) Uint() uint64 {
	negative, size := r.integer()
	if negative {
		r.fail("an integer that is out of range")
		return 0
	}
	return size
}

// Time returns the next element of the key, which the function Time must have made. After an error it returns the
// beginning of 1970.
func (r *Reader) Time() time.Time { return time.UnixMicro(r.Int()) }

// Float returns the next element of the key, which the function Float must have made. After an error it returns 0.
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

// Bool returns the next element of the key, which the function Bool must have made. After an error it returns false.
func (r *Reader) Bool() bool {
	code, _ := r.fixed("a boolean", nil, func(code byte) bool { return code == codeFalse || code == codeTrue })
	return code == codeTrue
}

// UUID returns the next element of the key, which the function UUID must have made. After an error the result is all
// zero bytes.
func (r *Reader) UUID() (u [16]byte) {
	r.fixed("a UUID", u[:], func(code byte) bool { return code == codeUUID })
	return u
}

// errEnds is the error of a Reader whose key ends in the middle of an element.
var errEnds = errors.New("keys: the key ends within an element")

// fail records an error of the Reader, if the Reader has recorded no error before. The parameter what is a text that
// describes the fault.
func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("keys: %s", what)
	}
}

// code returns the first byte of the next element of a key, which tells the type of the element. It does not read past
// that byte. The results are
//   - code: the byte as it is in an ascending element;
//   - mask: 0xFF if the element is descending, so that all its bytes are inverted, else 0. The exclusive or of mask and
//     a byte of the element is the byte of an ascending element;
//   - ok: false if no element is left, or after an error.
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

// fixed reads the next element of a key into b; the element must have as many bytes as b. The result code is the type
// of the element. fixed fails if the function fits returns false for that code. The parameter what names the wanted
// type in the text of the error, such as "a float".
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

// integer reads the next element of the key, an integer, and returns its sign and its absolute value (size). It refuses
// an integer that is encoded in more bytes than needed, so that each integer has only one key. After an error size is
// 0.
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

// text returns the bytes of the next element of the key, a String or Bytes, in new memory. After an error it returns
// nil. The parameter want is the code that the element must have: codeString or codeBytes. The parameter what names the
// wanted type in the text of the error.
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
