package listing

import (
	"bytes"
	"sort"

	"github.com/evenkeel/evenkeel/store"
)

// piece is what one read of one range found: the truth about its keys from the
// near bound up to last, or to the range's far bound where more is false.
type piece struct {
	// rows are in listing order and may include markers, which are not shown.
	rows []store.Row
	more bool
	last []byte // of more: how far the rows are complete, itself included
	// through are rows of the source that beat the destination's, within what
	// the piece covers.
	through []late
	// orphans are copies in the destination, in listing order, that the source does
	// not have, nor anything newer: rows is as if they were not there.
	orphans []store.Row
}

// late is a row that the destination of a move does not have yet.
type late struct {
	store.Row
	// tied: it has another one of the same timestamp, which a client wrote there.
	tied bool
}

// cell is how the row is written to the destination: as a copy, but where that would
// lose against what it beats.
func (l *late) cell() []byte {
	if l.tied {
		return store.OriginalCell(l.Value)
	}
	return store.CopiedCell(l.Value)
}

// single is the piece that one partition's page makes.
func single(p store.Page) piece {
	c := piece{rows: p.Rows, more: p.More}
	if p.More {
		c.last = p.Rows[len(p.Rows)-1].Key
	}
	return c
}

// highest is the highest timestamp of the rows; 0 where they were read without.
func (c *piece) highest() (highest store.Timestamp) {
	for i := range c.rows {
		highest = max(highest, c.rows[i].Timestamp)
	}
	return highest
}

// insert gives a row its place among the rows, in that of an older one of its key.
func (c *piece) insert(row store.Row, reverse bool) {
	i := sort.Search(len(c.rows), func(i int) bool {
		order := bytes.Compare(c.rows[i].Key, row.Key)
		return order == 0 || (order > 0) != reverse
	})
	if i < len(c.rows) && bytes.Equal(c.rows[i].Key, row.Key) {
		c.rows[i] = row
		return
	}
	c.rows = append(c.rows, store.Row{})
	copy(c.rows[i+1:], c.rows[i:])
	c.rows[i] = row
}

// merge joins the pages of a range's source and destination, read with
// timestamps, within the same bounds. Where a page ended at a limit, nothing is
// known beyond its last key; so the piece ends at the nearer of such keys.
//
// A copy in the destination counts only while the source has the row, or a newer one:
// a plain delete from before the move may have come late and hidden it there, and no
// copy carries that over.
func merge(src, dst store.Page, reverse bool) piece {
	beyond := func(a, b []byte) bool { // a comes after b in listing order
		if reverse {
			a, b = b, a
		}
		return bytes.Compare(a, b) > 0
	}
	var c piece
	for _, p := range []store.Page{src, dst} {
		if p.More {
			last := p.Rows[len(p.Rows)-1].Key
			if !c.more || beyond(c.last, last) {
				c.more, c.last = true, last
			}
		}
	}
	a, b := src.Rows, dst.Rows
	c.rows = make([]store.Row, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var winner, orphan store.Row
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
				winner, fromSource = a[0], true
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
			c.through = append(c.through, late{winner, tied})
		}
	}
	return c
}
