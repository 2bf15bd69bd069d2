package objects_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// blobsInMemory is the plainest store of blobs.
type blobsInMemory struct {
	mu      sync.Mutex
	m       map[string][]byte
	written func(name string) time.Time // nil: all came long ago
	reading func()                      // unless nil, it is called once, while a blob is read
}

func (s *blobsInMemory) Create(_ context.Context, name string, body io.Reader, _ int64) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.m[name]; there {
		return store.Errorf(store.InvalidArgument, "blob %s was written before", name)
	}
	s.m[name] = b
	return nil
}

func (s *blobsInMemory) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, there := s.m[name]
	if !there {
		return nil, 0, store.Errorf(store.NotFound, "no blob %s", name)
	}
	in := io.Reader(io.NewSectionReader(bytes.NewReader(b), offset, n))
	if do := s.reading; do != nil {
		s.reading = nil
		in = &during{in, do}
	}
	return io.NopCloser(in), int64(len(b)), nil
}

func (s *blobsInMemory) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, name)
	return nil
}

func (s *blobsInMemory) Tops(_ context.Context, each func(top string) error) error {
	s.mu.Lock()
	tops := map[string]bool{}
	for name := range s.m {
		if top, _, ok := strings.Cut(name, "/"); ok {
			tops[top] = true
		}
	}
	s.mu.Unlock()
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		if err := each(top); err != nil {
			return err
		}
	}
	return nil
}

func (s *blobsInMemory) Written(_ context.Context, name string) (time.Time, error) {
	s.mu.Lock()
	_, there := s.m[name]
	s.mu.Unlock()
	switch {
	case !there:
		return time.Time{}, store.Errorf(store.NotFound, "no blob %s", name)
	case s.written == nil:
		return time.UnixMicro(1), nil
	}
	return s.written(name), nil
}

func (s *blobsInMemory) List(
	_ context.Context, prefix, after string, each func(name string, size int64) error,
) error {
	s.mu.Lock()
	sizes := map[string]int64{}
	for name, b := range s.m {
		if strings.HasPrefix(name, prefix) && name > after {
			sizes[name] = int64(len(b))
		}
	}
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if err := each(name, sizes[name]); err != nil {
			return err
		}
	}
	return nil
}

// version is a version as the oracle knows it.
type version struct {
	id           objects.ID
	marker, null bool
	body         []byte
	typ          string
	tags         []objects.Pair
	etag         string // where it is not the MD5 of the body
}

// oracle is what a bucket of objects should be: the versions of each key, newest first.
type oracle map[string][]version

func (o oracle) latest(key string) *version {
	if vs := o[key]; len(vs) > 0 {
		return &vs[0]
	}
	return nil
}

// line is an item of a listing, as text.
func line(key string, v *version, latest bool) string {
	sum := md5.Sum(v.body)
	etag := hex.EncodeToString(sum[:])
	if v.marker || v.etag != "" {
		etag = v.etag
	}
	return fmt.Sprintf("%q %s marker %v null %v size %d etag %s type %q latest %v",
		key, v.id, v.marker, v.null, len(v.body), etag, v.typ, latest)
}

// list is what a listing should show, by lines.
func (o oracle) list(q objects.Query, versions bool) (lines []string) {
	keys := make([]string, 0, len(o))
	for key := range o {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	last := ""
	for _, key := range keys {
		passed := key < string(q.After) || key == string(q.After) && q.AfterID.IsZero()
		passed = passed || key < string(q.From) || len(q.To) > 0 && key >= string(q.To)
		if passed || !strings.HasPrefix(key, string(q.Prefix)) {
			continue
		}
		null, common := false, ""
		if i := strings.Index(key[len(q.Prefix):], string(q.Delimiter)); i >= 0 && len(q.Delimiter) > 0 {
			common = key[:len(q.Prefix)+i+len(q.Delimiter)]
		}
		for i := range o[key] {
			v := &o[key][i]
			shown := versions && !(v.null && null) || i == 0 && !v.marker
			null = null || v.null
			if key == string(q.After) && q.AfterID.String() >= v.id.String() || !shown {
				continue
			}
			switch {
			case common == "":
				lines = append(lines, line(key, v, i == 0))
			case common != last:
				last = common
				lines = append(lines, fmt.Sprintf("common %q", common))
			}
		}
	}
	return lines
}

var parts = []string{"a", "b", "/", "\x00", "\xff", "\x01", "ab/", "\x00\xff"}

// randomTags returns some tags, or nil.
func randomTags(r *rand.Rand) (tags []objects.Pair) {
	for range max(0, r.IntN(5)-2) {
		tags = append(tags, objects.Pair{Name: parts[r.IntN(len(parts))], Value: fmt.Sprint(r.IntN(100))})
	}
	return tags
}

func randomKey(r *rand.Rand) []byte {
	var key []byte
	for range 1 + r.IntN(3) {
		key = append(key, parts[r.IntN(len(parts))]...)
	}
	return key
}

// TestVersionsAreAsInAMap does random operations on objects and on a map of versions, while
// ranges move.
func TestVersionsAreAsInAMap(t *testing.T) {
	for _, env := range []struct {
		name  string
		steps int
		open  func(t *testing.T) (store.Store, objects.Blobs)
	}{
		{"in memory", 2500, func(*testing.T) (store.Store, objects.Blobs) {
			return memstore.New(), &blobsInMemory{m: map[string][]byte{}}
		}},
		{"in files", 500, func(t *testing.T) (store.Store, objects.Blobs) {
			s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
			require.NoError(t, err)
			blobs, err := fileblobs.Open(t.TempDir())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, blobs.Close()) })
			return s, blobs
		}},
	} {
		t.Run(env.name, func(t *testing.T) {
			s, blobs := env.open(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			compareWithMap(t, s, blobs, env.steps)
		})
	}
}

