package heat_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// roomy is more than a test needs.
const roomy = 1 << 30

func id(n byte) store.BucketID { return store.BucketID{15: n} }

// spans are n ranges with random figures, of which some take most requests.
func spans(r *rand.Rand, n int) []heat.Span {
	cuts := map[string]bool{"": true}
	for len(cuts) < n {
		cuts[fmt.Sprintf("k%06d", r.IntN(20*n))] = true
	}
	var out []heat.Span
	for cut := range cuts {
		s := heat.Span{Start: cut}
		for m := range s.Figures {
			s.Figures[m] = float32(r.IntN(100))
			if r.IntN(50) == 0 {
				s.Figures[m] *= 1000
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b heat.Span) int { return bytes.Compare([]byte(a.Start), []byte(b.Start)) })
	return out
}

// near is equal but for what float32 rounds: 2^-24 for each addition, of which there are few thousand at most.
func near(t *testing.T, want, got float64, what ...any) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(want-got), 1e-4*max(1, math.Abs(want)), fmt.Sprint(want, got, what))
}

func whole(bucket store.BucketID, from, to time.Time, width, height int) heat.Window {
	return heat.Window{Bucket: bucket, From: from, To: to, Width: width, Height: height, Metrics: heat.All}
}

// sums adds up the cells of each column of a picture.
func sums(p *heat.Picture, m heat.Metric) []float64 {
	rows := len(p.Starts)
	out := make([]float64, len(p.Times)-1)
	for x := range out {
		for y := range rows {
			out[x] += p.Cells[m][x*rows+y]
		}
	}
	return out
}

// TestThinKeepsSums and keeps hot spans by themselves.
func TestThinKeepsSums(t *testing.T) {
	r := seed.New(t)
	for range 200 {
		all := spans(r, 1+r.IntN(3000))
		most := 1 + r.IntN(400)
		total := heat.Sum(all)
		thin := heat.Thin(all, most, total)
		require.LessOrEqual(t, len(thin), most)
		require.Equal(t, min(len(all), 1), min(len(thin), 1))
		require.Empty(t, thin[0].Start)
		got := heat.Sum(thin)
		for m := range total {
			near(t, float64(total[m]), float64(got[m]), heat.Metric(m).Name())
		}
		for i := range thin[1:] {
			require.Less(t, thin[i].Start, thin[i+1].Start)
		}
	}
	// What takes a tenth of all is by itself, among 100,000 that take the rest.
	all := make([]heat.Span, 100_000)
	for i := range all {
		all[i] = heat.Span{Start: fmt.Sprintf("%06d", i), Figures: heat.Figures{1, 1, 100, 1000}}
	}
	all[0].Start = ""
	all[71_717].Figures[heat.Reads] = 11_111
	thin := heat.Thin(all, heat.MostSpans, heat.Sum(all))
	require.Greater(t, len(thin), heat.MostSpans*9/10, "spans are wasted")
	i := slices.IndexFunc(thin, func(s heat.Span) bool { return s.Start == "071717" })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, "071718", thin[i+1].Start)
}

// reference is what a picture must show, by adding up what was put in: per second for rates, per bucket.
type reference struct {
	at      []time.Time // ends of samples
	from    []time.Time
	samples [][]heat.Sample
	omitted []bool
}

func (o *reference) add(b *heat.Book, from, to time.Time, samples []heat.Sample, omitted bool) {
	o.from, o.at, o.samples = append(o.from, from), append(o.at, to), append(o.samples, samples)
	o.omitted = append(o.omitted, omitted)
	b.Add(from, to, samples, omitted)
}

// of returns a bucket's sample, and whether something is known of it; nil: that it took no requests.
func (o *reference) of(i int, bucket store.BucketID) (s *heat.Sample, known bool) {
	for k := range o.samples[i] {
		if s := &o.samples[i][k]; s.Bucket == bucket {
			return s, len(s.Spans) > 0
		}
	}
	return nil, !o.omitted[i]
}

// mean is the requests per second of a bucket over some time, of which known seconds are known.
func (o *reference) mean(bucket store.BucketID, m heat.Metric, from, to time.Time) (mean, known float64) {
	sum := 0.0
	for i := range o.at {
		f, t := o.from[i], o.at[i]
		if f.Before(from) {
			f = from
		}
		if t.After(to) {
			t = to
		}
		if !f.Before(t) {
			continue
		}
		s, there := o.of(i, bucket)
		if !there {
			continue
		}
		known += t.Sub(f).Seconds()
		if s != nil {
			total := heat.Sum(s.Spans)
			sum += float64(total[m]) * t.Sub(f).Seconds()
		}
	}
	return sum / max(known, 1), known
}

