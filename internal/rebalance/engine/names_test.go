package engine

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestLinesHaveTheNamesOfBuckets: the first line about a bucket, too, if it is older than the work; else
// from the second line on, as its name is looked up beside the first one.
func TestLinesHaveTheNamesOfBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := listing.New(memstore.New(), listing.Options{})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		var ids []store.BucketID
		for _, name := range []string{"photos", "orders"} {
			require.NoError(t, c.CreateBucket(t.Context(), name))
			id, err := c.BucketID(t.Context(), name)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		var out bytes.Buffer
		names := newNames(c)
		log := slog.New(&namedLog{slog.NewTextHandler(&out, nil), names}).With("x", 1).WithGroup("g")
		line := func(id string) string {
			out.Reset()
			log.Info("balancing", "kind", "split", "bucket", id)
			return out.String()
		}
		require.NotContains(t, line(ids[0].String()), "name=")
		names.learnAll(t.Context())
		require.Contains(t, line(ids[0].String()), "name=photos")
		names = newNames(c) // as if the buckets were made later
		log = slog.New(&namedLog{slog.NewTextHandler(&out, nil), names}).With("x", 1).WithGroup("g")
		go names.run(t.Context())
		require.NotContains(t, line(ids[0].String()), "name=")
		require.NotContains(t, line(ids[1].String()), "name=")
		time.Sleep(2 * namesEvery)
		require.Contains(t, line(ids[0].String()), "name=photos")
		require.Contains(t, line(ids[1].String()), "name=orders")
		require.NotContains(t, line(uuid.NewString()), "name=")
		require.NotContains(t, line("a word"), "name=")
	})
}
