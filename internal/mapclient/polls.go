package mapclient

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// poll is the result of a successful read of a map clock, the counter by which clients learn of changed maps. It has
// the clock's content, the version of its record, and the part that leases need (the proof).
type poll struct {
	*proof
	mapClock mapClock
	version  store.Version
}

// proof is the part of a read of a map clock (a poll) that leases need: it shows that a root was the newest when the
// clock was read. Each cached root keeps a proof, and not the whole poll, which includes the 4 KiB of the map clock.
type proof struct {
	clock *clock
	sent  wait.Instant // the instant before the read began
	value uint64       // value of the map clock
	// line is the number of times that the clock had gone back before this read, as after a restore of the store.
	// Proofs with different lines are of different histories of the clock, so one can't be renewed by the other.
	line uint64
}

// proofBytes is the memory, in bytes, of a proof, which shows that a cached root was the newest.
const proofBytes = 64

// clock is what a client knows of one map clock, a counter in the store that is raised after changes of maps. The
// client polls the counter as long as leases need it.
type clock struct {
	n       *network
	number  uint32
	latest  atomic.Pointer[poll]
	line    atomic.Uint64 // line of the next poll's proof
	used    atomic.Bool   // the clock was used since the last poll
	asking  shared
	bumps   wait.Rounds[bumpGroup]
	polling bool // guarded by network.mu
}

// idlePolls says when the client stops the regular reads of a map clock: after so many reads in a row without a lease
// that needs the clock.
const idlePolls = 10

// clock returns what the client knows of the map clock with the given number, a counter in the store. The result is new
// if the client has not used the map clock before.
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

// current returns the latest read of the map clock, a counter in the store, if leases that count from this read are
// still valid. Otherwise it reads the clock again.
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

// keepPolling starts regular reads of the map clock in the background, if they are not under way already. The map clock
// is a counter in the store by which the client learns of changed maps.
func (k *clock) keepPolling() {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	if !k.polling && !k.n.stopped {
		k.polling = true
		k.n.work.Go(k.run)
	}
}

// PollPause returns the pause between two reads of a map clock, a counter by which processes learn of changed maps. The
// pause is at most a third of the length of a lease. jitter, from 0 to 1, chooses a pause from four fifths of that (0)
// to all of it (1).
func PollPause(lease time.Duration, jitter float64) time.Duration {
	const least = 0.8
	return time.Duration(float64(lease/3) * (least + (1-least)*jitter))
}

// run reads the map clock, a counter in the store, again and again in the background until the clock is no longer used.
// The pauses are those of PollPause with a random jitter, which spreads the reads of processes that were started
// together.
func (k *clock) run() {
	var idle int // polls in a row without a use of the clock
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

// rest ends the regular reads of the map clock, and returns true, if no lease has needed the clock since the last read.
// If a lease has, the result is false.
func (k *clock) rest() bool {
	k.n.mu.Lock()
	defer k.n.mu.Unlock()
	k.polling = k.used.Load()
	return !k.polling
}

// poll reads the map clock, a counter in the store, and keeps the result as the latest. It makes at most two attempts,
// which together take less than half a lease. In the second attempt the store uses another coordinator (the server that
// answers), if it has one. The first result is always nil.
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

// try makes a single attempt to read the map clock, a counter in the store. A counter that has gone back, as after a
// restore of the store, is an error of kind Unavailable. Earlier reads of the counter then prove nothing any more.
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

// askClock reads the map clock with the given number in this data centre (Local). The result also has the instant just
// before the read, from which leases count.
func (n *network) askClock(ctx context.Context, number uint32) (*poll, error) {
	// Leases don't count from the answer: the clock may be raised right after it was read, long before the answer
	// arrives.
	sent := n.now()
	c, v, err := readClock(ctx, n.store, number, store.Local)
	if err != nil {
		return nil, err
	}
	return &poll{proof: &proof{sent: sent, value: c.value}, mapClock: c, version: v}, nil
}
