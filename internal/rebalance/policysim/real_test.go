package policysim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// real plays a scenario with the parts of a program over a store in memory, in virtual time: clients with leases that
// end by time, recorder, counters, balancer, scheduler and executors.
func real(t *testing.T, s *Scenario, observe observer) (report *Report) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Add(365 * 24 * time.Hour) // until all is set up
		f := newFaults(s, func() time.Duration { return time.Since(begin) }, time.Sleep)
		m := newTally(memstore.New(), f, begin, time.Now)
		counts := counters{countbook.NewMemory(nil), f}
		rec := recorder{counter.NewRecorder(counts, counter.RecorderOptions{}), m, f}
		maps, err := mapclient.Join(t.Context(), m, mapclient.Options{Lease: s.Phase * 10 / 11}, false)
		require.NoError(t, err)
		c, err := listing.New(mapclient.With(m, maps), listing.Options{Recorder: rec})
		require.NoError(t, err)
		var players []*player
		var buckets []*listing.Bucket
		var ids []store.BucketID
		for i := range s.Tenants {
			tenant := &s.Tenants[i]
			g := m.group(tenant)
			for range tenant.Count {
				name := fmt.Sprintf("bucket-%d", len(players))
				require.NoError(t, c.CreateBucket(t.Context(), name, tenant.cuts()...))
				id, err := c.BucketID(t.Context(), name)
				require.NoError(t, err)
				m.bucket(id, g)
				players = append(players, newPlayer(tenant, time.Now().Add(s.later()), s.end(), s.Seed+uint64(len(players))<<32))
				buckets, ids = append(buckets, c.Bucket(name)), append(ids, id)
			}
		}
		begin = time.Now().Add(s.later())
		m.begin = begin
		mover := scheduler.New(m, maps, scheduler.Options{
			RowsPerSecond: s.Pace, Executor: executor.Options{PageRows: max(1, int(s.MaxRows/pages))},
		})
		o := s.options()
		o.Decided = func(id store.BucketID, in *policy.Input, ds []policy.Decision) {
			m.decided(id, in, ds)
			if observe != nil {
				observe(id, in, ds)
			}
		}
		b := balancer.New(m, maps, mover, counts, o)
		ctx, stop := context.WithCancel(context.Background())
		var work sync.WaitGroup
		work.Go(func() { _ = mover.Run(ctx) })
		work.Go(func() { _ = b.Run(ctx) })
		for at := time.Duration(0); at < s.end(); {
			next := s.end()
			for _, p := range players {
				next = min(next, p.next())
			}
			at = min(s.end(), max(at+s.Step, s.grid(next)))
			time.Sleep(at - time.Since(begin)) // a slow store may have taken longer
			for i, p := range players {
				p.until(at, func(r request) {
					m.requested(ids[i], r)
					ask(t, buckets[i], r)
				})
			}
		}
		end := time.Now()
		for i, id := range ids {
			var ranges []partmap.Range
			root, err := maps.Load(t.Context(), id)
			require.NoError(t, err)
			for rg, err := range maps.Ranges(t.Context(), root, nil) {
				require.NoError(t, err)
				ranges = append(ranges, rg)
			}
			m.finish(id, ranges, end)
			if p := players[i]; p.remember {
				n := 0
				for _, err := range buckets[i].All(t.Context(), listing.Query{}) {
					require.NoError(t, err)
					n++
				}
				require.Len(t, p.alive, n, "no row is lost, and none comes back")
			}
		}
		report = m.report()
		report.took(b.Status())
		stop()
		work.Wait()
		_ = rec.Close(context.Background())
		maps.Close()
		if len(s.Faults) == 0 {
			require.NoError(t, b.Status().Round.Err)
		}
	})
	return report
}

// ask makes a request.
func ask(t *testing.T, b *listing.Bucket, r request) {
	var err error
	switch r.do {
	case Put:
		err = b.Put(t.Context(), []byte(r.key), value)
	case Delete:
		err = b.Delete(t.Context(), []byte(r.key))
	case Get:
		if _, err = b.Get(t.Context(), []byte(r.key)); store.KindOf(err) == store.NotFound {
			err = nil
		}
	}
	require.NoError(t, err)
}
