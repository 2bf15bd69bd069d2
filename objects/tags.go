package objects

import (
	"bytes"
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// tagsVersion is the first byte of the value of a row of tags. This row belongs to a version, and has the tags that
// were set after the put. Behind the first byte are the tags, encoded as in the version's own row.
const tagsVersion = 1

// SetTags replaces all tags of a version by tags. If tags is empty, SetTags deletes all tags. After several calls the
// tags of the last call count. SetTags returns the metadata of the version with the new tags. It fails with
// InvalidArgument, like Head, or like Put.
func (b *Bucket) SetTags(ctx context.Context, key []byte, id ID, tags []Pair) (Info, error) {
	if err := (&record{tags: tags}).check(); err != nil {
		return Info{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	still := b.o.deadline(writeTimeout)
	r, id, err := b.find(ctx, key, id)
	if err == nil && r.marker {
		err = ErrDeleted
	}
	if err != nil {
		return Info{}, err
	}
	stamp, err := door.Client(b.o.c).Stamps(ctx, 1)
	if err != nil {
		return Info{}, err
	}
	value := appendPairs([]byte{tagsVersion}, tags)
	if err := door.Bucket(b.rows).PutAt(ctx, tagsKey(key, id), value, door.Given{At: stamp, Still: still}); err != nil {
		return Info{}, err
	}
	r.tags = tags
	return r.info(bytes.Clone(key), id), nil
}

// tagsKey returns the key of the row with the tags of the version id that were set after the put.
func tagsKey(key []byte, id ID) []byte { return append(rowKey(key, id), tagsSuffix) }

// decodeTags returns the tags in b, the value of a row of tags. It fails with Corrupt if b is damaged, or if a newer
// program wrote b.
func decodeTags(b []byte) ([]Pair, error) {
	if len(b) > 0 && b[0] > tagsVersion {
		return nil, store.Errorf(store.Corrupt, "tags of version %d: a newer program wrote them, this one reads up to %d",
			b[0], tagsVersion)
	}
	if len(b) == 0 {
		return nil, damagedTags(b)
	}
	d := decoder{wire.Shortest{Of: b, At: 1}}
	tags := d.pairs(maxTagBytes)
	if d.Bad || len(d.Rest()) > 0 || b[0] != tagsVersion {
		return nil, damagedTags(b)
	}
	return tags, nil
}

// damagedTags returns a Corrupt error, which says that b is not the value of a row of tags.
func damagedTags(b []byte) error {
	return store.Errorf(store.Corrupt, "a value of %d bytes is not the tags of a version", len(b))
}

// addTags replaces the tags in r, the record of a version, by the tags that were set after the put, if any. These tags
// are in a row of their own, right behind the version's row, whose key is rowKey. The parameter after has the rows
// behind the version's row that the caller has already read, and all is true if no further rows follow. If after is
// empty and all is false, addTags reads the row of tags.
func (b *Bucket) addTags(
	ctx context.Context, r *record, rowKey []byte, after []listing.Item, all bool,
) (err error) {
	own := append(bytes.Clone(rowKey), tagsSuffix)
	var value []byte
	switch {
	case len(after) > 0 && bytes.Equal(after[0].Key, own):
		value = after[0].Value
	case len(after) > 0 || all:
		return nil
	default:
		e, err := b.rows.Get(ctx, own)
		if errors.Is(err, listing.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		value = e.Value
	}
	r.tags, err = decodeTags(value)
	return err
}

// taggedVersion returns the record of the version id with the present tags of the version. For tags that were set after
// the put, it also reads the version's row of tags. It fails with listing.ErrNotFound if the version is deleted or has
// no row.
func (b *Bucket) taggedVersion(ctx context.Context, key []byte, id ID) (*record, error) {
	if err := checkID(key, id); err != nil {
		return nil, err
	}
	q := listing.Query{Prefix: rowKey(key, id), Limit: 2}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Items) == 0 && page.Next != "" {
			q.Token = page.Next
			continue
		}
		if len(page.Items) == 0 || !bytes.Equal(page.Items[0].Key, q.Prefix) {
			return nil, listing.ErrNotFound
		}
		r, err := decodeSeen(page.Items[0].Value, id)
		if err == nil {
			err = b.addTags(ctx, r, q.Prefix, page.Items[1:], page.Next == "")
		}
		return r, err
	}
}