func compareWithMap(t *testing.T, s store.Store, blobs objects.Blobs, steps int) {
	ctx, r, clock := t.Context(), seed.New(t), &listtest.Clock{}
	c, err := listing.New(s, listing.Options{Timestamps: clock, RowsPerRead: 1 + r.IntN(20)})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "objects"))
	owner, err := door.Client(c).Owner(ctx, "objects")
	require.NoError(t, err)
	m := listtest.NewMover(&listtest.Env{Store: s, Client: c, Maps: mapclient.Of(c), Clock: clock}, owner.ID, r)
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: 64})
	require.NoError(t, err)
	buckets := []*objects.Bucket{o.Bucket("objects", objects.Enabled), o.Bucket("objects", objects.Never)}
	want := oracle{}
	var all []objects.ID
	var upload *openUpload
	for step := range steps {
		versioned := r.IntN(2)
		b, null := buckets[versioned], versioned == 1
		key := randomKey(r)
		vs := want[string(key)]
		id := objects.Latest
		if len(vs) > 0 && r.IntN(2) == 0 {
			id = vs[r.IntN(len(vs))].id
		} else if len(all) > 0 && r.IntN(10) == 0 {
			id = all[r.IntN(len(all))] // of another key, or deleted
		}
		switch r.IntN(14) {
		case 12, 13:
			tags := randomTags(r)
			i := slices.IndexFunc(vs, func(v version) bool { return v.id == id })
			if id == objects.Latest && len(vs) > 0 {
				i = 0
			}
			info, err := b.SetTags(ctx, key, id, tags)
			if i < 0 || vs[i].marker {
				require.ErrorIs(t, err, store.NotFound)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, tags, info.Meta().Tags)
			vs[i].tags = tags
		case 10: // an upload, begun and completed around other steps
			if upload == nil {
				tags := randomTags(r)
				u, err := b.CreateUpload(ctx, key, objects.Meta{ContentType: "parts", Tags: tags})
				require.NoError(t, err)
				upload = &openUpload{u: u, v: version{typ: "parts", tags: tags}}
				continue
			}
			if body := fmt.Sprintf("%d,", r.IntN(1000)); len(upload.named) < 3 {
				p, err := b.PutPart(ctx, upload.u.Key, upload.u.ID, 1+len(upload.named), strings.NewReader(body),
					objects.Meta{Size: int64(len(body))})
				require.NoError(t, err)
				upload.named = append(upload.named, objects.Part{Number: p.Number, ETag: p.ETag})
				upload.v.body = append(upload.v.body, body...)
				continue
			}
			info, err := b.Complete(ctx, upload.u.Key, upload.u.ID, upload.named, nil)
			require.NoError(t, err)
			upload.v.id, upload.v.null, upload.v.etag = info.ID, null, info.ETag()
			key := string(upload.u.Key)
			want[key] = slices.Insert(slices.Clone(want[key]), 0, upload.v)
			all, upload = append(all, upload.v.id), nil
		case 11:
			i := slices.IndexFunc(vs, func(v version) bool { return v.id == id })
			if i < 0 || vs[i].marker {
				continue
			}
			to := randomKey(r)
			var meta *objects.Meta
			v := version{null: null, body: vs[i].body, typ: vs[i].typ, tags: vs[i].tags}
			if r.IntN(2) == 0 {
				meta, v.typ, v.tags = &objects.Meta{ContentType: "copied"}, "copied", nil
			}
			info, err := copyOf(ctx, b, to, key, id, meta)
			require.NoError(t, err)
			v.id = info.ID
			want[string(to)] = slices.Insert(slices.Clone(want[string(to)]), 0, v)
			all = append(all, v.id)
		case 0, 1, 2:
			body := make([]byte, r.IntN(130))
			for i := range body {
				body[i] = byte(r.Uint32())
			}
			meta := objects.Meta{Size: int64(len(body)), ContentType: []string{"", "text/plain"}[r.IntN(2)],
				Tags: randomTags(r)}
			if r.IntN(2) == 0 {
				meta.Size = -1
			}
			from := io.Reader(bytes.NewReader(body))
			if r.IntN(3) == 0 { // while the body comes the key is written: that is older
				from = &during{from, func() {
					v := version{null: null, marker: r.IntN(2) == 0}
					var info objects.Info
					var err error
					if v.marker {
						info, err = b.Delete(ctx, key)
					} else {
						v.body = bytes.Repeat([]byte("in between"), r.IntN(13))
						info, err = b.Put(ctx, key, bytes.NewReader(v.body), objects.Meta{Size: -1})
					}
					require.NoError(t, err)
					v.id = info.ID
					vs, all = slices.Insert(vs, 0, v), append(all, info.ID)
				}}
			}
			info, err := b.Put(ctx, key, from, meta)
			require.NoError(t, err)
			want[string(key)] = slices.Insert(vs, 0, version{info.ID, false, null, body, meta.ContentType, meta.Tags, ""})
			all = append(all, info.ID)
		case 3:
			info, err := b.Delete(ctx, key)
			require.NoError(t, err)
			want[string(key)] = slices.Insert(vs, 0, version{id: info.ID, marker: true, null: null})
			all = append(all, info.ID)
		case 4:
			if id == objects.Latest {
				continue
			}
			i := slices.IndexFunc(vs, func(v version) bool { return v.id == id })
			_, err := b.DeleteVersion(ctx, key, id)
			if i < 0 {
				require.ErrorIs(t, err, listing.ErrNotFound)
				continue
			}
			require.NoError(t, err)
			was, older := vs[i], slices.Clone(vs[i+1:])
			if was.null {
				older = slices.DeleteFunc(older, func(v version) bool { return v.null })
			}
			if want[string(key)] = append(slices.Clone(vs[:i]), older...); len(want[string(key)]) == 0 {
				delete(want, string(key))
			}
		case 5, 6:
			v := want.latest(string(key))
			if id != objects.Latest {
				v = nil
				if i := slices.IndexFunc(vs, func(v version) bool { return v.id == id }); i >= 0 {
					v = &vs[i]
				}
			}
			compareObject(t, b, key, id, v, r)
		case 7, 8:
			q := objects.Query{Limit: 1 + r.IntN(6)}
			if r.IntN(2) == 0 {
				q.Prefix = randomKey(r)
			}
			if r.IntN(2) == 0 {
				q.Delimiter = []byte(parts[r.IntN(len(parts))])
			}
			versions := r.IntN(2) == 0
			if r.IntN(3) == 0 {
				q.From = randomKey(r)
			}
			if r.IntN(3) == 0 {
				q.To = randomKey(r)
			}
			if r.IntN(3) == 0 {
				q.After = key
				if id != objects.Latest && versions && len(q.Delimiter) == 0 {
					q.AfterID = id
				}
			}
			require.Equal(t, want.list(q, versions), lines(t, b, q, versions), "step %d: %+v", step, q)
		default:
			require.NoError(t, m.Step(ctx, func() []byte { return randomCut(r) }))
		}
	}
	reached, err := m.Finish(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, reached, "nothing moved")
	for _, versions := range []bool{false, true} {
		require.Equal(t, want.list(objects.Query{}, versions), lines(t, buckets[0], objects.Query{}, versions))
	}
	for key, vs := range want {
		for i := range vs {
			compareObject(t, buckets[0], []byte(key), vs[i].id, &vs[i], r)
		}
	}
}

