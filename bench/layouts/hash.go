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

// JumpHash is jump consistent hashing (Lamping and Veach, 2014), as Guava's
// consistentHash does it: of n+1 buckets each key lies where it did with n, or in
// the new one. n is at least 1.
func JumpHash(key uint64, n int) int {
	bucket, next := int64(-1), int64(0)
	for next < int64(n) {
		bucket = next
		key = key*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(bucket)
}

// HashBucket is consistentHash(murmur3_128(key), n) as Guava computes it: of the
// hash the first eight bytes, little-endian.
func HashBucket(key []byte, n int) int {
	h, _ := murmur3.Sum128(key)
	return JumpHash(h, n)
}

// HashOptions say how hash buckets are read.
type HashOptions struct {
	// Buckets is their number, for ever; 256 if zero.
	Buckets int
	// Parallel is how many buckets a page reads at once; 32 if zero.
	Parallel int
	// Naive merges by reading a whole page of every bucket.
	Naive bool
}

// hashed is PRIMARY KEY ((bucket, hash), key): a key's bucket is computed, the
// order is lost.
type hashed struct {
	table
	o   HashOptions
	ids []store.PartitionID
}

// NewHash lays keys out in hash buckets.
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

// numbered is the partition of a number.
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

// Scan goes bucket by bucket: the next one is not read before the one before is
// used up.
func (h *hashed) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for _, id := range h.ids {
		g.Go(func() error { return h.through(ctx, id, store.Bounds{}, each) })
	}
	return g.Wait()
}

// List merges all buckets. With a delimiter it reads all that lies within the
// bounds once and folds it: each jump of a skip-scan would cost a merge of all
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

// fold reads the buckets in parallel and keeps the first items of the listing.
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

// chunk is how many rows of each of n partitions a merge of limit rows reads at
// first: so many that hardly one of them has to be asked again.
func chunk(limit, n int) int {
	mean := float64(limit) / float64(n)
	return min(limit, int(math.Ceil(mean+4*math.Sqrt(mean)))+1)
}
