package keysample

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// Form, Form2 and Form3 are the versions of the encoding of counts. The first byte of an encoded value is its version.
// Every version can still be read. An encoded value has
//   - version 3 if it is a batch or a state with sampled requests,
//   - version 2 if it is without sampled requests, and either the summary of a state or a batch with a list Before, and
//   - version 1 otherwise.
const (
	Form  = 1
	Form2 = 2
	Form3 = 3
)

// Encoder appends values to a buffer, in a binary encoding that a Decoder reads.
type Encoder struct{ wire.Encoder }

// NewEncoder returns an Encoder of a value, which appends to dst. The parameter form is the version of the value's
// encoding, which becomes its first byte.
func NewEncoder(dst []byte, form byte) Encoder { return Encoder{wire.Encoder{B: append(dst, form)}} }

// Fixed appends a number of eight bytes.
func (e *Encoder) Fixed(v uint64) { e.B = binary.BigEndian.AppendUint64(e.B, v) }

// Float appends a floating-point number.
func (e *Encoder) Float(v float64) { e.Fixed(math.Float64bits(v)) }

// Time appends a time in microseconds; the zero time is 0.
func (e *Encoder) Time(t time.Time) {
	if t.IsZero() {
		e.Int(0)
		return
	}
	e.Int(t.UnixMicro())
}

// Bool appends a truth value.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Raw(1)
	} else {
		e.Raw(0)
	}
}

// Decoder reads the values that an Encoder has appended. The field Bad is true once a value could not be read. Callers
// check it at the end, by End.
type Decoder struct{ wire.Decoder }

// NewDecoder returns a Decoder of the encoded value data.
func NewDecoder(data []byte) Decoder { return Decoder{wire.Decoder{Rest: data}} }

// Fixed returns the next number of eight bytes.
func (d *Decoder) Fixed() uint64 { return binary.BigEndian.Uint64(d.Raw(8)) }

// Bool returns the next truth value.
func (d *Decoder) Bool() bool { return d.Raw(1)[0] != 0 }

// ID returns the next 16 bytes, an id.
func (d *Decoder) ID() (id [16]byte) { return [16]byte(d.Raw(16)) }

// Bytes returns a copy of the next byte string, which shares no memory with the input of the Decoder.
func (d *Decoder) Bytes() []byte { return slices.Clone(d.Decoder.Bytes()) }

// Float returns the next floating-point number. NaN and infinity are damage.
func (d *Decoder) Float() float64 {
	v := math.Float64frombits(d.Fixed())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.Bad = true
		return 0
	}
	return v
}

// Time returns the next time, which is in microseconds. The number 0 stands for the zero time.
func (d *Decoder) Time() time.Time {
	v := d.Int()
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v)
}

// End returns a Corrupt error if a value could not be decoded, or if input is left after the last value; else nil.
// `what` names the decoded value in the error, e.g. "a batch".
func (d *Decoder) End(what string) error {
	if d.Bad || len(d.Rest) > 0 {
		return store.Errorf(store.Corrupt, "%s of a counter is damaged", what)
	}
	return nil
}

// Begin reads and returns the first byte of an encoded value, which is the version of the encoding. It fails with
// InvalidArgument if the version is higher than newest, the last version that this program can read. `what` names the
// value in the error, e.g. "a batch".
func (d *Decoder) Begin(what string, newest byte) (got byte, err error) {
	if got = d.Raw(1)[0]; !d.Bad && (got < Form || got > newest) {
		return got, store.Errorf(
			store.InvalidArgument, "%s of a counter has form %d, this program knows up to %d: it was written by a newer one",
			what, got, newest,
		)
	}
	return got, nil
}

// Sample appends a sample of keys.
func (e *Encoder) Sample(s *Sample) {
	e.Fixed(s.Below)
	e.Uint(uint64(s.N))
	for i := range s.Slots {
		x := &s.Slots[i]
		if x.Hash == 0 {
			continue
		}
		e.Fixed(x.Hash)
		e.Int(int64(x.At))
		e.Uint(uint64(x.Bytes))
		e.Raw(byte(x.Is))
		e.Bytes(s.KeyOf(x))
	}
}

// Sample returns the next sample of keys.
func (d *Decoder) Sample() Sample {
	s := New()
	s.Below = d.Fixed()
	n := d.Count(12)
	if n > 0 { // make room at once, rather than step by step
		s.Slots = make([]Slot, slotsFor(min(n, MaxSampled)))
	}
	for range n {
		hash, at, bytes := d.Fixed(), d.Int(), d.Uint()
		is, key := Flags(d.Raw(1)[0]), d.Bytes()
		if d.Bad || hash == 0 || hash >= s.Below || bytes > math.MaxUint32 {
			d.Bad = true
			break
		}
		s.Set(hash, key, store.Timestamp(at), uint32(bytes), is)
	}
	d.Bad = d.Bad || s.N > MaxSampled
	return s
}

// These are limits on which clients and backends agree.
const (
	// MaxTop is the number of bytes that are stored of the highest key of a partition. The rest of a longer key is
	// dropped.
	MaxTop = 1024
	// ManyMissing is the number of missing batches of one client above which the counts of no partition are trusted
	// (Known) any more. So large a gap means that the backend has lost minutes of writes, as after the restore of an
	// old backup.
	ManyMissing = 100
)
