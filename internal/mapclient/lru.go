package mapclient

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// lru is a cache that is bounded in bytes. It evicts about the items that were not used for the longest time. A hit
// only marks the item as used, and takes no exclusive lock.
//
// Items are evicted from the oldest on, but a marked item gets a second chance. This is the CLOCK approximation of LRU
// (Corbató, 1968). The library golang-lru keeps the order of the items. The library alone would bound the number of
// items instead of their bytes, and take a lock for each hit. The mutex guards order and bytes, and peek takes it for
// reading.
type lru[K comparable, V item] struct {
	mu    sync.RWMutex
	order *simplelru.LRU[K, V]
	bytes int64
	limit int64

	hits, misses, evictions atomic.Int64
}

// count adds one to the hits of the cache if hit is true, and to its misses if hit is false.
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

// touch marks a cached item as used, so that the cache evicts other items first. It writes only if the mark is not set
// yet, so that readers on many processors share the cache line.
func touch(mark *atomic.Bool) {
	if !mark.Load() {
		mark.Store(true)
	}
}

// item is a value that the cache lru can hold. It has a size and a mark of recent use, and can be evicted.
type item interface {
	// mark returns the flag that touch sets when the item is used, and that shrink clears when it spares the item.
	mark() *atomic.Bool
	// size returns the memory of the item in bytes. While the item is cached, its size must not change unless lru.bytes
	// changes with it.
	size() int64
	// evict makes the item unusable and returns true. It returns false if the item is in use and must stay in the
	// cache. The cache calls evict with its lock held.
	evict() bool
}

// overhead is the memory, in bytes, that the cache needs for each item besides the item's own size: an entry of the
// list and an entry of the hash table.
const overhead = 160

func newLRU[K comparable, V item](limit int64) *lru[K, V] {
	order, _ := simplelru.NewLRU[K, V](math.MaxInt, nil) // fails only for a size that is not positive
	return &lru[K, V]{order: order, limit: limit}
}

// peek returns the cached item with the key k. It does not change the order in which items are evicted. The second
// result is false if the cache has no item with the key.
func (l *lru[K, V]) peek(k K) (V, bool) {
	l.mu.RLock()
	v, ok := l.order.Peek(k)
	l.mu.RUnlock()
	return v, ok
}

// add puts the item v into the cache under the key k, and evicts other items if the cache is over its limit. The caller
// must hold the lock.
func (l *lru[K, V]) add(k K, v V) {
	l.order.Add(k, v)
	l.bytes += v.size() + overhead
	l.shrink()
}

// shrink evicts items, from the oldest on, until the cache is within its limit. The newest item always stays. An item
// that is in use stays as well. After 64 items in use shrink stops, so that no call is slow, and the next call goes on
// from there. The caller must hold the lock.
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

// remove takes the item with the key k out of the cache, without asking the item whether it may be evicted. The caller
// must hold the lock.
func (l *lru[K, V]) remove(k K) {
	if v, ok := l.order.Peek(k); ok {
		l.order.Remove(k)
		l.bytes -= v.size() + overhead
	}
}

// usage returns the number n of cached items, and the memory in bytes that they take together.
func (l *lru[K, V]) usage() (n, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.order.Len()), l.bytes
}
