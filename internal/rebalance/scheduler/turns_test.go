package scheduler_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// leased waits as long as a mover does over a network with the default lease, and a little longer, so that turns do not
// end at one moment.
type leased struct {
	*mapclient.Client
	mu sync.Mutex
	r  *rand.Rand
}

func newLeased(t testing.TB, c *mapclient.Client) *leased {
	return &leased{Client: c, r: rand.New(rand.NewPCG(seed.Number(t), 0))}
}

func (l *leased) Wait(ctx context.Context, id store.BucketID) error {
	if err := l.Client.Wait(ctx, id); err != nil {
		return err
	}
	l.mu.Lock()
	longer := l.r.IntN(200)
	l.mu.Unlock()
	time.Sleep(time.Duration(3130+longer) * time.Millisecond)
	return ctx.Err()
}

// crowd is a scheduler with more to do than it has slots. It notes which bucket begins a batch when.
type crowd struct {
	*fixture
	g    *scheduler.Scheduler
	cuts [][]byte
	// next is the range of a bucket that is rewritten next.
	next map[store.BucketID]int

	mu    sync.Mutex
	begun []store.BucketID // the bucket of each batch, in the order of their begins
	last  map[store.BucketID]uint64
}

// newCrowd makes buckets with such long cuts that their maps do not fit into their roots.
func newCrowd(t *testing.T, buckets int, o scheduler.Options) *crowd {
	const ranges = 40
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	x := &crowd{
		fixture: &fixture{t: t, s: s, c: c}, next: map[store.BucketID]int{}, last: map[store.BucketID]uint64{},
	}
	for i := range ranges - 1 {
		x.cuts = append(x.cuts, append(key(i), make([]byte, 100)...))
	}
	for i := range buckets {
		require.NoError(t, c.CreateBucket(t.Context(), name(i), x.cuts...))
		id, err := c.BucketID(t.Context(), name(i))
		require.NoError(t, err)
		x.ids = append(x.ids, id)
		root, err := mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, root.Children, 1)
	}
	o.Moved = func(j *scheduler.Job, g *scheduler.GoalState) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if g.Stage == scheduler.Begun && g.Batch != x.last[j.Bucket] {
			x.last[j.Bucket] = g.Batch
			x.begun = append(x.begun, j.Bucket)
		}
	}
	x.g = scheduler.New(s, newLeased(t, mapclient.Of(c)), o)
	return x
}

// rewrite asks for the next range of a bucket in a fresh partition.
func (x *crowd) rewrite(id store.BucketID) {
	root, err := mapclient.Of(x.c).Load(x.t.Context(), id)
	require.NoError(x.t, err)
	at := x.next[id] % len(x.cuts)
	x.next[id]++
	for rg, err := range mapclient.Of(x.c).Ranges(x.t.Context(), root, x.cuts[at]) {
		require.NoError(x.t, err)
		p := &scheduler.Plan{Bucket: id, Epoch: root.Epoch, Moves: []move.Goal{move.Refresh(&rg)}}
		x.g.Submit(id, "refresh", p)
		return
	}
}

// always keeps buckets in want of moves for a time: each has a goal that has not begun.
func (x *crowd) always(d time.Duration, ids ...store.BucketID) {
	const step = 4 * time.Second // shorter than a batch
	for range int(d / step) {
		for _, id := range ids {
			if !x.g.Held(id) {
				x.rewrite(id)
			}
		}
		time.Sleep(step)
	}
}

// batches returns the buckets of the batches that began, from number i on.
func (x *crowd) batches(i int) []store.BucketID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.begun[i:])
}

// before counts the batches of each bucket, from number i on, before the first one of id, which must have begun.
func (x *crowd) before(i int, id store.BucketID) map[store.BucketID]int {
	all := x.batches(i)
	first := slices.Index(all, id)
	require.GreaterOrEqual(x.t, first, 0, "it has not begun, but %d batches of others have", len(all))
	counts := map[store.BucketID]int{}
	for _, other := range all[:first] {
		counts[other]++
	}
	return counts
}

// kept returns how many replaced roots and how many map nodes a bucket has.
func (x *crowd) kept(id store.BucketID) (roots, nodes int) {
	old, err := x.s.History(x.t.Context(), id, 0, 10_000)
	require.NoError(x.t, err)
	ids, err := x.s.ScanNodes(x.t.Context(), id, store.NodeID{}, 1000)
	require.NoError(x.t, err)
	return len(old), len(ids)
}

// tidied calls a function that takes a minute so many times, and checks that each bucket keeps no more than is
// documented, with CollectAfter of ten minutes. It returns how many roots each of them has had at least.
func (x *crowd) tidied(minutes int, minute func()) (made int) {
	// A bucket is tidied every ten minutes, and some seconds later if a batch ends and the next one begins then.
	const tidyEvery, unnamed = 11, 10 + 2*11
	var epochs [][]int // of each bucket, minute by minute
	for at := range minutes {
		minute()
		var now []int
		for i, id := range x.ids {
			root, err := mapclient.Of(x.c).Load(x.t.Context(), id)
			require.NoError(x.t, err)
			now = append(now, int(root.Epoch))
			if at < unnamed {
				continue
			}
			// Each swap replaces the root and its only node.
			roots, nodes := x.kept(id)
			require.LessOrEqual(x.t, roots, 100+now[i]-epochs[at-tidyEvery][i], "replaced roots in minute %d", at)
			require.LessOrEqual(x.t, nodes, 1+now[i]-epochs[at-unnamed][i], "map nodes in minute %d", at)
		}
		epochs = append(epochs, now)
	}
	return slices.Min(epochs[len(epochs)-1])
}

