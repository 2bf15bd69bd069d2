package cassandrastore_test

import (
	"fmt"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// rawSession is the driver as somebody who knows its traps would set it up.
func rawSession(b testing.TB, o cassandrastore.Options) *gocql.Session {
	b.Helper()
	c := gocql.NewCluster(o.Hosts...)
	c.Keyspace = o.Keyspace
	c.ProtoVersion = 4
	c.Consistency = gocql.LocalQuorum
	c.WriteCoalesceWaitTime = 0
	c.PageSize = 0
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy("dc1"), gocql.ShuffleReplicas())
	s, err := c.CreateSession()
	require.NoError(b, err)
	b.Cleanup(s.Close)
	return s
}

func benchRows(n int, ts store.Timestamp) []store.Row {
	rows := make([]store.Row, n)
	for i := range rows {
		rows[i] = store.Row{Key: fmt.Appendf(nil, "photos/2024/%08d.jpeg", i), Value: store.EntryCell(make([]byte, 140)), Timestamp: ts}
	}
	return rows
}

// BenchmarkSlice reads pages of 1000 of 10,000 rows: this store, and the bare
// driver with the same columns.
func BenchmarkSlice(b *testing.B) {
	o := keyspace(b)
	s, raw := open(b, o), rawSession(b, o)
	p := newPartition()
	rows := benchRows(10_000, 1)
	for at := 0; at < len(rows); at += 200 {
		require.NoError(b, s.Put(b.Context(), p, rows[at:at+200]...))
	}
	b.Run("store", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			bounds := store.Bounds{Start: rows[i%9*1000].Key, End: []byte("photos0")}
			page, err := s.Slice(b.Context(), p, bounds, store.SliceOptions{Limit: 1000})
			if err != nil || len(page.Rows) != 1000 && i > 0 {
				b.Fatal(len(page.Rows), err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			iter := raw.Query("SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key >= ? AND key < ? LIMIT ?",
				gocql.UUID(p.Bucket), gocql.UUID(p.ID), rows[i%9*1000].Key, []byte("photos0"), 1000).Iter()
			page := make([]store.Row, 0, 1000)
			for {
				var row store.Row
				if !iter.Scan(&row.Key, &row.Value) {
					break
				}
				page = append(page, row)
			}
			if err := iter.Close(); err != nil || len(page) != 1000 {
				b.Fatal(len(page), err)
			}
		}
	})
}

// BenchmarkPut writes rows of 170 bytes from 16 goroutines, by this store and by
// the bare driver; and in batches of 150 from 4.
func BenchmarkPut(b *testing.B) {
	o := keyspace(b)
	s, raw := open(b, o), rawSession(b, o)
	p := newPartition()
	rows := benchRows(3000, 1)
	parallel := func(b *testing.B, n, step int, put func(some []store.Row) error) {
		for b.Loop() {
			var g errgroup.Group
			g.SetLimit(n)
			for at := 0; at < len(rows); at += step {
				g.Go(func() error { return put(rows[at : at+step]) })
			}
			require.NoError(b, g.Wait())
		}
		b.ReportMetric(float64(len(rows)*b.N)/b.Elapsed().Seconds(), "rows/s")
	}
	b.Run("store", func(b *testing.B) {
		parallel(b, 16, 1, func(some []store.Row) error { return s.Put(b.Context(), p, some...) })
	})
	b.Run("raw", func(b *testing.B) {
		parallel(b, 16, 1, func(some []store.Row) error {
			return raw.Query("INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
				gocql.UUID(p.Bucket), gocql.UUID(p.ID), some[0].Key, some[0].Value, int64(some[0].Timestamp)).Exec()
		})
	})
	b.Run("batches", func(b *testing.B) {
		parallel(b, 4, 150, func(some []store.Row) error { return s.Put(b.Context(), p, some...) })
	})
}

// BenchmarkSwap swaps a root with a blob of 2 KB, and reads it.
func BenchmarkSwap(b *testing.B) {
	s := open(b, keyspace(b))
	key := make([]byte, 16)
	at := store.Version{}
	b.Run("swap", func(b *testing.B) {
		for b.Loop() {
			next := store.Record{Version: store.Version{Epoch: at.Epoch + 1, Token: store.NewToken()}, Blob: make([]byte, 2000)}
			require.NoError(b, s.Swap(b.Context(), store.Roots, key, at, next))
			at = next.Version
		}
	})
	for level, name := range map[store.Level]string{store.Serial: "read serial", store.Local: "read local"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := s.Read(b.Context(), store.Roots, key, level)
				require.NoError(b, err)
			}
		})
	}
	b.Run("acknowledge", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Acknowledge(b.Context(), store.Roots, key)
			require.NoError(b, err)
		}
	})
}
