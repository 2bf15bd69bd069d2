package adopt_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// counted is a source that counts its calls, and fails where it is told to.
type counted struct {
	*parts
	calls, gets, asked atomic.Int64 // all, gets, and rows asked for in pages
	early              atomic.Int64 // gets before the last page
	from, to           int64        // numbers of the calls that fail
	err                error
	every              func(n int64) // before call number n
}

func (c *counted) next() error {
	n := c.calls.Add(1)
	if c.every != nil {
		c.every(n)
	}
	if c.err != nil && n >= c.from && n < c.to {
		return c.err
	}
	return nil
}

func (c *counted) Page(ctx context.Context, part int, s adopt.Span, limit int, values bool) ([]adopt.Row, error) {
	if err := c.next(); err != nil {
		return nil, err
	}
	c.asked.Add(int64(limit))
	c.early.Store(c.gets.Load())
	return c.parts.Page(ctx, part, s, limit, values)
}

func (c *counted) Get(ctx context.Context, part int, key []byte) (adopt.Row, bool, error) {
	if err := c.next(); err != nil {
		return adopt.Row{}, false, err
	}
	c.gets.Add(1)
	return c.parts.Get(ctx, part, key)
}

func newBucket(t *testing.T, s store.Store, cuts ...[]byte) *listing.Bucket {
	t.Helper()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	return c.Bucket("b")
}

func contents(t *testing.T, b *listing.Bucket) map[string]string {
	t.Helper()
	got := map[string]string{}
	for item, err := range b.All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		got[string(item.Key)] = string(item.Value)
	}
	return got
}

// differing returns a source, and fills a bucket, that differ in runs of keys: what a comparison finds, and how the
// bucket is when it has been mended.
func differing(t *testing.T, random *rand.Rand, b *listing.Bucket, n, keys int) (
	source *parts, found map[adopt.Difference][]string, mended map[string]string,
) {
	t.Helper()
	source, found, mended = &parts{rows: make([][]adopt.Row, n)}, map[adopt.Difference][]string{}, map[string]string{}
	var entries []listing.Entry
	state, left := 0, 0
	for i := range keys {
		if left--; left < 0 {
			state, left = random.IntN(6), random.IntN(max(2, keys/8))
		}
		key := fmt.Sprintf("k%05d", i)
		row := adopt.Row{Key: []byte(key), Value: []byte(key), Time: store.Timestamp(i + 1)}
		here, there := key, true
		switch mended[key] = key; state {
		case 0:
			here, found[adopt.Missing] = "", append(found[adopt.Missing], key)
		case 1:
			here, found[adopt.Differing] = "another", append(found[adopt.Differing], key)
		case 2:
			there, found[adopt.Extra] = false, append(found[adopt.Extra], key)
			delete(mended, key)
		case 3:
			row.Refused, here = adopt.Expires, []string{"", "any"}[i%2]
			found[adopt.Difference(adopt.Expires)] = append(found[adopt.Difference(adopt.Expires)], key)
			if mended[key] = here; here == "" {
				delete(mended, key)
			}
		}
		if there {
			part := random.IntN(n)
			source.rows[part] = append(source.rows[part], row)
		}
		if here != "" {
			entries = append(entries, listing.Entry{Key: []byte(key), Value: []byte(here)})
		}
	}
	if len(entries) > 0 {
		require.NoError(t, b.PutBatch(t.Context(), entries))
	}
	return source, found, mended
}

func adoption(source adopt.Source, b *listing.Bucket, cuts [][]byte, report func(adopt.Finding)) *adopt.Adoption {
	return adopt.New(adopt.Options{
		Source: source, Bucket: b, Pace: wait.NewPacer(0), Parallel: 3, Spans: adopt.Spans(cuts), Report: report,
	})
}

