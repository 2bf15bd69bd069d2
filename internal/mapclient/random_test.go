package mapclient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// leases is what the test knows of the leases alive in one bucket. It is told of
// a lease after it was taken and before it is given back, so what it knows is
// always a part of what is true.
type leases struct {
	mu     sync.Mutex
	alive  map[uint64]int
	newest uint64 // the highest epoch that anybody has acted on
}

// take notes a lease; it fails where the invariants do. floor is what newest was
// before the lease was asked for.
func (s *leases) take(l *mapclient.Lease, floor uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := l.Root().Epoch
	s.alive[e]++
	s.newest = max(s.newest, e)
	if e < floor {
		return fmt.Errorf("I9: a lease on epoch %d after one on epoch %d", e, floor)
	}
	for other := range s.alive {
		if other+1 < e || other > e+1 {
			return fmt.Errorf("I3: leases on epochs %d and %d are alive", other, e)
		}
	}
	return nil
}

func (s *leases) giveBack(l *mapclient.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := l.Root().Epoch
	if s.alive[e]--; s.alive[e] == 0 {
		delete(s.alive, e)
	}
	l.Release()
}

func (s *leases) floor() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// TestI3I9UnderFaults: movers that wait between swaps, and others that take and
// give back leases, on a store that loses answers and lands swaps late. Whatever
// happens, all live leases of a bucket are on one epoch or on two neighbouring
// ones, nobody goes back, and the maps that come out are valid.
func TestI3I9UnderFaults(t *testing.T) {
	seed := seed.Number(t)
	faulty, faults := faultstore.New(memstore.New(), faultstore.Options{
		Seed:  seed,
		Rates: faultstore.Rates{Refuse: 0.02, Lose: 0.1, Late: 0.1},
		PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Read: {Lose: 0.03}, faultstore.Node: {Lose: 0.03}},
	})
	faults.Enable(false)
	ctx := context.Background()
	// So little memory that buckets are forgotten and nodes are evicted all the
	// time.
	c := mapclient.NewEmbedded(faulty, mapclient.Options{CacheBytes: 1})
	mapclient.LimitRoots(c, 1)
	buckets := make([]store.BucketID, 3)
	books := make([]*leases, len(buckets))
	for i := range buckets {
		buckets[i] = store.BucketID(uuid.New())
		books[i] = &leases{alive: map[uint64]int{}}
		_, err := c.Create(ctx, buckets[i], cutsOf(200))
		require.NoError(t, err)
	}
	faults.Enable(true)

	var movers, lessees sync.WaitGroup
	stop := make(chan struct{})
	swapped := make([]int, 4)
	for i := range swapped {
		movers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 300 {
				if move(ctx, c, buckets[rng.IntN(len(buckets))], rng) {
					swapped[i]++
				}
			}
		})
	}
	taken := make([]int, 4)
	failed := make(chan error, len(taken))
	for i := range taken {
		lessees.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 100+uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				b := rng.IntN(len(buckets))
				if err := act(ctx, c, buckets[b], books[b], rng); err != nil {
					failed <- err
					return
				}
				taken[i]++
			}
		})
	}
	movers.Wait()
	close(stop)
	lessees.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("swaps acknowledged %v, leases %v, faults %+v", swapped, taken, faults.Counts(faultstore.Swap))

	require.NoError(t, faults.Flush(ctx))
	faults.Enable(false)
	for _, id := range buckets {
		root, err := c.Load(ctx, id)
		require.NoError(t, err)
		require.Empty(t, partmap.Validate(root, c.Reader(ctx, id)))
		require.NoError(t, c.Wait(ctx, id))
	}
}

// act takes a lease, looks something up, lets others run, and gives it back.
func act(ctx context.Context, c *mapclient.Client, id store.BucketID, book *leases, rng *rand.Rand) error {
	floor := book.floor()
	l, err := c.Acquire(ctx, id)
	if err != nil {
		return expected(err)
	}
	if err := book.take(l, floor); err != nil {
		return err
	}
	defer book.giveBack(l)
	for range rng.IntN(4) {
		key := fmt.Appendf(nil, "tenant/%08d", rng.IntN(300))
		r, err := c.Find(ctx, l, key)
		if err == nil && !r.Contains(key) {
			return fmt.Errorf("the range of %q is %q to %q", key, r.Start, r.End)
		}
		if err := expected(err); err != nil {
			return err
		}
		runtime.Gosched()
	}
	return nil
}

// expected passes on errors that the faults do not explain.
func expected(err error) error {
	switch store.KindOf(err) {
	case store.Unavailable, store.Timeout:
		return nil
	}
	return err
}

// move does one step of a mover as the protocol says: read the root, wait until
// nobody acts on an older one, swap. It reports an acknowledged swap.
func move(ctx context.Context, c *mapclient.Client, id store.BucketID, rng *rand.Rand) bool {
	root, err := c.Load(ctx, id)
	if err != nil || c.Wait(ctx, id) != nil {
		return false
	}
	change, err := step(ctx, c, root, rng)
	return err == nil && c.Swap(ctx, change) == nil
}

// step draws what can be done next to a map: it ends what is in flight, or begins
// a move.
func step(ctx context.Context, c *mapclient.Client, root *partmap.Root, rng *rand.Rand) (partmap.Change, error) {
	var ranges []partmap.Range
	for r, err := range c.Ranges(ctx, root, nil) {
		if err != nil {
			return partmap.Change{}, err
		}
		ranges = append(ranges, r)
	}
	e := c.Edit(ctx, root)
	if len(root.Batches) == 0 {
		lo := rng.IntN(len(ranges))
		hi := min(lo+rng.IntN(2), len(ranges)-1)
		m := partmap.Move{
			Start: ranges[lo].Start, End: ranges[hi].End,
			Parts: []partmap.Part{{Start: ranges[lo].Start, To: store.PartitionID(newUUID(rng))}},
		}
		_, err := e.Begin(m)
		return changeOf(e, err)
	}
	b := root.Batches[0]
	switch b.Phase {
	case partmap.Settled:
		return changeOf(e, e.Swept(b.ID))
	case partmap.Draining:
		var spans []store.Bounds
		for _, r := range ranges {
			if r.Batch != b.ID || r.To.IsZero() {
				continue
			}
			if n := len(spans); n > 0 && string(spans[n-1].End) == string(r.Start) {
				spans[n-1].End = r.End
			} else {
				spans = append(spans, store.Bounds{Start: r.Start, End: r.End})
			}
		}
		return changeOf(e, e.Settle(b.ID, spans...))
	}
	return changeOf(e, e.Advance(b.ID))
}

func changeOf(e partmap.Edit, err error) (partmap.Change, error) {
	c, changeErr := e.Change()
	return c, errors.Join(err, changeErr)
}
