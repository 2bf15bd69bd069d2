package s3tour

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

// TestClientsWhileRangesMove: the S3 clients that others use sync a tree of real
// files up and down, list it and delete it, while the ranges of their buckets split,
// merge and are refreshed without a rest. No answer may be a failure, and none may be
// tried again. Moves are held back, so that one is under way nearly all the time.
// One of the files goes in parts. EVENKEEL_TREE_FILES is how many files a tree has, EVENKEEL_LARGE_MB the size of the
// large one.
func TestClientsWhileRangesMove(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	server := p.Serve("--data", filepath.Join(p.Dir, "data"), "--rebalance-interval", "0", "--move-rate", "1000",
		"--keys-file", KeysFile(t, p.Dir))
	files := map[string]int{"aws-sdk-go": 300, "minio-go": 300, "awscli": 30, "boto3": 30, "rclone": 100, "s3cmd": 60}
	t.Run("clients", func(t *testing.T) {
		for name, client := range Clients(t, At(server.S3)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				Tour{
					Client: client, Bucket: name, Files: harness.Setting(t, FilesVariable, files[name]),
					LargeBytes: int64(harness.Setting(t, "EVENKEEL_LARGE_MB", 20)) * 1e6,
					Short:      name == "awscli" || name == "boto3", // each command takes a second to begin
					Moves: func(bucket string, keys []string) *Mover {
						return Move(t, server.Admin, bucket, keys, false)
					},
				}.Do(t)
			})
		}
	})
	require.Empty(t, server.FailedRequests())
}
