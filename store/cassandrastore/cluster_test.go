package cassandrastore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// requireAway checks that an error says that the cluster is away, and that a
// write's outcome is unknown.
func requireAway(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err), "%v", err)
	require.True(t, store.OutcomeUnknown(err))
}

// within bounds one call.
func within(t testing.TB, d time.Duration, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return call(ctx)
}

// eventually repeats a call until it succeeds.
func eventually(t testing.TB, call func(ctx context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := within(t, 5*time.Second, call)
		if err == nil {
			return
		}
		requireAway(t, err)
		require.True(t, time.Now().Before(deadline), "%v", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// A node that syncs its log before it acknowledges is killed under load and
// started again: what was acknowledged is there, and what failed said that its
// outcome is unknown. The node wants a password, too.
func TestKilledNodeLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	c := cassandratest.New(t, cassandratest.Options{DurableWrites: true, Passwords: true})
	node := c.Nodes[0]
	o := cassandrastore.Options{
		Hosts: []string{node.Address}, DataCentre: "dc1", Keyspace: "kill",
		AllowSingleReplica: true,
	}
	_, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "wants a login")
	o.User, o.PasswordFile = "cassandra", passwordFile(t, "wrong\n")
	_, err = cassandrastore.OpenAdmin(t.Context(), o)
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "refuses the user")
	o.PasswordFile = passwordFile(t, "cassandra\n")
	admin, err := cassandrastore.OpenAdmin(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, admin.Apply(t.Context(), cassandrastore.Replication{"dc1": 1}))
	admin.Close()
	_, err = node.Nodetool(t.Context(), "flush")
	require.NoError(t, err, "the schema has to be on disk")
	s := harness.Open(t, o)

	p, key := newPartition(), uuid.New()
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	root, unknown := store.Version{}, store.Version{}
	failures := 0
	enough := make(chan struct{})
	var writers errgroup.Group
	for w := range 4 {
		writers.Go(func() error {
			for i := 0; ; i++ {
				row := store.Row{Key: fmt.Appendf(nil, "%d/%06d", w, i), Value: []byte{1}, Timestamp: 1}
				err := within(t, 4*time.Second, func(ctx context.Context) error { return s.Put(ctx, p, row) })
				if err != nil {
					requireAway(t, err)
					mu.Lock()
					failures++
					mu.Unlock()
					return nil
				}
				mu.Lock()
				acknowledged[string(row.Key)] = true
				if len(acknowledged) == 1000 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	writers.Go(func() error {
		for {
			version := store.Version{Epoch: root.Epoch + 1, Token: storekit.NewToken()}
			next := store.Record{Version: version, Blob: []byte("map")}
			if err := within(
				t, 4*time.Second, func(ctx context.Context) error { return s.Swap(ctx, store.Roots, key[:], root, next) },
			); err != nil {
				requireAway(t, err)
				unknown = next.Version
				return nil
			}
			root = next.Version
		}
	})
	<-enough
	require.NoError(t, node.Kill())
	require.NoError(t, writers.Wait())
	require.Equal(t, 4, failures)
	requireAway(t, within(t, 2*time.Second, func(ctx context.Context) error {
		_, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1})
		return err
	}))

	require.NoError(t, node.Start(t.Context()))
	eventually(t, func(ctx context.Context) error {
		_, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 1})
		return err
	})
	found := map[string]bool{}
	for _, key := range readAll(t, s, p, store.Bounds{}, store.SliceOptions{Limit: 1000}) {
		found[key] = true
	}
	for key := range acknowledged {
		require.True(t, found[key], "%s was acknowledged and is lost", key)
	}
	now, err := s.Read(t.Context(), store.Roots, key[:], store.Serial)
	require.NoError(t, err)
	require.Contains(t, []store.Version{root, unknown}, now.Version, "the last acknowledged swap is lost")
	t.Logf("%d puts and %d swaps were acknowledged before the kill", len(acknowledged), root.Epoch)
}

