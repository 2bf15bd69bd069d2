// Package mapbench has what measurements of large maps of ranges share: the benchmarks of package mapclient, the
// benchmarks over Cassandra, and the command layoutbench.
package mapbench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// SegmentRanges is the approximate number of ranges in a segment of a new map.
const SegmentRanges = 1000

// Cuts returns n ascending cuts of 40 bytes each, which divide a bucket into n+1 ranges.
func Cuts(n int) [][]byte {
	cuts := make([][]byte, n)
	for i := range cuts {
		cuts[i] = strconv.AppendInt([]byte("tenant-000042/photos/2024-08/"), int64(1e10+i*1000), 10)
	}
	return cuts
}

// Map is the map of a bucket, in a store in memory, with a client that has a lease of the map.
type Map struct {
	Client *mapclient.Client
	Lease  *mapclient.Lease
	// Cuts are the cuts of the map, as the function Cuts returns them.
	Cuts [][]byte

	s  memstore.Store
	id store.BucketID
}

// NewMap returns a map of n ranges, and a client of the map whose cache of nodes has cacheBytes bytes.
func NewMap(ctx context.Context, n int, cacheBytes int64) (*Map, error) {
	m := &Map{Cuts: Cuts(n - 1), s: memstore.New(), id: store.BucketID(uuid.New())}
	m.Client = mapclient.NewEmbedded(m.s, mapclient.Options{CacheBytes: cacheBytes})
	if _, err := m.Client.Create(ctx, m.id, m.Cuts); err != nil {
		return nil, err
	}
	var err error
	m.Lease, err = m.Client.Acquire(ctx, m.id)
	return m, err
}

// Another returns the same map with another client, which has read nothing of the map yet. cacheBytes is the size of
// the client's cache.
func (m *Map) Another(ctx context.Context, cacheBytes int64) (*Map, error) {
	other := *m
	other.Client = mapclient.NewEmbedded(m.s, mapclient.Options{CacheBytes: cacheBytes})
	var err error
	other.Lease, err = other.Client.Acquire(ctx, m.id)
	return &other, err
}

// ReadAll reads the whole map, so that the client's cache has as much of the map as fits.
func (m *Map) ReadAll(ctx context.Context) error {
	root, err := m.Client.Load(ctx, m.id)
	if err != nil {
		return err
	}
	for _, err := range m.Client.Ranges(ctx, root, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Find looks up the range of a key in the map.
func (m *Map) Find(ctx context.Context, key []byte) error {
	_, err := m.Client.Find(ctx, m.Lease, key)
	return err
}

// Keys are keys in random order, in one byte slice, so that reading a key costs little.
type Keys []byte

const keyBytes, keyCount = 40, 1 << 18

// NewKeys returns keys that are as long as the cuts. Each key is a little above a random one of the first `within`
// cuts.
func NewKeys(cuts [][]byte, within int) Keys {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make(Keys, 0, keyBytes*keyCount)
	for range keyCount {
		keys = append(keys, cuts[rng.IntN(within)]...)
		keys[len(keys)-1] = '5'
	}
	return keys
}

// At returns the i-th key. After the last key the first one follows again.
func (k Keys) At(i int) []byte {
	i %= keyCount
	return k[i*keyBytes : (i+1)*keyBytes]
}

// Memory is the yardstick for lookups: cache lines in random order, each of which names the next. A lookup needs at
// least two reads that depend on each other, which are where the entry is, and what the entry has.
type Memory [][16]uint32

// NewMemory returns a Memory of the given number of bytes. Lookups within 100 and 1000 segments use about 8 and 80 MiB
// of memory.
func NewMemory(bytes int) Memory {
	m := make(Memory, bytes/64)
	order := rand.New(rand.NewPCG(1, 3)).Perm(len(m))
	for i, at := range order {
		m[at][0] = uint32(order[(i+1)%len(order)])
	}
	return m
}

// Next returns the number of the cache line that the line at names.
func (m Memory) Next(at uint32) uint32 { return m[at][0] }

// Heap returns the size of the live heap after a garbage collection, in bytes.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ProcessorTime returns the processor time that this process has used so far. Work of other processes, such as a
// server, does not count, so the processor time varies less than the elapsed time.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
