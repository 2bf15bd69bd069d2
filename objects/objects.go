package objects

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Blobs keeps the bodies that are not inline. Names are paths of at most 1,024 bytes, of letters,
// digits and ".-_=" between slashes. Each is written once, and never changed. Errors have a
// store.Kind; after any other error of Create than InvalidArgument the blob may be there.
type Blobs interface {
	// Create stores what body returns, durably, or, where body fails, nothing. size is how long the
	// body is, which fails if it is not; negative: it is not known before.
	Create(ctx context.Context, name string, body io.Reader, size int64) error
	// Open reads n bytes of a blob from an offset on, within its size, which it returns. It fails
	// with NotFound.
	Open(ctx context.Context, name string, offset, n int64) (body io.ReadCloser, size int64, err error)
	// Delete deletes a blob; it succeeds if there is none.
	Delete(ctx context.Context, name string) error
	// List calls each with the blobs whose names begin with prefix and are above after, in bytewise
	// order of their names, until it returns an error, which List returns.
	List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error
}

// Options of Objects; the zero value is good.
type Options struct {
	// InlineBytes is the longest body that is kept in its row, default 4 KiB, at most 8 KiB;
	// negative for none.
	InlineBytes int
	// MaxBytes is the longest body, default 5 GiB.
	MaxBytes int64
	// MD5Bytes is the longest body of which Put takes the MD5 where Meta.MD5 does not say it and Meta.Size says how long
	// it is, default 16 MiB; negative: of inline bodies only. An MD5 takes longer than writing a body to a fast disk. The
	// ETag of others is that of their version (Info.ETag).
	MD5Bytes int64
	// PutTimeout is the most that a put may take with its body, default 1 hour. Cleaners wait
	// for longer than that before they take a blob for an orphan: all processes need the same.
	PutTimeout time.Duration
	// Now reads the clocks of the machine, nil for the real ones.
	Now func() wait.Instant
}

// Objects are the objects of one store. It is safe for concurrent use.
type Objects struct {
	c     *listing.Client
	blobs Blobs
	o     Options
}

// New makes Objects of a client and of a store of blobs. It does no I/O.
func New(c *listing.Client, blobs Blobs, o Options) (*Objects, error) {
	o.InlineBytes = cmp.Or(o.InlineBytes, 4<<10)
	o.MaxBytes = cmp.Or(o.MaxBytes, 5<<30)
	o.MD5Bytes = cmp.Or(o.MD5Bytes, 16<<20)
	o.PutTimeout = cmp.Or(o.PutTimeout, time.Hour)
	if o.Now == nil {
		o.Now = wait.Instants(nil, nil)
	}
	if o.InlineBytes > mostInline || o.MaxBytes < 0 || o.PutTimeout < 0 {
		return nil, store.Errorf(store.InvalidArgument, "InlineBytes of %d, MaxBytes of %d or PutTimeout of %v: "+
			"at most %d, and not negative", o.InlineBytes, o.MaxBytes, o.PutTimeout, mostInline)
	}
	return &Objects{c: c, blobs: blobs, o: o}, nil
}

// Everywhere returns the same objects over listing.Client.Everywhere, as cleaners and audits need them.
func (o *Objects) Everywhere() *Objects {
	wide := *o
	wide.c = o.c.Everywhere()
	return &wide
}

// mostInline keeps a record below maxRecordBytes, with all metadata that it may have.
const mostInline = 8 << 10

// Versioning says what a put or delete does to older versions.
type Versioning bool

const (
	// Versioned: they stay.
	Versioned Versioning = true
	// Unversioned: versions are null versions, of which only the newest counts. Versions that
	// were written while the bucket was versioned stay.
	Unversioned Versioning = false
)

// Bucket is a handle of a bucket of objects.
type Bucket struct {
	o         *Objects
	rows      *listing.Bucket
	versioned Versioning
}

// Bucket returns a handle of a bucket, which listing.Client creates and deletes. It does no I/O.
func (o *Objects) Bucket(name string, v Versioning) *Bucket {
	return &Bucket{o: o, rows: o.c.Bucket(name), versioned: v}
}

// BucketOf returns a handle of the very bucket that a listing of buckets has shown, as listing.Client.BucketOf does.
func (o *Objects) BucketOf(info listing.BucketInfo, v Versioning) *Bucket {
	return &Bucket{o: o, rows: o.c.BucketOf(info), versioned: v}
}

// Open returns a handle of the very bucket that has the name now, as BucketOf does, and the bucket's settings. Puts and
// deletes by the handle do what the settings say. It mostly needs no I/O. It fails like Bucket.Settings.
func (o *Objects) Open(ctx context.Context, name string) (*Bucket, Settings, error) {
	b, err := o.Bucket(name, Unversioned).pinned(ctx)
	if err != nil {
		return nil, Settings{}, err
	}
	s, err := b.Settings(ctx)
	if err != nil {
		return nil, s, err
	}
	return &Bucket{o: o, rows: b.rows, versioned: s.Status.Versioning()}, s, nil
}

// pinned returns a handle of the very bucket that b means now. Operations begin with it: a bucket that gets the name
// while they are under way is none of theirs (docs/objects.md, rule 18).
func (b *Bucket) pinned(ctx context.Context) (*Bucket, error) {
	rows, err := b.rows.Pinned(ctx)
	if err != nil || rows == b.rows {
		return b, err
	}
	return &Bucket{o: b.o, rows: rows, versioned: b.versioned}, nil
}

