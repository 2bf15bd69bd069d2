package listing_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// tombstones counts what is deleted one by one, and at once.
type tombstones struct {
	store.Store
	deletes, removals atomic.Int64
}

func (s *tombstones) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.deletes.Add(1)
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *tombstones) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.removals.Add(1)
	return s.Store.Remove(ctx, p, b, ts)
}

// filled makes a bucket with cuts and puts keys into it.
func filled(t *testing.T, s store.Store, o listing.Options, cuts [][]byte, keys [][]byte) (*listing.Client, *listing.Bucket) {
	c, err := listing.New(s, o)
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
	var batch []listing.Entry
	for _, k := range keys {
		batch = append(batch, listing.Entry{Key: k, Value: k})
	}
	require.NoError(t, c.Bucket("b").PutBatch(t.Context(), batch))
	return c, c.Bucket("b")
}

func keysOf(t *testing.T, b *listing.Bucket) (keys [][]byte) {
	for item, err := range b.All(t.Context(), listing.Query{}) {
		require.NoError(t, err)
		keys = append(keys, bytes.Clone(item.Key))
	}
	return keys
}

// Against an oracle: ranges that begin and end anywhere, at cuts, and nowhere.
func TestDeleteRangeDeletesWhatIsWithin(t *testing.T) {
	seed.Each(t, race.Fewer(30), func(n uint64) bool {
		r := rand.New(rand.NewPCG(n, 1))
		key := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
		var cuts, keys [][]byte
		for i := range 5000 {
			if i%617 == 616 {
				cuts = append(cuts, key(i))
			}
			if r.IntN(3) > 0 {
				keys = append(keys, key(i))
			}
		}
		s := &tombstones{Store: memstore.New()}
		_, b := filled(t, s, listing.Options{}, cuts, keys)
		end := func() []byte {
			switch r.IntN(4) {
			case 0:
				return cuts[r.IntN(len(cuts))]
			case 1:
				return nil
			}
			return key(r.IntN(5000))[:1+r.IntN(5)]
		}
		for range 6 {
			var err error
			from, to := end(), end()
			if r.IntN(3) == 0 {
				from = from[:min(len(from), 2)]
				to = store.PrefixEnd(from)
				err = b.DeletePrefix(t.Context(), from)
			} else {
				if len(to) > 0 && string(from) >= string(to) {
					require.Error(t, b.DeleteRange(t.Context(), from, to))
					continue
				}
				err = b.DeleteRange(t.Context(), from, to)
			}
			require.NoError(t, err)
			keys = slices.DeleteFunc(keys, func(k []byte) bool {
				return string(k) >= string(from) && (len(to) == 0 || string(k) < string(to))
			})
			require.True(t, slices.EqualFunc(keys, keysOf(t, b), bytes.Equal), "%q to %q", from, to)
		}
		return true
	})
}

// Whole ranges, and many entries of one, take one tombstone each; few of one take as many as they are.
func TestDeleteRangeTakesFewTombstones(t *testing.T) {
	var cuts, keys [][]byte
	for i := range 10 {
		cuts = append(cuts, fmt.Appendf(nil, "%d", i))
		for k := range 3000 {
			keys = append(keys, fmt.Appendf(nil, "%d/%04d", i, k))
		}
	}
	s, told := &tombstones{Store: memstore.New()}, newBook()
	_, b := filled(t, s, listing.Options{Recorder: told}, cuts, keys)
	s.deletes.Store(0)
	require.NoError(t, b.DeleteRange(t.Context(), []byte("2/0500"), []byte("7/0999")))
	require.EqualValues(t, 5, s.removals.Load(), "2,500 entries of the first range, and four ranges")
	require.EqualValues(t, 999, s.deletes.Load(), "of the last range")
	require.Len(t, told.removed, 5)
	require.Len(t, keysOf(t, b), 2*3000+500+2001+2*3000)
	s.removals.Store(0)
	require.NoError(t, b.DeletePrefix(t.Context(), []byte("4")))
	require.Zero(t, s.removals.Load(), "nothing is left there")
}

// What is put while the call is under way stays.
func TestDeleteRangeLeavesWhatComesMeanwhile(t *testing.T) {
	var cuts, keys [][]byte
	for i := range 50 {
		cuts = append(cuts, fmt.Appendf(nil, "%02d", i))
		for k := range 20 {
			keys = append(keys, fmt.Appendf(nil, "%02d/%04d", i, k))
		}
	}
	s := &pausing{Store: memstore.New()}
	_, b := filled(t, s, listing.Options{Timestamps: &stamps{}}, cuts, keys)
	s.before = func() { // the first removal, with the timestamps that follow that of the call
		s.before = nil
		require.NoError(t, b.Put(t.Context(), []byte("00/new"), []byte("v")))
		require.NoError(t, b.Put(t.Context(), []byte("49/0003"), []byte("v")))
	}
	require.NoError(t, b.DeleteRange(t.Context(), nil, nil))
	require.Equal(t, [][]byte{[]byte("00/new"), []byte("49/0003")}, keysOf(t, b))
}

// pausing does something before each slice, which may fail, and before each removal, which it notes.
type pausing struct {
	store.Store
	mu      sync.Mutex
	look    func(start []byte) error
	before  func()
	removed []store.Bounds
	limits  []int // of slices
}

func (s *pausing) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	s.removed = append(s.removed, b)
	if s.before != nil {
		s.before()
	}
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *pausing) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = append(s.limits, o.Limit)
	if s.look != nil {
		if err := s.look(b.Start); err != nil {
			return store.Page{}, err
		}
	}
	return s.Store.Slice(ctx, p, b, o)
}

// badTime fails to draw timestamps, or to wait for them.
type badTime struct {
	last         atomic.Int64
	next, passed error
}

func (b *badTime) Next(_ context.Context, n int) (store.Timestamp, error) {
	if b.next != nil {
		return 0, b.next
	}
	return store.Timestamp(b.last.Add(int64(n)) - int64(n) + 1), nil
}

func (b *badTime) Passed(context.Context, store.Timestamp) error { return b.passed }

func (b *badTime) Seen(store.Timestamp) {}

// Without a timestamp that has passed nothing is sent.
func TestDeleteRangeNeedsATimestamp(t *testing.T) {
	s := &tombstones{Store: memstore.New()}
	time := &badTime{}
	c, err := listing.New(s, listing.Options{Timestamps: time})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("k"), nil))
	for _, bad := range []*badTime{
		{next: store.Errorf(store.Unavailable, "no time")}, {passed: store.Errorf(store.Unavailable, "no time")},
	} {
		time.next, time.passed = bad.next, bad.passed
		require.ErrorContains(t, c.Bucket("b").DeleteRange(t.Context(), nil, nil), "no time")
		require.Zero(t, s.removals.Load()+s.deletes.Load())
	}
}
