// Package oncassandra takes the S3 clients that others use through their tour while a
// Cassandra node holds the store.
package oncassandra

import (
	"os"
	"sync"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/s3tour"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) { os.Exit(harness.Run(m, &cassandra)) }

// TestClientsWhileRangesMove: the S3 clients that others use sync a tree of real
// files up and down through one of two servers, list it and delete it, while the
// ranges of their buckets split, merge and are refreshed without a rest.
// EVENKEEL_TREE_FILES is how many files a tree has.
func TestClientsWhileRangesMove(t *testing.T) {
	t.Parallel()
	node := cassandra.Address(t)
	p := harness.Build(t)
	s := p.LaidOut(node)
	flags := []string{"--lease", "300ms", "--keys-file", s3tour.KeysFile(t, p.Dir)}
	a, b := p.ServeSite(s, flags...), p.ServeSite(s, flags...)
	files := map[string]int{"aws-sdk-go": 150, "minio-go": 150, "awscli": 10, "boto3": 20, "rclone": 20, "s3cmd": 20}
	// Half of them ask the server that leads the moves, half the other one.
	server := map[string]*harness.Server{"aws-sdk-go": a, "minio-go": b, "awscli": a, "boto3": b, "rclone": a,
		"s3cmd": b}
	var all sync.WaitGroup // at once: they mostly wait for moves, which wait for leases
	for name, n := range files {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				at := s3tour.At(server[name].S3)
				at.Patient = true // the node is slow at times
				s3tour.Tour{
					Client: s3tour.Clients(t, at)[name], Bucket: name,
					Files: harness.Setting(t, s3tour.FilesVariable, n), Short: n < 100,
					Moves: func(bucket string, keys []string) *s3tour.Mover {
						return s3tour.Move(t, server[name].Admin, bucket, keys, true)
					},
				}.Do(t)
			})
		})
	}
	all.Wait()
}
