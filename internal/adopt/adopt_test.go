package adopt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// parts is a source in memory: sorted rows. It fails after some pages.
type parts struct {
	rows  [][]adopt.Row
	pages atomic.Int64
	fails int64
}

var errAway = errors.New("the source is away")

func (p *parts) Parts() int { return len(p.rows) }

func (p *parts) Page(_ context.Context, part int, s adopt.Span, limit int, values bool) (out []adopt.Row, err error) {
	if p.pages.Add(1) == p.fails {
		return nil, errAway
	}
	for _, r := range p.rows[part] {
		d := bytes.Compare(r.Key, s.From)
		if s.From != nil && (d < 0 || d == 0 && s.After) || s.To != nil && bytes.Compare(r.Key, s.To) >= 0 {
			continue
		}
		if !values {
			r.Value = nil
		}
		if out = append(out, r); len(out) == limit {
			break
		}
	}
	return out, nil
}

func (p *parts) Get(_ context.Context, part int, key []byte) (adopt.Row, bool, error) {
	for _, r := range p.rows[part] {
		if bytes.Equal(r.Key, key) {
			return r, true, nil
		}
	}
	return adopt.Row{}, false, nil
}

func (p *parts) Same(a, b []byte) bool { return bytes.Equal(a, b) }

func TestCopyGoesOnWhereItFailed(t *testing.T) {
	random := seed.New(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		source, want := &parts{rows: make([][]adopt.Row, 3)}, map[string]string{}
		refused := 0
		for i := range 6000 {
			r := adopt.Row{Key: fmt.Appendf(nil, "k%05d", i), Value: fmt.Append(nil, random.Uint64())}
			r.Time = store.Timestamp(i + 1)
			if random.IntN(100) == 0 {
				r.Refused = adopt.Expires
				refused++
			} else {
				want[string(r.Key)] = string(r.Value)
			}
			part := random.IntN(3)
			source.rows[part] = append(source.rows[part], r)
		}
		c, err := listing.New(memstore.New(), listing.Options{})
		require.NoError(t, err)
		sample, err := adopt.TakeSample(ctx, source, 2, wait.NewPacer(0))
		require.NoError(t, err)
		require.EqualValues(t, 6000, sample.Rows())
		cuts := sample.Cuts(500, 1<<30)
		require.Len(t, cuts, 11)
		require.NoError(t, c.CreateBucket(ctx, "b", cuts...))
		b := c.Bucket("b")
		same := func(want map[string]string) {
			t.Helper()
			got := map[string]string{}
			for item, err := range b.All(ctx, listing.Query{}) {
				require.NoError(t, err)
				got[string(item.Key)] = string(item.Value)
			}
			require.Equal(t, want, got)
		}
		file := filepath.Join(t.TempDir(), "done.json")
		found := map[string][]string{}
		run := func(done *adopt.Done) *adopt.Adoption {
			return adopt.New(adopt.Options{
				Source: source, Bucket: b, Pace: wait.NewPacer(0), Parallel: 4, Spans: adopt.Spans(done.Cuts()),
				Report: func(f adopt.Finding) { found[f.Fault] = append(found[f.Fault], string(f.Key)) },
			})
		}
		read, fresh := int64(0), adopt.NewDone("task", 3, sample.Streams(2), sample.Rows())
		require.NoError(t, fresh.Save(file))
		for failures := 0; ; failures++ {
			done, err := adopt.LoadDone(file, "task", 3)
			require.NoError(t, err)
			source.pages.Store(0)
			source.fails = 8 + random.Int64N(3)
			a := run(done)
			time.Sleep(time.Second)
			err = a.Copy(ctx, done)
			require.NoError(t, done.Save(file))
			read += a.Counts().Read.Load()
			saved, rerr := adopt.ReadDone(file)
			require.NoError(t, rerr)
			s := saved.Status()
			require.Equal(t, []int64{read, 6000}, []int64{s.Read, s.Rows})
			require.EqualValues(t, len(found[string(adopt.Expires)]), s.Refused)
			require.Len(t, s.Refusals, min(int(s.Refused), 20))
			require.Positive(t, s.Seconds)
			require.Equal(t, err == nil, s.Phase == "copied" && s.StreamsEnded == s.Streams)
			if err == nil {
				require.Positive(t, failures)
				break
			}
			require.ErrorIs(t, err, errAway)
		}
		require.EqualValues(t, 6000, read, "no page twice")
		require.Len(t, found[string(adopt.Expires)], refused)
		same(want)
		_, err = adopt.LoadDone(file, "another task", 3)
		require.ErrorContains(t, err, "another task")
		_, err = adopt.LoadDone(file, "task", 4)
		require.ErrorContains(t, err, "streams")
		none, err := adopt.LoadDone(file+".none", "task", 3)
		require.NoError(t, err)
		require.Nil(t, none)

		// Both sides change; of two rows with one key the newer counts.
		source.fails = 0
		differ := 0
		for i := range source.rows {
			source.rows[i] = slices.DeleteFunc(source.rows[i], func(r adopt.Row) bool {
				gone := r.Refused == "" && random.IntN(20) == 0
				if gone {
					delete(want, string(r.Key))
					differ++
				}
				return gone
			})
		}
		for key := range want {
			switch random.IntN(20) {
			case 0:
				require.NoError(t, b.Delete(ctx, []byte(key)))
				differ++
			case 1:
				require.NoError(t, b.Put(ctx, []byte(key), []byte("another")))
				differ++
			}
		}
		twice := adopt.Row{Key: []byte("z"), Value: []byte("newer"), Time: 8}
		source.rows[0] = append(source.rows[0], adopt.Row{Key: []byte("z"), Value: []byte("older"), Time: 7})
		source.rows[2] = append(source.rows[2], twice)
		want["z"] = "newer"
		a := run(fresh)
		require.NoError(t, a.Compare(ctx, true))
		require.EqualValues(t, differ+1, a.Counts().Different.Load())
		require.Equal(t, []string{"z"}, found[string(adopt.Collision)])
		same(want)
		require.NoError(t, b.Put(ctx, []byte("extra"), nil))
		a = run(fresh)
		require.NoError(t, a.Compare(ctx, false))
		require.EqualValues(t, 1, a.Counts().Different.Load())
		require.Equal(t, []string{"extra"}, found[string(adopt.Extra)])
		want["extra"] = ""
		same(want)

		source.rows[1] = append([]adopt.Row{{Key: []byte("zz")}}, source.rows[1]...)
		require.ErrorContains(t, run(fresh).Compare(ctx, false), "behind")
	})
}