// TestComparisonsFindWhatDiffers: long runs of keys that are missing, extra, different or refused are found, each once,
// and mended, however they lie in the parts.
func TestComparisonsFindWhatDiffers(t *testing.T) {
	for _, c := range []struct{ parts, keys int }{{1, 40}, {1, 3000}, {3, 2000}, {20, 1000}, {7, 1}} {
		t.Run(fmt.Sprintf("%d parts, %d keys", c.parts, c.keys), func(t *testing.T) {
			random := seed.New(t)
			synctest.Test(t, func(t *testing.T) {
				cuts := [][]byte{fmt.Appendf(nil, "k%05d", c.keys/2)}
				b := newBucket(t, memstore.New(), cuts...)
				source, want, mended := differing(t, random, b, c.parts, c.keys)
				before := contents(t, b)
				got := map[adopt.Difference][]string{}
				report := func(f adopt.Finding) {
					got[adopt.Difference(f.Fault)] = append(got[adopt.Difference(f.Fault)], string(f.Key))
				}
				a := adoption(source, b, cuts, report)
				require.NoError(t, a.Compare(t.Context(), false))
				for _, keys := range got {
					slices.Sort(keys)
				}
				require.Equal(t, want, got)
				require.Equal(t, before, contents(t, b))
				rows, refused := 0, len(want[adopt.Difference(adopt.Expires)])
				for _, part := range source.rows {
					rows += len(part)
				}
				differ := len(want[adopt.Missing]) + len(want[adopt.Differing]) + len(want[adopt.Extra])
				n := a.Counts()
				require.EqualValues(t, []int64{int64(rows), int64(refused), int64(differ), 0, 0}, []int64{
					n.Read.Load(), n.Refused.Load(), n.Different.Load(), n.Put.Load(), n.Deleted.Load()})

				clear(got)
				a = adoption(source, b, cuts, report)
				require.NoError(t, a.Compare(t.Context(), true))
				require.Equal(t, mended, contents(t, b))
				require.Len(t, got, min(refused, 1), "what is mended is not reported")
				n = a.Counts()
				put := len(want[adopt.Missing]) + len(want[adopt.Differing])
				require.EqualValues(t, []int{rows, refused, differ, put, differ - put}, []int{int(n.Read.Load()),
					int(n.Refused.Load()), int(n.Different.Load()), int(n.Put.Load()), int(n.Deleted.Load())})
				a = adoption(source, b, cuts, report)
				require.NoError(t, a.Compare(t.Context(), true))
				require.Zero(t, a.Counts().Different.Load())
			})
		})
	}
}

// TestDifferencesThatPass: a program that writes to both sides has some seconds to finish its second write; what still
// differs then is reported.
func TestDifferencesThatPass(t *testing.T) {
	for _, c := range []struct {
		after    time.Duration
		reported bool
	}{{0, false}, {time.Second, false}, {3 * time.Second, false}, {5 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBucket(t, memstore.New())
			begin := time.Now()
			source := &counted{parts: &parts{rows: [][]adopt.Row{{}}}}
			source.every = func(n int64) {
				if n == 1 { // the first page of the source, before any look
					source.rows[0] = []adopt.Row{{Key: []byte("k"), Value: []byte("v"), Time: 1}}
				}
			}
			second := time.AfterFunc(c.after+time.Millisecond, func() {
				if err := b.Put(context.Background(), []byte("k"), []byte("v")); err != nil {
					t.Error(err)
				}
			})
			defer second.Stop()
			var found []adopt.Finding
			a := adoption(source, b, nil, func(f adopt.Finding) { found = append(found, f) })
			require.NoError(t, a.Compare(t.Context(), false))
			took := time.Since(begin)
			require.Less(t, took, 5*time.Second)
			if c.reported {
				require.Equal(t, []adopt.Finding{{Key: []byte("k"), Fault: string(adopt.Missing)}}, found)
				require.GreaterOrEqual(t, took, 3*time.Second)
				return
			}
			require.Empty(t, found)
			require.Zero(t, a.Counts().Different.Load())
			require.LessOrEqual(t, took, max(2*c.after, time.Second), "nothing is left to wait for")
		})
	}
}

