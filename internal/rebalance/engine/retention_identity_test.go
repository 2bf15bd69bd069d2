package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A rule deletes from the bucket that it has looked at. Where that was deleted in between, and another bucket has its name
// now, with other entries or with objects, nothing is deleted from that one.
func TestRetentionDropsFromTheBucketThatItLookedAt(t *testing.T) {
	rules := map[string]retention.Rule{
		"by the time in the key": {Bucket: "sensors", Keep: 24 * time.Hour, Time: "2006-01-02"},
		"by the time of the put": {Bucket: "sensors", Keep: time.Microsecond, Time: retention.Written},
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			ctx, s := t.Context(), memstore.New()
			c, err := listing.New(s, listing.Options{})
			require.NoError(t, err)
			require.NoError(t, c.CreateBucket(ctx, "sensors"))
			old := []byte("2020-01-01/a")
			require.NoError(t, c.Bucket("sensors").Put(ctx, old, []byte("old")))
			r := newRetention(&Options{
				Store: s, Buckets: c, Log: slog.New(slog.DiscardHandler), Retention: []retention.Rule{rule},
				RetentionEvery: time.Hour,
			})
			time.Sleep(time.Millisecond)
			looked := false
			require.NoError(t, r.Look(ctx, "", []retention.Rule{rule}, func(id store.BucketID, d *Drop) error {
				looked = true
				require.Empty(t, d.Error)
				require.NoError(t, c.Bucket("sensors").Delete(ctx, old))
				require.NoError(t, c.DeleteBucket(ctx, "sensors"))
				require.NoError(t, c.CreateBucket(ctx, "sensors"))
				require.NoError(t, c.Bucket("sensors").Put(ctx, old, []byte("of another bucket")))
				require.ErrorIs(t, r.drop(ctx, id, d), store.NotFound)
				return nil
			}, nil))
			require.True(t, looked)
			_, err = c.Bucket("sensors").Get(ctx, old)
			require.NoError(t, err)
		})
	}
}
