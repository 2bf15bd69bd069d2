package countbook

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// someState has every field set, some of them to negative numbers.
func someState() *State {
	s := NewState()
	s.generation, s.blind, s.top = 3, true, []byte("top")
	for i, n := range s.counts() {
		*n = int64(100 - 17*i)
	}
	for i, r := range s.rates() {
		*r = rate{perS: 1.5 - float64(i), since: int64(i) - 1, at: int64(i)}
	}
	s.base.at, s.base.from, s.base.to = time.UnixMicro(1_700_000_000_000_001), 5, 6
	s.dead, s.share, s.shareOf = 1.25, 0.5, 64
	for i := range s.past {
		s.past[i] = past{int64(i), int64(2 * i), int64(3 * i)}
	}
	s.sample.Lower(1 << 60)
	s.sample.Set(77, []byte("key"), -5, 12, keysample.Present|keysample.Counted)
	s.sample.Set(78, nil, 9, math.MaxUint32, keysample.Written)
	s.retally()
	return s
}

func someBatch() *counter.Batch {
	d := counter.Delta{
		Partition: store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{2}}, Puts: 1 << 53, Deletes: 2,
		Markers: 3, PutBytes: 4, Above: 5, Reads: 6, Top: []byte("top"), Blind: true,
		Sample: sampleOf(someState().sample),
	}
	of := store.Partition{Bucket: store.BucketID{3}, ID: store.PartitionID{4}}
	other := counter.Delta{Partition: of, Sample: noKeys()}
	return &counter.Batch{
		Client: uuid.UUID{7}, Seq: 300, At: time.UnixMicro(1_700_000_000_000_001), Deltas: []counter.Delta{d, other},
	}
}

func namingBatch() *counter.Batch {
	b := someBatch()
	b.Before = []store.PartitionID{{5}, {6}}
	return b
}

// askedState and askedBatch have sampled requests.
func askedState() *State {
	s := someState()
	s.asked = []asked{{counter.Asked{Key: []byte("key"), At: 5}, -1.5}, {counter.Asked{At: 7}, 2}}
	return s
}

func askedBatch() *counter.Batch {
	b := namingBatch()
	b.Deltas[1].Asked = [][]byte{[]byte("key"), nil}
	return b
}

func someBook() *Book {
	b := NewBook()
	b.Generation = 9
	b.clients[uuid.UUID{1}] = client{seq: 300, at: time.UnixMicro(1_700_000_000_000_001)}
	return b
}

func must(b []byte, _ error) []byte { return b }