// TestSamplesOfManyParts: parts by a hash are samples of each other, and few are read. Where each has keys of its own,
// such as days, all are: so the ranges are of one size, whatever part is the largest.
func TestSamplesOfManyParts(t *testing.T) {
	const all, maxRows = 400, 1000
	for _, apart := range []bool{false, true} {
		source := &parts{rows: make([][]adopt.Row, all)}
		rows := 0
		for part := range all {
			n := 100
			if part == 203 { // which is none of those that are read first
				n = 5000
			}
			for i := range n {
				key := fmt.Sprintf("%05d/%03d", i, part)
				if apart {
					key = fmt.Sprintf("%03d/%05d", part, i)
				}
				source.rows[part] = append(source.rows[part], adopt.Row{Key: []byte(key)})
			}
			rows += n
		}
		sample, err := adopt.TakeSample(t.Context(), source, 4, wait.NewPacer(0))
		require.NoError(t, err)
		if !apart {
			require.EqualValues(t, 16*2+all-16, source.pages.Load(), "pages that were read")
			continue
		}
		require.EqualValues(t, rows, sample.Rows())
		cuts := append(sample.Cuts(maxRows, 1<<30), []byte("~"))
		in := make([]int, len(cuts))
		for _, part := range source.rows {
			for i := range part {
				n, _ := slices.BinarySearchFunc(cuts, part[i].Key, func(cut, key []byte) int {
					if bytes.Compare(cut, key) <= 0 {
						return -1
					}
					return 1
				})
				in[n]++
			}
		}
		require.LessOrEqual(t, slices.Max(in), maxRows)
	}
}

