package counter

import (
	"slices"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// AppendBinary appends the binary encoding of the batch of counts to dst, and returns the extended slice. The error is
// always nil.
func (b *Batch) AppendBinary(dst []byte) ([]byte, error) {
	e := keysample.NewEncoder(dst, keysample.Form)
	asked := slices.ContainsFunc(b.Deltas, func(d Delta) bool { return len(d.Asked) > 0 })
	switch {
	case asked:
		e.B[len(dst)] = keysample.Form3
	case len(b.Before) > 0:
		e.B[len(dst)] = keysample.Form2
	}
	e.Raw(b.Client[:]...)
	e.Uint(b.Seq)
	e.Time(b.From)
	e.Time(b.At)
	e.Uint(uint64(len(b.Deltas)))
	for i := range b.Deltas {
		d := &b.Deltas[i]
		e.Raw(d.Partition.Bucket[:]...)
		e.Raw(d.Partition.ID[:]...)
		for _, n := range []int64{d.Puts, d.Deletes, d.Markers, d.PutBytes, d.Above, d.Reads} {
			e.Uint(uint64(n))
		}
		e.Bytes(d.Top)
		e.Bool(d.Blind)
		e.Sample(&d.Sample.keys)
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
	d := keysample.NewDecoder(data)
	of, err := d.Begin("a batch", keysample.Form3)
	if err != nil {
		return err
	}
	*b = Batch{Client: uuid.UUID(d.ID()), Seq: d.Uint(), From: d.Time(), At: d.Time()}
	for range d.Count(48) {
		x := Delta{Partition: store.Partition{Bucket: d.ID(), ID: d.ID()}}
		for _, n := range []*int64{&x.Puts, &x.Deletes, &x.Markers, &x.PutBytes, &x.Above, &x.Reads} {
			v := d.Uint()
			d.Bad = d.Bad || v > 1<<53
			*n = int64(v)
		}
		x.Top, x.Blind, x.Sample.keys = d.Bytes(), d.Bool(), d.Sample()
		if of == keysample.Form3 {
			for range d.Count(1) {
				x.Asked = append(x.Asked, d.Bytes())
			}
			d.Bad = d.Bad || len(x.Asked) > askedFlush
		}
		if d.Bad {
			break
		}
		b.Deltas = append(b.Deltas, x)
	}
	if of >= keysample.Form2 {
		for range d.Count(16) {
			b.Before = append(b.Before, d.ID())
		}
		d.Bad = d.Bad || of == keysample.Form2 && len(b.Before) == 0 // a batch without Before has form 1
	}
	return d.End("a batch")
}
