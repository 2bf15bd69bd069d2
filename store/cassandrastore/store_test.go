package cassandrastore_test

import (
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

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
		"open warns of a periodic commit log":              openWarnsOfAPeriodicCommitLog,
		"schema check explains each difference":            schemaCheckExplainsEachDifference, // ruins the keyspace
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, harness.Shared(t, &shared))
		})
	}
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
