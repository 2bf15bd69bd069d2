package versions

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
)

const (
	leaseOfServers = time.Second
	// inlineBytes is the longest body that listd keeps in a row.
	inlineBytes = 4096
	// leastPart is the shortest part of an upload but for the last.
	leastPart = 5 << 20
	// settled is after a server has ended, or answered: what it has sent to a node has arrived by then.
	settled = 3 * time.Second
)

// s3Server is a listd and a client of it that sends each request once.
type s3Server struct {
	*harness.Server
	*minio.Core
}

// s3Servers are servers over one keyspace and one directory of bodies. Some are killed and begun anew, others stopped
// for longer than a lease.
type s3Servers struct {
	t     *testing.T
	begin func() *harness.Server
	each  []atomic.Pointer[s3Server]
}

func (s *s3Servers) start(i int) {
	server := s.begin()
	c, err := minio.NewCore(strings.TrimPrefix(server.S3, "http://"), &minio.Options{
		Creds: credentials.NewStatic("", "", "", credentials.SignatureAnonymous), Region: "us-east-1", MaxRetries: 1,
		BucketLookup: minio.BucketLookupPath, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32},
	})
	require.NoError(s.t, err)
	s.each[i].Store(&s3Server{server, c})
}

// disturb kills a server, or stops it for longer than its lease.
func (s *s3Servers) disturb(i int, kill bool) {
	server := s.each[i].Load()
	if kill {
		server.Kill()
		s.start(i)
		return
	}
	harness.Halt(s.t, server.Cmd.Process)
	time.Sleep(3 * leaseOfServers)
	require.NoError(s.t, server.Cmd.Process.Signal(syscall.SIGCONT))
}

// stored is a version that a customer was told of, or found where the answer was lost.
type stored struct {
	written
	version string // its id; empty in a bucket without versions
	tag     string
}

// seen is what a listing shows of a version.
type seen struct {
	version string
	marker  bool
	size    int64
}

func (s *stored) size() (n int64) {
	for _, p := range s.parts {
		n += p.size
	}
	return n
}

// blobs is how many it has.
func (s *stored) blobs() int {
	switch {
	case len(s.parts) > 1 && !s.copied:
		return len(s.parts)
	case s.size() > inlineBytes:
		return 1
	}
	return 0
}

// A customer does operations through any of the servers on keys that nobody else writes, and knows what each has to
// be. Where an answer is lost, it looks what has come of the operation: all of it, or nothing.
type customer struct {
	*author
	servers   *s3Servers
	bucket    string
	versioned bool
	want      map[string][]*stored // newest first; without versions the newest only
	lost      int                  // answers
	came      int                  // operations that were done although
}

var errLost = errors.New("an answer was lost")

// unknown reports whether an error leaves open what has come of a request.
func unknown(err error) bool {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && answer.StatusCode != 0 {
		return answer.StatusCode == http.StatusServiceUnavailable
	}
	return err != nil
}

// one does something by one of the servers.
func (c *customer) one(do func(*minio.Core) error) error {
	return do(c.servers.each[c.r.IntN(len(c.servers.each))].Load().Core)
}

// until does what may be done again, until there is an answer.
func (c *customer) until(do func(*minio.Core) error) error {
	for {
		err := c.one(do)
		if !unknown(err) {
			return err
		}
		require.NoError(c.t, c.t.Context().Err())
		time.Sleep(50 * time.Millisecond)
	}
}

// change does an operation once that makes the versions of a key these, of which one may get its id by it.
func (c *customer) change(key string, after []*stored, do func(*minio.Core) error) {
	err := c.one(do)
	if unknown(err) {
		c.lost++
		time.Sleep(settled)
		got := c.look(key)
		if c.fits(key, got, c.want[key]) {
			return
		}
		require.True(c.t, c.fits(key, got, after), "%v: %s has %v, was %v, or would be %v", err, key, got,
			lines(c.want[key]), lines(after))
		c.came++
	} else {
		require.NoError(c.t, err, key)
	}
	// The version of an upload is as old as the upload.
	slices.SortFunc(after, func(a, b *stored) int { return strings.Compare(a.version, b.version) })
	c.want[key] = after
}

