// Package heat keeps what the ranges of buckets had and took, by time: rows, bytes, writes and reads, in bounded memory,
// and draws pictures of it; and which moves there were, and why.
//
// A column has the ranges of all buckets over some seconds. It has at most MostSpans spans: what is hot by itself, cold
// neighbours together. Columns become coarser with age: samples become minutes after ten of them, minutes become hours
// after a day, and hours are forgotten after a week.
//
// It is pure: no I/O, no clock. A Book is not safe for concurrent use.
package heat

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Metric is what is kept of a span.
type Metric int

// The metrics. Writes and reads are requests per second, the others are at the end of the time.
const (
	Writes Metric = iota
	Reads
	Rows
	Bytes
	metrics
)

// Figures are one number for each metric.
type Figures [metrics]float32

// rate reports whether a metric is per second.
func (m Metric) rate() bool { return m == Writes || m == Reads }

// Name is the metric's name, and Unit its unit.
func (m Metric) Name() string { return [...]string{"writes", "reads", "rows", "bytes"}[m] }
func (m Metric) Unit() string { return [...]string{"requests/s", "requests/s", "rows", "bytes"}[m] }

// All are the metrics.
var All = []Metric{Writes, Reads, Rows, Bytes}

// Span is the keys from Start up to the start of the next span.
type Span struct {
	Start string
	Figures
}

// Sample is a bucket: its spans tile all keys, in their order; the first Start is empty. Without spans nothing is known of
// the bucket.
type Sample struct {
	Bucket store.BucketID
	Spans  []Span

	known int64 // as of a part
}

const (
	// MostSpans bounds the spans of a column.
	MostSpans = 1536
	// LeastSpans is how many spans a column has at least, if its samples have as many, however little memory there is.
	LeastSpans = 64
	// mostKey is how much of a cut is kept.
	mostKey = 256

	// Columns stay as they were added for Recent. Then Minute is their grain until they are as old as Fine, and Hour until
	// they are forgotten after Kept.
	Recent = 10 * time.Minute
	Minute = time.Minute
	Fine   = 24 * time.Hour
	Hour   = time.Hour
	Kept   = 7 * 24 * time.Hour
)

// column is what is known of some seconds before its end. A bucket without a part took no requests for idle of these
// seconds: it had what it had before. Of the others nothing is known.
type column struct {
	from, to int64 // Unix seconds
	idle     int64
	parts    []part
}

// part is the spans of a bucket, and of how many seconds of its column they are known; without spans it took no requests
// for these.
type part struct {
	bucket  store.BucketID
	known   int64
	starts  []uint32 // in Book.keys
	figures []Figures
}

// of returns what a column knows of a bucket, and of how many of its seconds; nil: no requests in these.
func (c *column) of(id store.BucketID) (p *part, known int64) {
	i, ok := slices.BinarySearchFunc(c.parts, id, func(p part, id store.BucketID) int {
		return bytes.Compare(p.bucket[:], id[:])
	})
	if !ok {
		return nil, c.idle
	}
	p = &c.parts[i]
	if len(p.starts) == 0 {
		return nil, p.known
	}
	return p, p.known
}

// Book is the columns of all buckets.
type Book struct {
	most    int64
	columns []column // by time
	keys    keys
	bytes   int64 // of columns
}

// New makes a book of at most so many bytes, above 1 MiB.
func New(most int64) *Book { return &Book{most: most, keys: newKeys()} }

const (
	columnBytes = 64
	partBytes   = 80
	spanBytes   = 4 + 4*int64(metrics)
)

func (c *column) size() (n int64) {
	n = columnBytes
	for i := range c.parts {
		n += partBytes + spanBytes*int64(len(c.parts[i].starts))
	}
	return n
}

// Usage is how much a book has.
type Usage struct {
	Columns      int
	Since        time.Time // zero: it has nothing
	Bytes, Limit int64
}

// Usage returns how much the book has; the memory is about that.
func (b *Book) Usage() Usage {
	u := Usage{Columns: len(b.columns), Bytes: b.size(), Limit: b.most}
	if len(b.columns) > 0 {
		u.Since = time.Unix(b.columns[0].from, 0).UTC()
	}
	return u
}

func (b *Book) size() int64 { return b.bytes + b.keys.bytes }

// Add adds a column about the time from one moment to another, in whole seconds, of the buckets that took requests. omitted:
// there were others, so nothing is known of those that have no sample. What the book has of later times is dropped: the
// clock was set back. So is a column that is empty.
func (b *Book) Add(from, to time.Time, samples []Sample, omitted bool) {
	f, t := from.Unix(), to.Unix()
	for n := len(b.columns); n > 0 && (b.columns[n-1].from >= f || b.columns[n-1].to > t); n = len(b.columns) {
		b.drop(n - 1)
	}
	if n := len(b.columns); n > 0 {
		f = max(f, b.columns[n-1].to)
	}
	if t <= f {
		return
	}
	samples = slices.Clone(samples)
	for i := range samples {
		if len(samples[i].Spans) > 0 {
			samples[i].known = t - f
		}
	}
	idle := t - f
	if omitted {
		idle = 0
	}
	b.put(len(b.columns), f, t, idle, samples)
	b.settle(t)
	b.shrink()
}

