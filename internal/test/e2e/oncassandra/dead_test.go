package oncassandra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Half as many entries again as a replica reads past are deleted from one partition,
// one by one: listings, counts and the emptiness check of DeleteBucket still work, also for a
// client that has learned nothing yet.
func TestAPartitionFullOfDeadRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := harness.Shared(t, &cassandra)
	s := harness.Open(t, o)
	require.NoError(t, mapclient.InitClocks(ctx, s, harness.Clocks))
	fresh := func() *listing.Bucket {
		s := harness.Open(t, o)
		return harness.Client(t, s, harness.Maps(t, s, 0), listing.Options{}).Bucket("dead")
	}
	c := harness.Client(t, s, harness.Maps(t, s, 0), listing.Options{})
	require.NoError(t, c.CreateBucket(ctx, "dead"))
	b := c.Bucket("dead")
	raw := harness.Session(t, o.Hosts[0], o.Keyspace)
	limit := harness.DeadRowLimit(t, raw)
	each := limit / 100 // in each of 150 directories
	key := func(i int) []byte { return fmt.Appendf(nil, "dir/%03d/%06d", i/each, i) }
	live := []string{"a", string(key(7)) + "+", string(key(limit-1)) + "+", "dir/120/", "z"}
	for _, k := range live {
		require.NoError(t, b.Put(ctx, []byte(k), nil))
	}
	partition := partitionOf(t, c, "dead")
	// What Delete does in a settled range, by the batch: quicker.
	harness.DeleteMany(t, raw, partition, 150*each, time.Now().UnixMicro(), key)
	err := raw.Query("SELECT key FROM rows WHERE bucket = ? AND partition = ?", gocql.UUID(partition.Bucket),
		gocql.UUID(partition.ID)).Exec()
	var failure *gocql.RequestErrReadFailure
	require.ErrorAs(t, err, &failure, "the premise")

	backwards := slices.Clone(live)
	slices.Reverse(backwards)
	learned := fresh()
	for name, c := range map[string]struct {
		q    listing.Query
		want []string
	}{
		"from the start":  {listing.Query{}, live},
		"from the middle": {listing.Query{After: key(50 * each)}, live[2:]},
		"in reverse":      {listing.Query{Reverse: true}, backwards},
		"delimiter":       {listing.Query{Delimiter: []byte("/")}, []string{"a", "dir/", "z"}},
		"prefix and delimiter": {listing.Query{Prefix: []byte("dir/"), Delimiter: []byte("/")},
			[]string{"dir/000/", "dir/099/", "dir/120/"}},
		"an empty prefix": {listing.Query{Prefix: []byte("dir/050/")}, nil},
		"count":           {listing.Query{KeysOnly: true}, live},
	} {
		b := learned
		if name == "from the start" || name == "in reverse" {
			b = fresh()
		}
		var got []string
		begun := time.Now()
		for item, err := range b.All(ctx, c.q) {
			require.NoError(t, err, name)
			got = append(got, string(item.Key))
		}
		require.Equal(t, c.want, got, name)
		t.Logf("%s: %v", name, time.Since(begun).Round(time.Millisecond))
	}

	require.ErrorIs(t, c.DeleteBucket(ctx, "dead"), listing.ErrNotEmpty)
	for _, k := range live {
		require.NoError(t, b.Delete(ctx, []byte(k)))
	}
	require.NoError(t, c.DeleteBucket(ctx, "dead"))
	for _, err := range learned.All(ctx, listing.Query{}) {
		require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	}
}

// partitionOf is the partition of a bucket of one range.
func partitionOf(t *testing.T, c *listing.Client, name string) store.Partition {
	t.Helper()
	for info, err := range c.Buckets(t.Context(), name, "") {
		require.NoError(t, err)
		root, err := mapclient.Of(c).Load(t.Context(), info.ID)
		require.NoError(t, err)
		for rg, err := range mapclient.Of(c).Ranges(t.Context(), root, nil) {
			require.NoError(t, err)
			return store.Partition{Bucket: info.ID, ID: rg.Partition}
		}
	}
	t.Fatal("no such bucket")
	return store.Partition{}
}
