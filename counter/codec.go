package counter

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// form, form2 and form3 are the versions of the encoding of counts. The first byte of an encoded value is its version.
// Every version can still be read. An encoded value has
//   - version 3 if it is a batch or a state with sampled requests,
//   - version 2 if it is without sampled requests, and either the summary of a state or a batch with a list Before, and
//   - version 1 otherwise.
const (
	form  = 1
	form2 = 2
	form3 = 3
)

// encoder appends values to a buffer, in a binary encoding that the type decoder reads.
type encoder struct{ wire.Encoder }

func (e *encoder) fixed(v uint64)  { e.B = binary.BigEndian.AppendUint64(e.B, v) }
func (e *encoder) float(v float64) { e.fixed(math.Float64bits(v)) }
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.Int(0)
		return
	}
	e.Int(t.UnixMicro())
}

func (e *encoder) bool(v bool) {
	if v {
		e.Raw(1)
	} else {
		e.Raw(0)
	}
}

type decoder struct{ wire.Decoder }

func (d *decoder) fixed() uint64     { return binary.BigEndian.Uint64(d.Raw(8)) }
func (d *decoder) bool() bool        { return d.Raw(1)[0] != 0 }
func (d *decoder) id() (id [16]byte) { return [16]byte(d.Raw(16)) }

// bytes decodes a byte string and returns a copy, which shares no memory with the decoder's input.
func (d *decoder) bytes() []byte { return slices.Clone(d.Bytes()) }

func (d *decoder) float() float64 {
	v := math.Float64frombits(d.fixed())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.Bad = true
		return 0
	}
	return v
}

func (d *decoder) time() time.Time {
	v := d.Int()
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v)
}

// end returns a Corrupt error if a value could not be decoded, or if input is left after the last value; else nil.
// `what` names the decoded value in the error, e.g. "a batch".
func (d *decoder) end(what string) error {
	if d.Bad || len(d.Rest) > 0 {
		return store.Errorf(store.Corrupt, "%s of a counter is damaged", what)
	}
	return nil
}

// begin reads and returns the first byte of an encoded value, which is the version of the encoding. It fails with
// InvalidArgument if the version is higher than newest, the last version that this program can read. `what` names the
// value in the error, e.g. "a batch".
func (d *decoder) begin(what string, newest byte) (got byte, err error) {
	if got = d.Raw(1)[0]; !d.Bad && (got < form || got > newest) {
		return got, store.Errorf(
			store.InvalidArgument, "%s of a counter has form %d, this program knows up to %d: it was written by a newer one",
			what, got, newest,
		)
	}
	return got, nil
}

func (e *encoder) sample(s *Sample) {
	e.fixed(s.below)
	e.Uint(uint64(s.n))
	for i := range s.slots {
		x := &s.slots[i]
		if x.hash == 0 {
			continue
		}
		e.fixed(x.hash)
		e.Int(int64(x.at))
		e.Uint(uint64(x.bytes))
		e.Raw(byte(x.is))
		e.Bytes(s.keyOf(x))
	}
}

func (d *decoder) sample() Sample {
	s := newSample()
	s.below = d.fixed()
	n := d.Count(12)
	if n > 0 { // make room at once, rather than step by step
		s.slots = make([]slot, slotsFor(min(n, maxSampled)))
	}
	for range n {
		hash, at, bytes := d.fixed(), d.Int(), d.Uint()
		is, key := flags(d.Raw(1)[0]), d.bytes()
		if d.Bad || hash == 0 || hash >= s.below || bytes > math.MaxUint32 {
			d.Bad = true
			break
		}
		s.set(hash, key, store.Timestamp(at), uint32(bytes), is)
	}
	d.Bad = d.Bad || s.n > maxSampled
	return s
}