// openUpload is an upload under way, and the version that it becomes.
type openUpload struct {
	u     objects.Upload
	v     version
	named []objects.Part
}

// randomCut returns a key of rows at which a range may be cut: also within an object's versions.
func randomCut(r *rand.Rand) []byte {
	cut := append(randomKey(r), 0, 1)
	for range r.IntN(9) {
		cut = append(cut, byte(r.Uint32()))
	}
	return cut
}

func compareObject(t *testing.T, b *objects.Bucket, key []byte, id objects.ID, want *version, r *rand.Rand) {
	t.Helper()
	got, err := b.Get(t.Context(), key, id, objects.All)
	if want == nil {
		require.ErrorIs(t, err, listing.ErrNotFound)
		return
	}
	if want.marker {
		require.ErrorIs(t, err, objects.ErrDeleted)
		return
	}
	require.NoError(t, err)
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.True(t, bytes.Equal(want.body, body))
	require.Equal(t, want.id, got.ID)
	require.Equal(t, want.tags, got.Meta().Tags)
	head, err := b.Head(t.Context(), key, id)
	require.NoError(t, err)
	require.Equal(t, got.Info, head)

	part := objects.Range{Offset: r.Int64N(int64(len(body)) + 2), N: r.Int64N(int64(len(body)) + 2)}
	got, err = b.Get(t.Context(), key, id, part)
	if part.Offset > int64(len(body)) {
		require.ErrorIs(t, err, store.InvalidArgument)
		return
	}
	require.NoError(t, err)
	some, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body[part.Offset:min(part.Offset+part.N, int64(len(body)))], some))
}