func lines(of []*stored) (lines []string) {
	for _, s := range of {
		lines = append(lines, fmt.Sprintf("{%s %t %d}", s.version, s.marker, s.size()))
	}
	return lines
}

// fits reports whether a key has these versions. One of them may have no id yet, which it gets then.
func (c *customer) fits(key string, got []seen, want []*stored) bool {
	if !c.versioned { // a listing shows no delete marker, and the size may be the same
		if len(want) > 0 && want[0].marker {
			want = nil
		}
		return len(got) == len(want) && (len(got) == 0 || want[0].sum(c.t) == c.read(key, ""))
	}
	if len(got) != len(want) {
		return false
	}
	var unnamed *stored
	named := map[string]*stored{}
	for _, s := range want {
		if named[s.version] = s; s.version == "" {
			unnamed = s
		}
	}
	version := ""
	for _, g := range got {
		s := named[g.version]
		if s == nil {
			s, version = unnamed, g.version
		}
		if s == nil || s.marker != g.marker || s.size() != g.size {
			return false
		}
	}
	if unnamed != nil {
		unnamed.version = version
	}
	return true
}

// look lists the versions of a key; without versions the object.
func (c *customer) look(prefix string) (got []seen) {
	require.NoError(c.t, c.until(func(s *minio.Core) error {
		got = nil
		o := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, WithVersions: c.versioned, MaxKeys: 3 + c.r.IntN(100)}
		for item := range s.Client.ListObjects(c.t.Context(), c.bucket, o) {
			if item.Err != nil {
				return item.Err
			}
			g := seen{item.VersionID, item.IsDeleteMarker, item.Size}
			if !c.versioned {
				g.version = ""
			}
			got = append(got, g)
		}
		return nil
	}))
	return got
}

// read returns the sum of a body.
func (c *customer) read(key, version string) (sum [md5.Size]byte) {
	require.NoError(c.t, c.until(func(s *minio.Core) error {
		body, _, _, err := s.GetObject(c.t.Context(), c.bucket, key, minio.GetObjectOptions{VersionID: version})
		if err != nil {
			return err
		}
		defer body.Close()
		h := md5.New()
		_, err = io.Copy(h, body)
		sum = [md5.Size]byte(h.Sum(nil))
		return err
	}), "%s %s", key, version)
	return sum
}

// with returns the versions of a key and a new one.
func (c *customer) with(key string, s *stored) []*stored {
	if !c.versioned {
		return []*stored{s}
	}
	return append([]*stored{s}, c.want[key]...)
}

