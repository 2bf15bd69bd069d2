package repair

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// outrun looks for moves that are further on than the bucket's partition map says, as when the map was restored from an
// older copy than the rows. By the map, rows are still to be copied from an old partition, but they have left it
// already. If Options.Adopt is not AdoptNone, outrun makes the map fit the rows again: it advances these moves to the
// phase draining. The result advanced is true if the map was changed.
func (c *Checker) outrun(ctx context.Context, b bucket, root *partmap.Root) (advanced bool, err error) {
	// By such a map a reader, or the process that moves, would conclude that all rows were deleted. An old partition is
	// emptied only in the phase draining, after all ranges of the batch (group of moves) were compared. So that is the
	// phase that fits.
	since, suspects := uint64(0), map[uint64]bool{}
	for _, batch := range root.Batches {
		if batch.Phase != partmap.Settled && batch.Phase.Rules().ReadSource {
			if len(suspects) == 0 {
				since = batch.ID
			}
			suspects[batch.ID] = true
		}
	}
	if len(suspects) == 0 {
		return false, nil
	}
	ahead := map[uint64]partmap.Range{}
	for rg, err := range partmap.RangesSince(root, c.reader(ctx, b.id), since) {
		if k := store.KindOf(err); err != nil && (k == store.NotFound || k == store.Corrupt) {
			return false, nil // the map has changed, or its check reports this
		}
		if err != nil {
			return false, err
		}
		if _, known := ahead[rg.Batch]; known || rg.To.IsZero() || !suspects[rg.Batch] {
			continue
		}
		left, err := c.hasLeft(ctx, root, &rg)
		if err != nil {
			return false, err
		}
		if left {
			ahead[rg.Batch] = rg
		}
	}
	if len(ahead) == 0 {
		return false, nil
	}
	now, err := c.root(ctx, b.id)
	if err != nil || now.Version() != root.Version() {
		return err == nil, err // the map has changed, which explains it
	}
	var aerr error
	if c.o.Adopt != AdoptNone {
		aerr = c.toDraining(ctx, root, ahead)
		advanced = aerr == nil
	}
	for _, batch := range root.Batches {
		rg, found := ahead[batch.ID]
		if !found {
			continue
		}
		f := c.finding(b, OutrunMove, "batch %d is %s, but what it moves is gone from its source and in its"+
			" destination: the map is older than the rows",
			batch.ID, batch.Phase)
		f.Partition, f.Count = rg.Partition, int64(batch.Ranges)
		f.Todo = "start no server: its mover would take the rows for deleted; --adopt brings the move to where the" +
			" rows are"
		c.problem(ctx, f, func() (string, error) {
			if !advanced {
				return "", aerr
			}
			return fmt.Sprintf("batch %d is draining", batch.ID), nil
		})
	}
	return advanced, nil
}

// hasLeft reports whether the rows of the moving range rg have already left the old partition. The result is true if
//   - the old partition has a note of this very move, which is a row that says where the rows are, or
//   - the old partition has no row of the range, and the new one has copies (older programs leave no notes).
func (c *Checker) hasLeft(ctx context.Context, root *partmap.Root, rg *partmap.Range) (bool, error) {
	within := store.Bounds{Start: rg.Start, End: rg.End}
	source := store.Partition{Bucket: root.Bucket, ID: rg.Partition}
	var left bool
	err := c.retry(ctx, func() (err error) {
		left, err = executor.HasLeft(ctx, c.noted, source, rg)
		return err
	})
	if err != nil || left {
		return left, err
	}
	first, err := c.slice(ctx, source, within, store.SliceOptions{Limit: 1})
	if err != nil || len(first.Rows) > 0 {
		return false, err
	}
	copied := false
	err = c.pagesWithin(ctx, store.Partition{Bucket: root.Bucket, ID: rg.To}, within, func(rows []store.Row) error {
		for i := range rows {
			copied = copied || cells.IsCopied(rows[i].Value)
		}
		return nil
	})
	if k := store.KindOf(err); err != nil && (k == store.Corrupt || k == store.TooMuchDeadData) {
		return false, nil // reported when the partition is checked
	}
	return copied, err
}

// toDraining advances the given batches (groups of moves) of a bucket to the phase draining, in which old rows are
// removed. It advances them by one phase at a time, each by a change of the partition map.
func (c *Checker) toDraining(ctx context.Context, root *partmap.Root, batches map[uint64]partmap.Range) error {
	for {
		var ids []uint64
		for _, batch := range root.Batches {
			if _, wanted := batches[batch.ID]; wanted && batch.Phase != partmap.Draining {
				ids = append(ids, batch.ID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		edit := c.maps.Edit(ctx, root)
		if err := edit.Advance(ids...); err != nil {
			return err
		}
		change, err := edit.Change()
		if err != nil {
			return err
		}
		if err := c.maps.Swap(ctx, change); err != nil {
			return err
		}
		if err := c.maps.Wait(ctx, root.Bucket); err != nil {
			return err
		}
		root = change.Next
	}
}
