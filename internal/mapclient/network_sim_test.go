package mapclient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// mistakes are made on purpose, one at a time.
type mistakes struct {
	client   func(p *process)
	mover    func(p *process)
	answers  bool // leases count from the answer
	takeOver bool // whoever finds somebody else's epoch does not wait anew
}

func (m mistakes) any() bool {
	return m.client != nil || m.mover != nil || m.answers || m.takeOver
}

// sim is some clients and two movers on a few buckets, in virtual time: answers
// are late or lost, polls fail, processes are suspended, wall clocks step, and
// reads at Local lag behind. At every moment it holds the invariants.
type sim struct {
	ctx     context.Context
	all     *lagged
	rng     *locked
	wrong   mistakes
	buckets []store.BucketID

	mu        sync.Mutex
	held      []held
	violation error
	stats     simStats
}

type simStats struct{ swaps, waits, leases, refused int }

// held is a lease that somebody has taken and not given back.
type held struct {
	who    int
	bucket store.BucketID
	lease  *mapclient.Lease
}

const simLease = 3 * time.Second

// simulate runs for so long in virtual time, and returns what was violated first.
func simulate(t *testing.T, seed uint64, d time.Duration, wrong mistakes) (x *sim) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		rng := &locked{Rand: rand.New(rand.NewPCG(seed, 7))}
		x = &sim{ctx: ctx, rng: rng, wrong: wrong, all: newLagged(rng)}
		// One clock of all: the mistakes know its number.
		require.NoError(t, mapclient.InitClocks(ctx, x.all, 1))
		setup, err := mapclient.NewNetwork(x.all, mapclient.Options{Clocks: 1})
		require.NoError(t, err)
		for range 2 {
			id := store.BucketID(newUUID(rng.Rand))
			x.buckets = append(x.buckets, id)
			_, err := setup.Create(ctx, id, cutsOf(3))
			require.NoError(t, err)
		}
		setup.Close()
		x.all.maxLag = 4 * time.Second

		var work sync.WaitGroup
		var clients []*mapclient.Client
		open := func(p *process) *mapclient.Client {
			c, err := mapclient.NewNetwork(p, mapclient.Options{Clocks: 1, Now: p.now, Monotonic: p.monotonic})
			require.NoError(t, err)
			clients = append(clients, c)
			return c
		}
		const many = 5
		for i := range many {
			p := newProcess(
				x.all,
				rng,
				faultstore.Options{
					Seed: seed + uint64(i), PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Read: {Lose: 0.05}},
				},
			)
			p.rate = 1 + (float64(i)-2)/500 // up to 0.4 % off
			if wrong.client != nil {
				wrong.client(p)
			}
			c := open(p)
			if wrong.answers {
				mapclient.StampAnswers(c)
			}
			work.Go(func() { x.befall(p, i) })
			work.Go(func() { x.act(c, p, i) })
		}
		for i := range 2 {
			p := newProcess(
				x.all,
				rng,
				faultstore.Options{Seed: seed + 100 + uint64(i), PerOp: map[faultstore.Op]faultstore.Rates{
					faultstore.Swap: {Refuse: 0.05, Lose: 0.15, Late: 0.1}, faultstore.Read: {Lose: 0.03},
				}},
			)
			if wrong.mover != nil {
				wrong.mover(p)
			}
			c := open(p)
			work.Go(func() { x.befall(p, i) })
			work.Go(func() { x.move(c, i) })
		}
		for range int(d / (25 * time.Millisecond)) {
			time.Sleep(25 * time.Millisecond)
			x.check("at rest", store.BucketID{}, 0)
		}
		stop()
		work.Wait()
		for _, c := range clients {
			c.Close()
		}
		time.Sleep(time.Minute) // whatever is under way comes to its end
	})
	return x
}

func (x *sim) sleep(d time.Duration) { _ = wait.Sleep(x.ctx, x.rng.upTo(d)) }