// forms are all encodings: what they are called, one of each, and who reads it. What it
// reads is what was written.
func forms(t *testing.T) map[string]struct {
	data []byte
	read func(data []byte) error
} {
	return map[string]struct {
		data []byte
		read func(data []byte) error
	}{
		"a batch": {must(someBatch().AppendBinary(nil)), func(data []byte) error {
			var b counter.Batch
			err := b.UnmarshalBinary(data)
			if err == nil {
				want := someBatch()
				require.True(t, b.From.IsZero())
				require.Equal(t, must(want.AppendBinary(nil)), must(b.AppendBinary(nil)))
				require.Equal(t, want.At, b.At)
				want.Deltas[0].Sample, b.Deltas[0].Sample = counter.Sample{}, counter.Sample{}
				require.Equal(t, want.Deltas[0], b.Deltas[0])
				require.Equal(t, want.Seq, b.Seq)
				require.Equal(t, want.Client, b.Client)
			}
			return err
		}},
		"a batch that names the one before it": {must(namingBatch().AppendBinary(nil)), func(data []byte) error {
			var b counter.Batch
			err := b.UnmarshalBinary(data)
			if err == nil {
				require.Equal(t, namingBatch().Before, b.Before)
				require.Equal(t, data, must(b.AppendBinary(nil)))
			}
			return err
		}},
		"a batch with requests": {must(askedBatch().AppendBinary(nil)), func(data []byte) error {
			var b counter.Batch
			err := b.UnmarshalBinary(data)
			if err == nil {
				require.Equal(t, askedBatch().Deltas[1].Asked, b.Deltas[1].Asked)
				require.Equal(t, data, must(b.AppendBinary(nil)))
			}
			return err
		}},
		"a state with requests": {must(askedState().AppendBinary(nil)), func(data []byte) error {
			var s State
			err := s.UnmarshalBinary(data)
			if err == nil {
				require.Equal(t, askedState(), &s)
			}
			return err
		}},
		"a state with requests, its summary": {must(askedState().AppendSummary(nil)), func(data []byte) error {
			var s State
			err := s.UnmarshalSummary(data)
			if err == nil {
				want := askedState()
				want.lean, want.sample = true, keysample.Sample{Below: want.sample.Below}
				require.Equal(t, want, &s)
			}
			return err
		}},
		"a state": {must(someState().AppendBinary(nil)), func(data []byte) error {
			var s State
			err := s.UnmarshalBinary(data)
			if err == nil {
				require.Equal(t, someState(), &s)
			}
			return err
		}},
		"a state, its summary": {must(someState().AppendSummary(nil)), func(data []byte) error {
			var s State
			err := s.UnmarshalSummary(data)
			if err == nil {
				want := someState()
				want.lean, want.sample = true, keysample.Sample{Below: want.sample.Below}
				require.Equal(t, want, &s)
			}
			return err
		}},
		"a sample": {must(someState().AppendSample(nil)), func(data []byte) error {
			var s State
			err := s.UnmarshalSample(data)
			if err == nil {
				require.Equal(t, someState().sample, s.sample)
			}
			return err
		}},
		"the head": {must(someBook().AppendHead(nil)), func(data []byte) error {
			b, err := OpenBook(data)
			if err == nil {
				require.Equal(t, someBook(), b)
			}
			return err
		}},
	}
}

// TestFormsAreReadToTheByte: nothing less, nothing more, and no newer form.
func TestFormsAreReadToTheByte(t *testing.T) {
	for name, f := range forms(t) {
		require.NoError(t, f.read(f.data), name)
		for n := range f.data {
			err := f.read(f.data[:n])
			require.ErrorIs(t, err, store.Corrupt, "%s cut off after %d bytes", name, n)
			require.ErrorContains(t, err, "of a counter is damaged", name)
		}
		require.ErrorIs(t, f.read(append(slices.Clone(f.data), 0)), store.Corrupt, name)
		newest := byte(keysample.Form)
		if strings.HasPrefix(name, "a batch") || strings.HasPrefix(name, "a state") {
			newest = keysample.Form3
		}
		for _, other := range []byte{0, newest + 1} {
			err := f.read(append([]byte{other}, f.data[1:]...))
			require.ErrorIs(t, err, store.InvalidArgument, name)
			require.ErrorContains(t, err,
				fmt.Sprintf("this program knows up to %d: it was written by a newer one", newest), name)
		}
	}
}

// TestFormsStay: what was written once can be read for ever.
func TestFormsStay(t *testing.T) {
	for name, f := range forms(t) {
		want := cmp.Or(written3[name], written2[name], written1[name])
		require.Equal(t, want, hex.EncodeToString(f.data), name)
	}
	old, err := hex.DecodeString(written1["a state, its summary"])
	require.NoError(t, err)
	var s State
	require.NoError(t, s.UnmarshalSummary(old))
	require.True(t, s.Needs(&counter.Delta{Sample: noKeys()}, time.Now()), "what form 1 does not say is in the sample")
	require.NoError(t, s.UnmarshalSample(must(someState().AppendSample(nil))))
	require.Equal(t, someState(), &s)
}

