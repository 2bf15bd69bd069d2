package livemoves

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

func benchKey(i int) []byte { return fmt.Appendf(nil, "photos/2024/%02d/IMG_%09d.jpg", i%12, i) }

// filled is a bucket of one partition with so many rows of about 170 bytes.
func filled(b *testing.B, rows int) (*keyspace, *process) {
	k := newKeyspace(b, mapclient.DefaultLease)
	p := k.process(b, listing.Options{})
	require.NoError(b, p.client.CreateBucket(b.Context(), bucketName))
	keys := make([][]byte, rows)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	slices.SortFunc(keys, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
	p.load(b, keys, func([]byte) []byte { return make([]byte, 135) })
	return k, p
}

// BenchmarkCopy moves one range without a throttle while nobody else does
// anything: rows per second of copying, of comparing, and of both, beside batches of
// the same rows from memory. It does so EVENKEEL_LIVE_WARM times (default 5) until the
// node has compiled what is hot, then EVENKEEL_LIVE_ROUNDS times (default 5), whose
// medians it reports; cold is the very first time.
func BenchmarkCopy(b *testing.B) {
	rows := setting(b, "EVENKEEL_LIVE_ROWS", 300_000)
	warm, rounds := setting(b, "EVENKEEL_LIVE_WARM", 5), setting(b, "EVENKEEL_LIVE_ROUNDS", 5)
	k, p := filled(b, rows)
	mover := k.process(b, listing.Options{})
	rates := map[string][]float64{}
	for n := range warm + rounds {
		took := map[string]time.Duration{"bare": batches(b, p, rows)}
		began := map[string]time.Time{}
		var mu sync.Mutex
		x := executor.New(mover.store, mover.maps, p.id(b),
			executor.Options{Failpoint: func(_ context.Context, point, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if name, ok := strings.CutPrefix(point, "before "); ok {
					began[name] = time.Now()
				} else if name, ok := strings.CutPrefix(point, "after "); ok {
					took[name] += time.Since(began[name])
				}
				return nil
			}})
		rg := p.ranges(b)[0]
		x.Add(move.Refresh(&rg))
		require.NoError(b, x.Run(b.Context()))
		require.Equal(b, int64(rows), x.Progress().Copied)
		took["both"] = took["copy"] + took["compare"]
		rate := func(what string) float64 {
			require.Positive(b, took[what], "no time was taken of %q", what)
			return float64(rows) / took[what].Seconds()
		}
		b.Logf("round %d: copied %.0f, compared %.0f, both %.0f, swept over %.0f, bare batches %.0f rows/s", n+1,
			rate("copy"), rate("compare"), rate("both"), rate("sweep"), rate("bare"))
		if n == 0 {
			b.ReportMetric(rate("both"), "cold-rows/s")
			b.ReportMetric(rate("bare"), "cold-bare-batch-rows/s")
		}
		if n < warm {
			continue
		}
		for _, what := range []string{"copy", "compare", "both", "sweep", "bare"} {
			rates[what] = append(rates[what], rate(what))
		}
		rates["copy/bare"] = append(rates["copy/bare"], rate("copy")/rate("bare"))
	}
	for what, unit := range map[string]string{
		"copy": "copied-rows/s", "compare": "compared-rows/s", "both": "rows/s", "sweep": "swept-over-rows/s",
		"bare": "bare-batch-rows/s", "copy/bare": "copy/bare",
	} {
		slices.Sort(rates[what])
		b.ReportMetric(rates[what][rounds/2], unit)
	}
	b.ReportMetric(0, "ns/op")
}

// batches writes so many rows into a partition of its own, as fast as batches go.
func batches(b *testing.B, p *process, rows int) time.Duration {
	const each = 500 // as the executor's
	dst := store.Partition{Bucket: p.id(b), ID: store.PartitionID(uuid.New())}
	value := store.EntryCell(make([]byte, 135))
	begin := time.Now()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(4)
	for at := 0; at < rows; at += each {
		g.Go(func() error {
			batch := make([]store.Row, min(each, rows-at))
			for i := range batch {
				batch[i] = store.Row{Key: benchKey(at + i), Value: value, Timestamp: 1}
			}
			return p.store.Put(ctx, dst, batch...)
		})
	}
	require.NoError(b, g.Wait())
	took := time.Since(begin)
	require.NoError(b, p.store.Remove(b.Context(), dst, store.Bounds{}, 2))
	return took
}

// BenchmarkForeground offers half of what a node can take, before, during and
// after a move at the default throttle, and compares latencies and throughput.
// EVENKEEL_LIVE_SECONDS is the length of each period (default 10); that of the move
// is as long as it takes.
func BenchmarkForeground(b *testing.B) {
	rows := setting(b, "EVENKEEL_LIVE_ROWS", 300_000)
	period := time.Duration(setting(b, "EVENKEEL_LIVE_SECONDS", 10)) * time.Second
	k, p := filled(b, rows)
	f := &foreground{bucket: p.bucket, rows: rows}
	f.saturate(b, 32, period/4) // warm
	most := f.saturate(b, 32, period)
	b.ReportMetric(most, "saturated-ops/s")

	mover := k.process(b, listing.Options{})
	var quiet, moving span
	for b.Loop() {
		quiet.add(f.offer(b, most/2, after(period)))
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			refresh(b, mover)
		}()
		moving.add(f.offer(b, most/2, moved))
		quiet.add(f.offer(b, most/2, after(period)))
	}
	b.ReportMetric(quiet.percentile(0.50), "quiet-p50-ms")
	b.ReportMetric(quiet.percentile(0.99), "quiet-p99-ms")
	b.ReportMetric(moving.percentile(0.50), "moving-p50-ms")
	b.ReportMetric(moving.percentile(0.99), "moving-p99-ms")
	b.ReportMetric(moving.percentile(0.99)/quiet.percentile(0.99), "p99-ratio")
	b.ReportMetric(moving.throughput()/quiet.throughput(), "throughput-ratio")
	b.ReportMetric(moving.seconds, "moving-s")
	b.ReportMetric(0, "ns/op")
}

