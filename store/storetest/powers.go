package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
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
	if c, ok := s.store.(store.ComparePutter); ok {
		t.Run("compare and put", func(t *testing.T) { s.comparePut(t, c) })
		t.Run("of concurrent compare and puts one wins", func(t *testing.T) { s.comparePutRace(t, c) })
	}
}

// acknowledged swaps a register from several goroutines: what Acknowledge returned is
// what a read at any level finds from then on, or something newer.
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
				if err := s.store.Swap(t.Context(), reg.table, reg.key, got.Version, next); err != nil && store.KindOf(err) != store.Conflict && !store.OutcomeUnknown(err) {
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
		rows := []store.Row{{Key: []byte("k"), Value: []byte{}, Timestamp: 1}, {Key: []byte("l"), Value: []byte("v"), Timestamp: 1}}
		require.NoError(t, s.store.Put(ctx, p, rows...))
		switch i % 5 {
		case 0:
			require.NoError(t, s.store.Delete(ctx, p, []byte("k"), 2))
		case 1:
			require.NoError(t, s.store.Remove(ctx, p, store.Bounds{}, 2))
			continue // may be listed or not
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

func (s *suite) comparePut(t *testing.T, c store.ComparePutter) {
	ctx, p := t.Context(), newPartition()
	row := func(v string, ts store.Timestamp) store.Row {
		return store.Row{Key: []byte("k"), Value: []byte(v), Timestamp: ts}
	}
	conflict := func(want []byte) {
		t.Helper()
		err := c.ComparePut(ctx, p, want, row("never", 100))
		requireKind(t, store.Conflict, err)
		require.False(t, store.OutcomeUnknown(err))
	}
	conflict([]byte("a"))
	conflict([]byte{})
	require.NoError(t, c.ComparePut(ctx, p, nil, row("", 1)))
	s.requireContent(t, p, "k=@1")
	conflict(nil)
	conflict([]byte("\x00"))
	require.NoError(t, c.ComparePut(ctx, p, []byte{}, row("b", 2)))
	conflict(nil)
	conflict([]byte{})
	conflict([]byte("bb"))
	require.NoError(t, c.ComparePut(ctx, p, []byte("b"), row("c", 3)))
	s.requireContent(t, p, "k=c@3")
	require.NoError(t, s.store.Delete(ctx, p, []byte("k"), 4))
	conflict([]byte("c"))
	require.NoError(t, c.ComparePut(ctx, p, nil, row("d", 5)))
	s.requireContent(t, p, "k=d@5")
	require.NoError(t, s.store.Remove(ctx, p, store.Bounds{}, 6))
	conflict([]byte("d"))

	given := row("e", 7)
	require.NoError(t, c.ComparePut(ctx, p, nil, given))
	clear(given.Value)
	clear(given.Key)
	s.requireContent(t, p, "k=e@7")
}

func (s *suite) comparePutRace(t *testing.T, c store.ComparePutter) {
	const putters = 4
	p, key := newPartition(), []byte("counter")
	rounds := s.scale(100)
	var clock, won atomic.Int64
	count := func(ctx context.Context) error {
		for range rounds {
			for {
				present, found, err := s.store.Get(ctx, p, key)
				if err != nil {
					return err
				}
				n := 0
				var want []byte
				if found {
					want = present.Value
					if _, err := fmt.Sscan(string(want), &n); err != nil {
						return err
					}
				}
				// Each winner's timestamp must be above those of the winners before.
				ts := max(store.Timestamp(clock.Add(1)), present.Timestamp+1)
				err = c.ComparePut(ctx, p, want, store.Row{Key: key, Value: fmt.Append(nil, n+1), Timestamp: ts})
				if err == nil {
					won.Add(1)
					break
				}
				if store.KindOf(err) != store.Conflict {
					return err
				}
			}
		}
		return nil
	}
	var g errgroup.Group
	for range putters {
		g.Go(func() error { return count(t.Context()) })
	}
	require.NoError(t, g.Wait())
	got, found, err := s.store.Get(t.Context(), p, key)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, fmt.Sprint(putters*rounds), string(got.Value))
	require.EqualValues(t, putters*rounds, won.Load())
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