// put inserts a column.
func (b *Book) put(at int, from, to, idle int64, samples []Sample) {
	c := column{from: from, to: to, idle: idle}
	allotted := allot(samples, MostSpans)
	if len(allotted) < len(samples) {
		c.idle = 0
	}
	for _, s := range allotted {
		p := part{bucket: s.Bucket, known: s.known, starts: make([]uint32, len(s.Spans)), figures: make([]Figures, len(s.Spans))}
		for i := range s.Spans {
			p.starts[i], p.figures[i] = b.keys.take(s.Spans[i].Start), s.Spans[i].Figures
		}
		c.parts = append(c.parts, p)
	}
	slices.SortFunc(c.parts, func(x, y part) int { return bytes.Compare(x.bucket[:], y.bucket[:]) })
	b.columns = slices.Insert(b.columns, at, c)
	b.bytes += c.size()
}

func (b *Book) drop(at int) {
	c := &b.columns[at]
	b.bytes -= c.size()
	for i := range c.parts {
		b.keys.give(c.parts[i].starts)
	}
	b.columns = slices.Delete(b.columns, at, at+1)
}

// settle makes columns coarser by their age.
func (b *Book) settle(now int64) {
	for len(b.columns) > 0 && b.columns[0].to <= now-int64(Kept.Seconds()) {
		b.drop(0)
	}
	minute, hour := int64(Minute.Seconds()), int64(Hour.Seconds())
	recent, fine := now-int64(Recent.Seconds()), now-int64(Fine.Seconds())
	grain := func(c *column) (step, index int64) {
		h, m := (c.to-1)/hour, (c.to-1)/minute
		switch {
		case (h+1)*hour <= fine:
			return hour, h
		case (m+1)*minute <= recent:
			return minute, m
		}
		return 0, c.to
	}
	for i := 0; i < len(b.columns); i++ {
		step, index := grain(&b.columns[i])
		n := i + 1
		for ; n < len(b.columns); n++ {
			if s, x := grain(&b.columns[n]); s != step || x != index {
				break
			}
		}
		if n > i+1 {
			b.merge(i, n)
		}
	}
}

// merge makes one column of neighbouring ones.
func (b *Book) merge(i, n int) {
	run := b.columns[i:n]
	from, to, idle := run[0].from, run[len(run)-1].to, int64(0)
	of := map[store.BucketID]bool{}
	var samples []Sample
	for k := range run {
		idle += run[k].idle
		for p := range run[k].parts {
			if id := run[k].parts[p].bucket; !of[id] {
				of[id] = true
				samples = append(samples, b.together(id, run))
			}
		}
	}
	for k := n - 1; k >= i; k-- {
		b.drop(k)
	}
	b.put(i, from, to, idle, samples)
}

// together is a bucket over several columns.
func (b *Book) together(id store.BucketID, run []column) Sample {
	out := Sample{Bucket: id}
	ids := map[uint32]bool{}
	for k := range run {
		p, known := run[k].of(id)
		out.known += known
		if p != nil {
			for _, s := range p.starts {
				ids[s] = true
			}
		}
	}
	if len(ids) == 0 {
		return out
	}
	a := b.axis(ids)
	out.Spans = make([]Span, len(a.starts))
	for i, s := range a.starts {
		out.Spans[i].Start = s
	}
	for k := range run {
		p, known := run[k].of(id)
		if p == nil {
			continue
		}
		share := float64(known) / float64(out.known)
		for i := range out.Spans {
			out.Spans[i].Figures[Rows], out.Spans[i].Figures[Bytes] = 0, 0 // the last ones count
		}
		a.spread(p, func(from, to int, f *Figures) {
			n := float64(to - from)
			for i := from; i < to; i++ {
				for m, v := range f {
					if Metric(m).rate() {
						out.Spans[i].Figures[m] += float32(float64(v) * share / n)
					} else {
						out.Spans[i].Figures[m] = float32(float64(v) / n)
					}
				}
			}
		})
	}
	return out
}

// shrink takes spans away from the oldest columns until the book has room, then columns.
func (b *Book) shrink() {
	for b.size() > b.most {
		before := b.size()
		for most := MostSpans / 2; most >= LeastSpans && b.size() > b.most; most /= 2 {
			for i := 0; i < len(b.columns) && b.size() > b.most; i++ {
				if c := &b.columns[i]; c.spans() > most {
					b.thin(i, most)
				}
			}
		}
		if b.size() > b.most && len(b.columns) > 1 {
			b.drop(0)
		}
		if b.size() == before {
			return
		}
	}
}

func (c *column) spans() (n int) {
	for i := range c.parts {
		n += len(c.parts[i].starts)
	}
	return n
}

