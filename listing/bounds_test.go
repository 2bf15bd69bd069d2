package listing

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Bounds of memory and of reads: no answer shows them.

// seen is a store that notes what is read and written.
type seen struct {
	store.Store
	mu     sync.Mutex
	limits []int // of slices
	bytes  []int
	puts   []int // rows
	gets   int
	rows   []store.Row // of the latest put, as they came
	ctx    context.Context
	into   []store.Row     // of the latest slice
	sliced context.Context // that of the latest slice
}

func (s *seen) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	s.mu.Lock()
	s.limits, s.bytes = append(s.limits, o.Limit), append(s.bytes, o.Bytes)
	s.into, s.sliced = o.Into, ctx
	s.mu.Unlock()
	return s.Store.Slice(ctx, p, b, o)
}

func (s *seen) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.mu.Lock()
	s.gets++
	s.mu.Unlock()
	return s.Store.Get(ctx, p, key)
}

func (s *seen) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.mu.Lock()
	s.puts, s.rows, s.ctx = append(s.puts, len(rows)), rows, ctx
	s.mu.Unlock()
	return s.Store.Put(ctx, p, rows...)
}

// overSeen makes a bucket b with cuts.
func overSeen(t *testing.T, o Options, cuts ...[]byte) (*seen, *Client, store.BucketID) {
	s := &seen{Store: memstore.New()}
	c, err := New(s, o)
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	id, err := c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	s.limits, s.bytes, s.puts, s.gets = nil, nil, nil, 0
	return s, c, id
}

// TestWhatAClientRemembers is bounded.
func TestWhatAClientRemembers(t *testing.T) {
	_, c, _ := overSeen(t, Options{CacheBytes: 3 << 20})
	for i := range 10_001 {
		c.names.add(fmt.Sprint(i), store.BucketID{1})
		c.absent.known.Add(fmt.Sprint(i), c.o.Now())
		c.emptied.Add(store.BucketID{byte(i), byte(i >> 8)}, emptied{})
	}
	require.Equal(t, 1536, c.names.Len())
	require.EqualValues(t, 10_001-1536, mapclient.NamesOf(c).Evictions)
	require.Equal(t, 10_000, c.absent.known.Len())
	require.Equal(t, 1000, c.emptied.Len())
	require.Len(t, *rowsOfPages.New().(*rowsOfPage), 1001, "a page, and the row behind it")
}

// TestDefaults of the numbers in Options, in both forms.
func TestDefaults(t *testing.T) {
	s := memstore.New()
	for _, x := range []struct {
		network bool
		o       Options
		want    [7]int
	}{
		{false, Options{}, [7]int{65_536, 256, 8, 16, 1, 8, 3}},
		{true, Options{}, [7]int{65_536, 256, 8, 128, 16, 8, 3}},
		{true, Options{MaxParallel: 3}, [7]int{65_536, 256, 3, 128, 6, 8, 3}},
		{false, Options{1, 2, 3, 4, 5, 6, 7, nil, 0, nil, nil, nil}, [7]int{1, 2, 3, 4, 5, 6, 7}},
	} {
		c, err := New(s, x.o)
		require.NoError(t, err)
		if x.network {
			c, err = New(mapclient.With(s, mapclient.Of(c)), x.o)
			require.NoError(t, err)
		}
		o := &c.o
		require.Equal(t, x.want, [7]int{
			o.MaxValueBytes, o.MaxIdleReads, o.MaxParallel, o.RowsPerRead, o.ReadAhead, o.ReadAheadAfter, o.WriteAttempts,
		})
	}
}

// TestMemoryOfPagesIsUsedAgain: a pool may lose what it is given, but not always.
func TestMemoryOfPagesIsUsedAgain(t *testing.T) {
	const pages = 100
	s, c, _ := overSeen(t, Options{})
	made, alloc := 0, rowsOfPages.New
	defer func() { rowsOfPages.New = alloc }()
	rowsOfPages.New = func() any {
		made++
		return alloc()
	}
	for range pages {
		_, err := c.Bucket("b").List(t.Context(), Query{})
		require.NoError(t, err)
	}
	require.Less(t, made, pages)
	require.Len(t, s.into, 1001)
	require.True(t, s.sliced == t.Context(), "one read needs no goroutine")
}

