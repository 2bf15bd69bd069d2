package mapclient_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// newDeepWorld has a map of three levels: its cuts are so long and so different
// that the root can't name all segments.
func newDeepWorld(t *testing.T) *world {
	w := newWorld(t, 1, mapclient.Options{})
	w.id = store.BucketID(uuid.New())
	rng := rand.New(rand.NewPCG(1, 1))
	cuts := cutsOf(45_000)
	for i := range cuts {
		for range 70 {
			cuts[i] = append(cuts[i], byte('a'+rng.IntN(26)))
		}
	}
	root, err := w.Create(w.ctx, w.id, cuts)
	require.NoError(t, err)
	require.Equal(t, uint8(2), root.Height)
	return w
}

// TestTornRootIsReadAgain: a blob of another version than its record, or of
// another bucket, is no damage; but it is not believed either.
func TestTornRootIsReadAgain(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	w.step()
	for name, tear := range map[string]func(*store.Record){
		"epoch":  func(r *store.Record) { r.Epoch-- },
		"token":  func(r *store.Record) { r.Token[3]++ },
		"bucket": func(r *store.Record) { r.Blob = otherRoot(t, r.Version) },
	} {
		for _, c := range []struct {
			torn int
			kind store.Kind
		}{{1, store.Other}, {2, store.Other}, {1000, store.Unavailable}} {
			reads := 0
			set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
				if reads++; reads <= c.torn {
					rec.Blob = slices.Clone(rec.Blob)
					tear(&rec)
				}
				return rec, err
			})
			fresh := mapclient.NewEmbedded(w.store, mapclient.Options{})
			l, err := fresh.Acquire(w.ctx, w.id)
			require.Equal(t, c.kind, store.KindOf(err), "%s, %d times: %v", name, c.torn, err)
			require.LessOrEqual(t, reads, 3)
			if err == nil {
				require.Equal(t, uint64(2), l.Root().Epoch)
			}
		}
	}
}

// otherRoot is a root of the same version in another bucket.
func otherRoot(t *testing.T, v store.Version) []byte {
	c, err := partmap.New(
		store.BucketID(uuid.New()), 0, []partmap.Entry{{Partition: store.PartitionID{1}}}, partmap.Stamp{},
	)
	require.NoError(t, err)
	c.Next.Epoch, c.Next.Token = v.Epoch, v.Token
	rec, err := partmap.EncodeRoot(c.Next)
	require.NoError(t, err)
	return rec.Blob
}

func TestDamagedRootIsRefused(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	set(w.store, &w.store.read, func(_ context.Context, rec store.Record, err error) (store.Record, error) {
		rec.Blob = slices.Clone(rec.Blob)
		rec.Blob[len(rec.Blob)/2] ^= 4
		return rec, err
	})
	_, err := mapclient.NewEmbedded(w.store, mapclient.Options{}).Acquire(w.ctx, w.id)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, w.id.String())
}

// TestRootThatGoesBackIsRefused: a store that was restored behind our back.
func TestRootThatGoesBackIsRefused(t *testing.T) {
	w := newWorld(t, 3, mapclient.Options{})
	old, err := w.store.Store.Read(w.ctx, store.Roots, w.id[:], store.Serial)
	require.NoError(t, err)
	w.step()
	set(w.store, &w.store.read, func(context.Context, store.Record, error) (store.Record, error) { return old, nil })
	_, err = w.Load(w.ctx, w.id)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorIs(t, w.Wait(w.ctx, w.id), store.Corrupt)
	l := w.lease()
	require.Equal(t, uint64(2), l.Root().Epoch)
}

