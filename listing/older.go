package listing

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// OlderThan returns a summary of the old entries with from <= key < to. The parameter at is the highest timestamp of an
// old entry's last put. An empty from is the first key, an empty to is no end. OlderThan reads all entries between from
// and to, and fails like List.
func (b bucketDoor) OlderThan(ctx context.Context, from, to []byte, at store.Timestamp) (old door.Older, err error) {
	var last []byte // the start of the range that has the last old entry
	err = b.eachOlder(ctx, bytes.Clone(from), bytes.Clone(to), at, func(rg *partmap.Range, key []byte) bool {
		if old.Entries == 0 {
			old.First = bytes.Clone(key)
		}
		if old.Entries == 0 || !bytes.Equal(rg.Start, last) {
			last = bytes.Clone(rg.Start)
			old.Ranges++
		}
		old.Entries++
		old.Last = append(old.Last[:0], key...)
		return true
	})
	return old, wrap("find old entries", b.name, err)
}

// DeleteOlderUntil deletes the old entries with from <= key < to, in the way of DeleteRangeUntil. The parameter at is
// the highest timestamp of an old entry's last put. To find out whether a range of the map has an old entry,
// DeleteOlderUntil reads the range up to the first old entry.
func (b bucketDoor) DeleteOlderUntil(
	ctx context.Context, from, to []byte, at store.Timestamp, until time.Time,
) (next []byte, err error) {
	next, err = b.deleteRange(ctx, bytes.Clone(from), bytes.Clone(to), removal{max(at, 1), true}, until)
	return next, wrap("delete old entries", b.name, err)
}

// eachOlder calls the function each for every old entry with from <= key < to, together with the range of the map that
// contains the entry. An entry is old if its last put has the timestamp at or a lower one. eachOlder stops when each
// returns false.
func (b *Bucket) eachOlder(
	ctx context.Context, from, to []byte, at store.Timestamp, each func(rg *partmap.Range, key []byte) bool,
) error {
	for left := (span{lo: from, hi: to}); !left.done; {
		h, rg, err := b.locate(ctx, left.lo)
		if err != nil {
			return err
		}
		o := store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true}
		got, err := readPhase(ctx, b.c.rows, h.Root().Bucket, &rg, left.within(&rg), o)
		valid := h.Valid()
		h.release()
		if err != nil {
			return err
		}
		if !valid {
			continue // the rows read may be of a partition that the range has left
		}
		for i := range got.rows {
			_, live, err := store.EntryValue(got.rows[i].Value)
			if err != nil {
				return err
			}
			if live && got.rows[i].Timestamp <= at && !each(&rg, got.rows[i].Key) {
				return nil
			}
		}
		if got.more {
			left.passKey(bytes.Clone(got.last))
		} else {
			left.passRange(&rg)
		}
	}
	return nil
}

// look returns the entries of a part of a range that a deletion has to remove, at most limit of them. If r.older is
// true, these are the entries that are not newer than the timestamp of the removal r. If not, they are all entries: few
// are newer, and a deletion at that timestamp leaves those. The result more is true if the part has further such
// entries. The client of b decides which data centres are read.
func (b *Bucket) look(
	ctx context.Context, part store.Bounds, r removal, limit int,
) (items []Item, more bool, err error) {
	if r.older {
		err = b.eachOlder(ctx, part.Start, part.End, r.ts, func(_ *partmap.Range, key []byte) bool {
			if more = len(items) == limit; !more {
				items = append(items, Item{Entry: Entry{Key: bytes.Clone(key)}})
			}
			return !more
		})
		return items, more, err
	}
	q := Query{From: part.Start, To: part.End, Limit: max(limit, 1), KeysOnly: true}
	page, err := b.list(ctx, q)
	for err == nil && len(page.Items) == 0 && page.Next != "" { // an empty page may have a token
		q.Token = page.Next
		page, err = b.list(ctx, q)
	}
	return page.Items, page.Next != "" || len(page.Items) > limit, err
}
