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

// carry writes rows of a draining range's source that the destination lacks. Deletes still
// leave markers there, so what is missing was never deleted. It fails with Timeout if it took
// too long since the read: the rows may have changed, and the task is due again.
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

// note returns the row by which a source says that a move has emptied a range of it, and where the rows of that range
// are. The row is proof for a reader whose map is older than the rows: a removal alone may be that of a purge. The row
// lies at the lowest key within the range, where nobody reads the source any more. ok is false for a range that has no
// key, as it ends at the lowest key.
func note(rg *partmap.Range, ts store.Timestamp) (row store.Row, ok bool) {
	key := rg.Start
	if len(key) == 0 {
		key = []byte{0}
	}
	row = store.Row{Key: key, Value: store.NoteCell(rg.To, rg.End), Timestamp: ts}
	return row, store.Within(key, store.Bounds{Start: rg.Start, End: rg.End})
}

// leave writes the notes of ranges that are about to be removed. They come first: a copy of the store that has the
// removal, but no note of it, would show neither the rows nor where they are.
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

// HasLeft reports whether a source has the note of the move of a range. The rows that are passed in must include notes.
func HasLeft(ctx context.Context, rows store.Rows, source store.Partition, rg *partmap.Range) (bool, error) {
	left, ok := note(rg, 1)
	if !ok {
		return false, nil
	}
	row, _, err := rows.Get(ctx, source, left.Key)
	to, _, noted := store.Note(row.Value)
	return noted && to == rg.To, err
}

// WithoutNotes returns rows whose reads leave out notes.
func WithoutNotes(rows store.Rows) store.Rows { return withoutNotes{rows} }

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

// Removed reports whether a removal with timestamp ts or later covers the keys next to key, within bounds. The removal
// may be that of a move, or of a deletion of a range of keys. To find out, Removed writes a marker, which no listing
// shows, to a random key that was never used: so it can't mistake a delete of one key for a removal. It fails with
// InvalidArgument if there is no such unused key.
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
