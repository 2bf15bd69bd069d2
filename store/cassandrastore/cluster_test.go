package cassandrastore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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
			next := store.Record{Version: store.Version{Epoch: root.Epoch + 1, Token: store.NewToken()}, Blob: []byte("map")}
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

// Two data centres, the second of which is stopped and goes on again.
func TestTwoDataCentres(t *testing.T) {
	t.Parallel()
	c := cassandratest.New(t, cassandratest.Options{DataCentres: []int{2, 1}})
	o := harness.Keyspace(t, c.Nodes[0].Address, cassandrastore.Replication{"dc1": 2, "dc2": 1})
	here := harness.Open(t, o)
	o.Hosts, o.DataCentre = []string{c.Nodes[2].Address}, "dc2"
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
			Version: store.Version{Epoch: version.Epoch + 1, Token: store.NewToken()}, Blob: []byte("root"),
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
}
