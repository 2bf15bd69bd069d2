package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// orphans looks for partitions that have rows but that no partition map names, and handles them. If b is not nil,
// orphans looks only for partitions of the bucket b.
func (c *Checker) orphans(ctx context.Context, b *bucket) error {
	// The partitions are listed first, and the root of the map is read after that. A partition is named before its rows
	// are written, and no id is used twice. So a listed partition that a later root does not name has lost its last
	// range, after the rows of this range were removed. If the partition still has rows, they are garbage; or the store
	// was restored, and the map and the rows are not of one moment (see adopt).
	if c.o.SkipOrphans {
		return nil
	}
	var after store.Partition
	for {
		page, err := retried(ctx, c, func() ([]store.Partition, error) { return c.lister.Partitions(ctx, after, 1000) })
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1]
		// The list of processes, and hints for the cleaner, belong to no bucket.
		page = slices.DeleteFunc(page, func(p store.Partition) bool {
			return p.Bucket == processes.Bucket || p.Bucket == hints.Bucket
		})
		c.count(&c.sum.Listed, len(page))
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

// strays finds out which of the listed partitions of one bucket have rows but no range in the bucket's partition map,
// and handles them. The argument parts has the ids of the partitions.
func (c *Checker) strays(ctx context.Context, b bucket, parts []store.PartitionID) error {
	for {
		root, err := c.root(ctx, b.id)
		var damaged errDamaged
		switch {
		case notFound(err) && c.o.Adopt == AdoptAll:
			// Roots are never removed, so the bucket was made after the copy of the roots.
			// It gets a map of one range, which is split when movers run.
			if !c.revive(ctx, b, parts) {
				return nil
			}
			continue
		case notFound(err):
			return c.nobodys(ctx, b, LostBucket, parts)
		case errors.As(err, &damaged), errors.Is(err, mapcodec.ErrNewerVersion):
			return nil // reported with the bucket
		case err != nil:
			return err
		case root.State == partmap.Deleted:
			return c.nobodys(ctx, b, LeftRows, parts)
		}
		left, err := c.unnamedOf(ctx, root, parts)
		if err == nil {
			return c.unranged(ctx, b, root, left)
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

// revive makes a new partition map with one range for a bucket whose map has lost its root, and reports the bucket.
// parts has the partitions with rows of the bucket. The result is true if the bucket has a root afterwards.
func (c *Checker) revive(ctx context.Context, b bucket, parts []store.PartitionID) (revived bool) {
	f := c.finding(b, LostBucket, "%d or more partitions have rows of a bucket that has no root", len(parts))
	f.Partition, f.Count = parts[0], int64(len(parts))
	c.problem(ctx, f, func() (string, error) {
		settings, err := c.lostSettings(ctx, b, parts)
		if err != nil {
			c.keep(b.id, unnamed)
			return "", err
		}
		root, err := c.maps.CreateWith(ctx, b.id, settings, nil)
		if err == nil { // its epoch must differ from that of a bucket which never was in other partitions
			err = c.maps.Swap(ctx, partmap.Again(root, c.maps.Stamp()))
		} else if store.KindOf(err) == store.Conflict {
			root, err = c.root(ctx, b.id) // the root exists by now
		}
		if revived = err == nil; revived {
			c.mu.Lock()
			c.nameless = append(c.nameless, root) // dropped later if a name leads to the bucket
			c.mu.Unlock()
		} else {
			c.keep(b.id, unnamed)
		}
		return "it has a map of one range, and its rows are copied there", err
	})
	return revived
}

// lostSettings returns the settings of a bucket that has lost them together with the root of its partition map. It
// deduces them from the first rows of the bucket's partitions. The result is nil if the rows do not show any settings.
func (c *Checker) lostSettings(ctx context.Context, b bucket, parts []store.PartitionID) ([]byte, error) {
	// The rows are the only evidence. Without its settings, a bucket of objects would become a plain one, and anybody
	// might purge its objects.
	const rows = 100 // rows read of a partition; damaged rows and markers say nothing
	if c.o.LostSettings == nil {
		return nil, nil
	}
	for _, id := range parts {
		page, err := c.first(ctx, store.Partition{Bucket: b.id, ID: id}, rows)
		if err != nil {
			return nil, err
		}
		if settings := c.o.LostSettings(page.Rows); settings != nil {
			return settings, nil
		}
	}
	return nil, nil
}

// unnamedOf returns those of the given partitions that the partition map with the given root does not name.
func (c *Checker) unnamedOf(ctx context.Context, root *partmap.Root,
	parts []store.PartitionID) ([]store.PartitionID, error) {
	// In a large map it first looks only for the range of each partition's first row, which clears nearly all
	// partitions. For the rest it reads the whole map.
	left := map[store.PartitionID]bool{}
	for _, id := range parts {
		if root.Height > 0 {
			first, err := c.first(ctx, store.Partition{Bucket: root.Bucket, ID: id}, 1)
			if err != nil {
				return nil, err
			}
			if len(first.Rows) == 0 {
				if err := c.leftover(ctx, store.Partition{Bucket: root.Bucket, ID: id}); err != nil {
					return nil, err
				}
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
	err := c.unname(ctx, root, left)
	return slices.Collect(maps.Keys(left)), err
}

func (c *Checker) first(ctx context.Context, p store.Partition, limit int) (store.Page, error) {
	return c.slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: limit})
}

// nobodys reports the given partitions if they still have rows although their bucket is lost (k is LostBucket) or
// deleted (k is LeftRows). Rows of a deleted bucket are removed if the check repairs.
func (c *Checker) nobodys(ctx context.Context, b bucket, k Kind, parts []store.PartitionID) error {
	for _, id := range parts {
		p := store.Partition{Bucket: b.id, ID: id}
		page, err := c.first(ctx, p, c.o.PageRows)
		if err != nil {
			return err
		}
		if len(page.Rows) == 0 {
			if k == LeftRows {
				err = c.leftover(ctx, p)
			}
			if err != nil {
				return err
			}
			continue
		}
		f := c.finding(b, k, "it has %s rows of a bucket that is deleted", count(page))
		f.Partition, f.Key, f.Count = id, page.Rows[0].Key, int64(len(page.Rows))
		remove := func() (string, error) { return "removed", c.remove(ctx, p) }
		if k == LostBucket {
			f.Text = fmt.Sprintf("it has %s rows of a bucket that has no root", count(page))
			f.Todo, remove = lostTodo, nil
		}
		c.problem(ctx, f, remove)
	}
	return nil
}

// count returns the number of rows of a partition as a text, e.g. "12" or "1000 or more". The argument page is the
// first page of the partition.
func count(page store.Page) string {
	if page.More {
		return fmt.Sprintf("%d or more", len(page.Rows))
	}
	return fmt.Sprint(len(page.Rows))
}

// unranged checks the rows of the given partitions, which the partition map of the bucket b does not name. If the map
// is broken, the partitions are only reported.
func (c *Checker) unranged(ctx context.Context, b bucket, root *partmap.Root, parts []store.PartitionID) error {
	var whole, looked bool
	for _, id := range parts {
		p := store.Partition{Bucket: b.id, ID: id}
		first, err := c.first(ctx, p, c.o.PageRows)
		if err != nil {
			return err
		}
		if len(first.Rows) == 0 {
			if err := c.leftover(ctx, p); err != nil {
				return err
			}
			continue
		}
		if !looked {
			problems, _, err := c.validate(ctx, root)
			if err != nil {
				return err
			}
			looked, whole = true, len(problems) == 0
		}
		if whole {
			err = c.unrangedOne(ctx, b, p)
		} else {
			c.keep(b.id, unnamed)
			f := c.finding(b, Orphan, "it has %s rows, and no range", count(first))
			f.Partition, f.Key, f.Count = id, first.Rows[0].Key, int64(len(first.Rows))
			f.Todo = "the bucket's map is broken: mend that first; these rows may be wanted"
			c.report(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unrangedOne checks one partition that has rows but no range, and reports it:
//   - If readers find all of its rows where the bucket's partition map says, the partition is removed (if the check
//     repairs).
//   - If the operator discards the partition (Options.Discard), it is removed, too.
//   - If Options.Adopt allows it for a partition of this age, the rows are copied there later in the check.
func (c *Checker) unrangedOne(ctx context.Context, b bucket, p store.Partition) error {
	o, err := c.survey(ctx, p)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	f := c.finding(b, Orphan, "it has %d rows, and no range; all of them are where the map says, as new or newer",
		o.rows)
	f.Partition, f.Key, f.Count, f.Missing = p.ID, o.first, o.rows, o.missing
	remove := func() (string, error) { return "removed", c.remove(ctx, p) }
	if o.missing == 0 {
		c.problem(ctx, f, remove)
		return nil
	}
	from, why, err := c.origin(ctx, o)
	if err != nil {
		return err
	}
	f.Key = o.lacks[0].row.Key
	f.Text = fmt.Sprintf("it has %d rows, and no range; %d of them are not where the map says, or are older there:"+
		" no listing shows them. %s", o.rows, o.missing, why)
	f.Todo = from.todo()
	adopts := c.o.Adopt == AdoptAll || c.o.Adopt == AdoptNewer && from != madeBefore
	switch {
	case slices.Contains(c.o.Discard, p.ID):
		c.problem(ctx, f, func() (string, error) { return "discarded", c.remove(ctx, p) })
		return nil
	case adopts && o.foreign == 0:
		c.mu.Lock()
		c.orphaned[b.id] = append(c.orphaned[b.id], orphan{
			finding: f, survey: o, proven: from == madeLater || c.o.Adopt == AdoptAll,
		})
		c.mu.Unlock()
		return nil
	case adopts:
		f.Todo = fmt.Sprintf("%d of its rows are neither entries nor markers: only evenkeel may write to the"+
			" table; --discard PARTITION removes all of them", o.foreign)
	}
	c.keep(b.id, unnamed)
	c.report(f)
	return nil
}

// remove deletes all rows of a partition by one removal. The timestamp of the removal is above those of all rows of the
// partition, and of all rows that may still arrive.
func (c *Checker) remove(ctx context.Context, p store.Partition) error {
	highest, err := c.maps.Above(ctx)
	if err != nil {
		return err
	}
	highest = max(highest, store.Timestamp(c.o.Now().UnixMicro()))
	err = c.pages(ctx, p, func(rows []store.Row) error {
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
