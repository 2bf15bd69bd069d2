package repair

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
)

// A move leaves a note in each range that it removes from its source, with the partition to
// which the rows went. Notes are the only proof that a move which the map does not know has
// emptied a home: a removal alone may be that of a purge. Moves of programs that are older
// than notes left none, so about these nothing is proven.

// note says that the keys within bounds were moved to another partition.
type note struct {
	store.Bounds
	to store.PartitionID
	ts store.Timestamp
}

// notesKept is the age up to which a note is kept although no orphan needs it now. A restore may bring back copies that
// are up to that old, some from before a move and some from after it.
const notesKept = 10 * 24 * time.Hour

// takeNotes returns the rows that are not notes. It remembers the notes where they may be needed.
func (c *Checker) takeNotes(p store.Partition, rows []store.Row) []store.Row {
	return slices.DeleteFunc(rows, func(row store.Row) bool {
		to, end, ok := store.Note(row.Value)
		if ok && c.o.Adopt != AdoptNone {
			n := note{store.Bounds{Start: bytes.Clone(row.Key), End: bytes.Clone(end)}, to, row.Timestamp}
			c.mu.Lock()
			defer c.mu.Unlock()
			known := slices.ContainsFunc(c.notes[p], func(o note) bool { return o.ts == n.ts && bytes.Equal(o.Start, n.Start) })
			if !known {
				c.notes[p] = append(c.notes[p], n)
			}
		}
		return ok
	})
}

// movedTo returns the partition to which a move took a key out of a partition; false if there is no note of it.
func (c *Checker) movedTo(p store.Partition, key []byte) (to store.PartitionID, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest store.Timestamp
	for _, n := range c.notes[p] {
		if store.Within(key, n.Bounds) && n.ts > newest {
			newest, to, found = n.ts, n.to, true
		}
	}
	return to, found
}

// leads reports whether the key of the lack l was taken to a partition by moves that the map does not know.
func (c *Checker) leads(l *lack, to store.PartitionID) bool {
	for _, id := range []store.PartitionID{l.rg.Partition, l.rg.To} {
		met := map[store.PartitionID]bool{}
		for found := true; found && !met[id]; {
			met[id] = true
			if id, found = c.movedTo(store.Partition{Bucket: l.bucket, ID: id}, l.row.Key); found && id == to {
				return true
			}
		}
	}
	return false
}

// leftover reads a partition that has no rows except notes. It may be a home all the same.
func (c *Checker) leftover(ctx context.Context, p store.Partition) error {
	var newest store.Timestamp
	var b store.Bounds
	for {
		page, err := retried(ctx, c, func() (store.Page, error) {
			return c.noted.Slice(ctx, p, b, store.SliceOptions{Limit: c.o.PageRows, Timestamps: true})
		})
		if err != nil {
			return err
		}
		for i := range page.Rows {
			newest = max(newest, page.Rows[i].Timestamp)
		}
		if n := len(page.Rows); n > 0 {
			b.Start, b.StartExclusive = page.Rows[n-1].Key, true
		}
		c.takeNotes(p, page.Rows)
		if !page.More {
			break
		}
	}
	if c.o.Repair && newest > 0 && int64(newest) < c.o.Now().Add(-notesKept).UnixMicro() {
		c.mu.Lock()
		c.emptied = append(c.emptied, p)
		c.mu.Unlock()
	}
	return nil
}

// collectNotes removes old notes in partitions that the map does not name. A home may have nothing but notes, too: those
// of ranges that have left it. A partition that the map does not name now is never named again. If a bucket has rows
// outside its ranges, its notes are kept, however old: they may say where these rows belong.
func (c *Checker) collectNotes(ctx context.Context) error {
	of := map[store.BucketID]map[store.PartitionID]bool{}
	for _, p := range c.emptied {
		if of[p.Bucket] == nil {
			of[p.Bucket] = map[store.PartitionID]bool{}
		}
		of[p.Bucket][p.ID] = true
	}
	for id, left := range of {
		if c.suspected(id) || c.keeps(id) != 0 || len(c.orphaned[id]) > 0 {
			continue
		}
		root, err := c.root(ctx, id)
		if err == nil && root.State != partmap.Deleted { // else nobody reads any of them
			err = c.unname(ctx, root, left)
		}
		var damaged errDamaged
		switch k := store.KindOf(err); {
		case err == nil:
		case k == store.NotFound, k == store.Corrupt, errors.As(err, &damaged), errors.Is(err, partmap.ErrNewerVersion),
			errors.Is(err, mapclient.ErrStale):
			continue // the map is reported, or has changed meanwhile: the next check collects them
		default:
			return err
		}
		for p := range left {
			if err := c.remove(ctx, store.Partition{Bucket: id, ID: p}); err != nil {
				return err
			}
		}
	}
	return nil
}

// unname deletes from a set the partitions that a root names.
func (c *Checker) unname(ctx context.Context, root *partmap.Root, left map[store.PartitionID]bool) error {
	for rg, err := range partmap.Ranges(root, c.reader(ctx, root.Bucket), nil, nil) {
		if err != nil {
			return err
		}
		delete(left, rg.Partition)
		delete(left, rg.To)
	}
	return nil
}