// step does one operation.
func (c *customer) step(ctx context.Context) {
	folder := fmt.Sprintf("k%d/%s/", c.r.IntN(9), c.name)
	key := fmt.Sprintf("%s%d", folder, c.r.IntN(5))
	vs := c.want[key]
	there := len(vs) > 0 && !vs[0].marker
	switch n := c.r.IntN(100); {
	case n < 36:
		body := c.body()
		made := &stored{written: written{parts: []randomBody{body}}}
		c.change(key, c.with(key, made), func(s *minio.Core) error {
			info, err := s.PutObject(ctx, c.bucket, key, body.reader(), body.size, "", "", minio.PutObjectOptions{})
			made.version = info.VersionID
			return err
		})
	case n < 44:
		made := &stored{written: written{marker: true}}
		c.change(key, c.with(key, made), func(s *minio.Core) error {
			keys := make(chan minio.ObjectInfo, 1)
			keys <- minio.ObjectInfo{Key: key}
			close(keys)
			for r := range s.RemoveObjectsWithResult(ctx, c.bucket, keys, minio.RemoveObjectsOptions{}) {
				if r.Err != nil {
					return r.Err
				}
				made.version = r.DeleteMarkerVersionID
			}
			return nil
		})
	case n < 45:
		c.upload(ctx, key)
	case n < 53 && c.versioned && len(vs) > 0:
		i := c.r.IntN(len(vs))
		c.change(key, slices.Delete(slices.Clone(vs), i, i+1), func(s *minio.Core) error {
			return s.RemoveObject(ctx, c.bucket, key, minio.RemoveObjectOptions{VersionID: vs[i].version})
		})
	case n < 62 && there:
		to := folder + string('0'+(key[len(key)-1]-'0'+1+byte(c.r.IntN(4)))%5) // S3 refuses copies onto themselves
		made := &stored{written: written{parts: vs[0].parts, copied: true}, tag: vs[0].tag}
		c.change(to, c.with(to, made), func(s *minio.Core) error {
			info, err := s.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: c.bucket, Object: to},
				minio.CopySrcOptions{Bucket: c.bucket, Object: key, VersionID: vs[0].version})
			made.version = info.VersionID
			return err
		})
	case n < 70 && there: // to do it again is no other operation
		vs[0].tag = fmt.Sprint(c.r.IntN(100))
		set, err := tags.NewTags(map[string]string{"n": vs[0].tag}, true)
		require.NoError(c.t, err)
		require.NoError(c.t, c.until(func(s *minio.Core) error {
			return s.PutObjectTagging(ctx, c.bucket, key, set, minio.PutObjectTaggingOptions{VersionID: vs[0].version})
		}))
	case n < 74:
		var want []seen
		for i := range 5 {
			want = append(want, c.shows(fmt.Sprintf("%s%d", folder, i))...)
		}
		require.Equal(c.t, want, c.look(folder))
	default:
		c.check(key)
	}
}

// upload uploads an object in two parts.
func (c *customer) upload(ctx context.Context, key string) {
	id := ""
	err := c.one(func(s *minio.Core) (err error) {
		id, err = s.NewMultipartUpload(ctx, c.bucket, key, minio.PutObjectOptions{})
		return err
	})
	if unknown(err) {
		return // there may be one that nobody knows
	}
	require.NoError(c.t, err)
	made := &stored{}
	var named []minio.CompletePart
	for i := range 2 {
		part := c.body()
		if i == 0 {
			part.size = leastPart
		}
		made.parts = append(made.parts, part)
		require.NoError(c.t, c.until(func(s *minio.Core) error { // the last one of a number counts
			got, err := s.PutObjectPart(ctx, c.bucket, key, id, i+1, part.reader(), part.size, minio.PutObjectPartOptions{})
			if err == nil {
				named = append(named, minio.CompletePart{PartNumber: i + 1, ETag: got.ETag})
			}
			return err
		}))
	}
	if c.r.IntN(4) == 0 {
		c.abort(ctx, key, id)
		return
	}
	c.change(key, c.with(key, made), func(*minio.Core) error {
		err := c.until(func(s *minio.Core) error { // with the same parts it is the same operation
			info, err := s.CompleteMultipartUpload(ctx, c.bucket, key, id, named, minio.PutObjectOptions{})
			made.version = info.VersionID
			return err
		})
		if minio.ToErrorResponse(err).Code == "NoSuchUpload" {
			return errLost // if the one before ended it
		}
		return err
	})
}

func (c *customer) abort(ctx context.Context, key, id string) {
	err := c.until(func(s *minio.Core) error { return s.AbortMultipartUpload(ctx, c.bucket, key, id) })
	if minio.ToErrorResponse(err).Code != "NoSuchUpload" { // the answer to the one before was lost
		require.NoError(c.t, err)
	}
}

// shows is what listings show of a key.
func (c *customer) shows(key string) (all []seen) {
	for _, s := range c.want[key] {
		if c.versioned || !s.marker {
			all = append(all, seen{s.version, s.marker, s.size()})
		}
	}
	return all
}