// thin leaves a column so many spans.
func (b *Book) thin(at, most int) {
	c := b.columns[at]
	samples := make([]Sample, len(c.parts))
	for i := range c.parts {
		samples[i] = b.sample(&c.parts[i])
	}
	b.drop(at)
	few := allot(samples, most)
	if len(few) < len(samples) {
		c.idle = 0
	}
	b.put(at, c.from, c.to, c.idle, few)
}

func (b *Book) sample(p *part) Sample {
	s := Sample{Bucket: p.bucket, known: p.known, Spans: make([]Span, len(p.starts))}
	for i, k := range p.starts {
		s.Spans[i] = Span{Start: b.keys.texts[k], Figures: p.figures[i]}
	}
	return s
}

// allot gives all samples together at most so many spans, by what they take. If there are more than half as many buckets,
// those that take the least are left out.
func allot(samples []Sample, most int) []Sample {
	var total Figures
	n := 0
	for i := range samples {
		n += len(samples[i].Spans)
		for k := range samples[i].Spans {
			total.add(&samples[i].Spans[k].Figures)
		}
	}
	type share struct {
		Sample
		weight float64
	}
	all := make([]share, len(samples))
	sum := 0.0
	for i := range samples {
		all[i].Sample = samples[i]
		for k := range samples[i].Spans {
			all[i].weight += samples[i].Spans[k].weight(&total)
		}
	}
	if len(all) > most/2 {
		slices.SortStableFunc(all, func(a, b share) int { return cmp.Compare(b.weight, a.weight) })
		all = all[:most/2]
	}
	for i := range all {
		sum += all[i].weight
	}
	// What small ones leave is for the others.
	slices.SortStableFunc(all, func(a, b share) int { return cmp.Compare(len(a.Spans), len(b.Spans)) })
	out := make([]Sample, len(all))
	left := most
	for i := range all {
		x := &all[i]
		others := len(all) - i - 1
		mine := left - others
		if sum > 0 {
			mine = 1 + int(float64(left-others-1)*min(1, x.weight/sum))
		}
		sum -= x.weight
		out[i] = Sample{Bucket: x.Bucket, Spans: Thin(x.Spans, mine, total), known: x.known}
		left -= len(out[i].Spans)
	}
	return out
}

func (f *Figures) add(x *Figures) {
	for m := range x {
		f[m] += x[m]
	}
}

// weight is how much a span matters, given what all have: requests, and rows half as much.
func (f *Figures) weight(total *Figures) (w float64) {
	for _, x := range [...]struct {
		Metric
		share float64
	}{{Writes, 1}, {Reads, 1}, {Rows, 0.5}} {
		if t := total[x.Metric]; t > 0 {
			w += x.share * float64(f[x.Metric]) / float64(t)
		}
	}
	return w
}

// Sum adds up spans.
func Sum(spans []Span) (total Figures) {
	for i := range spans {
		total.add(&spans[i].Figures)
	}
	return total
}

// Thin puts neighbouring spans together until there are at most most, above 0: those that matter the least, given what all
// buckets together have. Sums stay as they are, but for float32's rounding.
func Thin(spans []Span, most int, total Figures) []Span {
	spans = clip(spans)
	if len(spans) <= most {
		return spans
	}
	weights, sum := make([]float64, len(spans)), 0.0
	for i := range spans {
		weights[i] = spans[i].weight(&total)
		sum += weights[i]
	}
	// A group takes in the next span while it stays below the limit. Two neighbouring groups have more than the limit
	// together: with high there are at most most of them.
	low, high := 0.0, 2*sum/float64(max(most-1, 1))*(1+1e-9)
	if most == 1 {
		high = 2 * sum
	}
	for range 12 { // that wastes few spans
		middle := (low + high) / 2
		if groups(weights, middle, nil) > most {
			low = middle
		} else {
			high = middle
		}
	}
	out := make([]Span, 0, most)
	groups(weights, high, func(from, to int) {
		s := Span{Start: spans[from].Start}
		for m := range s.Figures {
			v := 0.0
			for i := from; i < to; i++ {
				v += float64(spans[i].Figures[m])
			}
			s.Figures[m] = float32(v)
		}
		out = append(out, s)
	})
	return out
}

// groups returns how many groups there are with a limit.
func groups(weights []float64, limit float64, f func(from, to int)) (n int) {
	from, sum := 0, 0.0
	for i, w := range weights {
		if i > from && sum+w > limit {
			if n++; f != nil {
				f(from, i)
			}
			from, sum = i, 0
		}
		sum += w
	}
	if f != nil {
		f(from, len(weights))
	}
	return n + 1
}

// clip shortens long starts. A cut lies a little lower then, and spans between two that are the same then go together.
func clip(spans []Span) []Span {
	if !slices.ContainsFunc(spans, func(s Span) bool { return len(s.Start) > mostKey }) {
		return spans
	}
	out := make([]Span, 0, len(spans))
	for _, s := range spans {
		s.Start = strings.Clone(s.Start[:min(len(s.Start), mostKey)])
		if n := len(out); n > 0 && out[n-1].Start == s.Start {
			out[n-1].Figures.add(&s.Figures)
			continue
		}
		out = append(out, s)
	}
	return out
}
