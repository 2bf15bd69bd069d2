package cassandrastore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// deadPartition holds n rows deleted one by one, as `delete everything under
// this prefix` does, and the live rows given. Cassandra keeps the tombstones and
// refuses a read that meets more than 100,000 of them.
func deadPartition(t testing.TB, o cassandrastore.Options, s *cassandrastore.Store, n int, live ...store.Row) store.Partition {
	t.Helper()
	p := newPartition()
	require.NoError(t, s.Put(t.Context(), p, live...))
	raw := rawSession(t, o)
	var g errgroup.Group
	g.SetLimit(4)
	const step = 500
	for at := 0; at < n; at += step {
		b := raw.NewBatch(gocql.UnloggedBatch)
		for i := range step {
			b.Query("DELETE FROM rows USING TIMESTAMP ? WHERE bucket = ? AND partition = ? AND key = ?",
				int64(10), gocql.UUID(p.Bucket), gocql.UUID(p.ID), fmt.Appendf(nil, "photos/2024/%08d.jpeg", at+i))
		}
		g.Go(func() error { return raw.ExecuteBatch(b) })
	}
	require.NoError(t, g.Wait())
	return p
}

func TestSliceReadsThroughDeadData(t *testing.T) {
	o := keyspace(t)
	s := open(t, o)
	row := func(key string) store.Row {
		return store.Row{Key: []byte(key), Value: []byte{1}, Timestamp: 11}
	}
	live := []store.Row{row("a"), row("photos/2024/00000007.jpeg"), row("photos/2024/00099999.jpeg"), row("photos/2024/00140000.jpeg+"), row("z")}
	begun := time.Now()
	p := deadPartition(t, o, s, 150_000, live...)
	t.Log("deleted in ", time.Since(begun))

	for _, b := range []store.Bounds{{}, {Start: []byte("photos/2024/"), End: []byte("photos/20240")}, {Start: []byte("photos/2024/")}, {End: []byte("photos/2025")}} {
		for _, reverse := range []bool{false, true} {
			for _, limit := range []int{1, 1000} {
				fresh := open(t, o) // has learned nothing yet
				var got []string
				begun := time.Now()
				pages := 0
				err := eachRow(t.Context(), fresh, p, b, store.SliceOptions{Limit: limit, Reverse: reverse}, &pages, func(r store.Row) { got = append(got, string(r.Key)) })
				require.NoError(t, err)
				t.Log(string(b.Start), string(b.End), reverse, limit, pages, time.Since(begun))
				begun = time.Now()
				err = eachRow(t.Context(), fresh, p, b, store.SliceOptions{Limit: limit, Reverse: reverse}, &pages, func(r store.Row) {})
				require.NoError(t, err)
				t.Log("again", time.Since(begun), len(got))
			}
		}
	}
}

// eachRow reads a partition page by page.
func eachRow(ctx context.Context, s store.Rows, p store.Partition, b store.Bounds, o store.SliceOptions, pages *int, visit func(store.Row)) error {
	for {
		page, err := s.Slice(ctx, p, b, o)
		if err != nil {
			return err
		}
		*pages++
		for _, r := range page.Rows {
			visit(r)
		}
		if !page.More {
			return nil
		}
		last := page.Rows[len(page.Rows)-1].Key
		if o.Reverse {
			b.End = last
		} else {
			b.Start, b.StartExclusive = last, true
		}
	}
}
