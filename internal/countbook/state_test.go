package countbook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// world is a partition as it really is, and what a book makes of what clients
// tell of it.
type world struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	p       store.Partition
	rows    map[string]int // key -> size
	sorted  btree.Set[string]
	clock   store.Timestamp
	book    *Book
	clients []*counter.Recorder
	// told are all batches, to be told again.
	told []*counter.Batch
	// read has the keys that Slice returned, if it is not nil.
	read map[string]bool
}

func newWorld(t *testing.T, clients int) *world {
	w := &world{t: t, r: seed.New(t), now: time.Unix(1_700_000_000, 0), rows: map[string]int{}, book: NewBook()}
	w.p = store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
	for range clients {
		w.clients = append(w.clients,
			counter.NewRecorder(w, counter.RecorderOptions{Every: -1, Now: func() time.Time { return w.now }}))
	}
	return w
}

// Flush implements Flusher, through the encoding.
func (w *world) Flush(_ context.Context, b *counter.Batch) ([]counter.Hint, error) {
	data, err := b.AppendBinary(nil)
	require.NoError(w.t, err)
	var got counter.Batch
	require.NoError(w.t, got.UnmarshalBinary(data))
	w.book.Apply(&got, w.now)
	w.told = append(w.told, &got)
	return w.book.Hints(&got), nil
}

func (w *world) stamp() store.Timestamp {
	w.clock = max(w.clock+1, store.Timestamp(w.now.UnixMicro()))
	return w.clock
}

func (w *world) put(key string, size int) {
	w.rows[key] = len(key) + size
	w.sorted.Insert(key)
	w.clients[w.r.IntN(len(w.clients))].Put(w.p, []byte(key), len(key)+size, w.stamp())
}

func (w *world) delete(key string) {
	delete(w.rows, key)
	w.sorted.Delete(key)
	w.clients[w.r.IntN(len(w.clients))].Delete(w.p, []byte(key), w.stamp(), false)
}

func (w *world) flush() {
	for _, i := range w.r.Perm(len(w.clients)) {
		require.NoError(w.t, w.clients[i].Flush(context.Background()))
	}
	w.now = w.now.Add(time.Second)
}

func (w *world) stats() counter.Stats { return w.book.Stats([]store.Partition{w.p}, w.now)[0] }

func (w *world) bytes() (n int64) {
	for _, size := range w.rows {
		n += int64(size)
	}
	return n
}

// Slice implements Slicer.
func (w *world) Slice(_ context.Context, _ store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	var page store.Page
	w.sorted.Ascend(string(b.Start), func(k string) bool {
		switch {
		case b.StartExclusive && k == string(b.Start):
			return true
		case len(b.End) > 0 && k >= string(b.End):
			return false
		case len(page.Rows) == o.Limit:
			page.More = true
			return false
		}
		page.Rows = append(page.Rows, store.Row{Key: []byte(k), Value: store.EntryCell(make([]byte, w.rows[k]-len(k)))})
		if w.read != nil {
			w.read[k] = true
		}
		return true
	})
	return page, nil
}

func (w *world) recount() *counter.Count {
	c, err := NewRecount(
		w, w.p, store.Bounds{}, RecountOptions{Now: func() time.Time { return w.now }},
	).Run(context.Background())
	require.NoError(w.t, err)
	w.book.State(w.p).Correct(c, w.book.Generation)
	return c
}

// About: within so many standard deviations of a sample of 256, of what changed.
func requireAbout(t *testing.T, want, got int64, noise float64, what string) {
	t.Helper()
	require.InDeltaf(t, want, got, 5*noise+1, "%s", what)
}

