package evenkeel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/purgetest"
)

// TestPurgesUnderWritersAndListers: with EVENKEEL_PURGE_KEYS=300000000 it begins with 100,000,000 rows in 1,000 ranges.
func TestPurgesUnderWritersAndListers(t *testing.T) {
	keys := purgetest.Keys(t)
	db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{MaxRows: purgetest.MaxRows(keys)})
	require.NoError(t, err)
	defer db.Close()
	require.Zero(t, purgetest.Run(t, db, keys))
}
