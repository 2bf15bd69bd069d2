package evenkeel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/listing"
)

// TestWritesThatAreStopped say that they were stopped or that the store is closed, not that time ran out.
func TestWritesThatAreStopped(t *testing.T) {
	db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{})
	require.NoError(t, err)
	require.NoError(t, db.CreateBucket(t.Context(), "photos"))
	photos := db.Bucket("photos")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	err = photos.Put(stopped, []byte("k"), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "timeout")
	require.NoError(t, db.Close())
	for what, err := range map[string]error{
		"put":    photos.Put(t.Context(), []byte("k"), nil),
		"batch":  photos.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}}),
		"delete": photos.Delete(t.Context(), []byte("k")),
		"create": db.CreateBucket(t.Context(), "more"),
	} {
		require.ErrorContains(t, err, "closed", what)
		require.NotErrorIs(t, err, listing.ErrOutcomeUnknown, what)
	}
}
