package scheduler

import (
	"bytes"
	"context"
	"slices"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// busy is the stored list of buckets that may have a move under way, by which another process finds unfinished moves at
// once. A bucket is added before the first change of its map, and removed after the last markers of its move are
// deleted. The list is only a hint: if it is full (maxBusy), the scan of all roots finds the other buckets.
//
// All buckets are in a single register of store.Busy, since registers are never removed, and only some hundred buckets
// move at once.
type busy struct {
	regs    store.Registers
	changes wait.Together[entry] // concurrent changes are made as one, since they would conflict
}

const (
	busyKey = "buckets"
	// busyForm is the version of the record's format: the ids of the buckets, 16 bytes each, in ascending order.
	busyForm = 1
	// maxBusy is the maximum number of buckets in the stored list of buckets with moves. It keeps the record well below
	// store.MaxRecordBytes.
	maxBusy = 4000
)

// read returns the stored list of buckets that may have a move under way.
func (b *busy) read(ctx context.Context) (ids []store.BucketID, err error) {
	payload, _, err := record.Read(ctx, b.regs, store.Busy, busyKey, store.Serial, busyForm)
	if err == nil {
		ids, err = decodeBusy(payload)
	}
	return ids, store.Wrap("read the list of busy buckets", err)
}

// decodeBusy returns the ids of buckets that are stored as payload.
func decodeBusy(payload []byte) (ids []store.BucketID, err error) {
	if len(payload)%16 != 0 {
		return nil, store.Errorf(store.Corrupt, "%d bytes are not a list of buckets", len(payload))
	}
	for id := range slices.Chunk(payload, 16) {
		ids = append(ids, store.BucketID(id))
	}
	return ids, nil
}

// entry is one change of the stored list of buckets that may have a move under way: the bucket id is added to the list
// if on is true, or removed from it if on is false.
type entry struct {
	id store.BucketID
	on bool
}

// set changes the stored list of buckets that may have a move under way. If on is true, it adds the bucket id to the
// list. If on is false, it removes the bucket. Concurrent calls are written together, as one change.
func (b *busy) set(ctx context.Context, id store.BucketID, on bool) error {
	return store.Wrap("note which buckets are busy", b.changes.Do(ctx, entry{id, on}, b.change))
}

// change carries out several changes of the stored list of buckets with moves in one write. entries has the buckets to
// add and to remove. If another process has changed the list at the same time, change tries again. A damaged list is
// left as it is.
func (b *busy) change(ctx context.Context, entries []entry) error {
	err := record.Change(ctx, b.regs, store.Busy, busyKey, busyForm, func(payload []byte) ([]byte, error) {
		ids, err := decodeBusy(payload)
		if err != nil {
			return nil, err
		}
		changed := false
		for _, e := range entries {
			at, there := slices.BinarySearchFunc(ids, e.id, func(a, b store.BucketID) int { return bytes.Compare(a[:], b[:]) })
			switch {
			case there == e.on || e.on && len(ids) >= maxBusy:
				continue
			case e.on:
				ids = slices.Insert(ids, at, e.id)
			default:
				ids = slices.Delete(ids, at, at+1)
			}
			changed = true
		}
		if !changed {
			return nil, nil
		}
		next := make([]byte, 0, 16*len(ids))
		for _, id := range ids {
			next = append(next, id[:]...)
		}
		return next, nil
	})
	if store.KindOf(err) == store.Corrupt {
		return nil
	}
	return err
}
