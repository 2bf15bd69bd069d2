package oncassandra

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/mapbench"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// These benchmarks compare the whole client with the bare driver doing the same
// to the same partition, in turns within one run. Ratios are of times: below 1
// the client is the faster one.

// rig is a warm client of a bucket beside a bare session of the same keyspace.
type rig struct {
	store  cassandrastore.Store
	maps   *mapclient.Client
	client *listing.Client
	bucket *listing.Bucket
	id     store.BucketID
	raw    *gocql.Session
}

func newRig(b *testing.B, cuts ...[]byte) *rig {
	b.Helper()
	o := harness.Keyspace(b, cassandra.Address(b), cassandrastore.Replication{"dc1": 1})
	x := &rig{store: harness.Open(b, o)}
	require.NoError(b, mapclient.InitClocks(b.Context(), x.store, harness.Clocks))
	x.maps = harness.Maps(b, x.store, 0)
	x.client = harness.Client(b, x.store, x.maps, listing.Options{})
	require.NoError(b, x.client.CreateBucket(b.Context(), "bench", cuts...))
	x.bucket = x.client.Bucket("bench")
	for info, err := range x.client.Buckets(b.Context(), "bench", "") {
		require.NoError(b, err)
		x.id = info.ID
	}
	// The driver as somebody who knows its traps would set it up.
	c := gocql.NewCluster(o.Hosts...)
	c.Keyspace, c.ProtoVersion, c.Consistency = o.Keyspace, 4, gocql.LocalQuorum
	c.WriteCoalesceWaitTime, c.PageSize, c.Timeout = 0, 0, 5*time.Second
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy(o.DataCentre),
		gocql.ShuffleReplicas())
	var err error
	x.raw, err = c.CreateSession()
	require.NoError(b, err)
	b.Cleanup(x.raw.Close)
	return x
}

// partition is the one that holds a key.
func (x *rig) partition(b *testing.B, key []byte) store.PartitionID {
	root, err := x.maps.Load(b.Context(), x.id)
	require.NoError(b, err)
	for rg, err := range x.maps.Ranges(b.Context(), root, key) {
		require.NoError(b, err)
		return rg.Partition
	}
	return store.PartitionID{}
}

// inTurns does rounds of two ways of doing the same, in turns, and reports the
// median times and their ratio, with the ratios of the best and the worst tenth of
// the run.
func inTurns(b *testing.B, warm int, what string, ours, bare func() error) {
	b.Helper()
	var took [2][]float64
	var cpu [2]time.Duration
	both := [2]func() error{ours, bare}
	round := 0
	once := func(record bool) {
		for i := range both {
			way := (i + round) % 2 // neither is always the first
			begun, busy := time.Now(), mapbench.ProcessorTime()
			if err := both[way](); err != nil {
				b.Fatal(err)
			}
			if record {
				took[way] = append(took[way], float64(time.Since(begun)))
				cpu[way] += mapbench.ProcessorTime() - busy
			}
		}
		round++
	}
	for range warm { // the server compiles what is hot
		once(false)
	}
	for b.Loop() {
		once(true)
	}
	const parts = 10
	var ratios []float64
	n := len(took[0])
	for i := range parts {
		if from, to := i*n/parts, (i+1)*n/parts; from < to {
			ratios = append(ratios, median(took[0][from:to])/median(took[1][from:to]))
		}
	}
	b.ReportMetric(median(took[0])/median(took[1]), "x-bare")
	b.ReportMetric(slices.Min(ratios), "x-bare-least")
	b.ReportMetric(slices.Max(ratios), "x-bare-most")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "x-bare-cpu")
	b.ReportMetric(median(took[0])/1e3, "us/"+what)
	b.ReportMetric(median(took[1])/1e3, "bare-us/"+what)
	b.ReportMetric(0, "ns/op")
}

func millis(of []time.Duration) (out []float64) {
	for _, d := range of {
		out = append(out, float64(d)/1e6)
	}
	return out
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// benchKeys are S3-like names; benchValue is the size of an object's record.
func benchKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i*12/n+1, i*336/n%28+1, i)
	}
	return keys
}

var benchValue = []byte(`{"size":123456,"etag":"9e107d9d372bb6826bd81d3542a419d6","modified":1700000000,"type":"image/jpeg"}`)

