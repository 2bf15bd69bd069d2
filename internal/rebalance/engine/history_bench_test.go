package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkHistoryOfPages compares pages of 1,000 entries that are counted with those that are not, by turns; and measures a
// sample of 100,000 ranges that all took requests, of which there is one every ten seconds, by its processor time. percent is
// what both cost of a page's time, while pages take a whole core.
func BenchmarkHistoryOfPages(b *testing.B) {
	const rows, ranges = 10_000, 100_000
	ctx := context.Background()
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	require.NoError(b, err)
	defer s.Close()
	counts := countbook.NewMemory(nil)
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	defer func() { _ = recorder.Close(ctx) }()
	others := counter.NewRecorder(counts, counter.RecorderOptions{MaxPartitions: 2 * ranges, Every: -1})
	counted, err := listing.New(s, listing.Options{Recorder: recorder})
	require.NoError(b, err)
	defer mapclient.Of(counted).Close()
	plain, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	defer mapclient.Of(plain).Close()

	cuts := make([][]byte, ranges-1)
	for i := range cuts {
		cuts[i] = fmt.Appendf(nil, "%06d", i)
	}
	require.NoError(b, counted.CreateBucket(ctx, "wide", cuts...))
	require.NoError(b, counted.CreateBucket(ctx, "pages"))
	for i := range rows {
		require.NoError(b, counted.Bucket("pages").Put(ctx, fmt.Appendf(nil, "%06d", i), []byte("a value of some bytes")))
	}
	wide, err := counted.BucketID(ctx, "wide")
	require.NoError(b, err)
	root, err := mapclient.Of(counted).Load(ctx, wide)
	require.NoError(b, err)
	var parts []store.Partition
	for rg, err := range mapclient.Of(counted).Ranges(ctx, root, nil) {
		require.NoError(b, err)
		parts = append(parts, store.Partition{Bucket: wide, ID: rg.Partition})
	}
	h := newHistory("", slog.New(slog.DiscardHandler))
	balance := balancer.For(100_000, 0, time.Hour, time.Second)
	look := balancer.New(s, mapclient.Of(counted), nil, counts, balance)

	page := func(c *listing.Client, i int) time.Duration {
		began := time.Now()
		p, err := c.Bucket("pages").List(ctx, listing.Query{After: fmt.Appendf(nil, "%06d", i*37%(rows-1000)), Limit: 1000})
		require.NoError(b, err)
		require.Len(b, p.Items, 1000)
		return time.Since(began)
	}
	var without, with, sampling []time.Duration
	for b.Loop() {
		for range 200 {
			without = append(without, page(plain, len(without)))
			with = append(with, page(counted, len(with)))
		}
		b.StopTimer()
		for _, p := range parts {
			others.Read(p, nil)
		}
		require.NoError(b, others.Flush(ctx))
		h.changed(parts)
		b.StartTimer()
		now, began := time.Now(), processor(b)
		h.sample(ctx, look, now.Add(-sampleEvery), now)
		sampling = append(sampling, processor(b)-began)
	}
	// What else the machine does makes some slower, none faster.
	typical := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/10])
	}
	share := typical(sampling) / float64(sampleEvery)
	b.ReportMetric(typical(without)/1e3, "plain-µs/page")
	b.ReportMetric(typical(with)/1e3, "counted-µs/page")
	b.ReportMetric(typical(sampling)/1e6, "ms/sample")
	b.ReportMetric(100*(typical(with)/typical(without)-1+share), "percent")
	b.ReportMetric(float64(h.book.Usage().Bytes)/1e6, "MB")
}

// processor is the processor time of this process so far.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHistoryOfADay keeps a day of a bucket of 100,000 ranges whose hot ones wander, and draws it.
func BenchmarkHistoryOfADay(b *testing.B) {
	const ranges = 100_000
	spans := make([]heat.Span, ranges)
	for i := range spans {
		spans[i] = heat.Span{Start: fmt.Sprintf("tenant-%03d/2026/03/%08d", i/1000, i), Figures: heat.Figures{0.1, 0.1, 80_000, 8e6}}
	}
	spans[0].Start = ""
	id := store.BucketID{15: 1}
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		book := heat.New(historyBytes)
		for minute := range 24 * 60 {
			hot := make([]heat.Span, 0, 4*heat.MostSpans)
			for i := range 200 {
				spans[(minute*131+i*499)%ranges].Figures[heat.Writes] = 500
			}
			hot = append(hot, heat.Thin(spans, 4*heat.MostSpans, heat.Sum(spans))...)
			for i := range 200 {
				spans[(minute*131+i*499)%ranges].Figures[heat.Writes] = 0.1
			}
			at := began.Add(time.Duration(minute) * time.Minute)
			book.Add(at, at.Add(time.Minute), []heat.Sample{{Bucket: id, Spans: hot}}, false)
		}
		u := book.Usage()
		b.ReportMetric(float64(u.Bytes)/1e6, "MB")
		from := time.Now()
		book.Draw(heat.Window{
			Bucket: id, From: began, To: began.Add(24 * time.Hour), Width: 240, Height: 200, Metrics: heat.All,
		})
		b.ReportMetric(float64(time.Since(from))/1e6, "ms/picture")
		from = time.Now()
		file := heat.Encode(book, &heat.Log{})
		b.ReportMetric(float64(time.Since(from))/1e6, "ms/file")
		b.ReportMetric(float64(len(file))/1e6, "MB/file")
	}
}
