package objects_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestAnUploadCountsFromItsCompletion: what was written or deleted since the upload was created is older. Whoever
// completes it again gets the same version.
func TestAnUploadCountsFromItsCompletion(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		ctx, p, key := t.Context(), newPlace(t, memstore.New(), v), []byte("key")
		u, err := p.CreateUpload(ctx, key, objects.Meta{})
		require.NoError(t, err)
		one, two := part(t, p.Bucket, u, 1, "the first part of a body"), part(t, p.Bucket, u, 2, ", the second")
		p.now = p.now.Add(time.Minute)
		_, err = p.Delete(ctx, key)
		require.NoError(t, err)
		p.now = p.now.Add(time.Minute)
		complete := func() objects.Info {
			info, err := p.Complete(ctx, key, u.ID, []objects.Part{one, two}, nil)
			require.NoError(t, err)
			return info
		}
		info := complete()
		require.Equal(t, "the first part of a body, the second", read(t, p.Bucket, key, objects.All))
		require.WithinDuration(t, p.now, info.Modified(), time.Second)
		require.Equal(t, info, complete())
		require.ErrorIs(t, p.Abort(ctx, key, u.ID), objects.ErrNoSuchUpload)

		// Cleaners free the upload, and keep the body; an audit finds nothing.
		audit := func() {
			t.Helper()
			require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
				require.Empty(t, a.Findings)
				return nil
			}))
		}
		c := p.cleaner(t, care.CleanOptions{})
		audit()
		for range 4 {
			done, err := c.Pass(ctx)
			require.NoError(t, err)
			require.Zero(t, done.Failed, done.FirstFailure)
			p.now = p.now.Add(25 * time.Hour)
			audit()
		}
		require.Equal(t, "the first part of a body, the second", read(t, p.Bucket, key, objects.All))
		require.Len(t, p.blobs.m, 2)
		require.Equal(t, info, complete(), "the rows of the upload are gone")

		// Once the version is deleted its parts are, too.
		_, err = p.DeleteVersion(ctx, key, info.ID)
		require.NoError(t, err)
		for range 4 {
			done, err := c.Pass(ctx)
			require.NoError(t, err)
			require.Zero(t, done.Failed, done.FirstFailure)
			p.now = p.now.Add(25 * time.Hour)
			audit()
		}
		require.Empty(t, p.blobs.m)
	}
}

// TestACompletionThatBrokeOffBeforeTheUpgrade of the schema is ended after it, at the stamp that its claim has, and the
// other way round.
func TestACompletionThatBrokeOffBeforeTheUpgrade(t *testing.T) {
	for _, newFirst := range []bool{false, true} {
		for writes := range 3 {
			synctest.Test(t, func(t *testing.T) {
				s := &breaking{memstore.New(), math.MaxInt}
				old, key := newPlaceOf(t, s, objects.Enabled, 1), []byte("key")
				c, err := listing.New(s, listing.Options{Timestamps: timestamps.New(func() time.Time { return old.now })})
				require.NoError(t, err)
				defer mapclient.Of(c).Close()
				o, err := objects.New(c, old.blobs, objects.Options{InlineBytes: 20})
				require.NoError(t, err)
				first, second := old.Bucket, o.Bucket("objects", objects.Enabled)
				if newFirst {
					first, second = second, first
				}
				u, err := old.CreateUpload(t.Context(), key, objects.Meta{})
				require.NoError(t, err)
				named := []objects.Part{part(t, old.Bucket, u, 1, "the whole body of it")}
				old.now = old.now.Add(time.Second)
				s.left = writes
				info, err := first.Complete(t.Context(), key, u.ID, named, nil)
				require.Equal(t, writes < 2, err != nil, err)
				s.left = math.MaxInt
				again, err := second.Complete(t.Context(), key, u.ID, named, nil)
				require.NoError(t, err, "broke off after %d writes", writes)
				require.True(t, writes < 2 || info.ID == again.ID)
				if writes > 0 {
					require.Equal(t, newFirst, again.ID != u.ID.Version())
				}
			})
		}
	}
}

// breaking is a store in which some more writes succeed. The outcome of others is unknown.
type breaking struct {
	store.Store
	left int
}

var errBroken = errors.New("it is broken")

func (f *breaking) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if f.left--; f.left < 0 {
		return errBroken
	}
	return f.Store.Put(ctx, p, rows...)
}

func (f *breaking) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if f.left--; f.left < 0 {
		return errBroken
	}
	return f.Store.Delete(ctx, p, key, ts)
}

// TestPartsStayForAClaimOfTheOlderForm: the version of the claim may come, from a data centre that was cut off. A
// deleted version of the same upload takes no parts along before that is burned.
func TestPartsStayForAClaimOfTheOlderForm(t *testing.T) {
	ctx, p, key := t.Context(), newPlace(t, memstore.New(), objects.Enabled), []byte("key")
	u, err := p.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	p.now = p.now.Add(time.Second)
	info, err := p.Complete(ctx, key, u.ID, []objects.Part{part(t, p.Bucket, u, 1, "the whole body of it")}, nil)
	require.NoError(t, err)
	rows := p.c.Bucket("objects")
	page, err := rows.List(ctx, listing.Query{})
	require.NoError(t, err)
	const parts = 2 + 3 + 2 + 14 + 1 // the place in the key of a claim where its parts are named
	at := slices.IndexFunc(page.Items, func(i listing.Item) bool { return len(i.Key) == parts+16+14 })
	require.Positive(t, at)
	claim := bytes.Clone(page.Items[at].Key)
	claim[parts]++
	require.NoError(t, rows.Put(ctx, claim, page.Items[at].Value[:9]))

	c := p.cleaner(t, care.CleanOptions{Now: true})
	pass := func(d time.Duration) {
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		p.now = p.now.Add(d)
	}
	pass(3 * time.Hour)
	_, err = p.DeleteVersion(ctx, key, info.ID)
	require.NoError(t, err)
	for range 4 {
		pass(5 * time.Minute)
		require.Len(t, p.blobs.m, 1)
	}
	for range 5 {
		pass(25 * time.Hour)
	}
	require.Empty(t, p.blobs.m)
}

// TestTheRowOfAnUploadSaysWhetherItIsNull: programs that know schema 1 complete an upload as its row says.
func TestTheRowOfAnUploadSaysWhetherItIsNull(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		p := newPlace(t, memstore.New(), v)
		_, err := p.CreateUpload(t.Context(), []byte("key"), objects.Meta{})
		require.NoError(t, err)
		page, err := p.c.Bucket("objects").List(t.Context(), listing.Query{})
		require.NoError(t, err)
		require.Len(t, page.Items, 1)
		const null = 2
		require.Equal(t, v == objects.Never, page.Items[0].Value[2]&null != 0)
	}
}
