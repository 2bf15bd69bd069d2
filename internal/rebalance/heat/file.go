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

	"github.com/evenkeel/evenkeel/store"
)

// A file: the magic, a checksum of the rest (8 bytes), and compressed: the keys, the columns, the events. Later forms have
// another magic; the first one had no known seconds of parts.
const (
	magic  = "evenkeel history 2\n"
	magic1 = "evenkeel history 1\n"
)

// mostFile bounds what is read of a file, compressed and not.
const mostFile = 256 << 20

// Encode writes a book and a log to memory, compressed.
func Encode(b *Book, l *Log) []byte {
	var out bytes.Buffer
	out.WriteString(magic)
	out.Write(make([]byte, 8))
	z, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	e := encoder{z: z}
	e.uint(uint64(len(b.keys.texts)))
	for _, text := range b.keys.texts {
		e.bytes([]byte(text))
	}
	e.uint(uint64(len(b.columns)))
	for i := range b.columns {
		c := &b.columns[i]
		e.int(c.from)
		e.int(c.to)
		e.int(c.idle)
		e.uint(uint64(len(c.parts)))
		for k := range c.parts {
			p := &c.parts[k]
			e.b = append(e.b, p.bucket[:]...)
			e.int(p.known)
			e.uint(uint64(len(p.starts)))
			for s := range p.starts {
				e.uint(uint64(p.starts[s]))
				for _, v := range p.figures[s] {
					e.b = binary.LittleEndian.AppendUint32(e.b, math.Float32bits(v))
				}
			}
			e.flush()
		}
	}
	e.int(l.last)
	e.uint(uint64(len(l.events)))
	for i := range l.events {
		line, err := json.Marshal(&l.events[i])
		if err != nil {
			panic(err) // it has only numbers and texts
		}
		e.bytes(line)
		e.flush()
	}
	e.flush()
	_ = z.Close() // a buffer takes all
	file := out.Bytes()
	binary.BigEndian.PutUint64(file[len(magic):], xxhash.Sum64(file[len(magic)+8:]))
	return file
}

// encoder collects bytes and compresses them.
type encoder struct {
	z *flate.Writer
	b []byte
}

func (e *encoder) uint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)    { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) bytes(v []byte) { e.uint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) flush() {
	_, _ = e.z.Write(e.b) // a buffer takes all
	e.b = e.b[:0]
}

var errDamaged = errors.New("it is damaged")

// Decode reads what Encode wrote into a book of at most so many bytes and a log. Moves that had begun are Left.
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
	d := decoder{b: plain}
	b, l := New(most), &Log{}
	texts := make([]string, d.count(1))
	for i := range texts {
		texts[i] = string(d.bytes())
	}
	for range d.count(4) {
		from, to, idle := d.int(), d.int(), d.int()
		damaged := from >= to || idle < 0 || idle > to-from || first && idle == 0
		samples := make([]Sample, d.count(17))
		for s := range samples {
			copy(samples[s].Bucket[:], d.take(len(store.BucketID{})))
			if samples[s].known = idle; !first {
				samples[s].known = d.int()
			}
			spans := make([]Span, d.count(1+spanBytes-4))
			for i := range spans {
				if id := d.uint(); id < uint64(len(texts)) {
					spans[i].Start = texts[id]
				} else {
					d.bad = true
				}
				for m := range spans[i].Figures {
					spans[i].Figures[m] = math.Float32frombits(binary.LittleEndian.Uint32(d.take(4)))
				}
				d.bad = d.bad || (i == 0) != (spans[i].Start == "") || i > 0 && spans[i-1].Start >= spans[i].Start
			}
			samples[s].Spans = spans
			known := samples[s].known
			damaged = damaged || first && len(spans) == 0 || known < 0 || known > to-from || known == 0 && len(spans) > 0
		}
		if n := len(b.columns); d.bad || damaged || n > 0 && b.columns[n-1].to > from {
			return nil, nil, errDamaged
		}
		b.put(len(b.columns), from, to, idle, samples)
	}
	last := d.int()
	for range d.count(1) {
		var e Event
		if err := json.Unmarshal(d.bytes(), &e); err != nil || e.ID <= l.last {
			return nil, nil, errDamaged
		}
		if e.State == Begun {
			e.State = Left
		}
		l.last = e.ID - 1
		l.Add(e)
	}
	if d.bad || len(d.b) > 0 || last < l.last {
		return nil, nil, fmt.Errorf("%w: it has the right checksum, but does not make sense", errDamaged)
	}
	l.last = last
	b.shrink()
	return b, l, nil
}

type decoder struct {
	b   []byte
	bad bool
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

// take returns n bytes, zeros if there are not as many.
func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, n)
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// count is how many things follow of at least so many bytes each.
func (d *decoder) count(each int64) int {
	n := d.uint()
	if n > uint64(int64(len(d.b))/each) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte { return d.take(d.count(1)) }