// TestSpansOfNothing have no bounds that are empty keys.
func TestSpansOfNothing(t *testing.T) {
	require.Equal(t, span{}, (&Query{}).span())
	require.Equal(t, store.Bounds{}, (&span{exclusive: true}).bounds())
}

// TestTokensThatAreTooLong are not even decoded.
func TestTokensThatAreTooLong(t *testing.T) {
	long := span{lo: bytes.Repeat([]byte("k"), store.MaxKeyBytes)}
	token := long.token(store.BucketID{1}, &Query{})
	require.Len(t, token, 87_394)
	token += "A"
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if (&span{}).resume(token, store.BucketID{1}, &Query{}) != ErrBadToken {
			panic("it is not refused")
		}
	}))
}

// TestPagesAllocateOnce for their items, and once for their keys where these are cut off from the
// values.
func TestPagesAllocateOnce(t *testing.T) {
	rows := make([]store.Row, 1000)
	for i := range rows {
		rows[i] = store.Row{Key: fmt.Appendf(nil, "%04d", i), Value: store.EntryCell([]byte("value"))}
	}
	for _, q := range []*Query{{}, {KeysOnly: true}} {
		p := pageOf(Options{}, q, 1000)
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
			p.left, p.n, p.items, p.more = span{}, 0, nil, false
			if err := p.take(&read{got: piece{rows: rows}}); err != nil || len(p.items) != len(rows) {
				panic(err)
			}
		}), map[bool]float64{false: 1, true: 2}[q.KeysOnly]+1) // and the read
		require.Equal(t, cap(p.items), len(rows))
	}
}

// TestPagesThatGrowSlowly do not copy all their items for each new one.
func TestPagesThatGrowSlowly(t *testing.T) {
	p := pageOf(Options{}, &Query{}, 1000)
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		p.n, p.items = 0, nil
		for range 1000 {
			if err := p.add(Item{}, 0); err != nil {
				panic(err)
			}
		}
	}), 11.0)
	require.Equal(t, 1000, cap(p.items))
}

// unchanged is a store of rows that it copies to where they are wanted, and nowhere else.
type unchanged struct {
	store.Store
	rows []store.Row
}

func (s *unchanged) Slice(
	_ context.Context, _ store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	from, _ := slices.BinarySearchFunc(s.rows, b.Start, func(r store.Row, key []byte) int {
		return bytes.Compare(r.Key, key)
	})
	if b.StartExclusive {
		from++
	}
	to := min(from+o.Limit, len(s.rows))
	return store.Page{Rows: append(o.Into[:0], s.rows[from:to]...), More: to < len(s.rows)}, nil
}

// TestAllUsesThePagesBefore: their memory is that of the pages behind them.
func TestAllUsesThePagesBefore(t *testing.T) {
	if race.Enabled {
		t.Skip("pools lose memory with the race detector")
	}
	s := &unchanged{Store: memstore.New()}
	c, err := New(s, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	const pages = 40
	for i := range pages * defaultLimit {
		s.rows = append(s.rows, store.Row{Key: fmt.Appendf(nil, "%06d", i), Value: store.EntryCell(nil)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for range c.Bucket("b").All(t.Context(), Query{}) {
		n++
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, len(s.rows), n)
	page := uint64(defaultLimit * unsafe.Sizeof(Item{}))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, pages/2*page)
}

// TestAReadIsPlannedWithoutMemory of its own.
func TestAReadIsPlannedWithoutMemory(t *testing.T) {
	_, c, id := overSeen(t, Options{})
	h, err := c.acquire(t.Context(), id)
	require.NoError(t, err)
	defer h.release()
	p := &pager{c: c, h: h}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if wave, err := p.plan(t.Context(), p.room[:0], 1); err != nil || len(wave) != 1 {
			panic(err)
		}
	}))
}

