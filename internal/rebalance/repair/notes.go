package repair

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A move leaves a note in each range that it removes from its source. The note names the partition to which the rows
// went:
//
//	partition A   rows [a, m)   note: [m, z) went to B
//	partition B                 rows [m, z)
//
// Notes are the only proof that a move which the map does not know has emptied a home: a removal alone may be that of a
// purge. Programs older than notes left none, so about their moves nothing is proven.

// note says that the keys within its bounds were moved to the partition `to`. A move writes the note, as a row, into
// the old partition. The check uses notes as proof of moves that a restored partition map does not know.
type note struct {
	store.Bounds
	to store.PartitionID
	ts store.Timestamp
}

// notesKept is the least age at which the check removes a note. A note is a row that a move leaves in the old partition
// to say where the rows of a range went. A restore from backups of up to this age may need it.
const notesKept = 10 * 24 * time.Hour

// takeNotes returns the given rows of partition p without the notes among them. A note is a row that a move leaves in
// the old partition to say where the rows of a range went. If the check may copy rows back (Options.Adopt), the notes
// are remembered.
func (c *Checker) takeNotes(p store.Partition, rows []store.Row) []store.Row {
	return slices.DeleteFunc(rows, func(row store.Row) bool {
		to, end, ok := cells.Note(row.Value)
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

// movedTo returns the partition to which a key was moved from partition p. It looks at the notes, which are rows that
// moves leave in p. If several notes cover the key, the newest one counts. The result found is false if none does.
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

// leads reports whether moves that the bucket's partition map does not know may have brought the missing row l to the
// partition `to`. It follows notes, which are rows by which moves say where the rows of a range went. The first note is
// in the partition where the map has the row; the last one must lead to `to`.
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

// leftover remembers the notes of a partition that has no other rows. A note is a row that a move leaves in the old
// partition to say where the rows of a range went. If all the notes are old, the partition is marked for removal at the
// end of the check.
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

// collectNotes removes old notes, which are rows that moves leave in old partitions to say where the rows of a range
// went. It clears only partitions that the bucket's partition map does not name. If a bucket has rows outside its
// ranges, all its notes are kept, however old: they may say where these rows belong.
func (c *Checker) collectNotes(ctx context.Context) error {
	// The map never names a cleared partition again. A partition that the map names is skipped even if it has only
	// notes: those of ranges that have left it.
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
		if err == nil && root.State != partmap.Deleted { // otherwise nobody reads any of the notes
			err = c.unname(ctx, root, left)
		}
		var damaged errDamaged
		switch k := store.KindOf(err); {
		case err == nil:
		case k == store.NotFound, k == store.Corrupt, errors.As(err, &damaged), errors.Is(err, mapcodec.ErrNewerVersion),
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

// unname removes from the set `left` all partitions that the bucket's partition map, with the given root, names. What
// remains in the set are partitions without a range.
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
