package objects

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Latest is the zero ID. A read with Latest in place of the ID of a version means the newest version of the object.
var Latest = ID{}

// Object is a version of an object, with its metadata and its body or a range of the body.
type Object struct {
	Info
	// Range is the range of the whole body that the reader Body returns.
	Range Range
	// Body is a reader of the bytes of Range, which the caller closes. Body fails with ErrBodyLost if the store of
	// blobs loses the body while it is read. A whole body whose CRC32 or CRC32C is known fails with Corrupt, in place
	// of its last bytes, if the checksum is wrong.
	Body io.ReadCloser
}

// Head returns the metadata of the version id of an object, without the body. It fails with listing.ErrNotFound or like
// listing.Bucket.Get. If id is Latest and the newest version is a delete marker, Head returns the metadata of the
// marker together with ErrDeleted.
func (b *Bucket) Head(ctx context.Context, key []byte, id ID) (Info, error) {
	r, id, err := b.find(ctx, key, id)
	if r == nil {
		return Info{}, err
	}
	return r.info(bytes.Clone(key), id), err
}

// Get returns the version id of an object with its body. part is the range of the body to return, e.g. All. It fails
// like Head, and with ErrDeleted for every delete marker. It also fails with InvalidArgument if the range begins behind
// the end of the body, and with ErrBodyLost if the body is missing.
func (b *Bucket) Get(ctx context.Context, key []byte, id ID, part Range) (*Object, error) {
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
			o.Body = r.verify(o.Body)
		}
		return o, nil
	case inline:
		o.Body = io.NopCloser(bytes.NewReader(r.body[o.Range.Offset : o.Range.Offset+o.Range.N]))
		return o, nil
	}
	body, size, err := b.o.blobs.Open(ctx, b.blobName(key, r.bodies(id)), o.Range.Offset, o.Range.N)
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
		o.Body = r.verify(o.Body)
	}
	return o, nil
}

// exactly is a reader that must return a certain number of bytes, left. It fails with ErrBodyLost if the underlying
// reader ends before.
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

// find returns the record (the content of the row) of a version, and the version's ID. If id is Latest, find looks for
// the newest version that readers can see. If that version is a delete marker, find returns the marker together with
// ErrDeleted.
func (b *Bucket) find(ctx context.Context, key []byte, id ID) (*record, ID, error) {
	if id != Latest {
		r, err := b.taggedVersion(ctx, key, id)
		return r, id, err
	}
	if err := checkKey(key); err != nil {
		return nil, ID{}, err
	}
	// Mostly the first row is the version that is seen.
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
			return nil, ID{}, listing.ErrNotFound
		}
		q.Token, q.Limit = page.Next, min(4*q.Limit, 1000)
	}
}

// version returns the record of the version id of an object, as the version's row contains it. Tags that were set after
// the put are in another row, so they are left out. version fails with listing.ErrNotFound if the version is deleted or
// has no row.
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

// checkID fails with InvalidArgument if id is no valid ID of a version, or if key is no valid key of an object.
func checkID(key []byte, id ID) error {
	if id.Stamp <= 0 {
		return store.Errorf(store.InvalidArgument, "the version has no stamp")
	}
	return checkKey(key)
}

// decodeSeen decodes value, the row of the version id. It fails with listing.ErrNotFound if the row says that the
// version is deleted, and with Corrupt if the row can't be decoded.
func decodeSeen(value []byte, id ID) (*record, error) {
	r, err := decode(value)
	if err != nil {
		return nil, store.Wrap("version "+id.String(), err)
	}
	if r.rank == burned {
		return nil, listing.ErrNotFound
	}
	return r, nil
}
