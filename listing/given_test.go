package listing_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

func still() bool { return true }

// Of writes with given timestamps the newest wins, in any order.
func TestGivenTimesDecide(t *testing.T) {
	ctx := t.Context()
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b, key := c.Bucket("b"), []byte("k")
	first, err := door.Client(c).Stamps(ctx, 4)
	require.NoError(t, err)
	later, err := door.Client(c).Stamps(ctx, 1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, later, first+4)
	put := func(ts store.Timestamp) {
		require.NoError(t, door.Bucket(b).PutAt(ctx, key, fmt.Append(nil, ts-first), door.Given{At: ts, Still: still}))
	}
	get := func() string {
		e, err := b.Get(ctx, key)
		require.NoError(t, err)
		return string(e.Value)
	}
	for _, order := range [][]store.Timestamp{{0, 2, 1}, {2, 1, 0}} {
		for _, n := range order {
			put(first + n)
		}
		require.Equal(t, "2", get())
	}
	require.NoError(t, door.Bucket(b).DeleteAt(ctx, key, door.Given{At: first + 1, Still: still}))
	require.Equal(t, "2", get(), "a delete of what is older")
	require.NoError(t, door.Bucket(b).DeleteAt(ctx, key, door.Given{At: first + 2, Still: still}))
	put(first + 1)
	put(first + 2)
	_, err = b.Get(ctx, key)
	require.ErrorIs(t, err, listing.ErrNotFound, "at a tie the delete wins")
	put(first + 3)
	require.Equal(t, "3", get())

	over := door.Given{At: later, Still: func() bool { return false }}
	require.ErrorIs(t, door.Bucket(b).PutAt(ctx, key, []byte("late"), over), door.ErrTooLate)
	require.ErrorIs(t, door.Bucket(b).DeleteAt(ctx, key, over), door.ErrTooLate)
	require.Equal(t, "3", get())
	require.ErrorIs(t, door.Bucket(b).PutAt(ctx, key, nil, door.Given{Still: still}), store.InvalidArgument)
	require.ErrorIs(t, door.Bucket(b).DeleteAt(ctx, key, door.Given{Still: still}), store.InvalidArgument)
	good := door.Given{At: later, Still: still}
	require.ErrorIs(t, door.Bucket(b).PutAt(ctx, nil, nil, good), store.InvalidArgument, "no key")
	require.ErrorIs(t, door.Bucket(b).PutAt(ctx, key, make([]byte, 64<<10+1), good), store.InvalidArgument, "too long a value")
	require.ErrorIs(t, door.Bucket(b).DeleteAt(ctx, nil, good), store.InvalidArgument)
	require.Equal(t, "3", get())
}

// What a listing shows by a caller's own rule: pages of any size, with many and few keys below what
// is passed over.
func TestListingsThatSift(t *testing.T) {
	t.Run("in a store that leaves nothing out", func(t *testing.T) { listingsThatSift(t, memstore.New()) })
	t.Run("in a store that leaves out what is passed over", func(t *testing.T) {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
		require.NoError(t, err)
		defer s.Close()
		listingsThatSift(t, s)
	})
}

func listingsThatSift(t *testing.T, s store.Store) {
	ctx, r := t.Context(), seed.New(t)
	c, err := listing.New(s, listing.Options{RowsPerRead: 1 + r.IntN(30)})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	b := c.Bucket("b")
	var keys []string
	for group := range 40 {
		for n := range []int{1, 2, 5, 300}[min(r.IntN(20), 3)] {
			keys = append(keys, fmt.Sprintf("%02d/%03d", group, n))
			require.NoError(t, b.Put(ctx, []byte(keys[len(keys)-1]), []byte{byte(r.IntN(4)), 1, 2, 3}))
		}
	}
	// By the value: 0 and 1 are shown, and hide the rest of the group; 2 is hidden and hides it; 3 is
	// hidden alone; in groups that end with 7, what is shown is a common prefix. Some items lack the end of
	// their value, or try to have more than all.
	valueBytes := func(key []byte) int { return int(key[len(key)-1]-'0') % 7 }
	judge := func(e listing.Entry) (s listing.Sifted) {
		group := e.Key[:3]
		switch e.Value[0] {
		case 3:
			return listing.Sifted{Hidden: true}
		case 2:
			return listing.Sifted{Hidden: true, Pass: len(group)}
		}
		return listing.Sifted{CommonPrefix: group[1] == '7', Pass: len(group), ValueBytes: valueBytes(e.Key)}
	}
	want := func(reverse bool) (shown []string) {
		entries := []listing.Entry{}
		for e, err := range b.All(ctx, listing.Query{Reverse: reverse}) {
			require.NoError(t, err)
			entries = append(entries, e.Entry)
		}
		var pass []byte
		for _, e := range entries {
			if pass != nil && bytes.HasPrefix(e.Key, pass) {
				continue
			}
			s := judge(e)
			if pass = nil; s.Pass > 0 {
				pass = e.Key[:s.Pass]
			}
			switch {
			case s.CommonPrefix:
				shown = append(shown, string(pass))
			case !s.Hidden:
				shown = append(shown, string(e.Key))
			}
		}
		return shown
	}
	for range race.Fewer(50) {
		q := listing.Query{Sift: judge, Reverse: r.IntN(2) == 0, KeysOnly: r.IntN(2) == 0}
		var got []string
		for {
			q.Limit = 1 + r.IntN(pageOf(r))
			page, err := b.List(ctx, q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Items), q.Limit)
			for _, item := range page.Items {
				got = append(got, string(item.Key))
				n := min(cmp.Or(valueBytes(item.Key), 4), 4)
				if q.KeysOnly || item.CommonPrefix {
					n = 0
				}
				require.Len(t, item.Value, n, "%+v", item)
			}
			if q.Token = page.Next; q.Token == "" {
				break
			}
		}
		require.Equal(t, want(q.Reverse), got)
		require.True(t, q.Reverse || slices.IsSorted(got))
	}
	_, err = b.List(ctx, listing.Query{Sift: judge, Delimiter: []byte("/")})
	require.ErrorIs(t, err, store.InvalidArgument)
}

func pageOf(r *rand.Rand) int { return []int{1, 5, 60}[r.IntN(3)] }
