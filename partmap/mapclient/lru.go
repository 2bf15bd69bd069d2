package mapclient

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// lru is a cache bounded in bytes. golang-lru, which keeps the order, counts entries, and
// each hit takes a lock. Here a hit only marks the item (a load, and a store the first time),
// and eviction, from the oldest on, gives a marked item a second chance: the CLOCK
// approximation of LRU (Corbató, 1968).
//
// The mutex guards order and sum; peek takes it for reading.
type lru[K comparable, V item] struct {
	mu    sync.RWMutex
	order *simplelru.LRU[K, V]
	bytes int64
	limit int64

	hits, misses, evictions atomic.Int64
}

// count counts a use of the cache.
func (l *lru[K, V]) count(hit bool) {
	if hit {
		l.hits.Add(1)
	} else {
		l.misses.Add(1)
	}
}

func (l *lru[K, V]) counts() CacheCounts {
	return CacheCounts{l.hits.Load(), l.misses.Load(), l.evictions.Load()}
}

// touch sets a mark. It writes only the first time, so that readers share the cache line.
func touch(mark *atomic.Bool) {
	if !mark.Load() {
		mark.Store(true)
	}
}

// item is what an lru needs of its values.
type item interface {
	// mark returns the mark that users of the item set.
	mark() *atomic.Bool
	// size in bytes; it must not change while the item is cached.
	size() int64
	// evict makes the item unusable and returns true, or refuses. It is called with the
	// lock held.
	evict() bool
}

// overhead is the memory of one item beside its size: an entry of the list and one of the
// hash table.
const overhead = 160

func newLRU[K comparable, V item](limit int64) *lru[K, V] {
	order, _ := simplelru.NewLRU[K, V](math.MaxInt, nil) // fails only for a size that is not positive
	return &lru[K, V]{order: order, limit: limit}
}

func (l *lru[K, V]) peek(k K) (V, bool) {
	l.mu.RLock()
	v, ok := l.order.Peek(k)
	l.mu.RUnlock()
	return v, ok
}

// add adds an item and evicts others. The caller holds the lock.
func (l *lru[K, V]) add(k K, v V) {
	l.order.Add(k, v)
	l.bytes += v.size() + overhead
	l.shrink()
}

// shrink evicts from the oldest on until the bound holds, but never the newest item. The
// number of items that refuse (they are leased) is bounded, so that they do not slow down
// each add: the next one continues where this one stopped.
func (l *lru[K, V]) shrink() {
	refusals := 64
	for tries := 2 * l.order.Len(); l.bytes > l.limit && tries > 0 && refusals > 0 && l.order.Len() > 1; tries-- {
		k, v, _ := l.order.GetOldest()
		switch {
		case v.mark().Swap(false):
			l.order.Get(k) // moves it to the newest
		case !v.evict():
			l.order.Get(k)
			refusals--
		default:
			l.order.RemoveOldest()
			l.bytes -= v.size() + overhead
			l.evictions.Add(1)
		}
	}
}

// remove removes an item without calling evict. The caller holds the lock.
func (l *lru[K, V]) remove(k K) {
	if v, ok := l.order.Peek(k); ok {
		l.order.Remove(k)
		l.bytes -= v.size() + overhead
	}
}

// usage returns the number of items and their bytes.
func (l *lru[K, V]) usage() (n, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.order.Len()), l.bytes
}
