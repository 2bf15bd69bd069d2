package versions

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/cassandratest"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
)

var cassandra cassandratest.Shared

func TestMain(m *testing.M) {
	if setup := os.Getenv(cleanerVariable); setup != "" {
		if err := clean(setup); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(harness.Run(m, &cassandra))
}

// processes are several processes over one keyspace and one directory of bodies. Their clocks go
// forward by hours when a test wants it: that lets graces pass, and ends no lease.
type processes struct {
	ahead   atomic.Int64
	objects []*objects.Objects
	bodies  fileblobs.Store
}

func newProcesses(t *testing.T, n int) *processes {
	p := &processes{}
	var err error
	p.bodies, err = fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.bodies.Close()) })
	options, now := harness.Shared(t, &cassandra), wait.Instants(nil, nil)
	for i := range n {
		s := harness.Open(t, options)
		if i == 0 {
			require.NoError(t, mapclient.InitClocks(t.Context(), s, harness.Clocks))
		}
		c := harness.Client(t, s, harness.Maps(t, s, time.Second), listing.Options{})
		o, err := objects.New(c, p.bodies, objects.Options{InlineBytes: 100, Now: func() (time.Duration, time.Time) {
			at := now()
			at.Mono += time.Duration(p.ahead.Load())
			at.Wall = at.Wall.Add(time.Duration(p.ahead.Load()))
			return at.Mono, at.Wall
		}})
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, o.CreateBucket(t.Context(), "objects", []byte("k3"), []byte("k6")))
			require.NoError(t, o.SetStatus(t.Context(), "objects", objects.Enabled))
		}
		p.objects = append(p.objects, o)
	}
	return p
}

func (p *processes) bucket(i int, v objects.Status) *objects.Bucket {
	return p.objects[i%len(p.objects)].Bucket("objects", v)
}

// clean lets graces pass, and cleaners of all processes take turns.
func (p *processes) clean(t *testing.T, v objects.Status) {
	var cleaners []care.Cleaner
	for i := range p.objects {
		c, err := care.OfBucket(p.bucket(i, v)).Cleaner(care.CleanOptions{})
		require.NoError(t, err)
		cleaners = append(cleaners, c)
	}
	for range 4 {
		for _, c := range cleaners {
			done, err := c.Pass(t.Context())
			require.NoError(t, err)
			require.NoError(t, done.FirstFailure)
		}
		p.ahead.Add(int64(25 * time.Hour))
	}
}

// audit finds nothing wrong, and returns how many blobs there are.
func (p *processes) audit(t *testing.T) (blobs int64) {
	b := care.OfBucket(p.bucket(0, objects.Enabled))
	require.NoError(t, b.Audit(t.Context(), "", nil, func(a care.Audited) error {
		require.Empty(t, a.Findings)
		blobs += a.Blobs
		return nil
	}))
	return blobs
}

type version struct {
	id     objects.ID
	marker bool
	body   string
}

