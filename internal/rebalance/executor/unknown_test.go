package executor

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// An effect of an unknown type fails.
func TestUnknownEffects(t *testing.T) {
	x := New(nil, nil, store.BucketID{}, Options{})
	require.ErrorIs(t, x.effect(t.Context(), nil, nil), store.InvalidArgument)
	require.Equal(t, "unknown", pointOf(nil))
}

// A scan whose context has ended fails before it reads.
func TestScanAfterItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := New(nil, nil, store.BucketID{}, Options{}) // without a store: a read panics
	require.ErrorIs(t, x.scan(ctx, x.o.Pace, store.Partition{}, store.Bounds{}, nil), context.Canceled)
}

// A copy of unknown outcome is remembered until the same row, or a newer one of its key, was
// written. A refusal of a later try says nothing about the first.
func TestCopiesOfUnknownOutcome(t *testing.T) {
	x, task := New(nil, nil, store.BucketID{}, Options{}), &move.Task{}
	row := func(key string, ts store.Timestamp) store.Row { return store.Row{Key: []byte(key), Timestamp: ts} }
	unsure := func() map[string]store.Timestamp { return x.unsure[rangeKey(task)] }
	x.sent(task, []store.Row{row("a", 5)}, nil)
	require.Empty(t, unsure())
	x.sent(task, []store.Row{row("a", 5), row("b", 5)}, store.Errorf(store.Timeout, "lost"))
	x.sent(task, []store.Row{row("a", 3), row("c", 3)}, store.Errorf(store.Timeout, "lost"))
	want := map[string]store.Timestamp{"a": 5, "b": 5, "c": 3}
	require.Equal(t, want, unsure())
	x.sent(task, []store.Row{row("a", 9)}, store.Errorf(store.InvalidArgument, "no"))
	x.sent(task, []store.Row{row("a", 4)}, nil)
	require.Equal(t, want, unsure())
	x.sent(task, []store.Row{row("a", 5), row("b", 6)}, nil)
	require.Equal(t, map[string]store.Timestamp{"c": 3}, unsure())
}

// The end of a key's bounds is its successor, as far as keys can be that long.
func TestUpTo(t *testing.T) {
	b := store.Bounds{Start: []byte("a"), End: []byte("z")}
	require.Equal(t, store.Bounds{Start: []byte("a"), End: []byte("m\x00")}, upTo(b, []byte("m")))
	require.Equal(t, b, upTo(b, make([]byte, store.MaxKeyBytes)))
	require.Len(t, upTo(b, make([]byte, store.MaxKeyBytes-1)).End, store.MaxKeyBytes)
}

// What nobody takes any more is not said to be sent.
func TestSendAfterItsContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, send(ctx, make(chan int), 1), context.Canceled)
}

// ends is a store that ends a context after it has read.
type ends struct {
	store.Store
	end context.CancelFunc
}

func (s ends) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	defer s.end()
	return s.Store.Slice(ctx, p, b, o)
}

// A copy whose context ended with its last page has not copied it, and says so: whether a writer took the batch is left
// to chance.
func TestACopyThatIsEnded(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		s := memstore.New()
		from := store.Partition{ID: store.PartitionID{1}}
		row := store.Row{Key: []byte("k"), Value: store.EntryCell(nil), Timestamp: 1}
		require.NoError(t, s.Put(ctx, from, row))
		x := New(ends{s, cancel}, nil, store.BucketID{}, Options{})
		task := move.Task{Range: partmap.Range{Entry: partmap.Entry{Partition: from.ID, To: store.PartitionID{2}}}}
		require.ErrorIs(t, x.copy(ctx, &task), context.Canceled)
	}
}

// A call is repeated, four times in all, only where that may help.
func TestWhatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(nil, nil, store.BucketID{}, Options{})
		for kind, want := range map[store.Kind]int{
			store.Timeout: 4, store.Unavailable: 4, store.Corrupt: 1, store.InvalidArgument: 1, store.TooMuchDeadData: 1,
			store.Conflict: 1, store.NotFound: 1, store.Other: 1,
		} {
			calls := 0
			err := x.retry(t.Context(), func() error { calls++; return store.Errorf(kind, "no") })
			require.Equal(t, kind, store.KindOf(err))
			require.Equal(t, want, calls, kind)
		}
		calls := 0
		require.NoError(t, x.retry(t.Context(), func() error { calls++; return nil }))
		require.Equal(t, 1, calls)
		ctx, cancel := context.WithCancel(t.Context())
		err := x.retry(ctx, func() error { calls++; cancel(); return store.Errorf(store.Unavailable, "away") })
		require.Equal(t, store.Unavailable, store.KindOf(err))
		require.Equal(t, 2, calls)
	})
}

// Nothing is kept of batches that are over, and of ranges that have moved.
func TestNothingIsKept(t *testing.T) {
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b", []byte("m")))
	require.NoError(t, c.Bucket("b").Put(t.Context(), []byte("a"), nil))
	id, err := c.BucketID(t.Context(), "b")
	require.NoError(t, err)
	lost := &losing{Store: s}
	x := New(lost, mapclient.Of(c), id, Options{})
	x.Add(move.Split(nil, []byte("m"), -1, []byte("c")), move.Split([]byte("m"), nil, -1, []byte("t")))
	require.NoError(t, x.Run(t.Context()))
	require.Positive(t, lost.n)
	require.Empty(t, x.seen)
	require.Empty(t, x.unsure)
	x.note(&partmap.Root{})
	require.Empty(t, x.batches)
}

// losing loses the answer to the first put.
type losing struct {
	store.Store
	n int
}

func (s *losing) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	err := s.Store.Put(ctx, p, rows...)
	if s.n++; s.n == 1 && err == nil {
		return store.Errorf(store.Timeout, "lost")
	}
	return err
}

// A key that no key follows within the limit ends its page: what the destination has above it is of the next one.
func TestThePageOfTheLongestKey(t *testing.T) {
	s, dst := memstore.New(), store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{2}}
	x := New(s, nil, dst.Bucket, Options{})
	longest := store.Row{Key: make([]byte, store.MaxKeyBytes), Value: store.EntryCell(nil), Timestamp: 3}
	require.NoError(t, s.Put(t.Context(), dst, store.Row{Key: []byte{1}, Value: store.EntryCell(nil), Timestamp: 3}))
	d, err := x.differ(t.Context(), dst, page{rows: []store.Row{longest}})
	require.NoError(t, err)
	require.Equal(t, difference{missing: []store.Row{longest}}, d)
}