// lines lists page by page.
func lines(t *testing.T, b *objects.Bucket, q objects.Query, versions bool) (lines []string) {
	t.Helper()
	for {
		list := b.List
		if versions {
			list = b.ListVersions
		}
		page, err := list(t.Context(), q)
		require.NoError(t, err)
		for _, item := range page.Items {
			if item.CommonPrefix {
				lines = append(lines, fmt.Sprintf("common %q", item.Key))
				continue
			}
			lines = append(lines, fmt.Sprintf("%q %s marker %v null %v size %d etag %s type %q latest %v",
				item.Key, item.ID, item.Marker, item.Null, item.Size, item.ETag(), item.ContentType, item.Latest))
		}
		if page.Next == "" {
			return lines
		}
		q.Token = page.Next
	}
}

var errBody = errors.New("the client has hung up")

// failing is a body that breaks off.
type failing struct{ left int }

func (f *failing) Read(p []byte) (int, error) {
	if f.left <= 0 {
		return 0, errBody
	}
	n := min(len(p), f.left)
	f.left -= n
	return n, nil
}

func TestBodiesThatAreNotWhatTheyWereSaidToBe(t *testing.T) {
	ctx, blobs := t.Context(), &blobsInMemory{m: map[string][]byte{}}
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(ctx, "objects"))
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: 10, MaxBytes: 100})
	require.NoError(t, err)
	b := o.Bucket("objects", objects.Enabled)
	for _, size := range []int{0, 1, 10, 11, 50, 100, 101} {
		for told := -1; told <= 102; told++ {
			info, err := b.Put(ctx, []byte("k"), bytes.NewReader(make([]byte, size)), objects.Meta{Size: int64(told)})
			if size > 100 || told >= 0 && told != size {
				require.ErrorIs(t, err, objects.ErrWrongSize, "%d bytes, told %d", size, told)
				continue
			}
			require.NoError(t, err)
			_, err = b.DeleteVersion(ctx, []byte("k"), info.ID)
			require.NoError(t, err)
		}
		_, err = b.Put(ctx, []byte("k"), &failing{size}, objects.Meta{Size: -1})
		require.Error(t, err)
	}
	page, err := b.ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	require.Empty(t, page.Items)

	info, err := b.Put(ctx, []byte("k"), bytes.NewReader(make([]byte, 50)), objects.Meta{Size: -1})
	require.NoError(t, err)
	clear(blobs.m)
	_, err = b.Get(ctx, []byte("k"), info.ID, objects.All)
	require.ErrorIs(t, err, objects.ErrBodyLost)
	_, err = b.Head(ctx, []byte("k"), objects.Latest)
	require.NoError(t, err, "what there is to say about it is not lost")
}

// copyOf puts a copy of the version id of the object key, with other metadata if meta is not nil.
func copyOf(
	ctx context.Context, b *objects.Bucket, to, key []byte, id objects.ID, meta *objects.Meta,
) (objects.Info, error) {
	o, err := b.Get(ctx, key, id, objects.All)
	if err != nil {
		return objects.Info{}, err
	}
	defer o.Body.Close()
	m := o.Meta()
	if meta != nil {
		m = *meta
		m.Size, m.MD5 = o.Size, o.Meta().MD5
	}
	return b.Put(ctx, to, o.Body, m)
}
