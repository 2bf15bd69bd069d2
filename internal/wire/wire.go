// Package wire reads and writes sequences of numbers and byte strings, for files and values that have no schema of their
// own. Numbers are varints; a byte string has its length before it.
package wire

import "encoding/binary"

// Encoder appends to B.
type Encoder struct{ B []byte }

// Uint appends an unsigned varint.
func (e *Encoder) Uint(v uint64) { e.B = binary.AppendUvarint(e.B, v) }

// Int appends a signed varint.
func (e *Encoder) Int(v int64) { e.B = binary.AppendVarint(e.B, v) }

// Raw appends bytes whose number the reader knows.
func (e *Encoder) Raw(v ...byte) { e.B = append(e.B, v...) }

// Bytes appends the number of bytes, and the bytes.
func (e *Encoder) Bytes(v []byte) { e.Uint(uint64(len(v))); e.Raw(v...) }

// Decoder reads what an Encoder wrote. After the first thing that does not fit, Bad is set, Rest is empty, and all that
// is read is zero: so callers check once, at the end. It allocates at most in proportion to its input.
type Decoder struct {
	Rest []byte
	Bad  bool
}

func (d *Decoder) fail() { d.Bad, d.Rest = true, nil }

// Uint reads an unsigned varint.
func (d *Decoder) Uint() uint64 { return number(d, binary.Uvarint) }

// Int reads a signed varint.
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

// Raw reads n bytes, n being small and no part of the input. They share its memory.
func (d *Decoder) Raw(n int) []byte {
	if n > len(d.Rest) {
		d.fail()
		return make([]byte, n)
	}
	v := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return v
}

// Bytes reads what Encoder.Bytes wrote, nil for nothing. They share the memory of the input.
func (d *Decoder) Bytes() []byte {
	n := d.Count(1)
	if n == 0 {
		return nil
	}
	return d.Raw(n)
}

// Count reads how many things follow, each of at least so many bytes.
func (d *Decoder) Count(each int) int {
	n := d.Uint()
	if n > uint64(len(d.Rest)/each) {
		d.fail()
		return 0
	}
	return int(n)
}
