package counter

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// form is the version of everything that is encoded here, but for summaries, and batches that
// name those before them: these have form 2, and are read in both. Batches, states and summaries
// with sampled requests have form 3.
const (
	form  = 1
	form2 = 2
	form3 = 3
)

// encoder appends; numbers are varints, byte strings have their length before
// them.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) fixed(v uint64)  { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) float(v float64) { e.fixed(math.Float64bits(v)) }
func (e *encoder) raw(v []byte)    { e.b = append(e.b, v...) }
func (e *encoder) bytes(v []byte)  { e.uint(uint64(len(v))); e.raw(v) }
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.int(0)
		return
	}
	e.int(t.UnixMicro())
}

func (e *encoder) bool(v bool) {
	if v {
		e.raw([]byte{1})
	} else {
		e.raw([]byte{0})
	}
}

// decoder reads what encoder wrote. After the first thing that does not fit it
// only returns zeros, and bad says so.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) raw(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, max(0, min(n, 16)))
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) fixed() uint64 { return binary.BigEndian.Uint64(d.raw(8)) }
func (d *decoder) bool() bool    { return d.raw(1)[0] != 0 }

func (d *decoder) float() float64 {
	v := math.Float64frombits(d.fixed())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.bad = true
		return 0
	}
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	if n == 0 {
		return nil
	}
	return slices.Clone(d.raw(int(n)))
}

func (d *decoder) time() time.Time {
	v := d.int()
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v)
}

// count reads how many things follow, each of at least so many bytes.
func (d *decoder) count(each int) int {
	n := d.uint()
	if n > uint64(len(d.b)/each) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) id() (id [16]byte) {
	copy(id[:], d.raw(16))
	return id
}

// end says whether all was well and nothing is left.
func (d *decoder) end(what string) error {
	if d.bad || len(d.b) > 0 {
		return store.Errorf(store.Corrupt, "%s of a counter is damaged", what)
	}
	return nil
}

// begin reads the form, of which newest is the last one that is known.
func (d *decoder) begin(what string, newest byte) (got byte, err error) {
	if got = d.raw(1)[0]; !d.bad && (got < form || got > newest) {
		return got, store.Errorf(
			store.InvalidArgument, "%s of a counter has form %d, this program knows up to %d: it was written by a newer one",
			what, got, newest,
		)
	}
	return got, nil
}

func (e *encoder) sample(s *Sample) {
	e.fixed(s.below)
	e.uint(uint64(s.n))
	for i := range s.slots {
		x := &s.slots[i]
		if x.hash == 0 {
			continue
		}
		e.fixed(x.hash)
		e.int(int64(x.at))
		e.uint(uint64(x.bytes))
		e.raw([]byte{byte(x.is)})
		e.bytes(s.keyOf(x))
	}
}

func (d *decoder) sample() Sample {
	s := newSample()
	s.below = d.fixed()
	n := d.count(12)
	if n > 0 { // it does not grow step by step
		s.slots = make([]slot, slotsFor(min(n, maxSampled)))
	}
	for range n {
		hash, at, bytes := d.fixed(), d.int(), d.uint()
		is, key := flags(d.raw(1)[0]), d.bytes()
		if d.bad || hash == 0 || hash >= s.below || bytes > math.MaxUint32 {
			d.bad = true
			break
		}
		s.set(hash, key, store.Timestamp(at), uint32(bytes), is)
	}
	d.bad = d.bad || s.n > maxSampled
	return s
}

// AppendBinary appends the batch's encoding.
func (b *Batch) AppendBinary(dst []byte) ([]byte, error) {
	e := encoder{append(dst, form)}
	asked := slices.ContainsFunc(b.Deltas, func(d Delta) bool { return len(d.Asked) > 0 })
	switch {
	case asked:
		e.b[len(dst)] = form3
	case len(b.Before) > 0:
		e.b[len(dst)] = form2
	}
	e.raw(b.Client[:])
	e.uint(b.Seq)
	e.time(b.From)
	e.time(b.At)
	e.uint(uint64(len(b.Deltas)))
	for i := range b.Deltas {
		d := &b.Deltas[i]
		e.raw(d.Partition.Bucket[:])
		e.raw(d.Partition.ID[:])
		for _, n := range []int64{d.Puts, d.Deletes, d.Markers, d.PutBytes, d.Above, d.Reads} {
			e.uint(uint64(n))
		}
		e.bytes(d.Top)
		e.bool(d.Blind)
		e.sample(&d.Sample)
		if asked {
			e.uint(uint64(len(d.Asked)))
			for _, key := range d.Asked {
				e.bytes(key)
			}
		}
	}
	if asked || len(b.Before) > 0 {
		e.uint(uint64(len(b.Before)))
		for _, id := range b.Before {
			e.raw(id[:])
		}
	}
	return e.b, nil
}

