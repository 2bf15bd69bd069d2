package policysim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// faults decides when the faults of a simulated scenario happen, and which counts of rows go wrong. It is safe for
// concurrent use.
type faults struct {
	s     *Scenario
	since func() time.Duration // time since the beginning
	// spend lets simulated time pass.
	spend func(time.Duration)

	mu sync.Mutex
	r  *rand.Rand
}

func newFaults(s *Scenario, since func() time.Duration, spend func(time.Duration)) *faults {
	return &faults{s: s, since: since, spend: spend, r: rand.New(rand.NewPCG(s.Seed, 0x6661756c))}
}

// draw returns a random number in [0, 1).
func (f *faults) draw() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.Float64()
}

// swap is called before a simulated swap of a map. It returns the error with which the swap fails now, or nil if the
// swap may go on.
func (f *faults) swap() error {
	if f.s.faulty(MovesAway, f.since()) != nil {
		return store.Errorf(store.Unavailable, "another data centre is away")
	}
	return nil
}

// read is called before a simulated read of a register. It delays the read while the scenario has a slow store.
func (f *faults) read() {
	if x := f.s.faulty(SlowStore, f.since()); x != nil {
		f.spend(x.By)
	}
}

// recorder reports the simulated requests to a counter.Recorder, which counts the rows of partitions. It also counts
// the requests to each partition for the results of the scenario.
type recorder struct {
	*counter.Recorder
	t *tally
	f *faults
}

// Put implements listing.Recorder.
func (r recorder) Put(p store.Partition, key []byte, size int, at store.Timestamp) {
	r.t.hottest(p)
	r.Recorder.Put(p, key, size, at)
	for range r.f.s.Counter.Times - 1 {
		r.Recorder.Put(p, []byte{byte(256 * r.f.draw()), byte(256 * r.f.draw()), byte(256 * r.f.draw())}, size, at)
	}
}

// Delete implements listing.Recorder.
func (r recorder) Delete(p store.Partition, key []byte, at store.Timestamp, marker bool) {
	r.t.hottest(p)
	r.Recorder.Delete(p, key, at, marker)
}

// Read implements listing.Recorder.
func (r recorder) Read(p store.Partition, key []byte) {
	r.t.hottest(p)
	r.Recorder.Read(p, key)
}

// counters is a counter.Backend with the faults of a scenario: it is unavailable at times, and loses batches of counts.
type counters struct {
	counter.Backend
	f *faults
}

func (c counters) away() error {
	if c.f.s.faulty(CountersAway, c.f.since()) != nil {
		return store.Errorf(store.Unavailable, "the counters are away")
	}
	return nil
}

// Flush implements counter.Backend.
func (c counters) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	if lost := c.f.s.Counter.Lost; lost > 0 && c.f.draw() < lost {
		return nil, nil
	}
	return c.Backend.Flush(ctx, b)
}

// Stats implements counter.Source.
func (c counters) Stats(ctx context.Context, p []store.Partition) ([]counter.Stats, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	return c.Backend.Stats(ctx, p)
}

// Quanta implements counter.Source.
func (c counters) Quanta(ctx context.Context, p store.Partition) ([]counter.Quantum, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	return c.Backend.Quanta(ctx, p)
}

// Written implements counter.Backend.
func (c counters) Written(ctx context.Context, mark uint64) ([]store.Partition, uint64, error) {
	if err := c.away(); err != nil {
		return nil, mark, err
	}
	return c.Backend.Written(ctx, mark)
}

// Correct implements counter.Backend.
func (c counters) Correct(ctx context.Context, p store.Partition, n *counter.Count) error {
	if err := c.away(); err != nil {
		return err
	}
	return c.Backend.Correct(ctx, p, n)
}

// Forget implements counter.Backend.
func (c counters) Forget(ctx context.Context, p ...store.Partition) error {
	if err := c.away(); err != nil {
		return err
	}
	return c.Backend.Forget(ctx, p...)
}

// Read implements store.Registers.
func (t *tally) Read(ctx context.Context, in store.Table, key []byte, l store.Level) (store.Record, error) {
	t.f.read()
	return t.Store.Read(ctx, in, key, l)
}

// Swap implements store.Registers.
func (t *tally) Swap(ctx context.Context, in store.Table, key []byte, old store.Version, next store.Record) error {
	if err := t.f.swap(); err != nil && in == store.Roots {
		return err
	}
	return t.Store.Swap(ctx, in, key, old, next)
}
