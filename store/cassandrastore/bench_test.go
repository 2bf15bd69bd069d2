package cassandrastore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
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
	c.Timeout = 35 * time.Second
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(
		gocql.DCAwareRoundRobinPolicy("dc1"), gocql.ShuffleReplicas(),
	)
	s, err := c.CreateSession()
	require.NoError(b, err)
	b.Cleanup(s.Close)
	return s
}

func benchRows(n int, ts store.Timestamp) []store.Row {
	rows := make([]store.Row, n)
	for i := range rows {
		rows[i] = store.Row{
			Key: fmt.Appendf(nil, "photos/2024/%08d.jpeg", i), Value: store.EntryCell(make([]byte, 140)),
			Timestamp: ts,
		}
	}
	return rows
}

// compare runs ways of doing the same in turn, so that whatever else the machine
// does meets them alike, and reports medians and their ratios to the last one.
func compare(b *testing.B, unit string, perCall float64, names []string, ways ...func() error) {
	b.Helper()
	took := make([][]time.Duration, len(ways))
	round := func(record bool) {
		for i, way := range ways {
			begun := time.Now()
			require.NoError(b, way())
			if record {
				took[i] = append(took[i], time.Since(begun))
			}
		}
	}
	for range 20 { // the server compiles what is hot
		round(false)
	}
	for b.Loop() {
		round(true)
	}
	median := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2])
	}
	last := median(len(ways) - 1)
	for i, name := range names {
		b.ReportMetric(perCall/median(i)*1e9, name+"-"+unit+"/s")
		if i < len(names)-1 {
			b.ReportMetric(median(i)/last, name+"/"+names[len(names)-1])
		}
	}
}

// BenchmarkSlice reads pages of 1000 of 10,000 rows: this store, and the bare
// driver with the same columns.
func BenchmarkSlice(b *testing.B) {
	o := harness.Shared(b, &shared)
	s, raw := harness.Open(b, o), rawSession(b, o)
	p := newPartition()
	rows := benchRows(10_000, 1)
	for at := 0; at < len(rows); at += 200 {
		require.NoError(b, s.Put(b.Context(), p, rows[at:at+200]...))
	}
	end := []byte("photos0")
	_, err := s.Slice(b.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 1}) // learns the size of rows
	require.NoError(b, err)
	n := 0
	from := func() []byte { n++; return rows[n%9*1000].Key }
	compare(b, "pages", 1, []string{"store", "raw"}, func() error {
		page, err := s.Slice(b.Context(), p, store.Bounds{Start: from(), End: end}, store.SliceOptions{Limit: 1000})
		if err == nil && len(page.Rows) != 1000 {
			err = fmt.Errorf("a page of %d rows", len(page.Rows))
		}
		return err
	}, func() error {
		iter := raw.Query("SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key >= ? AND key < ? LIMIT ?",
			gocql.UUID(p.Bucket), gocql.UUID(p.ID), from(), end, 1000).Iter()
		page := make([]store.Row, 0, 1000)
		for {
			var row store.Row
			if !iter.Scan(&row.Key, &row.Value) {
				break
			}
			page = append(page, row)
		}
		if err := iter.Close(); err != nil || len(page) != 1000 {
			return fmt.Errorf("a page of %d rows: %w", len(page), err)
		}
		return nil
	})
}

// BenchmarkPut writes 300 rows of 170 bytes: one by one from 16 goroutines, by this
// store and by the bare driver; and in batches of 150.
func BenchmarkPut(b *testing.B) {
	o := harness.Shared(b, &shared)
	s, raw := harness.Open(b, o), rawSession(b, o)
	p := newPartition()
	rows := benchRows(300, 1)
	parallel := func(n, step int, put func(some []store.Row) error) func() error {
		return func() error {
			var g errgroup.Group
			g.SetLimit(n)
			for at := 0; at < len(rows); at += step {
				g.Go(func() error { return put(rows[at : at+step]) })
			}
			return g.Wait()
		}
	}
	viaStore := func(some []store.Row) error { return s.Put(b.Context(), p, some...) }
	viaDriver := func(some []store.Row) error {
		return raw.Query(
			"INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
			gocql.UUID(
				p.Bucket,
			),
			gocql.UUID(p.ID),
			some[0].Key,
			some[0].Value,
			int64(some[0].Timestamp),
		).WithContext(b.Context()).Exec()
	}
	b.Run("one by one", func(b *testing.B) {
		compare(
			b, "rows", float64(len(rows)), []string{"store", "raw"}, parallel(16, 1, viaStore), parallel(16, 1, viaDriver),
		)
	})
	b.Run("batches", func(b *testing.B) {
		compare(
			b, "rows", float64(len(rows)), []string{"batches", "single"}, parallel(2, 150, viaStore), parallel(16, 1, viaStore),
		)
	})
}

// BenchmarkSwap swaps a root with a blob of 2 KB, and reads it.
func BenchmarkSwap(b *testing.B) {
	s := harness.Open(b, harness.Shared(b, &shared))
	key := make([]byte, 16)
	at := store.Version{}
	b.Run("swap", func(b *testing.B) {
		for b.Loop() {
			next := store.Record{
				Version: store.Version{Epoch: at.Epoch + 1, Token: storekit.NewToken()}, Blob: make([]byte, 2000),
			}
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