// befall lets one kind of misfortune after the other come over a process. The
// clocks of a process suffer one kind only: one that is suspended and whose wall
// clock is set back at once has no clock left to tell.
func (x *sim) befall(p *process, i int) {
	for x.ctx.Err() == nil {
		x.sleep(8 * time.Second)
		for _, on := range []bool{true, false} {
			switch i % 3 {
			case 0:
				if on {
					p.suspend()
				} else {
					p.resume()
				}
			case 1:
				step := x.rng.upTo(20*time.Second) - 10*time.Second
				p.set(func() { p.stepped += step })
			}
			switch x.rng.upTo(3) {
			case 0:
				p.set(func() { p.cut = on })
			case 1:
				p.set(func() { p.slow = on })
			case 2:
				p.set(func() { p.rowMissing = on })
			}
			if !on {
				p.set(func() { p.cut, p.slow, p.rowMissing = false, false, false })
			}
			x.sleep(6 * time.Second)
		}
	}
}

// act takes leases, works under them and gives them back, some of them late.
func (x *sim) act(c *mapclient.Client, p *process, who int) {
	newest := map[store.BucketID]uint64{}
	for x.ctx.Err() == nil {
		if p.runs(x.ctx) != nil {
			return
		}
		id := x.buckets[x.rng.upTo(time.Duration(len(x.buckets)-1))]
		l, err := c.Acquire(x.ctx, id)
		if err != nil {
			if k := store.KindOf(err); k != store.Unavailable && k != store.Timeout {
				x.violated("lease refused: %v", err)
			}
			x.mu.Lock()
			x.stats.refused++
			x.mu.Unlock()
			x.sleep(200 * time.Millisecond)
			continue
		}
		if e := l.Root().Epoch; e < newest[id] {
			x.violated("I9: a lease on epoch %d after one on %d", e, newest[id])
		} else {
			newest[id] = e
		}
		h := held{who, id, l}
		x.mu.Lock()
		x.stats.leases++
		x.held = append(x.held, h)
		x.mu.Unlock()
		x.check("taken", store.BucketID{}, 0)
		if !x.rng.oneIn(4) {
			x.sleep(time.Second)
		}
		time.AfterFunc(x.rng.upTo(2*simLease), func() { x.giveBack(h) })
	}
}

func (x *sim) giveBack(h held) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.held {
		if x.held[i] == h {
			x.held[i] = x.held[len(x.held)-1]
			x.held = x.held[:len(x.held)-1]
			return
		}
	}
}

// move waits and swaps, as often as it can.
func (x *sim) move(c *mapclient.Client, who int) {
	rng := rand.New(rand.NewPCG(uint64(x.rng.upTo(1<<40)), 1))
	mine := map[store.BucketID]uint64{}
	for x.ctx.Err() == nil {
		id := x.buckets[x.rng.upTo(time.Duration(len(x.buckets)-1))]
		root, err := c.Load(x.ctx, id)
		if err != nil {
			x.sleep(time.Second)
			continue
		}
		if !x.wrong.takeOver || mine[id] == root.Epoch {
			if c.Wait(x.ctx, id) != nil {
				continue
			}
			x.mu.Lock()
			x.stats.waits++
			x.mu.Unlock()
			x.check("I7, after a wait", id, root.Epoch)
			// Of a mistake, the harm has to show.
			if err := x.waited(id, root.Epoch); err != nil && x.ctx.Err() == nil && !x.wrong.any() {
				x.violated("I6: epoch %d: %v", root.Epoch, err)
			}
		}
		change, err := step(x.ctx, c, root, rng)
		if err != nil {
			if store.KindOf(err) != store.Timeout && store.KindOf(err) != store.Unavailable {
				x.violated("step: %v", err)
			}
			continue
		}
		if c.Swap(x.ctx, change) == nil {
			mine[id] = change.Next.Epoch
			x.mu.Lock()
			x.stats.swaps++
			x.mu.Unlock()
		}
		x.check("swapped", store.BucketID{}, 0)
		x.sleep(500 * time.Millisecond)
	}
}