// TestDamagedNodesAreRefusedAndNamed: one damaged, one missing, one in another's
// place; ranges of other nodes are found all the same.
func TestDamagedNodesAreRefusedAndNamed(t *testing.T) {
	for name, spoil := range map[string]func(w *world, id store.NodeID, blob []byte) ([]byte, error){
		"damaged": func(_ *world, _ store.NodeID, blob []byte) ([]byte, error) {
			blob[len(blob)/3] ^= 1
			return blob, nil
		},
		"missing": func(*world, store.NodeID, []byte) ([]byte, error) {
			return nil, store.Errorf(store.NotFound, "gone")
		},
		"cut off": func(_ *world, _ store.NodeID, blob []byte) ([]byte, error) { return blob[:len(blob)-1], nil },
		"empty":   func(*world, store.NodeID, []byte) ([]byte, error) { return nil, nil },
		"another's": func(w *world, id store.NodeID, blob []byte) ([]byte, error) {
			for page, err := w.store.ScanNodes(w.ctx, w.id, store.NodeID{}, 2); ; {
				require.NoError(w.t, err)
				for _, other := range page {
					if other != id {
						return w.store.Store.Node(w.ctx, w.id, other)
					}
				}
			}
		},
	} {
		w := newDeepWorld(t)
		l := w.lease()
		key := []byte("tenant/00020000")
		seen := 0
		var bad store.NodeID
		set(w.store, &w.store.node, func(_ context.Context, id store.NodeID, blob []byte, err error) ([]byte, error) {
			if seen++; seen == 2 { // the segment, after the index node
				bad = id
			}
			if id == bad {
				return spoil(w, id, blob)
			}
			return blob, err
		})
		for range 3 {
			_, err := w.Find(w.ctx, l, key)
			require.Equal(t, store.Corrupt, store.KindOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, bad.String(), name)
			require.ErrorContains(t, err, w.id.String(), name)
			require.NotErrorIs(t, err, mapclient.ErrStale)
			_, again := w.FindBefore(w.ctx, l, key)
			require.Equal(t, err, again, name)
		}
		if name == "missing" { // and why can't be found out
			away := store.Errorf(store.Unavailable, "away")
			set(w.store, &w.store.read, func(context.Context, store.Record, error) (store.Record, error) {
				return store.Record{}, away
			})
			_, err := w.Find(w.ctx, l, key)
			require.ErrorIs(t, err, away)
			set(w.store, &w.store.read, nil)
		}
		_, err := w.Find(w.ctx, l, []byte("tenant/00000005"))
		require.NoError(t, err)
		n := 0
		for _, err = range w.Ranges(w.ctx, l.Root(), nil) {
			if err == nil {
				n++
			}
		}
		require.Equal(t, store.Corrupt, store.KindOf(err), "a listing of ranges ends with the error")
		require.Less(t, n, 20_000)
		set(w.store, &w.store.node, nil)
		r, err := w.Find(w.ctx, l, key)
		require.NoError(t, err)
		require.True(t, r.Contains(key))
	}
}

// TestCollectedNodeMeansANewLease: the map moved on and the old nodes were
// collected; the old lease says so, and a new one finds the range.
func TestCollectedNodeMeansANewLease(t *testing.T) {
	w := newDeepWorld(t)
	l := w.lease()
	key := []byte("tenant/00020000")
	r, err := w.Find(w.ctx, l, key)
	require.NoError(t, err)
	change := w.rehome(r.Start)
	require.NoError(t, w.Swap(w.ctx, change))
	require.Len(t, change.Replaced, 2)
	for _, id := range change.Replaced {
		require.NoError(t, w.store.DeleteNode(w.ctx, w.id, id))
	}
	c := mapclient.NewEmbedded(w.store, mapclient.Options{})
	stale, err := partmap.DecodeRoot(w.id, rootRecord(t, l.Root()))
	require.NoError(t, err)
	for _, err := range c.Ranges(w.ctx, stale, key) {
		require.ErrorIs(t, err, mapclient.ErrStale)
		require.Equal(t, store.Unavailable, store.KindOf(err))
	}
	now, err := c.Acquire(w.ctx, w.id)
	require.NoError(t, err)
	r, err = c.Find(w.ctx, now, key)
	require.NoError(t, err)
	require.True(t, r.Contains(key))
	require.Equal(t, uint64(2), now.Root().Epoch)
}

func rootRecord(t *testing.T, r *partmap.Root) store.Record {
	rec, err := partmap.EncodeRoot(r)
	require.NoError(t, err)
	return rec
}

