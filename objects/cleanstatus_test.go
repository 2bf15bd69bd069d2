package objects_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// The status of a bucket may change while a pass of the cleaner runs, which may take hours. What expires after
// versioning was enabled stays as a noncurrent version, whatever the status was when the cleaner was made.
func TestCleanersActByTheStatusOfTheMoment(t *testing.T) {
	ctx := t.Context()
	p := newPlace(t, memstore.New(), objects.Never)
	require.NoError(t, p.o.SetLifecycle(ctx, "objects", daily))
	info, err := p.Put(ctx, []byte("logs/k"), strings.NewReader("body"), objects.Meta{Size: 4})
	require.NoError(t, err)
	c := p.cleaner(t, care.CleanOptions{})
	_, err = c.Pass(ctx)
	require.NoError(t, err)

	require.NoError(t, p.o.SetStatus(ctx, "objects", objects.Enabled))
	p.now = p.now.Add(80 * 24 * time.Hour)
	did, err := c.Pass(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, did.Expired)
	_, err = p.Head(ctx, []byte("logs/k"), info.ID)
	require.NoError(t, err, "a noncurrent version")
	_, err = p.Head(ctx, []byte("logs/k"), objects.Latest)
	require.ErrorIs(t, err, store.NotFound, "the object has expired")
}

// A step that a group of versions asks for is not taken by settings that were changed since: each step looks again.
func TestCleanersLookAtSettingsBeforeEachStep(t *testing.T) {
	for name, change := range map[string]func(context.Context, *place) error{
		"versioning is enabled": func(ctx context.Context, p *place) error {
			return p.o.SetStatus(ctx, "objects", objects.Enabled)
		},
		"the rules are deleted": func(ctx context.Context, p *place) error {
			return p.o.SetLifecycle(ctx, "objects", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			p := newPlace(t, memstore.New(), objects.Never)
			require.NoError(t, p.o.SetLifecycle(ctx, "objects", daily))
			for _, key := range []string{"logs/1", "logs/2"} {
				_, err := p.Put(ctx, []byte(key), strings.NewReader("body"), objects.Meta{Size: 4})
				require.NoError(t, err)
			}
			changed := false
			c := p.cleaner(t, care.CleanOptions{Before: func(d care.Deed) bool {
				if !changed {
					changed = true
					require.NoError(t, change(ctx, p))
				}
				return true
			}})
			p.now = p.now.Add(80 * 24 * time.Hour)
			_, err := c.Pass(ctx)
			require.NoError(t, err)
			require.True(t, changed)
			page, err := p.o.Bucket("objects", objects.Enabled).ListVersions(ctx, objects.Query{})
			require.NoError(t, err)
			bodies := 0
			for _, item := range page.Items {
				if !item.Marker {
					bodies++
				}
			}
			require.Equal(t, 2, bodies, "no version is burned by the settings of before")
		})
	}
}

// Where versioning is suspended an object that expires gets a null delete marker, which takes the place of a null
// version, as S3 documents it ("Expiring objects"). So nothing stays below the marker for ever.
func TestExpiredNullVersionsOfSuspendedBucketsAreReplaced(t *testing.T) {
	ctx := t.Context()
	p := newPlace(t, memstore.New(), objects.Never)
	require.NoError(t, p.o.SetStatus(ctx, "objects", objects.Enabled))
	key := []byte("logs/k")
	versioned := p.o.Bucket("objects", objects.Enabled)
	old, err := versioned.Put(ctx, key, strings.NewReader("a version"), objects.Meta{Size: 9})
	require.NoError(t, err)
	require.NoError(t, p.o.SetStatus(ctx, "objects", objects.Suspended))
	_, err = p.Put(ctx, key, strings.NewReader("the null version"), objects.Meta{Size: 16})
	require.NoError(t, err)
	require.NoError(t, p.o.SetLifecycle(ctx, "objects", daily))
	c, err := care.OfBucket(versioned).Cleaner(care.CleanOptions{})
	require.NoError(t, err)
	for range 10 {
		p.now = p.now.Add(8 * 24 * time.Hour)
		_, err := c.Pass(ctx)
		require.NoError(t, err)
	}
	page, err := versioned.ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	require.Len(t, page.Items, 2, "the marker, and the version of when versioning was enabled")
	require.True(t, page.Items[0].Marker)
	require.True(t, page.Items[0].Null)
	require.Equal(t, old.ID, page.Items[1].ID)
}