// held is what the bucket had at a time.
func (o *reference) held(bucket store.BucketID, m heat.Metric, at time.Time) (v float64, known bool) {
	for i := range o.at {
		if o.from[i].Before(at) {
			if s, there := o.of(i, bucket); s != nil && there {
				total := heat.Sum(s.Spans)
				v, known = float64(total[m]), true
			}
		}
	}
	return v, known
}

// TestPicturesKeepSums: whatever was put together by age and for the picture, each column of it has the sums of what was
// put in at that time: rates as means over the time that is known, rows and bytes as at its end.
func TestPicturesKeepSums(t *testing.T) {
	r := seed.New(t)
	for range 20 {
		b, o := heat.New(roomy), &reference{}
		now := began
		layouts := map[store.BucketID][]heat.Span{}
		for range 60 + r.IntN(400) {
			from := now
			if r.IntN(40) == 0 { // the process was not there
				from = from.Add(time.Duration(r.IntN(40)) * time.Minute)
			}
			now = from.Add([]time.Duration{10, 10, 10, 60, 7, 1800}[r.IntN(6)] * time.Second)
			var samples []heat.Sample
			for n := byte(1); n <= 3; n++ {
				if r.IntN(4) == 0 {
					continue // it took nothing
				}
				if layouts[id(n)] == nil || r.IntN(5) == 0 {
					layouts[id(n)] = spans(r, 1+r.IntN(300)) // it was cut anew
				}
				samples = append(samples, heat.Sample{Bucket: id(n), Spans: layouts[id(n)]})
				if r.IntN(8) == 0 {
					samples[len(samples)-1].Spans = nil // it could not be read
				}
			}
			o.add(b, from, now, samples, r.IntN(8) == 0)
		}
		// Columns at full hours: so none that was put together lies across the edge of one.
		for n := byte(1); n <= 4; n++ {
			from := now.Truncate(time.Hour).Add(-time.Duration(r.IntN(72)) * time.Hour)
			hours := int(now.Sub(from)/time.Hour) + 1
			w := whole(id(n), from, from.Add(time.Duration(hours)*time.Hour), hours, 1+r.IntN(500))
			require.NoError(t, w.Check())
			p := b.Draw(w)
			require.Len(t, p.Times, hours+1)
			require.Equal(t, int64(3600), p.Step)
			for _, m := range heat.All {
				for x, got := range sums(&p, m) {
					start := time.Unix(p.Times[x], 0).UTC()
					what := []any{m.Name(), n, start}
					mean, known := o.mean(id(n), m, start, start.Add(time.Hour))
					held, there := o.held(id(n), m, start.Add(time.Hour))
					switch {
					case known == 0, m >= heat.Rows && !there:
						crossing(t, o, start, func() { require.Equal(t, float64(heat.Unknown*len(p.Starts)), got, fmt.Sprint(what...)) })
					case m < heat.Rows:
						crossing(t, o, start, func() { near(t, mean, got, what...) })
					default:
						crossing(t, o, start, func() { near(t, held, got, what...) })
					}
				}
			}
		}
	}
}

// crossing calls check unless a sample lies across an edge of the hour: its minute or hour then counts as a whole to where
// it ends.
func crossing(t *testing.T, o *reference, start time.Time, check func()) {
	t.Helper()
	for _, edge := range []time.Time{start, start.Add(time.Hour)} {
		for i := range o.at {
			if o.from[i].Before(edge) && o.at[i].After(edge) {
				return
			}
		}
	}
	check()
}

// TestWindowsAddUp: windows side by side, cut where spans begin, have the sums of the whole; one cut elsewhere has the spans
// that it touches.
func TestWindowsAddUp(t *testing.T) {
	r := seed.New(t)
	for range 50 {
		b := heat.New(roomy)
		now := began
		for range 30 {
			all := spans(r, 1+r.IntN(50))
			all = slices.DeleteFunc(all, func(s heat.Span) bool { return s.Start == "k0004" })
			i, _ := slices.BinarySearchFunc(all, "k0004", func(s heat.Span, k string) int { return cmp.Compare(s.Start, k) })
			all = slices.Insert(all, i, heat.Span{Start: "k0004", Figures: heat.Figures{1, 2, 3, 4}})
			b.Add(now, now.Add(time.Minute), []heat.Sample{{Bucket: id(1), Spans: all}}, false)
			now = now.Add(time.Minute)
		}
		w := whole(id(1), began, now, 30, 1+r.IntN(100))
		all := b.Draw(w)
		low, high, odd := w, w, w
		low.End, high.Start, odd.Start, odd.End = "k0004", "k0004", "k0003999", "k0004"
		below, above, one := b.Draw(low), b.Draw(high), b.Draw(odd)
		require.Equal(t, "k0004", above.Starts[0])
		require.Equal(t, "k0004", below.End)
		require.Len(t, one.Starts, 1)
		require.Less(t, one.Starts[0], "k0004")
		for _, m := range heat.All {
			lows, highs, sum := sums(&below, m), sums(&above, m), sums(&all, m)
			for x := range sum {
				near(t, sum[x], lows[x]+highs[x])
			}
		}
	}
}