// TestALeanStateCountsAlike: deltas that do not need the sample come to the same without it.
func TestALeanStateCountsAlike(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 3_000 {
		w.put(fmt.Sprintf("%06d", w.r.IntN(1_000_000)), 20)
		if i%1_000 == 700 {
			w.recount()
		}
		if i%100 == 0 {
			w.flush()
		}
	}
	w.flush()
	whole := w.book.States[w.p.ID]
	lean := NewState()
	require.NoError(t, lean.UnmarshalSummary(must(whole.AppendSummary(nil))))
	require.True(t, lean.Lean())
	for i := range 50 {
		d := &counter.Delta{Partition: w.p, Puts: int64(i), PutBytes: int64(20 * i), Reads: 1, Sample: noKeys()}
		require.False(t, lean.Needs(d, w.now))
		for _, s := range []*State{whole, lean} {
			s.Apply(d, w.now, w.now.Add(time.Second))
		}
		w.now = w.now.Add(time.Second)
		require.Equal(t, must(whole.AppendSummary(nil)), must(lean.AppendSummary(nil)))
		require.Equal(t, whole.Stats(w.p, 1, w.now), lean.Stats(w.p, 1, w.now))
	}
	d := &counter.Delta{Partition: w.p, Sample: noKeys()}
	keysample.Of(&d.Sample).Below = lean.sample.Below - 1
	require.True(t, lean.Needs(d, w.now), "a lower limit")
	d = &counter.Delta{Partition: w.p, Deletes: 1, Sample: noKeys()}
	keysample.Of(&d.Sample).Write(1, []byte("k"), w.stamp(), 0, 0)
	require.True(t, lean.Needs(d, w.now), "a key")
	whole.Apply(d, w.now, w.now)
	require.NoError(t, lean.UnmarshalSummary(must(whole.AppendSummary(nil))))
	d = &counter.Delta{Partition: w.p, Reads: 1, Sample: noKeys()}
	require.False(t, lean.Needs(d, w.now.Add(deletedFor)))
	require.True(t, lean.Needs(d, w.now.Add(deletedFor+time.Second)), "a deleted key is to be forgotten")
}

