package cassandrastore

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

// What the driver's policy panics over ends no process: nodes are taken in turn until the policy can be made again.
// Here it panics over a partitioner that it does not know, as a bare session has no log to say so.
func TestPanicsOfTheDriversPolicy(t *testing.T) {
	var log bytes.Buffer
	c := newChosen("listings", "", "", slog.New(slog.NewTextHandler(&log, nil)))
	c.Init(&gocql.Session{})
	hosts := map[string]bool{}
	for i, id := range []string{"a", "b", "c"} {
		h := (&gocql.HostInfo{}).SetConnectAddress(net.IPv4(127, 0, 0, byte(i+1)))
		h.SetHostID(id)
		c.AddHost(h)
		hosts[id] = true
	}
	requireAll := func() {
		t.Helper()
		found := map[string]bool{}
		next := c.Pick(&gocql.Query{})
		for h := next(); h != nil; h = next() {
			found[h.Info().HostID()] = true
		}
		require.Equal(t, hosts, found)
	}
	requireAll()
	require.Empty(t, log.String(), "nothing is wrong before the partitioner is known")

	c.SetPartitioner("of tomorrow")
	require.Nil(t, c.aware.Load())
	c.KeyspaceChanged(gocql.KeyspaceUpdateEvent{Keyspace: "listings"})
	requireAll()
	require.Equal(t, 1, strings.Count(log.String(), "where rows lie is not known"))

	c.SetPartitioner("org.apache.cassandra.dht.Murmur3Partitioner")
	aware := c.aware.Load()
	require.NotNil(t, aware)
	require.Equal(t, 1, strings.Count(log.String(), "where rows lie is known again"))
	c.KeyspaceChanged(gocql.KeyspaceUpdateEvent{Keyspace: "elsewhere"})
	require.Same(t, aware, c.aware.Load(), "other keyspaces do not matter")
	c.KeyspaceChanged(gocql.KeyspaceUpdateEvent{Keyspace: "listings"})
	require.NotSame(t, aware, c.aware.Load())

	gone := c.nodes["a"].HostInfo
	for id := range hosts {
		c.RemoveHost(c.nodes[id].HostInfo)
	}
	clear(hosts)
	requireAll()
	c.AddHost(gone)
	hosts["a"] = true
	require.NotNil(t, c.aware.Load())
}
