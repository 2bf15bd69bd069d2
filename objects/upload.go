package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// UploadID identifies an upload in parts of a key. Its text is 28 hexadecimal digits, in the order of
// creation. The version that completes the upload has the same stamp and salt: it began with the upload.
type UploadID ID

// Version returns the ID of the version that completes the upload.
func (id UploadID) Version() ID { return ID(id) }

// IsZero reports whether the ID is zero: no upload.
func (id UploadID) IsZero() bool { return id == UploadID{} }

// append appends the ID in the order of uploads: oldest first.
func (id UploadID) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.Stamp))
	return append(dst, id.Salt[:]...)
}

// String is 28 hexadecimal digits, in the order of uploads.
func (id UploadID) String() string { return hex.EncodeToString(id.append(nil)) }

func uploadIDOf(b []byte) (id UploadID, ok bool) {
	if len(b) != idBytes {
		return UploadID{}, false
	}
	id.Stamp = store.Timestamp(binary.BigEndian.Uint64(b))
	copy(id.Salt[:], b[8:])
	return id, id.Stamp > 0
}

// ParseUploadID is the inverse of UploadID.String. It fails with InvalidArgument.
func ParseUploadID(text string) (UploadID, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if id, ok := uploadIDOf(b); ok && id.String() == text {
			return id, nil
		}
	}
	return UploadID{}, store.Errorf(store.InvalidArgument,
		"%.64q is not the id of an upload: %d hexadecimal digits", text, 2*idBytes)
}

// The rows of uploads lie before all objects, whose rows do not begin with 00 01: 00 01, then the key
// escaped and ended as in rowKey, then the ID. Behind an upload's own row are those of its parts and
// of claims. So listings of objects never meet them.
var (
	uploadsBegin = []byte{zero, endsKey}
	objectsBegin = []byte{zero, endsKey + 1}
)

const (
	partSuffix  = 0x01 // then the number, two bytes
	claimSuffix = 0x02 // then what is claimed, 16 bytes
)

// uploadGroup returns what all uploads of a key begin with.
func uploadGroup(key []byte) []byte {
	return append(escape(append(make([]byte, 0, len(key)+idBytes+24), uploadsBegin...), key), zero, endsKey)
}

func uploadKey(key []byte, id UploadID) []byte { return id.append(uploadGroup(key)) }

func partKey(key []byte, id UploadID, number int) []byte {
	return binary.BigEndian.AppendUint16(append(uploadKey(key, id), partSuffix), uint16(number)) //nolint:gosec // checked
}

// claim is what somebody wants an upload to become: the parts of a version, hashed, or nothing.
type claim [md5.Size]byte

// aborts claims that there shall be no version.
var aborts claim

// uploadRow is what the key of a row of uploads says.
type uploadRow struct {
	key    []byte
	group  []byte // what all rows of the upload begin with; shares the row key's memory
	id     UploadID
	part   int    // 0: it is no part
	claims *claim // nil: it is no claim
}

// own reports whether it is the upload's own row.
func (u *uploadRow) own() bool { return u.part == 0 && u.claims == nil }

// parseUploadRow takes the key of a row apart. The error is Corrupt.
func parseUploadRow(b []byte) (u uploadRow, err error) {
	rest, ok := bytes.CutPrefix(b, uploadsBegin)
	if !ok {
		return u, damagedKey(b)
	}
	key, n, ok := cutKey(rest)
	at := len(uploadsBegin) + n
	if !ok || len(key) == 0 || len(b) < at+idBytes {
		return u, damagedKey(b)
	}
	u.key, u.group = key, b[:at+idBytes:at+idBytes]
	if u.id, ok = uploadIDOf(b[at : at+idBytes]); !ok {
		return u, damagedKey(b)
	}
	switch rest = b[at+idBytes:]; {
	case len(rest) == 0:
		return u, nil
	case len(rest) == 3 && rest[0] == partSuffix:
		u.part = int(binary.BigEndian.Uint16(rest[1:]))
		if u.part >= 1 && u.part <= MaxParts {
			return u, nil
		}
	case len(rest) == 1+len(claim{}) && rest[0] == claimSuffix:
		c := claim(rest[1:])
		u.claims = &c
		return u, nil
	}
	return u, damagedKey(b)
}

