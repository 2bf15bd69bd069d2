package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// rootReads counts the reads of roots.
type rootReads struct {
	store.Store
	n atomic.Int64
}

func (s *rootReads) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if t == store.Roots {
		s.n.Add(1)
	}
	return s.Store.Read(ctx, t, key, l)
}

// Cutting a bucket into very many ranges, and rewriting each of them, takes time in
// proportion to their number.
func TestManyRanges(t *testing.T) {
	n := 600
	if text := os.Getenv("EVENKEEL_RANGES"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s := &rootReads{Store: memstore.New()}
	f := newFixture(t, s, 1, 0)
	g := scheduler.New(f.s, mapclient.Of(f.c), scheduler.Options{})
	end := runs(t, g)
	var cuts [][]byte
	for i := range n - 1 {
		cuts = append(cuts, fmt.Appendf(nil, "%06d", i))
	}
	began := time.Now()
	require.NoError(t, f.finished(g, f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Presplit, Keys: cuts}).ID).Err())
	t.Logf("cut into %d in %v", n, time.Since(began))
	require.Len(t, f.ranges(f.ids[0]), n)
	before := f.ranges(f.ids[0])
	began = time.Now()
	j := f.finished(g, f.ask(g, f.ids[0], scheduler.Ask{Kind: scheduler.Refresh}).ID)
	require.NoError(t, j.Err())
	require.Less(t, s.n.Load(), int64(n), "the map is not looked at for each range")
	t.Logf("all rewritten in %v", time.Since(began))
	for i, rg := range f.ranges(f.ids[0]) {
		require.NotEqual(t, before[i].Partition, rg.Partition)
	}
	end()
}