// TestComparisonsEndWithTheirContext: also in a pause between two looks.
func TestComparisonsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, memstore.New())
		source := &parts{rows: [][]adopt.Row{{{Key: []byte("k"), Time: 1}}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := adoption(source, b, nil, func(f adopt.Finding) { t.Errorf("%+v", f) }).Compare(ctx, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// TestCostsOfWhatIsExtra: keys that only the bucket has may lie in any part. Where few rows lie between them, these are
// read again; else each part is asked for each key.
func TestCostsOfWhatIsExtra(t *testing.T) {
	for _, c := range []struct {
		name              string
		parts, rows       int
		extra             []int // behind which rows
		mostGets, mostAsk int
	}{
		{"many side by side", 50, 1000, seq(100, 200, 1), 0, 50 * 64},
		{"two far apart", 2, 20_000, []int{100, 19_000}, 4, 0},
		{"none", 50, 1000, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBucket(t, memstore.New())
			source := &counted{parts: &parts{rows: make([][]adopt.Row, c.parts)}}
			var entries []listing.Entry
			for i := range c.rows {
				row := adopt.Row{Key: fmt.Appendf(nil, "k%05d", i), Value: []byte("v"), Time: 1}
				source.rows[i%c.parts] = append(source.rows[i%c.parts], row)
				entries = append(entries, listing.Entry{Key: row.Key, Value: row.Value})
			}
			for _, i := range c.extra {
				entries = append(entries, listing.Entry{Key: fmt.Appendf(nil, "k%05d+", i), Value: []byte("v")})
			}
			for batch := range slices.Chunk(entries, 500) {
				require.NoError(t, b.PutBatch(t.Context(), batch))
			}
			a := adoption(source, b, nil, func(f adopt.Finding) { t.Errorf("%+v", f) })
			require.NoError(t, a.Compare(t.Context(), true))
			again := source.asked.Load()
			require.EqualValues(t, len(c.extra), a.Counts().Deleted.Load())
			require.LessOrEqual(t, source.gets.Load(), int64(c.mostGets))
			require.Len(t, contents(t, b), c.rows)
			source.asked.Store(0)
			source.gets.Store(0)
			require.NoError(t, adoption(source, b, nil, func(adopt.Finding) {}).Compare(t.Context(), true))
			require.Zero(t, source.gets.Load())
			require.LessOrEqual(t, again-source.asked.Load(), int64(c.mostAsk), "rows that were asked for again")
		})
	}
}

func seq(from, to, step int) (out []int) {
	for i := from; i < to; i += step {
		out = append(out, i)
	}
	return out
}

// TestTheNewestRowOfSeveralCounts: where several parts have a key, the newest row is the one that is compared, and each
// further one is reported.
func TestTheNewestRowOfSeveralCounts(t *testing.T) {
	row := func(value string, at int) []adopt.Row {
		return []adopt.Row{{Key: []byte("k"), Value: []byte(value), Time: store.Timestamp(at)}}
	}
	for i, c := range []struct {
		rows [][]adopt.Row
		want string
	}{
		{[][]adopt.Row{row("a", 3), row("b", 2), row("c", 1)}, "a"},
		{[][]adopt.Row{row("a", 1), row("b", 3), row("c", 2)}, "b"},
		{[][]adopt.Row{row("a", 1), {}, row("c", 2)}, "c"},
		{[][]adopt.Row{row("a", 1), row("b", 1), row("a", 1)}, "b"},
	} {
		b := newBucket(t, memstore.New())
		var found []string
		a := adoption(&parts{rows: c.rows}, b, nil, func(f adopt.Finding) { found = append(found, f.Fault) })
		require.NoError(t, a.Compare(t.Context(), true))
		require.Equal(t, map[string]string{"k": c.want}, contents(t, b), i)
		others := -1
		for _, part := range c.rows {
			others += len(part)
		}
		require.Equal(t, slices.Repeat([]string{string(adopt.Collision)}, others), found)
		require.EqualValues(t, others, a.Counts().Refused.Load())
	}
}

// TestEachCallOfTheSourceFails: an error that does not pass ends a copy or a comparison, and is the one that is
// returned. One that passes changes nothing.
func TestEachCallOfTheSourceFails(t *testing.T) {
	random := seed.New(t)
	for name, run := range map[string]func(context.Context, *adopt.Adoption) error{
		"copy": func(ctx context.Context, a *adopt.Adoption) error {
			return a.Copy(ctx, adopt.NewDone("task", 3, nil, 0))
		},
		"catch up": func(ctx context.Context, a *adopt.Adoption) error { return a.Compare(ctx, true) },
		"compare":  func(ctx context.Context, a *adopt.Adoption) error { return a.Compare(ctx, false) },
	} {
		for _, failure := range []error{
			errAway, store.Errorf(store.Unavailable, "away"), store.Errorf(store.Timeout, "slow"),
		} {
			for from, ended := int64(1), false; !ended; from++ {
				synctest.Test(t, func(t *testing.T) {
					b := newBucket(t, memstore.New())
					inner, found, mended := differing(t, random, b, 3, 60)
					source := &counted{parts: inner, from: from, to: from + 1, err: failure}
					reports := 0
					a := adopt.New(adopt.Options{
						Source: source, Bucket: b, Pace: wait.NewPacer(0), Parallel: 1, Spans: adopt.Spans(nil),
						Report: func(adopt.Finding) { reports++ },
					})
					err := run(t.Context(), a)
					failed := source.calls.Load() >= from
					ended = !failed
					if failed && failure == errAway {
						require.ErrorIs(t, err, errAway, "%s %d", name, from)
						return
					}
					require.NoError(t, err, "%s %d", name, from)
					switch name {
					case "catch up":
						require.Equal(t, mended, contents(t, b))
					case "compare":
						all := 0
						for _, keys := range found {
							all += len(keys)
						}
						require.Equal(t, all, reports)
					case "copy":
						got := contents(t, b)
						for _, part := range inner.rows {
							for _, r := range part {
								if _, there := got[string(r.Key)]; r.Refused == "" {
									require.True(t, there, "%s", r.Key)
								}
							}
						}
					}
				})
			}
		}
	}
}

// TestSourcesThatStayAway: an error that may pass is met by several attempts, over a time; then it is returned.
func TestSourcesThatStayAway(t *testing.T) {
	for name, run := range map[string]func(context.Context, *adopt.Adoption) error{
		"copy": func(ctx context.Context, a *adopt.Adoption) error {
			return a.Copy(ctx, adopt.NewDone("task", 1, nil, 0))
		},
		"compare": func(ctx context.Context, a *adopt.Adoption) error { return a.Compare(ctx, true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			away := store.Errorf(store.Unavailable, "away")
			source := &counted{parts: &parts{rows: [][]adopt.Row{{}}}, from: 1, to: 1000, err: away}
			begin := time.Now()
			a := adoption(source, newBucket(t, memstore.New()), nil, func(adopt.Finding) {})
			require.ErrorIs(t, run(t.Context(), a), away, name)
			require.EqualValues(t, 8, source.calls.Load(), name)
			require.Greater(t, time.Since(begin), time.Second, name)
			require.Zero(t, a.Counts().Again.Load())

			source.calls.Store(0)
			source.to = 8
			require.NoError(t, run(t.Context(), a), "the last attempt counts")

			source.calls.Store(0)
			source.to = 1000
			ctx, cancel := context.WithCancel(t.Context())
			source.every = func(n int64) {
				if n == 3 {
					cancel()
				}
			}
			require.ErrorIs(t, run(ctx, a), away)
			require.EqualValues(t, 3, source.calls.Load(), "nothing is read behind the end of the context")
		})
	}
}

// TestPagesAreReadAgainWhileRangesMove: however often the map changes, a copy goes on.
func TestPagesAreReadAgainWhileRangesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		b := newBucket(t, s)
		const moves = 20
		source := &counted{parts: &parts{rows: [][]adopt.Row{{{Key: []byte("k"), Value: []byte("v"), Time: 1}}}}}
		source.every = func(n int64) {
			if n <= moves {
				time.Sleep(6 * time.Minute) // the mark is too old by then
			}
		}
		a := adoption(source, b, nil, func(adopt.Finding) {})
		require.NoError(t, a.Copy(t.Context(), adopt.NewDone("task", 1, nil, 1)))
		require.EqualValues(t, moves, a.Counts().Again.Load())
		require.EqualValues(t, []int64{1, 1, 0}, []int64{
			a.Counts().Read.Load(), a.Counts().Put.Load(), a.Counts().Refused.Load()})
		require.Equal(t, map[string]string{"k": "v"}, contents(t, b))
	})
}