// Meta is what a client says about an object.
type Meta struct {
	// Size is checked against the body; negative: it is not known before.
	Size        int64
	ContentType string
	// Sums are checksums by algorithm, Headers user metadata. They are kept as they are, and read
	// only once the body has ended: so values of Sums may be filled in until then. Readers compare bodies with those of
	// crc32, crc32c, sha1 and sha256, in base64.
	Sums, Headers []Pair
	// MD5, unless empty, is the body's: the body fails at its end if it is not. It is not taken again.
	MD5 []byte
	// Tags are of at most 16 KiB together. SetTags changes them later.
	Tags []Pair
}

// Info is a version of an object. A page of a listing has a thousand of them: what can be told from the rest, and what
// most versions lack, is read by methods.
type Info struct {
	Key         []byte
	ID          ID
	Size        int64
	ContentType string
	more        *details // nil: there is nothing of it
	md5         [md5.Size]byte
	hasMD5      bool
	// Marker: it is a delete marker. Null: it is a null version.
	Marker, Null bool
}

// details are what most versions lack.
type details struct {
	parts               int
	etag                string
	sums, headers, tags []Pair
}

// Modified is when the version began.
func (i *Info) Modified() time.Time { return i.ID.time() }

// ETag is the MD5 of the body in hexadecimal digits; of a version in parts the MD5 of their MD5s, a hyphen, and how
// many parts there are. Of a body whose MD5 is not known it is the ID with "-1" behind it (Options.MD5Bytes): other
// versions have others, and clients take it for that of a version in parts, which they do not compare with an MD5. A
// delete marker has none.
func (i *Info) ETag() string {
	switch {
	case i.hasMD5:
		return hexOf(i.md5[:])
	case i.more != nil && i.more.etag != "":
		return i.more.etag
	case i.Marker:
		return ""
	}
	return i.ID.String() + "-1"
}

// MD5 is the body's; nil: it is not known, as of a version in parts.
func (i *Info) MD5() []byte {
	if !i.hasMD5 {
		return nil
	}
	return bytes.Clone(i.md5[:])
}

// Parts is how many parts it was uploaded in; 0: it was put whole.
func (i *Info) Parts() int {
	if i.more == nil {
		return 0
	}
	return i.more.parts
}

// Sums are the checksums that came with the version.
func (i *Info) Sums() []Pair {
	if i.more == nil {
		return nil
	}
	return i.more.sums
}

// Headers are the user metadata.
func (i *Info) Headers() []Pair {
	if i.more == nil {
		return nil
	}
	return i.more.headers
}

// Tags are those of a version that was read by itself: listings leave them out.
func (i *Info) Tags() []Pair {
	if i.more == nil {
		return nil
	}
	return i.more.tags
}

func (r *record) info(key []byte, id ID) (i Info) {
	r.infoInto(&i, key, id, r.tags)
	return i
}

// infoInto is info into a zero Info.
func (r *record) infoInto(i *Info, key []byte, id ID, tags []Pair) {
	i.Key, i.ID, i.Marker, i.Null, i.Size, i.ContentType = key, id, r.marker, r.null, r.size, r.typ
	i.hasMD5 = copy(i.md5[:], r.md5) > 0
	parts := r.parts()
	if parts > 0 || r.etag != "" || r.sums != nil || r.meta != nil || tags != nil {
		i.more = &details{parts: parts, etag: r.etag, sums: r.sums, headers: r.meta, tags: tags}
	}
}

// Errors of this package, besides those of package listing. Each has a store.Kind.
var (
	// ErrNotFound: the bucket has no such object, or version.
	ErrNotFound = listing.ErrNotFound
	// ErrDeleted: the newest version of the object is a delete marker.
	ErrDeleted = store.Errorf(store.NotFound, "the object is deleted: its newest version is a delete marker")
	// ErrWrongSize: the body is shorter or longer than told, or longer than allowed.
	ErrWrongSize = store.Errorf(store.InvalidArgument, "the body is not as long as it was said to be, or too long")
	// ErrBodyLost: the store of blobs lacks the body of a version that has not been deleted, or
	// has one of another size.
	ErrBodyLost = store.Errorf(store.Corrupt, "the body of the version is lost from the store of blobs")
	// ErrBodyDamaged: the body of a version is not what was put: it has another checksum.
	ErrBodyDamaged = store.Errorf(store.Corrupt, "the body of the version is damaged in the store of blobs: it has "+
		"another checksum than when it was put; bring it back from a backup, or delete the version")
)

// deadline returns a question that is true for at most d from now, by both clocks.
func (o *Objects) deadline(d time.Duration) func() bool {
	begun := o.o.Now()
	return func() bool {
		_, most := o.o.Now().Since(begun)
		return most <= d
	}
}

// writeTimeout bounds the time from reading a row to writing what follows from it. Cleaners
// delete a row only a grace after they burned it, which is longer.
const writeTimeout = time.Minute

// Range is a part of a body: N bytes from Offset on; N < 0: all behind it.
type Range struct{ Offset, N int64 }

// All is the whole body.
var All = Range{N: -1}

// within returns the part of r that a body of so many bytes has.
func (r Range) within(size int64) (Range, error) {
	if r.Offset < 0 || r.Offset > size {
		return Range{}, store.Errorf(store.InvalidArgument, "offset %d is outside of a body of %d bytes", r.Offset, size)
	}
	if rest := size - r.Offset; r.N < 0 || r.N > rest {
		r.N = rest
	}
	return r, nil
}
