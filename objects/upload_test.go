package objects_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	storerecord "github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// place is a bucket of objects over a store in memory, whose time stands still.
type place struct {
	*objects.Bucket
	c     *listing.Client
	o     *objects.Objects
	blobs *blobsInMemory
	now   time.Time
}

func newPlace(t *testing.T, s store.Store, v objects.Status) *place {
	return newPlaceOf(t, s, v, int(mapclient.NewestSchema))
}

// newPlaceOf makes a place whose store has a version of the schema.
func newPlaceOf(t *testing.T, s store.Store, v objects.Status, schema int) *place {
	p := &place{blobs: &blobsInMemory{m: map[string][]byte{}}, now: time.UnixMicro(1_800_000_000_000_000)}
	begin := p.now
	c, err := listing.New(s, listing.Options{Timestamps: timestamps.New(func() time.Time { return p.now })})
	require.NoError(t, err)
	if schema != int(mapclient.NewestSchema) {
		payload := binary.BigEndian.AppendUint64(nil, uint64(schema))
		rec := storerecord.Seal(1, storerecord.Next(store.Version{}), payload)
		require.NoError(t, s.Swap(t.Context(), store.Process, []byte("schema"), store.Version{}, rec))
		o := mapclient.Options{Lease: time.Minute, MaxClockSkew: time.Second}
		m, err := mapclient.Join(t.Context(), s, o, false)
		require.NoError(t, err)
		t.Cleanup(m.Close)
		c, err = listing.New(mapclient.With(s, m), listing.Options{Timestamps: timestamps.New(func() time.Time { return p.now })})
		require.NoError(t, err)
	}
	p.c = c
	p.o, err = objects.New(c, p.blobs, objects.Options{InlineBytes: 20,
		Now: func() (time.Duration, time.Time) { return p.now.Sub(begin), p.now }})
	require.NoError(t, err)
	require.NoError(t, p.o.CreateBucket(t.Context(), "objects"))
	if v == objects.Enabled {
		require.NoError(t, p.o.SetStatus(t.Context(), "objects", objects.Enabled))
	}
	p.Bucket = p.o.Bucket("objects", v)
	return p
}

func (p *place) cleaner(t *testing.T, o care.CleanOptions) care.Cleaner {
	c, err := care.OfBucket(p.Bucket).Cleaner(o)
	require.NoError(t, err)
	return c
}

func part(t *testing.T, b *objects.Bucket, u objects.Upload, number int, body string) objects.Part {
	p, err := b.PutPart(t.Context(), u.Key, u.ID, number, strings.NewReader(body), objects.Meta{Size: int64(len(body))})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x", md5.Sum([]byte(body))), p.ETag)
	return objects.Part{Number: p.Number, ETag: p.ETag}
}

func read(t *testing.T, b *objects.Bucket, key []byte, r objects.Range) string {
	o, err := b.Get(t.Context(), key, objects.Latest, r)
	require.NoError(t, err)
	body, err := io.ReadAll(o.Body)
	require.NoError(t, err)
	require.NoError(t, o.Body.Close())
	return string(body)
}

