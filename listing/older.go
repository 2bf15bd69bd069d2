package listing

import (
	"bytes"
	"context"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Older are the entries of a range of keys that were put at a time or before it, and not again since.
type Older struct {
	// First and Last are the first and the last key; nil: there are none.
	First, Last []byte
	// Entries is how many there are, Ranges of how many ranges of the map.
	Entries, Ranges int64
}

// OlderThan finds the entries with keys from one key (empty: the first) up to another, which is excluded (empty: no
// end), that were put at the time of a timestamp or before it. It reads all entries between the two, and fails like
// List.
func (b *Bucket) OlderThan(ctx context.Context, from, to []byte, at store.Timestamp) (old Older, err error) {
	var last []byte // the start of the range of the last one
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

// DeleteOlderUntil is DeleteRangeUntil of the entries that were put at the time of a timestamp or before it, and not
// again since. To find a range of the map that has some, it reads up to the first one of them.
func (b *Bucket) DeleteOlderUntil(
	ctx context.Context, from, to []byte, at store.Timestamp, until time.Time,
) (next []byte, err error) {
	next, err = b.deleteRange(ctx, bytes.Clone(from), bytes.Clone(to), removal{max(at, 1), true}, until)
	return next, wrap("delete old entries", b.name, err)
}

// eachOlder calls each, until that returns false, with the entries of a time or before it, and their ranges.
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
			continue // what was read may be of a partition that was left
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

// look is inPart, as the rows of the client show it.
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
	for err == nil && len(page.Items) == 0 && page.Next != "" { // there may be nothing at all
		q.Token = page.Next
		page, err = b.list(ctx, q)
	}
	return page.Items, page.Next != "" || len(page.Items) > limit, err
}
