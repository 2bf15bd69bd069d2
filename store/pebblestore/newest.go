package pebblestore

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/store"
)

// newest spares most writes the read of the present row. Keys are hashed to slots. A slot has
// an upper bound of the timestamps of all rows and tombstones ever stored under its keys. A
// write above the bound wins, and with advancing clocks nearly every write is above it. A bound
// that is too high costs a read; one that is too low would let an old write win, so bounds only
// grow.
//
// The bound of a slot is raised under the lock of the key. After a restart all slots start at
// the ceiling, a stored upper bound of all timestamps. It is raised in steps, ahead of the batch
// that needs it.
type newest struct {
	base    store.Timestamp // the ceiling at the start
	step    store.Timestamp // see ceilingStep
	ceiling atomic.Int64
	mu      sync.Mutex // one raise of the ceiling at a time
	slots   [1 << 16]atomic.Int64
}

// ceilingKey holds the ceiling: 8 bytes.
var ceilingKey = []byte{tableMeta, 'c'}

// ceilingStep is how far ahead of the newest timestamp the ceiling is set. Ten seconds: one
// small write in ten seconds, and slower writes for at most ten seconds after a restart.
const ceilingStep = store.Timestamp(10_000_000)

// below reports whether everything stored in the slot is older than ts.
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

// reserve raises the stored ceiling to ts at least. It is called before a batch with that
// timestamp is applied; the log keeps this order across a crash.
func (s *Store) reserve(ts store.Timestamp) error {
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

func (s *Store) loadCeiling() error {
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
