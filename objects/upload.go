package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Upload is an upload that was neither completed nor aborted.
type Upload struct {
	Key         []byte
	ID          UploadID
	Created     time.Time
	ContentType string
	// Sums, Headers and Tags are those of CreateUpload.
	Sums, Headers, Tags []Pair
}

func (r *record) upload(key []byte, id UploadID) Upload {
	return Upload{
		Key: key, ID: id, Created: time.UnixMicro(int64(id.Stamp)).UTC(),
		ContentType: r.typ, Sums: r.sums, Headers: r.meta, Tags: r.tags,
	}
}

// Part is a part of an upload.
type Part struct {
	// Number is from 1 to MaxParts.
	Number int
	Size   int64
	// ETag is the MD5 of the part in hexadecimal digits; of a part of a version it is not known any more.
	ETag     string
	Modified time.Time
	Sums     []Pair
}

// NamedPart names a part as its client knows it.
type NamedPart struct {
	Number int
	ETag   string
}

// Errors of uploads.
var (
	// ErrNoSuchUpload: there is no such upload, or it was completed or aborted.
	ErrNoSuchUpload = store.Errorf(store.NotFound, "there is no such upload: it was completed or aborted, or never begun")
	// ErrInvalidPart: a named part, or its body, is not there, or it has another ETag.
	ErrInvalidPart = store.Errorf(store.InvalidArgument, "a part of the list was not uploaded, or has another ETag")
	// ErrPartOrder: the named parts are not in ascending order of their numbers.
	ErrPartOrder = store.Errorf(store.InvalidArgument, "the parts of the list are not in ascending order")
	// ErrUploadEnds: somebody else is completing the upload with other parts, or aborting it, or began to and
	// did not end. Complete and Abort have tried some times. Try again; a cleaner ends what broke off.
	ErrUploadEnds = store.Errorf(store.Conflict, "another completion or abort of the upload is under way, or broke off")
)

// CreateUpload begins an upload in parts. Of m all but Size becomes that of the version. It fails like Put.
func (b *Bucket) CreateUpload(ctx context.Context, key []byte, m Meta) (Upload, error) {
	r := &record{rank: live, null: b.versioned == Unversioned, typ: m.ContentType, sums: m.Sums, meta: m.Headers,
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
	stamp, err := b.o.c.Stamps(ctx, ranks)
	if err != nil {
		return Upload{}, err
	}
	id := UploadID(newID(stamp))
	if err := b.writeUpload(ctx, key, id, r, still); err != nil {
		return Upload{}, err
	}
	return r.upload(bytes.Clone(key), id), nil
}

// writeUpload writes the row of an upload: live while it is open, burned once it has ended.
func (b *Bucket) writeUpload(ctx context.Context, key []byte, id UploadID, r *record, still func() bool) error {
	return b.rows.PutAt(ctx, uploadKey(key, id), r.encode(), listing.Given{At: ID(id).at(r.rank), Still: still})
}

// Upload reads an upload. It fails with ErrNoSuchUpload or like listing.Bucket.Get.
func (b *Bucket) Upload(ctx context.Context, key []byte, id UploadID) (Upload, error) {
	r, err := b.openUpload(ctx, key, id)
	if err != nil {
		return Upload{}, err
	}
	return r.upload(bytes.Clone(key), id), nil
}

// openUpload reads the row of an upload that has not ended.
func (b *Bucket) openUpload(ctx context.Context, key []byte, id UploadID) (*record, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if id.Stamp <= 0 {
		return nil, ErrNoSuchUpload
	}
	e, err := b.rows.Get(ctx, uploadKey(key, id))
	if errors.Is(err, ErrNotFound) {
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

// PutPart stores a part of an upload. Of parts with one number the last counts. Of m it takes Size, MD5 and
// Sums. It fails with ErrNoSuchUpload or like Put.
func (b *Bucket) PutPart(
	ctx context.Context, key []byte, id UploadID, number int, body io.Reader, m Meta,
) (Part, error) {
	if number < 1 || number > MaxParts {
		return Part{}, store.Errorf(store.InvalidArgument, "part number %d: 1 to %d", number, MaxParts)
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
	stamp, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return Part{}, err
	}
	key = bytes.Clone(key)
	at := newID(stamp)
	in := &measured{r: body, want: m.Size, most: b.o.o.MaxBytes, still: still, unhashed: len(r.md5) > 0}
	name := b.partName(key, id.Version(), number, at)
	if err := b.o.blobs.Create(ctx, name, in, m.Size); err != nil {
		return Part{}, store.Wrap("store the part", err)
	}
	if r.size = in.n; !in.unhashed {
		r.md5 = in.sum.end()
	}
	r.body = encodeManifest([]piece{{number: number, size: in.n, id: at}})
	g := listing.Given{At: stamp, Still: still}
	if err := b.rows.PutAt(ctx, partKey(key, id, number), r.encode(), g); err != nil {
		if !errors.Is(err, listing.ErrOutcomeUnknown) {
			b.dropBlob(ctx, name)
		}
		return Part{}, err
	}
	return r.part(number, at), nil
}

func (r *record) part(number int, id ID) Part {
	return Part{
		Number: number, Size: r.size, ETag: hexOf(r.md5), Sums: r.sums,
		Modified: time.UnixMicro(int64(id.Stamp)).UTC(),
	}
}

// Source is a version of an object; its ID may be Latest.
type Source struct {
	Bucket *Bucket
	Key    []byte
	ID     ID
}

// CopyPart is PutPart of a part of a version. It fails like Get or PutPart.
func (b *Bucket) CopyPart(
	ctx context.Context, key []byte, id UploadID, number int, from Source, part Range,
) (Part, error) {
	b, err := b.pinned(ctx)
	if err != nil {
		return Part{}, err
	}
	o, err := from.Bucket.get(ctx, from.Key, from.ID, part, false)
	if err != nil {
		return Part{}, store.Wrap("the source of the part", err)
	}
	defer o.Body.Close()
	return b.PutPart(ctx, key, id, number, o.Body, Meta{Size: o.Range.N})
}

// allParts reads the parts of an upload, by number.
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

// ListParts lists the parts with numbers above after, at most limit of them (default, and most, 1,000).
// more: there are others. It fails with ErrNoSuchUpload or like List.
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
	if after >= MaxParts {
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