// TestReadsOfABucketToBeDeleted: markers are passed in reads that double.
func TestReadsOfABucketToBeDeleted(t *testing.T) {
	s, id := &seen{Store: memstore.New()}, store.BucketID{1}
	home := partmap.Range{Entry: partmap.Entry{Start: []byte("k0100"), Partition: store.PartitionID{1}},
		End: []byte("k9000")}
	now := store.Timestamp(0)
	put := func(key string, cell []byte) {
		now++
		row := store.Row{Key: []byte(key), Value: cell, Timestamp: now}
		require.NoError(t, s.Put(t.Context(), store.Partition{Bucket: id, ID: home.Partition}, row))
	}
	put("k0099", store.EntryCell(nil)) // of ranges that have moved away
	put("k9000", store.EntryCell(nil))
	for i := range 1000 {
		put(fmt.Sprintf("k%04d", 100+i), cells.Marker())
	}
	found, err := hasEntry(t.Context(), s, id, &home, &remaining{})
	require.NoError(t, err)
	require.False(t, found)
	require.Equal(t, []int{4, 8, 16, 32, 64, 128, 256, 512}, s.limits)
	put("k0200", store.EntryCell(nil))
	s.limits = nil
	found, err = hasEntry(t.Context(), s, id, &home, &remaining{})
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []int{4, 8, 16, 32, 64}, s.limits)
	home.End = nil
	home.Start = []byte("k2000")
	found, err = hasEntry(t.Context(), s, id, &home, &remaining{})
	require.NoError(t, err)
	require.True(t, found)
}

// TestBatchesThatAreWrittenThrough have 200 rows and a mebibyte at most, but one row in any case.
func TestBatchesThatAreWrittenThrough(t *testing.T) {
	s, c, id := overSeen(t, Options{})
	h, err := c.acquire(t.Context(), id)
	require.NoError(t, err)
	defer h.release()
	for _, x := range []struct {
		n, size int
		puts    []int
	}{
		{1, 10, []int{1}}, {200, 10, []int{200}}, {201, 10, []int{200, 1}}, {450, 10, []int{200, 200, 50}},
		{16, 1 << 16, []int{16}}, {17, 1 << 16, []int{16, 1}}, {16, 1<<16 + 1, []int{15, 1}},
		{2, 1<<20 + 2, []int{1, 1}}, {17, 61_681, []int{16, 1}}, {0, 0, nil},
	} {
		s.puts = nil
		rows := make([]late, x.n)
		for i := range rows {
			key := fmt.Appendf(nil, "%05d", i)
			rows[i] = late{Row: store.Row{Key: key, Value: bytes.Repeat(store.EntryCell(nil), x.size-len(key)), Timestamp: 1}}
		}
		dst := store.Partition{Bucket: id, ID: store.PartitionID{9}}
		require.NoError(t, c.writeThrough(t.Context(), h, dst, rows))
		require.Equal(t, x.puts, s.puts, "%d of %d bytes", x.n, x.size)
	}
}

// TestBytesOfReads: a read is bounded where the query is, by what the page lacks, in equal parts
// for ranges that are read at once.
func TestBytesOfReads(t *testing.T) {
	s, c, _ := overSeen(t, Options{}, []byte("b"), []byte("c"), []byte("d"), []byte("e"), []byte("f"))
	b := c.Bucket("b")
	_, err := b.List(t.Context(), Query{})
	require.NoError(t, err)
	require.Equal(t, make([]int, 6), s.bytes)
	require.NoError(t, b.Put(t.Context(), []byte("a"), make([]byte, 9_999)))
	for _, x := range []struct {
		bytes int
		want  []int
	}{
		{100_000, []int{100_000, 90_000, 45_000, 45_000, 45_000, 45_000}},
		{10_000, []int{16_384}},
		{1, []int{16_384}},
		{60_000, []int{60_000, 50_000, 25_000, 25_000, 25_000, 25_000}},
		{40_000, []int{40_000, 30_000, 16_384, 16_384, 16_384, 16_384}},
	} {
		s.bytes = nil
		_, err = b.List(t.Context(), Query{Bytes: x.bytes})
		require.NoError(t, err)
		require.Equal(t, x.want, s.bytes)
	}
}