// shelf is a target in memory: one part, where the highest time wins.
type shelf struct {
	parts
	mu     sync.Mutex
	stored map[string]store.Row // without a value: deleted
	every  func()               // before each page and get
}

func (s *shelf) sorted() {
	s.rows = [][]adopt.Row{nil}
	for _, key := range slices.Sorted(maps.Keys(s.stored)) {
		if r := s.stored[key]; r.Value != nil {
			s.rows[0] = append(s.rows[0], adopt.Row{Key: r.Key, Value: r.Value, Time: r.Timestamp})
		}
	}
}

func (s *shelf) Parts() int { return 1 }

func (s *shelf) Page(ctx context.Context, part int, span adopt.Span, limit int, values bool) ([]adopt.Row, error) {
	s.every()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sorted()
	return s.parts.Page(ctx, part, span, limit, values)
}

func (s *shelf) Get(ctx context.Context, part int, key []byte) (adopt.Row, bool, error) {
	s.every()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sorted()
	return s.parts.Get(ctx, part, key)
}

func (s *shelf) Home(key []byte) (int, adopt.Refusal) {
	if key[0] == '~' {
		return 0, adopt.NoRow
	}
	return 0, ""
}

func (s *shelf) Takes(_, value []byte) adopt.Refusal {
	if string(value) == "bad" {
		return adopt.NoValues
	}
	return ""
}

func (s *shelf) Write(_ context.Context, _ int, rows []store.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		if string(r.Value) == "worse" {
			return store.Errorf(store.InvalidArgument, "it is worse")
		}
		old, found := s.stored[string(r.Key)]
		if !found || store.Beats(r.Timestamp, r.Value, old.Timestamp, old.Value) {
			s.stored[string(r.Key)] = r
		}
	}
	return nil
}

// TestBackWhileTheApplicationWrites: the target becomes like the bucket, whatever the write times of its rows, and
// though the application changes both between any two reads, the bucket first.
func TestBackWhileTheApplicationWrites(t *testing.T) {
	ctx, random := t.Context(), seed.New(t)
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b", []byte("k0300"), []byte("k0600")))
	b, target := c.Bucket("b"), &shelf{stored: map[string]store.Row{}, every: func() {}}
	const rows = 1000
	write := func(i int, both bool, ago time.Duration) {
		key, value, now := fmt.Appendf(nil, "k%04d", i), fmt.Append(nil, random.Uint64()), time.Now()
		if random.IntN(3) == 0 {
			value = nil
			require.NoError(t, b.Delete(ctx, key))
		} else {
			require.NoError(t, b.Put(ctx, key, value))
		}
		if both {
			ahead := time.Duration(i%4) * time.Second // each key has a writer, with a clock of its own
			row := store.Row{Key: key, Value: value, Timestamp: store.Timestamp(now.Add(ahead - ago).UnixMicro())}
			require.NoError(t, target.Write(ctx, 0, []store.Row{row}))
		}
	}
	for i := range 4 * rows {
		write(i%rows, i < 2*rows, 10*time.Second) // what it has deleted there must not hide what comes back
	}
	require.NoError(t, b.Put(ctx, []byte("k9998"), []byte("bad")))
	require.NoError(t, b.Put(ctx, []byte("k9999"), []byte("worse")))
	require.NoError(t, b.Put(ctx, []byte("~"), nil))
	var changes atomic.Int64
	var applying sync.Mutex
	target.every = func() {
		applying.Lock()
		defer applying.Unlock()
		for range 20 {
			write(random.IntN(rows), true, 0)
			changes.Add(1)
		}
	}
	cuts, err := adopt.BackCuts(ctx, b, target, 4)
	require.NoError(t, err)
	require.NotEmpty(t, cuts)
	var refused []string
	run := func(dry bool) *adopt.Counts {
		refused = nil
		a := adopt.New(adopt.Options{
			Source: target, Bucket: b, Pace: wait.NewPacer(0), Parallel: 2, Spans: adopt.Spans(cuts),
			Report: func(f adopt.Finding) { refused = append(refused, string(f.Key)) },
		})
		require.NoError(t, a.Back(ctx, target, dry))
		return a.Counts()
	}
	require.Positive(t, run(true).Different.Load())
	require.ElementsMatch(t, []string{"k9998", "~"}, refused)
	n := run(false)
	require.ElementsMatch(t, []string{"k9998", "k9999", "~"}, refused)
	require.EqualValues(t, n.Different.Load(), n.Put.Load()+n.Deleted.Load())
	require.Positive(t, changes.Load())
	want, got := map[string]string{}, map[string]string{}
	for item, err := range b.All(ctx, listing.Query{To: []byte("k9")}) {
		require.NoError(t, err)
		want[string(item.Key)] = string(item.Value)
	}
	for key, row := range target.stored {
		if row.Value != nil {
			got[key] = string(row.Value)
		}
	}
	for key, value := range want {
		require.Equal(t, value, got[key], key)
	}
	require.Len(t, got, len(want))
}