// requireReadsAtReplicas checks that each partition of an application's table is read through the one node of the data
// centre that has it, as the nodes count what they coordinate and what they read.
func requireReadsAtReplicas(t *testing.T, o cassandrastore.Options, nodes ...*cassandratest.Node) {
	ctx := t.Context()
	raw := harness.Session(t, nodes[0].Address, "")
	require.NoError(t, raw.Query("CREATE KEYSPACE app WITH replication = "+
		"{'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1}").Exec())
	require.NoError(t, raw.Query("CREATE TABLE app.files (bucket text, shard int, name text, meta text, "+
		"PRIMARY KEY ((bucket, shard), name))").Exec())
	const partitions = 24
	for shard := range partitions {
		require.NoError(t, raw.Query("INSERT INTO app.files (bucket, shard, name, meta) VALUES ('photos', ?, 'a', 'b')",
			shard).Exec())
	}
	tables, err := cqltable.Open(ctx, o, "app.files")
	require.NoError(t, err)
	defer tables[0].Close()
	counts := latencies(t, "app", "files", nodes)
	through := make([]int, len(nodes))
	coordinated, read := counts("coordinator_read_latency"), counts("local_read_latency")
	for shard := range partitions {
		rows, err := tables[0].Read(ctx, cqltable.Query{
			Partition: [][]byte{[]byte("photos"), binary.BigEndian.AppendUint32(nil, uint32(shard))},
			Values:    []string{"meta"}, Limit: 10,
		})
		require.NoError(t, err)
		require.Len(t, rows, 1)
		nowCoordinated, nowRead := counts("coordinator_read_latency"), counts("local_read_latency")
		for i := range nodes {
			if nowCoordinated[i] > coordinated[i] {
				through[i]++
				require.Greater(t, nowRead[i], read[i], "shard %d was read through %s, which does not have it", shard,
					nodes[i].Address)
			}
		}
		coordinated, read = nowCoordinated, nowRead
	}
	t.Logf("partitions that were read through each node: %v", through)
	require.Equal(t, partitions, through[0]+through[1], "each through one node")
	require.NotContains(t, through, 0)
}

// latencies returns a function that returns how many requests each node has counted of a table, in one of its views.
func latencies(t *testing.T, keyspace, table string, nodes []*cassandratest.Node) func(view string) []int64 {
	var sessions []*gocql.Session
	for _, n := range nodes {
		cluster := gocql.NewCluster(n.Address)
		cluster.ProtoVersion, cluster.Timeout, cluster.HostFilter = 4, time.Minute, gocql.WhiteListHostFilter(n.Address)
		session, err := cluster.CreateSession()
		require.NoError(t, err)
		t.Cleanup(session.Close)
		sessions = append(sessions, session)
	}
	return func(view string) (out []int64) {
		for _, session := range sessions {
			var n int64
			require.NoError(t, session.Query("SELECT count FROM system_views."+view+
				" WHERE keyspace_name = ? AND table_name = ?", keyspace, table).Consistency(gocql.One).Scan(&n))
			out = append(out, n)
		}
		return out
	}
}

// requireRack checks that of two nodes that both have each row the one in the process's rack is asked, and both where
// no node is in the rack, which is told.
func requireRack(t *testing.T, o cassandrastore.Options, log *logged, nodes ...*cassandratest.Node) {
	t.Helper()
	const puts = 50
	counts := latencies(t, o.Keyspace, "rows", nodes)
	through := func(rack string) (each [2]int64) {
		o.Rack = rack
		s := harness.Open(t, o)
		before := counts("coordinator_write_latency")
		for i := range puts {
			require.NoError(t, s.Put(t.Context(), newPartition(), store.Row{
				Key: []byte("key"), Value: []byte{byte(i)}, Timestamp: 1,
			}))
		}
		for i, after := range counts("coordinator_write_latency") {
			each[i] = after - before[i]
		}
		return each
	}
	// A second attempt, where the first is late, goes to the other node.
	each := through("r2")
	require.Greater(t, each[1], 10*each[0])
	each = through("r1")
	require.Greater(t, each[0], 10*each[1])
	require.False(t, log.says("no node is in the rack"))
	require.NotContains(t, through("r3"), int64(0))
	require.True(t, log.says("no node is in the rack"))
}

