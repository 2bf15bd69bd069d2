package oncassandra

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// BenchmarkParallelScan reads a bucket of 20 ranges through, each part between two
// SplitPoints by a goroutine of its own, in turns with as many goroutines of the
// bare driver that read slices of 1,000 of the same partitions, a share each.
func BenchmarkParallelScan(b *testing.B) {
	const ranges, per, page = 20, 10_000, 1000
	keys := benchKeys(ranges * per)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, keys[i*per])
	}
	x := newRig(b, cuts...)
	var partitions []store.PartitionID
	for i, some := range slices.Collect(slices.Chunk(keys, per)) {
		var entries []listing.Entry
		for _, key := range some {
			entries = append(entries, listing.Entry{Key: key, Value: benchValue})
		}
		require.NoError(b, x.bucket.PutBatch(b.Context(), entries))
		partitions = append(partitions, x.partition(b, keys[i*per]))
	}
	complete := func(rows int64, err error) error {
		if err == nil && rows != int64(len(keys)) {
			err = fmt.Errorf("a scan of %d rows", rows)
		}
		return err
	}
	for _, workers := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			var splits []float64
			ours := func() error {
				begun := time.Now()
				points, err := x.bucket.SplitPoints(b.Context(), listing.Query{}, workers)
				splits = append(splits, float64(time.Since(begun)))
				if err != nil {
					return err
				}
				var rows atomic.Int64
				var g errgroup.Group
				var from []byte
				for _, to := range append(points, nil) {
					q := listing.Query{From: from, To: to}
					from = to
					g.Go(func() error {
						for _, err := range x.bucket.All(b.Context(), q) {
							if err != nil {
								return err
							}
							rows.Add(1)
						}
						return nil
					})
				}
				err = g.Wait()
				return complete(rows.Load(), err)
			}
			slice := func(p store.PartitionID, from []byte) (rows []store.Row, err error) {
				iter := x.raw.Query("SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key >= ? LIMIT ?",
					gocql.UUID(x.id), gocql.UUID(p), from, page).WithContext(b.Context()).Iter()
				rows = make([]store.Row, 0, page)
				for {
					var row store.Row
					if !iter.Scan(&row.Key, &row.Value) {
						return rows, iter.Close()
					}
					rows = append(rows, row)
				}
			}
			bare := func() error {
				var rows, next atomic.Int64
				var g errgroup.Group
				for range workers {
					g.Go(func() error {
						for i := next.Add(1) - 1; i < ranges; i = next.Add(1) - 1 {
							for from, more := keys[i*per], true; more; {
								got, err := slice(partitions[i], from)
								if err != nil {
									return err
								}
								rows.Add(int64(len(got)))
								if more = len(got) == page; more {
									from = append(bytes.Clone(got[page-1].Key), 0)
								}
							}
						}
						return nil
					})
				}
				err := g.Wait()
				return complete(rows.Load(), err)
			}
			inTurns(b, 3, "scan", ours, bare)
			b.ReportMetric(median(splits)/1e3, "us/split-points") // part of us/scan
		})
	}
}

// BenchmarkCommonPrefixes lists 1,000 common prefixes of 10 keys each and of 100, in
// turns with the bare driver that reads all of those keys in slices of 1,000.
func BenchmarkCommonPrefixes(b *testing.B) {
	const prefixes, page = 1000, 1000
	for _, each := range []int{10, 100} {
		b.Run(fmt.Sprintf("keys=%d", each), func(b *testing.B) {
			x := newRig(b)
			var entries []listing.Entry
			for i := range prefixes * each {
				entries = append(entries, listing.Entry{
					Key: fmt.Appendf(nil, "album-%05d/IMG_%08d.jpg", i/each, i), Value: benchValue,
				})
			}
			require.NoError(b, x.bucket.PutBatch(b.Context(), entries))
			p := x.partition(b, entries[0].Key)
			ours := func() error {
				got, err := x.bucket.List(b.Context(), listing.Query{Delimiter: []byte("/")})
				if err == nil && len(got.Items) != prefixes {
					err = fmt.Errorf("%d common prefixes", len(got.Items))
				}
				return err
			}
			bare := func() error {
				var from, key, value []byte
				from, found := []byte("a"), map[string]bool{}
				for n := page; n == page; {
					n = 0
					iter := x.raw.Query("SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key >= ? LIMIT ?",
						gocql.UUID(x.id), gocql.UUID(p), from, page).WithContext(b.Context()).Iter()
					for iter.Scan(&key, &value) {
						found[string(key[:bytes.IndexByte(key, '/')+1])] = true
						n++
					}
					if err := iter.Close(); err != nil {
						return err
					}
					from = append(bytes.Clone(key), 0)
				}
				if len(found) != prefixes {
					return fmt.Errorf("%d common prefixes", len(found))
				}
				return nil
			}
			inTurns(b, 5, "list", ours, bare)
		})
	}
}