// TestBackWinsOverClocksThatAreAhead: rows of the target with times in the future become like the bucket, too, and what
// the application changes while they are read again stays.
func TestBackWinsOverClocksThatAreAhead(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b, target := c.Bucket("b"), &shelf{stored: map[string]store.Row{}}
	put := func(key, value string, ahead time.Duration) {
		at := store.Timestamp(time.Now().Add(ahead).UnixMicro())
		require.NoError(t, target.Write(ctx, 0, []store.Row{{Key: []byte(key), Value: []byte(value), Timestamp: at}}))
	}
	for _, key := range []string{"changed", "deleted", "raced"} {
		put(key, "z, the larger one", time.Hour)
	}
	require.NoError(t, b.Put(ctx, []byte("changed"), []byte("new")))
	require.NoError(t, b.Put(ctx, []byte("raced"), []byte("new")))
	var reads atomic.Int64
	target.every = func() {
		if reads.Add(1) == 2 { // the first get
			require.NoError(t, b.Put(ctx, []byte("raced"), []byte("newest")))
			put("raced", "newest", 2*time.Hour)
		}
	}
	a := adopt.New(adopt.Options{
		Source: target, Bucket: b, Pace: wait.NewPacer(0), Parallel: 1, Spans: adopt.Spans(nil),
		Report: func(adopt.Finding) {},
	})
	require.NoError(t, a.Back(ctx, target, false))
	require.Equal(t, "new", string(target.stored["changed"].Value))
	require.Nil(t, target.stored["deleted"].Value)
	require.Equal(t, "newest", string(target.stored["raced"].Value))
}

// wandering is a source in which a row goes from one part to another when it is first read alone.
type wandering struct {
	*parts
	once sync.Once
}

func (w *wandering) Get(ctx context.Context, part int, key []byte) (adopt.Row, bool, error) {
	w.once.Do(func() { w.rows[0], w.rows[1] = w.rows[1], w.rows[0] })
	return w.parts.Get(ctx, part, key)
}

// A row may go from one partition of the table to another while it is compared: a catch-up does not take it for
// deleted.
func TestCatchUpFindsARowInAnotherPart(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := c.Bucket("b")
	require.NoError(t, b.Put(ctx, []byte("k"), []byte("old")))
	source := &wandering{parts: &parts{rows: [][]adopt.Row{{{Key: []byte("k"), Value: []byte("new"), Time: 2}}, {}}}}
	a := adopt.New(adopt.Options{Source: source, Bucket: b, Pace: wait.NewPacer(0), Parallel: 1,
		Spans: adopt.Spans(nil), Report: func(adopt.Finding) {}})
	require.NoError(t, a.Compare(ctx, true))
	e, err := b.Get(ctx, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "new", string(e.Value))
}
