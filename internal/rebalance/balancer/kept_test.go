package balancer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
)

// After the loss of all counts each row is read again, unless sizes are kept: then none is, and nothing moves.
func TestWipedCountersAreRestored(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %v", kept), func(t *testing.T) {
			lookedAfter(t, 1000, nil, func(f *fixture) {
				if kept {
					f.counts.keeper = &keeper{}
				}
				f.counts.set(false, true)
				const rows = 10_000
				r := rand.New(rand.NewPCG(1, 2))
				for n := range rows {
					f.put(fmt.Appendf(nil, "%016x", r.Uint64()))
					if n%50 == 0 {
						time.Sleep(time.Second)
					}
				}
				time.Sleep(3 * time.Hour)
				f.s.take()
				moved := f.moved()
				f.counts.set(false, true)
				if kept { // noticed at the first range that is written to
					time.Sleep(time.Minute) // marks of counters in memory begin anew
					f.put([]byte("8"))
					time.Sleep(2 * time.Minute)
				} else {
					time.Sleep(3 * time.Hour)
				}
				var known int64
				for _, rg := range f.ranges() {
					all, err := f.counts.inner.Stats(f.Context(), []store.Partition{{Bucket: f.id(), ID: rg.Partition}})
					require.NoError(f, err)
					require.True(f, all[0].Known && all[0].Covers(rg.Start, rg.End))
					known += all[0].Rows
				}
				require.InDelta(f, rows, known, rows/10)
				if kept {
					require.Zero(f, f.s.take())
					require.Equal(f, moved, f.moved())
				} else {
					require.GreaterOrEqual(f, f.s.take(), rows)
				}
			})
		})
	}
}

// keeper is a countbook.Keeper in memory.
type keeper struct{ sizes sync.Map }

func (k *keeper) KeepSize(_ context.Context, s store.PartitionSize) error {
	k.sizes.Store(s.Partition, s)
	return nil
}

func (k *keeper) KeptSize(_ context.Context, p store.Partition) (store.PartitionSize, error) {
	s, _ := k.sizes.Load(p)
	size, _ := s.(store.PartitionSize)
	return size, nil
}

func (k *keeper) ForgetSize(_ context.Context, p store.Partition) error {
	k.sizes.Delete(p)
	return nil
}
