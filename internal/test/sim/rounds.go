package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
)

// rounds gives goals to the movers, Config.Rounds times, and waits until the movers have reached them.
func (w *world) rounds(ctx context.Context) {
	r := rand.New(rand.NewPCG(w.c.Seed, 5))
	var movers []*mover
	for i := range w.c.Movers {
		movers = append(movers, &mover{
			w: w, name: fmt.Sprintf("mover%d", i), seed: uint64(20_000 + 100*i),
			r: rand.New(rand.NewPCG(w.c.Seed, 200+uint64(i))),
		})
	}
	var wg sync.WaitGroup
	if w.c.Loose {
		for _, m := range movers {
			wg.Go(func() {
				for i := 0; i < w.c.Rounds && !w.h.over(); i++ {
					goals, _ := w.goals(m.r)
					m.run(ctx, goals)
				}
			})
		}
		wg.Wait()
		if ctx.Err() == nil && !w.s.failed() {
			w.settled(nil)
		}
		return
	}
	for range w.c.Rounds {
		goals, want := w.goals(r)
		for _, m := range movers {
			wg.Go(func() { m.run(ctx, goals) })
		}
		wg.Wait()
		if ctx.Err() != nil || w.s.failed() || w.h.over() {
			return
		}
		w.settled(want)
	}
}

// goals returns random goals for the current ranges, and the cuts that the bucket has after the goals are reached. A
// goal says how a span of keys is to be cut into ranges.
func (w *world) goals(r *rand.Rand) (goals []move.Goal, cuts []string) {
	w.watch.mu.Lock()
	ranges := slices.Clone(w.watch.ranges)
	w.watch.mu.Unlock()
	want := map[string]bool{}
	for _, rg := range ranges[1:] {
		want[string(rg.Start)] = true
	}
	for i := 0; i < len(ranges); {
		n := min(1+r.IntN(3), len(ranges)-i)
		span := ranges[i : i+n]
		i += n
		if r.IntN(3) == 0 && len(goals) > 0 {
			continue
		}
		g := move.Goal{Start: span[0].Start, End: span[n-1].End, Stay: -1}
		for _, rg := range span[1:] {
			delete(want, string(rg.Start))
		}
		for _, k := range w.keys {
			if g.Start == nil || k > string(g.Start) {
				if (len(g.End) == 0 || k < string(g.End)) && r.IntN(4) == 0 && len(g.Cuts) < 3 {
					g.Cuts = append(g.Cuts, []byte(k))
					want[k] = true
				}
			}
		}
		if n == 1 && len(g.Cuts) == 0 {
			g.Leave = span[0].Partition
		} else if n == 1 {
			g.Stay = r.IntN(len(g.Cuts)+2) - 1
		}
		goals = append(goals, g)
	}
	for k := range want {
		cuts = append(cuts, k)
	}
	slices.Sort(cuts)
	return goals, cuts
}

// dies reports whether the mover m dies at the failpoint that it has reached.
func (w *world) dies(m *mover, point string) bool {
	n := w.points.Add(1)
	if w.c.KillAt > 0 {
		return n == int64(w.c.KillAt)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.c.Kill > 0 && m.lives < 30 && m.r.Float64() < w.c.Kill
}
