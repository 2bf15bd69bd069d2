package pebblestore

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// newest tells most writes, without a read, that they are newer than the stored row of their key. For this it has upper
// bounds of the timestamps of all stored rows. The keys are hashed to slots, with one bound for each slot. A write with
// a timestamp above the bound wins. While clocks advance, nearly every write is above the bound.
//
// A bound that is too high costs a read. A bound that is too low would let an old write win, so bounds only grow. The
// bound of a slot is raised under the lock of the key. After a restart all slots start at the ceiling, a stored upper
// bound of all timestamps. The ceiling is raised in steps, before the batch is applied that needs the higher ceiling.
type newest struct {
	base    store.Timestamp // the ceiling when the store was opened
	step    store.Timestamp // see ceilingStep
	ceiling atomic.Int64
	mu      sync.Mutex // one raise of the ceiling at a time
	slots   [1 << 16]atomic.Int64
}

// ceilingKey is the key in Pebble under which the ceiling is stored: an upper bound of all timestamps in the store. The
// value has 8 bytes.
var ceilingKey = []byte{tableMeta, 'c'}

// ceilingStep is how far, in microseconds, the ceiling is set above the newest timestamp: ten seconds. The ceiling is a
// stored upper bound of all timestamps in the store. The step is long, so that the ceiling is rarely written. It is
// short, since writes are slower for as long after a restart.
const ceilingStep = store.Timestamp(10_000_000)

// below reports whether everything that is stored under a key is certainly older than the timestamp ts. The parameter
// hash is the hash of the key. The result may be false although nothing newer is stored under the key, since several
// keys share one upper bound.
func (n *newest) below(hash uint64, ts store.Timestamp) bool {
	return ts > n.base && int64(ts) > n.slot(hash).Load()
}

func (n *newest) raise(hash uint64, ts store.Timestamp) {
	s := n.slot(hash)
	for old := s.Load(); old < int64(ts) && !s.CompareAndSwap(old, int64(ts)); old = s.Load() {
	}
}

func (n *newest) slot(hash uint64) *atomic.Int64 {
	return &n.slots[(hash>>32)%uint64(len(n.slots))] // the low bits choose the stripe
}

// reserve raises the ceiling, which is a stored upper bound of all timestamps in the store, to at least ts. It must be
// called before a batch with the timestamp ts is applied. The log keeps this order across a crash.
func (s *directory) reserve(ts store.Timestamp) error {
	n := &s.newest
	if int64(ts) <= n.ceiling.Load() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if int64(ts) <= n.ceiling.Load() {
		return nil
	}
	to := store.Timestamp(math.MaxInt64)
	if ts < to-n.step {
		to = ts + n.step
	}
	v := binary.BigEndian.AppendUint64(nil, uint64(to))
	if err := s.apply(func() error { return s.db.Set(ceilingKey, v, pebble.NoSync) }); err != nil {
		return err
	}
	n.ceiling.Store(int64(to))
	return nil
}

func (s *directory) loadCeiling() error {
	v, err := s.read(ceilingKey)
	if err != nil || v == nil {
		return err
	}
	if len(v) != 8 {
		return store.Errorf(store.Corrupt, "the stored ceiling of timestamps has %d bytes", len(v))
	}
	s.newest.base = store.Timestamp(binary.BigEndian.Uint64(v))
	s.newest.ceiling.Store(int64(s.newest.base))
	return nil
}