// BenchmarkListPage reads pages of 1,000, with 10 ranges in the map and with
// 100,000 of which 20 are filled.
func BenchmarkListPage(b *testing.B) {
	for _, ranges := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("ranges=%d", ranges), func(b *testing.B) { benchListPage(b, ranges) })
	}
}

func benchListPage(b *testing.B, ranges int) {
	const page, per = 1000, 10_000
	filled := min(ranges, 20)
	keys := benchKeys(filled * per)
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		if i < filled {
			cuts = append(cuts, keys[i*per])
		} else {
			cuts = append(cuts, fmt.Appendf(nil, "videos/%08d", i))
		}
	}
	x := newRig(b, cuts...)
	for some := range slices.Chunk(keys, per) {
		var entries []listing.Entry
		for _, key := range some {
			entries = append(entries, listing.Entry{Key: key, Value: benchValue})
		}
		require.NoError(b, x.bucket.PutBatch(b.Context(), entries))
	}
	var partitions []store.PartitionID
	for i := range filled {
		partitions = append(partitions, x.partition(b, keys[i*per]))
	}
	r := rand.New(rand.NewPCG(1, 1))
	from := func() int { return r.IntN(filled)*per + r.IntN(per-page-1) } // not across a range's end
	ours := func() error {
		got, err := x.bucket.List(b.Context(), listing.Query{From: keys[from()], Limit: page})
		if err == nil && len(got.Items) != page {
			err = fmt.Errorf("a page of %d", len(got.Items))
		}
		return err
	}
	bare := func() error {
		at := from()
		end := []byte("videos/")
		if next := (at/per + 1) * per; next < len(keys) {
			end = keys[next]
		}
		iter := x.raw.Query("SELECT key, v FROM rows WHERE bucket = ? AND partition = ? AND key >= ? AND key < ? LIMIT ?",
			gocql.UUID(x.id), gocql.UUID(partitions[at/per]), keys[at], end, page).WithContext(b.Context()).Iter()
		rows := make([]store.Row, 0, page)
		for {
			var row store.Row
			if !iter.Scan(&row.Key, &row.Value) {
				break
			}
			rows = append(rows, row)
		}
		if err := iter.Close(); err != nil || len(rows) != page {
			return fmt.Errorf("a page of %d: %w", len(rows), err)
		}
		return nil
	}
	inTurns(b, 300, "page", ours, bare)
}

// BenchmarkPut puts new entries one by one, from 1 worker and from 64.
func BenchmarkPut(b *testing.B) {
	const each = 5
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			x := newRig(b, benchKeys(10)[1:]...)
			put, bare := x.putters(b)
			inTurns(b, 2000/(each*workers), "round", parallel(workers, each, put), parallel(workers, each, bare))
		})
	}
}

// putters put the i-th new entry, by the client and by the bare driver.
func (x *rig) putters(b *testing.B) (ours, bare func(i int64) error) {
	key := func(i int64) []byte { return fmt.Appendf(nil, "photos/2024/%02d/IMG_%08d.jpg", i%12+1, i) }
	cell := store.EntryCell(benchValue)
	partitions := map[string]store.PartitionID{}
	for i := range int64(12) {
		partitions[string(key(i)[:14])] = x.partition(b, key(i))
	}
	ours = func(i int64) error { return x.bucket.Put(b.Context(), key(i), benchValue) }
	bare = func(i int64) error {
		k := key(i)
		return x.raw.Query("INSERT INTO rows (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
			gocql.UUID(x.id), gocql.UUID(partitions[string(k[:14])]), k, cell, time.Now().UnixMicro()).
			WithContext(b.Context()).Exec()
	}
	return ours, bare
}

var nextEntry atomic.Int64

