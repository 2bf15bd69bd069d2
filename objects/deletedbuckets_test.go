package objects_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// unnamed returns what audits find below names that no bucket has.
func unnamed(t *testing.T, o *objects.Objects) (found map[string][]care.Finding, sum care.Audited) {
	t.Helper()
	found = map[string][]care.Finding{}
	for name, err := range care.Of(o).Unnamed(t.Context()) {
		require.NoError(t, err)
		found[name] = nil
		require.NoError(t, care.Of(o).AuditUnnamed(t.Context(), name, func(part care.Audited) error {
			found[name] = append(found[name], part.Findings...)
			sum.Blobs, sum.Young = sum.Blobs+part.Blobs, sum.Young+part.Young
			return nil
		}))
	}
	return found, sum
}

// leftBehind makes a place with the body, and a part of an upload, of puts whose rows never came, and deletes their
// bucket.
func leftBehind(t *testing.T) (p *place, left []string) {
	ctx := t.Context()
	p = newPlace(t, memstore.New(), objects.Never)
	require.NoError(t, care.Claim(ctx, p.blobs, "0123"))
	_, err := p.Put(ctx, []byte("key"), strings.NewReader(strings.Repeat("x", 100)), objects.Meta{Size: -1})
	require.NoError(t, err)
	u, err := p.CreateUpload(ctx, []byte(strings.Repeat("long", 150)), objects.Meta{})
	require.NoError(t, err)
	part(t, p.Bucket, u, 1, "the first part of it")
	lost := maps.Clone(p.blobs.m)
	delete(lost, "_owner")
	require.NoError(t, p.Abort(ctx, u.Key, u.ID))
	_, err = p.Delete(ctx, []byte("key"))
	require.NoError(t, err)
	require.NoError(t, p.o.DeleteBucket(ctx, "objects"))
	maps.Copy(p.blobs.m, lost)
	require.Len(t, lost, 2)
	return p, slices.Sorted(maps.Keys(lost))
}

// Audits go from bucket to bucket: what failed puts have left of a bucket that was deleted was never found.
func TestOrphansOfDeletedBuckets(t *testing.T) {
	ctx := t.Context()
	p, left := leftBehind(t)
	found, sum := unnamed(t, p.o)
	require.Equal(t, map[string][]care.Finding{"objects": nil}, found)
	require.EqualValues(t, 2, sum.Young)
	p.now = p.now.Add(2 * time.Hour)
	found, sum = unnamed(t, p.o)
	require.Zero(t, sum.Young)
	require.EqualValues(t, 2, sum.Blobs)
	condemn := func() (errs []error) {
		for _, f := range found["objects"] {
			require.Equal(t, care.Orphan, f.Fault)
			errs = append(errs, care.Of(p.o).CondemnUnnamed(ctx, "objects", f))
		}
		return errs
	}
	refused := func(why string) {
		t.Helper()
		for _, err := range condemn() {
			require.ErrorIs(t, err, store.InvalidArgument)
			require.ErrorContains(t, err, why)
		}
		require.Len(t, found["objects"], 2)
		for _, name := range left {
			require.Contains(t, p.blobs.m, name)
		}
	}
	p.now = p.now.Add(11*24*time.Hour - 3*time.Hour)
	refused("is younger than")
	p.now = p.now.Add(2 * time.Hour)
	p.blobs.written = func(string) time.Time { return p.now.Add(-time.Hour) }
	refused("came to its place since")
	p.blobs.written = nil
	owner := p.blobs.m["_owner"]
	delete(p.blobs.m, "_owner")
	refused("has no mark _owner")
	p.blobs.m["_owner"] = owner

	// A new bucket has the name: its own audit finds them.
	require.NoError(t, p.o.CreateBucket(ctx, "objects"))
	none, _ := unnamed(t, p.o)
	require.Empty(t, none)
	refused("the name is taken")
	lines, _, _ := audit(t, p, "")
	require.Len(t, lines, 2)
	require.NoError(t, p.o.DeleteBucket(ctx, "objects"))

	require.Equal(t, []error{nil, nil}, condemn())
	require.Equal(t, []error{nil, nil}, condemn(), "they are gone")
	require.Len(t, p.blobs.m, 1)
	none, _ = unnamed(t, p.o)
	require.Empty(t, none)
}

// The name is given to a new bucket right behind the look: its bodies have other names, also of the same key.
func TestANewBucketOfTheNameKeepsItsBodies(t *testing.T) {
	ctx := t.Context()
	p, left := leftBehind(t)
	p.now = p.now.Add(12 * 24 * time.Hour)
	found, _ := unnamed(t, p.o)
	body := strings.Repeat("new", 50)
	p.blobs.written = func(string) time.Time { // after the look
		p.blobs.written = nil
		require.NoError(t, p.o.CreateBucket(ctx, "objects"))
		p.Bucket = p.o.Bucket("objects", objects.Never)
		_, err := p.Put(ctx, []byte("key"), strings.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
		return time.UnixMicro(1)
	}
	for i, f := range found["objects"] {
		err := care.Of(p.o).CondemnUnnamed(ctx, "objects", f)
		require.Equal(t, i > 0, errors.Is(err, store.InvalidArgument), err)
	}
	require.NotContains(t, p.blobs.m, left[0])
	require.Contains(t, p.blobs.m, left[1])
	require.Equal(t, body, read(t, p.Bucket, []byte("key"), objects.All))
}

// Proof is positive: the directory may have lost a record, and a bucket whose deletion is not at its end has its name.
func TestBodiesOfBucketsNotKnownToBeDeletedStay(t *testing.T) {
	ctx := t.Context()
	p, left := leftBehind(t)
	p.now = p.now.Add(12 * 24 * time.Hour)
	lost := "never" + strings.TrimPrefix(left[0], "objects")
	p.blobs.m[lost], p.blobs.m["=/x"], p.blobs.m["no_bucket/x"] = nil, nil, nil
	found, _ := unnamed(t, p.o)
	require.Len(t, found, 2)
	require.Len(t, found["never"], 1)
	require.Equal(t, care.Stranger, found["never"][0].Fault)
	for _, fault := range care.Faults() {
		f := care.Finding{Fault: fault, Blob: lost}
		require.ErrorIs(t, care.Of(p.o).CondemnUnnamed(ctx, "never", f), store.InvalidArgument)
	}
	require.Contains(t, p.blobs.m, lost)

	require.NoError(t, p.o.CreateBucket(ctx, "objects"))
	_, err := p.o.Bucket("objects", objects.Never).Put(ctx, []byte("key"), strings.NewReader("x"),
		objects.Meta{Size: -1})
	require.NoError(t, err)
	away := store.Errorf(store.Unavailable, "the bodies are away")
	require.ErrorIs(t, door.Client(p.c).DeleteBut(ctx, "objects", door.Remains{
		Gone:    func(_, _ []byte) bool { return true },
		Discard: func(context.Context, []byte, []byte) error { return away },
	}), away)
	require.ErrorIs(t, care.Of(p.o).CondemnUnnamed(ctx, "objects", found["objects"][0]), store.InvalidArgument)
	found, _ = unnamed(t, p.o)
	require.NotContains(t, found, "objects")
}
