package listing

import (
	"bytes"

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
	through []store.Row
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

// newer reports whether row a beats row b of the same key: the higher timestamp
// wins, at a tie the marker, then the larger value; as in every store.
func newer(a, b *store.Row) bool {
	if a.Timestamp != b.Timestamp {
		return a.Timestamp > b.Timestamp
	}
	return bytes.Compare(a.Value, b.Value) > 0 // a marker's kind byte is the larger one
}

// merge joins the pages of a range's source and destination, read with
// timestamps, within the same bounds. Where a page ended at a limit, nothing is
// known beyond its last key; so the piece ends at the nearer of such keys.
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
		var winner store.Row
		fromSource := false
		switch {
		case len(b) == 0 || len(a) > 0 && beyond(b[0].Key, a[0].Key):
			winner, a, fromSource = a[0], a[1:], true
		case len(a) == 0 || beyond(a[0].Key, b[0].Key):
			winner, b = b[0], b[1:]
		default:
			winner = b[0]
			if newer(&a[0], &b[0]) {
				winner, fromSource = a[0], true
			}
			a, b = a[1:], b[1:]
		}
		if c.more && beyond(winner.Key, c.last) {
			break
		}
		c.rows = append(c.rows, winner)
		if fromSource {
			c.through = append(c.through, winner)
		}
	}
	return c
}
