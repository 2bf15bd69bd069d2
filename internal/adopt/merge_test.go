package adopt

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// buckets is a source of hash buckets that takes no memory: the i-th row of each part is between the (i-1)th and the
// (i+1)th of all parts. It knows what is held of it: of each part of a span the page that was read last.
type buckets struct {
	parts, rows int
	size        func(i int) int // of the values of the i-th rows

	mu         sync.Mutex
	pages      map[string]int64
	held, most int64
}

func (b *buckets) Parts() int { return b.parts }

func (b *buckets) row(part, i int) Row {
	return Row{Key: fmt.Appendf(nil, "%06d/%06d", i, part), Value: bytes.Repeat([]byte{'v'}, b.size(i)), Time: 1}
}

func (b *buckets) Page(_ context.Context, part int, s Span, limit int, _ bool) (out []Row, err error) {
	first := 0
	if s.From != nil {
		if _, err := fmt.Sscanf(string(s.From), "%06d", &first); err != nil {
			return nil, err
		}
	}
	size := int64(0)
	for i := first; i < b.rows && len(out) < limit; i++ {
		r := b.row(part, i)
		if s.To != nil && bytes.Compare(r.Key, s.To) >= 0 {
			break
		}
		if order := bytes.Compare(r.Key, s.From); order > 0 || order == 0 && !s.After {
			out = append(out, r)
			size += int64(len(r.Key) + len(r.Value))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	page := fmt.Sprintf("%d %s", part, s.To)
	b.held += size - b.pages[page]
	b.pages[page], b.most = size, max(b.most, b.held)
	return out, nil
}

func (b *buckets) Get(_ context.Context, part int, key []byte) (Row, bool, error) {
	return Row{}, false, nil
}

func (b *buckets) Same(x, y []byte) bool { return bytes.Equal(x, y) }

// TestComparisonsOfManyPartsHoldLittle: pages shrink with the number of parts, and with the size of rows; what does not
// fit is an error, and nothing is held then.
func TestComparisonsOfManyPartsHoldLittle(t *testing.T) {
	const parts, rows, memory = 1000, 20, 2 << 20
	for _, c := range []struct {
		name   string
		size   func(i int) int
		memory int64
		err    error
	}{
		{name: "small rows", size: func(int) int { return 100 }, memory: memory},
		{name: "small rows, then large ones", size: func(i int) int { return 20 + i/10*1000 }, memory: memory},
		{name: "too large rows", size: func(int) int { return 4000 }, memory: memory, err: ErrMemory},
		{name: "too many parts", size: func(int) int { return 1 }, memory: memory / 16, err: ErrMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := &buckets{parts: parts, rows: rows, size: c.size, pages: map[string]int64{}}
			client, err := listing.New(memstore.New(), listing.Options{})
			require.NoError(t, err)
			require.NoError(t, client.CreateBucket(t.Context(), "b"))
			bucket := client.Bucket("b")
			for i := range rows {
				if c.err != nil {
					break // it comes before anything is compared
				}
				var entries []listing.Entry
				for part := range parts {
					r := source.row(part, i)
					entries = append(entries, listing.Entry{Key: r.Key, Value: r.Value})
				}
				for len(entries) > 0 {
					require.NoError(t, bucket.PutBatch(t.Context(), entries[:500]))
					entries = entries[500:]
				}
			}
			a := New(Options{
				Source: source, Bucket: bucket, Pace: wait.NewPacer(0), Parallel: 2, Memory: c.memory,
				Spans:  Spans([][]byte{source.row(0, rows/2).Key}),
				Report: func(f Finding) { t.Errorf("%s: %s", f.Key, f.Fault) },
			})
			err = a.Compare(t.Context(), false)
			require.LessOrEqual(t, source.most, c.memory)
			require.Zero(t, a.merge.bytes.Load(), "held when all has ended")
			require.Zero(t, a.merge.parts.Load())
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				require.EqualValues(t, parts*rows, a.Counts().Read.Load())
			}
			t.Logf("at most %d bytes held, %d rows read", source.most, a.Counts().Read.Load())
		})
	}
}

// BenchmarkMergeOfManyParts reports the live heap of a comparison's merges when each part has its first page, and takes
// the time of a row.
func BenchmarkMergeOfManyParts(b *testing.B) {
	live := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, size := range []int{10, 1024} {
		for _, parts := range []int{256, 10_000, 100_000} {
			b.Run(fmt.Sprintf("parts=%d/value=%d", parts, size), func(b *testing.B) {
				const spans = 8
				source := &buckets{parts: parts, rows: spans * 100, size: func(int) int { return size }}
				a := New(Options{Source: source, Pace: wait.NewPacer(0), Parallel: spans})
				var cuts [][]byte
				for i := range spans - 1 {
					cuts = append(cuts, source.row(0, (i+1)*100).Key)
				}
				source.pages = map[string]int64{}
				before := live()
				var first func() (placed, error, bool)
				for _, s := range Spans(cuts)[:a.merges()] {
					next, stop := iter.Pull2(a.merged(b.Context(), s))
					defer stop()
					_, err, _ := next()
					require.NoError(b, err)
					if first == nil {
						first = next
					}
				}
				clear(source.pages)
				used := (live() - before) / (1 << 20)
				for b.Loop() {
					if _, err, more := first(); err != nil || !more {
						b.Fatal(err, more)
					}
				}
				b.ReportMetric(used, "MiB")
				b.ReportMetric(float64(a.merges()), "streams")
			})
		}
	}
}
