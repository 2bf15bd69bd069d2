package listing_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// site is a store as clients of one of two data centres see it. Registers are the same in both. A row that is written
// in one is there at once, and in the other one when the link has delivered it.
type site struct {
	store.Store // registers and nodes
	rows        store.Rows
	other       *site

	mu    sync.Mutex
	sent  []func(context.Context, store.Rows) error // to the other one, not delivered yet
	cut   bool                                      // nothing can be read through both
	reads int                                       // through both
}

func twoSites(t *testing.T) (here, there *site) {
	registers := memstore.New()
	here, there = &site{Store: registers, rows: memstore.New()}, &site{Store: registers, rows: memstore.New()}
	here.other, there.other = there, here
	t.Cleanup(func() { require.NoError(t, registers.Close()) })
	return here, there
}

func (s *site) write(ctx context.Context, do func(context.Context, store.Rows) error) error {
	s.mu.Lock()
	s.sent = append(s.sent, do)
	s.mu.Unlock()
	return do(ctx, s.rows)
}

// deliver writes in the other data centre what was sent to it.
func (s *site) deliver(ctx context.Context) error {
	s.mu.Lock()
	sent := s.sent
	s.sent = nil
	s.mu.Unlock()
	for _, do := range sent {
		if err := do(ctx, s.other.rows); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	return s.write(ctx, func(ctx context.Context, to store.Rows) error { return to.Put(ctx, p, rows...) })
}

func (s *site) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	return s.write(ctx, func(ctx context.Context, to store.Rows) error { return to.Delete(ctx, p, key, ts) })
}

func (s *site) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return s.write(ctx, func(ctx context.Context, to store.Rows) error { return to.Remove(ctx, p, b, ts) })
}

func (s *site) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	return s.rows.Get(ctx, p, key)
}

func (s *site) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	return s.rows.Slice(ctx, p, b, o)
}

// EachQuorum reads what either data centre has: a read through both delivers what it meets, as Cassandra's repairs do.
func (s *site) EachQuorum() store.Rows { return bothSites{s} }

type bothSites struct{ *site }

func (s bothSites) meet(ctx context.Context) error {
	s.mu.Lock()
	cut := s.cut
	s.reads++
	s.mu.Unlock()
	if cut {
		return store.Errorf(store.Unavailable, "the other data centre is away")
	}
	if err := s.other.deliver(ctx); err != nil {
		return err
	}
	return s.deliver(ctx)
}

func (s bothSites) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	if err := s.meet(ctx); err != nil {
		return store.Row{}, false, err
	}
	return s.rows.Get(ctx, p, key)
}

func (s bothSites) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if err := s.meet(ctx); err != nil {
		return store.Page{}, err
	}
	return s.rows.Slice(ctx, p, b, o)
}

func (s bothSites) EachQuorum() store.Rows { return s }

// What was put before a deletion of a range began goes with it, also what another data centre has acknowledged and this
// one has not got yet: as a deletion of its key would delete it.
func TestDeletionsOfRangesLookInEveryDataCentre(t *testing.T) {
	deletions := map[string]func(context.Context, *listing.Bucket, store.Timestamp) error{
		"of the whole bucket": func(ctx context.Context, b *listing.Bucket, _ store.Timestamp) error {
			return b.DeletePrefix(ctx, nil)
		},
		"of a part of a range": func(ctx context.Context, b *listing.Bucket, _ store.Timestamp) error {
			return b.DeletePrefix(ctx, []byte("x/"))
		},
		"of what is old": func(ctx context.Context, b *listing.Bucket, at store.Timestamp) error {
			_, err := door.Bucket(b).DeleteOlderUntil(ctx, nil, nil, at, time.Time{})
			return err
		},
	}
	for name, remove := range deletions {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			here, there := twoSites(t)
			common := timestamps.New(nil)
			near, err := listing.New(here, listing.Options{Timestamps: common})
			require.NoError(t, err)
			require.NoError(t, near.CreateBucket(ctx, "b"))
			require.NoError(t, here.deliver(ctx))
			far, err := listing.New(there, listing.Options{Timestamps: common})
			require.NoError(t, err)

			for _, key := range []string{"x/one", "x/two"} {
				require.NoError(t, far.Bucket("b").Put(ctx, []byte(key), []byte("on its way")))
			}
			mark, err := door.Bucket(far.Bucket("b")).Mark(ctx)
			require.NoError(t, err)
			time.Sleep(time.Millisecond) // the clock goes past the mark

			here.cut = true
			err = remove(ctx, near.Bucket("b"), mark.At())
			require.ErrorIs(t, err, store.Unavailable, "nobody knows what the other data centre has acknowledged")
			here.cut = false
			require.NoError(t, remove(ctx, near.Bucket("b"), mark.At()))
			require.NoError(t, far.Bucket("b").Put(ctx, []byte("x/later"), []byte("stays")))

			require.NoError(t, here.deliver(ctx))
			require.NoError(t, there.deliver(ctx))
			for _, c := range []*listing.Client{near, far} {
				var left []string
				for e, err := range c.Bucket("b").All(ctx, listing.Query{}) {
					require.NoError(t, err)
					left = append(left, string(e.Key))
				}
				require.Equal(t, []string{"x/later"}, left)
			}
		})
	}
}

