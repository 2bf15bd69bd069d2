package executor

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// carry copies rows of the source of a move that the destination dst lacks, shortly before the source is emptied.
// Deletes leave markers in the destination, so a row without a marker there was never deleted. read is the time before
// the rows were read. If that was too long ago, carry fails with Timeout: the rows may have changed, and are read again
// later.
func (x *Executor) carry(ctx context.Context, dst store.Partition, read time.Time, rows []store.Row) error {
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

// note returns the row that a move leaves in the source when it has emptied the range rg. The row says where the rows
// of the range are. It is a proof for a reader whose map is older than the rows: without it the range might as well
// have been deleted. The note lies at the lowest key within the range, where nobody reads the source any more. ok is
// false for a range that has no key, as it ends at the lowest key.
func note(rg *partmap.Range, ts store.Timestamp) (row store.Row, ok bool) {
	key := rg.Start
	if len(key) == 0 {
		key = []byte{0}
	}
	row = store.Row{Key: key, Value: store.NoteCell(rg.To, rg.End), Timestamp: ts}
	return row, store.Within(key, store.Bounds{Start: rg.Start, End: rg.End})
}

// leave writes a note for each range that is about to be removed from the source src of a move. A note is a row that
// says where the rows of the range are. The notes come before the removal. Otherwise a copy of the store could have the
// removal but no note, and would show neither the rows nor where they are.
func (x *Executor) leave(ctx context.Context, src store.Partition, ranges []partmap.Range, ts store.Timestamp) error {
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
// the move leaves there. The reads of rows must not leave out notes.
func HasLeft(ctx context.Context, rows store.Rows, source store.Partition, rg *partmap.Range) (bool, error) {
	left, ok := note(rg, 1)
	if !ok {
		return false, nil
	}
	row, _, err := rows.Get(ctx, source, left.Key)
	to, _, noted := store.Note(row.Value)
	return noted && to == rg.To, err
}

// WithoutNotes returns the given rows of a store, but reads leave out notes, which are small rows that moves leave in
// emptied ranges.
func WithoutNotes(rows store.Rows) store.Rows { return withoutNotes{rows} }

// withoutNotes reads the rows of a store without notes, which are the small rows that moves leave in emptied ranges.
type withoutNotes struct{ store.Rows }

// Get implements store.Rows.
func (w withoutNotes) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	row, found, err := w.Rows.Get(ctx, p, key)
	if found && store.IsNote(row.Value) {
		return store.Row{}, false, err
	}
	return row, found, err
}

// Slice implements store.Rows.
func (w withoutNotes) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	for {
		page, err := w.Rows.Slice(ctx, p, b, o)
		if err != nil || len(page.Rows) == 0 {
			return page, err
		}
		last := page.Rows[len(page.Rows)-1].Key
		page.Rows = slices.DeleteFunc(page.Rows, func(row store.Row) bool { return store.IsNote(row.Value) })
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

// Removed reports whether the keys right above key were removed together, with a timestamp of ts or later. The removal
// may be that of a move, or of a deletion of a range of keys. To find out, Removed writes a marker, which no listing
// shows, to a random key that was never used: so a delete of one key is not mistaken for a removal. It fails with
// InvalidArgument if there is no unused key between key and the end of within.
func Removed(
	ctx context.Context, rows store.Rows, p store.Partition, within store.Bounds, key []byte, ts store.Timestamp,
) (bool, error) {
	chance := uuid.New()
	next := append(append(bytes.Clone(key), 0), chance[:]...)
	if len(next) > store.MaxKeyBytes || len(within.End) > 0 && string(next) >= string(within.End) {
		return false, store.Errorf(store.InvalidArgument,
			"whether the keys next to %q were removed from partition %s can't be tried: there are none", key, p)
	}
	if err := rows.Put(ctx, p, store.Row{Key: next, Value: store.MarkerCell(), Timestamp: ts}); err != nil {
		return false, err
	}
	if _, there, err := rows.Get(ctx, p, next); err != nil || !there {
		return err == nil, err
	}
	return false, rows.Delete(ctx, p, next, ts)
}
