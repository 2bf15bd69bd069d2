package oncassandra

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/listing"
)

// TestOpenCassandra: two handles over one keyspace, of which one keeps it in shape; when
// that one is closed the other one does.
func TestOpenCassandra(t *testing.T) {
	t.Parallel()
	ctx, redis := t.Context(), redistest.Start(t)
	o := harness.Shared(t, &cassandra)
	open := func() *evenkeel.DB {
		db, err := evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
			Hosts: o.Hosts, DataCentre: o.DataCentre, Keyspace: o.Keyspace, Store: o,
			Counter: "redis://" + redis.Addr + "/0", Lease: time.Second, Options: evenkeel.Options{MaxRows: 500},
		})
		require.NoError(t, err)
		return db
	}
	first, second := open(), open()
	defer func() { require.NoError(t, second.Close()) }()
	require.NoError(t, first.CreateBucket(ctx, "photos"))
	partitions := func() int { return harness.Partitions(t, second.Client(), "photos") }
	put := func(db *evenkeel.DB, from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, db.Bucket("photos").Put(ctx, fmt.Appendf(nil, "%04d", i*7919%10_000), nil))
		}
	}
	put(first, 0, 1000)
	put(second, 1000, 2000)
	harness.Eventually(t, "partitions", func() bool { return partitions() >= 4 })
	require.NoError(t, first.Close())
	put(second, 2000, 4000)
	harness.Eventually(t, "partitions", func() bool { return partitions() >= 8 })
	keys := 0
	for _, err := range second.Bucket("photos").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		keys++
	}
	require.Equal(t, 4000, keys)
}
