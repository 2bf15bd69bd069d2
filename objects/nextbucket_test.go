package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// interrupted does something before one of the calls of an operation.
type interrupted struct {
	mu     sync.Mutex
	n      int // 0: before none
	seen   int
	before func()
}

func (i *interrupted) next() {
	i.mu.Lock()
	now := false
	if i.n > 0 {
		if i.seen++; i.seen == i.n {
			i.n, now = 0, true // the calls of before are none of the operation
		}
	}
	i.mu.Unlock()
	if now {
		i.before()
	}
}

// ends ends interruptions, and returns how many calls were seen.
func (i *interrupted) ends() (seen int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n = 0
	return i.seen
}

// interruptedRows are a store of rows of which each call of an operation on rows or registers is interrupted.
type interruptedRows struct {
	store.Store
	*interrupted
}

func (s interruptedRows) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	s.next()
	return s.Store.Put(ctx, p, rows...)
}

func (s interruptedRows) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	s.next()
	return s.Store.Delete(ctx, p, key, ts)
}

func (s interruptedRows) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	s.next()
	return s.Store.Get(ctx, p, key)
}

func (s interruptedRows) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	s.next()
	return s.Store.Slice(ctx, p, b, o)
}

func (s interruptedRows) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	s.next()
	return s.Store.Read(ctx, t, key, l)
}

// interruptedStamps are interrupted where an operation draws the stamp of its next step.
type interruptedStamps struct {
	listing.Timestamps
	*interrupted
}

func (s interruptedStamps) Next(ctx context.Context, n int) (store.Timestamp, error) {
	s.next()
	return s.Timestamps.Next(ctx, n)
}

// interruptedBlobs are interrupted, as the store of rows beside them is.
type interruptedBlobs struct {
	*blobsInMemory
	*interrupted
}

// Create is interrupted once the body is stored, too.
func (b interruptedBlobs) Create(ctx context.Context, name string, body io.Reader, n int64) error {
	b.next()
	err := b.blobsInMemory.Create(ctx, name, body, n)
	b.next()
	return err
}

// List is interrupted once all is listed, too.
func (b interruptedBlobs) List(ctx context.Context, prefix, after string, each func(string, int64) error) error {
	b.next()
	err := b.blobsInMemory.List(ctx, prefix, after, each)
	b.next()
	return err
}

// nextBucketCase is an operation that begins in a bucket with an object and an upload in it.
type nextBucketCase struct {
	b    *objects.Bucket
	o    *objects.Objects
	at   objects.ID
	up   objects.UploadID
	part objects.Part
}

var nextBucketOperations = map[string]func(context.Context, *nextBucketCase) error{
	"Put": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.Put(ctx, []byte("k"), bytes.NewReader(make([]byte, 10_000)), objects.Meta{Size: -1})
		return err
	},
	"DeleteVersion": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.DeleteVersion(ctx, []byte("object"), c.at)
		return err
	},
	"SetTags": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.SetTags(ctx, []byte("object"), objects.Latest, []objects.Pair{{Name: "a", Value: "b"}})
		return err
	},
	"PutPart": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.PutPart(ctx, []byte("up"), c.up, 2, bytes.NewReader(make([]byte, 10_000)), objects.Meta{Size: -1})
		return err
	},
	"Complete": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.Complete(ctx, []byte("up"), c.up, []objects.Part{c.part}, nil)
		return err
	},
	"Delete": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.Delete(ctx, []byte("object"))
		return err
	},
	"CreateUpload": func(ctx context.Context, c *nextBucketCase) error {
		_, err := c.b.CreateUpload(ctx, []byte("k"), objects.Meta{})
		return err
	},
	"Abort": func(ctx context.Context, c *nextBucketCase) error {
		return c.b.Abort(ctx, []byte("up"), c.up)
	},
	"Pass": func(ctx context.Context, c *nextBucketCase) error {
		cleaner, err := care.OfBucket(c.b).Cleaner(care.CleanOptions{})
		if err != nil {
			return err
		}
		_, err = cleaner.Pass(ctx)
		return err
	},
}

// TestOperationsStayInTheirBucket while the bucket of the name is emptied and deleted, and another one gets the name,
// before each call of the store of rows and of that of bodies: nothing of the operation is in the next bucket.
func TestOperationsStayInTheirBucket(t *testing.T) {
	for name, operation := range nextBucketOperations {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain: %v", name, plain), func(t *testing.T) {
				next := 0
				for n, ended := 1, false; !ended; n++ {
					synctest.Test(t, func(t *testing.T) {
						there, seen := staysInItsBucket(t, operation, n, plain)
						if there {
							next++
						}
						ended = seen < n
					})
				}
				require.Positive(t, next, "no other bucket came in between")
			})
		}
	}
}

func staysInItsBucket(
	t *testing.T, operation func(context.Context, *nextBucketCase) error, n int, plain bool,
) (there bool, seen int) {
	ctx, at := t.Context(), &interrupted{}
	rows := memstore.New()
	c, err := listing.New(interruptedRows{rows, at}, listing.Options{
		Timestamps: interruptedStamps{timestamps.Kept(rows, nil), at},
	})
	require.NoError(t, err)
	blobs := &blobsInMemory{m: map[string][]byte{}}
	o, err := objects.New(c, interruptedBlobs{blobs, at}, objects.Options{})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(ctx, "photos"))
	b := o.Bucket("photos", objects.Never)
	body := func() io.Reader { return bytes.NewReader(make([]byte, 10_000)) }
	i, err := b.Put(ctx, []byte("object"), body(), objects.Meta{Size: -1})
	require.NoError(t, err)
	u, err := b.CreateUpload(ctx, []byte("up"), objects.Meta{})
	require.NoError(t, err)
	p, err := b.PutPart(ctx, []byte("up"), u.ID, 1, body(), objects.Meta{Size: -1})
	require.NoError(t, err)

	made := make(chan error, 1)
	replace := func() error {
		page, err := b.ListVersions(ctx, objects.Query{})
		if err != nil {
			return err
		}
		for _, v := range page.Items {
			if _, err := b.DeleteVersion(ctx, v.Key, v.ID); err != nil && !errors.Is(err, listing.ErrNotFound) {
				return err
			}
		}
		if err := o.DeleteBucket(ctx, "photos"); err != nil {
			return err
		}
		if plain {
			return c.CreateBucket(ctx, "photos")
		}
		return o.CreateBucket(ctx, "photos")
	}
	begun := false
	at.n, at.before = n, func() {
		begun = true
		go func() { made <- replace() }()
		synctest.Wait() // it has ended, or waits for a lease of the operation
	}
	err = operation(ctx, &nextBucketCase{b, o, i.ID, u.ID, objects.Part{Number: 1, ETag: p.ETag}})
	seen = at.ends()
	if !begun {
		require.NoError(t, err)
		return false, seen
	}
	if replaced := <-made; replaced != nil {
		require.Contains(t, []store.Kind{store.Conflict, store.NotFound}, store.KindOf(replaced), "call %d: %v", n, replaced)
		return false, seen
	}
	for item, err := range c.Bucket("photos").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		require.Failf(t, "the next bucket has a row", "call %d: %q", n, item.Key)
	}
	known := []error{
		nil, listing.ErrNoSuchBucket, listing.ErrBucketClosing, listing.ErrNotFound,
		objects.ErrInvalidPart, // the body of the part was gone already
	}
	require.True(t, slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }), "call %d: %v", n, err)
	return true, seen
}