// waited checks that a wait which has just ended was long enough, after all that
// it has to come after.
func (x *sim) waited(id store.BucketID, epoch uint64) error {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	swap, ok := firstAt(x.all.seen[register(store.Roots, id[:])], epoch)
	if !ok {
		return errors.New("its root is not acknowledged")
	}
	clock := register(store.Clocks, make([]byte, 4))
	before := uint64(0)
	for _, bump := range x.all.swaps[clock] {
		named, value := mapclient.ClockNames(bump.rec, id, before)
		before = value
		if !named || bump.at.Before(swap) {
			continue
		}
		if seen, ok := firstAt(x.all.seen[clock], bump.rec.Epoch); !ok ||
			time.Since(seen) < mapclient.WaitFor(simLease) {
			return errors.New("the wait did not begin at an acknowledged bump")
		}
		return nil
	}
	return errors.New("no bump came after the acknowledged swap")
}

// check holds I3; and I7, that no lease on a bucket below an epoch is alive.
func (x *sim) check(when string, bucket store.BucketID, least uint64) {
	x.mu.Lock()
	all := append([]held(nil), x.held...)
	x.mu.Unlock()
	type span struct{ lo, hi held }
	spans := map[store.BucketID]span{}
	for _, h := range all {
		if !h.lease.Valid() {
			continue
		}
		e := h.lease.Root().Epoch
		if h.bucket == bucket && e < least {
			x.violated("%s for epoch %d, client %d has a lease on %d", when, least, h.who, e)
		}
		s, ok := spans[h.bucket]
		if !ok {
			s = span{h, h}
		}
		if e < s.lo.lease.Root().Epoch {
			s.lo = h
		}
		if e > s.hi.lease.Root().Epoch {
			s.hi = h
		}
		spans[h.bucket] = s
	}
	for _, s := range spans {
		if lo, hi := s.lo.lease.Root().Epoch, s.hi.lease.Root().Epoch; hi > lo+1 {
			x.violated("I3, %s: clients %d and %d have leases on epochs %d and %d", when, s.lo.who, s.hi.who, lo, hi)
		}
	}
}

func (x *sim) violated(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.violation == nil {
		x.violation = fmt.Errorf("at %v: "+format, append([]any{time.Now().Format("04:05.000")}, args...)...)
	}
}

// TestI3I6I7I9NetworkLeases holds the invariants of leases and waits, whatever
// befalls the processes.
func TestI3I6I7I9NetworkLeases(t *testing.T) {
	seed.Each(t, 4, func(seed uint64) bool {
		x := simulate(t, seed, time.Minute, mistakes{})
		t.Logf("seed %d: %+v", seed, x.stats)
		require.NoError(t, x.violation)
		require.Greater(t, x.stats.swaps, 5)
		require.Greater(t, x.stats.leases, 150)
		return true
	})
}

// TestMistakesAreCaught makes each of the mistakes that the protocol warns of,
// and wants to see an invariant broken.
func TestMistakesAreCaught(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("many simulated runs: make test has them without the race detector")
	}
	seed := seed.Number(t)
	for name, wrong := range map[string]mistakes{
		"root before clock":                         {client: func(p *process) { p.rootFirst = true }},
		"bump before swap":                          {mover: func(p *process) { p.bumpFirst = true }},
		"lease from the answer":                     {answers: true},
		"lease by the monotonic clock only":         {client: func(p *process) { p.noWall = true }},
		"wait from a swap not acknowledged":         {mover: func(p *process) { p.noRootAck = true }},
		"wait from a bump not acknowledged":         {mover: func(p *process) { p.noClockAck = true }},
		"wait over with the first clock":            {mover: func(p *process) { p.furtherClock = true }},
		"a missing clock is zero":                   {client: func(p *process) { p.missingIsZero, p.rowMissing = true, true }},
		"taking over without a wait":                {takeOver: true},
		"somebody else's bump before acknowledging": {mover: func(p *process) { p.othersBump = true }},
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 30
			for i := range uint64(seeds) {
				if x := simulate(t, seed+i, 2*time.Minute, wrong); x.violation != nil {
					t.Logf("seed %d: %v", seed+i, x.violation)
					return
				}
			}
			t.Errorf("not caught with the seeds %d to %d", seed, seed+seeds-1)
		})
	}
}
