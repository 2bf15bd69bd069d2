package growing

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/localcounter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

// world is a bucket with a client that writes, and what keeps it in shape: in the same
// process, or on Cassandra as if in another.
type world struct {
	testing.TB
	bucket *listing.Bucket
	maps   *mapclient.Client
	id     store.BucketID
	m      *scheduler.Scheduler
	sizes  *balancer.Balancer
	store  store.Store
	// cycle is how long it takes from one look until what it decides has happened, with
	// nothing to copy.
	cycle time.Duration
}

// settings of a world.
type settings struct {
	maxRows int64
	every   time.Duration
	lease   time.Duration // on Cassandra
	rate    int           // of moves, rows per second
}

const bucketName = "growing"

// embedded is a world over a directory.
func embedded(t testing.TB, o settings) *world {
	st, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	counts, err := localcounter.Open(t.TempDir(), localcounter.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = counts.Close() })
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	t.Cleanup(func() { _ = recorder.Close(context.Background()) })
	c, err := listing.New(st, listing.Options{Recorder: recorder})
	require.NoError(t, err)
	t.Cleanup(mapclient.Of(c).Close)
	return begin(t, o, c, st, mapclient.Of(c), counts, time.Second)
}

// onCassandra is a world over a fresh keyspace of the shared node, with a Redis of its
// own.
func onCassandra(t testing.TB, o settings) *world {
	const patience = 35 * time.Second // the node shares its two cores with its clients
	options := cassandrastore.Options{
		Hosts: []string{cassandra.Address(t)}, DataCentre: "dc1", AllowSingleReplica: true,
		Keyspace:    "t" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		ReadTimeout: patience, WriteTimeout: patience, SwapTimeout: patience, ConnectTimeout: patience,
	}
	redis := redistest.Start(t)
	admin, err := cassandrastore.OpenAdmin(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, admin.Apply(t.Context(), cassandrastore.Replication{"dc1": 1}))
	t.Cleanup(func() {
		defer admin.Close()
		_ = admin.Drop(context.WithoutCancel(t.Context()))
	})
	process := func() (cassandrastore.Store, *mapclient.Client, counter.Backend) {
		st, err := cassandrastore.Open(t.Context(), options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, st.Close()) })
		require.NoError(t, mapclient.InitClocks(t.Context(), st, mapclient.DefaultClocks))
		maps, err := mapclient.NewNetwork(st, mapclient.Options{Lease: o.lease})
		require.NoError(t, err)
		t.Cleanup(maps.Close)
		counts, err := rediscounter.Open(rediscounter.Options{Addr: redis.Addr})
		require.NoError(t, err)
		t.Cleanup(func() { _ = counts.Close() })
		return st, maps, counts
	}
	st, maps, counts := process()
	recorder := counter.NewRecorder(counts, counter.RecorderOptions{})
	t.Cleanup(func() { _ = recorder.Close(context.Background()) })
	c, err := listing.New(mapclient.With(st, maps), listing.Options{Recorder: recorder})
	require.NoError(t, err)
	theirs, theirMaps, theirCounts := process()
	return begin(t, o, c, theirs, theirMaps, theirCounts, o.lease+o.lease/10)
}

// begin makes the bucket, and has it looked after as listd does.
func begin(
	t testing.TB, o settings, c *listing.Client, st store.Store, maps *mapclient.Client, counts counter.Backend,
	wait time.Duration,
) *world {
	require.NoError(t, c.CreateBucket(t.Context(), bucketName))
	w := &world{TB: t, bucket: c.Bucket(bucketName), maps: mapclient.Of(c), store: st, cycle: o.every + 5*wait}
	var err error
	w.id, err = c.BucketID(t.Context(), bucketName)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("EVENKEEL_GROWING_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	w.m = scheduler.New(st, maps, scheduler.Options{RowsPerSecond: o.rate, Logger: log})
	b := balancer.For(o.maxRows, o.rate, o.every, wait)
	b.Logger = log
	w.sizes = balancer.New(st, maps, w.m, counts, b)
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = w.m.Run(ctx) })
	work.Go(func() { _ = w.sizes.Run(ctx) })
	t.Cleanup(func() {
		stop()
		work.Wait()
	})
	return w
}

func (w *world) ranges() (out []partmap.Range, err error) {
	root, err := w.maps.Load(w.Context(), w.id)
	if err != nil {
		return nil, err
	}
	for rg, err := range w.maps.Ranges(w.Context(), root, nil) {
		if err != nil {
			return nil, err
		}
		out = append(out, rg)
	}
	return out, nil
}

// setting reads a number from the environment.
func setting(t testing.TB, name string, preset int) int {
	text := os.Getenv("EVENKEEL_GROWING_" + name)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}
