package executor

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// carry writes to a destination what it lacks of rows that were read in the source of
// a draining range. Deletes still leave markers there, so whatever is missing was never
// deleted. It fails with Timeout, to be done again, if that took too long: the rows may
// have changed.
func (x *Executor) carry(ctx context.Context, dst store.Partition, read time.Time, rows []store.Row) error {
	theirs := map[string]store.Row{}
	b := store.Bounds{Start: rows[0].Key}
	last := rows[len(rows)-1].Key
	for more := true; more; {
		var page store.Page
		err := x.retry(ctx, func() (err error) {
			page, err = x.rows.Slice(ctx, dst, b, store.SliceOptions{Limit: x.o.PageRows, Timestamps: true})
			return err
		})
		if err != nil {
			return err
		}
		more = page.More
		for _, row := range page.Rows {
			if more = more && string(row.Key) <= string(last); string(row.Key) <= string(last) {
				theirs[string(row.Key)] = row
			}
			b.Start, b.StartExclusive = row.Key, true
		}
	}
	var left []store.Row
	for _, row := range rows {
		if there, found := theirs[string(row.Key)]; !found || store.Newer(&row, &there) {
			left = append(left, row)
		}
	}
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

// Emptied reports whether what a partition has next to a key, within bounds, is covered
// by a removal at a timestamp or a later one. Where the map says that the partition has
// these keys that can't be, unless the map was restored from an older copy than the
// rows, and a move that it does not know has emptied it. No plain delete can be taken
// for it: it tries a key that nobody ever used, with a marker, which no listing shows.
// It fails with InvalidArgument where there is no such key.
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