// after ends a period.
func after(d time.Duration) <-chan struct{} {
	end := make(chan struct{})
	time.AfterFunc(d, func() { close(end) })
	return end
}

// foreground is a mix of puts, gets and listings of a filled bucket.
type foreground struct {
	bucket *listing.Bucket
	rows   int
}

func (f *foreground) do(r *rand.Rand) error {
	ctx := context.Background()
	key := benchKey(r.IntN(f.rows))
	switch n := r.IntN(20); {
	case n < 10:
		return f.bucket.Put(ctx, key, make([]byte, 135))
	case n < 19:
		_, err := f.bucket.Get(ctx, key)
		return err
	default:
		_, err := f.bucket.List(ctx, listing.Query{From: key, Limit: 100})
		return err
	}
}

// saturate has so many clients do one operation after the other, and returns how
// many they did in a second.
func (f *foreground) saturate(b *testing.B, clients int, d time.Duration) float64 {
	var n atomic.Int64
	var g errgroup.Group
	begin := time.Now()
	for c := range clients {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for time.Since(begin) < d {
				if err := f.do(r); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return float64(n.Load()) / time.Since(begin).Seconds()
}

// span is what came of the operations of one or more periods.
type span struct {
	millis  []float64 // from when each was due to its end
	seconds float64
}

func (s *span) add(o span) {
	s.millis = append(s.millis, o.millis...)
	s.seconds += o.seconds
}

func (s *span) throughput() float64 { return float64(len(s.millis)) / s.seconds }

func (s *span) percentile(p float64) float64 {
	sorted := slices.Sorted(slices.Values(s.millis))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// offer begins operations at a fixed rate, whether or not earlier ones have ended,
// until stop; what then is still under way counts as late as it is.
func (f *foreground) offer(b *testing.B, perSecond float64, stop <-chan struct{}) (s span) {
	const clients = 256
	due := make(chan time.Time, 1<<20)
	var mu sync.Mutex
	var g errgroup.Group
	for c := range clients {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(2, uint64(c)))
			var millis []float64
			for at := range due {
				if err := f.do(r); err != nil {
					return err
				}
				millis = append(millis, time.Since(at).Seconds()*1000)
			}
			mu.Lock()
			defer mu.Unlock()
			s.millis = append(s.millis, millis...)
			return nil
		})
	}
	begin := time.Now()
	each := time.Duration(float64(time.Second) / perSecond)
	for n, more := time.Duration(0), true; more; {
		for next := begin.Add(n * each); !next.After(time.Now()); next = begin.Add(n * each) {
			due <- next
			n++
		}
		select {
		case <-stop:
			more = false
		case <-time.After(200 * time.Microsecond):
		}
	}
	close(due)
	require.NoError(b, g.Wait())
	s.seconds = time.Since(begin).Seconds()
	return s
}

// refresh rewrites the whole bucket into a fresh partition, as a rebalancer does it
// whose throttle is EVENKEEL_LIVE_RATE rows per second.
func refresh(b *testing.B, p *process) {
	ctx, cancel := context.WithCancel(context.Background())
	m := scheduler.New(p.store, p.maps, scheduler.Options{RowsPerSecond: setting(b, "EVENKEEL_LIVE_RATE", 10_000)})
	var g sync.WaitGroup
	g.Go(func() {
		if err := m.Run(ctx); ctx.Err() == nil {
			b.Errorf("the manager ended: %v", err)
		}
	})
	defer g.Wait()
	defer cancel()
	id := p.id(b)
	plan, err := m.Plan(ctx, id, scheduler.Ask{Kind: scheduler.Refresh})
	if err != nil {
		b.Error(err)
		return
	}
	job := m.Submit(id, "refresh", plan)
	for job.Ended.IsZero() && !b.Failed() {
		time.Sleep(10 * time.Millisecond)
		job, _ = m.Job(job.ID)
	}
	if err := job.Err(); err != nil {
		b.Error(err)
	}
}
