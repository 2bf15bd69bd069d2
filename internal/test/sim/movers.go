package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

var errKilled = errors.New("killed")

// mover is a process that moves ranges. It is killed at random, and restarted. Only its goals outlive a restart.
type mover struct {
	w     *world
	name  string
	seed  uint64
	lives int

	mu sync.Mutex // failpoints are reached by several goroutines
	r  *rand.Rand
}

// run starts the mover again and again until the goals are reached. A goal is a wanted cut of a span of keys into
// ranges.
func (m *mover) run(ctx context.Context, goals []move.Goal) {
	for ctx.Err() == nil && !m.w.s.failed() {
		if !m.live(ctx, goals) {
			return
		}
	}
}

// live runs the mover until it ends or is killed. The result is true if the mover has to be started again.
func (m *mover) live(ctx context.Context, goals []move.Goal) (again bool) {
	m.lives++
	a := &actor{name: fmt.Sprintf("%s.%d", m.name, m.lives), centre: int(m.seed/100) % 2}
	maps := &moverMaps{Client: m.w.maps, m: m.w.c.Mistakes, w: m.w.watch, store: m.w.gated}
	now, after := time.Now, time.Hour
	if n := m.w.c.Net; n != nil {
		p, err := m.w.newProcess(a, m.seed+uint64(m.lives))
		if err != nil {
			m.w.s.fail("%s: %v", a.name, err)
			return false
		}
		defer p.end()
		maps.Client, maps.p, now, after = p.maps, p, time.Now, collectAfter(n)
	}
	s := &moverStore{Store: m.w.gated, m: m.w.c.Mistakes, w: m.w.watch, stamps: m.w.stamps, sweep: m.w.lateSweeps}
	var rows executor.Store = s
	if m.w.c.Centres != nil && !m.w.c.Mistakes.NearMover {
		rows = several{s}
	}
	ctx, cancel := context.WithCancel(ctx)
	killed := make(chan struct{})
	die := sync.OnceFunc(func() {
		cancel()
		m.w.s.kill(a)
		m.w.kills.Add(1)
		close(killed)
	})
	x := executor.New(rows, maps, m.w.bucket, executor.Options{
		PageRows: 1 + m.r.IntN(4), BatchRows: 1 + m.r.IntN(3), Writers: 1 + m.r.IntN(2), Parallel: 1 + m.r.IntN(3),
		NewID: m.newID, Now: now, CollectAfter: after,
		Failpoint: func(ctx context.Context, point, detail string) error {
			if ctx.Err() != nil || !m.w.s.gate(ctx, point+" "+detail) {
				return errKilled
			}
			if maps.m.SweepUnchecked && point == "sweep markers read" ||
				maps.m.UncopyUnchecked && point == "compare lost" {
				maps.mu.Lock()
				maps.sweeps++
				maps.mu.Unlock()
			}
			if m.w.dies(m, point) {
				die()
				return errKilled
			}
			return nil
		},
		Observe: func(e executor.Event) {
			if e.Kind == executor.GoalRefused && ctx.Err() == nil && !m.w.c.Loose && !m.w.h.over() {
				m.w.s.fail("I10: %s: a goal was refused: %v", a.name, e.Err)
			}
		},
	})
	x.Add(goals...)
	ended := make(chan error, 1)
	m.w.actors.Go(func() { ended <- x.Run(withActor(ctx, a)) })
	select {
	case <-killed:
		return true
	case err := <-ended:
		dead := ctx.Err() != nil
		cancel()
		switch {
		case dead, errors.Is(err, errKilled), errors.Is(err, errStopped):
			return true
		case err == nil, m.w.h.over():
			return false
		case m.w.c.Deletes && store.KindOf(err) == store.Unavailable:
			// The bucket is closing. Its deleter continues, or its death is noticed.
			m.w.s.hurried(1)
			defer m.w.s.hurried(-1)
			time.Sleep(10 * time.Second)
			m.lives--
			return true
		}
		m.w.s.fail("I11: %s stopped with an error: %v", a.name, err)
		return false
	}
}

// collectAfter returns the time for which old map nodes are kept for readers of older epochs of the map.
func collectAfter(n *Net) time.Duration { return 2 * n.Lease }

// collect runs a process that deletes old map nodes while the function moving returns true, i.e. while ranges move.
func (m *mover) collect(ctx context.Context, moving func() bool) {
	a := &actor{name: m.name}
	p, err := m.w.newProcess(a, m.seed)
	if err != nil {
		m.w.s.fail("%s: %v", a.name, err)
		return
	}
	defer p.end()
	ctx = withActor(ctx, a)
	maps := &collectorMaps{p.maps, m.w.c.Mistakes}
	x := executor.New(m.w.gated, maps, m.w.bucket,
		executor.Options{Now: time.Now, CollectAfter: collectAfter(m.w.c.Net)})
	for ctx.Err() == nil && !m.w.s.failed() && moving() {
		n, _, err := x.Collect(ctx)
		if k := store.KindOf(err); err != nil && k != store.Unavailable && k != store.Timeout && k != store.NotFound {
			m.w.s.fail("I10: %s: %v", a.name, err)
		}
		m.w.collected.Add(int64(n))
		time.Sleep(m.w.c.Net.Lease / 3)
	}
}

// collectorMaps is the map client of a process that deletes old map nodes. It makes the mistake CollectByAge.
type collectorMaps struct {
	*mapclient.Client
	m Mistakes
}

// Load returns the root of a map. With the mistake CollectByAge, Load pretends that all epochs are older than they are.
func (c *collectorMaps) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	root, err := c.Client.Load(ctx, id)
	if err == nil && c.m.CollectByAge {
		later := *root
		later.Epoch += 1 << 30
		root = &later
	}
	return root, err
}

func (m *mover) newID() uuid.UUID {
	if m.w.c.Mistakes.UsedDestination {
		m.w.watch.mu.Lock()
		defer m.w.watch.mu.Unlock()
		homes := map[store.PartitionID]bool{}
		for _, rg := range m.w.watch.ranges {
			homes[rg.Partition], homes[rg.To] = true, true
		}
		var best store.PartitionID
		for _, r := range m.w.watch.removed {
			if !homes[r.partition] {
				best = r.partition
			}
		}
		if !best.IsZero() {
			return uuid.UUID(best)
		}
	}
	return m.w.newID()
}
