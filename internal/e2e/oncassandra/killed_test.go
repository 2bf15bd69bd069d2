package oncassandra

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cassandratest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// One of three nodes is killed under load and started again, later another one: at
// LOCAL_QUORUM everything goes on, moves of ranges as well. The clients' clocks
// differ, as clocks do.
func TestKilledNodesOfThree(t *testing.T) {
	c := cassandratest.New(t, cassandratest.Options{DataCentres: []int{3}, DurableWrites: true, HeapMiB: 384})
	o := keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 3})
	flush(t, c)
	l := newCrowd(t, "bucket", 300)
	const lease = time.Second // a move takes five of them
	var clients []*listing.Client
	for i, skew := range []time.Duration{0, 300 * time.Millisecond, -200 * time.Millisecond} {
		o.Hosts = []string{c.Nodes[i].Address}
		s := open(t, o)
		if i == 0 {
			require.NoError(t, mapclient.InitClocks(t.Context(), s, clocks))
		}
		clients = append(clients, clientOf(t, s, maps(t, s, lease), listing.Options{Timestamps: l.timestamps(skew)}))
	}
	var cuts [][]byte
	for i := range 5 {
		cuts = append(cuts, fmt.Appendf(nil, "key/%04d", 50*(i+1)))
	}
	require.NoError(t, clients[0].CreateBucket(t.Context(), l.bucket, cuts...))
	for _, c := range clients {
		l.run("", c, 3, 1)
	}
	m := startMoves(t, o, l, lease)
	part := atLeast(t, 2*time.Second)
	l.progress(500, part)
	m.progress(1)
	for _, n := range []*cassandratest.Node{c.Nodes[1], c.Nodes[0]} {
		require.NoError(t, n.Kill())
		l.progress(500, part)
		m.progress(1)
		require.NoError(t, n.Start(t.Context()))
		require.NoError(t, c.AwaitUp(t.Context()))
		l.progress(500, part)
		t.Logf("after %s: %s", n.Address, l.told())
	}
	m.stop()
	l.end(map[string]*listing.Client{"": clients[2]})
	m.end(o, lease)
}

// flush puts the schema on the disks of all nodes, which are to be killed.
func flush(t *testing.T, c *cassandratest.Cluster) {
	t.Helper()
	var g errgroup.Group
	for _, n := range c.Nodes {
		g.Go(func() error { _, err := n.Nodetool(t.Context(), "flush"); return err })
	}
	require.NoError(t, g.Wait())
}
