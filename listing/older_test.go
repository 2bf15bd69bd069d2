package listing_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// What was put before a time goes, within bounds that are anywhere, and what was put again since stays. A range of the
// map that has nothing old takes no tombstone.
func TestDeleteOlderDeletesWhatIsOld(t *testing.T) {
	seed.Each(t, race.Fewer(30), func(n uint64) bool {
		ctx, r := t.Context(), rand.New(rand.NewPCG(n, 1))
		key := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
		const keys, young = 4000, 2000 // keys above young are all put later
		var cuts [][]byte
		for i := 500; i < keys; i += 500 {
			cuts = append(cuts, key(i))
		}
		s := &tombstones{Store: memstore.New()}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(ctx, "b", cuts...))
		b := c.Bucket("b")
		put := map[bool]map[int]bool{true: {}, false: {}} // by whether it is old
		some := func(from, to int, old bool) {
			var batch []listing.Entry
			for i := from; i < to; i++ {
				if r.IntN(3) > 0 {
					batch = append(batch, listing.Entry{Key: key(i), Value: []byte("v")})
					put[old][i] = true
					delete(put[!old], i)
				}
			}
			require.NoError(t, b.PutBatch(ctx, batch))
		}
		some(0, young, true)
		m, err := door.Bucket(b).Mark(ctx)
		require.NoError(t, err)
		some(1000, keys, false)
		from, to := r.IntN(young), r.IntN(keys+1000)
		if from > to {
			from, to = to, from+1
		}
		high := key(to)
		if to >= keys {
			high = nil
		}
		within := func(i int) bool { return i >= from && (high == nil || i < to) }
		want, ranges := door.Older{}, map[int]bool{}
		for i := range keys {
			if put[true][i] && within(i) {
				want.Entries++
				want.Last = key(i)
				if want.First == nil {
					want.First = key(i)
				}
				ranges[i/500] = true
			}
		}
		want.Ranges = int64(len(ranges))
		old, err := door.Bucket(b).OlderThan(ctx, key(from), high, m.At())
		require.NoError(t, err)
		require.Equal(t, want, old)

		s.removals.Store(0)
		for next := key(from); next != nil; {
			next, err = door.Bucket(b).DeleteOlderUntil(ctx, next, high, m.At(), time.Unix(0, 0)) // a range at a time
			require.NoError(t, err)
		}
		require.LessOrEqual(t, s.removals.Load(), want.Ranges)
		var left [][]byte
		for i := range keys {
			if put[false][i] || put[true][i] && !within(i) {
				left = append(left, key(i))
			}
		}
		require.True(t, slices.EqualFunc(left, keysOf(t, b), bytes.Equal))
		old, err = door.Bucket(b).OlderThan(ctx, key(from), high, m.At())
		require.NoError(t, err)
		require.Equal(t, door.Older{}, old)
		_, err = door.Bucket(b).DeleteOlderUntil(ctx, nil, nil, m.At()+store.Timestamp(time.Hour.Microseconds()), time.Time{})
		require.ErrorIs(t, err, store.InvalidArgument)
		return true
	})
}
