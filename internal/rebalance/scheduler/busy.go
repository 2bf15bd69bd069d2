package scheduler

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// busy is the list of buckets that may have a move in flight: a bucket is on it
// before its first swap and taken off after its sweep. It is a hint, one register of
// store.Busy for all of them, as registers are never removed and only a few buckets
// move at once. What does not fit is found by the scan of roots.
type busy struct {
	regs store.Registers
	mu   sync.Mutex
}

const (
	busyKey = "buckets"
	// busyForm: the ids of the buckets, 16 bytes each, ascending.
	busyForm = 1
	// maxBusy keeps the record well below store.MaxRecordBytes.
	maxBusy = 4000
)

func (b *busy) read(ctx context.Context) (ids []store.BucketID, v store.Version, err error) {
	const tries = 3 // of reading a torn record
	for try := 1; ; try++ {
		rec, err := b.regs.Read(ctx, store.Busy, []byte(busyKey), store.Serial)
		if errors.Is(err, store.NotFound) {
			return nil, store.Version{}, nil
		}
		var payload []byte
		if err == nil {
			payload, err = record.Open(busyForm, rec)
		}
		if err == nil && len(payload)%16 != 0 {
			err = store.Errorf(store.Corrupt, "%d bytes are no list of buckets", len(payload))
		}
		if err == nil {
			for at := 0; at < len(payload); at += 16 {
				ids = append(ids, store.BucketID(payload[at:]))
			}
			return ids, rec.Version, nil
		}
		if try == tries || store.KindOf(err) != store.Unavailable {
			return nil, store.Version{}, store.Wrap("read the list of busy buckets", err)
		}
	}
}

// set puts a bucket on the list or takes it off.
func (b *busy) set(ctx context.Context, id store.BucketID, on bool) error {
	b.mu.Lock() // of one process one after the other: they would only meet conflicts
	defer b.mu.Unlock()
	const tries = 10
	var err error
	for range tries {
		var ids []store.BucketID
		var v store.Version
		if ids, v, err = b.read(ctx); err != nil {
			if store.KindOf(err) != store.Corrupt {
				return err
			}
			return nil // a hint that can't be read is none, and no reason to stop
		}
		at, there := slices.BinarySearchFunc(ids, id, func(a, b store.BucketID) int { return bytes.Compare(a[:], b[:]) })
		if there == on || on && len(ids) >= maxBusy {
			return nil
		}
		if on {
			ids = slices.Insert(ids, at, id)
		} else {
			ids = slices.Delete(ids, at, at+1)
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
	return store.Wrap("note which buckets are busy", err)
}