func TestFewKeysAreCountedExactly(t *testing.T) {
	w := newWorld(t, 3)
	for round := range 40 {
		for range w.r.IntN(50) {
			key := fmt.Sprintf("k%03d", w.r.IntN(200))
			if w.r.IntN(3) == 0 {
				w.delete(key)
			} else {
				w.put(key, w.r.IntN(100))
			}
		}
		w.flush()
		if w.r.IntN(2) == 0 && len(w.told) > 0 { // told again: nothing changes
			w.book.Apply(w.told[w.r.IntN(len(w.told))], w.now)
		}
		if w.r.IntN(8) == 0 {
			w.recount()
		}
		s := w.stats()
		require.Equal(t, int64(len(w.rows)), s.Rows, "round %d", round)
		require.InDelta(t, w.bytes(), s.Bytes, float64(w.bytes())*0.35+300, "round %d", round)
	}
}

// The same keys over and over are no growth, deletions of keys put meanwhile are
// no loss, whatever the counts of writes say.
func TestOverwritesAreNoGrowth(t *testing.T) {
	race.Skip(t)
	for _, recounted := range []bool{false, true} {
		t.Run(fmt.Sprintf("recounted=%v", recounted), func(t *testing.T) {
			const n = 20_000
			w := newWorld(t, 4)
			for i := range n {
				w.put(fmt.Sprintf("user/%08d", i), 20)
			}
			w.flush()
			require.Equal(t, int64(n), w.stats().Rows, "new keys only: the count of puts is exact")
			if recounted {
				w.recount()
				require.True(t, w.stats().Known)
				for i := range n / 50 { // too few for the sample to differ by its noise
					w.put(fmt.Sprintf("user/%08d", i), 20)
				}
				w.flush()
				require.Equal(t, int64(n), w.stats().Rows, "overwrites of keys that were counted add no noise")
			}
			for range 10 {
				for range n {
					w.put(fmt.Sprintf("user/%08d", w.r.IntN(n)), 20)
				}
				w.flush()
			}
			s := w.stats()
			requireAbout(t, n, s.Rows, n/math.Sqrt(224), "overwritten ten times over")
			if recounted {
				requireAbout(t, n, s.Rows, 1, "a recount knows the keys")
			}
			requireAbout(t, n, s.Distinct, n/math.Sqrt(224), "distinct keys")
			puts := int64(11 * n)
			if recounted {
				puts += n / 50
			}
			require.Equal(t, puts, s.Puts)
		})
	}
}

func TestDeletionsAndNewKeys(t *testing.T) {
	const n = 20_000
	w := newWorld(t, 2)
	for i := range n {
		w.put(fmt.Sprintf("%08d", i), 10)
	}
	w.flush()
	w.recount()
	w.now = w.now.Add(5 * time.Hour)
	for i := range n * 3 / 4 {
		w.delete(fmt.Sprintf("%08d", i))
		if i%100 == 0 {
			w.delete(fmt.Sprintf("%08d", i)) // a second time
			w.put(fmt.Sprintf("new%08d", i), 10)
		}
	}
	w.flush()
	s := w.stats()
	requireAbout(t, int64(len(w.rows)), s.Rows, n*0.75/math.Sqrt(224*0.75), "after deletions")
	require.InDelta(t, 15_150, s.Dead, 2)
	require.Less(t, s.GrowthRowsPerS, 0.0)
	for range 200 { // a queue: each key lives for a moment
		for i := range 100 {
			k := fmt.Sprintf("q%d", w.r.Uint64())
			w.put(k, 5)
			if i%10 > 0 {
				w.delete(k)
			}
		}
		w.flush()
		w.now = w.now.Add(10 * time.Second)
	}
	s = w.stats()
	require.InDelta(t, len(w.rows), s.Rows, n/3)
}

