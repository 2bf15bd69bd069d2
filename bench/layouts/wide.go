package layouts

import (
	"context"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// wide is a layout with one partition for each bucket: PRIMARY KEY ((bucket), key). A page is one read of the
// partition.
type wide struct {
	table
	id   store.PartitionID
	cuts [][]byte
}

// NewWide returns a layout with one wide partition for each bucket. The sorted cuts divide the keys of a scan among
// several readers. Without cuts a scan has one reader.
func NewWide(rows store.Rows, bucket store.BucketID, cuts ...[]byte) Layout {
	return &wide{newTable(rows, bucket), store.PartitionID(uuid.UUID{15: 1}), cuts}
}

func (w *wide) Put(ctx context.Context, key, value []byte) error {
	return w.put(ctx, w.id, key, value)
}

func (w *wide) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return w.get(ctx, w.id, key)
}

func (w *wide) Load(ctx context.Context, entries []Entry) error {
	return w.load(ctx, entries, func([]byte) store.PartitionID { return w.id })
}

func (w *wide) List(ctx context.Context, q Query) ([]Item, error) {
	return list(ctx, &q, func(ctx context.Context, b store.Bounds, limit int, reverse bool) ([]store.Row, error) {
		page, err := w.slice(ctx, w.id, b, limit, reverse)
		return page.Rows, err
	})
}

func (w *wide) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	if readers <= 1 {
		return w.through(ctx, w.id, store.Bounds{}, each)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i := range len(w.cuts) + 1 {
		var b store.Bounds
		if i > 0 {
			b.Start = w.cuts[i-1]
		}
		if i < len(w.cuts) {
			b.End = w.cuts[i]
		}
		g.Go(func() error { return w.through(ctx, w.id, b, each) })
	}
	return g.Wait()
}

func (w *wide) Partition(context.Context, []byte) (string, error) { return "all", nil }
