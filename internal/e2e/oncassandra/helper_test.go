package oncassandra

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) {
	code := cassandra.Run(m)
	removeBinaries()
	os.Exit(code)
}

// keyspace lays out the schema in a fresh keyspace, dropped with the test, and
// returns the options to open it through a node of dc1.
func keyspace(t testing.TB, host string, r cassandrastore.Replication) cassandrastore.Options {
	t.Helper()
	o := cassandrastore.Options{
		Hosts: []string{host}, DataCentre: "dc1", AllowSingleReplica: true,
		Keyspace: "t" + strings.ReplaceAll(uuid.NewString(), "-", ""),
	}
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, admin.Apply(t.Context(), r))
	t.Cleanup(func() {
		defer admin.Close()
		// The test's context has ended by now. What lives on nodes that a test
		// killed goes with them.
		_ = admin.Drop(context.WithoutCancel(t.Context()))
	})
	return o
}

// open opens a store, closed with the test.
func open(t testing.TB, o cassandrastore.Options) *cassandrastore.Store {
	t.Helper()
	s, err := cassandrastore.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// shared is a keyspace of the shared node. The node is patient, so its clients
// have to be more so.
func shared(t testing.TB) cassandrastore.Options {
	t.Helper()
	o := keyspace(t, cassandra.Address(t), cassandrastore.Replication{"dc1": 1})
	o.ReadTimeout, o.WriteTimeout, o.SwapTimeout, o.ConnectTimeout = 35*time.Second, 35*time.Second, 35*time.Second, 35*time.Second
	return o
}

// clocks is the number of map clocks in these tests.
const clocks = 2

// maps makes a map client whose leases hold for a time.
func maps(t testing.TB, s mapclient.Store, lease time.Duration) *mapclient.Client {
	t.Helper()
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: clocks, Lease: lease})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// clientOf is a client of a process of its own.
func clientOf(t testing.TB, s listing.Store, m *mapclient.Client, o listing.Options) *listing.Client {
	t.Helper()
	c, err := listing.New(s, m, o)
	require.NoError(t, err)
	return c
}