// UnmarshalBinary is the reverse of AppendBinary. It fails with Corrupt, or with
// InvalidArgument for a newer form.
func (b *Batch) UnmarshalBinary(data []byte) error {
	d := decoder{b: data}
	of, err := d.begin("a batch", form3)
	if err != nil {
		return err
	}
	*b = Batch{Client: uuid.UUID(d.id()), Seq: d.uint(), From: d.time(), At: d.time()}
	for range d.count(48) {
		x := Delta{Partition: store.Partition{Bucket: d.id(), ID: d.id()}}
		for _, n := range []*int64{&x.Puts, &x.Deletes, &x.Markers, &x.PutBytes, &x.Above, &x.Reads} {
			v := d.uint()
			d.bad = d.bad || v > 1<<53
			*n = int64(v)
		}
		x.Top, x.Blind, x.Sample = d.bytes(), d.bool(), d.sample()
		if of == form3 {
			for range d.count(1) {
				x.Asked = append(x.Asked, d.bytes())
			}
			d.bad = d.bad || len(x.Asked) > askedFlush
		}
		if d.bad {
			break
		}
		b.Deltas = append(b.Deltas, x)
	}
	if of >= form2 {
		for range d.count(16) {
			b.Before = append(b.Before, d.id())
		}
		d.bad = d.bad || of == form2 && len(b.Before) == 0 // that would have form 1
	}
	return d.end("a batch")
}

func (e *encoder) rate(r *rate) {
	e.float(r.perS)
	e.int(r.since)
	e.int(r.at)
}

func (d *decoder) rate() rate { return rate{d.float(), d.int(), d.int()} }

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

// Lean reports whether the state has no sample, as after UnmarshalSummary: that is enough for
// Stats, and for deltas that do not need it.
func (s *State) Lean() bool { return s.lean }

// AppendSample appends the encoding of the state's sample alone: with the summary
// it is all of the state.
func (s *State) AppendSample(dst []byte) ([]byte, error) {
	e := encoder{append(dst, form)}
	e.sample(&s.sample)
	return e.b, nil
}

// UnmarshalSample is the reverse of AppendSample, for a state whose summary is
// there. It fails like UnmarshalBinary.
func (s *State) UnmarshalSample(data []byte) error {
	d := decoder{b: data}
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

// AppendBinary appends the state's encoding.
func (s *State) AppendBinary(dst []byte) ([]byte, error) {
	e := encoder{append(dst, form)}
	e.summary(s)
	e.sample(&s.sample)
	if len(s.asked) > 0 {
		e.b[len(dst)] = form3
		e.asked(s.asked)
	}
	return e.b, nil
}

// AppendSummary appends an encoding without the sample, a few hundred bytes.
func (s *State) AppendSummary(dst []byte) ([]byte, error) {
	e := encoder{append(dst, form2)}
	e.summary(s)
	e.fixed(s.sample.below)
	e.int(s.now.then)
	e.int(s.now.changed)
	e.int(s.now.fades)
	if len(s.asked) > 0 {
		e.b[len(dst)] = form3
		e.asked(s.asked)
	}
	return e.b, nil
}

func (e *encoder) summary(s *State) {
	e.uint(s.generation)
	e.time(s.base.at)
	for _, n := range s.counts() {
		e.int(*n)
	}
	e.float(s.dead)
	e.float(s.share)
	e.float(s.shareOf)
	for i := range s.past {
		e.int(s.past[i].at)
		e.int(s.past[i].puts)
		e.int(s.past[i].deletes)
	}
	for _, r := range s.rates() {
		e.rate(r)
	}
	e.fixed(s.base.from)
	e.fixed(s.base.to)
	e.bytes(s.top)
	e.bool(s.blind)
}

// UnmarshalBinary is the reverse of AppendBinary. It fails with Corrupt, or with
// InvalidArgument for a newer form.
func (s *State) UnmarshalBinary(data []byte) error {
	d := decoder{b: data}
	of, err := d.begin("a state", form3)
	if err != nil {
		return err
	}
	d.bad = d.bad || of == form2 // that is a summary
	d.summary(s)
	s.sample = d.sample()
	if of == form3 {
		s.asked = d.asked()
	}
	s.lean = false
	s.retally()
	return d.end("a state")
}

// UnmarshalSummary is the reverse of AppendSummary, and fails like UnmarshalBinary. The state
// is Lean. One of form 1 needs its sample for every delta.
func (s *State) UnmarshalSummary(data []byte) error {
	d := decoder{b: data}
	of, err := d.begin("a state", form3)
	if err != nil {
		return err
	}
	d.summary(s)
	if of >= form2 {
		s.sample.below = d.fixed()
		s.now.then, s.now.changed, s.now.fades = d.int(), d.int(), d.int()
		if of == form3 {
			s.asked = d.asked()
		}
	} else {
		s.now.fades = 1 // since 1970
	}
	return d.end("a state")
}

func (d *decoder) summary(s *State) {
	*s = State{generation: d.uint(), sample: newSample(), lean: true}
	s.base.at = d.time()
	for _, n := range s.counts() {
		*n = d.int()
	}
	s.dead, s.share, s.shareOf = d.float(), d.float(), d.float()
	for i := range s.past {
		s.past[i] = past{d.int(), d.int(), d.int()}
	}
	for _, r := range s.rates() {
		*r = d.rate()
	}
	s.base.from, s.base.to = d.fixed(), d.fixed()
	s.top, s.blind = d.bytes(), d.bool()
}
