package executor

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// carry writes rows of a draining range's source that the destination lacks. Deletes still
// leave markers there, so what is missing was never deleted. It fails with Timeout if it took
// too long since the read: the rows may have changed, and the task is due again.
func (x *Executor) carry(ctx context.Context, dst store.Partition, read time.Time, rows []store.Row) error {
	d, err := x.differ(ctx, dst, page{rows: rows, bounds: upTo(store.Bounds{Start: rows[0].Key}, rows[len(rows)-1].Key)})
	if err != nil {
		return err
	}
	left := append(d.missing, d.tied...)
	for len(left) > 0 {
		n := x.fits(left)
		err := x.retry(ctx, func() error {
			if x.o.Now().Sub(read) > x.o.WriteTimeout {
				return store.Errorf(store.Timeout, "the rows were read too long ago to be copied")
			}
			return x.rows.Put(ctx, dst, left[:n]...)
		})
		if err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}

// Emptied reports whether a removal at ts or later covers the keys next to key, within
// bounds. Where the map gives the partition these keys, that happens only if the map was
// restored from an older copy than the rows: then a move that it does not know has emptied
// the partition. It writes a marker, which no listing shows, to a random key that was never
// used, so that a delete can't be mistaken for a removal. It fails with InvalidArgument where
// there is no such key.
func Emptied(ctx context.Context, rows store.Rows, p store.Partition, within store.Bounds, key []byte, ts store.Timestamp) (bool, error) {
	chance := uuid.New()
	next := append(append(bytes.Clone(key), 0), chance[:]...)
	if len(next) > store.MaxKeyBytes || len(within.End) > 0 && string(next) >= string(within.End) {
		return false, store.Errorf(store.InvalidArgument, "whether partition %s was emptied can't be tried: no key lies next to %q", p, key)
	}
	if err := rows.Put(ctx, p, store.Row{Key: next, Value: store.MarkerCell(), Timestamp: ts}); err != nil {
		return false, err
	}
	if _, there, err := rows.Get(ctx, p, next); err != nil || !there {
		return err == nil, err
	}
	return false, rows.Delete(ctx, p, next, ts)
}
