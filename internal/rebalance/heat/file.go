package heat

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// These constants belong to the format of a file with the history of buckets. The file has the magic, a checksum of the
// rest (8 bytes), and, compressed, the keys, the columns (intervals of time) and the events (moves). Each later format
// has another magic. In the first format, the columns do not say for how many seconds the figures of a bucket are
// known.
const (
	magic  = "evenkeel history 2\n"
	magic1 = "evenkeel history 1\n"
)

// mostFile is the maximum number of bytes of a history file, after decompression, that Decode accepts.
const mostFile = 256 << 20

// Encode returns the compressed content of a file with the history b of all buckets and the log l of moves. Decode
// reads the file after a restart.
func Encode(b *Book, l *Log) []byte {
	var out bytes.Buffer
	out.WriteString(magic)
	out.Write(make([]byte, 8))
	z, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	e := encoder{z: z}
	e.Uint(uint64(len(b.keys.texts)))
	for _, text := range b.keys.texts {
		e.Bytes([]byte(text))
	}
	e.Uint(uint64(len(b.columns)))
	for i := range b.columns {
		c := &b.columns[i]
		e.Int(c.from)
		e.Int(c.to)
		e.Int(c.idle)
		e.Uint(uint64(len(c.parts)))
		for k := range c.parts {
			p := &c.parts[k]
			e.Raw(p.bucket[:]...)
			e.Int(p.known)
			e.Uint(uint64(len(p.starts)))
			for s := range p.starts {
				e.Uint(uint64(p.starts[s]))
				for _, v := range p.figures[s] {
					e.B = binary.LittleEndian.AppendUint32(e.B, math.Float32bits(v))
				}
			}
			e.flush()
		}
	}
	e.Int(l.last)
	e.Uint(uint64(len(l.events)))
	for i := range l.events {
		line, err := json.Marshal(&l.events[i])
		if err != nil {
			panic(err) // it has only numbers and texts
		}
		e.Bytes(line)
		e.flush()
	}
	e.flush()
	_ = z.Close() // a buffer takes all
	file := out.Bytes()
	binary.BigEndian.PutUint64(file[len(magic):], xxhash.Sum64(file[len(magic)+8:]))
	return file
}

// encoder collects encoded bytes in memory. The method flush writes the bytes to the compressor z and empties the
// memory.
type encoder struct {
	wire.Encoder
	z *flate.Writer
}

func (e *encoder) flush() {
	_, _ = e.z.Write(e.B) // a buffer takes all
	e.B = e.B[:0]
}

var errDamaged = errors.New("it is damaged")

// Decode returns the history of all buckets and the log of moves from a file that Encode has written. The parameter
// `most` is the maximum memory of the history in bytes. A move in the state Begun gets the state Left, since the
// process that logged the move has ended. The error says whether the file is damaged or has another format.
func Decode(file []byte, most int64) (*Book, *Log, error) {
	rest, ok := bytes.CutPrefix(file, []byte(magic))
	first := false
	if !ok {
		rest, ok = bytes.CutPrefix(file, []byte(magic1))
		first = ok
	}
	switch {
	case !ok:
		return nil, nil, errors.New("it is no history of this form: a newer version wrote it, or another program")
	case len(rest) < 8 || binary.BigEndian.Uint64(rest) != xxhash.Sum64(rest[8:]):
		return nil, nil, errDamaged
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(rest[8:])), mostFile+1))
	if err != nil || len(plain) > mostFile {
		return nil, nil, errDamaged
	}
	d := wire.Decoder{Rest: plain}
	b, l := New(most), &Log{}
	texts := make([]string, d.Count(1))
	for i := range texts {
		texts[i] = string(d.Bytes())
	}
	for range d.Count(4) {
		from, to, idle := d.Int(), d.Int(), d.Int()
		damaged := from >= to || idle < 0 || idle > to-from || first && idle == 0
		samples := make([]Sample, d.Count(17))
		for s := range samples {
			copy(samples[s].Bucket[:], d.Raw(len(store.BucketID{})))
			if samples[s].known = idle; !first {
				samples[s].known = d.Int()
			}
			spans := make([]Span, d.Count(int(1+spanBytes-4)))
			for i := range spans {
				if id := d.Uint(); id < uint64(len(texts)) {
					spans[i].Start = texts[id]
				} else {
					d.Bad = true
				}
				for m := range spans[i].Figures {
					spans[i].Figures[m] = math.Float32frombits(binary.LittleEndian.Uint32(d.Raw(4)))
				}
				d.Bad = d.Bad || (i == 0) != (spans[i].Start == "") || i > 0 && spans[i-1].Start >= spans[i].Start
			}
			samples[s].Spans = spans
			known := samples[s].known
			damaged = damaged || first && len(spans) == 0 || known < 0 || known > to-from || known == 0 && len(spans) > 0
		}
		if n := len(b.columns); d.Bad || damaged || n > 0 && b.columns[n-1].to > from {
			return nil, nil, errDamaged
		}
		b.put(len(b.columns), from, to, idle, samples)
	}
	last := d.Int()
	for range d.Count(1) {
		var e Event
		if err := json.Unmarshal(d.Bytes(), &e); err != nil || e.ID <= l.last {
			return nil, nil, errDamaged
		}
		if e.State == Begun {
			e.State = Left
		}
		l.last = e.ID - 1
		l.Add(e)
	}
	if d.Bad || len(d.Rest) > 0 || last < l.last {
		return nil, nil, fmt.Errorf("%w: it has the right checksum, but does not make sense", errDamaged)
	}
	l.last = last
	b.shrink()
	return b, l, nil
}
