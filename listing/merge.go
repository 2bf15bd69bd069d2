package listing

import (
	"bytes"
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

// piece is the result of one read of one range. It covers the keys from the near bound up
// to last, or to the range's far bound where more is false.
type piece struct {
	// rows are in listing order and may include markers, which are not shown.
	rows []store.Row
	more bool
	last []byte // with more: the last key covered
	// through are the covered rows of the source that beat those of the destination.
	through []late
	// orphans are copies in the destination for which the source has
	// neither the row nor a newer one. They are not in rows.
	orphans []store.Row
}

// late is a row that the destination of a move lacks.
type late struct {
	store.Row
	// tied: a client wrote another row with the same timestamp to the destination.
	tied bool
	// over is the row of the destination that this one beats; without a key if there is none.
	over store.Row
}

// cell returns the cell to write to the destination: a copy, unless that would lose
// against the row there.
func (l *late) cell() []byte {
	if l.tied {
		return store.OriginalCell(l.Value)
	}
	return store.CopiedCell(l.Value)
}

// single returns the piece of a page of one partition.
func single(p store.Page) piece {
	c := piece{rows: p.Rows, more: p.More}
	if p.More {
		c.last = p.Rows[len(p.Rows)-1].Key
	}
	return c
}

// highest returns the highest timestamp of the rows; 0 if they were read without.
func (c *piece) highest() (highest store.Timestamp) {
	for i := range c.rows {
		highest = max(highest, c.rows[i].Timestamp)
	}
	return highest
}

// insert inserts a row in order, in place of an older one of its key.
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

// lose takes a row of the source out, which another data centre has deleted there, and shows what it has beaten. That is
// an orphan if it is a copy: the source has lost that one as well, by the same deletion.
func (c *piece) lose(l *late, reverse bool) {
	c.rows = slices.DeleteFunc(c.rows, func(r store.Row) bool { return bytes.Equal(r.Key, l.Key) })
	switch {
	case l.over.Key == nil:
	case store.IsCopied(l.over.Value):
		c.orphans = append(c.orphans, l.over)
	default:
		c.insert(l.over, reverse)
	}
}

// merge merges the pages of the source and destination of a range, read with timestamps
// within the same bounds. A page that ended at a limit says nothing beyond its last key; so
// the piece ends at the nearer of such keys.
//
// A copy in the destination counts only while the source has the row or a newer one: a
// late plain delete from before the move may have removed it there, and deletes are not
// copied.
func merge(src, dst store.Page, reverse bool) piece {
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
			if winner, b = b[0], b[1:]; store.IsCopied(winner.Value) {
				winner, orphan = store.Row{Key: winner.Key}, winner
			}
		default:
			winner = b[0]
			if store.Newer(&a[0], &b[0]) {
				winner, over, fromSource = a[0], b[0], true
				tied = a[0].Timestamp == b[0].Timestamp && !store.IsCopied(b[0].Value)
			} else if store.IsCopied(b[0].Value) && a[0].Timestamp < b[0].Timestamp {
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
