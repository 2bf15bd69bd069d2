package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Put stores a new version of an object. It reads the body to its end, and holds little of it in
// memory. It fails with InvalidArgument, ErrWrongSize, an error of the body, of the store of blobs,
// or like listing.Bucket.Put.
func (b *Bucket) Put(ctx context.Context, key []byte, body io.Reader, m Meta) (Info, error) {
	r := &record{rank: live, null: b.versioned == Unversioned, typ: m.ContentType, md5: m.MD5, sums: m.Sums,
		meta: m.Headers, tags: m.Tags}
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	if err := r.check(); err != nil {
		return Info{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	still := b.o.deadline(b.o.o.PutTimeout)
	stamp, err := b.o.c.Stamps(ctx, ranks)
	if err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	id := newID(stamp)
	in := &measured{r: body, want: m.Size, most: b.o.o.MaxBytes, still: still}
	in.unhashed = len(r.md5) > 0 || b.o.o.MD5Bytes < 0 || m.Size > b.o.o.MD5Bytes
	first, err := io.ReadAll(io.LimitReader(in, int64(max(b.o.o.InlineBytes, 0))+1))
	if err != nil {
		return Info{}, err
	}
	if len(first) <= b.o.o.InlineBytes {
		r.where, r.body = inline, first
		if in.unhashed && len(r.md5) == 0 {
			sum := md5.Sum(first)
			r.md5 = sum[:]
		}
	} else {
		r.where = inBlob
		if err := b.o.blobs.Create(ctx, b.blobName(key, id), io.MultiReader(bytes.NewReader(first), in), m.Size); err != nil {
			return Info{}, store.Wrap("store the body", err)
		}
	}
	if r.size = in.n; !in.unhashed {
		r.md5 = in.sum.end()
	}
	if err := b.write(ctx, key, id, r, still); err != nil {
		if r.where == inBlob && !errors.Is(err, listing.ErrOutcomeUnknown) {
			b.dropBlob(ctx, b.blobName(key, id))
		}
		return Info{}, err
	}
	return r.info(key, id), nil
}

// Copy makes a new version of another one, of this bucket or another of the same Objects. With m nil the
// content type, checksums, user metadata and tags are kept, else they are those of m. A body is copied, not
// shared. It fails like Get or Put.
func (b *Bucket) Copy(ctx context.Context, key []byte, from Source, m *Meta) (Info, error) {
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	o, err := from.Bucket.get(ctx, from.Key, from.ID, All, false) // the copy takes the checksums over
	if err != nil {
		return Info{}, store.Wrap("the source of the copy", err)
	}
	defer o.Body.Close()
	meta := Meta{ContentType: o.ContentType, Sums: o.Sums(), Headers: o.Headers(), Tags: o.Tags()}
	if m != nil {
		meta = *m
	}
	meta.Size, meta.MD5 = o.Size, o.MD5()
	return b.Put(ctx, key, o.Body, meta)
}

// dropBlob deletes a blob without a row. If it fails, a cleaner finds the orphan.
func (b *Bucket) dropBlob(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = b.o.blobs.Delete(ctx, name)
}

// write writes a row at the timestamp of its rank.
func (b *Bucket) write(ctx context.Context, key []byte, id ID, r *record, still func() bool) error {
	return b.rows.PutAt(ctx, rowKey(key, id), r.encode(), listing.Given{At: id.at(r.rank), Still: still})
}

// Delete hides an object by a delete marker, which is its new version. It succeeds where there is
// no object. It fails like Put.
func (b *Bucket) Delete(ctx context.Context, key []byte) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	still := b.o.deadline(b.o.o.PutTimeout)
	stamp, err := b.o.c.Stamps(ctx, ranks)
	if err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	id, r := newID(stamp), &record{rank: live, marker: true, null: b.versioned == Unversioned}
	if err := b.write(store.MakingRoom(ctx), key, id, r, still); err != nil {
		return Info{}, err
	}
	return r.info(key, id), nil
}

// DeleteVersion deletes one version for good, and returns what it was: of a null version, also
// the older ones that it has taken the place of. With it go the older ones that have expired by the
// bucket's Lifecycle, which would be seen again. A cleaner deletes its blob
// later, when those who read it have ended. It fails with ErrNotFound or like Put.
func (b *Bucket) DeleteVersion(ctx context.Context, key []byte, id ID) (Info, error) {
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	ctx = store.MakingRoom(ctx)
	still := b.o.deadline(writeTimeout)
	r, err := b.version(ctx, key, id)
	if err == nil && r.null {
		err = b.burnOlder(ctx, key, id)
	}
	if err == nil {
		err = b.burnLapsed(ctx, key, id, still)
	}
	if err == nil {
		err = b.write(ctx, key, id, r.ashes(), still)
	}
	if err != nil {
		return Info{}, err
	}
	return r.info(bytes.Clone(key), id), nil
}

// burnOlder burns the null versions that are older than one, the oldest first: else one that no
// cleaner has superseded yet would be seen instead of it.
func (b *Bucket) burnOlder(ctx context.Context, key []byte, id ID) error {
	group := groupOf(key)
	q := listing.Query{
		Prefix: group, From: append(rowKey(key, id), noteSuffix), Limit: 100, Reverse: true,
		Sift: func(e listing.Entry) listing.Sifted {
			at, err := parseRow(e.Key)
			if err != nil || at.beside() {
				return listing.Sifted{Hidden: true}
			}
			h, err := decodeHead(e.Value)
			return listing.Sifted{Hidden: err != nil || !h.null || !h.visible()}
		},
	}
	for {
		still := b.o.deadline(writeTimeout)
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			at, err := parseRow(item.Key)
			if err != nil {
				return err
			}
			r, err := decode(item.Value)
			if err != nil {
				return err
			}
			if err := b.write(ctx, key, at.id, r.ashes(), still); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Token = page.Next
	}
}

// ashes returns the record of the version once it is burned: what its cleaner needs.
func (r *record) ashes() *record {
	return &record{rank: burned, marker: r.marker, null: r.null, where: r.where, size: r.size}
}

// measured reads a body, and takes its length and, unless it is unhashed, its MD5. It fails where the length is not the
// wanted one, or above the most, and once the time of the put is over.
type measured struct {
	r        io.Reader
	unhashed bool
	sum      hashing
	n        int64
	want     int64 // negative: unknown
	most     int64
	still    func() bool
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	if !m.unhashed {
		m.sum.write(p[:n])
	}
	switch {
	case m.n > m.most || m.want >= 0 && m.n > m.want:
		return 0, ErrWrongSize
	case errors.Is(err, io.EOF) && m.want >= 0 && m.n < m.want:
		return 0, ErrWrongSize
	case n > 0 && !m.still():
		return 0, listing.ErrTooLate
	}
	return n, err
}

// ordered is base32 whose text is in the order of the bytes.
var ordered = base32.HexEncoding.WithPadding(base32.NoPadding)

// Parts of a blob's name. Longer keys are cut, and continued by a hash.
const (
	nameBytes = 400 // of the key that are in the name
	partChars = 200 // between two slashes: file systems allow 255
)

// blobName is the name of a version's blob: the bucket, the key, the version. Names are in the order
// of rows, but for keys that begin with the same nameBytes: so an audit merges two sorted listings.
func (b *Bucket) blobName(key []byte, id ID) string { return b.stem(key) + "-/" + id.String() }

// stem is what the names of a key's blobs begin with.
func (b *Bucket) stem(key []byte) string {
	var name strings.Builder
	name.WriteString(bucketPart(b.rows.Name()))
	text := ordered.EncodeToString(key[:min(len(key), nameBytes)])
	for len(text) > 0 {
		n := min(len(text), partChars)
		name.WriteString("/" + text[:n])
		text = text[n:]
	}
	if len(key) > nameBytes {
		sum := md5.Sum(key) // names are chosen by who may write them all; a collision only shares a folder
		name.WriteString("=" + hexOf(sum[:]))
	}
	return name.String()
}

// bucketPart is a bucket's name as a part of a path.
func bucketPart(name string) string {
	plain := len(name) <= 63 && name != "" && !strings.HasPrefix(name, ".")
	for _, c := range []byte(name) {
		plain = plain && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.')
	}
	if plain {
		return name
	}
	const most = 100 // bytes
	text := "=" + ordered.EncodeToString([]byte(name[:min(len(name), most)]))
	if len(name) > most {
		sum := md5.Sum([]byte(name))
		text += "=" + hexOf(sum[:])
	}
	return text
}

// hexOf is for sums of at most 32 bytes.
func hexOf(b []byte) string {
	var text [64]byte
	return string(hex.AppendEncode(text[:0], b))
}
