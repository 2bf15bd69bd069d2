package listing_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestBucketStepsInterleaved runs a creation or deletion whole at every single
// step of another one. Afterwards the list of buckets, the directory and the
// bucket agree, and what succeeded last is so.
func TestBucketStepsInterleaved(t *testing.T) {
	ctx := context.Background() // not of this test: it runs in bubbles
	create := func(c *listing.Client) error { return c.CreateBucket(ctx, "b") }
	remove := func(c *listing.Client) error { return c.DeleteBucket(ctx, "b") }
	put := func(c *listing.Client) error { return c.Bucket("b").Put(ctx, []byte("k"), nil) }
	for name, test := range map[string]struct {
		exists       bool
		outer, inner func(*listing.Client) error
	}{
		"create while deleting":   {true, remove, create},
		"delete while deleting":   {true, remove, remove},
		"create while creating":   {false, create, create},
		"delete while creating":   {false, create, remove},
		"put while deleting":      {true, remove, put},
		"put while creating":      {false, create, put},
		"recreate while deleting": {true, remove, func(c *listing.Client) error { return errors.Join(remove(c), create(c)) }},
	} {
		inBubble(t, name, func(t *testing.T) {
			for step := int64(1); ; step++ {
				hooked := &listtest.Hooked{Store: memstore.New(), Registers: true}
				c, err := listing.New(hooked, listing.Options{})
				require.NoError(t, err)
				require.NoError(t, c.CreateBucket(ctx, "another")) // the list is there
				if test.exists {
					require.NoError(t, create(c))
				}
				var calls atomic.Int64
				inner := make(chan error, 1)
				hooked.Hook = func() {
					if calls.Add(1) == step {
						go func() { inner <- test.inner(c) }()
						synctest.Wait() // it is done, or waits for the leases of the outer one
					}
				}
				outerErr := test.outer(c)
				if calls.Load() < step {
					require.Greater(t, step, int64(5))
					return
				}
				innerErr := <-inner
				hooked.Hook = nil
				for _, err := range []error{outerErr, innerErr} {
					switch {
					case err == nil, errors.Is(err, listing.ErrBucketExists), errors.Is(err, listing.ErrNoSuchBucket),
						errors.Is(err, listing.ErrNotEmpty), errors.Is(err, store.Unavailable):
					default:
						require.NoError(t, err, "step %d", step)
					}
				}
				_, getErr := c.Bucket("b").Get(ctx, []byte("k"))
				exists := !errors.Is(getErr, listing.ErrNoSuchBucket)
				listed := false
				for info, err := range c.Buckets(ctx, "b", "") {
					require.NoError(t, err)
					listed = listed || info.Name == "b"
				}
				require.Equal(t, exists, listed, "step %d: outer %v, inner %v", step, outerErr, innerErr)
				if name == "put while deleting" && innerErr == nil {
					require.NoError(t, getErr, "step %d: an acknowledged entry keeps its bucket (%v)", step, outerErr)
					require.ErrorIs(t, outerErr, listing.ErrNotEmpty)
				}
				if outerErr != nil && innerErr != nil && test.exists {
					require.NotErrorIs(t, errors.Join(outerErr, innerErr), listing.ErrNotEmpty)
				}
			}
		})
	}
}