func TestAnUploadBecomesAVersion(t *testing.T) {
	ctx, b, key := t.Context(), newPlace(t, memstore.New(), objects.Enabled), []byte("a\x00b")
	u, err := b.CreateUpload(ctx, key, objects.Meta{ContentType: "text/plain"})
	require.NoError(t, err)
	part(t, b.Bucket, u, 7, "something else")
	three, seven, nine := part(t, b.Bucket, u, 3, "three"), part(t, b.Bucket, u, 7, "seven"), part(t, b.Bucket, u, 9, "")
	last := part(t, b.Bucket, u, care.MaxParts, "the end")
	part(t, b.Bucket, u, 8, "not named")
	page, err := b.List(ctx, objects.Query{})
	require.NoError(t, err)
	require.Empty(t, page.Items, "an upload is no object")
	page, err = b.ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	require.Empty(t, page.Items)
	parts, more, err := b.ListParts(ctx, key, u.ID, 3, 2)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, []int{7, 8}, []int{parts[0].Number, parts[1].Number})
	require.Equal(t, seven.ETag, parts[0].ETag)
	require.Equal(t, int64(5), parts[0].Size)

	complete := func(named ...objects.Part) (objects.Info, error) { return b.Complete(ctx, key, u.ID, named, nil) }
	_, err = complete(seven, three)
	require.ErrorIs(t, err, objects.ErrPartOrder)
	_, err = complete(three, three)
	require.ErrorIs(t, err, objects.ErrPartOrder)
	_, err = complete(three, objects.Part{Number: 4, ETag: seven.ETag})
	require.ErrorIs(t, err, objects.ErrInvalidPart)
	_, err = complete(three, objects.Part{Number: 7, ETag: three.ETag})
	require.ErrorIs(t, err, objects.ErrInvalidPart)
	_, err = complete()
	require.ErrorIs(t, err, store.InvalidArgument)
	refused := errors.New("too small")
	_, err = b.Complete(ctx, key, u.ID, []objects.Part{three}, func(objects.Upload, []objects.Part) ([]objects.Pair, error) {
		return nil, refused
	})
	require.ErrorIs(t, err, refused)

	info, err := b.Complete(ctx, key, u.ID, []objects.Part{three, seven, nine, last},
		func(_ objects.Upload, parts []objects.Part) ([]objects.Pair, error) {
			require.Len(t, parts, 4)
			return []objects.Pair{{Name: "crc32", Value: "x"}}, nil
		})
	require.NoError(t, err)
	sums := md5.New()
	for _, body := range []string{"three", "seven", "", "the end"} {
		sum := md5.Sum([]byte(body))
		sums.Write(sum[:])
	}
	require.Equal(t, fmt.Sprintf("%x-4", sums.Sum(nil)), info.ETag())
	require.Greater(t, info.ID.Stamp, u.ID.Stamp+1, "it counts from its completion")
	require.EqualValues(t, 4, info.Parts)
	require.Equal(t, "text/plain", info.ContentType)
	got, err := b.Head(ctx, key, objects.Latest)
	require.NoError(t, err)
	require.Equal(t, info.ETag(), got.ETag())
	require.Equal(t, []objects.Pair{{Name: "crc32", Value: "x"}}, got.Meta().Sums)
	const body = "threeseventhe end"
	for offset := range len(body) + 1 {
		for n := range len(body) + 2 - offset {
			want := body[offset:min(offset+n, len(body))]
			require.Equal(t, want, read(t, b.Bucket, key, objects.Range{Offset: int64(offset), N: int64(n)}))
		}
	}
	_, parts, err = b.Parts(ctx, key, info.ID)
	require.NoError(t, err)
	for i, want := range []int{3, 7, 9, care.MaxParts} {
		require.Equal(t, want, parts[i].Number)
		require.Equal(t, []int64{5, 5, 0, 7}[i], parts[i].Size)
	}

	// What comes after it.
	again, err := complete(three, seven, nine, last)
	require.NoError(t, err)
	require.Equal(t, got.ETag(), again.ETag())
	_, err = complete(three, seven)
	require.ErrorIs(t, err, objects.ErrNoSuchUpload)
	require.ErrorIs(t, b.Abort(ctx, key, u.ID), objects.ErrNoSuchUpload)
	_, err = b.PutPart(ctx, key, u.ID, 1, strings.NewReader(""), objects.Meta{Size: -1})
	require.ErrorIs(t, err, objects.ErrNoSuchUpload)
	_, _, err = b.ListParts(ctx, key, u.ID, 0, 0)
	require.ErrorIs(t, err, objects.ErrNoSuchUpload)
	uploads, err := b.ListUploads(ctx, objects.UploadQuery{})
	require.NoError(t, err)
	require.Empty(t, uploads.Items)

	// Nothing but the version stays.
	c := b.cleaner(t, care.CleanOptions{})
	for range 3 {
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		b.now = b.now.Add(25 * time.Hour)
	}
	require.Len(t, b.blobs.m, 4)
	require.Equal(t, body, read(t, b.Bucket, key, objects.All))
	_, err = b.DeleteVersion(ctx, key, info.ID)
	require.NoError(t, err)
	for range 3 {
		_, err := c.Pass(ctx)
		require.NoError(t, err)
		b.now = b.now.Add(25 * time.Hour)
	}
	require.Empty(t, b.blobs.m)
}