// TestImpossibleNumbersAreDamage: whole, but nothing that was ever written.
func TestImpossibleNumbersAreDamage(t *testing.T) {
	for name, spoil := range map[string]func(s *State){
		"not a number":   func(s *State) { s.dead = math.NaN() },
		"infinite":       func(s *State) { s.putRate.perS = math.Inf(1) },
		"minus infinite": func(s *State) { s.share = math.Inf(-1) },
		"a hash above the limit": func(s *State) {
			s.sample.Below = 78
		},
		"too many keys": func(s *State) {
			for i := range uint64(keysample.MaxSampled) {
				s.sample.Set(1000+i, nil, 1, 1, keysample.Present)
			}
		},
	} {
		s := someState()
		spoil(s)
		var again State
		require.ErrorIs(t, again.UnmarshalBinary(must(s.AppendBinary(nil))), store.Corrupt, name)
	}
	full := NewState()
	for i := range uint64(keysample.MaxSampled) {
		full.sample.Set(1000+i, nil, 1, 1, keysample.Present)
	}
	var again State
	require.NoError(t, again.UnmarshalBinary(must(full.AppendBinary(nil))))

	b := someBatch()
	b.Deltas[0].Puts++
	var read counter.Batch
	require.ErrorIs(t, read.UnmarshalBinary(must(b.AppendBinary(nil))), store.Corrupt, "more than 2^53")
	none := append(must(someBatch().AppendBinary(nil)), 0)
	none[0] = keysample.Form2
	require.ErrorIs(t, read.UnmarshalBinary(none), store.Corrupt, "names no partition before it: that has form 1")
	b = askedBatch()
	b.Deltas[0].Asked = make([][]byte, 4)
	require.NoError(t, read.UnmarshalBinary(must(b.AppendBinary(nil))))
	b.Deltas[0].Asked = make([][]byte, 4+1)
	require.ErrorIs(t, read.UnmarshalBinary(must(b.AppendBinary(nil))), store.Corrupt, "too many requests")
	whole := must(someState().AppendBinary(nil))
	whole[0] = keysample.Form2
	require.ErrorIs(t, again.UnmarshalBinary(whole), store.Corrupt, "a whole state has no form 2")
	book := someBook()
	book.Generation = 0
	_, err := OpenBook(must(book.AppendHead(nil)))
	require.ErrorIs(t, err, store.Corrupt, "generation 0")

	var e keysample.Encoder
	e.Raw(keysample.Form)
	e.Fixed(math.MaxUint64)
	e.Uint(1)
	slot := func(hash, size uint64) []byte {
		x := e
		x.B = slices.Clone(e.B)
		x.Fixed(hash)
		x.Int(1)
		x.Uint(size)
		x.Raw(0)
		x.Bytes(nil)
		return x.B
	}
	require.NoError(t, again.UnmarshalSample(slot(1, math.MaxUint32)))
	require.ErrorIs(t, again.UnmarshalSample(slot(1, math.MaxUint32+1)), store.Corrupt, "a row too large")
	require.ErrorIs(t, again.UnmarshalSample(slot(0, 1)), store.Corrupt, "no hash")
	require.ErrorIs(t, again.UnmarshalSample(slot(math.MaxUint64, 1)), store.Corrupt, "the limit itself")
	many := append([]byte{keysample.Form}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	require.ErrorIs(t, again.UnmarshalSample(many), store.Corrupt, "more items than bytes")
}

// TestDeletedKeysAreForgotten: a key that was put and deleted since the recount is of no
// account after some time, and not before; one that the recount saw stays.
func TestDeletedKeysAreForgotten(t *testing.T) {
	var k taking
	now := time.UnixMicro(1_700_000_000_000_000)
	r := counter.NewRecorder(&k, counter.RecorderOptions{Every: -1, Now: func() time.Time { return now }})
	p := store.Partition{ID: store.PartitionID{1}}
	s := NewState()
	s.sample.Set(keysample.Hash([]byte("old")), []byte("old"), 1, 5, keysample.Present|keysample.Counted)
	s.base.rows = 1
	flush := func() {
		require.NoError(t, r.Flush(t.Context()))
		b := k.batches[len(k.batches)-1]
		s.Apply(&b.Deltas[0], b.From, b.At)
	}
	at := store.Timestamp(now.UnixMicro())
	r.Put(p, []byte("stays"), 5, at)
	r.Put(p, []byte("goes"), 5, at)
	r.Delete(p, []byte("goes"), at+1, false)
	r.Delete(p, []byte("old"), at+1, false)
	flush()
	require.EqualValues(t, 2, s.Stats(p, 0, now).Distinct)
	require.Equal(t, 3, s.sample.N)
	for _, c := range []struct {
		after    time.Duration
		n        int
		distinct int64
	}{{deletedFor + time.Microsecond, 3, 2}, {deletedFor + 2*time.Microsecond, 2, 1}} {
		now = time.UnixMicro(int64(at)).Add(c.after)
		r.Read(p, nil)
		flush()
		require.Equal(t, c.n, s.sample.N, "after %v", c.after)
		require.Equal(t, c.distinct, s.Stats(p, 0, now).Distinct, "after %v", c.after)
		require.EqualValues(t, 1, s.Stats(p, 0, now).Rows)
	}
	require.NoError(t, r.Close(t.Context()))
}

// written2 are forms of version 2.
var written2 = map[string]string{
	"a batch that names the one before it": "0207000000000000000000000000000000ac02008280f281838985060201000000000000000000000000000000020000" +
		"000000000000000000000000008080808080808010020304050603746f7001100000000000000002000000000000004d" +
		"090c03036b6579000000000000004e12ffffffff0f040003000000000000000000000000000000040000000000000000" +
		"000000000000000000000000000000ffffffffffffffff00020500000000000000000000000000000006000000000000" +
		"000000000000000000",
	"a state, its summary": "02038280f28183898506c801a601840162401e032547698b01ad01cf01f1019302b502d7023ff40000000000003fe000" +
		"0000000000405000000000000000000002040604080c060c120810180a141e0c18240e1c2a3ff800000000000001003f" +
		"e00000000000000002bfe00000000000000204bff800000000000004060000000000000005000000000000000603746f" +
		"70011000000000000000020012",
}

// written1 are forms of version 1, as this program wrote them when it was new.
var written1 = map[string]string{
	"a batch": "0107000000000000000000000000000000ac02008280f281838985060201000000000000000000000000000000020000" +
		"000000000000000000000000008080808080808010020304050603746f7001100000000000000002000000000000004d" +
		"090c03036b6579000000000000004e12ffffffff0f040003000000000000000000000000000000040000000000000000" +
		"000000000000000000000000000000ffffffffffffffff00",
	"a sample": "01100000000000000002000000000000004d090c03036b6579000000000000004e12ffffffff0f0400",
	"a state": "01038280f28183898506c801a601840162401e032547698b01ad01cf01f1019302b502d7023ff40000000000003fe000" +
		"0000000000405000000000000000000002040604080c060c120810180a141e0c18240e1c2a3ff800000000000001003f" +
		"e00000000000000002bfe00000000000000204bff800000000000004060000000000000005000000000000000603746f" +
		"7001100000000000000002000000000000004d090c03036b6579000000000000004e12ffffffff0f0400",
	"a state, its summary": "01038280f28183898506c801a601840162401e032547698b01ad01cf01f1019302b502d7023ff40000000000003fe000" +
		"0000000000405000000000000000000002040604080c060c120810180a141e0c18240e1c2a3ff800000000000001003f" +
		"e00000000000000002bfe00000000000000204bff800000000000004060000000000000005000000000000000603746f" +
		"7001",
	"the head": "01090101000000000000000000000000000000ac028280f28183898506",
}

// written3 are forms of version 3.
var written3 = map[string]string{
	"a batch with requests": "0307000000000000000000000000000000ac02008280f281838985060201000000000000000000000000000000020000" +
		"000000000000000000000000008080808080808010020304050603746f7001100000000000000002000000000000004d" +
		"090c03036b6579000000000000004e12ffffffff0f040000030000000000000000000000000000000400000000000000" +
		"00000000000000000000000000000000ffffffffffffffff0002036b6579000205000000000000000000000000000000" +
		"06000000000000000000000000000000",
	"a state with requests, its summary": "03038280f28183898506c801a601840162401e032547698b01ad01cf01f1019302b502d7023ff40000000000003fe000" +
		"0000000000405000000000000000000002040604080c060c120810180a141e0c18240e1c2a3ff800000000000001003f" +
		"e00000000000000002bfe00000000000000204bff800000000000004060000000000000005000000000000000603746f" +
		"70011000000000000000020012020abff8000000000000036b65790e400000000000000000",
	"a state with requests": "03038280f28183898506c801a601840162401e032547698b01ad01cf01f1019302b502d7023ff40000000000003fe000" +
		"0000000000405000000000000000000002040604080c060c120810180a141e0c18240e1c2a3ff800000000000001003f" +
		"e00000000000000002bfe00000000000000204bff800000000000004060000000000000005000000000000000603746f" +
		"7001100000000000000002000000000000004d090c03036b6579000000000000004e12ffffffff0f0400020abff80000" +
		"00000000036b65790e400000000000000000",
}

// taking keeps the batches that it gets.
type taking struct{ batches []*counter.Batch }

func (k *taking) Flush(_ context.Context, b *counter.Batch) ([]counter.Hint, error) {
	kept := *b
	kept.Deltas = slices.Clone(b.Deltas)
	for i := range kept.Deltas {
		kept.Deltas[i].Sample = sampleOf(keysample.Of(&kept.Deltas[i].Sample).Clone())
	}
	k.batches = append(k.batches, &kept)
	return nil, nil
}

func (*taking) Forget(context.Context, ...store.Partition) error { return nil }