// TestWhoseMemoryIsWritten: the store gets the caller's key and context where the caller waits for
// the end of the write, and others where it may give up.
func TestWhoseMemoryIsWritten(t *testing.T) {
	s, c, _ := overSeen(t, Options{})
	b := c.Bucket("b")
	ending, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ending} {
		key := []byte("key")
		require.NoError(t, b.Put(ctx, key, nil))
		waits := ctx.Done() == nil
		require.Equal(t, waits, &key[0] == &s.rows[0].Key[0])
		require.Equal(t, waits, s.ctx == ctx)
		require.Nil(t, s.ctx.Done())
	}
}

// thenSeen is a store that puts can be given up of.
type thenSeen struct{ *seen }

func (s thenSeen) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	defer ended()
	return s.Put(ctx, p, rows...)
}

// TestWhoseMemoryIsWrittenThen: what a store does not use after it gave up needs no copy.
func TestWhoseMemoryIsWrittenThen(t *testing.T) {
	s := thenSeen{&seen{Store: memstore.New()}}
	c, err := New(s, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	key := []byte("key")
	require.NoError(t, c.Bucket("b").Put(ctx, key, nil))
	require.Same(t, &key[0], &s.rows[0].Key[0])
	require.Equal(t, ctx, s.ctx)
}

// TestAGetReadsOnce, in the partition that has the key.
func TestAGetReadsOnce(t *testing.T) {
	s, c, _ := overSeen(t, Options{})
	_, err := c.Bucket("b").Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, 1, s.gets)
}

// TestHotOperationsLookNothingUp: names and maps that are known are not read again.
func TestHotOperationsLookNothingUp(t *testing.T) {
	s := &registerReads{Store: memstore.New()}
	c, err := New(s, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	b := c.Bucket("b")
	use := func() {
		require.NoError(t, b.Put(t.Context(), []byte("k"), nil))
		_, err := b.Get(t.Context(), []byte("k"))
		require.NoError(t, err)
		_, err = b.List(t.Context(), Query{})
		require.NoError(t, err)
	}
	use()
	s.n = 0
	use()
	require.Zero(t, s.n)
}

// TestWhatSwapsRead: one that has succeeded is not looked at.
func TestWhatSwapsRead(t *testing.T) {
	s := &registerReads{Store: memstore.New()}
	c, err := New(s, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "first"))
	s.n = 0
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	require.Equal(t, 2, s.n, "the name, before and after")
	s.n = 0
	require.NoError(t, c.DeleteBucket(t.Context(), "b"))
	require.Equal(t, 3, s.n, "the name, and the roots of the bucket and of the list")
}

// registerReads counts the reads of registers.
type registerReads struct {
	store.Store
	n int
}

func (s *registerReads) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	s.n++
	return s.Store.Read(ctx, t, key, l)
}

// TestMendingWhatIsWell writes nothing; names that no bucket can have are refused.
func TestMendingWhatIsWell(t *testing.T) {
	s, c, _ := overSeen(t, Options{})
	name, err := c.readName(t.Context(), "b", store.Serial)
	require.NoError(t, err)
	require.NoError(t, door.Client(c).Mend(t.Context(), "b"))
	require.NoError(t, door.Client(c).Restore(t.Context(), "b"))
	require.ErrorIs(t, c.CreateBucket(t.Context(), "b"), ErrBucketExists)
	require.Empty(t, s.puts)
	now, err := c.readName(t.Context(), "b", store.Serial)
	require.NoError(t, err)
	require.Equal(t, name, now)
	require.NoError(t, c.CreateBucket(t.Context(), "new"))
	require.Equal(t, []int{1}, s.puts, "its line in the list")
	for _, name := range []string{"", strings.Repeat("x", 256)} {
		_, err := door.Client(c).Listed(t.Context(), name)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorIs(t, door.Client(c).Mend(t.Context(), name), store.InvalidArgument)
		require.ErrorIs(t, door.Client(c).Restore(t.Context(), name), store.InvalidArgument)
		require.ErrorContains(t, err, "1 to 255")
	}
}