// A list of many parts is a blob.
func TestManyParts(t *testing.T) {
	ctx, b, key := t.Context(), newPlace(t, memstore.New(), objects.Never), []byte("k")
	u, err := b.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	var named []objects.Part
	var body bytes.Buffer
	for i := range 1200 {
		text := fmt.Sprintf("part %d;", i+1)
		body.WriteString(text)
		named = append(named, part(t, b.Bucket, u, i+1, text))
	}
	parts, more, err := b.ListParts(ctx, key, u.ID, 0, 5000)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, parts, 1000)
	info, err := b.Complete(ctx, key, u.ID, named, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1200, info.Parts)
	require.Equal(t, body.String(), read(t, b.Bucket, key, objects.All))
	_, all, err := b.Parts(ctx, key, info.ID)
	require.NoError(t, err)
	require.Len(t, all, 1200)
	require.Equal(t, int64(len("part 1200;")), all[1199].Size)
	c := b.cleaner(t, care.CleanOptions{})
	for range 3 {
		_, err := c.Pass(ctx)
		require.NoError(t, err)
		b.now = b.now.Add(25 * time.Hour)
	}
	require.Equal(t, body.String(), read(t, b.Bucket, key, objects.All))
	require.Len(t, b.blobs.m, 1201)
}

// TestOneEndOfAnUpload runs each end of an upload at every single step of another one. One of two different
// ones succeeds, both of two equal ones, and whatever does not fail is so, also after cleaners.
func TestOneEndOfAnUpload(t *testing.T) {
	type end struct {
		name string
		do   func(context.Context, *objects.Bucket, objects.Upload, []objects.Part) error
	}
	ends := []end{
		{"completion", func(ctx context.Context, b *objects.Bucket, u objects.Upload, parts []objects.Part) error {
			_, err := b.Complete(ctx, u.Key, u.ID, parts, nil)
			return err
		}},
		{"completion of another part", func(ctx context.Context, b *objects.Bucket, u objects.Upload, parts []objects.Part) error {
			_, err := b.Complete(ctx, u.Key, u.ID, parts[:1], nil)
			return err
		}},
		{"abort", func(ctx context.Context, b *objects.Bucket, u objects.Upload, _ []objects.Part) error {
			return b.Abort(ctx, u.Key, u.ID)
		}},
	}
	for i, outer := range ends {
		for j, inner := range ends {
			t.Run(inner.name+" in "+outer.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					outers, inners := 0, 0
					for step := 1; ; step++ {
						hooked := &listtest.Hooked{Store: memstore.New()}
						b := newPlace(t, hooked, objects.Enabled)
						u, err := b.CreateUpload(t.Context(), []byte("k"), objects.Meta{})
						require.NoError(t, err)
						named := []objects.Part{part(t, b.Bucket, u, 1, "one"), part(t, b.Bucket, u, 2, "two")}
						calls, innerErr := 0, error(nil)
						hooked.Hook = func() {
							if calls++; calls == step {
								innerErr = inner.do(t.Context(), b.Bucket, u, named)
							}
						}
						outerErr := outer.do(t.Context(), b.Bucket, u, named)
						hooked.Hook = nil
						if calls < step {
							break
						}
						for _, err := range []error{outerErr, innerErr} {
							if err != nil && !errors.Is(err, objects.ErrUploadEnds) {
								require.ErrorIs(t, err, objects.ErrNoSuchUpload)
							}
						}
						if i == j && outer.name != "abort" {
							require.NoError(t, errors.Join(outerErr, innerErr))
						}
						wants := ""
						for _, e := range []struct {
							which int
							err   error
						}{{i, outerErr}, {j, innerErr}} {
							if e.err == nil {
								want := []string{"onetwo", "one", "aborted"}[e.which]
								require.Contains(t, []string{"", want}, wants, "step %d: %v, %v", step, outerErr, innerErr)
								wants = want
							}
						}
						require.NotEmpty(t, wants, "step %d: both failed: %v, %v", step, outerErr, innerErr)
						if outerErr == nil {
							outers++
						}
						if innerErr == nil {
							inners++
						}
						c := b.cleaner(t, care.CleanOptions{})
						for range 5 {
							_, err := b.Head(t.Context(), u.Key, objects.Latest)
							switch {
							case wants == "aborted":
								require.ErrorIs(t, err, listing.ErrNotFound)
							case wants != "":
								require.Equal(t, wants, read(t, b.Bucket, u.Key, objects.All))
							}
							done, err := c.Pass(t.Context())
							require.NoError(t, err)
							require.NoError(t, done.FirstFailure)
							b.now = b.now.Add(25 * time.Hour)
						}
						switch {
						case wants == "aborted":
							require.Empty(t, b.blobs.m)
						case wants == "onetwo":
							require.Len(t, b.blobs.m, 2)
						case wants == "one":
							require.Len(t, b.blobs.m, 1)
						}
					}
					require.Positive(t, outers)
					require.Positive(t, inners)
				})
			})
		}
	}
}

