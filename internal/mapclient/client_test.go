package mapclient_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func cutsOf(n int) [][]byte {
	cuts := make([][]byte, n)
	for i := range cuts {
		cuts[i] = []byte(fmt.Sprintf("tenant/%08d", i+1))
	}
	return cuts
}

func TestCreateFindAndRanges(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{0, 1, 20, 100, 5000, 300_000} {
		c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{})
		id := store.BucketID(uuid.New())
		cuts := cutsOf(n)
		_, err := c.Create(ctx, id, cuts)
		require.NoError(t, err)
		l, err := c.Acquire(ctx, id)
		require.NoError(t, err)
		i := 0
		for r, err := range c.Ranges(ctx, l.Root(), nil) {
			require.NoError(t, err)
			if i > 0 && string(r.Start) != string(cuts[i-1]) {
				t.Fatalf("range %d begins at %q", i, r.Start)
			}
			if i++; n > 10_000 && i%53 > 0 {
				continue
			}
			for _, at := range [][]byte{r.Start, append(r.Start[:len(r.Start):len(r.Start)], 0)} {
				got, err := c.Find(ctx, l, at)
				require.NoError(t, err)
				if string(got.Start) != string(r.Start) || string(got.End) != string(r.End) ||
					got.Partition != r.Partition {
					t.Fatalf("Find(%q) is %q to %q, want %q to %q", at, got.Start, got.End, r.Start, r.End)
				}
			}
			got, err := c.FindBefore(ctx, l, r.End)
			require.NoError(t, err)
			if got.Partition != r.Partition {
				t.Fatalf("FindBefore(%q) is %q to %q, want %q to %q", r.End, got.Start, got.End, r.Start, r.End)
			}
		}
		require.Equal(t, n+1, i)
		l.Release()
	}
}

func TestStateChangeIsPublished(t *testing.T) {
	ctx := context.Background()
	c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{})
	id := store.BucketID(uuid.New())
	_, err := c.Acquire(ctx, id)
	require.ErrorIs(t, err, store.NotFound)
	root, err := c.Create(ctx, id, cutsOf(3))
	require.NoError(t, err)
	change, err := mapclient.WithState(root, partmap.Closing, c.Stamp())
	require.NoError(t, err)
	require.NoError(t, c.Swap(ctx, change))
	_, err = c.Acquire(ctx, id)
	require.ErrorIs(t, err, mapclient.ErrClosing)
	require.NoError(t, c.Wait(ctx, id))
	require.ErrorIs(t, c.Swap(ctx, change), store.Conflict)
}

func TestSettingsOfANewBucket(t *testing.T) {
	ctx := context.Background()
	c := mapclient.NewEmbedded(memstore.New(), mapclient.Options{})
	id := store.BucketID(uuid.New())
	_, err := c.CreateWith(ctx, id, make([]byte, mapcodec.MaxSettingsBytes+1), cutsOf(3))
	require.ErrorIs(t, err, store.InvalidArgument)
	_, err = c.Load(ctx, id)
	require.ErrorIs(t, err, store.NotFound, "nothing was written")
	for _, settings := range [][]byte{nil, {1, 0}} {
		id = store.BucketID(uuid.New())
		root, err := c.CreateWith(ctx, id, settings, cutsOf(3))
		require.NoError(t, err)
		require.Equal(t, settings, root.Settings)
		require.Equal(t, uint64(4), root.Ranges)
		root, err = c.Load(ctx, id)
		require.NoError(t, err)
		require.Equal(t, settings, root.Settings)
	}
}