// AppendBinary appends the binary encoding of the batch of counts to dst, and returns the extended slice. The error is
// always nil.
func (b *Batch) AppendBinary(dst []byte) ([]byte, error) {
	e := encoder{wire.Encoder{B: append(dst, form)}}
	asked := slices.ContainsFunc(b.Deltas, func(d Delta) bool { return len(d.Asked) > 0 })
	switch {
	case asked:
		e.B[len(dst)] = form3
	case len(b.Before) > 0:
		e.B[len(dst)] = form2
	}
	e.Raw(b.Client[:]...)
	e.Uint(b.Seq)
	e.time(b.From)
	e.time(b.At)
	e.Uint(uint64(len(b.Deltas)))
	for i := range b.Deltas {
		d := &b.Deltas[i]
		e.Raw(d.Partition.Bucket[:]...)
		e.Raw(d.Partition.ID[:]...)
		for _, n := range []int64{d.Puts, d.Deletes, d.Markers, d.PutBytes, d.Above, d.Reads} {
			e.Uint(uint64(n))
		}
		e.Bytes(d.Top)
		e.bool(d.Blind)
		e.sample(&d.Sample)
		if asked {
			e.Uint(uint64(len(d.Asked)))
			for _, key := range d.Asked {
				e.Bytes(key)
			}
		}
	}
	if asked || len(b.Before) > 0 {
		e.Uint(uint64(len(b.Before)))
		for _, id := range b.Before {
			e.Raw(id[:]...)
		}
	}
	return e.B, nil
}

// UnmarshalBinary decodes data, which AppendBinary has encoded, into this batch of counts. It fails with Corrupt if
// data is damaged, and with InvalidArgument if a newer program wrote data.
func (b *Batch) UnmarshalBinary(data []byte) error {
	d := decoder{wire.Decoder{Rest: data}}
	of, err := d.begin("a batch", form3)
	if err != nil {
		return err
	}
	*b = Batch{Client: uuid.UUID(d.id()), Seq: d.Uint(), From: d.time(), At: d.time()}
	for range d.Count(48) {
		x := Delta{Partition: store.Partition{Bucket: d.id(), ID: d.id()}}
		for _, n := range []*int64{&x.Puts, &x.Deletes, &x.Markers, &x.PutBytes, &x.Above, &x.Reads} {
			v := d.Uint()
			d.Bad = d.Bad || v > 1<<53
			*n = int64(v)
		}
		x.Top, x.Blind, x.Sample = d.bytes(), d.bool(), d.sample()
		if of == form3 {
			for range d.Count(1) {
				x.Asked = append(x.Asked, d.bytes())
			}
			d.Bad = d.Bad || len(x.Asked) > askedFlush
		}
		if d.Bad {
			break
		}
		b.Deltas = append(b.Deltas, x)
	}
	if of >= form2 {
		for range d.Count(16) {
			b.Before = append(b.Before, d.id())
		}
		d.Bad = d.Bad || of == form2 && len(b.Before) == 0 // a batch without Before has form 1
	}
	return d.end("a batch")
}

func (e *encoder) rate(r *rate) {
	e.float(r.perS)
	e.Int(r.since)
	e.Int(r.at)
}

func (d *decoder) rate() rate { return rate{d.float(), d.Int(), d.Int()} }

func (s *State) counts() []*int64 {
	return []*int64{
		&s.puts, &s.deletes, &s.putBytes, &s.applied, &s.lastPut, &s.deadMs, &s.base.rows, &s.base.bytes, &s.base.markers,
		&s.base.puts, &s.base.deletes, &s.base.fruitless, &s.now.rows, &s.now.distinct, &s.now.there, &s.now.bytes,
		&s.now.spread,
	}
}

func (s *State) rates() []*rate {
	return []*rate{&s.putRate, &s.deleteRate, &s.readRate, &s.growth}
}

// Lean reports whether the counts of the partition were loaded without their sample of keys (by UnmarshalSummary). Such
// counts are enough for Stats, and for Apply if Needs returns false.
func (s *State) Lean() bool { return s.lean }

// AppendSample appends the encoded sample of keys of the partition to dst, and returns the extended slice. The sample
// and the summary (see AppendSummary) together are the whole state. The error is always nil.
func (s *State) AppendSample(dst []byte) ([]byte, error) {
	e := encoder{wire.Encoder{B: append(dst, form)}}
	e.sample(&s.sample)
	return e.B, nil
}

