// Package wire encodes and decodes sequences of numbers and byte strings, for files and values without a schema of
// their own. A number is a varint. A byte string is its length, a varint, and its bytes.
package wire

import "encoding/binary"

// Encoder appends encoded numbers and byte strings to its field B. A Decoder reads the values back in the same order.
type Encoder struct{ B []byte }

// Uint appends the number v as an unsigned varint, which takes 1 to 10 bytes.
func (e *Encoder) Uint(v uint64) { e.B = binary.AppendUvarint(e.B, v) }

// Int appends the number v as a signed varint, which takes 1 to 10 bytes.
func (e *Encoder) Int(v int64) { e.B = binary.AppendVarint(e.B, v) }

// Raw appends the bytes v without their length. The reader of the bytes must know how many they are.
func (e *Encoder) Raw(v ...byte) { e.B = append(e.B, v...) }

// Bytes appends a byte string: the length of v as a varint, and then the bytes of v.
func (e *Encoder) Bytes(v []byte) { e.Uint(uint64(len(v))); e.Raw(v...) }

// Decoder reads numbers and byte strings that an Encoder wrote. Rest is the input that has not been read yet. After the
// first error Bad is set, and every further value is zero. So a caller checks Bad once, at the end. A Decoder allocates
// memory at most in proportion to its input, even if the input is damaged.
type Decoder struct {
	Rest []byte
	Bad  bool
}

func (d *Decoder) fail() { d.Bad, d.Rest = true, nil }

// Uint reads an unsigned number that Encoder.Uint wrote. After an error it sets Bad and returns 0.
func (d *Decoder) Uint() uint64 { return number(d, binary.Uvarint) }

// Int reads a signed number that Encoder.Int wrote. After an error it sets Bad and returns 0.
func (d *Decoder) Int() int64 { return number(d, binary.Varint) }

func number[T uint64 | int64](d *Decoder, read func([]byte) (T, int)) T {
	v, n := read(d.Rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Raw reads n bytes, which share the memory of the input. If fewer than n bytes are left, Raw sets Bad and returns n
// newly allocated zero bytes. So n must be small, and must not be a number from the input.
func (d *Decoder) Raw(n int) []byte {
	if n > len(d.Rest) {
		d.fail()
		return make([]byte, n)
	}
	v := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return v
}

// Bytes reads a byte string that Encoder.Bytes wrote. The result shares the memory of the input. It is nil if the byte
// string is empty, and after an error.
func (d *Decoder) Bytes() []byte {
	n := d.Count(1)
	if n == 0 {
		return nil
	}
	return d.Raw(n)
}

// Count reads the number of items that follow in the input, such as the elements of a list. Each item takes at least
// `each` bytes. If the rest of the input is too short for that many items, Count sets Bad and returns 0. So a caller
// may allocate memory for the items.
func (d *Decoder) Count(each int) int {
	n := d.Uint()
	if n > uint64(len(d.Rest)/each) {
		d.fail()
		return 0
	}
	return int(n)
}