// While a recount runs, others write on both sides of its place. What it has read does not
// count twice: the estimate is the sum of what it read and of the change since.
//
// The spread of one estimate: the sample has k = 224 keys at least, chosen by hash among the d
// distinct keys that were written, so each stands for d/k keys at most. Of the keys, c have come
// or gone since the recount read their place, and c*k/d of these are sampled, with a standard
// deviation of sqrt(c*k/d). So the estimate has one of sqrt(c*d/k): here about 7 percent of the
// rows. One estimate shows little; the mean of 32, over independent keys, deviates sqrt(32) times
// less. Each of them, and the mean, may deviate by 7: by Chernoff's bound for a Poisson variable
// with mean 145 that is exceeded in fewer than 1 of 10^7 runs.
func TestARecountUnderWrites(t *testing.T) {
	race.Skip(t)
	const worlds, sigmas = 32, 7
	for _, test := range []struct {
		name  string
		pause time.Duration // between the load and the recount
		plain bool          // the counts of writes since the recount are nearly right, and used
	}{
		{"right after a load", 0, false},
		{"some time after a load", 30 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sum, variance, twice float64
			for range worlds {
				m := recountUnderWrites(t, test.pause)
				// Counts of writes have twice what was put and then read.
				bias := 0.0
				if test.plain {
					bias = m.twice
				}
				require.LessOrEqual(t, m.off, bias+sigmas*m.deviation, "too many rows")
				require.GreaterOrEqual(t, m.off, -sigmas*m.deviation, "too few rows")
				sum, variance, twice = sum+m.off, variance+m.deviation*m.deviation, twice+bias
			}
			deviation := math.Sqrt(variance)
			t.Logf("mean error %.0f rows, standard deviation %.0f", sum/worlds, deviation/worlds)
			require.LessOrEqual(t, sum, twice+sigmas*deviation, "too many rows, by the mean of all")
			require.GreaterOrEqual(t, sum, -sigmas*deviation, "too few rows, by the mean of all")
		})
	}
}

// estimated is an estimate after a recount under writes: how far it is off, its standard
// deviation by theory, and how many rows counts of writes have too many.
type estimated struct{ off, deviation, twice float64 }

func recountUnderWrites(t *testing.T, pause time.Duration) estimated {
	w := newWorld(t, 3)
	key := func(name string, i int) string { return fmt.Sprintf("%s%05d/%d", name, i, w.r.Uint64()) }
	var even, odd [5_000]string // in this order by turns
	for i := range even {
		even[i], odd[i] = key("", 2*i), key("", 2*i+1)
		w.put(even[i], 10)
	}
	w.flush()
	w.now = w.now.Add(pause)
	pages, fresh, written := 0, 0, 0
	distinct := len(even)
	r := NewRecount(
		w,
		w.p,
		store.Bounds{},
		RecountOptions{PageRows: 400, Now: func() time.Time { return w.now }, Yield: func(context.Context, int) error {
			for range 400 {
				at := odd[w.r.IntN(len(odd))] // new at first, at both sides of the place
				if _, again := w.rows[at]; !again {
					distinct++
				}
				w.put(at, 10)
				w.delete(even[w.r.IntN(len(even))])
				w.put(key("!", 99_999-fresh), 10) // below the place: not seen
				fresh++
				distinct++
				written++ // two puts and a delete
			}
			w.flush()
			if pages++; pages%3 == 0 {
				return errors.New("interrupted")
			}
			return nil
		}},
	)
	w.read = map[string]bool{}
	var c *counter.Count
	for err := errors.New("not begun"); err != nil; {
		c, err = r.Run(context.Background())
	}
	w.book.State(w.p).Correct(c, w.book.Generation)
	require.Greater(t, pages, 10)
	rows, changed := int64(len(w.rows)), 0
	for k := range w.rows {
		if !w.read[k] {
			changed++
		}
	}
	for k := range w.read {
		if _, there := w.rows[k]; !there {
			changed++
		}
	}
	e := estimated{
		off:       float64(w.stats().Rows - rows),
		deviation: math.Sqrt(float64(changed) * float64(distinct) / (keysample.MaxSampled * 7 / 8)),
		twice:     float64(c.Rows + int64(written) - rows),
	}
	require.Greater(t, rows, c.Rows+3_000)
	w.recount()
	require.Equal(t, rows, w.stats().Rows)
	return e
}

