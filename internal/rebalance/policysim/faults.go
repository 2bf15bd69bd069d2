package policysim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// faults decides when the faults of a scenario happen in a simulation, e.g. when the store is slow. faults is safe for
// concurrent use.
type faults struct {
	s     *Scenario
	since func() time.Duration // time since the beginning
	// spend lets the given simulated time pass, as a delay does.
	spend func(time.Duration)

	mu sync.Mutex
	r  *rand.Rand
}

func newFaults(s *Scenario, since func() time.Duration, spend func(time.Duration)) *faults {
	return &faults{s: s, since: since, spend: spend, r: rand.New(rand.NewPCG(s.Seed, 0x6661756c))}
}

// draw returns a random number in [0, 1), which decides whether a simulated fault happens.
func (f *faults) draw() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r.Float64()
}

// swap returns the error of a simulated change of a bucket's map, or nil if the change succeeds at present. It is
// called before each change.
func (f *faults) swap() error {
	if f.s.faulty(MovesAway, f.since()) != nil {
		return store.Errorf(store.Unavailable, "another data centre is away")
	}
	return nil
}

// read delays a simulated read of a register while the scenario has a slow store. It is called before each read.
func (f *faults) read() {
	if x := f.s.faulty(SlowStore, f.since()); x != nil {
		f.spend(x.By)
	}
}

// recorder reports the simulated requests to a counter.Recorder, which counts the rows of partitions. recorder also
// counts the requests to each partition for the results of the simulation.
type recorder struct {
	*counter.Recorder
	t *tally
	f *faults
}

// Put records the put of a row, several times if the scenario has wrong counts. Put is a method of listing.Recorder.
func (r recorder) Put(p store.Partition, key []byte, size int, at store.Timestamp) {
	r.t.hottest(p)
	r.Recorder.Put(p, key, size, at)
	for range r.f.s.Counter.Times - 1 {
		r.Recorder.Put(p, []byte{byte(256 * r.f.draw()), byte(256 * r.f.draw()), byte(256 * r.f.draw())}, size, at)
	}
}

// Delete records the delete of a row. Delete is a method of listing.Recorder.
func (r recorder) Delete(p store.Partition, key []byte, at store.Timestamp, marker bool) {
	r.t.hottest(p)
	r.Recorder.Delete(p, key, at, marker)
}

// Read records the read of a row. Read is a method of listing.Recorder.
func (r recorder) Read(p store.Partition, key []byte) {
	r.t.hottest(p)
	r.Recorder.Read(p, key)
}

// counters is a counter.Backend with the faults of a scenario: at times it cannot be reached, and it loses batches of
// counts.
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

// Flush adds a batch of counts to the counters, or loses the batch. It fails while the simulated counters cannot be
// reached.
func (c counters) Flush(ctx context.Context, b *counter.Batch) ([]counter.Hint, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	if lost := c.f.s.Counter.Lost; lost > 0 && c.f.draw() < lost {
		return nil, nil
	}
	return c.Backend.Flush(ctx, b)
}

// Stats returns the counts of partitions. It fails while the simulated counters cannot be reached.
func (c counters) Stats(ctx context.Context, p []store.Partition) ([]counter.Stats, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	return c.Backend.Stats(ctx, p)
}

// Quanta returns the runs of rows that the last exact count of a partition found. It fails while the simulated counters
// cannot be reached.
func (c counters) Quanta(ctx context.Context, p store.Partition) ([]counter.Quantum, error) {
	if err := c.away(); err != nil {
		return nil, err
	}
	return c.Backend.Quanta(ctx, p)
}

// Written returns the partitions that were written to since mark. It fails while the simulated counters cannot be
// reached.
func (c counters) Written(ctx context.Context, mark uint64) ([]store.Partition, uint64, error) {
	if err := c.away(); err != nil {
		return nil, mark, err
	}
	return c.Backend.Written(ctx, mark)
}

// Correct sets the counters of a partition to the result of an exact count. It fails while the simulated counters
// cannot be reached.
func (c counters) Correct(ctx context.Context, p store.Partition, n *counter.Count) error {
	if err := c.away(); err != nil {
		return err
	}
	return c.Backend.Correct(ctx, p, n)
}

// Forget removes the counts of partitions. It fails while the simulated counters cannot be reached.
func (c counters) Forget(ctx context.Context, p ...store.Partition) error {
	if err := c.away(); err != nil {
		return err
	}
	return c.Backend.Forget(ctx, p...)
}

// Read returns a register of the simulated store, after a delay while the scenario has a slow store.
func (t *tally) Read(ctx context.Context, in store.Table, key []byte, l store.Level) (store.Record, error) {
	t.f.read()
	return t.Store.Read(ctx, in, key, l)
}

// Swap changes a register of the simulated store. A change of a bucket's root fails while the scenario has another data
// centre that cannot be reached.
func (t *tally) Swap(ctx context.Context, in store.Table, key []byte, old store.Version, next store.Record) error {
	if err := t.f.swap(); err != nil && in == store.Roots {
		return err
	}
	return t.Store.Swap(ctx, in, key, old, next)
}
