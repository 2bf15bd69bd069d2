package executor

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// sweep deletes the deletion markers that clients left in the new partition of a range while the range moved. It begins
// when no more markers of this move can arrive. Each marker is deleted at its own timestamp, so newer rows stay.
func (x *Executor) sweep(ctx context.Context, t *move.Task) error {
	// The order makes the deletions safe: markers are read first. Then the bucket's partition map must still say that
	// the markers of this move are to be deleted. If so, no other move has begun, and the markers are those of this
	// move.
	home := x.partition(t.Range.Partition)
	return x.scanPresent(ctx, x.o.SweepPace, home, bounds(t), func(rows []store.Row) error {
		x.count(t, func(p *Progress) { p.Searched += int64(len(rows)) })
		markers := matching(rows, cells.IsMarker)
		if len(markers) == 0 {
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
		x.count(t, func(p *Progress) { p.Swept += int64(len(markers)) })
		return x.each(ctx, len(markers), func(ctx context.Context, i int) error {
			return x.rows.Delete(ctx, home, markers[i].Key, markers[i].Timestamp)
		})
	})
}

// matching returns those of the given rows for whose values (cells) the function match returns true.
func matching(rows []store.Row, match func(cell []byte) bool) (out []store.Row) {
	for i := range rows {
		if match(rows[i].Value) {
			out = append(out, rows[i])
		}
	}
	return out
}

// scanPresent calls f with the rows that partition p has within the bounds b, page by page. Rows above the one that is
// the highest at the beginning are not read. The parameter pace limits the rows read per second.
func (x *Executor) scanPresent(
	ctx context.Context, pace *wait.Pacer, p store.Partition, b store.Bounds, f func(rows []store.Row) error,
) error {
	// Where clients append rows as fast as they are read, a scan without that end would go on forever.
	var top store.Page
	err := x.retry(ctx, func() (err error) {
		top, err = x.rows.Slice(ctx, p, b, store.SliceOptions{Limit: 1, Reverse: true})
		return err
	})
	if err != nil || len(top.Rows) == 0 {
		return err
	}
	b = upTo(b, top.Rows[0].Key)
	return x.scan(ctx, pace, p, b, func(_ time.Time, rows []store.Row) error { return f(rows) })
}

// upTo returns the bounds b with another end: `last` becomes the highest key inside. If last has the maximum length of
// a key, no such end exists, and the result is b itself.
func upTo(b store.Bounds, last []byte) store.Bounds {
	if len(last) < store.MaxKeyBytes {
		b.End = append(bytes.Clone(last), 0) // its successor
	}
	return b
}
