package objects_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// during is a body during which something is done: right before its end is seen.
type during struct {
	io.Reader
	do func()
}

func (d *during) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if do := d.do; do != nil && err != nil {
		d.do = nil
		do()
	}
	return n, err
}

const largest = "a body that is longer than what rows have"

// TestPutsCountFromTheEndOfTheirBodies: what was written or deleted while the body of a put or a copy came is older.
// Cleaners keep its blob, and delete it once the version is deleted.
func TestPutsCountFromTheEndOfTheirBodies(t *testing.T) {
	for _, v := range []objects.Status{objects.Enabled, objects.Never} {
		for _, body := range []string{"small", largest} {
			for _, what := range []string{"put", "delete"} {
				for _, how := range []string{"put", "copy", "put of a long key"} {
					t.Run(strings.Join([]string{body[:5], how, what}, ", "), func(t *testing.T) {
						p := newPlace(t, memstore.New(), v)
						endsLast(t, p, body, what, how)
					})
				}
			}
		}
	}
}

// endsLast puts or copies a body, while something else is done with the key.
func endsLast(t *testing.T, p *place, body, what, how string) {
	ctx, key := t.Context(), []byte("key")
	if strings.HasSuffix(how, "long key") {
		key = []byte(strings.Repeat("key", 200))
	}
	var hidden objects.Info
	do := func() {
		p.now = p.now.Add(time.Minute)
		var err error
		if hidden, err = p.Delete(ctx, key); what == "put" {
			hidden, err = p.Put(ctx, key, strings.NewReader(largest+"!"), objects.Meta{Size: -1})
		}
		require.NoError(t, err)
		p.now = p.now.Add(time.Minute)
	}
	var info objects.Info
	var err error
	if how == "copy" {
		from := []byte("from")
		_, err = p.Put(ctx, from, strings.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
		if p.blobs.reading = do; body != largest { // it is read with its row
			do()
		}
		info, err = copyOf(ctx, p.Bucket, key, from, objects.Latest, nil)
		p.blobs.reading = nil
	} else {
		info, err = p.Put(ctx, key, &during{strings.NewReader(body), do}, objects.Meta{Size: -1})
	}
	require.NoError(t, err)
	require.Equal(t, body, read(t, p.Bucket, key, objects.All))
	require.Less(t, info.ID.String(), hidden.ID.String(), "newest first")
	require.WithinDuration(t, p.now, info.Modified(), time.Second)

	audit := func() (found int) {
		require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
			found += len(a.Findings)
			return nil
		}))
		return found
	}
	clean := func() {
		c := p.cleaner(t, care.CleanOptions{})
		for range 3 {
			done, err := c.Pass(ctx)
			require.NoError(t, err)
			require.NoError(t, done.FirstFailure)
			p.now = p.now.Add(25 * time.Hour)
			require.Zero(t, audit())
		}
	}
	require.Zero(t, audit())
	clean()
	require.Equal(t, body, read(t, p.Bucket, key, objects.All))
	page, err := p.ListVersions(ctx, objects.Query{})
	require.NoError(t, err)
	for _, item := range page.Items {
		_, err := p.DeleteVersion(ctx, item.Key, item.ID)
		require.NoError(t, err)
	}
	clean()
	require.Empty(t, p.blobs.m)
}

// TestThePartCountsWhoseBodyEndedLast of parts with one number.
func TestThePartCountsWhoseBodyEndedLast(t *testing.T) {
	ctx, p, key := t.Context(), newPlace(t, memstore.New(), objects.Enabled), []byte("key")
	u, err := p.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	first := &during{strings.NewReader("the first part that was begun"), func() { part(t, p.Bucket, u, 1, "the second") }}
	made, err := p.PutPart(ctx, key, u.ID, 1, first, objects.Meta{Size: -1})
	require.NoError(t, err)
	_, err = p.Complete(ctx, key, u.ID, []objects.Part{{Number: 1, ETag: made.ETag}}, nil)
	require.NoError(t, err)
	require.Equal(t, "the first part that was begun", read(t, p.Bucket, key, objects.All))
}

