// Package heat keeps a history of the ranges of buckets in bounded memory: their rows and bytes, and the writes and
// reads that they took. The package also draws pictures of the history (heat maps), and keeps a log of the moves of
// ranges with their reasons.
//
// The history is a list of columns, one for each interval of time. A column has the ranges of all buckets, as at most
// MostSpans spans, which are intervals of keys: a busy range is a span of its own, and idle neighbours share a span.
// Columns become coarser with age: they are joined to minutes after ten minutes, and to hours after a day. Hours are
// forgotten after a week.
//
// The package is pure: no I/O, no clock. A Book, which is a history, is not safe for concurrent use.
package heat

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// Metric is a kind of number in the history of buckets: writes, reads, rows or bytes. Each number is for an interval of
// keys and an interval of time.
type Metric int

// These are the kinds of numbers in the history. Writes and Reads are means per second over an interval of time. Rows
// and Bytes are sizes at the end of the interval.
const (
	Writes Metric = iota
	Reads
	Rows
	Bytes
	metrics
)

// Figures are the numbers that the history has for an interval of keys in an interval of time, indexed by Metric:
// writes per second, reads per second, rows and bytes.
type Figures [metrics]float32

// rate reports whether the metric is a number per second, such as writes. Rows and bytes are sizes.
func (m Metric) rate() bool { return m == Writes || m == Reads }

// Name returns the name of the metric, e.g. "writes".
func (m Metric) Name() string { return [...]string{"writes", "reads", "rows", "bytes"}[m] }

// Unit returns the unit of the metric, e.g. "requests/s".
func (m Metric) Unit() string { return [...]string{"requests/s", "requests/s", "rows", "bytes"}[m] }

// All has all metrics of the history of buckets: writes, reads, rows and bytes.
var All = []Metric{Writes, Reads, Rows, Bytes}

// Span is an interval of neighbouring keys of a bucket, with its numbers, e.g. writes per second. The interval begins
// with the key Start and ends where the next one starts.
type Span struct {
	Start string
	Figures
}

// Sample is the state of one bucket over some time: its intervals of keys (spans) with their numbers, such as writes
// per second. The spans are in ascending order and cover all keys without gaps, so the first Start is empty. A sample
// without spans says that nothing is known of the bucket.
type Sample struct {
	Bucket store.BucketID
	Spans  []Span

	known int64 // the number of seconds to which the spans apply, as in part
}

const (
	// MostSpans is the maximum number of intervals of keys (spans) for which one column of the history has numbers. A
	// column is an interval of time.
	MostSpans = 1536
	// LeastSpans is the number of intervals of keys (spans) that a column of the history keeps when memory gets scarce,
	// if it had as many.
	LeastSpans = 64
	// mostKey is the maximum number of bytes of a key in the history. Longer keys are shortened.
	mostKey = 256

	// Recent is the age up to which columns (intervals of time) of the history stay as they were added. Older columns
	// are joined to columns of a Minute, and those older than Fine to columns of an Hour. Columns older than Kept are
	// forgotten.
	Recent = 10 * time.Minute
	Minute = time.Minute
	Fine   = 24 * time.Hour
	Hour   = time.Hour
	Kept   = 7 * 24 * time.Hour
)

// column is the history of all buckets in one interval of time. Buckets that took requests have entries in parts.
// Another bucket is known to have taken no requests for idle seconds, so that its size did not change. Nothing is known
// of its other seconds.
type column struct {
	from, to int64 // Unix seconds
	idle     int64
	parts    []part
}

// part is the history of one bucket in a column, which is an interval of time: its intervals of keys with their
// numbers. known is the number of seconds to which these numbers apply. A part without intervals of keys means that the
// bucket took no requests in these seconds.
type part struct {
	bucket  store.BucketID
	known   int64
	starts  []uint32 // indices into Book.keys
	figures []Figures
}

// of returns the history of one bucket in the column, which is an interval of time. The result p is nil if the bucket
// took no requests. known is the number of seconds to which the result applies. Nothing is known of the other seconds.
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

// Book is the history of all buckets in bounded memory. A Book is a list of columns in the order of time. Each column
// is an interval of time, and has numbers such as writes per second for each range of keys.
type Book struct {
	// most is the maximum number of bytes of memory for the history.
	most    int64
	columns []column // in the order of time
	keys    keys
	bytes   int64 // bytes of the columns in memory
}

