package objects

import (
	"cmp"
	"context"
	"crypto/md5"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Blobs is a store of blobs, which are bodies of objects, or of parts of objects, that are too large for a row. The
// name of a blob is a path of at most 1,024 bytes: letters, digits and ".-_=" between slashes. A blob is written once
// and never changed. Implementations are safe for concurrent use. Every error has a store.Kind. If Create fails with
// any error but InvalidArgument, the blob may be stored all the same.
type Blobs interface {
	// Create durably stores the bytes that body returns, under the given name. If body fails, Create stores nothing.
	// size is the length of body in bytes, or negative if the length is unknown. body itself must fail if its length is
	// not size.
	Create(ctx context.Context, name string, body io.Reader, size int64) error
	// Open returns a reader of n bytes of a blob from offset on, and the size of the whole blob in bytes. The reader
	// returns fewer bytes if the blob ends before. Open fails with NotFound if there is no such blob. The caller closes
	// body.
	Open(ctx context.Context, name string, offset, n int64) (body io.ReadCloser, size int64, err error)
	// Delete removes a blob. It also succeeds if the blob does not exist.
	Delete(ctx context.Context, name string) error
	// List calls the func each for every blob whose name begins with prefix, in bytewise order of the names. The
	// parameter after is a name: only blobs with greater names are listed. size is the length of the blob in bytes. If
	// each returns an error, the listing ends, and List returns that error.
	List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error
}

// Options are the settings of an Objects, a client for buckets of objects. The zero value means the defaults.
type Options struct {
	// InlineBytes is the length, in bytes, of the longest body that is stored in the row of its version. Longer bodies
	// are stored as blobs. Default 4 KiB, at most 8 KiB. If InlineBytes is negative, every body is a blob.
	InlineBytes int
	// MaxBytes is the length, in bytes, of the longest body that is accepted, for an object or for a part of an upload.
	// Default 5 GiB.
	MaxBytes int64
	// MD5Bytes is the length, in bytes, of the longest body whose MD5 Put computes, if Meta.MD5 is empty and Meta.Size
	// tells the length. Default 16 MiB. If MD5Bytes is negative, only bodies in rows get an MD5. The limit exists
	// because an MD5 takes longer than writing a body to a fast disk. A body without an MD5 gets an ETag that is made
	// from the ID of its version (Info.ETag).
	MD5Bytes int64
	// PutTimeout is the longest time that a put may take, with its body. Default 1 hour. Cleaners wait for longer than
	// PutTimeout before they delete a blob without a row as useless, so all processes need the same value.
	PutTimeout time.Duration
	// Hints, if not nil, is told of each write that may leave something for a cleaner to delete, e.g. an old version
	// that was replaced. So the cleaners of servers find such objects without a look at all rows. Bucket.Clean needs no
	// Hints, as it looks at all rows.
	//
	// Note gets the key of an object in which a cleaner may find something to delete once the time after has passed. A
	// hint proves nothing and may be lost. Note returns at once, is safe for concurrent use, and keeps no reference to
	// key.
	Hints interface {
		Note(bucket store.BucketID, key []byte, after time.Duration)
	}
	// Now returns the present moment by both clocks of the machine: the time since some earlier moment by the monotonic
	// clock, which is never set, and the time of the wall clock. If Now is nil, the real clocks are used. Tests set
	// Now.
	Now func() (mono time.Duration, wall time.Time)
}

// Objects is a client for the objects in all buckets of one store. It reads and writes their rows through a
// listing.Client, and bodies that are too large for a row through a store of blobs. It is safe for concurrent use.
type Objects struct {
	c     *listing.Client
	blobs Blobs
	o     Options
	now   func() wait.Instant
}

// New returns a client for objects. Their rows are read and written through c, and larger bodies are stored in blobs.
// New does no I/O. It fails with InvalidArgument if an option is out of its range.
func New(c *listing.Client, blobs Blobs, o Options) (*Objects, error) {
	o.InlineBytes = cmp.Or(o.InlineBytes, 4<<10)
	o.MaxBytes = cmp.Or(o.MaxBytes, 5<<30)
	o.MD5Bytes = cmp.Or(o.MD5Bytes, 16<<20)
	o.PutTimeout = cmp.Or(o.PutTimeout, time.Hour)
	now := wait.Instants(nil, nil)
	if o.Now != nil {
		now = func() (i wait.Instant) {
			i.Mono, i.Wall = o.Now()
			return i
		}
	}
	if o.InlineBytes > mostInline || o.MaxBytes < 0 || o.PutTimeout < 0 {
		return nil, store.Errorf(store.InvalidArgument, "InlineBytes of %d, MaxBytes of %d or PutTimeout of %v: "+
			"at most %d, and not negative", o.InlineBytes, o.MaxBytes, o.PutTimeout, mostInline)
	}
	return &Objects{c: c, blobs: blobs, o: o, now: now}, nil
}

// everywhere returns a client for the same objects that reads and writes through a quorum of each data centre
// (listing.Client.Everywhere). Cleaners and audits need such a client, since a body that they delete must not be in use
// in any data centre.
func (o *Objects) everywhere() *Objects {
	wide := *o
	wide.c = o.c.Everywhere()
	return &wide
}

// mostInline is the length, in bytes, of the longest body that may be stored in the row of its version. It is the
// highest value of Options.InlineBytes. Even with all metadata that is allowed, the row is shorter than maxRecordBytes
// (48 KiB).
const mostInline = 8 << 10

// Bucket is a handle of a bucket of objects, through which objects are put, read, listed and deleted. It identifies the
// bucket by its name, or by its name and ID. It is safe for concurrent use.
type Bucket struct {
	o         *Objects
	rows      *listing.Bucket
	versioned bool // puts and deletes keep the older versions of the object
}

// Bucket returns a handle of the bucket with the given name. The bucket need not exist. Puts and deletes through the
// handle go by the status s, and not by that of the bucket: they keep the older versions of an object if s is Enabled.
// Otherwise they replace the object's null version, which is the version that was written without versioning. Bucket
// does no I/O.
func (o *Objects) Bucket(name string, s Status) *Bucket {
	return &Bucket{o: o, rows: o.c.Bucket(name), versioned: s == Enabled}
}

// Open returns a handle of the bucket that has the given name now, and the bucket's settings. By the settings, puts and
// deletes through the handle keep older versions or not. If another bucket gets the name later, the handle does not
// mean that bucket. Open mostly needs no I/O. It fails with ErrPlain, or like listing.Bucket.Settings.
func (o *Objects) Open(ctx context.Context, name string) (*Bucket, Settings, error) {
	b, err := o.Bucket(name, Never).pinned(ctx)
	if err != nil {
		return nil, Settings{}, err
	}
	s, err := b.settings(ctx)
	if err != nil {
		return nil, s, err
	}
	return &Bucket{o: o, rows: b.rows, versioned: s.Status == Enabled}, s, nil
}

// through returns a handle of the same bucket that reads and writes through the client o.
func (b *Bucket) through(o *Objects) *Bucket {
	rows := o.c.BucketOf(listing.BucketInfo{Name: b.rows.Name(), ID: b.rows.ID()})
	return &Bucket{o: o, rows: rows, versioned: b.versioned}
}

// pinned returns a handle of exactly the bucket that has the name of b now. Every operation begins with pinned, so that
// it never acts on a later bucket of that name (docs/objects.md, rule 18).
func (b *Bucket) pinned(ctx context.Context) (*Bucket, error) {
	rows, err := b.rows.Pinned(ctx)
	if err != nil || rows == b.rows {
		return b, err
	}
	return &Bucket{o: b.o, rows: rows, versioned: b.versioned}, nil
}

// Meta is the metadata that a client gives with the body of an object, e.g. its size, content type, checksums and tags.
type Meta struct {
	// Size is the length of the body in bytes, or negative if the length is unknown. A body of another length is
	// refused.
	Size        int64
	ContentType string
	// Sums are checksums of the body, each under the name of its algorithm, and Headers are the user metadata. Both are
	// stored as they are given, after the body has ended, so the caller may fill in the values of Sums until then.
	// Readers check a body by its checksum if the algorithm is crc32, crc32c, sha1 or sha256 and the value is in
	// base64.
	Sums, Headers []Pair
	// MD5 is the MD5 of the body in 16 bytes, or empty. It is stored without a check, so the reader of the body must
	// fail at its end if the body has another MD5.
	MD5 []byte
	// Tags are the tags of the object, with names and values of at most 16 KiB together. Bucket.SetTags changes the
	// tags later.
	Tags []Pair
}

// Info is the metadata of one version of an object, e.g. its key, size and content type. It is small, as a page of a
// listing may have thousands of Infos. Methods return what most versions do not have, and what follows from other
// fields.
type Info struct {
	Key         []byte
	ID          ID
	Size        int64
	ContentType string
	more        *details // nil: the version has none of these details
	md5         [md5.Size]byte
	hasMD5      bool
	// Parts is the number of parts in which the version was uploaded, or 0 if the version was put in one request.
	Parts int32
	// Marker is true for a delete marker. Null is true for a null version, which was written while the bucket kept no
	// versions.
	Marker, Null bool
}

// details are those fields of an Info, the metadata of a version, that most versions do not have, e.g. tags. They are
// in a struct of their own to keep an Info small.
type details struct {
	etag                string
	sums, headers, tags []Pair
}

// Modified returns the time of the version in UTC: when the whole body had arrived, or when the multipart upload was
// completed.
func (i *Info) Modified() time.Time { return i.ID.time() }

// ETag returns the ETag of the version, without quotes:
//
//   - the MD5 of the body in hexadecimal digits, if the MD5 is known;
//   - for a version in parts, the MD5 of the MD5s of its parts, a hyphen, and the number of parts;
//   - for any other body, the version's ID and "-1" (Options.MD5Bytes). No other version has this ETag. Clients
//     take it for the ETag of a version in parts, which they do not compare with an MD5;
//   - "" for a delete marker.
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

// Meta returns the metadata of the version: its size and content type, and the checksums, user metadata and tags that
// the client gave. If the MD5 of the body is known, Meta.MD5 shares the memory of i. The MD5 of a version in parts is
// never known. For an Info from a listing there are no tags, since listings do not read tags.
//
// Put with this metadata and the body of the version makes a copy of the version. Put stores these checksums without
// comparing the body with them. If the stored body is damaged, and no CRC32 or CRC32C of it is known, the copy has the
// damaged body with the checksums of the right one, so an audit finds both.
func (i *Info) Meta() Meta {
	m := Meta{Size: i.Size, ContentType: i.ContentType}
	if i.hasMD5 {
		m.MD5 = i.md5[:]
	}
	if i.more != nil {
		m.Sums, m.Headers, m.Tags = i.more.sums, i.more.headers, i.more.tags
	}
	return m
}

// info returns the metadata of the version with this record, with the tags in r. key is the object's key, and id the
// version's ID.
func (r *record) info(key []byte, id ID) (i Info) {
	r.infoInto(&i, key, id, r.tags)
	return i
}

// infoInto fills in the empty Info i with the metadata of one version. key is the object's key, id the version's ID,
// and tags are the version's tags. All other metadata is taken from the record r.
func (r *record) infoInto(i *Info, key []byte, id ID, tags []Pair) {
	i.Key, i.ID, i.Marker, i.Null, i.Size, i.ContentType = key, id, r.marker, r.null, r.size, r.typ
	i.hasMD5 = copy(i.md5[:], r.md5) > 0
	i.Parts = int32(r.parts()) //nolint:gosec // bounded
	if r.etag != "" || r.sums != nil || r.meta != nil || tags != nil {
		i.more = &details{etag: r.etag, sums: r.sums, headers: r.meta, tags: tags}
	}
}

// These are errors of this package, besides those of package listing. Each has a store.Kind.
var (
	// ErrDeleted means that the newest version of the object is a delete marker, so that readers see no object.
	ErrDeleted = store.Errorf(store.NotFound, "the object is deleted: its newest version is a delete marker")
	// errWrongSize means that a body is shorter or longer than the client has said (Meta.Size), or longer than
	// Options.MaxBytes.
	errWrongSize = store.Errorf(store.InvalidArgument, "the body is not as long as it was said to be, or too long")
	// ErrBodyLost means that the store of blobs lacks the body of a version, or has a body of another size, although
	// the version was not deleted.
	ErrBodyLost = store.Errorf(store.Corrupt, "the body of the version is lost from the store of blobs")
	// errBodyDamaged means that the stored body of a version has another checksum than the body that was put.
	errBodyDamaged = store.Errorf(store.Corrupt, "the body of the version is damaged in the store of blobs: it has "+
		"another checksum than when it was put; bring it back from a backup, or delete the version")
)

// deadline returns a func that reports whether there is time left: it returns true until the time d has passed since
// the call of deadline. Two clocks measure the time, and the func returns false once d has passed by one of them.
func (o *Objects) deadline(d time.Duration) func() bool {
	begun := o.now()
	return func() bool {
		_, most := o.now().Since(begun)
		return most <= d
	}
}

// writeTimeout is the longest time between a read of a row and a write that depends on what was read. A later write is
// not sent. Cleaners rely on this limit, and delete a row only after a time that is longer than writeTimeout.
const writeTimeout = time.Minute

// orphanAge returns the age from which a blob without a row is an orphan: a blob that nobody needs. It is longer than a
// put may take, so the put that has written the blob can't write the row any more.
func (o *Objects) orphanAge() time.Duration { return max(o.o.PutTimeout, writeTimeout) + writeTimeout }

// Range is a range of bytes of a body: N bytes from Offset on, or all bytes from Offset on if N is negative.
type Range struct{ Offset, N int64 }

// All is the Range of the whole body, whatever its length.
var All = Range{N: -1}

// within returns the range r, cut off at the end of a body of size bytes. It fails with InvalidArgument if the range
// begins behind the end of the body, or if its offset is negative.
func (r Range) within(size int64) (Range, error) {
	if r.Offset < 0 || r.Offset > size {
		return Range{}, store.Errorf(store.InvalidArgument, "offset %d is outside of a body of %d bytes", r.Offset, size)
	}
	if rest := size - r.Offset; r.N < 0 || r.N > rest {
		r.N = rest
	}
	return r, nil
}
