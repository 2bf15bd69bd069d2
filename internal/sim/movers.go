package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/rebalance/executor"
	"github.com/evenkeel/evenkeel/rebalance/migrate"
	"github.com/evenkeel/evenkeel/store"
)

var errKilled = errors.New("killed")

// mover is a process that moves ranges: killed now and then, and started again
// with nothing but the goals.
type mover struct {
	w     *world
	name  string
	lives int

	mu sync.Mutex // failpoints are reached by several goroutines
	r  *rand.Rand
}

// run lives as often as it takes to reach the goals.
func (m *mover) run(ctx context.Context, goals []migrate.Goal) {
	for ctx.Err() == nil && !m.w.s.failed() {
		if !m.live(ctx, goals) {
			return
		}
	}
}

// live is one life. It reports whether it was cut short.
func (m *mover) live(ctx context.Context, goals []migrate.Goal) (again bool) {
	m.lives++
	a := &actor{name: fmt.Sprintf("%s.%d", m.name, m.lives)}
	maps := &moverMaps{Client: m.w.maps, m: m.w.c.Mistakes, w: m.w.watch, store: m.w.gated}
	s := &moverStore{Store: m.w.gated, m: m.w.c.Mistakes, w: m.w.watch, stamps: m.w.stamps, sweep: m.w.lateSweeps}
	ctx, cancel := context.WithCancel(ctx)
	killed := make(chan struct{})
	die := sync.OnceFunc(func() {
		cancel()
		m.w.s.kill(a)
		m.w.kills.Add(1)
		close(killed)
	})
	x := executor.New(s, maps, m.w.bucket, executor.Options{
		PageRows: 1 + m.r.IntN(4), BatchRows: 1 + m.r.IntN(3), Writers: 1 + m.r.IntN(2), Parallel: 1 + m.r.IntN(3),
		NewID: m.newID,
		Failpoint: func(ctx context.Context, point, detail string) error {
			if ctx.Err() != nil || !m.w.s.gate(ctx, point+" "+detail) {
				return errKilled
			}
			if point == "sweep markers read" {
				maps.mu.Lock()
				maps.sweeps++
				maps.mu.Unlock()
			}
			if m.w.strikes(m, point) {
				die()
				return errKilled
			}
			return nil
		},
		Observe: func(e executor.Event) {
			if e.Kind == executor.GoalRefused && ctx.Err() == nil && !m.w.c.Loose {
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
		case err == nil:
			return false
		}
		m.w.s.fail("I11: %s gave up: %v", a.name, err)
		return false
	}
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
