package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Upload describes an open multipart upload, which was neither completed nor aborted.
type Upload struct {
	Key []byte
	// CommonPrefix is true only in a page of a listing, for a common prefix of keys. Then only Key is set, to the
	// prefix.
	CommonPrefix bool
	ID           UploadID
	Created      time.Time
	// Version is the ID of the version that the upload becomes. Version is set only when Complete calls check.
	Version     ID
	ContentType string
	// Sums, Headers and Tags are the checksums, user metadata and tags that were given to CreateUpload.
	Sums, Headers, Tags []Pair
}

// upload returns the metadata of the upload with this record. key is the object's key, and id the upload's ID.
func (r *record) upload(key []byte, id UploadID) Upload {
	return Upload{
		Key: key, ID: id, Created: time.UnixMicro(int64(id.Stamp)).UTC(),
		ContentType: r.typ, Sums: r.sums, Headers: r.meta, Tags: r.tags,
	}
}

// Part describes one part of a multipart upload, or of a version that was uploaded in parts: e.g. its number, size and
// checksums.
type Part struct {
	// Number is the part's number, from 1 to 10,000, by which parts are sorted.
	Number int
	Size   int64
	// ETag is the MD5 of the part in hexadecimal digits. ETag is empty for a part of a version, as versions do not keep
	// the ETags of their parts.
	ETag     string
	Modified time.Time
	Sums     []Pair
}

// Errors that the operations on multipart uploads return, e.g. Complete.
var (
	// ErrNoSuchUpload means that the upload does not exist, or that it was completed or aborted.
	ErrNoSuchUpload = store.Errorf(store.NotFound, "there is no such upload: it was completed or aborted, or never begun")
	// ErrInvalidPart means that a part that the client names was not uploaded, that its body is missing, or that it has
	// another ETag.
	ErrInvalidPart = store.Errorf(store.InvalidArgument, "a part of the list was not uploaded, or has another ETag")
	// ErrPartOrder means that the numbers of the parts that the client names do not ascend.
	ErrPartOrder = store.Errorf(store.InvalidArgument, "the parts of the list are not in ascending order")
	// errUploadEnds means that another client is completing the upload with other parts, or is aborting the upload, or
	// broke off while doing so. Complete and Abort have tried several times before they return this error. The caller
	// may try again later, since a cleaner finishes what broke off.
	errUploadEnds = store.Errorf(store.Conflict, "another completion or abort of the upload is under way, or broke off")
)