// TestPutsCountFromTheirBeginningBeforeTheUpgrade of the schema, where a blob is needed: a program that knows schema 2
// may take such a blob for that of a version at the stamp that its name tells.
func TestPutsCountFromTheirBeginningBeforeTheUpgrade(t *testing.T) {
	for _, schema := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, p, key := t.Context(), newPlaceOf(t, memstore.New(), objects.Enabled, schema), []byte("key")
			var second objects.Info
			do := func() {
				p.now = p.now.Add(time.Minute)
				var err error
				second, err = p.Put(ctx, key, strings.NewReader("small"), objects.Meta{Size: -1})
				require.NoError(t, err)
			}
			first, err := p.Put(ctx, key, &during{strings.NewReader(largest), do}, objects.Meta{Size: -1})
			require.NoError(t, err)
			require.Greater(t, first.ID.String(), second.ID.String())
			for name := range p.blobs.m {
				require.True(t, strings.HasSuffix(name, first.ID.String()), name)
			}
			_, err = p.Put(ctx, key, &during{strings.NewReader("small, too"), do}, objects.Meta{Size: -1})
			require.NoError(t, err)
			require.Equal(t, "small, too", read(t, p.Bucket, key, objects.All))
		})
	}
}

// late is a store that keeps writes of rows to itself, and the last of them for later.
type late struct {
	store.Store
	keeps bool
	land  func(ctx context.Context) error
}

func (l *late) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if !l.keeps {
		return l.Store.Put(ctx, p, rows...)
	}
	l.land = func(ctx context.Context) error { return l.Store.Put(ctx, p, rows...) }
	return store.Errorf(store.Timeout, "nobody answers")
}

// TestABodyWaitsForItsRow: the row of a put whose outcome is unknown may come until it is settled. Nobody knows its
// stamp before, so its body stays, whoever condemns it. Once no row can come the body is deleted.
func TestABodyWaitsForItsRow(t *testing.T) {
	for _, lands := range []bool{true, false} {
		ctx, s, key := t.Context(), &late{Store: memstore.New()}, []byte("key")
		p := newPlace(t, s, objects.Never)
		_, err := p.Put(ctx, key, strings.NewReader("the body before, which is large"), objects.Meta{Size: -1})
		require.NoError(t, err)
		p.now = p.now.Add(time.Minute)
		s.keeps = true
		_, err = p.Put(ctx, key, strings.NewReader(largest), objects.Meta{Size: -1})
		require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
		require.Len(t, p.blobs.m, 2)
		s.keeps = false

		c := p.cleaner(t, care.CleanOptions{})
		condemn := func() (outcomes []error) {
			require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
				for _, f := range a.Findings {
					require.Equal(t, care.Orphan, f.Fault)
					require.Equal(t, key, f.Key)
					outcomes = append(outcomes, c.Condemn(ctx, f))
				}
				return nil
			}))
			_, err := c.Pass(ctx)
			require.NoError(t, err)
			return outcomes
		}
		require.Empty(t, condemn(), "the put may be under way")
		for range 10 {
			p.now = p.now.Add(26 * time.Hour)
			outcomes := condemn()
			require.Len(t, outcomes, 1)
			require.ErrorContains(t, outcomes[0], "one may still come")
			require.ErrorIs(t, outcomes[0], store.InvalidArgument)
		}
		want := "the body before, which is large"
		if lands {
			require.NoError(t, s.land(ctx))
			want = largest
		}
		require.Equal(t, want, read(t, p.Bucket, key, objects.All))
		p.now = p.now.Add(26 * time.Hour)
		if lands {
			require.Empty(t, condemn())
		} else {
			require.Equal(t, []error{nil}, condemn())
		}
		for range 3 {
			p.now = p.now.Add(26 * time.Hour)
			require.Empty(t, condemn())
		}
		require.Len(t, p.blobs.m, 1)
		require.Equal(t, want, read(t, p.Bucket, key, objects.All))
	}
}
