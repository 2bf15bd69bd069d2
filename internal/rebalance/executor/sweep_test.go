package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// appending is a store in which rows are appended as fast as a sweep reads.
type appending struct {
	store.Store
	sweeping atomic.Bool
	appended func() // appends a page of rows
}

func (a *appending) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page,
	error) {
	page, err := a.Store.Slice(ctx, p, b, o)
	if a.sweeping.Load() && o.Timestamps && len(page.Rows) > 0 {
		a.appended()
	}
	return page, err
}

// A sweep ends, however fast rows are appended: else the range could not be cut again.
func TestASweepEndsUnderAppends(t *testing.T) {
	const rows, page = 300, 20
	a := &appending{Store: memstore.New()}
	f := newFixture(t, a, rows)
	next := rows
	a.appended = func() {
		// Each page is one more to read.
		for range page {
			require.NoError(t, f.b.Put(context.Background(), key(next), []byte("appended")))
			next++
		}
	}
	x := executor.New(a, mapclient.Of(f.c), f.id, executor.Options{
		PageRows: page,
		Failpoint: func(_ context.Context, point, _ string) error {
			switch point {
			case "before sweep":
				a.sweeping.Store(true)
			case "after sweep":
				a.sweeping.Store(false)
			}
			return nil
		},
	})
	rg := f.ranges(t)[0]
	x.Add(move.Refresh(&rg))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, x.Run(ctx))
	require.Equal(t, rows/page*page+rows, next, "it read what was there, and no more")
}
