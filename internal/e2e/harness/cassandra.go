package harness

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// Clocks is the number of map clocks in the tests over Cassandra.
const Clocks = 2

// patience is how long a client of a patient node waits for it: such a node may
// take half a minute.
const patience = 35 * time.Second

// KeyspaceName is a name that nobody uses yet.
func KeyspaceName() string { return "t" + strings.ReplaceAll(uuid.NewString(), "-", "") }

// Keyspace lays out the schema in a fresh keyspace, dropped with the test, and
// returns the options to open it through a node of dc1.
func Keyspace(t testing.TB, host string, r cassandrastore.Replication) cassandrastore.Options {
	t.Helper()
	o := cassandrastore.Options{Hosts: []string{host}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: KeyspaceName()}
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
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

// Shared is a fresh keyspace of a package's shared node. That node is patient, so
// its clients are more so.
func Shared(t testing.TB, node *cassandratest.Shared) cassandrastore.Options {
	t.Helper()
	return Patient(Keyspace(t, node.Address(t), cassandrastore.Replication{"dc1": 1}))
}

// Patient returns the options of a client of a patient node.
func Patient(o cassandrastore.Options) cassandrastore.Options {
	o.ReadTimeout, o.WriteTimeout, o.SwapTimeout, o.ConnectTimeout = patience, patience, patience, patience
	return o
}

// Open opens a store, closed with the test.
func Open(t testing.TB, o cassandrastore.Options) *cassandrastore.Store {
	t.Helper()
	s, err := cassandrastore.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Maps makes a map client whose leases hold for a time (0: the usual one), closed
// with the test.
func Maps(t testing.TB, s mapclient.Store, lease time.Duration) *mapclient.Client {
	t.Helper()
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: Clocks, Lease: lease})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// Client makes a client.
func Client(t testing.TB, s listing.Store, m *mapclient.Client, o listing.Options) *listing.Client {
	t.Helper()
	c, err := listing.New(s, m, o)
	require.NoError(t, err)
	return c
}

// Session is a session of the bare driver, as somebody else would have it, closed
// with the test.
func Session(t testing.TB, host, keyspace string) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(host)
	c.Keyspace, c.ProtoVersion, c.Timeout, c.WriteCoalesceWaitTime = keyspace, 4, patience, 0
	s, err := c.CreateSession()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Eventually waits until something is reached, for at most two minutes.
func Eventually(t testing.TB, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "not reached: %s", what)
	}
}
