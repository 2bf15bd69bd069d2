package s3tour

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/s3test"
)

// TestVersionsAndResumedUploads: what was replaced or deleted comes back in three ways, and an upload that somebody
// began is found and completed. Another server answers the same. With EVENKEEL_S3_STORE=http://HOST:PORT,
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY that one is asked alone.
func TestVersionsAndResumedUploads(t *testing.T) {
	t.Parallel()
	places := map[string]Place{}
	if url := os.Getenv("EVENKEEL_S3_STORE"); url != "" {
		places[url] = Place{URL: url, KeyID: os.Getenv("AWS_ACCESS_KEY_ID"), Secret: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	} else {
		places["listd"], places["versitygw"] = serveAll(t), anotherServer(t)
	}
	for name, at := range places {
		t.Run(name, func(t *testing.T) {
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
		})
	}
}

func anotherServer(t *testing.T) Place {
	s := s3test.Start(t)
	return Place{URL: s.URL, KeyID: s3test.AccessKey, Secret: s3test.SecretKey, Region: s3test.Region}
}

// TestClientsOfAnotherServer: what the clients do with a tree of files is what they do with another server.
func TestClientsOfAnotherServer(t *testing.T) {
	t.Parallel()
	at := anotherServer(t)
	at.Patient = true // its failures are not ours
	for name, client := range Clients(t, at) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Tour{Client: client, Bucket: name, Files: harness.Setting(t, FilesVariable, 10), LargeBytes: 6e6, Short: true}.Do(t)
		})
	}
}

// serveAll serves everything to the key of the tour.
func serveAll(t *testing.T) Place {
	p := harness.Build(t)
	keys := filepath.Join(p.Dir, "keys.yaml")
	require.NoError(t, os.WriteFile(keys, []byte("keys:\n- {id: "+keyID+", secret: "+secret+
		", access: read-write, everything: true}\ncomplete: true\n"), 0o600))
	return At(p.Serve("--data", filepath.Join(p.Dir, "data"), "--keys-file", keys).S3)
}
