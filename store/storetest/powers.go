package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runPowers(t *testing.T) {
	if l, ok := s.store.(store.PartitionLister); ok {
		t.Run("every partition with rows is listed once", func(t *testing.T) { s.partitions(t, l) })
	}
	if a, ok := s.store.(store.Acknowledger); ok {
		t.Run("what was acknowledged is read at once", func(t *testing.T) { s.acknowledged(t, a) })
	}
}

// acknowledged tests the method Acknowledge of a store, while several goroutines change a register by compare-and-swap.
// After Acknowledge has returned a record, a read at any level must find the same record or a newer one.
func (s *suite) acknowledged(t *testing.T, a store.Acknowledger) {
	_, err := a.Acknowledge(t.Context(), store.Clocks, newRegisterKey())
	requireKind(t, store.NotFound, err)
	_, err = a.Acknowledge(t.Context(), store.Roots, []byte("no bucket id"))
	requireKind(t, store.InvalidArgument, err)
	reg := newRegister(t.Context(), t, s.store, store.Clocks)
	var g errgroup.Group
	for range 3 {
		g.Go(func() error {
			for range s.scale(100) {
				got, err := a.Acknowledge(t.Context(), reg.table, reg.key)
				if err != nil {
					return err
				}
				for _, level := range []store.Level{store.Local, store.Serial} {
					seen, err := s.store.Read(t.Context(), reg.table, reg.key, level)
					if err != nil {
						return err
					}
					if seen.Epoch < got.Epoch || seen.Epoch == got.Epoch && seen.Token != got.Token {
						return fmt.Errorf("epoch %d was acknowledged, and epoch %d read", got.Epoch, seen.Epoch)
					}
				}
				next := nextRecord(got.Version, "next")
				if err := s.store.Swap(
					t.Context(), reg.table, reg.key, got.Version, next,
				); err != nil && store.KindOf(err) != store.Conflict &&
					!store.OutcomeUnknown(err) {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func (s *suite) partitions(t *testing.T, l store.PartitionLister) {
	ctx := t.Context()
	bucket := newBucket()
	want, never := map[store.Partition]bool{}, newPartition()
	_, _, err := s.store.Get(ctx, never, []byte("k"))
	require.NoError(t, err)
	for i := range s.scale(60) + 10 {
		p := newPartition()
		if i%2 == 0 {
			p.Bucket = bucket
		}
		rows := []store.Row{
			{Key: []byte("k"), Value: []byte{}, Timestamp: 1}, {Key: []byte("l"), Value: []byte("v"), Timestamp: 1},
		}
		require.NoError(t, s.store.Put(ctx, p, rows...))
		switch i % 5 {
		case 0:
			require.NoError(t, s.store.Delete(ctx, p, []byte("k"), 2))
		case 1:
			require.NoError(t, s.store.Remove(ctx, p, store.Bounds{}, 2))
			continue // the partition may be listed or not
		}
		want[p] = true
	}
	for _, limit := range []int{7, 1000} {
		found := map[store.Partition]bool{}
		for after := (store.Partition{}); ; {
			ps, err := l.Partitions(ctx, after, limit)
			require.NoError(t, err)
			if len(ps) == 0 {
				break
			}
			require.LessOrEqual(t, len(ps), limit)
			for _, p := range ps {
				require.False(t, found[p], "%s is listed twice", p)
				found[p] = true
			}
			after = ps[len(ps)-1]
		}
		for p := range want {
			require.True(t, found[p], "%s is missing", p)
		}
		require.False(t, found[never], "%s was only read", never)
	}
}

func (s *suite) levelsShareRows(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	require.NoError(t, s.store.Put(ctx, p, put("a", "base", 1).rows...))
	require.NoError(t, s.rows.Put(ctx, p, put("b", "wide", 1).rows...))
	require.NoError(t, s.rows.Delete(ctx, p, []byte("c"), 5))
	require.NoError(t, s.store.Put(ctx, p, put("c", "late", 4).rows...))
	require.Equal(t, formatRows(s.all(t, s.store, p)), formatRows(s.all(t, s.rows, p)))
	s.requireContent(t, p, "a=base@1", "b=wide@1")
}
