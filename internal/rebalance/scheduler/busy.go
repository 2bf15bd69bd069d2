package scheduler

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
	"github.com/evenkeel/evenkeel/store/wait"
)

// busy is the list of buckets that may have a move in flight: a bucket is added before its first
// swap and removed after its sweep. It is a hint. One register of store.Busy has all of them, as
// registers are never removed and only some hundred buckets move at once. The scan of roots finds what
// does not fit.
type busy struct {
	regs    store.Registers
	changes wait.Together[entry] // two at once would conflict
}

const (
	busyKey = "buckets"
	// busyForm: the ids of the buckets, 16 bytes each, ascending.
	busyForm = 1
	// maxBusy keeps the record well below store.MaxRecordBytes.
	maxBusy = 4000
)

func (b *busy) read(ctx context.Context) (ids []store.BucketID, v store.Version, err error) {
	payload, v, err := record.Read(ctx, b.regs, store.Busy, busyKey, store.Serial, busyForm)
	if err == nil && len(payload)%16 != 0 {
		err = store.Errorf(store.Corrupt, "%d bytes are not a list of buckets", len(payload))
	}
	if err != nil {
		return nil, store.Version{}, store.Wrap("read the list of busy buckets", err)
	}
	for id := range slices.Chunk(payload, 16) {
		ids = append(ids, store.BucketID(id))
	}
	return ids, v, nil
}

// entry is a bucket, together with whether it is to be in the list.
type entry struct {
	id store.BucketID
	on bool
}

// set adds a bucket to the list, or removes it from the list. Concurrent calls make one change together.
func (b *busy) set(ctx context.Context, id store.BucketID, on bool) error {
	return store.Wrap("note which buckets are busy", b.changes.Do(ctx, entry{id, on}, b.change))
}

func (b *busy) change(ctx context.Context, entries []entry) error {
	const tries = 20
	// Another process has changed the list meanwhile: it may be one of many that begin or end moves at once.
	pauses := wait.Backoff{First: 100 * time.Millisecond, Most: time.Second, Jitter: 1}
	var err error
	for try := range tries {
		if try > 0 && wait.Sleep(ctx, pauses.Pause(try)) != nil {
			return err
		}
		var ids []store.BucketID
		var v store.Version
		if ids, v, err = b.read(ctx); err != nil {
			if store.KindOf(err) != store.Corrupt {
				return err
			}
			return nil // it is only a hint
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
			return nil
		}
		payload := make([]byte, 0, 16*len(ids))
		for _, id := range ids {
			payload = append(payload, id[:]...)
		}
		err = b.regs.Swap(ctx, store.Busy, []byte(busyKey), v, record.Seal(busyForm, record.Next(v), payload))
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}
