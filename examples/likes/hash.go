package main

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// hashSets keeps sets in the usual layout with hash buckets: PRIMARY KEY ((set, bucket), member). Each set has n
// partitions, and the hash of a member says in which partition the member is. No map is needed, but n is the same for
// all sets and can never change, and reading all members of a set reads n partitions. hashSets uses a store of
// evenkeel, but nothing else of evenkeel.
type hashSets struct {
	rows store.Rows
	last atomic.Int64 // the highest timestamp that was drawn
	n    int
}

// newHashSets returns sets with n partitions each, whose rows are in the given store.
func newHashSets(rows store.Rows, n int) *hashSets {
	return &hashSets{rows: rows, n: n}
}

// next returns a timestamp that is higher than all timestamps before. So a later write of this process wins, even if
// the clock was set back.
func (h *hashSets) next() store.Timestamp {
	for {
		last := h.last.Load()
		at := max(last+1, time.Now().UnixMicro())
		if h.last.CompareAndSwap(last, at) {
			return store.Timestamp(at)
		}
	}
}

// parallel is the number of partitions of a set that are read at the same time.
const parallel = 32

func (h *hashSets) partition(set string, bucket int) store.Partition {
	p := store.Partition{Bucket: store.BucketID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(set)))}
	binary.BigEndian.PutUint64(p.ID[8:], uint64(bucket)+1) // zero is no partition
	return p
}

func (h *hashSets) home(set, member string) store.Partition {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(member))
	// The upper bits: the lower ones of FNV are poor for short names.
	return h.partition(set, int(sum.Sum64()>>32%uint64(h.n)))
}

func (h *hashSets) Add(ctx context.Context, set, member string) error {
	return h.rows.Put(ctx, h.home(set, member),
		store.Row{Key: []byte(member), Value: store.EntryCell(nil), Timestamp: h.next()})
}

func (h *hashSets) Remove(ctx context.Context, set, member string) error {
	return h.rows.Delete(ctx, h.home(set, member), []byte(member), h.next())
}

func (h *hashSets) Has(ctx context.Context, set, member string) (bool, error) {
	_, there, err := h.rows.Get(ctx, h.home(set, member), []byte(member))
	return there, err
}

func (h *hashSets) All(ctx context.Context, set string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		pages := make(chan []store.Row)
		failed := make(chan error, 1)
		go func() {
			failed <- h.each(ctx, set, func(rows []store.Row) error {
				select {
				case pages <- rows:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			close(pages)
		}()
		// No read is left running.
		defer func() {
			stop()
			for range pages {
			}
		}()
		for rows := range pages {
			for i := range rows {
				if !yield(string(rows[i].Key), nil) {
					return
				}
			}
		}
		if err := <-failed; err != nil {
			yield("", err)
		}
	}
}

func (h *hashSets) Count(ctx context.Context, set string) (int, error) {
	var n atomic.Int64
	err := h.each(ctx, set, func(rows []store.Row) error {
		n.Add(int64(len(rows)))
		return nil
	})
	return int(n.Load()), err
}

// each reads all partitions of a set, and calls do with every page of rows, from several goroutines.
func (h *hashSets) each(ctx context.Context, set string, do func([]store.Row) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for bucket := range h.n {
		g.Go(func() error {
			for bounds := (store.Bounds{}); ; bounds.StartExclusive = true {
				page, err := h.rows.Slice(ctx, h.partition(set, bucket), bounds, store.SliceOptions{Limit: 1000})
				if err != nil {
					return err
				}
				if err := do(page.Rows); err != nil || !page.More {
					return err
				}
				bounds.Start = page.Rows[len(page.Rows)-1].Key
			}
		})
	}
	return g.Wait()
}