// New returns an empty Book, which is a history of buckets. The parameter `most` is the approximate maximum of its
// memory in bytes, and must be above 1 MiB.
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

// Usage is the size of a Book, which is a history of buckets: its number of columns (intervals of time) and its memory
// in bytes.
type Usage struct {
	Columns      int
	Since        time.Time // start of the oldest column, zero if there are no columns
	Bytes, Limit int64
}

// Usage returns the size of the book, which is a history of buckets. The number of bytes is an estimate.
func (b *Book) Usage() Usage {
	u := Usage{Columns: len(b.columns), Bytes: b.size(), Limit: b.most}
	if len(b.columns) > 0 {
		u.Since = time.Unix(b.columns[0].from, 0).UTC()
	}
	return u
}

func (b *Book) size() int64 { return b.bytes + b.keys.bytes }

// Add adds the history of the time between from and to, in whole seconds. samples has the buckets that took requests.
// If omitted is false, all other buckets took no requests. If omitted is true, nothing is known of the other buckets.
// If the book has columns (intervals of time) after this time, they are dropped, since the clock was set back. An
// interval without a whole second is ignored.
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

// put inserts a column, which is the history of an interval of time, into the book. The parameter `at` is the index of
// the new column. from and to are the bounds of the interval, in Unix seconds. idle is the number of seconds in which a
// bucket without a sample took no requests. Nothing is known of the other seconds of the bucket.
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

// settle makes old history coarser, so that it takes less memory. Columns (intervals of time) are joined to minutes,
// and later to hours, by their age. Columns older than Kept are dropped. The parameter `now` is the present time in
// Unix seconds.
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

// merge joins the columns with the indexes from i to n-1, which are neighbouring intervals of time, into one column.
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

// together returns one sample of a bucket for several columns, which are neighbouring intervals of time. Writes and
// reads per second are means over the known seconds. Rows and bytes are those of the last column that knows them.
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
			out.Spans[i].Figures[Rows], out.Spans[i].Figures[Bytes] = 0, 0 // the sizes of the last column count
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

// shrink reduces the memory of the book to its limit. In each column (interval of time), the oldest first, it joins
// neighbouring intervals of keys. If that is not enough, it drops the oldest columns.
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

// thin makes one column of the book smaller, to save memory. The column has intervals of keys (spans) with their
// numbers, and thin joins neighbouring ones, so that no more than the number most remain. The parameter `at` is the
// index of the column.
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

// allot makes the samples of several buckets smaller, so that all together have at most the number most of intervals of
// keys (spans). It joins neighbouring spans, and busier buckets keep more spans. If there are more than most/2 samples,
// the samples of the least busy buckets are left out.
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
	// Buckets with few spans come first; the spans that they do not need go to the others.
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

// weight returns the importance of an interval of keys with the numbers f. The result is the share of all writes, plus
// the share of all reads, plus half the share of all rows. total has the numbers of all intervals together.
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

// Sum returns the sum of the numbers of the given intervals of keys (spans), for each metric: writes, reads, rows and
// bytes.
func Sum(spans []Span) (total Figures) {
	for i := range spans {
		total.add(&spans[i].Figures)
	}
	return total
}

// Thin joins neighbouring intervals of keys (spans), so that no more than the number most, at least 1, remain. It
// returns the remaining spans. Spans with small shares of the writes, reads and rows are joined. total has the numbers
// of all buckets together. The sum of each number stays the same, except for rounding.
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
	// A group takes in the next span while its weight stays below the limit. Two neighbouring groups have more weight
	// than the limit together. So with the limit high there are at most most groups.
	low, high := 0.0, 2*sum/float64(max(most-1, 1))*(1+1e-9)
	if most == 1 {
		high = 2 * sum
	}
	for range 12 { // twelve halvings come close enough to the best limit
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

// groups divides a list of weights into groups of neighbours, and returns the number of groups. A group ends where its
// sum would exceed limit, but has at least one weight. If f is not nil, groups calls f with the index of the first
// weight of each group, and the index after the last.
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

// clip shortens the start keys of spans, which are intervals of keys, to 256 bytes (mostKey), so that they take less
// memory. A shortened start lies a little lower. Neighbouring spans whose starts become equal are joined.
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