// TestTwoProcessesSeeTheSameVersions does operations in turns by two processes, each of which sees
// what the other one has done, and uploads whose parts come from both.
func TestTwoProcessesSeeTheSameVersions(t *testing.T) {
	ctx, r, p := t.Context(), seed.New(t), newProcesses(t, 2)
	want := map[string][]version{} // newest first
	add := func(key string, v version) {
		at, _ := slices.BinarySearchFunc(want[key], v.id, func(v version, id objects.ID) int {
			return strings.Compare(v.id.String(), id.String())
		})
		want[key] = slices.Insert(want[key], at, v)
	}
	type upload struct {
		objects.Upload
		named []objects.Part
		body  string
	}
	var uploads []upload
	for step := range harness.Setting(t, "EVENKEEL_OBJECTS_STEPS", 300) {
		b := p.bucket(step, objects.Enabled)
		key := fmt.Sprintf("k%d", r.IntN(9))
		body := fmt.Sprintf("%d of %s %s", step, key, strings.Repeat("x", r.IntN(200)))
		vs := want[key]
		switch n := r.IntN(12); {
		case n < 3:
			info, err := b.Put(ctx, []byte(key), strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
			add(key, version{id: info.ID, body: body})
		case n == 3:
			info, err := b.Delete(ctx, []byte(key))
			require.NoError(t, err)
			add(key, version{id: info.ID, marker: true})
		case n == 4 && len(vs) > 0:
			i := r.IntN(len(vs))
			_, err := b.DeleteVersion(ctx, []byte(key), vs[i].id)
			require.NoError(t, err)
			want[key] = slices.Delete(vs, i, i+1)
		case n == 5:
			u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
			require.NoError(t, err)
			uploads = append(uploads, upload{Upload: u})
		case n < 9 && len(uploads) > 0:
			i := r.IntN(len(uploads))
			u := &uploads[i]
			if len(u.named) < 3 {
				part, err := b.PutPart(ctx, u.Key, u.ID, 1+len(u.named), strings.NewReader(body), objects.Meta{Size: -1})
				require.NoError(t, err)
				u.named, u.body = append(u.named, objects.Part{Number: part.Number, ETag: part.ETag}), u.body+body
				break
			}
			if r.IntN(3) == 0 {
				require.NoError(t, b.Abort(ctx, u.Key, u.ID))
			} else {
				info, err := b.Complete(ctx, u.Key, u.ID, u.named, nil)
				require.NoError(t, err)
				add(string(u.Key), version{id: info.ID, body: u.body})
			}
			uploads = slices.Delete(uploads, i, i+1)
		default:
			o, err := b.Get(ctx, []byte(key), objects.Latest, objects.All)
			if len(vs) == 0 || vs[0].marker {
				require.ErrorContains(t, err, "not found")
				break
			}
			require.NoError(t, err)
			got, err := io.ReadAll(o.Body)
			require.NoError(t, err)
			require.NoError(t, o.Body.Close())
			require.Equal(t, vs[0].body, string(got))
		}
	}
	for i := range uploads {
		require.NoError(t, p.bucket(i, objects.Enabled).Abort(ctx, uploads[i].Key, uploads[i].ID))
	}
	p.clean(t, objects.Enabled)
	p.audit(t)
	page, err := p.bucket(1, objects.Enabled).ListVersions(ctx, objects.Query{Limit: 10_000})
	require.NoError(t, err)
	for _, item := range page.Items {
		vs := want[string(item.Key)]
		require.NotEmpty(t, vs)
		require.Equal(t, vs[0].id, item.ID)
		require.Equal(t, vs[0].marker, item.Marker)
		if want[string(item.Key)] = vs[1:]; item.Marker {
			continue
		}
		o, err := p.bucket(0, objects.Enabled).Get(ctx, item.Key, item.ID, objects.All)
		require.NoError(t, err)
		got, err := io.ReadAll(o.Body)
		require.NoError(t, err)
		require.NoError(t, o.Body.Close())
		require.Equal(t, vs[0].body, string(got))
	}
	for key, vs := range want {
		require.Empty(t, vs, "versions of %s are not listed", key)
	}
}

// TestManyEndsOfUploads completes and aborts uploads by three processes at the same time, with
// different lists of parts. At most one of two different ends succeeds, and what it says is so.
func TestManyEndsOfUploads(t *testing.T) {
	ctx, p := t.Context(), newProcesses(t, 3)
	bodies := []string{"onetwo", "one", ""}
	counts := map[string]int{}
	left := int64(0)
	for round := range harness.Setting(t, "EVENKEEL_OBJECTS_ROUNDS", 60) {
		key := fmt.Appendf(nil, "k%d", round)
		u, err := p.bucket(0, objects.Enabled).CreateUpload(ctx, key, objects.Meta{})
		require.NoError(t, err)
		var named []objects.Part
		for i, body := range []string{"one", "two"} {
			part, err := p.bucket(i, objects.Enabled).PutPart(ctx, key, u.ID, i+1, strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
			named = append(named, objects.Part{Number: i + 1, ETag: part.ETag})
		}
		var errs [3]error
		var g errgroup.Group
		for i := range errs {
			g.Go(func() error {
				time.Sleep(time.Duration(round*(i+round)%7) * time.Millisecond) // they meet in all ways
				b := p.bucket(i, objects.Enabled)
				if i == 2 {
					errs[i] = b.Abort(ctx, key, u.ID)
				} else {
					_, errs[i] = b.Complete(ctx, key, u.ID, named[:2-i], nil)
				}
				return nil
			})
		}
		_ = g.Wait()
		won := -1
		for i, err := range errs {
			if err == nil {
				require.Negative(t, won, "round %d: %v", round, errs)
				won = i
				continue
			}
			require.Regexp(t, "no such upload|under way", err.Error())
		}
		require.GreaterOrEqual(t, won, 0, "round %d: nobody ended the upload: %v", round, errs)
		counts[fmt.Sprintf("won by %d", won)]++
		o, err := p.bucket(round, objects.Enabled).Get(ctx, key, objects.Latest, objects.All)
		switch {
		case won == 2:
			require.ErrorContains(t, err, "not found")
		case won >= 0:
			require.NoError(t, err)
			var got bytes.Buffer
			_, err = got.ReadFrom(o.Body)
			require.NoError(t, err)
			require.NoError(t, o.Body.Close())
			require.Equal(t, bodies[won], got.String())
			left += int64(2 - won)
		}
	}
	t.Log(counts)
	p.clean(t, objects.Enabled)
	blobs := p.audit(t)
	require.GreaterOrEqual(t, blobs, left)
	page, err := p.bucket(0, objects.Enabled).ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	require.Len(t, page.Items, counts["won by 0"]+counts["won by 1"])
}