// Upload is an upload that was neither completed nor aborted.
type Upload struct {
	Key           []byte
	ID            UploadID
	Created       time.Time
	ContentType   string
	Sums, Headers []Pair
}

func (r *record) upload(key []byte, id UploadID) Upload {
	return Upload{
		Key: key, ID: id, Created: time.UnixMicro(int64(id.Stamp)).UTC(),
		ContentType: r.typ, Sums: r.sums, Headers: r.meta,
	}
}

// Part is a part of an upload.
type Part struct {
	// Number is from 1 to MaxParts.
	Number int
	Size   int64
	// ETag is the MD5 of the part in hexadecimal digits.
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
	// ErrInvalidPart: a named part is not there, or has another ETag.
	ErrInvalidPart = store.Errorf(store.InvalidArgument, "a part of the list was not uploaded, or has another ETag")
	// ErrPartOrder: the named parts are not in ascending order of their numbers.
	ErrPartOrder = store.Errorf(store.InvalidArgument, "the parts of the list are not in ascending order")
	// ErrNoSuchPart: the version has fewer parts.
	ErrNoSuchPart = store.Errorf(store.InvalidArgument, "the version has no part of this number")
	// ErrUploadEnds: somebody else is completing the upload with other parts, or aborting it, or began to and
	// did not end. Try again; a cleaner ends what broke off.
	ErrUploadEnds = store.Errorf(store.Conflict, "another completion or abort of the upload is under way, or broke off")
)

