package layouts

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/twmb/murmur3"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// JumpHash returns the bucket, from 0 to n-1, for a hashed key, by jump consistent hashing (Lamping and Veach, 2014).
// The results are the same as those of Guava's consistentHash. When n grows by one, each key stays in its bucket or
// moves to the new bucket. n must be at least 1.
func JumpHash(key uint64, n int) int {
	bucket, next := int64(-1), int64(0)
	for next < int64(n) {
		bucket = next
		key = key*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(bucket)
}

// HashBucket returns the bucket, from 0 to n-1, of a key. The results are the same as those of
// consistentHash(murmur3_128(key), n) in Guava, which takes the first eight bytes of the hash as a little-endian
// number.
func HashBucket(key []byte, n int) int {
	h, _ := murmur3.Sum128(key)
	return JumpHash(h, n)
}

// HashOptions say how many hash buckets a layout has, and how pages are read from them.
type HashOptions struct {
	// Buckets is the number of hash buckets, which can never change. 0 stands for 256.
	Buckets int
	// Parallel is the number of hash buckets that one page reads at the same time. 0 stands for 32.
	Parallel int
	// Naive is true if a page is merged from a whole page of every hash bucket. If Naive is false, a page reads only a
	// little of each bucket first.
	Naive bool
}

// hashed is a layout with hash buckets: PRIMARY KEY ((bucket, hash), key). The partition of a key is computed from the
// key's hash, so neighbouring keys lie in different partitions, and a sorted page has to read all partitions.
type hashed struct {
	table
	o   HashOptions
	ids []store.PartitionID
}

// NewHash returns a layout that spreads the keys of a bucket over hash buckets.
func NewHash(rows store.Rows, bucket store.BucketID, o HashOptions) Layout {
	if o.Buckets == 0 {
		o.Buckets = 256
	}
	if o.Parallel == 0 {
		o.Parallel = 32
	}
	h := &hashed{table: newTable(rows, bucket), o: o}
	for i := range o.Buckets {
		h.ids = append(h.ids, numbered(uint64(i)))
	}
	return h
}

// numbered returns the id of the partition with the number n.
func numbered(n uint64) store.PartitionID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], n+1) // zero names no partition
	return store.PartitionID(id)
}

func (h *hashed) place(key []byte) store.PartitionID { return h.ids[HashBucket(key, h.o.Buckets)] }

func (h *hashed) Put(ctx context.Context, key, value []byte) error {
	return h.put(ctx, h.place(key), key, value)
}

func (h *hashed) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return h.get(ctx, h.place(key), key)
}

func (h *hashed) Load(ctx context.Context, entries []Entry) error {
	return h.load(ctx, entries, h.place)
}

func (h *hashed) Partition(_ context.Context, key []byte) (string, error) {
	return fmt.Sprint(HashBucket(key, h.o.Buckets)), nil
}

// Scan reads all entries, one hash bucket after the other, and calls `each` with every page. readers is the number of
// hash buckets that are read at the same time.
func (h *hashed) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for _, id := range h.ids {
		g.Go(func() error { return h.through(ctx, id, store.Bounds{}, each) })
	}
	return g.Wait()
}

// List returns a page of keys in order, merged from all hash buckets. With a delimiter, List reads all keys within the
// bounds once, and folds them into common prefixes. A skip-scan would be slower, as each skip would cost a merge of all
// buckets.
func (h *hashed) List(ctx context.Context, q Query) ([]Item, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	b := q.bounds()
	switch {
	case empty(b):
		return nil, nil
	case len(q.Delimiter) > 0:
		return h.fold(ctx, &q, b)
	}
	var rows []store.Row
	var err error
	if h.o.Naive {
		rows, err = h.mergeAll(ctx, h.ids, b, q.limit(), q.Reverse, h.o.Parallel)
	} else {
		rows, err = h.mergeLazily(ctx, h.ids, b, q.limit(), q.Reverse, h.o.Parallel)
	}
	return itemsOf(rows), err
}

// fold reads all keys within b from all hash buckets at the same time, folds them into common prefixes, and returns the
// first items of the listing.
func (h *hashed) fold(ctx context.Context, q *Query, b store.Bounds) ([]Item, error) {
	var mu sync.Mutex
	found := map[string]Item{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(h.o.Parallel)
	for _, id := range h.ids {
		g.Go(func() error {
			return h.through(ctx, id, b, func(entries []Entry) error {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range entries {
					if p, folded := q.commonPrefix(e.Key); !folded {
						found[string(e.Key)] = Item{Entry: e}
					} else if _, known := found[string(p)]; !known {
						found[string(p)] = Item{Entry: Entry{Key: p}, CommonPrefix: true}
					}
				}
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	keys := slices.Sorted(maps.Keys(found))
	items := make([]Item, 0, min(len(keys), q.limit()))
	for _, k := range keys[:min(len(keys), q.limit())] {
		items = append(items, found[k])
	}
	return items, nil
}

// chunk returns the number of rows that a merge of `limit` rows first reads from each of n partitions. The number is a
// little above the average, so that hardly any partition has to be read again.
func chunk(limit, n int) int {
	mean := float64(limit) / float64(n)
	return min(limit, int(math.Ceil(mean+4*math.Sqrt(mean)))+1)
}
