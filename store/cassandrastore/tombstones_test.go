package cassandrastore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

func deleteMany(t testing.TB, raw *gocql.Session, p store.Partition, n int) {
	t.Helper()
	harness.DeleteMany(t, raw, p, n, 10, func(i int) []byte { return fmt.Appendf(nil, "p/%06d", i) })
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
	raw := rawSession(t, o)
	limit := harness.DeadRowLimit(t, raw)
	key := func(i int) string { return fmt.Sprintf("p/%06d", i) }
	live := []string{"a", key(7), key(limit - 1), key(limit/10*14) + "+", "z"}
	for _, key := range live {
		require.NoError(t, s.Put(t.Context(), p, row(key)))
	}
	deleteMany(t, raw, p, limit/10*15)

	err := raw.Query("SELECT key FROM rows WHERE bucket = ? AND partition = ? AND key > ?", gocql.UUID(p.Bucket), gocql.UUID(p.ID), []byte(key(7))).
		Exec()
	var failure *gocql.RequestErrReadFailure
	require.ErrorAs(t, err, &failure, "the premise")

	require.Equal(t, live, readAll(t, s, p, store.Bounds{}, store.SliceOptions{Limit: 1000}))
	under := store.Bounds{Start: []byte("p/"), End: []byte("p0")}
	require.Equal(
		t, live[1:4], readAll(t, harness.Open(t, o), p, under, store.SliceOptions{Limit: 1}),
		"a client that has learned nothing yet",
	)
	backwards := slices.Clone(live)
	slices.Reverse(backwards)
	require.Equal(
		t, backwards, readAll(t, harness.Open(t, o), p, store.Bounds{}, store.SliceOptions{Limit: 1000, Reverse: true}),
	)

	require.NoError(t, s.Put(t.Context(), p, row(key(limit/10*12))))
	live = slices.Insert(live, 3, key(limit/10*12))
	require.Equal(t, live, readAll(t, s, p, store.Bounds{}, store.SliceOptions{Limit: 2}))
	require.Equal(t, live, readAll(t, s.EachQuorum(), p, store.Bounds{},
		store.SliceOptions{Limit: 2, Timestamps: true}))

	require.NoError(t, s.Remove(t.Context(), p, store.Bounds{}, 20))
	require.Empty(t, readAll(t, harness.Open(t, o), p, store.Bounds{}, store.SliceOptions{Limit: 1000}))
	ps, err := s.Partitions(t.Context(), store.Partition{}, 10)
	require.NoError(t, err)
	require.NotContains(t, ps, p)
}

// A partition whose first live row lies behind more dead rows than a replica reads
// past is listed like all others; one of dead rows alone is passed over.
func partitionsBehindDeadDataAreListed(t *testing.T, o cassandrastore.Options) {
	s, raw := harness.Open(t, o), rawSession(t, o)
	limit := harness.DeadRowLimit(t, raw)
	var want []store.Partition
	for i := range 8 {
		p := newPartition()
		if i < 2 {
			deleteMany(t, raw, p, limit/10*11)
		}
		if i > 0 {
			require.NoError(t, s.Put(t.Context(), p, store.Row{Key: []byte("z"), Value: []byte{1}, Timestamp: 11}))
			want = append(want, p)
		}
	}
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

// More dead rows of an application's table than a replica reads past, in both directions.
func tablesAreReadThroughDeadData(t *testing.T, o cassandrastore.Options) {
	raw := rawSession(t, o)
	limit := harness.DeadRowLimit(t, raw)
	require.NoError(t, raw.Query("CREATE TABLE app (room text, day date, name text, v text, "+
		"PRIMARY KEY (room, day, name))").Exec())
	require.NoError(t, raw.Query("INSERT INTO app (room, day, name, v) VALUES ('r', '1970-01-02', 'a', 'first')").Exec())
	require.NoError(t, raw.Query("INSERT INTO app (room, day, name, v) VALUES ('r', '1970-01-03', 'z', 'last')").Exec())
	var g errgroup.Group
	g.SetLimit(4)
	for at := 0; at < limit/10*15; at += 500 {
		g.Go(func() error {
			b := raw.NewBatch(gocql.UnloggedBatch)
			for i := at; i < at+500; i++ {
				b.Query("DELETE FROM app WHERE room = 'r' AND day = '1970-01-02' AND name = ?", fmt.Sprintf("ö/%06d", i))
			}
			return raw.ExecuteBatch(b)
		})
	}
	require.NoError(t, g.Wait())
	middle := fmt.Sprintf("ö/%06d+", limit/10*12)
	require.NoError(t, raw.Query("INSERT INTO app (room, day, name, v) VALUES ('r', '1970-01-02', ?, 'v')", middle).Exec())
	var failure *gocql.RequestErrReadFailure
	require.ErrorAs(t, raw.Query("SELECT name FROM app WHERE room = 'r' LIMIT 3").Exec(), &failure, "the premise")

	tables, err := cqltable.Open(t.Context(), o, o.Keyspace+".app")
	require.NoError(t, err)
	table := tables[0]
	defer table.Close()
	q := cqltable.Query{Partition: [][]byte{[]byte("r")}, Values: []string{"v"}}
	read := func() (names []string) {
		rows, err := table.Read(t.Context(), q)
		require.NoError(t, err)
		for _, r := range rows {
			names = append(names, string(r.Clustering[1]))
		}
		return names
	}
	day := func(d byte) []byte { return []byte{0x80, 0, 0, d} }
	for _, q.Limit = range []int{1000, 2} {
		q.Desc, q.From, q.FromExclusive = false, nil, false
		require.Equal(t, []string{"a", middle, "z"}[:min(q.Limit, 3)], read())
		q.From, q.FromExclusive = [][]byte{day(1), []byte("a")}, true
		require.Equal(t, []string{middle, "z"}, read())
		q.Desc, q.From = true, nil
		require.Equal(t, []string{"z", middle, "a"}[:min(q.Limit, 3)], read())
		q.From, q.FromExclusive = [][]byte{day(1), []byte(middle)}, true
		require.Equal(t, []string{"a"}, read())
	}
}
