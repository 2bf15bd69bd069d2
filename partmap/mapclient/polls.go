package mapclient

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// poll is one answered read of a map clock.
type poll struct {
	*proof
	mapClock mapClock
	version  store.Version
}

// proof is the part of a poll that leases need, without the 4 KiB of the poll's map clock. Each cached root keeps a
// proof.
type proof struct {
	clock *clock
	sent  wait.Instant // before the read was begun
	value uint64       // of the map clock
	// line is how often the clock had gone back before this poll. Earlier proofs may be of
	// a history that a restored store has left.
	line uint64
}

// proofBytes is the memory of a proof.
const proofBytes = 64

// clock is the state of one map clock. It is polled as long as it is used.
type clock struct {
	n       *network
	number  uint32
	latest  atomic.Pointer[poll]
	line    atomic.Uint64 // of the next poll
	used    atomic.Bool   // since the last poll
	asking  shared
	bumps   wait.Rounds[bumpGroup]
	polling bool // guarded by network.mu
}

// idlePolls is the number of polls of an unused clock before polling stops.
const idlePolls = 10

// clock returns a clock by its number.
func (n *network) clock(number uint32) *clock {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.clocks[number]
	if k == nil {
		k = &clock{n: n, number: number}
		n.clocks[number] = k
	}
	return k
}

// current returns the latest poll if it is still valid, else a fresh one.
func (k *clock) current(ctx context.Context) (*poll, error) {
	touch(&k.used)
	k.keepPolling()
	if p := k.latest.Load(); p != nil && k.n.alive(p.proof) {
		return p, nil
	}
	if _, err := k.asking.do(ctx, "", clockName(k.number), k.poll); err != nil {
		return nil, err
	}
	return k.latest.Load(), nil
}

// keepPolling starts to poll the clock in the background, unless it is polled already.
func (k *clock) keepPolling() {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	if !k.polling && !k.n.stopped {
		k.polling = true
		k.n.work.Go(k.run)
	}
}

// PollPause returns the pause between two polls of a map clock, for a jitter from 0 to 1.
func PollPause(lease time.Duration, jitter float64) time.Duration {
	const least = 0.8
	return time.Duration(float64(lease/3) * (least + (1-least)*jitter))
}

// run polls the clock each third of a lease, minus jitter, which spreads the polls of processes
// that were started together.
func (k *clock) run() {
	var idle int // polls since the clock was last used
	for {
		if wait.Sleep(k.n.ctx, PollPause(k.n.lease, k.n.jitter())) != nil {
			return
		}
		// Failures are counted, and returned to the callers of current.
		<-k.asking.group.DoChan("", k.poll)
		if idle++; k.used.Swap(false) {
			idle = 0
		}
		if idle >= idlePolls && k.rest() {
			return
		}
	}
}

// rest stops the polls, unless the clock has just been used.
func (k *clock) rest() bool {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	k.polling = k.used.Load()
	return !k.polling
}

// poll reads the clock, in two attempts at most, within less than half a lease. In the second
// attempt the store uses another coordinator, if it has one.
func (k *clock) poll() (any, error) {
	k.n.counts.add(&k.n.counts.Polls)
	p, err := k.try()
	if err != nil && k.n.ctx.Err() == nil {
		k.n.counts.add(&k.n.counts.Retries)
		p, err = k.try()
	}
	if k.n.ctx.Err() != nil {
		err = errClosed
	}
	if err != nil {
		k.n.counts.add(&k.n.counts.Failures)
		return nil, err
	}
	k.latest.Store(p)
	return nil, nil
}

func (k *clock) try() (*poll, error) {
	ctx, cancel := context.WithTimeout(k.n.ctx, k.n.lease/5)
	defer cancel()
	p, err := k.n.ask(ctx, k.number)
	if err != nil {
		return nil, err
	}
	p.clock = k
	if was := k.latest.Load(); was != nil &&
		(p.version.Epoch < was.version.Epoch || p.version.Epoch == was.version.Epoch && p.version != was.version) {
		k.line.Add(1)
		return nil, store.Errorf(
			store.Unavailable,
			"%s: it went back from %d to %d, or changed without a bump: if the store was restored, restart this process",
			clockName(k.number), was.mapClock.value, p.mapClock.value,
		)
	}
	p.line = k.line.Load()
	return p, nil
}

// askClock reads a clock. The lease counts from before the read: a bump may be acknowledged
// right after the clock was read, long before the answer arrives.
func (n *network) askClock(ctx context.Context, number uint32) (*poll, error) {
	sent := n.now()
	c, v, err := readClock(ctx, n.store, number, store.Local)
	if err != nil {
		return nil, err
	}
	return &poll{proof: &proof{sent: sent, value: c.value}, mapClock: c, version: v}, nil
}
