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

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Put stores a new version of the object key, with the metadata m, and returns the version's metadata. It reads body to
// its end, and keeps only a little of it in memory. The new version is newer than every version whose put had ended
// before body ended. Put fails with InvalidArgument, for example if the body is longer or shorter than m.Size says. It
// also fails with an error of body, an error of the store of blobs, or like listing.Bucket.Put.
func (b *Bucket) Put(ctx context.Context, key []byte, body io.Reader, m Meta) (Info, error) {
	r := &record{rank: live, null: !b.versioned, typ: m.ContentType, md5: m.MD5, sums: m.Sums,
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
	key = bytes.Clone(key)
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
		if r.home, err = b.draw(ctx); err != nil {
			return Info{}, err
		}
		body := io.MultiReader(bytes.NewReader(first), in)
		if err := b.o.blobs.Create(ctx, b.blobName(key, r.home), body, m.Size); err != nil {
			return Info{}, store.Wrap("store the body", err)
		}
	}
	if r.size = in.n; !in.unhashed {
		r.md5 = in.sum.end()
	}
	home := r.home
	id, err := b.drawEnd(ctx, r)
	if err == nil {
		err = b.write(ctx, key, id, r, still)
	}
	if err != nil {
		if r.where == inBlob && !errors.Is(err, listing.ErrOutcomeUnknown) {
			b.dropBlob(ctx, b.blobName(key, home))
		}
		return Info{}, err
	}
	return r.info(key, id), nil
}

// draw returns a new ID for a version, made of a timestamp of the present time and random bytes.
func (b *Bucket) draw(ctx context.Context) (ID, error) {
	stamp, err := door.Client(b.o.c).Stamps(ctx, ranks)
	return newID(stamp), err
}

// drawEnd returns the ID of a new version once its body has arrived. Mostly this is a new ID. The name of the body's
// blob contains an earlier one, r.home, which was drawn before the body arrived. In two cases drawEnd returns r.home
// itself, and sets r.home to zero:
//
//   - older programs are running, which expect the version's own ID in the name of the blob;
//   - a clock was set back, so that a new ID would be older than r.home.
func (b *Bucket) drawEnd(ctx context.Context, r *record) (id ID, err error) {
	// Later reads look for the version of a blob only among versions that are newer than r.home.
	if r.home.isZero() || mapclient.Of(b.o.c).StampsEnds() {
		id, err = b.draw(ctx)
	}
	if err == nil && !r.home.isZero() && id.Stamp <= r.home.Stamp {
		id, r.home = r.home, ID{}
	}
	return id, err
}

// dropBlob deletes the named blob after its put has failed, as no row will refer to the blob. If the deletion fails,
// the blob stays until an audit finds it.
func (b *Bucket) dropBlob(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = b.o.blobs.Delete(ctx, name)
}

// comesBy is the time, four hours, after which a write whose outcome is unknown has mostly arrived, if it ever arrives.
// A store may deliver a write late to replicas that were away. Cassandra tries for three hours.
const comesBy = 4 * time.Hour

// write writes the row of the version id of an object, with the content r. If several states of a version are written,
// the latest state wins in whatever order the writes arrive. The func named still reports whether there is time left.
// Once it returns false, the row is not sent any more. If the write may leave something for a cleaner to delete, write
// also passes the key to Options.Hints, even if the write fails.
func (b *Bucket) write(ctx context.Context, key []byte, id ID, r *record, still func() bool) error {
	err := door.Bucket(b.rows).PutAt(ctx, rowKey(key, id), r.encode(), door.Given{At: id.at(r.rank), Still: still})
	if b.o.o.Hints != nil && (r.rank == burned || r.rank == live && r.null) { // whatever the outcome
		b.o.o.Hints.Note(b.rows.ID(), key, 0)
		if errors.Is(err, listing.ErrOutcomeUnknown) {
			b.o.o.Hints.Note(b.rows.ID(), key, comesBy)
		}
	}
	return err
}

