package oncassandra

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/s3test"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// stored is what is known of an object that was put: the value of its entry, but for the time.
type stored struct {
	Size         int64             `json:"size"`
	ETag         string            `json:"etag"`
	StorageClass string            `json:"storage_class"`
	ContentType  string            `json:"content_type"`
	Metadata     map[string]string `json:"metadata"`
}

// TestAdoptS3: names, sizes, ETags and user metadata of all objects of a real S3 server come into a bucket, though the
// copy is killed on the way, and the server goes away; what changes afterwards, a catch-up brings.
func TestAdoptS3(t *testing.T) {
	t.Parallel()
	p, random, ctx := build(t), seed.New(t), t.Context()
	objects := harness.Setting(t, "EVENKEEL_ADOPT_OBJECTS", 2000)
	server := s3test.Start(t)
	const from = "old-photos"
	require.NoError(t, server.Client.MakeBucket(ctx, from, minio.MakeBucketOptions{}))
	want := map[string]stored{}
	var g errgroup.Group
	g.SetLimit(32)
	put := func(key string) {
		body := strings.Repeat("x", 1+random.IntN(50))
		sum := md5.Sum([]byte(body))
		o := stored{
			int64(len(body)), hex.EncodeToString(sum[:]), "STANDARD", "image/x-" + fmt.Sprint(random.IntN(3)),
			map[string]string{"camera": fmt.Sprint("no. ", random.Uint64())},
		}
		want[key] = o
		g.Go(func() error {
			_, err := server.Client.PutObject(ctx, from, key, strings.NewReader(body), o.Size, minio.PutObjectOptions{
				ContentType: o.ContentType, UserMetadata: o.Metadata, DisableMultipart: true,
			})
			return err
		})
	}
	began := time.Now()
	for i := range objects {
		put(fmt.Sprintf("%s/day %02d/ä+&%%/%06d.jpg", []string{"b", "a", "a-", "ü"}[i%4], i/4%10, i))
	}
	require.NoError(t, g.Wait())
	t.Logf("%d objects put in %v", objects, time.Since(began).Round(time.Second))

	site := p.LaidOut(cassandra.Address(t))
	p.ServeSite(site, "--lease", "1s")
	store := harness.Open(t, harness.Patient(site.Options()))
	client := harness.Client(t, store, harness.Maps(t, store, time.Second), listing.Options{})
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(s3test.SecretKey+"\n"), 0o600))
	command := func(more ...string) []string {
		return site.Flags(append([]string{
			"adopt", "s3", "photos", "--local-dc", "dc1", "--lease", "1s", "--endpoint", server.URL, "--from", from,
			"--access-key", s3test.AccessKey, "--secret-key-file", secret, "--region", s3test.Region, "--metadata",
			"--max-rows", fmt.Sprint(objects / 4),
		}, more...)...)
	}
	same := func() {
		t.Helper()
		got := map[string]stored{}
		for item, err := range client.Bucket("photos").All(ctx, listing.Query{}) {
			require.NoError(t, err)
			var o struct {
				stored
				Modified time.Time
			}
			require.NoError(t, json.Unmarshal(item.Value, &o))
			require.WithinRange(t, o.Modified, began.Add(-time.Second), time.Now())
			got[string(item.Key)] = o.stored
		}
		require.Len(t, got, len(want))
		for key, o := range want {
			require.Equal(t, o, got[key], key)
		}
	}
	out := p.Run("rebalancer", command("--dry-run")...)
	require.Contains(t, out, "the bucket would be made with 7 ranges")

	checkpoint := filepath.Join(t.TempDir(), "checkpoint.json")
	cmd := p.Command(ctx, "rebalancer", command("--checkpoint", checkpoint, "--rate", fmt.Sprint(objects/4))...)
	exited, err := child.Start(cmd)
	require.NoError(t, err)
	harness.Eventually(t, "it has copied something", func() bool {
		text, _ := os.ReadFile(checkpoint)
		return strings.Contains(string(text), `"last"`)
	})
	require.NoError(t, cmd.Process.Kill())
	<-exited
	summary := func(out string) (s adoptSummary) {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &s), out)
		return s
	}
	s := summary(p.Run("rebalancer", command("--checkpoint", checkpoint, "--json")...))
	require.True(t, s.Complete)
	require.Less(t, s.Summary.Read, int64(objects), "it went on where it was killed")
	rate := float64(s.Summary.Read) / s.Summary.Seconds
	t.Logf("%d objects read in %.1f s: %.0f/s", s.Summary.Read, s.Summary.Seconds, rate)
	require.Equal(t, 7, harness.Partitions(t, client, "photos"))
	same()

	// What changes afterwards.
	require.NoError(t, server.Client.RemoveObject(ctx, from, "a/day 00/ä+&%/000001.jpg", minio.RemoveObjectOptions{}))
	delete(want, "a/day 00/ä+&%/000001.jpg")
	put("a/day 01/ä+&%/000005.jpg")
	put("z")
	require.NoError(t, g.Wait())
	code, out, _ := p.Try("rebalancer", command("--verify")...)
	require.Equal(t, 1, code)
	require.Contains(t, out, "000001.jpg: it is not in the source")
	require.Contains(t, out, "000005.jpg: its value in the bucket is another one")
	require.Contains(t, out, "z: it is not in the bucket")
	s = summary(p.Run("rebalancer", command("--catch-up", "--json")...))
	require.EqualValues(t, []int64{3, 2, 1}, []int64{s.Summary.Different, s.Summary.Put, s.Summary.Deleted})
	same()
	s = summary(p.Run("rebalancer", command("--verify", "--json")...))
	require.Zero(t, s.Summary.Different)
	t.Logf("verified %d objects: %.0f/s", s.Summary.Read, float64(s.Summary.Read)/s.Summary.Seconds)
}