// TestEndsOfAnUploadSideBySide runs different ends of an upload at once. One of them succeeds, and the others
// learn of it.
func TestEndsOfAnUploadSideBySide(t *testing.T) {
	r := seed.New(t)
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			hooked := &listtest.Hooked{Store: memstore.New()}
			b := newPlace(t, hooked, objects.Enabled)
			u, err := b.CreateUpload(t.Context(), []byte("k"), objects.Meta{})
			require.NoError(t, err)
			named := []objects.Part{part(t, b.Bucket, u, 1, "one"), part(t, b.Bucket, u, 2, "two")}
			var mu sync.Mutex
			hooked.Hook = func() {
				mu.Lock()
				d := time.Duration(r.IntN(5)) * time.Millisecond
				mu.Unlock()
				time.Sleep(d)
			}
			var all sync.WaitGroup
			errs := make([]error, 3)
			all.Go(func() { _, errs[0] = b.Complete(t.Context(), u.Key, u.ID, named, nil) })
			all.Go(func() { _, errs[1] = b.Complete(t.Context(), u.Key, u.ID, named[1:], nil) })
			all.Go(func() { errs[2] = b.Abort(t.Context(), u.Key, u.ID) })
			all.Wait()
			wins := 0
			for _, err := range errs {
				if err == nil {
					wins++
				} else {
					require.ErrorIs(t, err, objects.ErrNoSuchUpload, "%v", errs)
				}
			}
			require.Equal(t, 1, wins, "%v", errs)
		})
	}
}