// TestEachCallOfTheBucketFails: a copy or a catch-up that reports success has had its effect, whichever call of the
// store failed, and one call that fails for a moment ends neither.
func TestEachCallOfTheBucketFails(t *testing.T) {
	for name, run := range map[string]func(context.Context, *adopt.Adoption) error{
		"copy": func(ctx context.Context, a *adopt.Adoption) error {
			return a.Copy(ctx, adopt.NewDone("task", 2, nil, 0))
		},
		"catch up": func(ctx context.Context, a *adopt.Adoption) error { return a.Compare(ctx, true) },
	} {
		t.Run(name, func(t *testing.T) {
			attempt := func(t *testing.T, fail faulttest.Case) map[faultstore.Op]int {
				inner := memstore.New()
				b := newBucket(t, inner, []byte("k3"))
				source := &parts{rows: make([][]adopt.Row, 2)}
				want := map[string]string{}
				for i := range 6 {
					key := fmt.Sprintf("k%d", i)
					if want[key] = "new"; i > 3 && name != "copy" {
						delete(want, key) // extra
					} else {
						at := store.Timestamp(time.Now().Add(time.Second).UnixMicro())
						r := adopt.Row{Key: []byte(key), Value: []byte("new"), Time: at}
						source.rows[i%2] = append(source.rows[i%2], r)
					}
					require.NoError(t, b.Put(t.Context(), []byte(key), []byte("old")))
				}
				time.Sleep(10 * time.Second)
				s, faults := fail.Store(inner)
				c, err := listing.New(s, listing.Options{})
				require.NoError(t, err)
				a := adoption(source, c.Bucket("b"), nil, func(f adopt.Finding) { t.Errorf("%+v", f) })
				faults.Enable(true)
				err = run(t.Context(), a)
				calls := faulttest.Calls(faults)
				faults.Enable(false)
				require.NoError(t, faults.Flush(t.Context()))
				if fail.Way == nil || fail.Way.Passing() {
					require.NoError(t, err, fail)
				}
				if err == nil {
					require.Equal(t, want, contents(t, b))
				} else {
					require.ErrorIs(t, err, faultstore.ErrInjected)
					require.NoError(t, run(t.Context(), adoption(source, b, nil, func(adopt.Finding) {})))
					require.Equal(t, want, contents(t, b))
				}
				return calls
			}
			var calls map[faultstore.Op]int
			synctest.Test(t, func(t *testing.T) { calls = attempt(t, faulttest.Case{}) })
			faulttest.Each(t, calls, func(fail faulttest.Case) {
				synctest.Test(t, func(t *testing.T) { attempt(t, fail) })
			})
		})
	}
}

