package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// names are n keys as object stores see them, in order.
func names(n int) [][]byte {
	set, next := map[string]bool{}, realkeys.Names(5)
	for len(set) < n {
		set[next()] = true
	}
	var keys [][]byte
	for k := range set {
		keys = append(keys, []byte(k))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// sized is a bucket of these keys whose reads are counted.
func sized(t *testing.T, keys [][]byte, sizes counter.Source, cuts ...[]byte) (*listing.Client, *rowCounts) {
	t.Helper()
	s := &rowCounts{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{Sizes: sizes})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	var entries []listing.Entry
	for _, k := range keys {
		entries = append(entries, listing.Entry{Key: k})
	}
	require.NoError(t, c.Bucket("b").PutBatch(t.Context(), entries))
	s.slices.Store(0)
	s.rows.Store(0)
	return c, s
}

// uneven is how many times the mean the largest part of keys is.
func uneven(keys, points [][]byte, parts int) float64 {
	largest, from := 0, 0
	for i := range len(points) + 1 {
		to := len(keys)
		if i < len(points) {
			to = sort.Search(len(keys), func(j int) bool { return bytes.Compare(keys[j], points[i]) >= 0 })
		}
		largest, from = max(largest, to-from), to
	}
	return float64(largest*parts) / float64(len(keys))
}

// bucketRanges are the ranges of the bucket's map.
func bucketRanges(t *testing.T, c *listing.Client) (root *partmap.Root, all []partmap.Range) {
	t.Helper()
	id, err := c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	root, err = mapclient.Of(c).Load(t.Context(), id)
	require.NoError(t, err)
	for rg, err := range mapclient.Of(c).Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		all = append(all, rg)
	}
	return root, all
}

// TestSplitPointsFollowTheMap: a balanced bucket is cut where its ranges are, with a
// read or so of each, however its keys look.
func TestSplitPointsFollowTheMap(t *testing.T) {
	keys := names(20_000)
	var cuts [][]byte
	for i := 1; i < 20; i++ {
		cuts = append(cuts, keys[i*len(keys)/20])
	}
	c, s := sized(t, keys, nil, cuts...)
	for _, n := range []int{2, 4, 5, 10, 20} {
		s.slices.Store(0)
		points, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, n)
		require.NoError(t, err)
		require.Len(t, points, n-1)
		require.InDelta(t, 1, uneven(keys, points, n), 0.01, "%d parts", n)
		require.LessOrEqual(t, s.slices.Load(), int64(20))
	}
	for _, n := range []int{3, 8, 16} { // into ranges
		points, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, n)
		require.NoError(t, err)
		t.Logf("%d parts: the largest is %.2f times the mean", n, uneven(keys, points, n))
		require.Less(t, uneven(keys, points, n), 1.6)
	}
}

// TestSplitPointsBySizes: ranges of very different sizes, and parts that are smaller
// than they: what counters know makes parts even, and no row is read.
func TestSplitPointsBySizes(t *testing.T) {
	keys := names(30_000)
	counts := countbook.NewMemory(nil)
	c, s := sized(t, keys, counts, keys[100], keys[20_000], keys[20_050], keys[29_000])
	root, ranges := bucketRanges(t, c)
	for _, rg := range ranges {
		p := store.Partition{Bucket: root.Bucket, ID: rg.Partition}
		n, err := countbook.NewRecount(s, p, store.Bounds{Start: rg.Start, End: rg.End}, countbook.RecountOptions{}).
			Run(t.Context())
		require.NoError(t, err)
		require.NoError(t, counts.Correct(t.Context(), p, n))
	}
	for _, q := range []listing.Query{{}, {From: keys[50], To: keys[29_500]}, {Prefix: keys[10_000][:3]},
		{After: keys[19_000]}} {
		var within [][]byte
		for item, err := range c.Bucket("b").All(t.Context(), q) {
			require.NoError(t, err)
			within = append(within, item.Key)
		}
		s.slices.Store(0)
		const n = 6
		points, err := c.Bucket("b").SplitPoints(t.Context(), q, n)
		require.NoError(t, err)
		require.Len(t, points, n-1)
		t.Logf("%d keys: the largest part is %.2f times the mean", len(within), uneven(within, points, n))
		require.Less(t, uneven(within, points, n), 1.3)
		require.Zero(t, s.slices.Load())
	}
}

// TestSplitPointsOfACutRange: the counts of a partition that has lost keys, or that
// many ranges share since they are moving out of it, are divided by its sample.
func TestSplitPointsOfACutRange(t *testing.T) {
	keys := names(10_000)
	counts := countbook.NewMemory(nil)
	c, s := sized(t, keys, counts)
	root, ranges := bucketRanges(t, c)
	p := store.Partition{Bucket: root.Bucket, ID: ranges[0].Partition}
	n, err := countbook.NewRecount(s, p, store.Bounds{}, countbook.RecountOptions{}).Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, counts.Correct(t.Context(), p, n))
	// Most of it moves away, in three ranges of very different sizes.
	fresh := func(cut []byte) partmap.Part {
		return partmap.Part{Start: cut, To: store.PartitionID(uuid.New())}
	}
	edit := mapclient.Of(c).Edit(t.Context(), root)
	_, err = edit.Begin(partmap.Move{Parts: []partmap.Part{{}, fresh(keys[1000]), fresh(keys[9000]),
		fresh(keys[9100])}})
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
	s.slices.Store(0)
	points, err := c.Bucket("b").SplitPoints(t.Context(), listing.Query{}, 5)
	require.NoError(t, err)
	require.Len(t, points, 4)
	require.Less(t, uneven(keys, points, 5), 1.3)
	require.Zero(t, s.slices.Load())
}

