package objects_test

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// largeBody is a body that is never in memory as a whole: a number is its beginning, and so are all
// its bytes.
type largeBody struct {
	number uint64
	size   int64
}

func (b largeBody) reader() io.Reader {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], b.number)
	return io.LimitReader(rand.NewChaCha8(key), b.size)
}

// largeVersion is a version, as the concatenation of its parts.
type largeVersion struct {
	id     objects.ID
	marker bool
	parts  []largeBody
	sum    [md5.Size]byte
	size   int64
}

func (v *largeVersion) reader() io.Reader {
	readers := make([]io.Reader, len(v.parts))
	for i, p := range v.parts {
		readers[i] = p.reader()
	}
	return io.MultiReader(readers...)
}

func (v *largeVersion) settle(t *testing.T) {
	h := md5.New()
	n, err := io.Copy(h, v.reader())
	require.NoError(t, err)
	v.sum, v.size = [md5.Size]byte(h.Sum(nil)), n
}

type largeUpload struct {
	key   string
	u     objects.Upload
	parts []largeBody
	named []objects.Part
}

// TestManyOperationsThenAnAudit does operations of all kinds on a bucket with versions in files, with
// bodies of up to 20 MB, while days go by and cleaners run. In the end the bucket is as a map of
// versions, no blob is lost, and none is left. EVENKEEL_OBJECTS_OPS sets how many operations.
func TestManyOperationsThenAnAudit(t *testing.T) {
	steps, _ := strconv.Atoi(os.Getenv("EVENKEEL_OBJECTS_OPS"))
	most := int64(20 << 20)
	if steps == 0 {
		steps, most = 1500, 1<<20
	}
	ctx, r := t.Context(), seed.New(t)
	s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, blobs.Close()) }()
	now := time.UnixMicro(1_800_000_000_000_000)
	begin := now
	c, err := listing.New(s, listing.Options{Timestamps: timestamps.New(func() time.Time { return now })})
	require.NoError(t, err)
	o, err := objects.New(c, blobs, objects.Options{
		Now: func() (time.Duration, time.Time) { return now.Sub(begin), now },
	})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(ctx, "objects", []byte("key-1"), []byte("key-3")))
	require.NoError(t, o.SetStatus(ctx, "objects", objects.Enabled))
	require.NoError(t, o.SetLifecycle(ctx, "objects", objects.Lifecycle{{ID: "uploads", AbandonDays: 10}}))
	b := o.Bucket("objects", objects.Enabled)
	cleaner, err := care.OfBucket(b).Cleaner(care.CleanOptions{})
	require.NoError(t, err)

	want := map[string][]*largeVersion{} // newest first
	keys := make([]string, max(steps/100, 50))
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d/%x", r.IntN(5), r.Uint32())
		if i%20 == 0 {
			keys[i] += strings.Repeat("x", r.IntN(1000))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	body := func() largeBody {
		size := r.Int64N(4 << 10)
		switch n := r.IntN(1000); {
		case n == 0:
			size = r.Int64N(most)
		case n < 30:
			size = r.Int64N(most / 20)
		case n < 300:
			size = r.Int64N(64 << 10)
		}
		return largeBody{r.Uint64(), size}
	}
	add := func(key string, v *largeVersion) {
		v.settle(t)
		at, _ := slices.BinarySearchFunc(want[key], v.id, func(v *largeVersion, id objects.ID) int {
			return strings.Compare(v.id.String(), id.String())
		})
		want[key] = slices.Insert(want[key], at, v)
	}
	check := func(key string, v *largeVersion, part objects.Range) {
		got, err := b.Get(ctx, []byte(key), v.id, part)
		require.NoError(t, err)
		defer got.Body.Close()
		require.Equal(t, v.size, got.Size)
		h, body := md5.New(), v.reader()
		_, err = io.CopyN(io.Discard, body, got.Range.Offset)
		require.NoError(t, err)
		_, err = io.CopyN(h, body, got.Range.N)
		require.NoError(t, err)
		sum := md5.New()
		n, err := io.Copy(sum, got.Body)
		require.NoError(t, err)
		require.Equal(t, got.Range.N, n)
		require.Equal(t, h.Sum(nil), sum.Sum(nil))
	}
	var uploads []*largeUpload
	done := map[string]int{}
	for step := range steps {
		key := keys[r.IntN(len(keys))]
		vs := want[key]
		var v *largeVersion
		if len(vs) > 0 {
			v = vs[r.IntN(len(vs))]
		}
		kind := "?"
		switch n := r.IntN(100); {
		case n < 30:
			kind = "put"
			one := body()
			info, err := b.Put(ctx, []byte(key), one.reader(), objects.Meta{Size: one.size})
			require.NoError(t, err)
			add(key, &largeVersion{id: info.ID, parts: []largeBody{one}})
		case n < 34:
			kind = "delete"
			info, err := b.Delete(ctx, []byte(key))
			require.NoError(t, err)
			add(key, &largeVersion{id: info.ID, marker: true})
		case n < 55 && v != nil && len(vs) > 2:
			kind = "delete version"
			_, err := b.DeleteVersion(ctx, []byte(key), v.id)
			require.NoError(t, err)
			want[key] = slices.DeleteFunc(vs, func(x *largeVersion) bool { return x == v })
		case n < 60 && v != nil && !v.marker:
			kind = "copy"
			to := keys[r.IntN(len(keys))]
			info, err := copyOf(ctx, b, []byte(to), []byte(key), v.id, nil)
			require.NoError(t, err)
			require.Equal(t, v.sum, [md5.Size]byte(mustHex(t, info.ETag())))
			add(to, &largeVersion{id: info.ID, parts: v.parts})
		case n < 64:
			kind = "create upload"
			u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
			require.NoError(t, err)
			uploads = append(uploads, &largeUpload{key: key, u: u})
		case n < 76 && len(uploads) > 0:
			i := r.IntN(len(uploads))
			u := uploads[i]
			switch n := r.IntN(8); {
			case n == 0 && now.Sub(u.u.Created) < 9*24*time.Hour:
				kind = "abort"
				require.NoError(t, b.Abort(ctx, u.u.Key, u.u.ID))
				uploads = slices.Delete(uploads, i, i+1)
			case now.Sub(u.u.Created) > 9*24*time.Hour:
				kind = "abandon"
				uploads = slices.Delete(uploads, i, i+1)
			case n < 4 && len(u.named) > 0:
				kind = "complete"
				info, err := b.Complete(ctx, u.u.Key, u.u.ID, u.named, nil)
				require.NoError(t, err)
				add(u.key, &largeVersion{id: info.ID, parts: u.parts})
				uploads = slices.Delete(uploads, i, i+1)
			default:
				kind = "part"
				one := body()
				number := 1 + len(u.named)
				again := number > 1 && r.IntN(4) == 0
				if again {
					number--
				}
				p, err := b.PutPart(ctx, u.u.Key, u.u.ID, number, one.reader(), objects.Meta{Size: one.size})
				require.NoError(t, err)
				if again {
					u.named, u.parts = u.named[:number-1], u.parts[:number-1]
				}
				u.named = append(u.named, objects.Part{Number: number, ETag: p.ETag})
				u.parts = append(u.parts, one)
			}
		case n < 90 && v != nil && !v.marker:
			kind = "get"
			part := objects.All
			if r.IntN(2) == 0 {
				part = objects.Range{Offset: r.Int64N(v.size + 1), N: r.Int64N(v.size + 2)}
			}
			check(key, v, part)
		case n < 98:
			kind = "head"
			_, err := b.Head(ctx, []byte(key), objects.Latest)
			switch {
			case len(vs) == 0:
				require.True(t, errors.Is(err, listing.ErrNotFound) && !errors.Is(err, objects.ErrDeleted))
			case vs[0].marker:
				require.ErrorIs(t, err, objects.ErrDeleted)
			default:
				require.NoError(t, err)
			}
		case n < 99:
			kind = "list"
			page, err := b.List(ctx, objects.Query{After: []byte(key), Limit: 20})
			require.NoError(t, err)
			at, _ := slices.BinarySearch(keys, key)
			for _, item := range page.Items {
				for at++; len(want[keys[at]]) == 0 || want[keys[at]][0].marker; at++ {
				}
				require.Equal(t, keys[at], string(item.Key))
				require.Equal(t, want[keys[at]][0].id, item.ID)
			}
		default:
			now = now.Add(time.Duration(r.IntN(60)) * time.Minute)
		}
		done[kind]++
		if step%(steps/10) == 0 {
			found, err := cleaner.Pass(ctx)
			require.NoError(t, err)
			require.NoError(t, found.FirstFailure)
			now = now.Add(25 * time.Hour)
		}
	}
	t.Logf("%v", done)
	for range 5 {
		require.NoError(t, care.OfBucket(b).Audit(ctx, "", nil, func(a care.Audited) error {
			require.Empty(t, a.Findings)
			return nil
		}))
		now = now.Add(11 * 24 * time.Hour)
		found, err := cleaner.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, found.FirstFailure)
	}
	blobsOf, parts := 0, 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		for _, v := range want[key] {
			if !v.marker {
				check(key, v, objects.All)
			}
		}
	}
	for _, item := range all(t, b) {
		vs := want[string(item.Key)]
		i := slices.IndexFunc(vs, func(v *largeVersion) bool { return v.id == item.ID })
		require.GreaterOrEqual(t, i, 0)
		want[string(item.Key)] = slices.Delete(vs, i, i+1)
		if parts += int(item.Parts); item.Parts == 0 && item.Size > 4<<10 {
			blobsOf++
		}
	}
	for key, vs := range want {
		require.Empty(t, vs, "versions of %q are not listed", key)
	}
	left := 0
	require.NoError(t, blobs.List(ctx, "", "", func(string, int64) error { left++; return nil }))
	require.Equal(t, blobsOf+parts, left)
	open, err := b.ListUploads(ctx, objects.UploadQuery{})
	require.NoError(t, err)
	require.Empty(t, open.Items)
}

func mustHex(t *testing.T, text string) []byte {
	var sum []byte
	_, err := fmt.Sscanf(text, "%x", &sum)
	require.NoError(t, err)
	return sum
}
