package executor

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// sweep deletes the markers that a move left in its destination, now the range's home. The
// order makes it safe: it reads markers, then checks that the map still says that this sweep
// is pending. If so no other move has begun, and these are the markers of this one. It
// deletes exactly those, each at its own timestamp; newer rows stay.
//
// No markers arrive any more when it begins. So it reads up to the highest row at that time:
// where rows are appended as fast as it reads it would never end.
func (x *Executor) sweep(ctx context.Context, t *move.Task) error {
	home := x.partition(t.Range.Partition)
	within, any, err := x.filled(ctx, home, bounds(t))
	if err != nil || !any {
		return err
	}
	return x.scan(ctx, x.o.SweepPace, home, within, func(_ time.Time, rows []store.Row) error {
		var markers []store.Row
		for _, row := range rows {
			if store.IsMarker(row.Value) {
				markers = append(markers, row)
			}
		}
		if len(markers) == 0 {
			x.count(t.Batch, func(p *progress) { p.searched.Add(int64(len(rows))) })
			return nil
		}
		if err := x.failpoint(ctx, "sweep markers read", string(markers[0].Key)); err != nil {
			return err
		}
		root, err := x.maps.Load(ctx, x.bucket)
		if err != nil {
			return err
		}
		if phase, pending := root.BatchOf(t.Batch); phase != partmap.Settled || !pending {
			return store.Errorf(store.Conflict, "somebody else has swept batch %d", t.Batch)
		}
		if err := x.failpoint(ctx, "sweep checked", string(markers[0].Key)); err != nil {
			return err
		}
		x.count(t.Batch, func(p *progress) {
			p.searched.Add(int64(len(rows)))
			p.swept.Add(int64(len(markers)))
		})
		return x.each(ctx, len(markers), func(ctx context.Context, i int) error {
			return x.rows.Delete(ctx, home, markers[i].Key, markers[i].Timestamp)
		})
	})
}

// filled returns bounds that end at the present highest row of a partition within b; false:
// it has no row there.
func (x *Executor) filled(ctx context.Context, p store.Partition, b store.Bounds) (store.Bounds, bool, error) {
	var top store.Page
	err := x.retry(ctx, func() (err error) {
		top, err = x.rows.Slice(ctx, p, b, store.SliceOptions{Limit: 1, Reverse: true})
		return err
	})
	if err != nil || len(top.Rows) == 0 {
		return b, false, err
	}
	return upTo(b, top.Rows[0].Key), true, nil
}

// upTo returns bounds that end with a key, as far as keys can be that long.
func upTo(b store.Bounds, last []byte) store.Bounds {
	if len(last) < store.MaxKeyBytes {
		b.End = append(bytes.Clone(last), 0) // its successor
	}
	return b
}
