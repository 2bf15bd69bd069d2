// Package memstore is a store in memory: the reference implementation of the contract, for tests and simulations.
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

// Store is a store that keeps its data in memory. New makes it. A Store is safe for concurrent use.
type Store interface {
	store.Store
	store.PartitionLister
}

// memory has all rows, registers and map nodes of a store in memory. Its methods are those of Store. They keep copies of
// what they are given, and return copies; lists are in the order of their bytes.
type memory struct {
	mu     sync.RWMutex
	closed bool

	partitions btree.Map[string, *partition] // the key is the encoded address
	registers  map[store.Table]*btree.Map[string, store.Record]
	history    map[store.BucketID][]store.Record // replaced roots, oldest first
	nodes      map[store.BucketID]*btree.Map[string, []byte]
}

// New returns an empty store that keeps its data in memory.
func New() Store {
	s := &memory{
		registers: map[store.Table]*btree.Map[string, store.Record]{},
		history:   map[store.BucketID][]store.Record{},
		nodes:     map[store.BucketID]*btree.Map[string, []byte]{},
	}
	for _, t := range store.Tables() {
		s.registers[t] = &btree.Map[string, store.Record]{}
	}
	return s
}

func (s *memory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// read runs f, a read of the store, under the read lock. It returns the error of f, with op, the name of the operation,
// before its text. The parameter invalid is the error of the arguments, or nil. read does not run f, and returns an
// error, if
//   - invalid is not nil,
//   - ctx has ended, or
//   - the store is closed.
func (s *memory) read(ctx context.Context, op string, invalid error, f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.guarded(ctx, op, invalid, f)
}

// write runs f, a change of the store, under the write lock. It returns the error of f, with op, the name of the
// operation, before its text. The parameter invalid is the error of the arguments, or nil. write does not run f, and
// returns an error, if
//   - invalid is not nil,
//   - ctx has ended, or
//   - the store is closed.
func (s *memory) write(ctx context.Context, op string, invalid error, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guarded(ctx, op, invalid, f)
}

func (s *memory) guarded(ctx context.Context, op string, invalid error, f func() error) error {
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

// scan calls keep for the keys of the tree m that are above the key after, in ascending order. scan stops when keep has
// returned true limit times.
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
