package listing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestSplitPointsAreEven: whatever the keys look like, in one range and in a
// few, no part is much larger than the others.
func TestSplitPointsAreEven(t *testing.T) {
	race.Skip(t)
	const n = 30_000
	r := rand.New(rand.NewPCG(3, 3))
	shapes := map[string]func(i int) string{
		"hashes":   func(int) string { return fmt.Sprintf("%016x", r.Uint64()) },
		"sequence": func(i int) string { return fmt.Sprintf("%010d", i) },
		"dates":    func(i int) string { return fmt.Sprintf("logs/2024-%02d-%02d/host%03d/%d", 1+i%12, 1+i%28, i%50, i) },
		"skewed": func(i int) string {
			if i%100 == 0 {
				return fmt.Sprintf("%c/%d", 'a'+rune(r.IntN(26)), i)
			}
			return fmt.Sprintf("tenant/project/photos/IMG_%08d.jpg", i*7919%n)
		},
		"powers": func(i int) string { return fmt.Sprintf("%s/%d", fmt.Sprint(1<<r.IntN(14)), i) },
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for k := range shapes {
			if !yield(k) {
				return
			}
		}
	}) {
		for _, ranges := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/ranges=%d", name, ranges), func(t *testing.T) {
				keys := map[string]bool{}
				for i := range n {
					keys[shapes[name](i)] = true
				}
				var sorted []string
				for k := range keys {
					sorted = append(sorted, k)
				}
				sort.Strings(sorted)
				c, err := listing.New(memstore.New(), listing.Options{})
				require.NoError(t, err)
				var cuts [][]byte
				for i := 1; i < ranges; i++ {
					cuts = append(cuts, []byte(sorted[i*len(sorted)/ranges]))
				}
				require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
				b := c.Bucket("b")
				var entries []listing.Entry
				for _, k := range sorted {
					entries = append(entries, listing.Entry{Key: []byte(k)})
				}
				require.NoError(t, b.PutBatch(t.Context(), entries))
				const parts = 8
				points, err := b.SplitPoints(t.Context(), listing.Query{}, parts)
				require.NoError(t, err)
				require.Len(t, points, parts-1)
				largest, from := 0, 0
				for i := range parts {
					to := len(sorted)
					if i < len(points) {
						to = sort.SearchStrings(sorted, string(points[i]))
					}
					largest = max(largest, to-from)
					from = to
				}
				t.Logf("the largest of %d parts is %.2f times the mean", parts,
					float64(largest*parts)/float64(len(sorted)))
				require.Less(t, largest*parts, 2*len(sorted))
			})
		}
	}
}

// TestSplitPointsCostLittle: the fewer parts, the fewer keys are read; and parts are
// even also where most ranges were cut ahead and are empty.
func TestSplitPointsCostLittle(t *testing.T) {
	const n, ranges, parts = 50_000, 2_000, 4
	s := &rowCounts{Store: memstore.New()}
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	keys := albums(n, 20)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		if i < 20 {
			cuts = append(cuts, keys[i*n/20])
		} else {
			cuts = append(cuts, fmt.Appendf(nil, "videos/%08d", i))
		}
	}
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	var entries []listing.Entry
	for _, k := range keys {
		entries = append(entries, listing.Entry{Key: k})
	}
	b := c.Bucket("b")
	require.NoError(t, b.PutBatch(t.Context(), entries))
	s.slices.Store(0)
	s.rows.Store(0)
	points, err := b.SplitPoints(t.Context(), listing.Query{}, parts)
	require.NoError(t, err)
	require.Len(t, points, parts-1)
	t.Logf("%d slices, %d rows", s.slices.Load(), s.rows.Load())
	require.Less(t, s.slices.Load(), int64(ranges+200)) // empty ranges are passed once
	require.Less(t, s.rows.Load(), int64(9_000))
	largest, from := 0, 0
	for i := range parts {
		to := n
		if i < len(points) {
			to = sort.Search(n, func(j int) bool { return string(keys[j]) >= string(points[i]) })
		}
		largest = max(largest, to-from)
		from = to
	}
	require.Less(t, largest*parts, 2*n)
}