func TestUploadsAreListedInOrder(t *testing.T) {
	ctx, b := t.Context(), newPlace(t, memstore.New(), objects.Enabled)
	var want []string
	for _, key := range []string{"\x00", "a", "a\x00", "a/", "a/b", "a/c", "b", "\xff"} {
		for range 2 {
			u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
			require.NoError(t, err)
			part(t, b.Bucket, u, 1, "1")
			part(t, b.Bucket, u, 2, "2")
			want = append(want, fmt.Sprintf("%q %s", key, u.ID))
			id, err := objects.ParseUploadID(u.ID.String())
			require.NoError(t, err)
			require.Equal(t, u.ID, id)
			got, err := b.Upload(ctx, []byte(key), id)
			require.NoError(t, err)
			require.Equal(t, u, got)
		}
		_, err := b.Put(ctx, []byte(key), strings.NewReader("an object"), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	list := func(q objects.UploadQuery) (got []string) {
		for {
			page, err := b.ListUploads(ctx, q)
			require.NoError(t, err)
			for _, item := range page.Items {
				if item.CommonPrefix {
					got = append(got, fmt.Sprintf("common %q", item.Key))
				} else {
					got = append(got, fmt.Sprintf("%q %s", item.Key, item.ID))
				}
			}
			if q.Token = page.Next; q.Token == "" {
				return got
			}
		}
	}
	for _, limit := range []int{0, 1, 2, 3} {
		require.Equal(t, want, list(objects.UploadQuery{Limit: limit}))
		require.Equal(t, want[2:12], list(objects.UploadQuery{Limit: limit, Prefix: []byte("a")}))
		require.Equal(t, append(want[2:6:6], `common "a/"`),
			list(objects.UploadQuery{Limit: limit, Prefix: []byte("a"), Delimiter: []byte("/")}))
		require.Equal(t, want[4:], list(objects.UploadQuery{Limit: limit, After: []byte("a")}))
		first, err := b.ListUploads(ctx, objects.UploadQuery{Limit: 3})
		require.NoError(t, err)
		require.Equal(t, want[3:],
			list(objects.UploadQuery{Limit: limit, After: []byte("a"), AfterID: first.Items[2].ID}))
	}
	page, err := b.List(ctx, objects.Query{Prefix: []byte{0}})
	require.NoError(t, err)
	require.Len(t, page.Items, 1, "objects, no uploads")
}

// TestDeleteMarkersStayForOlderUploads: an upload counts from its creation. So what is deleted while it
// is open stays deleted when it completes, however late that is, where stamps are drawn when uploads are created.
func TestDeleteMarkersStayForOlderUploads(t *testing.T) {
	ctx, b, key := t.Context(), newPlaceOf(t, memstore.New(), objects.Never, 1), []byte("k")
	older, err := b.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	one := part(t, b.Bucket, older, 1, "one")
	b.now = b.now.Add(time.Minute)
	_, err = b.Delete(ctx, key)
	require.NoError(t, err)
	b.now = b.now.Add(time.Minute)
	younger, err := b.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	c := b.cleaner(t, care.CleanOptions{})
	clean := func() (done care.Cleaned) {
		b.now = b.now.Add(30 * 24 * time.Hour)
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		return done
	}
	require.Zero(t, clean().Unmarked)
	_, err = b.Complete(ctx, key, older.ID, []objects.Part{one}, nil)
	require.NoError(t, err)
	var unmarked int64
	for range 5 {
		_, err = b.Head(ctx, key, objects.Latest)
		require.ErrorIs(t, err, store.NotFound)
		unmarked += clean().Unmarked
	}
	require.EqualValues(t, 1, unmarked, "the older upload is over, and the younger one does not matter")
	require.Empty(t, b.blobs.m)
	two := part(t, b.Bucket, younger, 1, "two")
	_, err = b.Complete(ctx, key, younger.ID, []objects.Part{two}, nil)
	require.NoError(t, err)
	_, err = b.Head(ctx, key, objects.Latest)
	require.NoError(t, err)
}

// TestAbandonedUploadsAreDeleted, and one whose completion broke off behind its claim, too.
func TestAbandonedUploadsAreDeleted(t *testing.T) {
	ctx, b, key := t.Context(), newPlace(t, memstore.New(), objects.Enabled), []byte("k")
	u, err := b.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	one := part(t, b.Bucket, u, 1, "one")
	ends := b.cleaner(t, care.CleanOptions{})
	abandons := func(rules ...objects.Rule) { require.NoError(t, b.o.SetLifecycle(ctx, "objects", rules)) }
	abandons(objects.Rule{ID: "2", AbandonDays: 2}, objects.Rule{ID: "1", AbandonDays: 1, Prefix: "other"})
	for day := range 8 {
		_, err = ends.Pass(ctx)
		require.NoError(t, err)
		if day == 1 {
			abandons(objects.Rule{ID: "off", AbandonDays: 1, Disabled: true})
		}
		b.now = b.now.Add(25 * time.Hour)
	}
	require.Len(t, b.blobs.m, 1, "nobody asked for it to be deleted")
	abandons(objects.Rule{ID: "long", AbandonDays: 1000}, objects.Rule{ID: "2", AbandonDays: 2, Prefix: "k"})
	for range 4 {
		done, err := ends.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		_, err = b.Complete(ctx, key, u.ID, []objects.Part{one}, nil)
		require.ErrorIs(t, err, objects.ErrNoSuchUpload)
		b.now = b.now.Add(25 * time.Hour)
	}
	require.Empty(t, b.blobs.m)
	versions, err := b.ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	require.Empty(t, versions.Items)
}