// TestPaceOfReading: a copy, a comparison and a sample read no more rows per second than they may, and not far less.
func TestPaceOfReading(t *testing.T) {
	const rate, rows = 1000, 20_000
	for name, c := range map[string]struct {
		// error is of the time, as part of it.
		error float64
		begin func(context.Context, *counted, *listing.Bucket, *wait.Pacer) error
	}{
		"copy": {0.1, func(ctx context.Context, s *counted, b *listing.Bucket, p *wait.Pacer) error {
			return adopt.New(adopt.Options{Source: s, Bucket: b, Pace: p, Parallel: 2, Spans: adopt.Spans(nil),
				Report: func(adopt.Finding) {}}).Copy(ctx, adopt.NewDone("task", 4, nil, 0))
		}},
		"catch up": {0.1, func(ctx context.Context, s *counted, b *listing.Bucket, p *wait.Pacer) error {
			return adopt.New(adopt.Options{Source: s, Bucket: b, Pace: p, Parallel: 2, Spans: adopt.Spans(nil),
				Report: func(adopt.Finding) {}}).Compare(ctx, true)
		}},
		"sample": {0.1, func(ctx context.Context, s *counted, _ *listing.Bucket, p *wait.Pacer) error {
			_, err := adopt.TakeSample(ctx, s, 1, p)
			return err
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBucket(t, memstore.New())
			source := &counted{parts: &parts{rows: make([][]adopt.Row, 4)}}
			for i := range rows {
				r := adopt.Row{Key: fmt.Appendf(nil, "k%05d", i), Value: []byte("v"), Time: store.Timestamp(i + 1)}
				source.rows[i%4] = append(source.rows[i%4], r)
			}
			begin := time.Now()
			require.NoError(t, c.begin(t.Context(), source, b, wait.NewPacer(rate)), name)
			const want = float64(rows) / rate
			require.InDelta(t, want, time.Since(begin).Seconds(), want*c.error, name)

			source.calls.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			begin = time.Now()
			require.ErrorIs(t, c.begin(ctx, source, b, wait.NewPacer(rate)), context.DeadlineExceeded, name)
			require.Equal(t, 5*time.Second, time.Since(begin), name)
		})
	}
}

// TestPagesAreOfBoundedBytes: a copy asks for few of large rows.
func TestPagesAreOfBoundedBytes(t *testing.T) {
	for size, most := range map[int]int{10: 1000, 4 << 10: 512, 60 << 10: 35} {
		source := &counted{parts: &parts{rows: [][]adopt.Row{nil}}}
		for i := range 1500 {
			row := adopt.Row{Key: fmt.Appendf(nil, "k%05d", i), Value: make([]byte, size), Time: 1}
			source.rows[0] = append(source.rows[0], row)
		}
		a := adoption(source, newBucket(t, memstore.New()), nil, func(adopt.Finding) {})
		require.NoError(t, a.Copy(t.Context(), adopt.NewDone("task", 1, nil, 0)))
		pages := 1 + (1500-250+most-1)/most // of the first one nothing is known
		require.InDelta(t, pages, source.calls.Load(), 2, size)
		require.LessOrEqual(t, source.asked.Load(), int64(250+pages*most), size)
	}
}

