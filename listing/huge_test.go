package listing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestHundredThousandEmptiedRanges: a page over them is bounded, and the chain
// of pages comes to its end, in both directions; and the bucket is deleted.
func TestHundredThousandEmptiedRanges(t *testing.T) {
	race.Skip(t)
	if testing.Short() {
		t.Skip("a large map")
	}
	const ranges = 100_000
	cuts := make([][]byte, ranges-1)
	for i := range cuts {
		cuts[i] = fmt.Appendf(nil, "%08d", i+1)
	}
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	b := c.Bucket("b")
	for _, k := range []string{"00000000", "00050000/x", "00099999/x"} {
		require.NoError(t, b.Put(t.Context(), []byte(k), nil))
	}
	for _, reverse := range []bool{false, true} {
		begin := time.Now()
		lines, pages := 0, 0
		for q := (listing.Query{Reverse: reverse}); ; pages++ {
			page, err := b.List(t.Context(), q)
			require.NoError(t, err)
			lines += len(page.Items)
			if q.Token = page.Next; q.Token == "" {
				break
			}
		}
		require.Equal(t, 3, lines)
		require.InDelta(t, ranges/256, pages, ranges/256/10)
		t.Logf("reverse %v: %d pages, %v", reverse, pages, time.Since(begin))
	}
	for _, k := range []string{"00000000", "00050000/x", "00099999/x"} {
		require.NoError(t, b.Delete(t.Context(), []byte(k)))
	}
	begin := time.Now()
	require.NoError(t, c.DeleteBucket(t.Context(), "b"))
	t.Logf("deleted in %v", time.Since(begin))
}