// check reads the newest version of a key.
func (c *customer) check(key string) {
	vs := c.want[key]
	if len(vs) > 0 && !vs[0].marker {
		require.Equal(c.t, vs[0].sum(c.t), c.read(key, ""), "%s %s", key, vs[0].version)
		return
	}
	err := c.until(func(s *minio.Core) error {
		_, err := s.StatObject(c.t.Context(), c.bucket, key, minio.StatObjectOptions{})
		return err
	})
	require.Equal(c.t, http.StatusNotFound, minio.ToErrorResponse(err).StatusCode, "%s: %v", key, err)
}

// checkAll reads all versions of all keys, and returns how many blobs they have.
func (c *customer) checkAll() (blobs int) {
	for key, vs := range c.want {
		require.Equal(c.t, c.shows(key), c.look(key))
		c.check(key)
		for _, s := range vs {
			if s.marker {
				continue
			}
			require.Equal(c.t, s.sum(c.t), c.read(key, s.version))
			var set *tags.Tags
			require.NoError(c.t, c.until(func(server *minio.Core) (err error) {
				set, err = server.GetObjectTagging(c.t.Context(), c.bucket, key,
					minio.GetObjectTaggingOptions{VersionID: s.version})
				return err
			}))
			require.Equal(c.t, s.tag, set.ToMap()["n"], "the tag of %s %s", key, s.version)
			blobs += s.blobs()
		}
	}
	return blobs
}