// TestTheFirstRowTellsTheSize: what one row has shown counts for the pages of the next parts.
func TestTheFirstRowTellsTheSize(t *testing.T) {
	source := &parts{rows: make([][]adopt.Row, 3)}
	for i := range 61 {
		row := adopt.Row{Key: fmt.Appendf(nil, "k%05d", i), Value: make([]byte, 60<<10), Time: 1}
		part := min(i, 1+i%2)
		source.rows[part] = append(source.rows[part], row)
	}
	a := adopt.New(adopt.Options{
		Source: source, Bucket: newBucket(t, memstore.New()), Pace: wait.NewPacer(0), Parallel: 1, Memory: 2 << 20,
		Spans: adopt.Spans(nil), Report: func(adopt.Finding) {},
	})
	require.NoError(t, a.Compare(t.Context(), true))
	require.EqualValues(t, 61, a.Counts().Put.Load())
}

// busy is a source that takes time, and knows how many pages are read at once.
type busy struct {
	parts
	now, most atomic.Int64
}

func (b *busy) Page(ctx context.Context, part int, s adopt.Span, limit int, values bool) ([]adopt.Row, error) {
	n := b.now.Add(1)
	defer b.now.Add(-1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	time.Sleep(time.Second)
	return b.parts.Page(ctx, part, s, limit, values)
}

// TestSpansThatAreReadAtOnce: as many as are allowed, and no more.
func TestSpansThatAreReadAtOnce(t *testing.T) {
	for name, run := range map[string]func(context.Context, *adopt.Adoption, adopt.Target) error{
		"copy": func(ctx context.Context, a *adopt.Adoption, _ adopt.Target) error {
			cuts := [][]byte{[]byte("b"), []byte("c"), []byte("d"), []byte("e")}
			return a.Copy(ctx, adopt.NewDone("task", 1, cuts, 0))
		},
		"compare": func(ctx context.Context, a *adopt.Adoption, _ adopt.Target) error { return a.Compare(ctx, true) },
		"back":    func(ctx context.Context, a *adopt.Adoption, to adopt.Target) error { return a.Back(ctx, to, true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			source := &busy{parts: parts{rows: [][]adopt.Row{nil}}}
			cuts := [][]byte{[]byte("b"), []byte("c"), []byte("d"), []byte("e")}
			a := adoption(source, newBucket(t, memstore.New()), cuts, func(adopt.Finding) {})
			require.NoError(t, run(t.Context(), a, newShelves(1)), name)
			require.EqualValues(t, 3, source.most.Load(), name)
		})
	}
}

// wanderers are rows that are all in the second part as soon as one of them is read alone.
type wanderers struct {
	*parts
	once      sync.Once
	now, most atomic.Int64 // reads at the same time
}

func (w *wanderers) Get(ctx context.Context, part int, key []byte) (adopt.Row, bool, error) {
	w.once.Do(func() { w.rows[0], w.rows[1] = w.rows[1], w.rows[0] })
	n := w.now.Add(1)
	defer w.now.Add(-1)
	for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
	}
	time.Sleep(time.Second)
	return w.parts.Get(ctx, part, key)
}

// TestManyRowsInAnotherPart: all of them are found, and no more of them are read at once than usual.
func TestManyRowsInAnotherPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, want := &wanderers{parts: &parts{rows: make([][]adopt.Row, 4)}}, map[string]string{}
		for i := range 100 {
			key := fmt.Sprintf("k%05d", i)
			source.rows[0] = append(source.rows[0], adopt.Row{Key: []byte(key), Value: []byte("new"), Time: 1})
			want[key] = "new"
		}
		b := newBucket(t, memstore.New())
		require.NoError(t, b.Put(t.Context(), []byte("k00005"), []byte("old")))
		require.NoError(t, adoption(source, b, nil, func(adopt.Finding) {}).Compare(t.Context(), true))
		require.Equal(t, want, contents(t, b))
		require.LessOrEqual(t, source.most.Load(), int64(16))
	})
}

