package s3tour

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

// TestVersionsAndResumedUploads: what was replaced or deleted comes back in three ways, and an upload that somebody
// began is found and completed. With EVENKEEL_S3_STORE=http://HOST:PORT, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
// it asks another server, which has to answer the same.
func TestVersionsAndResumedUploads(t *testing.T) {
	t.Parallel()
	at := Place{URL: os.Getenv("EVENKEEL_S3_STORE"), KeyID: os.Getenv("AWS_ACCESS_KEY_ID"),
		Secret: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	if at.URL == "" {
		at = serveAll(t)
	}
	t.Run("aws-sdk-go", func(t *testing.T) {
		said, err := History(t.Context(), at, "history-go")
		require.NoError(t, err, said)
		require.Equal(t, wantHistory, said)
	})
	t.Run("boto3", func(t *testing.T) {
		c, err := Boto(at)
		require.NoError(t, err)
		said, err := c.(commands).run(t.Context(), "history BUCKET", "history-boto", "", "")
		require.NoError(t, err)
		require.Equal(t, wantHistory, said)
	})
}

// serveAll serves everything to the key of the tour.
func serveAll(t *testing.T) Place {
	p := harness.Build(t)
	keys := filepath.Join(p.Dir, "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte("keys:\n- {id: "+keyID+", secret: "+secret+
		", access: read-write, everything: true}\ncomplete: true\n"), 0o600))
	return At(p.Serve("--data", filepath.Join(p.Dir, "data"), "--keys-file", keys).S3)
}