// TestCutsOfABucket may be given in any order, and several times; the caller's stay as they are.
func TestCutsOfABucket(t *testing.T) {
	cuts := [][]byte{[]byte("m"), []byte("b"), []byte("m"), []byte("z")}
	_, c, id := overSeen(t, Options{}, cuts...)
	require.Equal(t, [][]byte{[]byte("m"), []byte("b"), []byte("m"), []byte("z")}, cuts)
	root, err := c.maps.Load(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 4, root.Ranges)
}

// TestPointsOfNothing cost no read.
func TestPointsOfNothing(t *testing.T) {
	s, c, _ := overSeen(t, Options{}, []byte("m"))
	for _, x := range []struct {
		bucket string
		q      Query
		n      int
	}{{"b", Query{}, 1}, {"none", Query{}, 1}, {"b", Query{From: []byte("b"), To: []byte("b")}, 9}} {
		points, err := c.Bucket(x.bucket).SplitPoints(t.Context(), x.q, x.n)
		require.NoError(t, err)
		require.Empty(t, points)
	}
	require.Empty(t, s.limits)
}

// TestRangesThatAreTakenTogether: 4,096 ranges are asked one by one, or eight for each part.
func TestRangesThatAreTakenTogether(t *testing.T) {
	for _, x := range []struct{ ranges, parts, reads int }{
		{4096, 2, 4096}, {4097, 2, 2049}, {4160, 520, 4160}, {4161, 520, 2081},
	} {
		var cuts [][]byte
		for i := 1; i < x.ranges; i++ {
			cuts = append(cuts, fmt.Appendf(nil, "%04d", i))
		}
		s, c, _ := overSeen(t, Options{}, cuts...)
		_, err := c.Bucket("b").SplitPoints(t.Context(), Query{}, x.parts)
		require.NoError(t, err)
		require.Len(t, s.limits, x.reads)
	}
}

// TestProbesOfStretches: how many keys are read of each, and what those weigh of which not all keys
// were read.
func TestProbesOfStretches(t *testing.T) {
	under, c, id := overSeen(t, Options{}, []byte("m"))
	b := c.Bucket("b")
	put := func(n int) {
		for i := range n {
			require.NoError(t, b.Put(t.Context(), fmt.Appendf(nil, "%03d", i), nil))
		}
	}
	s := sampler{c: c, id: id}
	first, err := s.stretches(t.Context(), span{}, 2)
	require.NoError(t, err)
	require.Len(t, first, 2)
	weight := func(asked int, others ...float64) float64 {
		all := make([]stretch, asked, asked+len(others))
		for i := range all {
			all[i] = first[0]
		}
		for _, w := range others {
			all = append(all, stretch{weight: w, ranges: 2})
		}
		under.limits = nil
		require.NoError(t, s.probe(t.Context(), all))
		require.Len(t, under.limits, asked)
		return all[0].weight
	}
	put(2)
	require.Equal(t, 2.0, weight(5000))
	put(3)
	require.Equal(t, 128.0, weight(5000), "two are read at least, and there is a third")
	require.Equal(t, 3.0, weight(1))
	put(81)
	require.Equal(t, 81.0, weight(100))
	put(82)
	require.Equal(t, 128.0, weight(100), "8,192 rows are read in all")
	put(128)
	require.Equal(t, 128.0, weight(1))
	put(129)
	require.Equal(t, 128.0, weight(1), "128 of each at most")
	require.Equal(t, 1000.0, weight(1, 2000, 0), "the mean of the others that have rows")
	require.Equal(t, 700.0, weight(1, 2000, 800))
	require.Equal(t, 128.0, weight(1, 20))
	first[0].span.lo = []byte("000")
	require.Equal(t, 64.0, weight(1), "half of a range that the span cuts")
	first[0].ranges = 3
	require.Equal(t, 384.0, weight(1), "three ranges, whatever their ends")
}

