package objects

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Latest stands for the newest version, where an ID is asked for.
var Latest = ID{}

// Object is a version with its body, or a part of it.
type Object struct {
	Info
	// Range is what Body returns of the whole.
	Range Range
	// Body must be closed. It fails with ErrBodyLost where the store of blobs lost the body while
	// it was read. A whole body whose CRC32 or CRC32C is known fails with ErrBodyDamaged, in place of its last bytes.
	Body io.ReadCloser
}

// Head reads what there is to say about a version. It fails with ErrNotFound, with ErrDeleted where
// the newest version is a delete marker (Info is the marker's then), or like listing.Bucket.Get.
func (b *Bucket) Head(ctx context.Context, key []byte, id ID) (Info, error) {
	r, id, err := b.find(ctx, key, id)
	if r == nil {
		return Info{}, err
	}
	return r.info(bytes.Clone(key), id), err
}

// Get reads a version, or a part of its body. It fails like Head, with InvalidArgument where the
// range begins behind the end, and with ErrBodyLost. Of a delete marker there is nothing to read:
// ErrDeleted.
func (b *Bucket) Get(ctx context.Context, key []byte, id ID, part Range) (*Object, error) {
	return b.get(ctx, key, id, part, true)
}

// get returns the same object as Get. With fast, only checksums that cost next to nothing are compared.
func (b *Bucket) get(ctx context.Context, key []byte, id ID, part Range, fast bool) (*Object, error) {
	r, id, err := b.find(ctx, key, id)
	if err != nil {
		return nil, err
	}
	if r.marker {
		return nil, ErrDeleted
	}
	o := &Object{Info: r.info(bytes.Clone(key), id)}
	if o.Range, err = part.within(r.size); err != nil {
		return nil, err
	}
	switch r.where {
	case inParts, inListedParts:
		if o.Body, err = b.openPieces(ctx, key, id, r, o.Range); err != nil {
			return nil, err
		}
		if o.Range.N == r.size {
			o.Body = r.verify(o.Body, fast)
		}
		return o, nil
	case inline:
		o.Body = io.NopCloser(bytes.NewReader(r.body[o.Range.Offset : o.Range.Offset+o.Range.N]))
		return o, nil
	}
	body, size, err := b.o.blobs.Open(ctx, b.blobName(key, id), o.Range.Offset, o.Range.N)
	switch {
	case store.KindOf(err) == store.NotFound:
		return nil, ErrBodyLost
	case err != nil:
		return nil, store.Wrap("read the body", err)
	case size != r.size:
		_ = body.Close()
		return nil, ErrBodyLost
	}
	o.Body = &exactly{ReadCloser: body, left: o.Range.N}
	if o.Range.N == r.size {
		o.Body = r.verify(o.Body, fast)
	}
	return o, nil
}

// exactly fails where a body ends too early.
type exactly struct {
	io.ReadCloser
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = ErrBodyLost
	}
	return n, err
}

// find reads a version, or the newest one that is seen. If that is a delete marker, it returns it
// with ErrDeleted.
func (b *Bucket) find(ctx context.Context, key []byte, id ID) (*record, ID, error) {
	if id != Latest {
		r, err := b.taggedVersion(ctx, key, id)
		return r, id, err
	}
	if err := checkKey(key); err != nil {
		return nil, ID{}, err
	}
	// Mostly the newest row is the one.
	q := listing.Query{Prefix: groupOf(key), Limit: 2}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return nil, ID{}, err
		}
		for i, item := range page.Items {
			at, err := parseRow(item.Key)
			if err != nil {
				return nil, ID{}, err
			}
			if at.beside() {
				continue
			}
			r, err := decode(item.Value)
			switch {
			case err != nil:
				return nil, ID{}, store.Wrap("version "+at.id.String(), err)
			case r.rank == burned:
			case r.marker:
				return r, at.id, ErrDeleted
			default:
				return r, at.id, b.addTags(ctx, r, item.Key, page.Items[i+1:], page.Next == "")
			}
		}
		if page.Next == "" {
			return nil, ID{}, ErrNotFound
		}
		q.Token, q.Limit = page.Next, min(4*q.Limit, 1000)
	}
}

// version reads a version by its ID. It fails with ErrNotFound where it is burned.
func (b *Bucket) version(ctx context.Context, key []byte, id ID) (*record, error) {
	if err := checkID(key, id); err != nil {
		return nil, err
	}
	e, err := b.rows.Get(ctx, rowKey(key, id))
	if err != nil {
		return nil, err
	}
	return decodeSeen(e.Value, id)
}

func checkID(key []byte, id ID) error {
	if id.Stamp <= 0 {
		return store.Errorf(store.InvalidArgument, "the version has no stamp")
	}
	return checkKey(key)
}

// decodeSeen reads the record of a version. It fails with ErrNotFound where it is burned.
func decodeSeen(value []byte, id ID) (*record, error) {
	r, err := decode(value)
	if err != nil {
		return nil, store.Wrap("version "+id.String(), err)
	}
	if r.rank == burned {
		return nil, ErrNotFound
	}
	return r, nil
}
