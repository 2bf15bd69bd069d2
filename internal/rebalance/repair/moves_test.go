package repair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// TestNothingIsWrongWhileRangesMove: checks, with and without mend, find no
// problem while writers write, ranges split, merge and are refreshed at random,
// movers are killed and buckets come and go; and a repair does no harm.
func TestNothingIsWrongWhileRangesMove(t *testing.T) {
	for _, mend := range []bool{false, true} {
		t.Run(fmt.Sprintf("repair=%v", mend), func(t *testing.T) {
			overStores(t, func(t *testing.T, s func(t testing.TB) store.Store) {
				moving(t, s(t), mend)
			})
		})
	}
}

func moving(t *testing.T, s store.Store, mend bool) {
	seed := seed.Number(t)
	long := 2 * time.Second
	if v := os.Getenv("EVENKEEL_SIM_TIME"); v != "" {
		var err error
		long, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	f := newFixture(t, s)
	over, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var wg sync.WaitGroup
	begin := func(number uint64, what func(r *rand.Rand) error) {
		r := rand.New(rand.NewPCG(seed, number))
		wg.Go(func() {
			for over.Err() == nil {
				if err := what(r); err != nil && over.Err() == nil {
					t.Errorf("worker %d: %v", number, err)
					return
				}
			}
		})
	}
	// Writers of their own keys, which know what has to be there.
	var writes atomic.Int64
	for w := range uint64(2) {
		b := f.c.Bucket("b")
		mine := map[int]bool{}
		begin(w, func(r *rand.Rand) error {
			i := r.IntN(200)
			k := fmt.Appendf(key(i*rows/200), "-%d", w)
			writes.Add(1)
			got, err := b.Get(ctx, k)
			if mine[i] != (err == nil) || err != nil && !errors.Is(err, listing.ErrNotFound) {
				return fmt.Errorf("%s: is %v %v, should be there: %v", k, got, err, mine[i])
			}
			if mine[i] = r.IntN(2) == 0; mine[i] {
				return b.Put(ctx, k, []byte("own"))
			}
			return b.Delete(ctx, k)
		})
	}
	var batches, collected atomic.Int64
	mover := func(id store.BucketID) func(r *rand.Rand) error {
		return func(r *rand.Rand) error {
			var points atomic.Int64
			kill := int64(r.IntN(60))
			x := executor.New(f.s, mapclient.Of(f.c), id, executor.Options{
				PageRows: 50, BatchRows: 20, CollectAfter: time.Millisecond,
				Failpoint: func(context.Context, string, string) error {
					if points.Add(1) == kill {
						return errKilled
					}
					return nil
				},
			})
			x.Add(f.goals(id, r)...)
			batches.Add(1)
			err := x.Run(ctx)
			for range 2 {
				time.Sleep(time.Millisecond)
				n, _, cerr := x.Collect(ctx)
				collected.Add(int64(n))
				err = errors.Join(err, cerr)
			}
			if errors.Is(err, errKilled) {
				return nil
			}
			return err
		}
	}
	begin(2, mover(f.b))
	begin(5, mover(f.large))
	// A check is patient with what is being created or deleted; on a busy machine a
	// single sync may outlast any patience of a test.
	var changing sync.RWMutex
	whole := func(change func() error) error {
		changing.RLock()
		defer changing.RUnlock()
		return change()
	}
	begin(3, func(r *rand.Rand) error {
		name := fmt.Sprintf("temporary-%d", r.IntN(4))
		if err := whole(func() error { return f.c.CreateBucket(ctx, name) }); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		return whole(func() error { return f.c.DeleteBucket(ctx, name) })
	})
	kinds := map[repair.Kind]int{}
	checks := 0
	check := func() error {
		checks++
		o := repair.Options{Repair: mend, PageRows: 100, Patience: 200 * time.Millisecond}
		o.Sleep = func(_ context.Context, d time.Duration) error {
			time.Sleep(d)
			changing.Lock() // what was under way has ended
			defer changing.Unlock()
			return nil
		}
		o.Report = func(x repair.Finding) {
			kinds[x.Kind]++
			if x.Severity != repair.Info {
				t.Errorf("check %d: %s", checks, x)
			}
		}
		_, err := repair.New(f.s, f.c, o).All(ctx)
		return err
	}
	begin(4, func(*rand.Rand) error { return check() })
	wg.Wait()
	for _, id := range []store.BucketID{f.b, f.large} {
		require.NoError(t, executor.New(f.s, mapclient.Of(f.c), id, executor.Options{}).Run(ctx))
	}
	require.NoError(t, check())
	t.Logf("%d writes, %d batches, %d nodes collected, %d checks, infos %v", writes.Load(), batches.Load(),
		collected.Load(), checks, kinds)
	require.Positive(t, kinds[repair.Moving], "a check saw a move")
	there := map[string]bool{}
	for e, err := range f.c.Bucket("b").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		there[string(e.Key)] = true
	}
	for i := range rows {
		require.True(t, there[string(key(i))], "%s", key(i))
	}
}

var errKilled = errors.New("killed")

// goals draws goals from the layout of the moment.
func (f *fixture) goals(id store.BucketID, r *rand.Rand) (goals []move.Goal) {
	var all []partmap.Range
	root, err := mapclient.Of(f.c).Load(ctx, id)
	if err != nil {
		return nil
	}
	for rg, err := range mapclient.Of(f.c).Ranges(ctx, root, nil) {
		if err != nil {
			return nil
		}
		all = append(all, rg)
	}
	for i := 0; i < len(all) && len(goals) < 5; {
		if len(all) > 100 && r.IntN(50) > 0 {
			i++
			continue
		}
		n := min(1+r.IntN(3), len(all)-i)
		g := move.Goal{Start: all[i].Start, End: all[i+n-1].End, Stay: -1}
		c := key(r.IntN(rows))
		if string(c) > string(g.Start) && (len(g.End) == 0 || string(c) < string(g.End)) && len(all) != 20 {
			g.Cuts = append(g.Cuts, c)
		}
		switch {
		case n == 1 && len(g.Cuts) == 0:
			g.Leave = all[i].Partition
		case n == 1:
			g.Stay = r.IntN(3) - 1
		}
		if r.IntN(2) == 0 {
			goals = append(goals, g)
		}
		i += n
	}
	return goals
}
