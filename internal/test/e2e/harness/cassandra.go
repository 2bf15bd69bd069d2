package harness

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// Clocks is the number of map clocks in the tests over Cassandra.
const Clocks = 2

// patience is the time limit of clients of a patient node, which may take half a minute.
const patience = 35 * time.Second

// KeyspaceName returns a random name for a keyspace of a test.
func KeyspaceName() string { return "t" + strings.ReplaceAll(uuid.NewString(), "-", "") }

// Keyspace creates a keyspace with evenkeel's tables, which is dropped when the test t ends. It returns the options for
// opening the keyspace through a node of the data centre dc1. r is the number of copies in each data centre.
func Keyspace(t testing.TB, host string, r cassandrastore.Replication) cassandrastore.Options {
	t.Helper()
	o := cassandrastore.Options{
		Hosts: []string{host}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: KeyspaceName(),
	}
	// On a busy machine a node may take longer for a dozen schema changes than the
	// usual client waits.
	admin, err := cassandrastore.OpenAdmin(t.Context(), Patient(o))
	require.NoError(t, err)
	t.Cleanup(func() {
		defer admin.Close()
		// The test's context has ended by now. What lives on nodes that a test
		// killed goes with them.
		_ = admin.Drop(context.WithoutCancel(t.Context()))
	})
	require.NoError(t, admin.Apply(t.Context(), r))
	return o
}

// Shared creates a keyspace on the Cassandra node that all tests of a package share. It returns the options for opening
// the keyspace, with the long time limits that clients of this node need.
func Shared(t testing.TB, node *cassandratest.Shared) cassandrastore.Options {
	t.Helper()
	return Patient(Keyspace(t, node.Address(t), cassandrastore.Replication{"dc1": 1}))
}

// Patient returns the options o with the time limits of a client of a patient node, which may take half a minute.
func Patient(o cassandrastore.Options) cassandrastore.Options {
	o.ReadTimeout, o.WriteTimeout, o.SwapTimeout, o.ConnectTimeout = patience, patience, patience, patience
	return o
}

// Open opens the store with the options o. The store is closed when the test t ends.
func Open(t testing.TB, o cassandrastore.Options) cassandrastore.Store {
	t.Helper()
	s, err := cassandrastore.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Maps returns a map client of the store s, which is closed when the test t ends. lease is the length of the client's
// leases, or 0 for the default.
func Maps(t testing.TB, s mapclient.Store, lease time.Duration) *mapclient.Client {
	t.Helper()
	return MapsAt(t, s, lease, 0)
}

// MapsAt returns a map client like Maps, but one whose wall clock is ahead by the given time.
func MapsAt(t testing.TB, s mapclient.Store, lease, ahead time.Duration) *mapclient.Client {
	t.Helper()
	o := mapclient.Options{Clocks: Clocks, Lease: lease}
	if ahead != 0 {
		o.Now = func() time.Time { return time.Now().Add(ahead) }
	}
	m, err := mapclient.NewNetwork(s, o)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// Client returns a listing client with the options o, over the store s and the map client m.
func Client(t testing.TB, s listing.Store, m *mapclient.Client, o listing.Options) *listing.Client {
	t.Helper()
	c, err := listing.New(mapclient.With(s, m), o)
	require.NoError(t, err)
	return c
}

// Session returns a session of the bare Cassandra driver to a keyspace. The session is closed when the test t ends.
func Session(t testing.TB, host, keyspace string) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(host)
	c.Keyspace, c.ProtoVersion, c.Timeout, c.WriteCoalesceWaitTime = keyspace, 4, patience, 0
	s, err := c.CreateSession()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// DeadRowLimit returns the number of dead rows above which the node refuses a read.
func DeadRowLimit(t testing.TB, s *gocql.Session) (n int) {
	t.Helper()
	var text string
	require.NoError(t, s.Query("SELECT value FROM system_views.settings WHERE name = 'tombstone_failure_threshold'").
		Scan(&text))
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// DeleteMany deletes n keys of the partition p one by one, at the timestamp ts in microseconds, so that Cassandra keeps
// a tombstone for each. The function key returns key number i.
func DeleteMany(t testing.TB, s *gocql.Session, p store.Partition, n int, ts int64, key func(i int) []byte) {
	t.Helper()
	const step = 500
	var g errgroup.Group
	g.SetLimit(4)
	for at := 0; at < n; at += step {
		g.Go(func() error {
			b := s.NewBatch(gocql.UnloggedBatch)
			for i := at; i < min(at+step, n); i++ {
				b.Query("DELETE FROM rows USING TIMESTAMP ? WHERE bucket = ? AND partition = ? AND key = ?", ts,
					gocql.UUID(p.Bucket), gocql.UUID(p.ID), key(i))
			}
			return s.ExecuteBatch(b)
		})
	}
	require.NoError(t, g.Wait())
}

// Partitions returns the number of partitions of a bucket.
func Partitions(t testing.TB, c *listing.Client, bucket string) (n int) {
	t.Helper()
	id, err := c.BucketID(t.Context(), bucket)
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(t.Context(), id)
	require.NoError(t, err)
	for _, err := range mapclient.Of(c).Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		n++
	}
	return n
}
