package manager

import (
	"encoding/binary"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// Writes counts what the clients of one process write, by partition: Changes for
// stores that this process has for itself. It is a listing.Recorder. Its methods are
// safe for concurrent use; it has to be emptied by Take now and then. The zero value
// is ready.
type Writes struct{ shards [32]writesShard }

type writesShard struct {
	mu sync.Mutex
	m  map[store.Partition]Written
	_  [40]byte // shards do not share a cache line
}

func (w *Writes) add(p store.Partition, x Written) {
	s := &w.shards[binary.BigEndian.Uint32(p.ID[12:])%uint32(len(w.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[store.Partition]Written{}
	}
	was := s.m[p]
	s.m[p] = Written{was.Puts + x.Puts, was.Deletes + x.Deletes}
}

// Put counts an entry.
func (w *Writes) Put(p store.Partition, _ []byte, _ int, _ store.Timestamp) {
	w.add(p, Written{Puts: 1})
}

// Delete counts a deletion.
func (w *Writes) Delete(p store.Partition, _ []byte, _ store.Timestamp, _ bool) {
	w.add(p, Written{Deletes: 1})
}

// Read counts nothing.
func (w *Writes) Read(store.Partition) {}

// Take returns what was written since the last call.
func (w *Writes) Take() map[store.Partition]Written {
	all := map[store.Partition]Written{}
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for p, x := range s.m {
			all[p] = x
		}
		s.m = nil
		s.mu.Unlock()
	}
	return all
}
