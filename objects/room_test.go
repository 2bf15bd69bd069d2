package objects_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// fullStore takes only writes that make room, once it is full.
type fullStore struct {
	memstore.Store
	full bool
}

func (s *fullStore) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if s.full && !storekit.MakesRoom(ctx) {
		return store.Errorf(store.Unavailable, "%w: no room", store.ErrFull)
	}
	return s.Store.Put(ctx, p, rows...)
}

// A full disk can be emptied: deletes go on, and so do cleaners, which write rows before they delete bodies.
func TestAFullStoreCanBeEmptied(t *testing.T) {
	ctx, s := t.Context(), &fullStore{Store: memstore.New()}
	p := newPlace(t, s, objects.Never)
	put := func(key string) objects.Info {
		info, err := p.Put(ctx, []byte(key), strings.NewReader("a body that is not in the row"), objects.Meta{Size: -1})
		require.NoError(t, err)
		return info
	}
	put("hidden")
	deleted := put("deleted")
	s.full = true
	_, err := p.Delete(ctx, []byte("hidden"))
	require.NoError(t, err)
	_, err = p.DeleteVersion(ctx, []byte("deleted"), deleted.ID)
	require.NoError(t, err)
	_, err = p.Put(ctx, []byte("new"), strings.NewReader("x"), objects.Meta{Size: 1})
	require.ErrorIs(t, err, store.ErrFull)
	c := p.cleaner(t, care.CleanOptions{})
	for range 2 {
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		p.now = p.now.Add(25 * time.Hour)
	}
	require.Empty(t, p.blobs.m)
}

// Who makes room waits as long as writes of others may take, and leaves what a put may still write.
func TestVersionsAreDeletedAtOnceToMakeRoom(t *testing.T) {
	ctx, p := t.Context(), newPlace(t, memstore.New(), objects.Never)
	remove := func(key string) {
		info, err := p.Put(ctx, []byte(key), strings.NewReader("a body that is not in the row"), objects.Meta{Size: -1})
		require.NoError(t, err)
		_, err = p.DeleteVersion(ctx, []byte(key), info.ID)
		require.NoError(t, err)
	}
	remove("old")
	p.now = p.now.Add(time.Hour)
	remove("young")
	p.now = p.now.Add(5 * time.Minute)
	for _, left := range []int{2, 2, 2, 1} {
		_, err := p.cleaner(t, care.CleanOptions{Now: true}).Pass(ctx)
		require.NoError(t, err)
		require.Len(t, p.blobs.m, left)
		p.now = p.now.Add(care.SoonGrace / 2)
	}
	p.now = p.now.Add(time.Hour)
	_, err := p.cleaner(t, care.CleanOptions{}).Pass(ctx)
	require.NoError(t, err)
	require.Len(t, p.blobs.m, 1, "others wait for a day")
	_, err = p.cleaner(t, care.CleanOptions{Now: true}).Pass(ctx)
	require.NoError(t, err)
	require.Empty(t, p.blobs.m)
}