func TestQuantaOfARecountAreExact(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 256, 257, 1000, 12_345} {
		w := newWorld(t, 1)
		for i := range n {
			w.put(fmt.Sprintf("dir%02d/%06d", i%17, i), 10)
		}
		c := w.recount()
		require.Equal(t, int64(n), c.Rows)
		require.Equal(t, w.bytes(), c.Bytes)
		keys := slices.Sorted(func(yield func(string) bool) {
			for k := range w.rows {
				if !yield(k) {
					return
				}
			}
		})
		sum := int64(0)
		for i, q := range c.Quanta {
			if i > 0 {
				require.Greater(t, string(q.Key), keys[sum-1])
				require.LessOrEqual(t, string(q.Key), keys[sum])
			} else {
				require.Empty(t, q.Key)
			}
			sum += q.Rows
		}
		require.Equal(t, int64(n), sum)
		require.LessOrEqual(t, len(c.Quanta), 256)
		require.GreaterOrEqual(t, len(c.Quanta), min(n, 128))
	}
}

// Quanta of a sample lie where the keys are.
func TestQuantaOfASample(t *testing.T) {
	race.Skip(t)
	w := newWorld(t, 2)
	for i := range 50_000 {
		w.put(fmt.Sprintf("%06d", i*i%999_983), 1)
	}
	w.flush()
	s := w.stats()
	quanta := w.book.State(w.p).Quanta()
	require.Greater(t, len(quanta), 150)
	below, sum := int64(0), int64(0)
	for _, q := range quanta {
		real := int64(0)
		for k := range w.rows {
			if k < string(q.Key) {
				real++
			}
		}
		require.InDelta(t, real, below, 50_000*0.12, "rows below %q", q.Key)
		below += q.Rows
		sum += q.Rows
	}
	require.Equal(t, s.Rows, sum)
}

func TestAppendShareAndRates(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 6_000 {
		w.put(fmt.Sprintf("log/%09d", i), 10)
		if i%100 == 99 {
			w.flush()
		}
	}
	s := w.stats()
	require.Greater(t, s.AppendShare, 0.9)
	require.InDelta(t, 100, s.PutsPerS, 15)
	require.InDelta(t, 100, s.GrowthRowsPerS, 15)
	require.Equal(t, "log/000005999", string(s.Top))

	random := newWorld(t, 3)
	for i := range 6_000 {
		random.put(fmt.Sprintf("%016x", random.r.Uint64()), 10)
		if i%10 == 9 {
			random.flush()
		}
	}
	require.Less(t, random.stats().AppendShare, 0.1)

	w.now = w.now.Add(10 * time.Minute)
	s = w.stats()
	require.Less(t, s.PutsPerS, 0.01, "rates decay")
	require.Equal(t, int64(6_000), s.Rows, "rows do not")
	w.now = w.now.Add(-time.Hour) // a step back of the wall clock
	for range 300 {
		w.put("log/1", 1)
		w.flush()
	}
	require.InDelta(t, 1, w.stats().PutsPerS, 1)
}

// A load shows how fast it is within seconds; a few rows do not look like one.
func TestAFastLoadIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 1_000 {
		w.put(fmt.Sprintf("%016x", w.r.Uint64()), 10)
		if i%100 == 99 {
			w.flush()
		}
	}
	require.InDelta(t, 100, w.stats().GrowthRowsPerS, 20)

	few := newWorld(t, 3)
	for range 20 {
		few.put(fmt.Sprintf("%016x", few.r.Uint64()), 10)
	}
	few.flush()
	require.Less(t, few.stats().GrowthRowsPerS, 1.0)
}

