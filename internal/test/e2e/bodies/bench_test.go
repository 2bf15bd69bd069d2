package bodies

import (
	"bytes"
	"crypto/md5"
	"io"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/s3test"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/objects/s3blobs"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// BenchmarkBodies measures a body of 64 MiB, written and read as an object, beside the store of blobs
// alone, in turns: the least of several times each, as throughput relative to that alone. Puts are as by
// default, without the body's MD5, and with it. The stores are files, which the kernel has in memory, and a
// bucket of another S3 server.
func BenchmarkBodies(b *testing.B) {
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	require.NoError(b, err)
	defer s.Close()
	c, err := listing.New(s, listing.Options{})
	require.NoError(b, err)
	require.NoError(b, c.CreateBucket(b.Context(), "b"))
	b.Run("files", func(b *testing.B) {
		blobs, err := fileblobs.Open(b.TempDir())
		require.NoError(b, err)
		defer blobs.Close()
		benchmarkBodies(b, c, blobs)
	})
	b.Run("S3", func(b *testing.B) {
		server := s3test.Start(b)
		require.NoError(b, server.Client.MakeBucket(b.Context(), "blobs", minio.MakeBucketOptions{}))
		b.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
		b.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
		blobs, err := s3blobs.Open(s3blobs.Place{Bucket: "blobs", Endpoint: server.URL, Region: s3test.Region})
		require.NoError(b, err)
		defer blobs.Close()
		benchmarkBodies(b, c, blobs)
	})
}

func benchmarkBodies(b *testing.B, c *listing.Client, blobs objects.Blobs) {
	const rounds = 16
	ctx, body, key := b.Context(), make([]byte, 64<<20), []byte("key")
	for i := range body {
		body[i] = byte(i * i >> 8)
	}
	size := int64(len(body))
	put := func(o objects.Options) func() {
		of, err := objects.New(c, blobs, o)
		require.NoError(b, err)
		return func() {
			_, err := of.Bucket("b", objects.Enabled).Put(ctx, key, bytes.NewReader(body), objects.Meta{Size: size})
			require.NoError(b, err)
		}
	}
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(b, err)
	drop := func(r io.ReadCloser) {
		n, err := io.Copy(io.Discard, struct{ io.Reader }{r})
		require.True(b, err == nil && n == size)
		require.NoError(b, r.Close())
	}
	kinds := []func(){
		func() { require.NoError(b, blobs.Create(ctx, "alone", bytes.NewReader(body), size)) },
		put(objects.Options{}),
		func() {
			r, _, err := blobs.Open(ctx, "alone", 0, size)
			require.NoError(b, err)
			drop(r)
		},
		func() {
			o, err := o.Bucket("b", objects.Enabled).Get(ctx, key, objects.ID{}, objects.All)
			require.NoError(b, err)
			drop(o.Body)
		},
		func() { _ = md5.Sum(body) },
		put(objects.Options{MD5Bytes: size}),
	}
	least := make([]time.Duration, len(kinds))
	for b.Loop() {
		for range rounds {
			for i, do := range kinds {
				begun := time.Now()
				do()
				if d := time.Since(begun); least[i] == 0 || d < least[i] {
					least[i] = d
				}
			}
			// Both find the disk alike.
			require.NoError(b, blobs.List(ctx, "", "", func(name string, _ int64) error { return blobs.Delete(ctx, name) }))
		}
	}
	b.ReportMetric(float64(least[0])/float64(least[1]), "put-x")
	b.ReportMetric(float64(least[2])/float64(least[3]), "get-x")
	b.ReportMetric(float64(least[0])/float64(least[4]), "md5-x") // no put with an MD5 is faster than that
	b.ReportMetric(float64(least[0])/float64(least[5]), "put-with-md5-x")
	b.ReportMetric(float64(len(body))/least[1].Seconds()/1e6, "MB/s-put")
	b.ReportMetric(float64(len(body))/least[0].Seconds()/1e6, "MB/s-blob-written")
	b.ReportMetric(float64(len(body))/least[2].Seconds()/1e6, "MB/s-blob-read")
}