// TestPlacesOfPoints: at the end of a stretch where that changes a part by an eighth at most, else
// within it.
func TestPlacesOfPoints(t *testing.T) {
	made := func(weights ...int) (all []stretch) {
		for i, n := range weights {
			x := stretch{ranges: 1, weight: float64(n)}
			x.span.lo, x.span.hi = fmt.Appendf(nil, "%c", 'a'+i), fmt.Appendf(nil, "%c", 'b'+i)
			for k := range n {
				x.keys = append(x.keys, fmt.Appendf(nil, "%c%03d", 'a'+i, k))
			}
			all = append(all, x)
		}
		all[0].span.lo, all[len(all)-1].span.hi = nil, nil
		return all
	}
	s := sampler{c: &Client{o: Options{MaxParallel: 1}}}
	for _, x := range []struct {
		weights []int
		n       int
		want    string
	}{
		{[]int{80, 80}, 2, "b"},
		{[]int{90, 70}, 2, "b"},    // ten more than a part, an eighth
		{[]int{91, 69}, 2, "a080"}, // and more than that
		{[]int{70, 90}, 2, "b"},
		{[]int{69, 91}, 2, "b011"},
		{[]int{160}, 2, "a080"},
		{[]int{16}, 16, "a001 a002 a003 a004 a005 a006 a007 a008 a009 a010 a011 a012 a013 a014 a015"},
		{[]int{0, 80, 0, 80, 0}, 2, "d"},
		{[]int{40, 40, 40, 40}, 4, "b c d"},
		{[]int{0, 0}, 3, ""},
		{[]int{40, 120}, 4, "b b040 b080"},
		{[]int{1}, 49, strings.TrimSpace(strings.Repeat("a000 ", 48))}, // 49 times a 49th is less than one
	} {
		points, err := s.points(t.Context(), made(x.weights...), x.n)
		require.NoError(t, err)
		require.Equal(t, x.want, string(bytes.Join(points, []byte(" "))), "%v in %d", x.weights, x.n)
	}
}

// sizesOf is a source that knows the sizes of all ranges, but not where their rows are.
type sizesOf struct {
	mu     sync.Mutex
	stats  func(n int) []counter.Stats
	quanta []counter.Quantum
	err    error
	asked  int
}

func (s *sizesOf) Stats(_ context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	return s.stats(len(partitions)), nil
}

func (s *sizesOf) Quanta(context.Context, store.Partition) ([]counter.Quantum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.quanta, s.err
}

// TestHowManySizesAreAskedFor: of 256 ranges at most, and of ranges that are cut within only as
// far as needed.
func TestHowManySizesAreAskedFor(t *testing.T) {
	var cuts [][]byte
	for i := 1; i < 300; i++ {
		cuts = append(cuts, fmt.Appendf(nil, "%03d", i))
	}
	known := func(n int) []counter.Stats {
		all := make([]counter.Stats, n)
		for i := range all {
			all[i] = counter.Stats{Known: true, Rows: 10}
		}
		return all
	}
	sizes := &sizesOf{stats: known, quanta: []counter.Quantum{{Rows: 10}}}
	s, c, _ := overSeen(t, Options{Sizes: sizes}, cuts...)
	q := Query{From: []byte("000x"), To: []byte("299x")}
	all, err := (&sampler{c: c, id: idOf(t, c)}).stretches(t.Context(), q.span(), 4096)
	require.NoError(t, err)
	require.Len(t, all, 300)
	for i := range all {
		all[i].span.exclusive = true // so that none is whole
	}
	(&sampler{c: c, id: idOf(t, c)}).count(t.Context(), all)
	require.Equal(t, 256, sizes.asked)
	weighed := 0
	for i := range all {
		if all[i].weight == 10 {
			weighed++
		} else {
			require.Equal(t, -1.0, all[i].weight)
		}
	}
	require.Equal(t, 256, weighed)

	// A source that answers something else is not believed.
	for i := range all {
		all[i].weight = -1
	}
	sizes.stats, sizes.asked = func(n int) []counter.Stats { return known(n - 1) }, 0
	(&sampler{c: c, id: idOf(t, c)}).count(t.Context(), all)
	require.Zero(t, sizes.asked)
	require.Equal(t, -1.0, all[0].weight)
	require.Empty(t, s.limits)
}

