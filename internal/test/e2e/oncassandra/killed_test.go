package oncassandra

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// One of three nodes is killed under load and started again, later another one: at
// LOCAL_QUORUM everything goes on, moves of ranges as well. The clients' clocks
// differ, as clocks do. At last one hangs.
func TestKilledNodesOfThree(t *testing.T) {
	t.Parallel()
	c := cassandratest.New(t, cassandratest.Options{DataCentres: []int{3}, DurableWrites: true, HeapMiB: 384})
	o := harness.Keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 3})
	flush(t, c)
	l := newCrowd(t, "bucket", 300)
	const lease = time.Second // a move takes five of them
	var clients []*listing.Client
	for i, skew := range []time.Duration{0, 300 * time.Millisecond, -200 * time.Millisecond} {
		o.Hosts = []string{c.Nodes[i].Address}
		s := harness.Open(t, o)
		if i == 0 {
			require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
		}
		clients = append(clients, l.client(s, harness.MapsAt(t, s, lease, skew)))
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
	l.progress(500, part, "")
	m.progress(1)
	for _, n := range []*cassandratest.Node{c.Nodes[1], c.Nodes[0]} {
		require.NoError(t, n.Kill())
		l.progress(500, part, "")
		m.progress(1)
		require.NoError(t, n.Start(t.Context()))
		require.NoError(t, c.AwaitUp(t.Context()))
		l.progress(500, part, "")
		t.Logf("after %s: %s", n.Address, l.told())
	}
	m.stop()
	l.end(map[string]*listing.Client{"": clients[2]})
	m.end(o, lease)
	s := harness.Open(t, o)
	patient := harness.Client(t, s, harness.Maps(t, s, 0), listing.Options{})
	servesBesideAHungNode(t, c.Nodes[1], patient.Bucket(l.bucket))
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

// All nodes are gone under load: every call fails within its deadline, and says that
// the store is away. Once they are back clients go on by themselves, and nothing
// acknowledged is lost.
func TestAllNodesGone(t *testing.T) {
	t.Parallel()
	c := cassandratest.New(t, cassandratest.Options{DurableWrites: true})
	o := harness.Keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 1})
	l := newCrowd(t, "bucket", 200)
	var clients []*listing.Client
	for range 2 {
		s := harness.Open(t, o)
		if len(clients) == 0 {
			require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
		}
		clients = append(clients, l.client(s, harness.Maps(t, s, time.Second)))
	}
	require.NoError(t, clients[0].CreateBucket(t.Context(), l.bucket, []byte(l.keys[100])))
	flush(t, c)
	for _, c := range clients {
		l.run("", c, 3, 1)
	}
	part := atLeast(t, 2*time.Second)
	l.progress(500, part, "")
	require.NoError(t, c.Nodes[0].Kill())
	for _, call := range []func(ctx context.Context, b *listing.Bucket) error{
		func(ctx context.Context, b *listing.Bucket) error { _, err := b.Get(ctx, []byte("k")); return err },
		func(ctx context.Context, b *listing.Bucket) error { _, err := b.List(ctx, listing.Query{}); return err },
		func(ctx context.Context, b *listing.Bucket) error { return b.Put(ctx, []byte("k"), nil) },
		func(ctx context.Context, b *listing.Bucket) error { return b.Delete(ctx, []byte("k")) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		err := call(ctx, clients[0].Bucket(l.bucket))
		cancel()
		require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err), "%v", err)
	}
	time.Sleep(part)
	require.NoError(t, c.Nodes[0].Start(t.Context()))
	l.progress(500, part, "")
	require.Contains(t, l.told(), "unavailable")
	l.end(map[string]*listing.Client{"": clients[1]})
	require.NoError(t, clients[1].CreateBucket(t.Context(), "another"))
}
