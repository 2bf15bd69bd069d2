package wire

import "encoding/binary"

// AppendString appends what Shortest.String reads.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Shortest reads a record of which there is exactly one encoding: only the shortest form of a number is accepted.
// After the first thing that does not fit, Bad is set, and nothing is left. It counts, and never changes a pointer:
// that costs more while garbage is collected.
type Shortest struct {
	Of  []byte
	At  int // what is before it has been read
	Bad bool
}

// Rest is what is not read yet.
func (d *Shortest) Rest() []byte { return d.Of[d.At:] }

func (d *Shortest) fail() { d.Bad, d.At = true, len(d.Of) }

// Uint is fast for one byte, as most lengths are.
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

// Bytes reads at most so many bytes, whose number is before them. They share the memory of what is read.
func (d *Shortest) Bytes(most int) []byte {
	n := d.Uint()
	if n > uint64(min(most, len(d.Of)-d.At)) {
		d.fail()
		return nil
	}
	d.At += int(n)                         //nolint:gosec // bounded
	return d.Of[d.At-int(n) : d.At : d.At] //nolint:gosec // bounded
}

// String is Bytes in memory of its own.
func (d *Shortest) String(most int) string { return string(d.Bytes(most)) }