// TestWhatSizesWeigh: what is known of a partition counts for each range that it stands for, and may
// be nothing.
func TestWhatSizesWeigh(t *testing.T) {
	quanta := []counter.Quantum{{Rows: 7}}
	known := counter.Stats{Known: true, Rows: 10}
	for _, x := range []struct {
		ranges int
		stats  counter.Stats
		quanta []counter.Quantum
		err    error
		weight float64
		asked  int
	}{
		{1, counter.Stats{Rows: 10}, quanta, nil, -1, 0},
		{1, counter.Stats{Known: true}, quanta, nil, 0, 0},
		{3, counter.Stats{Known: true}, quanta, nil, 0, 0},
		{3, known, quanta, nil, 30, 0},
		{1, known, quanta, nil, 7, 1}, // nobody says that these are its own rows only
		{1, known, nil, nil, -1, 1},
		{1, known, quanta, ErrNotFound, -1, 1},
	} {
		sizes := &sizesOf{quanta: x.quanta, err: x.err}
		sizes.stats = func(int) []counter.Stats { return []counter.Stats{x.stats} }
		_, c, id := overSeen(t, Options{Sizes: sizes})
		all := []stretch{{ranges: x.ranges, weight: -1}}
		(&sampler{c: c, id: id}).count(t.Context(), all)
		require.Equal(t, x.weight, all[0].weight, "%+v", x)
		require.Equal(t, x.asked, sizes.asked, "%+v", x)
	}
}

// TestSamplesOfNothing cost one read, and those that fail end with it.
func TestSamplesOfNothing(t *testing.T) {
	s, c, id := overSeen(t, Options{})
	parts, err := (&sampler{c: c, id: id}).sample(t.Context(), span{}, 9)
	require.NoError(t, err)
	require.Empty(t, parts)
	require.Len(t, s.limits, 1)
	nodes, c := overNodes(t, Options{}, "b", "c", "d", "e", "f", "g", "h", "i", "j")
	nodes.reads.Store(0)
	nodes.fails.Store(1)
	_, err = (&sampler{c: c, id: idOf(t, c)}).sample(t.Context(), span{}, 9)
	require.ErrorIs(t, err, store.Unavailable)
}

func idOf(t *testing.T, c *Client) store.BucketID {
	id, err := c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	return id
}

// TestQuantaWithinAStretch: they are used if they are more than the points, and asked for if the
// range is whole.
func TestQuantaWithinAStretch(t *testing.T) {
	quanta := []counter.Quantum{{Rows: 10}, {Key: []byte("b"), Rows: 10}, {Key: []byte("c"), Rows: 10}}
	for _, x := range []struct {
		points int
		change func(x *stretch)
		sizes  bool
		err    error
		asked  int
		reads  bool
	}{
		{points: 2, sizes: true, asked: 1},
		{points: 3, sizes: true, asked: 1, reads: true},
		{points: 2, reads: true},
		{points: 2, sizes: true, asked: 1, err: store.Errorf(store.Unavailable, "away"), reads: true},
		{points: 2, sizes: true, reads: true, change: func(x *stretch) { x.span.lo = []byte("a") }},
		{points: 2, sizes: true, change: func(x *stretch) { x.quanta, x.weight = quanta, 30 }},
		{points: 2, change: func(x *stretch) { x.quanta, x.weight = quanta, 30 }},
	} {
		sizes := &sizesOf{quanta: quanta, err: x.err}
		o := Options{}
		if x.sizes {
			o.Sizes = sizes
		}
		s, c, id := overSeen(t, o)
		sm := sampler{c: c, id: id}
		all, err := sm.stretches(t.Context(), span{}, 2)
		require.NoError(t, err)
		if x.change != nil {
			x.change(&all[0])
		}
		points, err := sm.within(t.Context(), &all[0], []float64{0.4, 0.7, 0.8}[:x.points], 1)
		require.NoError(t, err)
		require.Equal(t, x.asked, sizes.asked)
		require.Equal(t, x.reads, len(s.limits) > 0)
		if !x.reads {
			require.Equal(t, [][]byte{[]byte("b"), []byte("c")}, points)
		}
	}
}

