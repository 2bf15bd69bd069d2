package cassandrastore_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
	"github.com/evenkeel/evenkeel/store/storetest"
)

var shared cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(harness.Run(m, &shared)) }

func newPartition() store.Partition {
	return store.Partition{Bucket: store.BucketID(uuid.New()), ID: store.PartitionID(uuid.New())}
}

// TestOneNode is what can share a node. What waits for the node's answers most of
// the time runs at the same time, each in a keyspace of its own.
func TestOneNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, cassandrastore.Options){
		"conformance": conformance,
		"conformance behind faults that nobody may notice": conformanceBehindFaults,
		"slices read through dead data":                    sliceReadsThroughDeadData,
		"partitions behind dead data are listed":           partitionsBehindDeadDataAreListed,
		"tables are read through dead data":                tablesAreReadThroughDeadData,
		"torn registers are unavailable":                   tornRegistersAreUnavailable,
		"open refuses a wrong cluster":                     openRefusesAWrongCluster,
		"a node behind another address":                    aNodeBehindAnotherAddress,
		"sizes are kept":                                   sizesAreKept,
		"metrics of a node":                                metricsOfANode,
		"open warns of a periodic commit log":              openWarnsOfAPeriodicCommitLog,
		"schema check explains each difference":            schemaCheckExplainsEachDifference, // ruins the keyspace
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, harness.Shared(t, &shared))
		})
	}
}

// aNodeBehindAnotherAddress is reached at the address of the map. At its own, which is for documents, nothing is.
func aNodeBehindAnotherAddress(t *testing.T, o cassandrastore.Options) {
	const name = "192.0.2.1:9042"
	o.Addresses = map[string]string{name: net.JoinHostPort(o.Hosts[0], strconv.Itoa(cassandratest.Port))}
	o.Hosts = []string{name}
	s := harness.Open(t, o)
	require.NoError(t, s.Put(t.Context(), newPartition(), benchRows(1, 1)...))
}

// metricsOfANode: requests are counted under their operations, and the node and its connections, those of the driver's
// own messages included, are there.
func metricsOfANode(t *testing.T, o cassandrastore.Options) {
	s := harness.Open(t, o)
	p, rows := newPartition(), benchRows(3, 1)
	require.NoError(t, s.Put(t.Context(), p, rows[0]))
	require.NoError(t, s.Put(t.Context(), p, rows...))
	require.NoError(t, s.EachQuorum().Put(t.Context(), p, rows...))
	_, found, err := s.Get(t.Context(), p, rows[0].Key)
	require.NoError(t, err)
	require.True(t, found)
	_, err = s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 10})
	require.NoError(t, err)
	root := store.Record{Version: store.Version{Epoch: 1, Token: storekit.NewToken()}}
	require.NoError(t, s.Swap(t.Context(), store.Roots, make([]byte, 16), store.Version{}, root))

	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(s.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "evenkeel_store_")
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, n := range map[string]float64{
		"request_seconds LOCAL_QUORUM put": 1, "request_seconds LOCAL_QUORUM batch": 1,
		"request_seconds EACH_QUORUM batch": 1, "request_seconds LOCAL_QUORUM get": 1,
		"request_seconds LOCAL_QUORUM slice": 1, "request_seconds SERIAL swap": 1,
		"nodes dc1 up": 1, "nodes dc1 silent": 0, "nodes dc1 down": 0,
	} {
		require.Equal(t, n, values[name], "%s of %v", name, values)
	}
	require.Greater(t, values["connections dc1"], 1.0, "the first for requests and that of the driver, at least")
}

func conformance(t *testing.T, o cassandrastore.Options) {
	storetest.RunWith(t, func(t *testing.T) store.Store { return harness.Open(t, o) }, storetest.Options{
		Slow: true, ShortPages: true,
		Reopen: func(t *testing.T, s store.Store) store.Store {
			require.NoError(t, s.Close())
			return harness.Open(t, o)
		},
	})
}

// conformanceBehindFaults: writes that are done twice, the second time later, and
// short pages change nothing; so what Cassandra does with repetitions is right. The
// optional powers are hidden: they would take as long again.
func conformanceBehindFaults(t *testing.T, o cassandrastore.Options) {
	storetest.RunWith(t, func(t *testing.T) store.Store {
		s, _ := faultstore.New(
			harness.Open(t, o), faultstore.Options{Seed: seed.Number(t), Rates: faultstore.Rates{Repeat: 0.3, Short: 0.3}},
		)
		return struct{ store.Store }{s}
	}, storetest.Options{Slow: true, ShortPages: true})
}
