package livemoves

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(harness.Run(m, &cassandra)) }

const bucketName = "live"

// process is what one process has of its own: a session and a map client.
type process struct {
	store  cassandrastore.Store
	maps   *mapclient.Client
	client *listing.Client
	bucket *listing.Bucket
}

// keyspace is a fresh one on the shared node.
type keyspace struct {
	options cassandrastore.Options
	lease   time.Duration
}

func newKeyspace(t testing.TB, lease time.Duration) *keyspace {
	k := &keyspace{lease: lease, options: harness.Shared(t, &cassandra)}
	first := k.process(t, listing.Options{})
	require.NoError(t, mapclient.InitClocks(t.Context(), first.store, harness.Clocks))
	return k
}

func (k *keyspace) process(t testing.TB, o listing.Options) *process {
	s := harness.Open(t, k.options)
	m := harness.Maps(t, s, k.lease)
	c := harness.Client(t, s, m, o)
	return &process{store: s, maps: m, client: c, bucket: c.Bucket(bucketName)}
}

// processAt is a process whose wall clock is ahead, and whose timestamps are recorded.
func (k *keyspace) processAt(
	t testing.TB, ahead time.Duration, record func(history.Timestamps) history.Timestamps,
) *process {
	s := harness.Open(t, k.options)
	m := harness.MapsAt(t, s, k.lease, ahead)
	c := harness.Client(t, s, m, listing.Options{Timestamps: record(m.Time())})
	return &process{store: s, maps: m, client: c, bucket: c.Bucket(bucketName)}
}

// id looks up the id of the bucket.
func (p *process) id(t testing.TB) store.BucketID {
	for info, err := range p.client.Buckets(t.Context(), bucketName, "") {
		require.NoError(t, err)
		return info.ID
	}
	t.Fatalf("there is no bucket %q", bucketName)
	return store.BucketID{}
}

func (p *process) ranges(t testing.TB) (out []partmap.Range) {
	root, err := p.maps.Load(t.Context(), p.id(t))
	require.NoError(t, err)
	for rg, err := range p.maps.Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		out = append(out, rg)
	}
	return out
}

// load puts keys with their values, by several writers.
func (p *process) load(t testing.TB, keys [][]byte, value func(key []byte) []byte) {
	t.Helper()
	const each = 2000
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(4)
	for len(keys) > 0 {
		n := min(each, len(keys))
		part := keys[:n]
		keys = keys[n:]
		g.Go(func() error {
			entries := make([]listing.Entry, len(part))
			for i, key := range part {
				entries[i] = listing.Entry{Key: key, Value: value(key)}
			}
			return p.bucket.PutBatch(ctx, entries)
		})
	}
	require.NoError(t, g.Wait())
}

// setting reads a number from the environment.
var setting = harness.Setting

func staticValue(key []byte) []byte {
	return fmt.Appendf(nil, "static value of %x, padded to %60s", key[:min(8, len(key))], "")
}
