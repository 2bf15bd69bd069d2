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
	"github.com/evenkeel/evenkeel/internal/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(cassandra.Run(m)) }

// TestOverCassandra runs what matters of leases over a real node, with leases of
// 300 ms. Under load the mover is another process, with a session of its own.
func TestOverCassandra(t *testing.T) {
	listtest.Run(t, func(t *testing.T, clock *listtest.Clock) *listtest.Env {
		load := strings.HasSuffix(t.Name(), "/MovesUnderLoad")
		if !load && !strings.HasSuffix(t.Name(), "/Model") {
			t.Skip("slow over a real node, and nothing new there")
		}
		o := cassandrastore.Options{
			Hosts: []string{cassandra.Address(t)}, DataCentre: "dc1", AllowSingleReplica: true,
			Keyspace: "t" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		}
		admin, err := cassandrastore.OpenAdmin(t.Context(), o)
		require.NoError(t, err)
		require.NoError(t, admin.Apply(t.Context(), cassandrastore.Replication{"dc1": 1}))
		t.Cleanup(func() {
			defer admin.Close()
			_ = admin.Drop(context.WithoutCancel(t.Context()))
		})
		open := func() (*cassandrastore.Store, *mapclient.Client) {
			s, err := cassandrastore.Open(t.Context(), o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: 2, Lease: 300 * time.Millisecond})
			require.NoError(t, err)
			t.Cleanup(m.Close)
			return s, m
		}
		s, m := open()
		require.NoError(t, mapclient.InitClocks(t.Context(), s, 2))
		c, err := listing.New(s, m, listing.Options{Timestamps: clock})
		require.NoError(t, err)
		e := &listtest.Env{Store: s, Client: c, Maps: m, Clock: clock}
		if load {
			e.Store, e.Maps = open()
		}
		return e
	}, listtest.Options{Steps: 120, Keys: 60, Rounds: 2})
}
