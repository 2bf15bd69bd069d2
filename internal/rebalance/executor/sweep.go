package executor

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// sweep deletes the markers that a move left in its destination, now the range's home. The
// order makes it safe: it reads markers, then checks that the map still says that this sweep
// is pending. If so no other move has begun, and these are the markers of this one. It
// deletes exactly those, each at its own timestamp; newer rows stay.
// No markers arrive any more when it begins.
func (x *Executor) sweep(ctx context.Context, t *move.Task) error {
	home := x.partition(t.Range.Partition)
	return x.scanPresent(ctx, x.o.SweepPace, home, bounds(t), func(rows []store.Row) error {
		x.count(t, func(p *Progress) { p.Searched += int64(len(rows)) })
		markers := matching(rows, store.IsMarker)
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

// matching returns the rows whose cells match.
func matching(rows []store.Row, match func(cell []byte) bool) (out []store.Row) {
	for i := range rows {
		if match(rows[i].Value) {
			out = append(out, rows[i])
		}
	}
	return out
}

// scanPresent is scan up to the highest row at its begin: where clients append rows as fast as it
// reads, it would never end.
func (x *Executor) scanPresent(
	ctx context.Context, pace *wait.Pacer, p store.Partition, b store.Bounds, f func(rows []store.Row) error,
) error {
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

// upTo returns bounds that end with a key, as far as keys can be that long.
func upTo(b store.Bounds, last []byte) store.Bounds {
	if len(last) < store.MaxKeyBytes {
		b.End = append(bytes.Clone(last), 0) // its successor
	}
	return b
}
