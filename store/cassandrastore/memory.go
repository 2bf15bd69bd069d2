package cassandrastore

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// rememberedPartitions is the number of partitions about which the memory keeps facts, each in at most a kilobyte.
	// Beyond it the partition that was used the longest ago is forgotten.
	rememberedPartitions = 10_000
	// firstRead is the row limit of a read while the size of the rows is not known.
	firstRead = 128
	// cutsPerPartition is the largest number of cuts that are kept of one partition. A cut is a key at which a read is
	// split, since replicas refuse a read across too many tombstones. Before one more cut is added, all cuts of the
	// partition are dropped. cutsLast is how long cuts are kept: later, compaction may have removed the tombstones.
	cutsPerPartition = 512
	cutsLast         = 10 * time.Minute
)

// memory remembers what earlier reads have shown about partitions, such as the size of their rows, in order to make
// reads faster. It may lack a partition, and what it remembers may be outdated.
type memory struct {
	partitions *lru.Cache[store.Partition, *partitionMemory]
	// largest is the largest mean size of a row, in bytes, that was seen in any partition.
	largest atomic.Int64
}

func newMemory() (*memory, error) {
	partitions, err := lru.New[store.Partition, *partitionMemory](rememberedPartitions)
	return &memory{partitions: partitions}, err
}

// of returns what is remembered about the partition p. If nothing is, the memory begins to remember the partition.
func (m *memory) of(p store.Partition) *partitionMemory {
	if known, ok := m.partitions.Get(p); ok {
		return known
	}
	known := &partitionMemory{}
	m.partitions.Add(p, known)
	return known
}

// partitionMemory keeps what earlier reads have shown about one partition: the mean size of its rows, and the keys at
// which reads are cut into smaller reads, since replicas refuse larger reads.
type partitionMemory struct {
	// rowBytes is the mean size in bytes of the rows of the last page that had rows; 0: not known.
	rowBytes atomic.Int64

	mu     sync.Mutex
	sorted [][]byte // never changed in place: readers keep it
	since  time.Time
}

// rowsPerRead returns the row limit for one read of a partition: enough rows to fill a page of the given number of
// bytes. The parameter k is what earlier reads have shown about the partition. The limit is twice what the mean size of
// its rows suggests, since the next rows may be smaller.
func (m *memory) rowsPerRead(k *partitionMemory, bytes int) int {
	mean := k.rowBytes.Load()
	room := int64(2)
	if mean == 0 {
		mean, room = m.largest.Load(), 1
	}
	if mean == 0 {
		return firstRead
	}
	return int(max(1, min(store.MaxPageRows, room*int64(bytes)/mean)))
}

// learn remembers the mean size of the given rows, which were read from the partition of k.
func (m *memory) learn(k *partitionMemory, rows []store.Row) {
	if len(rows) == 0 {
		return
	}
	total := int64(0)
	for i := range rows {
		total += int64(len(rows[i].Key) + len(rows[i].Value))
	}
	mean := total/int64(len(rows)) + 1
	k.rowBytes.Store(mean)
	for largest := m.largest.Load(); mean > largest && !m.largest.CompareAndSwap(largest, mean); {
		largest = m.largest.Load()
	}
}

// cuts returns the keys, sorted, at which reads of a partition must be cut into smaller reads. The keys come from
// earlier reads that replicas have refused because of too many tombstones. The result is nil if there are none.
func (k *partitionMemory) cuts() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sorted != nil && time.Since(k.since) > cutsLast {
		k.sorted = nil
	}
	return k.sorted
}

// cut remembers that reads of the partition must be cut at key, since replicas refuse larger reads.
func (k *partitionMemory) cut(key []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sorted) >= cutsPerPartition {
		k.sorted = nil
	}
	if k.sorted == nil {
		k.since = time.Now()
	}
	at, found := slices.BinarySearchFunc(k.sorted, key, bytes.Compare)
	if !found {
		k.sorted = slices.Insert(slices.Clone(k.sorted), at, slices.Clone(key))
	}
}
