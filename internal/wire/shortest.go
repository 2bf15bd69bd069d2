package wire

import "encoding/binary"

// AppendString appends the length of the string s as a varint, and then the bytes of s, to b. The method String of
// Shortest reads this form.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Shortest reads numbers and byte strings from the record Of. At is the index of the next byte to read. A number that
// is not in its shortest form is an error, so that a record has exactly one encoding. After the first error Bad is set,
// and nothing is left to read.
type Shortest struct {
	Of  []byte
	At  int // the bytes before it have been read
	Bad bool
}

// Rest returns the bytes of the record that have not been read yet. They share the memory of the record.
func (d *Shortest) Rest() []byte { return d.Of[d.At:] }

func (d *Shortest) fail() { d.Bad, d.At = true, len(d.Of) }

// Uint reads a number, an unsigned varint. After an error it returns 0. It is fast for numbers of one byte, as most
// lengths are.
func (d *Shortest) Uint() uint64 {
	if d.At < len(d.Of) && d.Of[d.At] < 0x80 {
		d.At++
		return uint64(d.Of[d.At-1])
	}
	return d.longUint()
}

func (d *Shortest) longUint() uint64 {
	v, n := binary.Uvarint(d.Rest())
	// The last byte of a shortest encoding is not zero.
	if n <= 0 || n > 1 && d.Of[d.At+n-1] == 0 {
		d.fail()
		return 0
	}
	d.At += n
	return v
}

// Bytes reads a byte string: its length, and then its bytes. A length greater than most is an error, after which Bytes
// returns nil. The result shares the memory of the record.
func (d *Shortest) Bytes(most int) []byte {
	n := d.Uint()
	if n > uint64(min(most, len(d.Of)-d.At)) {
		d.fail()
		return nil
	}
	d.At += int(n)                         //nolint:gosec // bounded
	return d.Of[d.At-int(n) : d.At : d.At] //nolint:gosec // bounded
}

// String reads a string: its length, and then its bytes. A length greater than most is an error, after which String
// returns "".
func (d *Shortest) String(most int) string { return string(d.Bytes(most)) }