// TestServersKilledAndStopped has two servers over a keyspace and a directory of bodies, and S3 clients of both. One
// server after the other is killed, or stopped for longer than its lease, while ranges are split and merged, and what
// was replaced is cleaned. Each answer is true; an operation whose answer is lost is done as a whole, or not at all.
// Bodies that are left beside are orphans. In the long form (EVENKEEL_KILLED_OPS=200000, 30 GB of the temporary folder)
// an audit finds them, and they go.
func TestServersKilledAndStopped(t *testing.T) {
	ctx := t.Context()
	steps, most, atOnce := harness.Setting(t, "EVENKEEL_KILLED_OPS", 300), int64(1<<20), 2
	long := steps >= 1000
	if steps >= 100_000 {
		most, atOnce = 20<<20, 6
	}
	p := harness.Build(t)
	site := p.LaidOut(cassandra.Address(t))
	dir := filepath.Join(t.TempDir(), "bodies")
	servers := &s3Servers{t: t, each: make([]atomic.Pointer[s3Server], 2), begin: func() *harness.Server {
		return p.ServeSite(site, "--bodies", "file://"+dir, "--lease", leaseOfServers.String(), "--clean-every", "500ms",
			"--clean-all-every", "0", // hints are followed 20 minutes after they are due
			"--rebalance-interval", "2s", "--max-rows", "150", "--min-rows", "40",
			"--log-level", "warn")
	}}
	for i := range servers.each {
		servers.start(i)
	}
	var customers []*customer
	for _, bucket := range []string{"never", "kept"} {
		require.NoError(t, servers.each[0].Load().MakeBucket(ctx, bucket, minio.MakeBucketOptions{}))
		for i := range atOnce {
			customers = append(customers, &customer{
				author:  &author{t: t, name: fmt.Sprint(i), r: seed.New(t), most: most},
				servers: servers, bucket: bucket, versioned: bucket == "kept", want: map[string][]*stored{},
			})
		}
	}
	require.NoError(t, servers.each[0].Load().EnableVersioning(ctx, "kept"))

	var writers errgroup.Group
	var disturbed atomic.Bool
	var done, working atomic.Int64
	begun := time.Now()
	for _, c := range customers {
		working.Add(1)
		writers.Go(func() error {
			defer working.Add(-1)
			for n := 0; n < steps/len(customers) || !disturbed.Load(); n++ {
				c.step(ctx)
				done.Add(1)
			}
			return nil
		})
	}
	turns, calm := 0, 3000
	if long {
		calm = 12_000
	}
	for r := rand.New(rand.NewPCG(seed.New(t).Uint64(), 0)); turns < 2 || working.Load() > 0; turns++ {
		time.Sleep(time.Duration(r.IntN(calm)) * time.Millisecond) // they get on
		servers.disturb(turns%2, false)
		servers.disturb(turns%2, true)
		if disturbed.Store(turns > 0); turns%10 == 9 {
			t.Logf("%d operations in %v", done.Load(), time.Since(begun).Round(time.Second))
		}
	}
	require.NoError(t, writers.Wait())
	lost, came := 0, 0
	for _, c := range customers {
		lost, came = lost+c.lost, came+c.came
	}
	t.Logf("%d operations in %v; servers were stopped %d times, and killed as often; the answers of %d operations were "+
		"lost, of which %d were done", done.Load(), time.Since(begun).Round(time.Second), turns, lost, came)

	blobs := 0
	for _, c := range customers {
		blobs += c.checkAll()
	}
	server := servers.each[0].Load()
	for _, bucket := range []string{"never", "kept"} {
		for u := range server.ListIncompleteUploads(ctx, bucket, "", true) {
			require.NoError(t, u.Err)
			customers[0].bucket = bucket
			customers[0].abort(ctx, u.Key, u.UploadID)
		}
	}
	for i := range servers.each {
		require.Zero(t, servers.each[i].Load().End(syscall.SIGTERM))
	}

	// Nobody writes any more: what no version has is an orphan, once it is older than a put may take.
	bodies, err := fileblobs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bodies.Close()) })
	s := harness.Open(t, harness.Patient(site.Options()))
	var ahead atomic.Int64
	now := wait.Instants(nil, nil)
	client := harness.Client(t, s, harness.Maps(t, s, leaseOfServers), listing.Options{})
	o, err := objects.New(client, bodies, objects.Options{
		PutTimeout: time.Minute, Now: func() (time.Duration, time.Time) {
			at := now()
			at.Mono += time.Duration(ahead.Load())
			at.Wall = at.Wall.Add(time.Duration(ahead.Load()))
			return at.Mono, at.Wall
		},
	})
	require.NoError(t, err)
	if long {
		time.Sleep(2*time.Minute + settled)
	}
	found, orphans := 0, 0
	for _, c := range []struct {
		bucket string
		v      objects.Status
	}{{"never", objects.Never}, {"kept", objects.Enabled}} {
		b := care.OfBucket(o.Bucket(c.bucket, c.v))
		cleaner, err := b.Cleaner(care.CleanOptions{Grace: 2 * time.Minute, Settled: 2 * time.Minute})
		require.NoError(t, err)
		audit := func(each func(care.Audited)) {
			require.NoError(t, b.Audit(ctx, "", nil, func(part care.Audited) error { each(part); return nil }))
		}
		if !long {
			audit(func(part care.Audited) { require.Empty(t, part.Findings) })
			continue
		}
		for turn := range 6 {
			audit(func(part care.Audited) {
				for _, f := range part.Findings {
					require.Equal(t, care.Orphan, f.Fault, "%s %s %s", f.Key, f.Version, f.Blob)
					if turn == 0 {
						orphans++
					}
					require.NoError(t, cleaner.Condemn(ctx, f))
				}
			})
			did, err := cleaner.Pass(ctx)
			require.NoError(t, err)
			require.NoError(t, did.FirstFailure)
			ahead.Add(int64(25 * time.Hour))
		}
		audit(func(part care.Audited) {
			require.Empty(t, part.Findings)
			require.Zero(t, part.InUse+part.Waiting+part.Young+part.Unjudged)
			found += int(part.Blobs)
		})
	}
	if long {
		t.Logf("%d orphans, %d bodies", orphans, found)
		require.Equal(t, blobs, found, "bodies of versions that are seen, and others")
	}
}
