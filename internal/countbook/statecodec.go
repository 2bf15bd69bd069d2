package countbook

import "github.com/evenkeel/evenkeel/internal/keysample"

// encodeRate appends the rate r to the encoding.
func encodeRate(e *keysample.Encoder, r *rate) {
	e.Float(r.perS)
	e.Int(r.since)
	e.Int(r.at)
}

// decodeRate returns the next rate in the encoding.
func decodeRate(d *keysample.Decoder) rate { return rate{d.Float(), d.Int(), d.Int()} }

// counts returns pointers to those numbers of the state that are encoded as integers, in the order of the encoding.
func (s *State) counts() []*int64 {
	return []*int64{
		&s.puts, &s.deletes, &s.putBytes, &s.applied, &s.lastPut, &s.deadMs, &s.base.rows, &s.base.bytes, &s.base.markers,
		&s.base.puts, &s.base.deletes, &s.base.fruitless, &s.now.rows, &s.now.distinct, &s.now.there, &s.now.bytes,
		&s.now.spread,
	}
}

// rates returns pointers to the rates of the state, in the order of the encoding.
func (s *State) rates() []*rate {
	return []*rate{&s.putRate, &s.deleteRate, &s.readRate, &s.growth}
}

// Lean reports whether the state of the partition was loaded without its sample of keys (by UnmarshalSummary). Such a
// state is enough for Stats, and for Apply if Needs returns false.
func (s *State) Lean() bool { return s.lean }

// AppendSample appends the encoded sample of keys of the partition to dst, and returns the extended slice. The sample
// and the summary (see AppendSummary) together are the whole state. The error is always nil.
func (s *State) AppendSample(dst []byte) ([]byte, error) {
	e := keysample.NewEncoder(dst, keysample.Form)
	e.Sample(&s.sample)
	return e.B, nil
}

// UnmarshalSample decodes a sample of keys, which AppendSample has encoded, into this state. UnmarshalSummary must have
// been called before. UnmarshalSample fails with Corrupt if data is damaged, and with InvalidArgument if a newer
// program wrote data.
func (s *State) UnmarshalSample(data []byte) error {
	d := keysample.NewDecoder(data)
	if _, err := d.Begin("a sample", keysample.Form); err != nil {
		return err
	}
	sample := d.Sample()
	if err := d.End("a sample"); err != nil {
		return err
	}
	s.sample, s.lean = sample, false
	s.retally()
	return nil
}

// AppendBinary appends the binary encoding of the whole state of a partition's counts, with the sample of keys, to dst,
// and returns the extended slice. The error is always nil.
func (s *State) AppendBinary(dst []byte) ([]byte, error) {
	e := keysample.NewEncoder(dst, keysample.Form)
	encodeSummary(&e, s)
	e.Sample(&s.sample)
	if len(s.asked) > 0 {
		e.B[len(dst)] = keysample.Form3
		encodeAsked(&e, s.asked)
	}
	return e.B, nil
}

// AppendSummary appends the encoded summary of a partition's counts to dst, and returns the extended slice. The summary
// is the whole state except for its sample of keys, in a few hundred bytes. The error is always nil.
func (s *State) AppendSummary(dst []byte) ([]byte, error) {
	e := keysample.NewEncoder(dst, keysample.Form2)
	encodeSummary(&e, s)
	e.Fixed(s.sample.Below)
	e.Int(s.now.then)
	e.Int(s.now.changed)
	e.Int(s.now.fades)
	if len(s.asked) > 0 {
		e.B[len(dst)] = keysample.Form3
		encodeAsked(&e, s.asked)
	}
	return e.B, nil
}

// encodeSummary appends to the encoding the whole state of a partition except its sample of keys.
func encodeSummary(e *keysample.Encoder, s *State) {
	e.Uint(s.generation)
	e.Time(s.base.at)
	for _, n := range s.counts() {
		e.Int(*n)
	}
	e.Float(s.dead)
	e.Float(s.share)
	e.Float(s.shareOf)
	for i := range s.past {
		e.Int(s.past[i].at)
		e.Int(s.past[i].puts)
		e.Int(s.past[i].deletes)
	}
	for _, r := range s.rates() {
		encodeRate(e, r)
	}
	e.Fixed(s.base.from)
	e.Fixed(s.base.to)
	e.Bytes(s.top)
	e.Bool(s.blind)
}

// UnmarshalBinary decodes data, which AppendBinary has encoded, into this state of a partition's counts. It fails with
// Corrupt if data is damaged, and with InvalidArgument if a newer program wrote data.
func (s *State) UnmarshalBinary(data []byte) error {
	d := keysample.NewDecoder(data)
	of, err := d.Begin("a state", keysample.Form3)
	if err != nil {
		return err
	}
	d.Bad = d.Bad || of == keysample.Form2 // form 2 is a summary, without the sample
	decodeSummary(&d, s)
	s.sample = d.Sample()
	if of == keysample.Form3 {
		s.asked = decodeAsked(&d)
	}
	s.lean = false
	s.retally()
	return d.End("a state")
}

// UnmarshalSummary decodes a summary, which AppendSummary has encoded, into this state of a partition's counts.
// Afterwards the state has no sample of keys (see Lean). If the summary has version 1, which lacks some numbers, Needs
// returns true for every Delta. UnmarshalSummary fails with Corrupt if data is damaged, and with InvalidArgument if a
// newer program wrote data.
func (s *State) UnmarshalSummary(data []byte) error {
	d := keysample.NewDecoder(data)
	of, err := d.Begin("a state", keysample.Form3)
	if err != nil {
		return err
	}
	decodeSummary(&d, s)
	if of >= keysample.Form2 {
		s.sample.Below = d.Fixed()
		s.now.then, s.now.changed, s.now.fades = d.Int(), d.Int(), d.Int()
		if of == keysample.Form3 {
			s.asked = decodeAsked(&d)
		}
	} else {
		s.now.fades = 1 // the oldest possible time: each delta needs the sample
	}
	return d.End("a state")
}

// decodeSummary sets s to the state that encodeSummary has encoded. The state has no sample of keys yet (see
// State.Lean).
func decodeSummary(d *keysample.Decoder, s *State) {
	*s = State{generation: d.Uint(), sample: keysample.New(), lean: true}
	s.base.at = d.Time()
	for _, n := range s.counts() {
		*n = d.Int()
	}
	s.dead, s.share, s.shareOf = d.Float(), d.Float(), d.Float()
	for i := range s.past {
		s.past[i] = past{d.Int(), d.Int(), d.Int()}
	}
	for _, r := range s.rates() {
		*r = decodeRate(d)
	}
	s.base.from, s.base.to = d.Fixed(), d.Fixed()
	s.top, s.blind = d.Bytes(), d.Bool()
}
