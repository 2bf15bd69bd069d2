package cassandrastore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// sizesAreKept: of a partition the newest size is there until it is forgotten. Without the table nothing else fails.
func sizesAreKept(t *testing.T, o cassandrastore.Options) {
	s := harness.Open(t, o)
	p, other := newPartition(), newPartition()
	other.Bucket = p.Bucket
	now := time.Now()
	kept := func(p store.Partition) string {
		t.Helper()
		size, err := s.KeptSize(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, p, size.Partition)
		return string(size.Encoded)
	}
	require.Empty(t, kept(p))
	for text, at := range map[string]time.Time{"older": now.Add(-time.Hour), "newest": now, "oldest": time.Unix(1, 0)} {
		require.NoError(t, s.KeepSize(t.Context(), store.PartitionSize{Partition: p, Encoded: []byte(text), At: at}))
	}
	require.NoError(t, s.KeepSize(t.Context(), store.PartitionSize{Partition: other, Encoded: []byte("other"), At: now}))
	require.Equal(t, "newest", kept(p))
	require.NoError(t, s.ForgetSize(t.Context(), p))
	require.Empty(t, kept(p))
	require.Equal(t, "other", kept(other))

	require.NoError(t, rawSession(t, o).Query("DROP TABLE sizes").Exec())
	require.Error(t, s.KeepSize(t.Context(), store.PartitionSize{Partition: p, Encoded: []byte("late"), At: now}))
	_, err := s.KeptSize(t.Context(), p)
	require.ErrorContains(t, err, "sizes")
	again := harness.Open(t, o)
	require.NoError(t, again.Put(t.Context(), p, benchRows(1, 1)...))
}