// CreateUpload begins an upload in parts. Of m all but Size becomes that of the version. It fails like Put.
func (b *Bucket) CreateUpload(ctx context.Context, key []byte, m Meta) (Upload, error) {
	r := &record{rank: live, null: b.versioned == Unversioned, typ: m.ContentType, sums: m.Sums, meta: m.Headers}
	if err := checkKey(key); err != nil {
		return Upload{}, err
	}
	if err := r.check(); err != nil {
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

// PutPart stores a part of an upload. Of parts with one number the last counts. Of m it takes Size and
// Sums. It fails with ErrNoSuchUpload or like Put.
func (b *Bucket) PutPart(
	ctx context.Context, key []byte, id UploadID, number int, body io.Reader, m Meta,
) (Part, error) {
	if number < 1 || number > MaxParts {
		return Part{}, store.Errorf(store.InvalidArgument, "part number %d: 1 to %d", number, MaxParts)
	}
	r := &record{rank: live, where: inParts, sums: m.Sums}
	if err := r.check(); err != nil {
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
	in := &measured{r: body, sum: md5.New(), want: m.Size, most: b.o.o.MaxBytes, still: still}
	name := b.partName(key, id.Version(), number, at)
	if err := b.o.blobs.Create(ctx, name, in); err != nil {
		return Part{}, store.Wrap("store the part", err)
	}
	r.size, r.md5 = in.n, in.sum.Sum(nil)
	r.body = encodeManifest([]piece{{number, in.n, at}})
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
	o, err := from.Bucket.Get(ctx, from.Key, from.ID, part)
	if err != nil {
		return Part{}, store.Wrap("the source of the part", err)
	}
	defer o.Body.Close()
	return b.PutPart(ctx, key, id, number, o.Body, Meta{Size: o.Range.N})
}

// Complete makes a version of the named parts. check, if not nil, sees them before anything is written: it
// returns the checksums of the version (nil: those of CreateUpload), or an error, with which Complete
// fails. Whoever completes an upload again with the same ETags gets the answer of the first completion. It
// fails with ErrNoSuchUpload, ErrInvalidPart, ErrPartOrder, ErrUploadEnds, an error of check, or like Put.
func (b *Bucket) Complete(
	ctx context.Context, key []byte, id UploadID, named []NamedPart, check func([]Part) ([]Pair, error),
) (Info, error) {
	if len(named) == 0 || len(named) > MaxParts {
		return Info{}, store.Errorf(store.InvalidArgument, "a list of %d parts: 1 to %d", len(named), MaxParts)
	}
	if !inOrder(named) {
		return Info{}, ErrPartOrder
	}
	still := b.o.deadline(writeTimeout)
	r, err := b.openUpload(ctx, key, id)
	if errors.Is(err, ErrNoSuchUpload) {
		return b.completed(ctx, key, id, named)
	}
	if err != nil {
		return Info{}, err
	}
	found, err := b.allParts(ctx, key, id)
	if err != nil {
		return Info{}, err
	}
	pieces, parts, sum := make([]piece, len(named)), make([]Part, len(named)), md5.New()
	wants := md5.New() // of the claim
	r.size = 0
	for i, n := range named {
		p := found[n.Number]
		if p == nil || hexOf(p.md5) != n.ETag {
			return Info{}, ErrInvalidPart
		}
		own, err := decodeManifest(p.body, p.size)
		if err != nil || len(own) != 1 {
			return Info{}, store.Wrap(fmt.Sprintf("part %d", n.Number), damagedManifest(p.body))
		}
		pieces[i], parts[i] = own[0], p.part(n.Number, own[0].id)
		_, _ = sum.Write(p.md5)
		_, _ = wants.Write(binary.BigEndian.AppendUint16(nil, uint16(n.Number))) //nolint:gosec // checked
		_, _ = wants.Write(p.md5)
		if r.size += p.size; r.size < 0 {
			return Info{}, ErrWrongSize
		}
	}
	if check != nil {
		sums, err := check(parts)
		if err != nil {
			return Info{}, err
		}
		if sums != nil {
			r.sums = sums
		}
	}
	r.etag = etagOf(sum.Sum(nil), len(named))
	if err := r.check(); err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	if others, err := b.claim(ctx, key, id, claim(wants.Sum(nil)), still); err != nil || others {
		if err == nil {
			err = ErrUploadEnds
		}
		return Info{}, err
	}
	if err := b.list(ctx, key, id, r, pieces); err != nil {
		return Info{}, err
	}
	if err := b.write(ctx, key, id.Version(), r, still); err != nil {
		return Info{}, err
	}
	// The version decides. A cleaner ends what stays open here.
	_ = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
	return r.info(key, id.Version()), nil
}

func etagOf(sum []byte, parts int) string { return fmt.Sprintf("%x-%d", sum, parts) }

// list puts the list of parts into a record, or into a blob that it names.
func (b *Bucket) list(ctx context.Context, key []byte, id UploadID, r *record, pieces []piece) error {
	r.where, r.body = inParts, encodeManifest(pieces)
	if len(r.body) <= mostInline {
		return nil
	}
	stamp, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	at, all := newID(stamp), r.body // two completions have lists of their own
	r.where, r.body = inListedParts, at.append(binary.AppendUvarint(nil, uint64(len(pieces))))
	err = b.o.blobs.Create(ctx, b.partName(key, id.Version(), 0, at), bytes.NewReader(all))
	return store.Wrap("store the list of parts", err)
}

// completed answers as the completion did that ended an upload.
func (b *Bucket) completed(ctx context.Context, key []byte, id UploadID, named []NamedPart) (Info, error) {
	r, err := b.version(ctx, key, id.Version())
	if errors.Is(err, ErrNotFound) {
		return Info{}, ErrNoSuchUpload
	}
	if err != nil {
		return Info{}, err
	}
	sum := md5.New()
	for _, n := range named {
		own, err := hex.DecodeString(n.ETag)
		if err != nil {
			return Info{}, ErrInvalidPart
		}
		_, _ = sum.Write(own)
	}
	if r.etag != etagOf(sum.Sum(nil), len(named)) {
		return Info{}, ErrNoSuchUpload
	}
	return r.info(bytes.Clone(key), id.Version()), nil
}

// claim says what shall become of an upload, and whether others want something else: then they or
// this one go on, but not both (docs/objects.md, rule 12).
func (b *Bucket) claim(
	ctx context.Context, key []byte, id UploadID, c claim, still func() bool,
) (others bool, err error) {
	stamp, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return false, err
	}
	all := append(uploadKey(key, id), claimSuffix)
	own := append(bytes.Clone(all), c[:]...)
	value := binary.BigEndian.AppendUint64([]byte{claimVersion}, uint64(stamp))
	if err := b.rows.PutAt(ctx, own, value, listing.Given{At: stamp, Still: still}); err != nil {
		return false, err
	}
	q := listing.Query{Prefix: all, Limit: 2, KeysOnly: true}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, item := range page.Items {
			if !bytes.Equal(item.Key, own) {
				return true, nil
			}
		}
		if page.Next == "" {
			return false, nil
		}
		q.Token = page.Next
	}
}

// claimVersion is the first byte of a claim's value; the time of the claim follows.
const claimVersion = 1

// Abort ends an upload without a version. It fails with ErrNoSuchUpload, ErrUploadEnds or like Put.
func (b *Bucket) Abort(ctx context.Context, key []byte, id UploadID) error {
	still := b.o.deadline(writeTimeout)
	if _, err := b.openUpload(ctx, key, id); err != nil {
		return err
	}
	others, err := b.claim(ctx, key, id, aborts, still)
	if err != nil {
		return err
	}
	if others {
		_, err := b.version(ctx, key, id.Version())
		switch {
		case errors.Is(err, ErrNotFound):
			return ErrUploadEnds
		case err != nil:
			return err
		}
		// It was completed, but is still open.
		_ = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
		return ErrNoSuchUpload
	}
	return b.writeUpload(ctx, key, id, &record{rank: burned}, still)
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

// UploadQuery selects uploads.
type UploadQuery struct {
	// Prefix, Delimiter, After, Limit and Token are as in Query.
	Prefix, Delimiter, After []byte
	// AfterID, with After, selects the later uploads of the key After, too.
	AfterID UploadID
	Limit   int
	Token   listing.Token
}

// UploadItem is one line of a listing of uploads.
type UploadItem struct {
	// Upload of a common prefix has the prefix as Key, and nothing else.
	Upload
	CommonPrefix bool
}

// UploadPage is a part of a listing of uploads; Next is as in Page.
type UploadPage struct {
	Items []UploadItem
	Next  listing.Token
}

// ListUploads reads a page of the uploads that have not ended, in the order of keys and, of one key,
// of their creation. It fails like listing.Bucket.List.
func (b *Bucket) ListUploads(ctx context.Context, q UploadQuery) (UploadPage, error) {
	page, err := b.rows.List(ctx, q.rows())
	if err != nil {
		return UploadPage{}, err
	}
	out := UploadPage{Items: make([]UploadItem, 0, len(page.Items)), Next: page.Next}
	for _, item := range page.Items {
		if item.CommonPrefix {
			key := unescape(item.Key[len(uploadsBegin):])
			out.Items = append(out.Items, UploadItem{Upload: Upload{Key: key}, CommonPrefix: true})
			continue
		}
		at, err := parseUploadRow(item.Key)
		if err != nil {
			return UploadPage{}, err
		}
		r, err := decode(item.Value)
		if err != nil {
			return UploadPage{}, store.Wrap("upload "+at.id.String(), err)
		}
		out.Items = append(out.Items, UploadItem{Upload: r.upload(at.key, at.id)})
	}
	return out, nil
}

// rows returns the query of the rows.
func (q *UploadQuery) rows() listing.Query {
	rows := listing.Query{
		Prefix: escape(bytes.Clone(uploadsBegin), q.Prefix), Limit: q.Limit, Token: q.Token,
	}
	switch {
	case len(q.After) > 0 && !q.AfterID.IsZero():
		rows.From = store.PrefixEnd(uploadKey(q.After, q.AfterID))
	case len(q.After) > 0:
		rows.From = store.PrefixEnd(uploadGroup(q.After))
	}
	rows.Sift = func(e listing.Entry) listing.Sifted {
		at, err := parseUploadRow(e.Key)
		if err != nil {
			return listing.Sifted{} // shown, and so an error of the page
		}
		s := listing.Sifted{Pass: at.group}
		if !at.own() { // of an upload that is gone
			s.Hidden = true
			return s
		}
		h, err := decodeHead(e.Value)
		if err != nil {
			return listing.Sifted{}
		}
		if s.Hidden = h.rank != live; s.Hidden || len(q.Delimiter) == 0 {
			return s
		}
		if i := bytes.Index(at.key[len(q.Prefix):], q.Delimiter); i >= 0 {
			end := len(q.Prefix) + i + len(q.Delimiter)
			return listing.Sifted{CommonPrefix: true, Pass: escape(bytes.Clone(uploadsBegin), at.key[:end])}
		}
		return s
	}
	return rows
}