// Where this data centre already has more than is deleted key by key the range gets its one tombstone at once: no other
// data centre is asked, and none has to be there.
func TestDeletionsOfFullRangesAskNoOtherDataCentre(t *testing.T) {
	ctx := t.Context()
	here, _ := twoSites(t)
	c, err := listing.New(here, listing.Options{Timestamps: timestamps.New(nil)})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	require.NoError(t, c.Bucket("b").Put(ctx, []byte("k"), []byte("v")))
	here.cut, here.reads = true, 0
	require.NoError(t, c.Bucket("b").DeletePrefix(ctx, nil))
	require.Zero(t, here.reads)
}

// A handle of the bucket that a listing of buckets has shown deletes nothing from another one, which was made under the
// same name since.
func TestDeletionsByHandleAreOfOneBucket(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "b"))
	old, err := first(c.Buckets(ctx, "b", ""))
	require.NoError(t, err)
	require.NoError(t, c.DeleteBucket(ctx, "b"))
	require.NoError(t, c.CreateBucket(ctx, "b"))
	require.NoError(t, c.Bucket("b").Put(ctx, []byte("k"), []byte("of the new bucket")))

	_, err = c.BucketOf(old).DeleteRangeUntil(ctx, nil, nil, time.Time{})
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	_, err = door.Bucket(c.BucketOf(old)).DeleteOlderUntil(ctx, nil, nil, 1, time.Time{})
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	_, err = c.BucketOf(old).Settings(ctx)
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	require.ErrorIs(t, door.Bucket(c.BucketOf(old)).ChangeSettings(ctx,
		func([]byte) ([]byte, error) { return []byte("s"), nil }),
		listing.ErrNoSuchBucket)
	_, err = c.Bucket("b").Get(ctx, []byte("k"))
	require.NoError(t, err)

	now, err := first(c.Buckets(ctx, "b", ""))
	require.NoError(t, err)
	require.NoError(t, c.BucketOf(now).DeletePrefix(ctx, nil))
	_, err = c.Bucket("b").Get(ctx, []byte("k"))
	require.ErrorIs(t, err, store.NotFound)
}

// A bucket with settings is of a layer above, whose rows mean something to each other: ranges of them are not deleted.
func TestRangesOfLayersAboveAreNotDeleted(t *testing.T) {
	ctx := t.Context()
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, door.Client(c).CreateWith(ctx, "objects", []byte("settings")))
	require.NoError(t, c.Bucket("objects").Put(ctx, []byte("k"), []byte("v")))
	require.ErrorIs(t, c.Bucket("objects").DeletePrefix(ctx, nil), store.InvalidArgument)
	_, err = door.Bucket(c.Bucket("objects")).DeleteOlderUntil(ctx, nil, nil, 1, time.Time{})
	require.ErrorIs(t, err, store.InvalidArgument)
	_, err = c.Bucket("objects").Get(ctx, []byte("k"))
	require.NoError(t, err)
}

func first[T any](seq func(func(T, error) bool)) (v T, err error) {
	for v, err = range seq {
		break
	}
	return v, err
}
