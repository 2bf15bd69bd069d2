package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// clientLives runs a client. In the network form a client that has died is restarted. i is the number of the client.
func (w *world) clientLives(ctx context.Context, i int, moving func() bool) {
	for life := 1; ; life++ {
		cl, err := w.client(i, life)
		if err != nil {
			w.s.fail("starting a client: %v", err)
			return
		}
		ctx, cancel := context.WithCancel(withActor(ctx, cl.a))
		var died atomic.Bool
		if cl.p != nil && life < 10 {
			cl.p.die = sync.OnceFunc(func() {
				died.Store(true)
				w.deaths.Add(1)
				w.s.kill(cl.a)
				cancel()
			})
		}
		cl.run(ctx, w.c.Ops, moving)
		cancel()
		if cl.p != nil {
			cl.p.end()
		}
		if w.s.failed() || w.h.over() || !died.Load() {
			return
		}
	}
}

func (w *world) client(i, life int) (*client, error) {
	a := &actor{name: fmt.Sprintf("client%d", i), client: true, lazy: w.c.Sparse, centre: i % 2}
	attempts := 3
	if w.c.Late > 0 {
		attempts = 1 // a retried put would not be late
	}
	seed := uint64(1000*life + i)
	c := &client{
		s: w.s, h: w.h, a: a, r: rand.New(rand.NewPCG(w.c.Seed, 100+seed)),
		keys: w.keys, writes: w.c.Writes, faults: w.c.faulty(), id: w.bucket, watch: w.watch, m: w.c.Mistakes,
		deleter: w.c.Deletes && i == 0, closes: w.c.Deletes,
	}
	maps, stamps := w.maps, *w.stamps
	if w.c.Net != nil {
		a.name = fmt.Sprintf("%s.%d", a.name, life)
		var err error
		if c.p, err = w.newProcess(a, 10_000+seed); err != nil {
			return nil, err
		}
		maps, c.p.index = c.p.maps, store.Timestamp(16*i+life)
		if w.c.Net.Servers > 0 {
			stamps.own = c.p
		}
	}
	c.stamps = &stamps
	var err error
	options := listing.Options{Timestamps: &stamps, WriteAttempts: attempts}
	if w.c.Ahead {
		c.folds = rand.New(rand.NewPCG(w.c.Seed, 500+seed))
		options.RowsPerRead, options.ReadAhead, options.ReadAheadAfter = 1, 4, 1
	}
	if w.c.Centres != nil {
		options.MaxParallel = 1 // the same seed gives the same run
	}
	if w.c.Ranges && !w.c.Deletes {
		c.ranges = rand.New(rand.NewPCG(w.c.Seed, 700+seed))
		options.MaxParallel = 1 // the same seed gives the same run
	}
	m := w.c.Mistakes
	m.EmptyAtHome = m.EmptyAtHome && c.deleter
	own := &clientStore{Store: w.gated, m: m, world: w, r: rand.New(rand.NewPCG(w.c.Seed, 300+seed))}
	var s store.Store = own
	if m.DeleteThroughAtOnce {
		s = hasty{own}
	}
	switch {
	case w.c.Centres == nil:
	case m.NearConfirm || m.NearPurge:
		s = nearSighted{own, m}
	default:
		s = several{own}
	}
	c.c, err = listing.New(mapclient.With(s, maps), options)
	if err != nil {
		return nil, err
	}
	c.b = c.c.Bucket("b")
	return c, nil
}