// requireFarTime checks that callers who never wait as long as it takes to open a session to another data centre get
// the time of its node all the same. They wait for a few milliseconds here, as nothing is far; where a round trip takes
// 80 ms, those who wait for half a second are as impatient.
func requireFarTime(t *testing.T, s cassandrastore.Store) {
	t.Helper()
	servers, err := s.Servers(t.Context())
	require.NoError(t, err)
	for _, server := range servers {
		if server.Near {
			continue
		}
		deadline := time.Now().Add(time.Minute)
		for {
			err := within(t, 15*time.Millisecond, func(ctx context.Context) error {
				_, err := s.Time(ctx, server.Name)
				return err
			})
			if err == nil {
				break
			}
			require.True(t, time.Now().Before(deadline), "%s never tells its time: %v", server.Address, err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) says(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// requireServesThroughChanges checks that a store serves on whatever keyspaces are created, altered and dropped, and
// goes on by itself where its own keyspace has lost its copies in the data centre, and has them again. The log is that
// of the store.
func requireServesThroughChanges(
	t *testing.T, host string, o cassandrastore.Options, s cassandrastore.Store, log *logged,
) {
	t.Helper()
	raw := harness.Session(t, host, "")
	const replication = " WITH replication = {'class': 'NetworkTopologyStrategy', "
	elsewhere := harness.KeyspaceName()
	for _, change := range []string{
		"CREATE KEYSPACE " + elsewhere + replication + "'dc2': 1}",
		"ALTER KEYSPACE " + elsewhere + replication + "'dc1': 1}",
		"ALTER KEYSPACE " + elsewhere + replication + "'dc2': 1}",
		"DROP KEYSPACE " + elsewhere,
		"ALTER KEYSPACE " + o.Keyspace + replication + "'dc2': 1}",
	} {
		require.NoError(t, raw.Query(change).Exec(), change)
	}
	harness.Eventually(t, "the store knows that there are no copies", func() bool {
		return log.says("where rows lie is not known")
	})
	p, row := newPartition(), store.Row{Key: []byte("key"), Value: []byte{1}, Timestamp: 1}
	requireAway(t, within(t, 5*time.Second, func(ctx context.Context) error { return s.Put(ctx, p, row) }))
	require.NoError(t, raw.Query("ALTER KEYSPACE "+o.Keyspace+replication+"'dc1': 2, 'dc2': 1}").Exec())
	harness.Eventually(t, "the store knows that there are copies again", func() bool {
		return log.says("where rows lie is known again")
	})
	eventually(t, func(ctx context.Context) error { return s.Put(ctx, p, row) })
	_, found, err := s.Get(t.Context(), p, row.Key)
	require.NoError(t, err)
	require.True(t, found)
	require.False(t, log.says(elsewhere))
}

// Two data centres, the second of which is stopped and goes on again.
func TestTwoDataCentres(t *testing.T) {
	t.Parallel()
	// Without hints a replica that has missed a write never gets it but by a read: what Acknowledge promises it must do
	// itself.
	c := cassandratest.New(t, cassandratest.Options{
		DataCentres: []int{2, 1}, Racks: true, Settings: []string{"hinted_handoff_enabled: false"},
	})
	o := harness.Keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 2, "dc2": 1})
	var log logged
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	here := harness.Open(t, o)
	require.True(t, log.says("paxos_variant is v1"), "what the default costs is told")
	requireFarTime(t, here)
	requireReadsAtReplicas(t, o, c.Nodes[0], c.Nodes[1])
	requireRack(t, o, &log, c.Nodes[0], c.Nodes[1])
	near := o
	o.Hosts, o.DataCentre, o.Log = []string{c.Nodes[2].Address}, "dc2", nil
	there := harness.Open(t, o)
	ctx, p, root := t.Context(), newPartition(), uuid.New()
	put := func(rows store.Rows, key string) func(context.Context) error {
		return func(ctx context.Context) error {
			return rows.Put(ctx, p, store.Row{Key: []byte(key), Value: []byte{1}, Timestamp: 1})
		}
	}

	// What a mover wrote, and what was acknowledged, is seen everywhere at once.
	require.NoError(t, put(here.EachQuorum(), "moved")(ctx))
	_, found, err := there.Get(ctx, p, []byte("moved"))
	require.NoError(t, err)
	require.True(t, found)
	node := store.NodeID(uuid.New())
	require.NoError(t, here.WriteNode(ctx, p.Bucket, node, []byte("node")))
	_, err = there.Node(ctx, p.Bucket, node)
	require.NoError(t, err)
	version := store.Version{}
	swap := func(ctx context.Context) error {
		next := store.Record{
			Version: store.Version{Epoch: version.Epoch + 1, Token: storekit.NewToken()}, Blob: []byte("root"),
		}
		err := here.Swap(ctx, store.Roots, root[:], version, next)
		if err == nil {
			version = next.Version
		}
		return err
	}
	for range 20 {
		require.NoError(t, swap(ctx))
		acknowledged, err := here.Acknowledge(ctx, store.Roots, root[:])
		require.NoError(t, err)
		require.Equal(t, version, acknowledged.Version)
		seen, err := there.Read(ctx, store.Roots, root[:], store.Local)
		require.NoError(t, err)
		require.Equal(t, version, seen.Version)
	}

	// The second data centre misses a swap: it stands still until the message has expired, for 2 s. Whoever
	// acknowledges the swap afterwards brings it there.
	require.NoError(t, c.Nodes[2].Pause())
	require.NoError(t, swap(ctx))
	time.Sleep(2500 * time.Millisecond)
	require.NoError(t, c.Nodes[2].Resume())
	acknowledged, err := here.Acknowledge(ctx, store.Roots, root[:])
	require.NoError(t, err)
	require.Equal(t, version, acknowledged.Version)

	// The second data centre stops: the foreground goes on, movers don't.
	require.NoError(t, c.Nodes[2].Pause())
	for i := range 20 {
		require.NoError(t, within(t, 5*time.Second, put(here, fmt.Sprint("alone/", i))))
	}
	page, err := here.Slice(
		ctx, p, store.Bounds{Start: []byte("alone/"), End: []byte("alone0")}, store.SliceOptions{Limit: 100},
	)
	require.NoError(t, err)
	require.Len(t, page.Rows, 20)
	require.NoError(t, swap(ctx), "two of three replicas are a quorum at SERIAL")
	_, err = here.Read(ctx, store.Roots, root[:], store.Local)
	require.NoError(t, err)
	requireAway(t, within(t, 3*time.Second, put(here.EachQuorum(), "moved on")))
	requireAway(t, within(t, 3*time.Second, func(ctx context.Context) error {
		return here.WriteNode(ctx, p.Bucket, store.NodeID(uuid.New()), []byte("node"))
	}))
	requireAway(t, within(t, 3*time.Second, func(ctx context.Context) error {
		_, err := here.Acknowledge(ctx, store.Roots, root[:])
		return err
	}))

	// Whoever starts now does not wait until the driver has given up a node that does not answer: 18 s.
	const soon = 9 * time.Second
	require.NoError(t, within(t, soon, func(ctx context.Context) error {
		s, err := cassandrastore.Open(ctx, near)
		if err == nil {
			s.Close()
		}
		return err
	}))
	require.NoError(t, c.Nodes[1].Pause())
	require.NoError(t, within(t, soon, func(ctx context.Context) error {
		a, err := cassandrastore.OpenAdmin(ctx, near)
		if err == nil {
			a.Close()
		}
		return err
	}))
	require.NoError(t, c.Nodes[1].Resume())

	// It goes on by itself afterwards.
	require.NoError(t, c.Nodes[2].Resume())
	eventually(t, func(ctx context.Context) error {
		_, err := here.Acknowledge(ctx, store.Roots, root[:])
		return err
	})
	seen, err := there.Read(ctx, store.Roots, root[:], store.Local)
	require.NoError(t, err)
	require.Equal(t, version, seen.Version)
	eventually(t, put(here.EachQuorum(), "moved on"))
	_, found, err = there.Get(ctx, p, []byte("moved on"))
	require.NoError(t, err)
	require.True(t, found)

	requireServesThroughChanges(t, c.Nodes[2].Address, o, here, &log)
}