// TestHotRangesKeepTheirRow after a day and in a small picture.
func TestHotRangesKeepTheirRow(t *testing.T) {
	b := heat.New(roomy)
	now := began
	ranges := make([]heat.Span, 5000)
	for i := range ranges {
		ranges[i] = heat.Span{Start: fmt.Sprintf("%04d", i), Figures: heat.Figures{0.01, 0, 1000, 1}}
	}
	ranges[0].Start = ""
	ranges[1234].Figures[heat.Writes] = 5000
	for range 26 * 60 {
		b.Add(now, now.Add(time.Minute), []heat.Sample{{Bucket: id(1), Spans: ranges}}, false)
		now = now.Add(time.Minute)
	}
	p := b.Draw(heat.Window{Bucket: id(1), From: began, To: now, Width: 26, Height: 200, Metrics: []heat.Metric{heat.Writes}})
	rows := len(p.Starts)
	for x := range len(p.Times) - 1 {
		column := p.Cells[heat.Writes][x*rows : (x+1)*rows]
		hot := slices.Index(column, slices.Max(column))
		require.InDelta(t, 5000, column[hot], 1, x)
		require.LessOrEqual(t, p.Starts[hot], "1234")
		require.Greater(t, p.Starts[hot+1], "1234")
	}
}

// TestMemoryIsBounded whatever comes, and a day of 100,000 ranges of which the hot ones change has its minutes.
func TestMemoryIsBounded(t *testing.T) {
	r := seed.New(t)
	const most = 4 << 20
	b := heat.New(most)
	now := began
	for i := range 250 {
		var samples []heat.Sample
		for n := range byte(1 + r.IntN(20)) {
			all := spans(r, 1+r.IntN(400))
			for k := range all[1:] { // keys that come once, long ones
				all[k+1].Start += fmt.Sprintf("-%d-%s", i, bytes.Repeat([]byte{'x'}, r.IntN(600)))
			}
			samples = append(samples, heat.Sample{Bucket: id(n), Spans: all})
		}
		b.Add(now, now.Add(time.Minute), samples, false)
		now = now.Add(time.Minute)
		require.LessOrEqual(t, b.Usage().Bytes, int64(most))
	}
	p := b.Draw(whole(id(0), now.Add(-time.Hour), now, 60, 10))
	require.NotContains(t, p.Cells[heat.Writes], float64(heat.Unknown))
}

// TestTheClockIsSetBack: what is later is dropped, and it goes on.
func TestTheClockIsSetBack(t *testing.T) {
	b := heat.New(roomy)
	for i := range 20 {
		at := began.Add(time.Duration(i) * time.Minute)
		b.Add(at, at.Add(time.Minute), []heat.Sample{{Bucket: id(1), Spans: []heat.Span{{Figures: heat.Figures{1}}}}}, false)
	}
	back := began.Add(5 * time.Minute)
	b.Add(back, back.Add(time.Minute), []heat.Sample{{Bucket: id(1), Spans: []heat.Span{{Figures: heat.Figures{7}}}}}, false)
	p := b.Draw(whole(id(1), began, began.Add(10*time.Minute), 10, 1))
	require.Equal(t, []float64{1, 1, 1, 1, 1, 7, -1, -1, -1, -1}, p.Cells[heat.Writes])
}