// What was lost is noticed by the numbers of batches, and then nothing is Known
// until it is recounted.
func TestALostBatchIsNoticed(t *testing.T) {
	w := newWorld(t, 1)
	w.put("a", 1)
	w.flush()
	w.recount()
	w.put("b", 1)
	w.flush()
	require.True(t, w.stats().Known)
	old := w.book
	head, err := old.AppendHead(nil)
	require.NoError(t, err)
	state, err := old.State(w.p).AppendBinary(nil)
	require.NoError(t, err)
	w.put("c", 1)
	w.flush()
	w.put("d", 1)

	// The backend comes back as it was before c.
	w.book, err = OpenBook(head)
	require.NoError(t, err)
	s := NewState()
	require.NoError(t, s.UnmarshalBinary(state))
	w.book.States[w.p.ID] = s
	require.True(t, w.stats().Known)
	require.Equal(t, int64(2), w.stats().Rows)
	w.flush()
	require.False(t, w.stats().Known, "c is missing")
	w.recount()
	require.True(t, w.stats().Known)
	require.Equal(t, int64(4), w.stats().Rows)

	// It comes back with nothing at all.
	w.book = NewBook()
	require.False(t, w.stats().Known)
	w.put("e", 1)
	w.flush()
	require.False(t, w.stats().Known)
	w.recount()
	require.True(t, w.stats().Known)
	require.Equal(t, int64(5), w.stats().Rows)
}

// The samples of several clients, merged in any order and more than once, are the
// sample of all.
func TestSamplesMergeInAnyOrder(t *testing.T) {
	r := seed.New(t)
	for range 30 {
		type op struct {
			key []byte
			at  store.Timestamp
			put bool
		}
		var ops []op
		for i := range 1 + r.IntN(3_000) {
			ops = append(ops, op{binary.BigEndian.AppendUint32(nil, r.Uint32N(2_000)), store.Timestamp(i + 1),
				r.IntN(4) > 0})
		}
		write := func(s *keysample.Sample, o op) {
			is := keysample.Flags(0)
			if o.put {
				is = keysample.Present
			}
			s.Write(keysample.Hash(o.key), o.key, o.at, 7, is)
		}
		parts := make([]keysample.Sample, 5)
		for i := range parts {
			parts[i] = keysample.New()
		}
		for _, o := range ops {
			write(&parts[r.IntN(len(parts))], o)
		}
		all := keysample.New()
		for range 2 {
			for _, i := range r.Perm(len(parts)) {
				all.Merge(&parts[i])
			}
		}
		last := map[string]bool{}
		for _, o := range ops {
			last[string(o.key)] = o.put
		}
		var want []string
		for k, put := range last {
			if put && keysample.Hash([]byte(k)) < all.Below {
				want = append(want, k)
			}
		}
		var got []string
		for _, k := range all.Present() {
			got = append(got, string(k))
		}
		slices.Sort(want)
		require.Equal(t, want, got)
		require.LessOrEqual(t, all.N, keysample.MaxSampled)
		if len(last) > keysample.MaxSampled {
			require.Greater(t, all.N, keysample.MaxSampled/2)
		}
	}
}

func TestLongKeysBoundTheSample(t *testing.T) {
	s := keysample.New()
	for i := range 5_000 {
		key := append(make([]byte, 5_000), fmt.Sprint(i)...)
		s.Write(keysample.Hash(key), key, 1, 1, keysample.Present)
		require.LessOrEqual(t, len(s.Keys), keysample.MaxSampleBytes+keysample.MaxSampledKey)
	}
	require.Greater(t, s.N, 32)
}