// parallel is a round of puts: so many of each of so many workers.
func parallel(workers, each int, put func(i int64) error) func() error {
	return func() error {
		var g errgroup.Group
		for range workers {
			g.Go(func() error {
				for range each {
					if err := put(nextEntry.Add(1)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
}

// BenchmarkPutBatch puts 1,280 entries into one partition: by PutBatch, and one by
// one from 64 workers.
func BenchmarkPutBatch(b *testing.B) {
	const workers, each = 64, 20
	x := newRig(b)
	put, _ := x.putters(b)
	batch := func() error {
		var entries []listing.Entry
		for range workers * each {
			i := nextEntry.Add(1)
			entries = append(entries, listing.Entry{
				Key: fmt.Appendf(nil, "photos/2024/%02d/IMG_%08d.jpg", i%12+1, i), Value: benchValue,
			})
		}
		return x.bucket.PutBatch(b.Context(), entries)
	}
	inTurns(b, 20, "round", batch, parallel(workers, each, put))
}

// BenchmarkSwap swaps the root of a bucket of 1,000,000 ranges: each swap of whole
// moves, with the nodes that it writes and the bump of the map clock, without the
// waits.
func BenchmarkSwap(b *testing.B) {
	const ranges = 1_000_000
	ctx := b.Context()
	cuts := make([][]byte, ranges-1)
	for i := range cuts {
		cuts[i] = fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i/100_000+1, i/4000%28+1, i)
	}
	x := newRig(b, cuts...)
	r := rand.New(rand.NewPCG(1, 1))
	s := &mapbench.Swaps{Maps: x.maps, Bucket: x.id}
	move := func() {
		at := r.IntN(len(cuts) - 1)
		require.NoError(b, s.Move(ctx, cuts[at], cuts[at+1]))
	}
	for range 10 {
		move()
	}
	s.Took, s.Rewriting = nil, nil
	for b.Loop() {
		move()
	}
	took, rewriting := millis(s.Took), millis(s.Rewriting)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(took)), "swaps")
	over := 0
	for _, ms := range took {
		if ms > 50 {
			over++
		}
	}
	b.ReportMetric(float64(over), "swaps-over-50-ms")
	b.ReportMetric(median(took), "ms/swap")
	b.ReportMetric(slices.Max(took), "ms/swap-most")
	b.ReportMetric(median(rewriting), "ms/swap-with-nodes")
	b.ReportMetric(slices.Max(rewriting), "ms/swap-with-nodes-most")

	cold := &mapReads{Store: x.store}
	m := harness.Maps(b, cold, 0)
	require.NoError(b, func() error {
		_, err := harness.Client(b, cold, m, listing.Options{}).Bucket("bench").
			List(context.Background(), listing.Query{From: cuts[ranges/2], To: cuts[ranges/2+1]})
		return err
	}())
	b.ReportMetric(float64(cold.roots.Load()+cold.nodes.Load()), "map-reads-of-a-cold-page")
}

// mapReads counts what reads maps.
type mapReads struct {
	cassandrastore.Store
	roots, nodes atomic.Int64
}

func (c *mapReads) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if t == store.Roots {
		c.roots.Add(1)
	}
	return c.Store.Read(ctx, t, key, l)
}

func (c *mapReads) Node(ctx context.Context, b store.BucketID, id store.NodeID) ([]byte, error) {
	c.nodes.Add(1)
	return c.Store.Node(ctx, b, id)
}

// BenchmarkNewestAcrossReserve reads the newest 1,000 keys of a bucket where 96 empty ranges are cut ahead of them, in
// turns with the same page of a bucket without them.
func BenchmarkNewestAcrossReserve(b *testing.B) {
	const page, rows, ahead = 1000, 5000, 96
	key := func(i int) []byte { return fmt.Appendf(nil, "log/%012d", i) }
	x := newRig(b)
	var cuts [][]byte
	for i := range ahead {
		cuts = append(cuts, key(rows*(i+1)))
	}
	require.NoError(b, x.client.CreateBucket(b.Context(), "reserve", cuts...))
	newest := func(name string) func() error {
		bucket := x.client.Bucket(name)
		var entries []listing.Entry
		for i := range rows {
			entries = append(entries, listing.Entry{Key: key(i), Value: benchValue})
		}
		require.NoError(b, bucket.PutBatch(b.Context(), entries))
		return func() error {
			got, err := bucket.List(b.Context(), listing.Query{Reverse: true, Limit: page})
			if err == nil && len(got.Items) != page {
				err = fmt.Errorf("a page of %d", len(got.Items))
			}
			return err
		}
	}
	inTurns(b, 100, "page", newest("reserve"), newest("bench"))
}
