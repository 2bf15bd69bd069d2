// Package mapbench is what measurements of large maps share: the benchmarks of
// mapclient, those over Cassandra, and layoutbench.
package mapbench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// SegmentRanges is about how many ranges a segment of a new map holds.
const SegmentRanges = 1000

// Cuts makes n ascending cuts of 40 bytes.
func Cuts(n int) [][]byte {
	cuts := make([][]byte, n)
	for i := range cuts {
		cuts[i] = strconv.AppendInt([]byte("tenant-000042/photos/2024-08/"), int64(1e10+i*1000), 10)
	}
	return cuts
}

// Map is a bucket's map in a store in memory, with a client that has a lease on it.
type Map struct {
	Client *mapclient.Client
	Lease  *mapclient.Lease
	// Cuts are those of Cuts.
	Cuts [][]byte

	s  *memstore.Store
	id store.BucketID
}

// NewMap makes a map of n ranges, and a client with so large a cache of nodes.
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

// Another is the same map seen by another client, which has read nothing of it.
func (m *Map) Another(ctx context.Context, cacheBytes int64) (*Map, error) {
	other := *m
	other.Client = mapclient.NewEmbedded(m.s, mapclient.Options{CacheBytes: cacheBytes})
	var err error
	other.Lease, err = other.Client.Acquire(ctx, m.id)
	return &other, err
}

// ReadAll reads the whole map, as far as the cache holds it.
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

// Find looks a key up.
func (m *Map) Find(ctx context.Context, key []byte) error {
	_, err := m.Client.Find(ctx, m.Lease, key)
	return err
}

// Keys are keys in random order, in one array, so that reading one costs little.
type Keys []byte

const keyBytes, keyCount = 40, 1 << 18

// NewKeys makes keys as long as the cuts, each a little above some of the first
// within of them.
func NewKeys(cuts [][]byte, within int) Keys {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make(Keys, 0, keyBytes*keyCount)
	for range keyCount {
		keys = append(keys, cuts[rng.IntN(within)]...)
		keys[len(keys)-1] = '5'
	}
	return keys
}

// At is the i-th key; they begin anew behind the last.
func (k Keys) At(i int) []byte {
	i %= keyCount
	return k[i*keyBytes : (i+1)*keyBytes]
}

// Memory is the yardstick of lookups: lines of a cache, each of which names the
// next, in random order. A lookup can't do with less than two reads that depend on
// each other: where is the entry, and what is in it.
type Memory [][16]uint32

// NewMemory takes so many bytes; lookups within 100 and 1000 segments touch about
// 8 and 80 MiB.
func NewMemory(bytes int) Memory {
	m := make(Memory, bytes/64)
	order := rand.New(rand.NewPCG(1, 3)).Perm(len(m))
	for i, at := range order {
		m[at][0] = uint32(order[(i+1)%len(order)])
	}
	return m
}

// Next is the line that a line names.
func (m Memory) Next(at uint32) uint32 { return m[at][0] }

// Heap is what is live after a collection, in bytes.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ProcessorTime is what this process has used so far: what other processes do, a
// server among them, is not in it, so it is disturbed less than the time that passes.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