// TestSamplesThatAreThinned: of very many keys few are kept, and the estimates stay.
func TestSamplesThatAreThinned(t *testing.T) {
	const rows = 200_000
	source := &parts{rows: make([][]adopt.Row, 2)}
	for i := range rows {
		source.rows[i%2] = append(source.rows[i%2], adopt.Row{Key: fmt.Appendf(nil, "%06d", i)})
	}
	sample, err := adopt.TakeSample(t.Context(), source, 1, wait.NewPacer(0))
	require.NoError(t, err)
	require.InEpsilon(t, rows, sample.Rows(), 0.01)
	require.LessOrEqual(t, len(sample.Keys), 1<<16)
	require.Greater(t, len(sample.Keys), 1<<14)
	require.Equal(t, 6, sample.RowBytes)
	for i, cut := range sample.Streams(8) {
		at, err := strconv.Atoi(string(cut))
		require.NoError(t, err)
		require.InDelta(t, (i+1)*rows/8, at, rows/100)
	}
}

// TestSamplesOfSmallSources: no row, one row, parts without rows.
func TestSamplesOfSmallSources(t *testing.T) {
	row := func(key string, size int) adopt.Row {
		return adopt.Row{Key: []byte(key), Value: make([]byte, size)}
	}
	for i, c := range []struct {
		parts    [][]adopt.Row
		keys     int
		rowBytes int
	}{
		{[][]adopt.Row{nil}, 0, 0},
		{[][]adopt.Row{nil, {row("a", 9)}}, 1, 10},
		{[][]adopt.Row{{row("a", 9), row("b", 19)}, {row("c", 0)}}, 3, 15}, // of the part with the larger rows
	} {
		sample, err := adopt.TakeSample(t.Context(), &parts{rows: c.parts}, 4, wait.NewPacer(0))
		require.NoError(t, err)
		require.Len(t, sample.Keys, c.keys, i)
		require.True(t, slices.IsSortedFunc(sample.Keys, bytes.Compare))
		require.EqualValues(t, c.keys, sample.Rows())
		require.Equal(t, c.rowBytes, sample.RowBytes)
	}
}

// TestSamplesFail: each call of the source in turn.
func TestSamplesFail(t *testing.T) {
	for _, apart := range []bool{false, true} {
		most := int64(1)
		for from := int64(1); from <= most; from++ {
			source := &counted{parts: &parts{rows: make([][]adopt.Row, 20)}, from: from, to: from + 1, err: errAway}
			for part := range source.rows {
				key := "k"
				if apart {
					key = fmt.Sprintf("k%02d", part)
				}
				source.rows[part] = []adopt.Row{{Key: []byte(key)}}
			}
			_, err := adopt.TakeSample(t.Context(), source, 1, wait.NewPacer(0))
			if source.calls.Load() < from {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, errAway, "%v %d", apart, from)
			most = from + 1
		}
		// Of the four others the first begins in the first quarter of the keys; the second shows that they are apart.
		require.Equal(t, map[bool]int64{false: 16*2 + 4, true: 16*2 + 2 + 4}[apart], most-1)
	}
}

// TestWhatDiffersIsSettledAsItIsFound: however much differs, few keys are held at a time.
func TestWhatDiffersIsSettledAsItIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, target := newBucket(t, memstore.New()), newShelves(1)
		source := &counted{parts: &parts{rows: [][]adopt.Row{nil}}}
		for i := range 3000 {
			key := fmt.Sprintf("0%05d", i)
			row := adopt.Row{Key: []byte(key), Value: []byte("v"), Time: store.Timestamp(i + 1)}
			source.rows[0] = append(source.rows[0], row)
			target.put(t, 0, key, "v", time.Now().Add(time.Hour))
		}
		require.NoError(t, adoption(source, b, nil, func(adopt.Finding) {}).Compare(t.Context(), true))
		require.EqualValues(t, 3000, source.gets.Load())
		require.Len(t, contents(t, b), 3000)
		require.Positive(t, source.early.Load(), "keys were read again before the last page")

		b = newBucket(t, memstore.New())
		a := adoption(target, b, nil, func(adopt.Finding) {})
		require.NoError(t, a.Back(t.Context(), target, false))
		require.Empty(t, target.contents())
		require.Greater(t, target.lastPage, target.firstWrite, "rows were written before the last page")
	})
}