// TestOneLoadForManyCallers: who asks for the same node at the same time shares
// one read; one caller's end does not end it for the others.
func TestOneLoadForManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 60_000, mapclient.Options{}) // the root over segments
		require.Equal(t, uint8(1), w.lease().Root().Height)
		deliver := make(chan struct{})
		var mu sync.Mutex
		reads := 0
		set(w.store, &w.store.node, func(ctx context.Context, _ store.NodeID, blob []byte, err error) ([]byte, error) {
			mu.Lock()
			reads++
			mu.Unlock()
			select {
			case <-deliver:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return blob, err
		})
		l := w.lease()
		impatient, cancel := context.WithCancel(w.ctx)
		_, first := background(func() error { _, err := w.Find(impatient, l, []byte("tenant/00000005")); return err })
		synctest.Wait()
		var others []func() error
		for range 50 {
			_, result := background(func() error { _, err := w.Find(w.ctx, l, []byte("tenant/00000007")); return err })
			others = append(others, result)
		}
		synctest.Wait()
		cancel()
		require.ErrorIs(t, first(), store.Timeout)
		close(deliver)
		for _, result := range others {
			require.NoError(t, result())
		}
		require.Equal(t, 1, reads)
	})
}

// TestUnavailableStore: the kinds of the store's own errors come through.
func TestUnavailableStore(t *testing.T) {
	w := newDeepWorld(t)
	l := w.lease()
	set(w.store, &w.store.node, func(context.Context, store.NodeID, []byte, error) ([]byte, error) {
		return nil, store.Errorf(store.Unavailable, "away")
	})
	_, err := w.Find(w.ctx, l, []byte("tenant/00020000"))
	require.ErrorIs(t, err, store.Unavailable)
	set(w.store, &w.store.read, func(context.Context, store.Record, error) (store.Record, error) {
		return store.Record{}, store.Errorf(store.Unavailable, "away")
	})
	_, err = w.Load(w.ctx, w.id)
	require.ErrorIs(t, err, store.Unavailable)
	w.lease().Release() // what is in memory is not in doubt
	require.ErrorIs(t, w.Wait(w.ctx, w.id), store.Unavailable)
}

// TestNodesOfAnotherHeight: a whole node where its parent says that one of another
// height is, read anew or known already.
func TestNodesOfAnotherHeight(t *testing.T) {
	w := newWorld(t, 1, mapclient.Options{})
	id := store.BucketID(uuid.New())
	rng := rand.New(rand.NewPCG(1, 1))
	cuts := make([][]byte, 1200)
	for i := range cuts {
		cuts[i] = make([]byte, 1000)
		for j := range cuts[i] {
			cuts[i][j] = byte('a' + rng.IntN(26))
		}
	}
	slices.SortFunc(cuts, slices.Compare)
	root, err := w.Create(w.ctx, id, cuts)
	require.NoError(t, err)
	require.Equal(t, uint8(2), root.Height)
	index := root.Children[0].Node
	blob, err := w.store.Node(w.ctx, id, index)
	require.NoError(t, err)
	x, err := mapcodec.DecodeIndex(id, index, blob)
	require.NoError(t, err)
	wrong := func(height uint8, n store.NodeID) *partmap.Root {
		r := *root
		r.Height, r.Children = height, slices.Clone(r.Children)
		r.Children[0].Node = n
		return &r
	}
	for _, known := range []bool{false, true} {
		c := mapclient.NewEmbedded(w.store, mapclient.Options{})
		if known {
			for _, err := range c.Ranges(w.ctx, root, nil) {
				require.NoError(t, err)
			}
		}
		for text, r := range map[string]*partmap.Root{
			"is a segment, its parent says that it has height 1": wrong(2, x.Node(0)),
			"has height 1, its parent says 0":                    wrong(1, index),
			"has height 1, its parent says 2":                    wrong(3, index),
		} {
			seen := 0
			for _, err := range c.Ranges(w.ctx, r, nil) {
				seen++
				require.Equal(t, store.Corrupt, store.KindOf(err), "%v", err)
				if known {
					require.ErrorContains(t, err, text)
				}
			}
			require.Equal(t, 1, seen)
			_, _, err := c.RangeBefore(w.ctx, r, cuts[0])
			require.Equal(t, store.Corrupt, store.KindOf(err))
		}
		_, found, err := c.RangeBefore(w.ctx, root, nil)
		require.NoError(t, err)
		require.False(t, found)
		rg, found, err := c.RangeBefore(w.ctx, root, cuts[700])
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, cuts[699], rg.Start)
		require.Equal(t, cuts[700], rg.End)
		u := c.Usage()
		require.Positive(t, u.NodeBytes)
		require.Zero(t, u.Buckets)
	}
}
