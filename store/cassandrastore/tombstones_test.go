package cassandrastore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/e2e/harness"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// deleteMany deletes n keys one by one, as `delete everything under this prefix`
// does: Cassandra keeps a tombstone for each.
func deleteMany(t testing.TB, o cassandrastore.Options, p store.Partition, n int) {
	t.Helper()
	raw := rawSession(t, o)
	var g errgroup.Group
	g.SetLimit(4)
	const step = 500
	for at := 0; at < n; at += step {
		b := raw.NewBatch(gocql.UnloggedBatch)
		for i := range step {
			b.Query("DELETE FROM rows USING TIMESTAMP ? WHERE bucket = ? AND partition = ? AND key = ?",
				int64(10), gocql.UUID(p.Bucket), gocql.UUID(p.ID), fmt.Appendf(nil, "p/%06d", at+i))
		}
		g.Go(func() error { return raw.ExecuteBatch(b) })
	}
	require.NoError(t, g.Wait())
}

// readAll reads a partition page by page.
func readAll(t testing.TB, s store.Rows, p store.Partition, b store.Bounds, o store.SliceOptions) (keys []string) {
	t.Helper()
	for {
		page, err := s.Slice(t.Context(), p, b, o)
		require.NoError(t, err)
		for _, r := range page.Rows {
			keys = append(keys, string(r.Key))
		}
		if !page.More {
			return keys
		}
		last := page.Rows[len(page.Rows)-1].Key
		if o.Reverse {
			b.End = last
		} else {
			b.Start, b.StartExclusive = last, true
		}
	}
}

// More dead rows than a replica reads past: the driver's read fails, ours finds
// every live row, also one that comes to life in what was empty before.
func sliceReadsThroughDeadData(t *testing.T, o cassandrastore.Options) {
	s := harness.Open(t, o)
	p := newPartition()
	row := func(key string) store.Row {
		return store.Row{Key: []byte(key), Value: []byte{1}, Timestamp: 11}
	}
	live := []string{"a", "p/000007", "p/099999", "p/140000+", "z"}
	for _, key := range live {
		require.NoError(t, s.Put(t.Context(), p, row(key)))
	}
	deleteMany(t, o, p, 150_000)

	raw := rawSession(t, o)
	err := raw.Query("SELECT key FROM rows WHERE bucket = ? AND partition = ? AND key > ?", gocql.UUID(p.Bucket), gocql.UUID(p.ID), []byte("p/000007")).Exec()
	var failure *gocql.RequestErrReadFailure
	require.ErrorAs(t, err, &failure, "the premise")

	require.Equal(t, live, readAll(t, s, p, store.Bounds{}, store.SliceOptions{Limit: 1000}))
	under := store.Bounds{Start: []byte("p/"), End: []byte("p0")}
	require.Equal(t, live[1:4], readAll(t, harness.Open(t, o), p, under, store.SliceOptions{Limit: 1}), "a client that has learned nothing yet")
	backwards := slices.Clone(live)
	slices.Reverse(backwards)
	require.Equal(t, backwards, readAll(t, harness.Open(t, o), p, store.Bounds{}, store.SliceOptions{Limit: 1000, Reverse: true}))

	require.NoError(t, s.Put(t.Context(), p, row("p/120000")))
	live = slices.Insert(live, 3, "p/120000")
	require.Equal(t, live, readAll(t, s, p, store.Bounds{}, store.SliceOptions{Limit: 2}))
	require.Equal(t, live, readAll(t, s.EachQuorum(), p, store.Bounds{}, store.SliceOptions{Limit: 2, Timestamps: true}))

	require.NoError(t, s.Remove(t.Context(), p, store.Bounds{}, 20))
	require.Empty(t, readAll(t, harness.Open(t, o), p, store.Bounds{}, store.SliceOptions{Limit: 1000}))
	ps, err := s.Partitions(t.Context(), store.Partition{}, 10)
	require.NoError(t, err)
	require.NotContains(t, ps, p)
}

// A partition whose first live row lies behind more dead rows than a replica reads
// past is listed like all others; one of dead rows alone is passed over.
func partitionsBehindDeadDataAreListed(t *testing.T, o cassandrastore.Options) {
	s := harness.Open(t, o)
	var want []store.Partition
	for i := range 8 {
		p := newPartition()
		if i < 2 {
			deleteMany(t, o, p, 110_000)
		}
		if i > 0 {
			require.NoError(t, s.Put(t.Context(), p, store.Row{Key: []byte("z"), Value: []byte{1}, Timestamp: 11}))
			want = append(want, p)
		}
	}
	raw := rawSession(t, o)
	err := raw.Query("SELECT DISTINCT bucket, partition FROM rows").Exec()
	var failure *gocql.RequestErrReadFailure
	require.ErrorAs(t, err, &failure, "the premise")
	found := map[store.Partition]int{}
	for after := (store.Partition{}); ; {
		ps, err := s.Partitions(t.Context(), after, 3)
		require.NoError(t, err)
		if len(ps) == 0 {
			break
		}
		require.LessOrEqual(t, len(ps), 3)
		for _, p := range ps {
			found[p]++
			require.Equal(t, 1, found[p], "%s is listed twice", p)
		}
		after = ps[len(ps)-1]
	}
	for _, p := range want {
		require.Equal(t, 1, found[p], "%s is missing", p)
	}
}
