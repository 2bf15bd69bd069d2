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
// One of the files goes in parts. Clients that compare ETags with MD5s also sync with a
// server whose ETags are none. EVENKEEL_TREE_FILES is how many files a tree has,
// EVENKEEL_LARGE_MB the size of the large one.
func TestClientsWhileRangesMove(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	serve := func(data string, flags ...string) *harness.Server {
		return p.Serve(append(flags, "--data", filepath.Join(p.Dir, data), "--rebalance-interval", "0", "--move-rate", "1000",
			"--keys-file", KeysFile(t, p.Dir))...)
	}
	server, fast := serve("data"), serve("fast", "--md5-mib", "0")
	files := map[string]int{"aws-sdk-go": 300, "minio-go": 300, "awscli": 30, "boto3": 30, "rclone": 100, "s3cmd": 60}
	t.Run("clients", func(t *testing.T) {
		tour := func(at *harness.Server, label, name string, client Client, files int) {
			t.Run(label, func(t *testing.T) {
				t.Parallel()
				Tour{
					Client: client, Bucket: name, Files: harness.Setting(t, FilesVariable, files),
					LargeBytes: int64(harness.Setting(t, "EVENKEEL_LARGE_MB", 20)) * 1e6,
					Short:      name == "awscli" || name == "boto3", // each command takes a second to begin
					Moves: func(bucket string, keys []string) *Mover {
						return Move(t, at.Admin, bucket, keys, false)
					},
				}.Do(t)
			})
		}
		for name, client := range Clients(t, At(server.S3)) {
			tour(server, name, name, client, files[name])
		}
		for _, name := range []string{"rclone", "s3cmd"} {
			tour(fast, name+" without MD5s", name, Clients(t, At(fast.S3))[name], 20)
		}
	})
	require.Empty(t, server.FailedRequests())
	require.Empty(t, fast.FailedRequests())
}
