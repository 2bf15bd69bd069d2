package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// orphans looks for partitions that have rows and that no map names; only for
// those of one bucket where b is not nil.
//
// The partitions first, the root after them. A partition that has rows was named
// before they were written, and no id is used twice: so one that was listed, and
// that a later root does not name, has lost its last range, after that was
// removed from it. If it has rows even now, they are nobody's.
func (c *Checker) orphans(ctx context.Context, b *bucket) error {
	var after store.Partition
	for {
		var page []store.Partition
		err := c.retry(ctx, func() (err error) {
			page, err = c.lister.Partitions(ctx, after, 1000)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1]
		c.listed.Add(int64(len(page)))
		of := map[store.BucketID][]store.PartitionID{}
		for _, p := range page {
			if b == nil || p.Bucket == b.id {
				of[p.Bucket] = append(of[p.Bucket], p.ID)
			}
		}
		g, gctx := c.group(ctx)
		for id, parts := range of {
			bk := bucket{id: id}
			if b != nil {
				bk = *b
			}
			g.Go(func() error { return c.strays(gctx, bk, parts) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
}

// strays judges listed partitions of one bucket.
func (c *Checker) strays(ctx context.Context, b bucket, parts []store.PartitionID) error {
	for {
		root, err := c.root(ctx, b.id)
		var damaged errDamaged
		switch {
		case notFound(err):
			return c.nobodys(ctx, b, LostBucket, parts)
		case errors.As(err, &damaged), errors.Is(err, partmap.ErrNewerVersion):
			return nil // reported with the bucket
		case err != nil:
			return err
		case root.State == partmap.Deleted:
			return c.nobodys(ctx, b, LeftRows, parts)
		}
		left, err := c.unnamedOf(ctx, root, parts)
		if err == nil {
			return c.nobodys(ctx, b, Orphan, left)
		}
		if k := store.KindOf(err); k != store.NotFound && k != store.Corrupt && !errors.Is(err, mapclient.ErrStale) {
			return err
		}
		now, lerr := c.root(ctx, b.id)
		if lerr != nil || now.Epoch == root.Epoch {
			return lerr // a broken map is reported with the bucket
		}
	}
}

// unnamedOf returns which of these partitions a root does not name. Where the
// map is large it first looks where the partition's first row belongs, which
// clears nearly all of them, and goes over the whole map for the others only.
func (c *Checker) unnamedOf(ctx context.Context, root *partmap.Root, parts []store.PartitionID) (unnamed []store.PartitionID, err error) {
	left := map[store.PartitionID]bool{}
	for _, id := range parts {
		if root.Height > 0 {
			first, err := c.first(ctx, store.Partition{Bucket: root.Bucket, ID: id}, 1)
			if err != nil {
				return nil, err
			}
			if len(first.Rows) == 0 {
				continue
			}
			rg, err := c.rangeOf(ctx, root, first.Rows[0].Key)
			if err != nil {
				return nil, err
			}
			if rg.Partition == id || rg.To == id {
				continue
			}
		}
		left[id] = true
	}
	if len(left) == 0 {
		return nil, nil
	}
	for rg, err := range partmap.Ranges(root, c.reader(ctx, root.Bucket), nil, nil) {
		if err != nil {
			return nil, err
		}
		delete(left, rg.Partition)
		delete(left, rg.To)
	}
	for id := range left {
		unnamed = append(unnamed, id)
	}
	return unnamed, nil
}

func (c *Checker) first(ctx context.Context, p store.Partition, limit int) (page store.Page, err error) {
	err = c.retry(ctx, func() (err error) {
		page, err = c.rows.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: limit})
		return err
	})
	return page, err
}

// nobodys reports those of partitions without an owner that have rows now.
func (c *Checker) nobodys(ctx context.Context, b bucket, k Kind, parts []store.PartitionID) error {
	for _, id := range parts {
		p := store.Partition{Bucket: b.id, ID: id}
		page, err := c.first(ctx, p, c.o.PageRows)
		if err != nil {
			return err
		}
		if len(page.Rows) == 0 {
			continue
		}
		count := fmt.Sprint(len(page.Rows))
		if page.More {
			count += " or more"
		}
		f := c.finding(b, k, "it has %s rows, and no range", count)
		f.Partition, f.Key, f.Count = id, page.Rows[0].Key, int64(len(page.Rows))
		remove := func() (string, error) { return "removed", c.remove(ctx, p) }
		switch {
		case k == LostBucket:
			f.Text = fmt.Sprintf("it has %s rows of a bucket that has no root", count)
			f.Todo, remove = lostTodo, nil
		case k == LeftRows:
			f.Text = fmt.Sprintf("it has %s rows of a bucket that is deleted", count)
		case c.suspected(b.id):
			f.Todo, remove = "the bucket's map is broken: mend that first; these rows may be wanted", nil
		}
		if err := c.problem(ctx, f, remove); err != nil {
			return err
		}
	}
	return nil
}

// remove hides a whole partition for good: above the timestamps of all of its
// rows, and of all that may still arrive.
func (c *Checker) remove(ctx context.Context, p store.Partition) error {
	highest := store.Timestamp(c.o.Now().UnixMicro())
	err := c.pages(ctx, p, func(rows []store.Row) error {
		for i := range rows {
			highest = max(highest, rows[i].Timestamp)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.retry(ctx, func() error {
		return c.rows.Remove(ctx, p, store.Bounds{}, highest+store.Timestamp(c.o.Skew.Microseconds()))
	})
}