// CreateUpload begins a multipart upload for the object key, and returns the upload. m is the metadata that the version
// will have. Its Size and MD5 are ignored. CreateUpload fails like Put.
func (b *Bucket) CreateUpload(ctx context.Context, key []byte, m Meta) (Upload, error) {
	r := &record{rank: live, null: !b.versioned, typ: m.ContentType, sums: m.Sums, meta: m.Headers,
		tags: m.Tags}
	if err := checkKey(key); err != nil {
		return Upload{}, err
	}
	if err := r.check(); err != nil {
		return Upload{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Upload{}, err
	}
	still := b.o.deadline(writeTimeout)
	drawn, err := b.draw(ctx)
	if err != nil {
		return Upload{}, err
	}
	id := UploadID(drawn)
	if err := b.writeUpload(ctx, key, id, r, still); err != nil {
		return Upload{}, err
	}
	return r.upload(bytes.Clone(key), id), nil
}

// writeUpload writes the row that says whether the upload id is open. The state in the record r is live while the
// upload is open, and burned once the upload was completed or aborted. The func named still reports whether there is
// time left. Once it returns false, the row is not sent any more.
func (b *Bucket) writeUpload(ctx context.Context, key []byte, id UploadID, r *record, still func() bool) error {
	g := door.Given{At: ID(id).at(r.rank), Still: still}
	return door.Bucket(b.rows).PutAt(ctx, uploadKey(key, id), r.encode(), g)
}

// Upload returns the open upload with the given ID. It fails with ErrNoSuchUpload if the upload was completed or
// aborted, or like listing.Bucket.Get.
func (b *Bucket) Upload(ctx context.Context, key []byte, id UploadID) (Upload, error) {
	r, err := b.openUpload(ctx, key, id)
	if err != nil {
		return Upload{}, err
	}
	return r.upload(bytes.Clone(key), id), nil
}

// openUpload returns the content of the row of an open upload. It fails with ErrNoSuchUpload if the upload does not
// exist, or if it was completed or aborted.
func (b *Bucket) openUpload(ctx context.Context, key []byte, id UploadID) (*record, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if id.Stamp <= 0 {
		return nil, ErrNoSuchUpload
	}
	e, err := b.rows.Get(ctx, uploadKey(key, id))
	if errors.Is(err, listing.ErrNotFound) {
		return nil, ErrNoSuchUpload
	}
	if err != nil {
		return nil, err
	}
	r, err := decode(e.Value)
	if err != nil {
		return nil, store.Wrap("upload "+id.String(), err)
	}
	if r.rank != live {
		return nil, ErrNoSuchUpload
	}
	return r, nil
}

// PutPart stores one part of a multipart upload. If several parts with the same number are stored, the part whose body
// ended last counts. Of the metadata m only Size, MD5 and Sums are used. PutPart fails with ErrNoSuchUpload or like
// Put.
func (b *Bucket) PutPart(
	ctx context.Context, key []byte, id UploadID, number int, body io.Reader, m Meta,
) (Part, error) {
	if number < 1 || number > care.MaxParts {
		return Part{}, store.Errorf(store.InvalidArgument, "part number %d: 1 to %d", number, care.MaxParts)
	}
	r := &record{rank: live, where: inParts, md5: m.MD5, sums: m.Sums}
	if err := r.check(); err != nil {
		return Part{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Part{}, err
	}
	still := b.o.deadline(b.o.o.PutTimeout)
	if _, err := b.openUpload(ctx, key, id); err != nil {
		return Part{}, err
	}
	stamp, err := door.Client(b.o.c).Stamps(ctx, 1)
	if err != nil {
		return Part{}, err
	}
	key = bytes.Clone(key)
	at := newID(stamp)
	in := &measured{r: body, want: m.Size, most: b.o.o.MaxBytes, still: still, unhashed: len(r.md5) > 0}
	name := b.partName(key, id.version(), number, at)
	if err := b.o.blobs.Create(ctx, name, in, m.Size); err != nil {
		return Part{}, store.Wrap("store the part", err)
	}
	if r.size = in.n; !in.unhashed {
		r.md5 = in.sum.end()
	}
	r.body = encodeManifest([]piece{{number: number, size: in.n, id: at}})
	ended, err := door.Client(b.o.c).Stamps(ctx, 1)
	if err == nil {
		g := door.Given{At: ended, Still: still}
		err = door.Bucket(b.rows).PutAt(ctx, partKey(key, id, number), r.encode(), g)
	}
	if err != nil {
		if !errors.Is(err, listing.ErrOutcomeUnknown) {
			b.dropBlob(ctx, name)
		}
		return Part{}, err
	}
	return r.part(number, at), nil
}

// part returns the metadata of the part with this record. number is the part's number, and id the part's ID.
func (r *record) part(number int, id ID) Part {
	return Part{
		Number: number, Size: r.size, ETag: hexOf(r.md5), Sums: r.sums,
		Modified: time.UnixMicro(int64(id.Stamp)).UTC(),
	}
}

// allParts returns the stored metadata of all parts of an upload. The index of the map is the number of the part.
func (b *Bucket) allParts(ctx context.Context, key []byte, id UploadID) (map[int]*record, error) {
	parts := map[int]*record{}
	q := listing.Query{Prefix: append(uploadKey(key, id), partSuffix), Limit: 1000}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			number, r, err := partOf(&item)
			if err != nil {
				return nil, err
			}
			parts[number] = r
		}
		if page.Next == "" {
			return parts, nil
		}
		q.Token = page.Next
	}
}

// partOf decodes a row of a part of an upload: the number of the part, and its record. It fails with Corrupt.
func partOf(item *listing.Item) (int, *record, error) {
	at, err := parseUploadRow(item.Key)
	if err != nil {
		return 0, nil, err
	}
	r, err := decode(item.Value)
	if err == nil && (r.where != inParts || r.rank != live) {
		err = damagedRecord(item.Value)
	}
	return at.part, r, store.Wrap(fmt.Sprintf("part %d of upload %s", at.part, at.id), err)
}

// ListParts returns parts of an upload, in ascending order of their numbers. The parameter after is a number: only
// parts with higher numbers are returned. limit is the largest number of parts to return. A limit of 0 means 1,000,
// which is also the maximum. The result more is true if further parts follow. ListParts fails with ErrNoSuchUpload or
// like List.
func (b *Bucket) ListParts(
	ctx context.Context, key []byte, id UploadID, after, limit int,
) (parts []Part, more bool, err error) {
	if b, err = b.pinned(ctx); err != nil {
		return nil, false, err
	}
	if _, err := b.openUpload(ctx, key, id); err != nil {
		return nil, false, err
	}
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	after = max(after, 0)
	if after >= care.MaxParts {
		return nil, false, nil
	}
	q := listing.Query{
		Prefix: append(uploadKey(key, id), partSuffix), From: partKey(key, id, after+1), Limit: limit + 1,
	}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, item := range page.Items {
			if len(parts) == limit {
				return parts, true, nil
			}
			number, r, err := partOf(&item)
			if err != nil {
				return nil, false, err
			}
			own, err := decodeManifest(r.body, r.size)
			if err != nil {
				return nil, false, err
			}
			parts = append(parts, r.part(number, own[0].id))
		}
		if page.Next == "" {
			return parts, false, nil
		}
		q.Token = page.Next
	}
}
