package listing

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// A piece is the result of reading rows of one range of the map. While the range moves, and both the source and the
// destination of the move are read, their rows are merged. If more is false, the rows are all rows within the bounds
// that were read. If more is true, they are those up to the key last.
type piece struct {
	// rows are in listing order and may include markers, rows that record deletions and are not shown.
	rows []store.Row
	more bool   // there may be rows behind last
	last []byte // if more is set: the last key covered
	// through are the covered rows of the source of a move that the destination lacks, or has only in an older version.
	through []late
	// orphans are copies in the destination of a move for which the source has neither the original nor a newer row of
	// the key. Orphans are not in rows.
	orphans []store.Row
}

// A late row is a row that the source of a move has but the destination lacks. The destination may also have an older
// version of the row.
type late struct {
	store.Row
	// tied means that a client has written another row of the key, with the same timestamp, to the destination of the
	// move.
	tied bool
	// over is the older row of the destination, in whose place this row of the source is shown. Its key is nil if the
	// destination has no row of the key.
	over store.Row
}

// cell returns the encoded value with which a row is copied from the source of a move to the destination. Usually the
// value is marked as a copy. The mark makes a row lose against a row of the same key and timestamp that a client has
// written. So it is left out if the destination has such a row.
func (l *late) cell() []byte {
	if l.tied {
		return cells.Original(l.Value)
	}
	return cells.Copied(l.Value)
}

// single returns the result of reading a range for which only one partition has to be read. p has the rows of that
// partition.
func single(p store.Page) piece {
	c := piece{rows: p.Rows, more: p.More}
	if p.More {
		c.last = p.Rows[len(p.Rows)-1].Key
	}
	return c
}

// highest returns the highest timestamp of the rows in a piece, the result of reading a range. It returns 0 if the rows
// were read without timestamps.
func (c *piece) highest() (highest store.Timestamp) {
	for i := range c.rows {
		highest = max(highest, c.rows[i].Timestamp)
	}
	return highest
}

// insert puts a row among the rows of a piece, the result of reading a range, in the order of keys. It replaces an
// older row of the same key. If reverse is true, the rows are in descending order.
func (c *piece) insert(row store.Row, reverse bool) {
	i, found := slices.BinarySearchFunc(c.rows, row.Key, func(r store.Row, key []byte) int {
		if reverse {
			return bytes.Compare(key, r.Key)
		}
		return bytes.Compare(r.Key, key)
	})
	if found {
		c.rows[i] = row
	} else {
		c.rows = slices.Insert(c.rows, i, row)
	}
}

// lose removes the row l from the rows read, as another data centre has deleted it. The row came from the source of a
// move. The destination may have an older row of the key (l.over), which is then
//   - shown in its place, if a client has written it to the destination; or
//   - added to the orphans, if it is a copy. An orphan is a copy whose original is gone.
func (c *piece) lose(l *late, reverse bool) {
	// The same deletion has removed the original of a copy from the source as well.
	c.rows = slices.DeleteFunc(c.rows, func(r store.Row) bool { return bytes.Equal(r.Key, l.Key) })
	switch {
	case l.over.Key == nil:
	case cells.IsCopied(l.over.Value):
		c.orphans = append(c.orphans, l.over)
	default:
		c.insert(l.over, reverse)
	}
}

// merge returns the rows of a range that moves, from a page of the source (src) and a page of the destination (dst).
// Both pages were read with timestamps and within the same bounds.
//   - Of two rows of the same key the newer row counts.
//   - A copy in the destination counts only while the source has the row or a newer row of the key. Otherwise the copy
//     is an orphan.
//   - If a page ended at a limit, the result ends there, too. If both did, it ends at the first of the two ends.
func merge(src, dst store.Page, reverse bool) piece {
	// A copy is an orphan if a late plain delete, from before the move, has removed the row from the source: deletes
	// are not copied. A page that ended at a limit says nothing beyond its last key.
	beyond := func(a, b []byte) bool { // a comes after b in listing order
		if reverse {
			a, b = b, a
		}
		return bytes.Compare(a, b) > 0
	}
	c := piece{rows: make([]store.Row, 0, len(src.Rows)+len(dst.Rows))}
	for _, p := range []store.Page{src, dst} {
		if p.More {
			last := p.Rows[len(p.Rows)-1].Key
			if !c.more || beyond(c.last, last) {
				c.more, c.last = true, last
			}
		}
	}
	a, b := src.Rows, dst.Rows
	for len(a) > 0 || len(b) > 0 {
		var winner, orphan, over store.Row
		fromSource, tied := false, false
		switch {
		case len(b) == 0 || len(a) > 0 && beyond(b[0].Key, a[0].Key):
			winner, a, fromSource = a[0], a[1:], true
		case len(a) == 0 || beyond(a[0].Key, b[0].Key):
			if winner, b = b[0], b[1:]; cells.IsCopied(winner.Value) {
				winner, orphan = store.Row{Key: winner.Key}, winner
			}
		default:
			winner = b[0]
			if storekit.Newer(&a[0], &b[0]) {
				winner, over, fromSource = a[0], b[0], true
				tied = a[0].Timestamp == b[0].Timestamp && !cells.IsCopied(b[0].Value)
			} else if cells.IsCopied(b[0].Value) && a[0].Timestamp < b[0].Timestamp {
				winner, orphan = a[0], b[0]
			}
			a, b = a[1:], b[1:]
		}
		if c.more && beyond(winner.Key, c.last) {
			break
		}
		if orphan.Key != nil {
			c.orphans = append(c.orphans, orphan)
		}
		if winner.Value != nil {
			c.rows = append(c.rows, winner)
		}
		if fromSource {
			c.through = append(c.through, late{winner, tied, over})
		}
	}
	return c
}