// TestFiles: what is written is read, and nothing else is.
func TestFiles(t *testing.T) {
	r := seed.New(t)
	b, l := heat.New(roomy), &heat.Log{}
	now := began
	for range 100 {
		b.Add(now, now.Add(time.Minute), []heat.Sample{
			{Bucket: id(1), Spans: spans(r, 1+r.IntN(100))}, {Bucket: id(2), Spans: spans(r, 1+r.IntN(10))}, {Bucket: id(3)},
		}, r.IntN(2) == 0)
		now = now.Add(time.Minute)
	}
	for i := range 50 {
		l.Add(heat.Event{Kind: "split", Start: []byte{byte(i), 0xff}, State: heat.Begun, Why: "why"})
	}
	l.Change(7, func(e *heat.Event) { e.State = heat.Met })
	file := heat.Encode(b, l)
	b2, l2, err := heat.Decode(file, roomy)
	require.NoError(t, err)
	w := whole(id(1), began, now, 100, 50)
	require.Equal(t, b.Draw(w), b2.Draw(w))
	require.Equal(t, b.Usage().Bytes, b2.Usage().Bytes)
	require.Equal(t, l.Last(), l2.Last())
	l2.Before(8, func(e *heat.Event) bool {
		if e.ID == 7 {
			require.Equal(t, heat.Met, e.State)
		} else {
			require.Equal(t, heat.Left, e.State)
		}
		return true
	})
	for range 300 {
		bad := slices.Clone(file)
		switch r.IntN(3) {
		case 0:
			bad = bad[:r.IntN(len(bad))]
		case 1:
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		default:
			bad = append(bad, 0)
		}
		_, _, err := heat.Decode(bad, roomy)
		require.Error(t, err)
	}
}

// TestFilesOfTheFirstForm are read.
func TestFilesOfTheFirstForm(t *testing.T) {
	file, err := os.ReadFile("testdata/history-1")
	require.NoError(t, err)
	b, l, err := heat.Decode(file, roomy)
	require.NoError(t, err)
	require.Equal(t, int64(1), l.Last())
	p := b.Draw(whole(id(1), began, began.Add(4*time.Minute), 4, 2))
	require.Equal(t, []float64{0, 5, 1, 5, 2, 5, -1, -1}, p.Cells[heat.Writes])
	idle := b.Draw(whole(id(2), began, began.Add(4*time.Minute), 4, 2))
	require.Equal(t, []float64{0, 0, 0, -1}, idle.Cells[heat.Writes])
}

// TestGapsAreThoseOfTheirBucket: of one that could not be read nothing is known, and of idle ones only where none was
// omitted.
func TestGapsAreThoseOfTheirBucket(t *testing.T) {
	b := heat.New(roomy)
	at := began
	add := func(omitted bool, samples ...heat.Sample) {
		b.Add(at, at.Add(10*time.Second), samples, omitted)
		at = at.Add(10 * time.Second)
	}
	of := func(n byte, rate float32) heat.Sample {
		return heat.Sample{Bucket: id(n), Spans: []heat.Span{{Figures: heat.Figures{rate, 0, 7, 0}}}}
	}
	add(false, of(1, 1), of(2, 2))
	add(false, of(1, 3), heat.Sample{Bucket: id(2)})
	add(true, of(1, 5))
	add(false)
	draw := func(n byte, width int) ([]float64, []float64) {
		p := b.Draw(whole(id(n), began, at, width, 1))
		return p.Cells[heat.Writes], p.Cells[heat.Rows]
	}
	for n, want := range map[byte][2][]float64{
		1: {{1, 3, 5, 0}, {7, 7, 7, 7}}, 2: {{2, -1, -1, 0}, {7, -1, -1, 7}}, 3: {{0, 0, -1, 0}, {-1, -1, -1, -1}},
	} {
		writes, rows := draw(n, 4)
		require.Equal(t, want, [2][]float64{writes, rows}, n)
	}
}

// FuzzDecode: no input makes it panic, or take more memory than its bound; what is accepted can be used.
func FuzzDecode(f *testing.F) {
	b, l := heat.New(roomy), &heat.Log{}
	b.Add(began, began.Add(time.Minute), []heat.Sample{{Bucket: id(1), Spans: []heat.Span{{}, {Start: "m"}}}}, false)
	l.Add(heat.Event{Kind: "roll"})
	f.Add(heat.Encode(b, l))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		b, l, err := heat.Decode(file, 2<<20)
		if err != nil {
			return
		}
		b.Draw(whole(id(1), began, began.Add(time.Hour), 60, 10))
		_, _, err = heat.Decode(heat.Encode(b, l), 2<<20)
		require.NoError(t, err)
	})
}

// TestLogIsBounded in events and in bytes.
func TestLogIsBounded(t *testing.T) {
	l := &heat.Log{}
	for range 30_000 {
		l.Add(heat.Event{Kind: "split", Why: string(make([]byte, 2000)), Start: make([]byte, 5000)})
	}
	n, bytes := 0, 0
	l.Before(0, func(e *heat.Event) bool {
		n++
		bytes += len(e.Why) + len(e.Start)
		return true
	})
	require.Less(t, bytes, 16<<20)
	require.Greater(t, n, 10_000)
	_, ok := l.Change(1, func(*heat.Event) {})
	require.False(t, ok)
}
