package faultstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// everything is a mix in which no call can be trusted.
var everything = faultstore.Rates{Refuse: 0.1, Lose: 0.15, Late: 0.15, Repeat: 0.2, Short: 0.3}

// run makes the same calls for the same seed and returns their errors.
func run(t *testing.T, s store.Store, seed uint64) (outcomes []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	var p store.Partition
	for range 300 {
		key, ts := fmt.Append(nil, r.IntN(9)), store.Timestamp(1+r.IntN(50))
		var err error
		switch r.IntN(5) {
		case 0, 1:
			err = s.Put(t.Context(), p, store.Row{Key: key, Value: []byte("v"), Timestamp: ts})
		case 2:
			err = s.Delete(t.Context(), p, key, ts)
		case 3:
			var page store.Page
			page, err = s.Slice(t.Context(), p, store.Bounds{}, store.SliceOptions{Limit: 10})
			outcomes = append(outcomes, fmt.Sprint(page))
		case 4:
			err = s.WriteNode(t.Context(), p.Bucket, store.NodeID{1}, key)
		}
		outcomes = append(outcomes, fmt.Sprint(err))
	}
	return outcomes
}

func TestTheSameSeedMeansTheSameFaults(t *testing.T) {
	n := seed.Number(t)
	with := func(seed uint64) ([]string, faultstore.Counts) {
		s, f := faultstore.New(memstore.New(), faultstore.Options{Seed: seed, Rates: everything})
		return run(t, s, n), f.Counts()
	}
	outcomes, counts := with(n)
	again, countsAgain := with(n)
	require.Equal(t, outcomes, again)
	require.Equal(t, counts, countsAgain)
	other, _ := with(n + 1)
	require.NotEqual(t, outcomes, other)
	for _, c := range []int{counts.Refused, counts.Lost, counts.Late, counts.Repeated, counts.Short, counts.Landed} {
		require.Positive(t, c)
	}
}

// Whatever went wrong on the way: once all has landed, the rows are those of all
// writes but the refused ones. So an acknowledged write is never lost, and of the
// others nothing is half done.
func TestInTheEndEveryWriteButTheRefusedIsDone(t *testing.T) {
	n := seed.Number(t)
	for round := range uint64(200) {
		r := rand.New(rand.NewPCG(n, round))
		inner, want, p := newCounting(), memstore.New(), partition()
		s, f := faultstore.New(inner, faultstore.Options{Seed: n + round, Rates: everything})
		for range 40 {
			key, ts := fmt.Append(nil, r.IntN(5)), store.Timestamp(1+r.IntN(20))
			rows := []store.Row{row(fmt.Sprint(r.IntN(5)), fmt.Sprint(r.IntN(3)), ts),
				row(fmt.Sprint(r.IntN(5)), "x", ts)}
			how := r.IntN(6)
			write := func(s store.Store) error {
				switch how {
				case 0:
					return s.Delete(t.Context(), p, key, ts)
				case 1:
					return s.Remove(t.Context(), p, store.Bounds{Start: key}, ts)
				}
				return s.Put(t.Context(), p, rows...)
			}
			before := f.Counts().Refused
			err := write(s)
			if f.Counts().Refused == before {
				require.NoError(t, write(want))
			} else {
				require.Error(t, err)
			}
		}
		require.NoError(t, f.Flush(t.Context()))
		all := store.SliceOptions{Limit: 100, Timestamps: true}
		wanted, err := want.Slice(t.Context(), p, store.Bounds{}, all)
		require.NoError(t, err)
		got, err := inner.Slice(t.Context(), p, store.Bounds{}, all)
		require.NoError(t, err)
		require.Equal(t, wanted, got, "round %d, seed %d", round, n)
	}
}

// Swappers that follow the contract end with one unbroken history of a root: each
// acknowledged swap is in it, and none that met a conflict.
func TestSwappersAgreeUnderFaults(t *testing.T) {
	n := seed.Number(t)
	const swappers, epochs = 4, 60
	inner := memstore.New()
	s, f := faultstore.New(inner, faultstore.Options{Seed: n, Rates: everything})
	id := store.BucketID(uuid.New())
	var mu sync.Mutex
	acknowledged, conflicts := map[store.Version]bool{}, map[store.Version]bool{}
	swapper := func(ctx context.Context) error {
		for {
			old, err := s.Read(ctx, store.Roots, id[:], store.Serial)
			switch {
			case store.KindOf(err) == store.NotFound:
			case store.OutcomeUnknown(err):
				continue
			case err != nil:
				return err
			}
			if old.Epoch >= epochs {
				return nil
			}
			next := store.Record{
				Version: store.Version{Epoch: old.Epoch + 1, Token: storekit.NewToken()}, Blob: []byte("b"),
			}
			err = s.Swap(ctx, store.Roots, id[:], old.Version, next)
			mu.Lock()
			acknowledged[next.Version] = err == nil
			conflicts[next.Version] = store.KindOf(err) == store.Conflict
			mu.Unlock()
		}
	}
	var g errgroup.Group
	for range swappers {
		g.Go(func() error { return swapper(t.Context()) })
	}
	require.NoError(t, g.Wait())
	require.NoError(t, f.Flush(t.Context()))

	last, err := inner.Read(t.Context(), store.Roots, id[:], store.Serial)
	require.NoError(t, err)
	history, err := inner.History(t.Context(), id, 0, 10*epochs)
	require.NoError(t, err)
	chain := append([]store.Record{last}, history...)
	slices.Reverse(chain)
	in := map[store.Version]bool{}
	for i, r := range chain {
		require.EqualValues(t, i+1, r.Epoch)
		require.False(t, conflicts[r.Version], "epoch %d was won by a swap that met a conflict", r.Epoch)
		in[r.Version] = true
	}
	for v, ok := range acknowledged {
		require.True(t, !ok || in[v], "the acknowledged swap to epoch %d is gone", v.Epoch)
	}
	c := f.Counts(faultstore.Swap)
	require.Positive(t, c.Refused)
	require.Positive(t, c.Lost)
	require.Positive(t, c.Late)
	require.Equal(t, c.Late, c.Landed)
}
