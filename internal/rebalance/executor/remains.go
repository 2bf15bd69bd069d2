package executor

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// carry copies rows that were found to be missing to dst, the new partition of a moving range. This is done shortly
// before the old partition is emptied. The parameter read is a time just before the rows were read. If that was too
// long ago, carry fails with Timeout, and the caller must read the rows again.
func (x *Executor) carry(ctx context.Context, dst store.Partition, read time.Time, rows []store.Row) error {
	// A delete at this stage leaves a marker in dst, so a row without a marker was never deleted.
	within := upTo(store.Bounds{Start: rows[0].Key}, rows[len(rows)-1].Key)
	d, err := x.differ(ctx, dst, page{rows: rows, bounds: within})
	if err != nil {
		return err
	}
	left := append(d.missing, d.tied...)
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

// note returns the note about the range rg, with the timestamp ts. A note is a row that a move leaves in the old
// partition when it has emptied the range. It says in which partition the rows are now. The result ok is false if the
// range ends at the lowest possible key, since no key is left for the note.
func note(rg *partmap.Range, ts store.Timestamp) (row store.Row, ok bool) {
	// Movers with an old partition map need notes: without them, rows that were moved could not be told from rows that
	// were deleted.
	// The note lies at the lowest key of the range, where no client reads the old partition any more.
	key := rg.Start
	if len(key) == 0 {
		key = []byte{0}
	}
	row = store.Row{Key: key, Value: cells.NewNote(rg.To, rg.End), Timestamp: ts}
	return row, store.Within(key, store.Bounds{Start: rg.Start, End: rg.End})
}

// leave writes a note for each of the given ranges, which are about to be removed from the partition src. A note is a
// row that says in which partition the rows of the range are now. The notes get the timestamp ts.
func (x *Executor) leave(ctx context.Context, src store.Partition, ranges []partmap.Range, ts store.Timestamp) error {
	// The notes come before the removal. Otherwise a backup could have the removal but no note, and would show neither
	// the rows nor where they are.
	if !x.maps.LeavesNotes() {
		return nil
	}
	notes := make([]store.Row, 0, len(ranges))
	for i := range ranges {
		if row, ok := note(&ranges[i], ts); ok {
			notes = append(notes, row)
		}
	}
	for len(notes) > 0 {
		n := x.fits(notes)
		if err := x.retry(ctx, func() error { return x.rows.Put(ctx, src, notes[:n]...) }); err != nil {
			return err
		}
		notes = notes[n:]
	}
	return nil
}

// HasLeft reports whether the range rg has moved out of the partition source. It looks for the note, a small row that
// the move leaves in this partition. rows reads the store; a reader from WithoutNotes does not work here.
func HasLeft(ctx context.Context, rows store.Rows, source store.Partition, rg *partmap.Range) (bool, error) {
	left, ok := note(rg, 1)
	if !ok {
		return false, nil
	}
	row, _, err := rows.Get(ctx, source, left.Key)
	to, _, noted := cells.Note(row.Value)
	return noted && to == rg.To, err
}

// WithoutNotes returns a view of the given rows of a store whose reads leave out notes. Notes are small rows that moves
// leave in emptied ranges, and that only movers need.
func WithoutNotes(rows store.Rows) store.Rows { return withoutNotes{rows} }

// withoutNotes is a store.Rows whose reads leave out notes, which are the small rows that moves leave in emptied
// ranges.
type withoutNotes struct{ store.Rows }

// Get returns the row of partition p with the given key, as store.Rows says. A note counts as no row.
func (w withoutNotes) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	row, found, err := w.Rows.Get(ctx, p, key)
	if found && cells.IsNote(row.Value) {
		return store.Row{}, false, err
	}
	return row, found, err
}

// Slice returns a page of rows of partition p, as the interface store.Rows describes, but leaves out notes. If a page
// has nothing but notes, Slice reads the next page instead.
func (w withoutNotes) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	for {
		page, err := w.Rows.Slice(ctx, p, b, o)
		if err != nil || len(page.Rows) == 0 {
			return page, err
		}
		last := page.Rows[len(page.Rows)-1].Key
		page.Rows = slices.DeleteFunc(page.Rows, func(row store.Row) bool { return cells.IsNote(row.Value) })
		if len(page.Rows) > 0 || !page.More {
			return page, nil
		}
		if o.Reverse {
			b.End = last
		} else {
			b.Start, b.StartExclusive = last, true
		}
	}
}

// Removed reports whether the keys right above the given key were removed from partition p as a whole interval. Moves
// and deletions of ranges of keys remove keys in this way; a delete of a single key does not. Only a removal with the
// timestamp ts or a later one counts. Removed fails with InvalidArgument if there is no unused key between key and the
// end of `within`.
func Removed(
	ctx context.Context, rows store.Rows, p store.Partition, within store.Bounds, key []byte, ts store.Timestamp,
) (bool, error) {
	// A deletion marker, which no listing shows, is written to a random key that was never used. If the marker can't be
	// read afterwards, a removal hides it.
	chance := uuid.New()
	next := append(append(bytes.Clone(key), 0), chance[:]...)
	if len(next) > store.MaxKeyBytes || len(within.End) > 0 && string(next) >= string(within.End) {
		return false, store.Errorf(store.InvalidArgument,
			"whether the keys next to %q were removed from partition %s can't be tried: there are none", key, p)
	}
	if err := rows.Put(ctx, p, store.Row{Key: next, Value: cells.Marker(), Timestamp: ts}); err != nil {
		return false, err
	}
	if _, there, err := rows.Get(ctx, p, next); err != nil || !there {
		return err == nil, err
	}
	return false, rows.Delete(ctx, p, next, ts)
}
