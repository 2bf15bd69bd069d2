package listing_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// timed is a store whose one server knows the true time, and that remembers the
// highest timestamp written.
type timed struct {
	store.Store
	highest atomic.Int64
}

func (s *timed) Time(context.Context) (time.Time, string, error) { return time.Now(), "server", nil }

func (s *timed) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	for _, r := range rows {
		s.highest.Store(max(s.highest.Load(), int64(r.Timestamp)))
	}
	return s.Store.Put(ctx, p, rows...)
}

// TestClockOffStopsWrites: while a client's clock is off it writes nothing, reads
// go on, and when the clock is right again so do writes, with timestamps that have
// nothing of the wrong time.
func TestClockOffStopsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var off atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		s := &timed{Store: memstore.New()}
		require.NoError(t, mapclient.InitClocks(ctx, s, 1))
		m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 1, Now: now})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		c, err := listing.New(s, m, listing.Options{Now: now})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(ctx, "b", []byte("m")))
		require.NoError(t, c.CreateBucket(ctx, "empty"))
		b := c.Bucket("b")
		require.NoError(t, b.Put(ctx, []byte("a"), []byte("1")))
		require.NoError(t, b.Put(ctx, []byte("z"), []byte("1")))

		for _, d := range []time.Duration{time.Hour, -time.Hour, 600 * time.Millisecond} {
			off.Store(int64(d))
			before := s.highest.Load()
			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, listing.ErrClockOff)
				require.ErrorIs(t, err, store.Unavailable)
				require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
			}
			refused(b.Put(ctx, []byte("a"), []byte("2")))
			refused(b.Put(ctx, []byte("b"), nil))
			refused(b.Delete(ctx, []byte("a")))
			refused(c.CreateBucket(ctx, "new"))
			var batch *listing.BatchError
			require.ErrorAs(t, b.PutBatch(ctx, []listing.Entry{{Key: []byte("a")}, {Key: []byte("z")}}), &batch)
			for _, err := range batch.Outcomes {
				refused(err)
			}
			require.Equal(t, before, s.highest.Load(), "something was written")

			page, err := b.List(ctx, listing.Query{})
			require.NoError(t, err)
			require.Len(t, page.Items, 2)
			e, err := b.Get(ctx, []byte("a"))
			require.NoError(t, err)
			require.Equal(t, "1", string(e.Value))
			for info, err := range c.Buckets(ctx, "n", "") {
				t.Fatalf("a bucket that was refused is listed: %v %v", info, err)
			}

			_, err = c.Bucket("new").Get(ctx, []byte("k"))
			require.ErrorIs(t, err, listing.ErrNoSuchBucket)

			off.Store(0)
			require.NoError(t, b.Put(ctx, []byte("z"), []byte("1")))
			require.LessOrEqual(t, s.highest.Load(), time.Now().UnixMicro()+1000)
		}
		off.Store(int64(time.Hour))
		require.NoError(t, c.DeleteBucket(ctx, "empty"), "it needs no timestamp of its own")
	})
}