// liar is a Source that says anything.
type liar struct {
	mu   sync.Mutex
	r    *rand.Rand
	keys [][]byte
}

func (l *liar) Stats(_ context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r.IntN(4) == 0 {
		return nil, store.Errorf(store.Unavailable, "nobody is there")
	}
	out := make([]counter.Stats, len(partitions))
	for i := range out {
		out[i].Known, out[i].Rows = l.r.IntN(3) > 0, l.r.Int64N(3)*l.r.Int64N(10_000)
	}
	return out, nil
}

func (l *liar) Quanta(context.Context, store.Partition) ([]counter.Quantum, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r.IntN(4) == 0 {
		return nil, store.Errorf(store.Unavailable, "nobody is there")
	}
	out := []counter.Quantum{{Rows: l.r.Int64N(100)}}
	for _, i := range l.r.Perm(len(l.keys))[:l.r.IntN(20)] {
		out = append(out, counter.Quantum{Key: l.keys[i], Rows: l.r.Int64N(100)})
	}
	slices.SortFunc(out, func(a, b counter.Quantum) int { return bytes.Compare(a.Key, b.Key) })
	return out, nil
}

// TestSplitPointsOfWrongSizes: wrong sizes make parts uneven, and nothing else.
func TestSplitPointsOfWrongSizes(t *testing.T) {
	race.Skip(t)
	seed := seed.Number(t)
	r := rand.New(rand.NewPCG(seed, 1))
	keys := names(2_000)
	for _, ranges := range []int{1, 5, 60} {
		var cuts [][]byte
		for i := 1; i < ranges; i++ {
			cuts = append(cuts, keys[i*len(keys)/ranges])
		}
		c, _ := sized(t, keys, &liar{r: rand.New(rand.NewPCG(seed, 2)), keys: keys}, cuts...)
		for i := range 200 {
			n := 1 + r.IntN(40)
			var q listing.Query
			if r.IntN(2) == 0 {
				q.From, q.To = keys[r.IntN(1000)], keys[1000+r.IntN(1000)]
			}
			what := fmt.Sprintf("%d ranges, query %d, %d parts", ranges, i, n)
			points, err := c.Bucket("b").SplitPoints(t.Context(), q, n)
			require.NoError(t, err, what)
			require.Less(t, len(points), n, what)
			last := q.From
			for _, p := range points {
				require.Greater(t, string(p), string(last), what)
				last = p
			}
			if q.To != nil {
				require.Less(t, string(last), string(q.To), what)
			}
		}
	}
}

// TestStretchesCoverTheSpan: neighbouring ranges are taken together where there are
// many, with none left out.
func TestStretchesCoverTheSpan(t *testing.T) {
	const ranges = 1000
	cut := func(i int) []byte { return fmt.Appendf(nil, "%04d", i) }
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, cut(i))
	}
	c, _ := sized(t, nil, nil, cuts...)
	id, err := c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	for _, most := range []int{2, 6, 64, 998, 1000, 4096} {
		for _, q := range []listing.Query{{}, {From: []byte("0100x"), To: []byte("0333")}, {Prefix: []byte("07")},
			{Prefix: []byte("0777")}} {
			los, his, counts, err := listing.Stretches(t.Context(), c, id, q, most)
			require.NoError(t, err)
			from, to := q.From, q.To
			if q.Prefix != nil {
				from, to = q.Prefix, store.PrefixEnd(q.Prefix)
			}
			total := 0
			for i := range los {
				require.Equal(t, string(from), string(los[i]))
				from = his[i]
				total += counts[i]
			}
			require.Equal(t, string(to), string(from))
			within := 0
			for i := range ranges {
				if (len(to) == 0 || string(cut(i)) < string(to)) && string(cut(i+1)) > string(los[0]) {
					within++
				}
			}
			require.Equal(t, within, total)
			require.LessOrEqual(t, len(los), most)
			require.GreaterOrEqual(t, len(los), min(within, most/2))
		}
	}
	los, _, _, err := listing.Stretches(t.Context(), c, id, listing.Query{To: []byte("0")}, 64)
	require.NoError(t, err)
	require.Len(t, los, 1, "it ends below all cuts")
}

// localOnly is a store whose registers can be read in their own data centre only.
type localOnly struct {
	store.Store
	alone atomic.Bool
}

func (s *localOnly) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if l == store.Serial && s.alone.Load() {
		return store.Record{}, store.Errorf(store.Unavailable, "the other data centre is away")
	}
	return s.Store.Read(ctx, t, key, l)
}

// TestSplitPointsStayInTheDataCentre: like a page they need no other one.
func TestSplitPointsStayInTheDataCentre(t *testing.T) {
	s := &localOnly{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	keys := names(1000)
	require.NoError(t, c.CreateBucket(t.Context(), "b", keys[250], keys[500], keys[750]))
	b := c.Bucket("b")
	for _, k := range keys {
		require.NoError(t, b.Put(t.Context(), k, nil))
	}
	s.alone.Store(true)
	_, err = b.List(t.Context(), listing.Query{})
	require.NoError(t, err)
	points, err := b.SplitPoints(t.Context(), listing.Query{}, 4)
	require.NoError(t, err)
	require.Equal(t, [][]byte{keys[250], keys[500], keys[750]}, points)
}
