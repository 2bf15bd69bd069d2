package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/s3tour"
)

// TestClientsWhileRangesMove: the S3 clients that others use sync a tree of real
// files up and down, list it and delete it, while the ranges of their buckets split,
// merge and are refreshed without a rest. No answer may be a failure, and none may be
// tried again. Moves are held back, so that one is under way nearly all the time.
// EVENKEEL_TREE_FILES is how many files a tree has.
func TestClientsWhileRangesMove(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	m := startMoving(p, "--data", filepath.Join(p.Dir, "data"), "--rebalance-interval", "0", "--move-rate", "1000",
		"--keys-file", s3tour.KeysFile(t, p.Dir))
	files := map[string]int{"aws-sdk-go": 300, "minio-go": 300, "awscli": 30, "boto3": 30, "rclone": 100, "s3cmd": 60}
	t.Run("clients", func(t *testing.T) {
		for name, client := range s3tour.Clients(t, s3tour.At(m.S3)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s3tour.Tour{
					Client: client, Bucket: name, Files: harness.Setting(t, s3tour.FilesVariable, files[name]),
					Short: name == "awscli" || name == "boto3", // each command takes a second to begin
					Moves: func(bucket string, keys []string) *s3tour.Mover {
						return s3tour.Move(t, m.Admin, bucket, keys, false)
					},
				}.Do(t)
			})
		}
	})
	require.Empty(t, m.failedRequests())
}