func TestDamageIsNoticed(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 300 {
		w.put(fmt.Sprintf("%05d", i), 10)
	}
	w.flush()
	w.recount()
	state, err := w.book.State(w.p).AppendBinary(nil)
	require.NoError(t, err)
	var again State
	require.NoError(t, again.UnmarshalBinary(state))
	require.Equal(t, w.book.State(w.p).Stats(w.p, 1, w.now), again.Stats(w.p, 1, w.now))
	require.Equal(t, w.book.State(w.p).Quanta(), again.Quanta())
	summary, err := again.AppendSummary(nil)
	require.NoError(t, err)
	sample, err := again.AppendSample(nil)
	require.NoError(t, err)
	var parts State
	require.NoError(t, parts.UnmarshalSummary(summary))
	require.Equal(t, again.Stats(w.p, 1, w.now), parts.Stats(w.p, 1, w.now))
	require.NoError(t, parts.UnmarshalSample(sample))
	require.Equal(t, again.Quanta(), parts.Quanta())
	for n := range len(state) {
		require.Error(t, again.UnmarshalBinary(state[:n]))
	}
	require.ErrorIs(t, again.UnmarshalBinary(append([]byte{9}, state[1:]...)), store.InvalidArgument)
	require.Error(t, again.UnmarshalBinary(append(state, 0)))
}

func FuzzBatch(f *testing.F) {
	b := counter.Batch{Client: uuid.New(), Seq: 3, At: time.Unix(1, 0)}
	d := counter.Delta{Puts: 3, Top: []byte("k"), Sample: noKeys()}
	keysample.Of(&d.Sample).Write(keysample.Hash([]byte("k")), []byte("k"), 5, 6, keysample.Present|keysample.Written)
	b.Deltas = append(b.Deltas, d)
	data, _ := b.AppendBinary(nil)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var b counter.Batch
		if b.UnmarshalBinary(data) == nil {
			book := NewBook()
			book.Apply(&b, time.Unix(5, 0))
			for _, s := range book.States {
				_ = s.Stats(store.Partition{}, 1, time.Unix(5, 0))
			}
		}
		var s State
		if s.UnmarshalBinary(data) == nil {
			_ = s.Stats(store.Partition{}, 1, time.Unix(5, 0))
		}
	})
}

// Growth all over the keys is told from growth at one end, also after a recount.
func TestSpread(t *testing.T) {
	grow := func(key func(w *world, i int) string) float64 {
		w := newWorld(t, 2)
		for i := range 4_000 {
			w.put(fmt.Sprintf("%08d", 1_000_000+w.r.IntN(1_000_000)), 1)
			if i%100 == 0 {
				w.flush()
			}
		}
		w.recount()
		w.now = w.now.Add(time.Hour)
		for i := range 2_000 {
			w.put(key(w, i), 1)
			if i%100 == 99 {
				w.flush()
			}
		}
		w.recount()
		return w.stats().Spread
	}
	require.Greater(
		t, grow(func(w *world, _ int) string { return fmt.Sprintf("%08d", 1_000_000+w.r.IntN(1_000_000)) }), 0.6,
	)
	require.Less(t, grow(func(_ *world, i int) string { return fmt.Sprintf("%08d", 3_000_000+i) }), 0.5)
	require.Less(t, grow(func(_ *world, i int) string { return fmt.Sprintf("%08d", 900_000-i) }), 0.5)
}

// Appends are known as such also where each comes from a client that has just begun.
func TestSlowAppends(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 100 {
		w.clients[0] = counter.NewRecorder(w, counter.RecorderOptions{Every: -1, Now: func() time.Time { return w.now }})
		w.put(fmt.Sprintf("%08d", i), 1)
		w.flush()
		w.now = w.now.Add(10 * time.Minute)
	}
	require.Greater(t, w.stats().AppendShare, 0.95)
}

// A backlog is no burst.
func TestABacklogIsNoBurst(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 3_000 {
		w.put(fmt.Sprintf("%08d", i), 1)
		w.now = w.now.Add(100 * time.Millisecond)
	}
	w.flush()
	require.InDelta(t, 10, w.stats().PutsPerS, 1)
}

func (*world) Forget(context.Context, ...store.Partition) error { return nil }

// noKeys is an empty sample.
func noKeys() counter.Sample { return sampleOf(keysample.New()) }