// asking is a store that asks what a listing passes over, and leaves nothing out.
type asking struct {
	*seen
	leave int // rows that it does not ask about
}

func (a asking) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := a.seen.Slice(ctx, p, b, o)
	if o.Sift == nil {
		return page, err
	}
	asked := max(len(page.Rows)-a.leave, 0)
	all, passed := page.Rows, []byte(nil)
	page.Rows = nil
	for _, row := range all[:asked] {
		if passed != nil && bytes.HasPrefix(row.Key, passed) {
			continue
		}
		page.Rows, passed = append(page.Rows, row), nil
		if pass, _ := o.Sift(row.Key, row.Value); pass > 0 {
			passed = row.Key[:pass]
		}
	}
	page.Rows = append(page.Rows, all[asked:]...)
	return page, err
}

// TestListingsSiftOnce what the store has asked about; embedded they begin with a slice for the whole page.
func TestListingsSiftOnce(t *testing.T) {
	for _, c := range []struct {
		leave, sifted int
		reverse       bool
	}{{0, 20, false}, {1, 20, false}, {9, 20, false}, {100, 20, false}, {0, 20, true}} {
		s, client, _ := overSeen(t, Options{})
		client.rows = asking{s, c.leave}
		b := client.Bucket("b")
		var want []string
		for i := range 20 {
			key := fmt.Sprintf("%c%02d", 'a'+i/4, i)
			require.NoError(t, b.Put(t.Context(), []byte(key), nil))
			if i%4 == 1 { // the first of its letter that is not hidden
				want = append(want, key)
			}
		}
		sifted := 0
		q := Query{Reverse: c.reverse, Sift: func(e Entry) Sifted {
			sifted++
			if n := (e.Key[1]-'0')*10 + e.Key[2] - '0'; n%4 != 1 {
				return Sifted{Hidden: true}
			}
			return Sifted{Pass: 1}
		}}
		page, err := b.List(t.Context(), q)
		require.NoError(t, err)
		var got []string
		for _, item := range page.Items {
			got = append(got, string(item.Key))
		}
		if c.reverse {
			slices.Reverse(got)
			require.Equal(t, []int{64}, s.limits)
		} else {
			require.Equal(t, []int{1001}, s.limits)
		}
		require.Equal(t, want, got)
		require.LessOrEqual(t, sifted, c.sifted, "%+v", c)
	}
}

// TestCachesFollowOneOption: with more memory a client keeps more names and roots of buckets, and it says how often it
// finds what it needs.
func TestCachesFollowOneOption(t *testing.T) {
	read := func(cacheBytes int64) (c *Client, names, roots mapclient.CacheCounts) {
		c, err := New(memstore.New(), Options{CacheBytes: cacheBytes})
		require.NoError(t, err)
		const buckets = 1500
		for i := range buckets {
			require.NoError(t, c.CreateBucket(t.Context(), fmt.Sprint("bucket-", i)))
		}
		for range 2 {
			for i := range buckets {
				_, err := c.Bucket(fmt.Sprint("bucket-", i)).Get(t.Context(), []byte("k"))
				require.ErrorIs(t, err, ErrNotFound)
			}
		}
		return c, mapclient.NamesOf(c), mapclient.Of(c).Usage().RootCache
	}
	_, names, roots := read(64 << 20)
	require.EqualValues(t, 1500, names.Hits)
	require.EqualValues(t, 1500, names.Misses)
	require.Zero(t, names.Evictions+roots.Evictions)
	require.GreaterOrEqual(t, roots.Hits, int64(3000))

	_, names, roots = read(1)
	require.Zero(t, names.Hits, "each is dropped before it is needed again")
	require.Positive(t, names.Evictions)
	require.Positive(t, roots.Evictions)
	require.GreaterOrEqual(t, roots.Misses, roots.Evictions/2)
}
