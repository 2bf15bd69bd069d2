// Package memstore is a store in memory: the reference implementation of the contract, for
// tests and simulations.
//
// The store is simple rather than fast: it has one lock, ordered trees, and Cassandra's rules. Tombstones and removals
// are kept for ever and are invisible to readers. The store has no goroutines and uses neither the time nor randomness,
// so that runs over it can be repeated exactly.
package memstore

import (
	"context"
	"sync"

	"github.com/tidwall/btree"

	"github.com/evenkeel/evenkeel/store"
)

// Store is a store.Store in memory that also implements store.PartitionLister.
// It is safe for concurrent use. New makes one.
type Store struct {
	mu     sync.RWMutex
	closed bool

	partitions btree.Map[string, *partition] // the key is the encoded address
	registers  map[store.Table]*btree.Map[string, store.Record]
	history    map[store.BucketID][]store.Record // replaced roots, oldest first
	nodes      map[store.BucketID]*btree.Map[string, []byte]
}

var (
	_ store.Store           = (*Store)(nil)
	_ store.PartitionLister = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	s := &Store{
		registers: map[store.Table]*btree.Map[string, store.Record]{},
		history:   map[store.BucketID][]store.Record{},
		nodes:     map[store.BucketID]*btree.Map[string, []byte]{},
	}
	for _, t := range store.Tables() {
		s.registers[t] = &btree.Map[string, store.Record]{}
	}
	return s
}

// Close makes every later call fail with Unavailable. It waits for calls that are under way.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// read runs f under the read lock. It returns the error of f, with op as the name of the operation. It returns an error
// without running f in three cases: invalid is an error (bad arguments), ctx has ended, or the store is closed.
func (s *Store) read(ctx context.Context, op string, invalid error, f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.guarded(ctx, op, invalid, f)
}

// write runs f under the write lock. It returns the error of f, with op as the name of the operation. It returns an
// error without running f in three cases: invalid is an error (bad arguments), ctx has ended, or the store is closed.
func (s *Store) write(ctx context.Context, op string, invalid error, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guarded(ctx, op, invalid, f)
}

func (s *Store) guarded(ctx context.Context, op string, invalid error, f func() error) error {
	err := invalid
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case s.closed:
		err = store.ErrClosed
	default:
		err = f()
	}
	return store.Wrap(op, err)
}

// scan calls keep for the keys of the tree m above after, in ascending order. It stops when keep has returned true
// limit times.
func scan[V any](m *btree.Map[string, V], after string, limit int, keep func(key string, v V) bool) {
	m.Ascend(after, func(key string, v V) bool {
		if key == after {
			return true
		}
		if keep(key, v) {
			limit--
		}
		return limit > 0
	})
}
