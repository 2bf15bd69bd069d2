package countbook

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// memory is a Backend that keeps the counts of partitions in memory only, e.g. for tests. The counts are lost when the
// process ends.
type memory struct {
	now func() time.Time

	mu      sync.Mutex
	book    *Book
	written map[store.Partition]uint64
	batches uint64
}

// NewMemory returns a Backend, without counts, that keeps the counts of partitions in memory only, e.g. for tests. They
// are lost when the process ends. The function `now` returns the wall clock; nil stands for time.Now.
func NewMemory(now func() time.Time) counter.Backend {
	if now == nil {
		now = time.Now
	}
	return &memory{now: now, book: NewBook(), written: map[store.Partition]uint64{}}
}

// Flush adds a client's batch of counts to the counts in memory. A batch that came before changes nothing. The result
// has one Hint (which keys to sample) for each partition of the batch. The error is always nil.
func (m *memory) Flush(_ context.Context, b *counter.Batch) ([]counter.Hint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.book.Seen(b) {
		m.book.Apply(b, m.now())
		m.batches++
		for i := range b.Deltas {
			m.written[b.Deltas[i].Partition] = m.batches
		}
	}
	return m.book.Hints(b), nil
}

// Written returns the partitions that were written to after mark, which is the result next of an earlier call or 0. The
// error is always nil.
func (m *memory) Written(_ context.Context, mark uint64) (out []store.Partition, next uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, seq := range m.written {
		if seq > mark {
			out = append(out, p)
		}
	}
	return out, m.batches, nil
}

// Stats returns the estimates for the given partitions, in the same order. The error is always nil.
func (m *memory) Stats(_ context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.Stats(partitions, m.now()), nil
}

// Quanta estimates how the rows of the partition p are distributed over intervals of keys. The error is always nil.
func (m *memory) Quanta(_ context.Context, p store.Partition) ([]counter.Quantum, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.Quanta(p), nil
}

// Correct replaces the estimate for the partition p by the result c of a recount. The error is always nil.
func (m *memory) Correct(_ context.Context, p store.Partition, c *counter.Count) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.State(p).Correct(c, m.book.Generation)
	return nil
}

// Forget deletes the counts of partitions that no longer exist. The error is always nil.
func (m *memory) Forget(_ context.Context, partitions ...store.Partition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		delete(m.book.States, p.ID)
		delete(m.written, p)
	}
	return nil
}

// Close does nothing, since counts in memory need no release. It implements Backend.
func (m *memory) Close() error { return nil }