// Eight buckets always want moves, and there are eight slots. A ninth one that wants a single move, and a tenth one
// that comes later, begin within a batch of the others. When all ten always want moves they get
// equal shares. Meanwhile what they leave behind is tidied.
func TestBucketsThatAlwaysMoveLetOthersMove(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		x := newCrowd(t, 10, scheduler.Options{Buckets: 8, Executor: executor.Options{CollectAfter: 10 * time.Minute}})
		end := runs(t, x.g)
		eight := x.ids[:8]
		x.always(time.Minute, eight...)
		for _, id := range x.ids[8:] {
			asked := len(x.batches(0))
			x.rewrite(id)
			x.always(2*time.Minute, eight...)
			for other, n := range x.before(asked, id) {
				// One may be about to begin when the move is asked for, and one at the moment at which it begins.
				require.LessOrEqual(t, n, 2, "batches of %s before the one of %s", other, id)
			}
		}

		asked := len(x.batches(0))
		made := x.tidied(50, func() { x.always(time.Minute, x.ids...) })
		require.Greater(t, made, 500, "more must be made than kept for this to prove anything")
		shares := map[store.BucketID]int{}
		for _, id := range x.batches(asked) {
			shares[id]++
		}
		counts := slices.Sorted(maps.Values(shares))
		require.Len(t, counts, 10)
		require.Greater(t, counts[0], 100)
		require.LessOrEqual(t, counts[9]-counts[0], counts[0]/20, "%v", counts)
		end()
	})
}

// A bucket whose moves overlap, so that there is always one in flight, is tidied meanwhile, though nobody else wants
// its slot.
func TestABucketThatAlwaysMovesIsTidied(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		x := newCrowd(t, 1, scheduler.Options{Executor: executor.Options{CollectAfter: 10 * time.Minute}})
		end := runs(t, x.g)
		id := x.ids[0]
		made := x.tidied(3*60, func() {
			for range 6 {
				x.rewrite(id)
				time.Sleep(10 * time.Second)
				s := x.g.Status()
				require.Len(t, s.Buckets, 1)
				require.NotEmpty(t, s.Buckets[0].Batches, "there is always one in flight")
			}
		})
		require.Greater(t, made, 2000)
		end()
	})
}

// Of a hundred buckets that wait for the only slot, one is written to so fast that its moves have to keep up: every
// second batch is its own. The others get equal shares of the rest.
func TestABucketThatHasToKeepUpIsNotHeldUpByACrowd(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		x := newCrowd(t, 100, scheduler.Options{Buckets: 1})
		end := runs(t, x.g)
		hot := x.ids[50]
		for range 100 {
			x.always(time.Minute, x.ids...)
			for _, id := range x.ids {
				x.g.KeepUp(id, 1) // as they are all written to a little
			}
			x.g.KeepUp(hot, 1000)
		}
		shares := map[store.BucketID]int{}
		all := x.batches(20)
		for _, id := range all {
			shares[id]++
		}
		require.InDelta(t, len(all)/2, shares[hot], 2)
		delete(shares, hot)
		counts := slices.Sorted(maps.Values(shares))
		require.Len(t, counts, 99)
		require.LessOrEqual(t, counts[98]-counts[0], 1, "%v", counts)
		end()
	})
}

// Buckets that all have to keep up let one move that does not have to.
func TestBucketsThatHaveToKeepUpLetOthersMove(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		x := newCrowd(t, 6, scheduler.Options{Buckets: 2})
		end := runs(t, x.g)
		five, other := x.ids[:5], x.ids[5]
		x.always(4*time.Second, five...)
		for i, id := range five {
			x.g.KeepUp(id, 1000*(i+1))
		}
		x.always(time.Minute, five...)
		asked := len(x.batches(0))
		x.rewrite(other)
		x.always(4*time.Minute, five...)
		before := 0
		for _, n := range x.before(asked, other) {
			before += n
		}
		require.LessOrEqual(t, before, 2*len(five))
		all := map[store.BucketID]int{}
		for _, id := range x.batches(asked) {
			all[id]++
		}
		require.Len(t, all, 6, "each of them moves")
		end()
	})
}

// A bucket that waits for its next turn stays in the list of busy buckets. If the process ends meanwhile, the next one
// finds that nothing is in flight there, and takes the bucket out of the list.
func TestABucketBetweenTurnsLeavesTheListOfBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCrowd(t, 3, scheduler.Options{Buckets: 1})
		end := runs(t, x.g)
		x.always(5*time.Minute, x.ids...)
		require.Equal(t, 3, x.busy())
		end()
		end = runs(t, scheduler.New(noScan{x.s}, newLeased(t, mapclient.Of(x.c)), scheduler.Options{}))
		time.Sleep(time.Minute)
		require.Zero(t, x.busy())
		for _, id := range x.ids {
			root, err := mapclient.Of(x.c).Load(t.Context(), id)
			require.NoError(t, err)
			require.Empty(t, root.Batches)
		}
		end()
	})
}
