package oncassandra

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/purgetest"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
)

// TestPurgesUnderWritersAndListers: with EVENKEEL_PURGE_KEYS=30000000 it begins with 10,000,000 rows in 1,000 ranges.
func TestPurgesUnderWritersAndListers(t *testing.T) {
	t.Parallel()
	keys := purgetest.Keys(t)
	o := harness.Shared(t, &cassandra)
	db, err := evenkeel.OpenCassandra(t.Context(), evenkeel.Cassandra{
		Hosts: o.Hosts, DataCentre: o.DataCentre, Keyspace: o.Keyspace, Store: o,
		Counter: "redis://" + redistest.Start(t).Addr + "/0", Lease: time.Second,
		Options: evenkeel.Options{MaxRows: purgetest.MaxRows(keys)},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	purgetest.Run(t, db, keys)
}
