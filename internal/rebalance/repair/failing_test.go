package repair_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"testing/synctest"
)

// failing is a store that can't read one partition, and can't list any.
type failing struct {
	store.Store
	partition store.PartitionID
	err       error
}

func (s *failing) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page,
	error) {
	if p.ID == s.partition {
		return store.Page{}, s.err
	}
	return s.Store.Slice(ctx, p, b, o)
}

// TestWhatCannotBeRead is a problem where it is damaged, unchecked where the store
// gives up, and ends the check where the store is away.
func TestWhatCannotBeRead(t *testing.T) {
	f := newFixture(t, memstore.New())
	whole := f.s
	f.o.SkipOrphans = true
	bad := f.partition(f.b, 2).ID
	f.s = &failing{whole, bad, store.Errorf(store.Corrupt, "a checksum is wrong")}
	found, sum := f.check(mend)
	require.Equal(t, []string{is(repair.BrokenRows, 0)}, kinds(found))
	require.EqualValues(t, 1, sum.Problems)
	require.Equal(t, bad, found[0].Partition)

	f.s = &failing{whole, bad, store.Errorf(store.TooMuchDeadData, "tombstones")}
	found, sum = f.check(nil)
	require.Equal(t, []string{is(repair.BrokenRows, 0)}, kinds(found))
	require.Zero(t, sum.Problems)
	require.EqualValues(t, 1, sum.Unchecked)

	f.s = &failing{whole, store.PartitionID{}, nil}
	found, sum = f.check(func(o *repair.Options) { o.SkipOrphans = false })
	require.Equal(t, []string{is(repair.NoLister, 0)}, kinds(found))
	require.EqualValues(t, 1, sum.Unchecked)

	f.s = &failing{whole, bad, store.Errorf(store.Unavailable, "nobody is there")}
	c, err := listing.New(f.s, listing.Options{})
	require.NoError(t, err)
	_, err = repair.New(f.s, c, f.o).All(ctx)
	require.ErrorIs(t, err, store.Unavailable)
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = repair.New(whole, c, f.o).All(over)
	require.ErrorIs(t, err, store.Timeout)
}

// TestThrottle: reading keeps to the rate of rows.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memstore.New())
		began := time.Now()
		_, sum := f.check(func(o *repair.Options) { o.RowsPerSecond, o.Parallel = 100, 1 })
		require.InDelta(t, float64(sum.Rows)/100, time.Since(began).Seconds(), 0.1)
	})
}