// Delete hides an object by a delete marker, which is the object's newest version from then on. It returns the metadata
// of the marker. Delete succeeds even if the object does not exist. It fails like Put.
func (b *Bucket) Delete(ctx context.Context, key []byte) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	still := b.o.deadline(b.o.o.PutTimeout)
	id, err := b.draw(ctx)
	if err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	r := &record{rank: live, marker: true, null: !b.versioned}
	if err := b.write(storekit.MakingRoom(ctx), key, id, r, still); err != nil {
		return Info{}, err
	}
	return r.info(key, id), nil
}

// DeleteVersion deletes one version for good, and returns the version's metadata. A cleaner deletes the blobs later,
// when all readers of them have ended. DeleteVersion fails with listing.ErrNotFound or like Put.
//
// So that no outdated version becomes visible again, it also deletes older versions:
//
//   - those that have expired by the bucket's Lifecycle;
//   - null versions (written while the bucket kept no versions), if the version itself is a null version.
func (b *Bucket) DeleteVersion(ctx context.Context, key []byte, id ID) (Info, error) {
	b, err := b.pinned(ctx)
	if err != nil {
		return Info{}, err
	}
	ctx = storekit.MakingRoom(ctx)
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

// burnOlder deletes the null versions of an object that are older than the version id, the oldest first. It is called
// before the version id is deleted, so that no older null version becomes visible again. Null versions are written
// while a bucket keeps no versions. Only the newest of them counts, but cleaners delete the older ones only later.
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

// ashes returns the content of the row of a deleted version, made from its former content r. It has only the fields
// that a cleaner needs to delete the body later.
func (r *record) ashes() *record {
	return &record{rank: burned, marker: r.marker, null: r.null, where: r.where, size: r.size, home: r.home}
}

// measured is a reader of the body of a put. It counts the bytes and, unless unhashed is true, computes the MD5. It
// fails with
//
//   - errWrongSize, if the length is not want or is above most;
//   - door.ErrTooLate, if the put takes too long: the func named still returns false.
type measured struct {
	r        io.Reader
	unhashed bool
	sum      hashing
	n        int64
	want     int64 // the length; negative: unknown
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
		return 0, errWrongSize
	case errors.Is(err, io.EOF) && m.want >= 0 && m.n < m.want:
		return 0, errWrongSize
	case n > 0 && !m.still():
		return 0, door.ErrTooLate
	}
	return n, err
}

// ordered is the encoding of keys as text in the names of blobs. It is base32 with an alphabet that keeps the order:
// the texts sort like the bytes that they encode.
var ordered = base32.HexEncoding.WithPadding(base32.NoPadding)

// Lengths in the name of a blob, which contains the key of the object. A key above nameBytes is cut off, and a hash of
// the whole key follows.
const (
	nameBytes = 400 // the first bytes of a key that are in the name
	partChars = 200 // the most characters between two slashes: file systems allow 255
)

// blobName returns the name of the blob of a version: the bucket, the key in base32, "-/" and an ID (see
// record.bodies). For example, the key a.jpg of the bucket photos has blobs below "photos/C4N6KS37-/". The names sort
// by bucket, key and ID, so an audit can compare the sorted rows with the sorted blobs. Only the names for keys with
// the same first 400 bytes (nameBytes) sort in another order.
func (b *Bucket) blobName(key []byte, id ID) string { return b.stem(key) + "-/" + id.String() }

// stem returns the beginning of the names of all blobs of an object: the bucket and the key in base32, cut by slashes
// into directories.
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
		sum := md5.Sum(key) // clients who may write all these keys choose them; a collision only shares a folder
		name.WriteString("=" + hexOf(sum[:]))
	}
	return name.String()
}

// bucketPart returns the text before the first slash of the names of all blobs of a bucket. It is the bucket's name, if
// the name consists of lower-case letters, digits, hyphens and dots. Any other name is encoded.
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

// hexOf returns b, a checksum of at most 32 bytes, in hexadecimal digits.
func hexOf(b []byte) string {
	var text [64]byte
	return string(hex.AppendEncode(text[:0], b))
}