// UnmarshalSample decodes a sample of keys, which AppendSample has encoded, into this state. UnmarshalSummary must have
// been called before. UnmarshalSample fails with Corrupt if data is damaged, and with InvalidArgument if a newer
// program wrote data.
func (s *State) UnmarshalSample(data []byte) error {
	d := decoder{wire.Decoder{Rest: data}}
	if _, err := d.begin("a sample", form); err != nil {
		return err
	}
	sample := d.sample()
	if err := d.end("a sample"); err != nil {
		return err
	}
	s.sample, s.lean = sample, false
	s.retally()
	return nil
}

// AppendBinary appends the binary encoding of the whole state of a partition's counts, with the sample of keys, to dst,
// and returns the extended slice. The error is always nil.
func (s *State) AppendBinary(dst []byte) ([]byte, error) {
	e := encoder{wire.Encoder{B: append(dst, form)}}
	e.summary(s)
	e.sample(&s.sample)
	if len(s.asked) > 0 {
		e.B[len(dst)] = form3
		e.asked(s.asked)
	}
	return e.B, nil
}

// AppendSummary appends the encoded summary of a partition's counts to dst, and returns the extended slice. The summary
// is the whole state except for its sample of keys, in a few hundred bytes. The error is always nil.
func (s *State) AppendSummary(dst []byte) ([]byte, error) {
	e := encoder{wire.Encoder{B: append(dst, form2)}}
	e.summary(s)
	e.fixed(s.sample.below)
	e.Int(s.now.then)
	e.Int(s.now.changed)
	e.Int(s.now.fades)
	if len(s.asked) > 0 {
		e.B[len(dst)] = form3
		e.asked(s.asked)
	}
	return e.B, nil
}

func (e *encoder) summary(s *State) {
	e.Uint(s.generation)
	e.time(s.base.at)
	for _, n := range s.counts() {
		e.Int(*n)
	}
	e.float(s.dead)
	e.float(s.share)
	e.float(s.shareOf)
	for i := range s.past {
		e.Int(s.past[i].at)
		e.Int(s.past[i].puts)
		e.Int(s.past[i].deletes)
	}
	for _, r := range s.rates() {
		e.rate(r)
	}
	e.fixed(s.base.from)
	e.fixed(s.base.to)
	e.Bytes(s.top)
	e.bool(s.blind)
}

// UnmarshalBinary decodes data, which AppendBinary has encoded, into this state of a partition's counts. It fails with
// Corrupt if data is damaged, and with InvalidArgument if a newer program wrote data.
func (s *State) UnmarshalBinary(data []byte) error {
	d := decoder{wire.Decoder{Rest: data}}
	of, err := d.begin("a state", form3)
	if err != nil {
		return err
	}
	d.Bad = d.Bad || of == form2 // form 2 is a summary, without the sample
	d.summary(s)
	s.sample = d.sample()
	if of == form3 {
		s.asked = d.asked()
	}
	s.lean = false
	s.retally()
	return d.end("a state")
}

// UnmarshalSummary decodes a summary, which AppendSummary has encoded, into this state of a partition's counts.
// Afterwards the state has no sample of keys (see Lean). If the summary has version 1, which lacks some numbers, Needs
// returns true for every Delta. UnmarshalSummary fails with Corrupt if data is damaged, and with InvalidArgument if a
// newer program wrote data.
func (s *State) UnmarshalSummary(data []byte) error {
	d := decoder{wire.Decoder{Rest: data}}
	of, err := d.begin("a state", form3)
	if err != nil {
		return err
	}
	d.summary(s)
	if of >= form2 {
		s.sample.below = d.fixed()
		s.now.then, s.now.changed, s.now.fades = d.Int(), d.Int(), d.Int()
		if of == form3 {
			s.asked = d.asked()
		}
	} else {
		s.now.fades = 1 // the oldest possible time: each delta needs the sample
	}
	return d.end("a state")
}

func (d *decoder) summary(s *State) {
	*s = State{generation: d.Uint(), sample: newSample(), lean: true}
	s.base.at = d.time()
	for _, n := range s.counts() {
		*n = d.Int()
	}
	s.dead, s.share, s.shareOf = d.float(), d.float(), d.float()
	for i := range s.past {
		s.past[i] = past{d.Int(), d.Int(), d.Int()}
	}
	for _, r := range s.rates() {
		*r = d.rate()
	}
	s.base.from, s.base.to = d.fixed(), d.fixed()
	s.top, s.blind = d.bytes(), d.bool()
}
