package objects

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// An audit merges two listings that have the same order: the rows of a bucket, and the names of its blobs.
//
//	rows of versions:  a/3  a/7       b/2  c/1
//	names of blobs:    a/3  a/7  a/9  b/2        a/9 has no version; the blob of c/1 is missing
//
// Each listing is read once, and only the next blob is kept in memory: so an audit of any size takes little memory.
// There is one exception. The names of keys above 400 bytes are cut, and then sort by a hash. So the versions of such
// keys that begin alike are gathered and sorted first.
//
// Rows and blobs change while they are read: a blob comes before its row, and goes after it. So whatever does not fit
// is looked at a second time, by itself, before it becomes a finding: a version whose blob is missing in
// auditversion.go, and a blob that no version has in auditowner.go.

// mostOfStretch is the largest number of versions that an audit sorts in memory. It also limits the uploads whose keys
// the audit remembers. If there are more, the audit can't judge their blobs, and counts these as Unjudged. Few versions
// need sorting: those whose keys are longer than nameBytes (400) and agree in their first 400 bytes. The names of their
// blobs sort in another order than the keys.
const mostOfStretch = 100_000

// Audit compares all versions of a bucket with all blobs of the bucket, section by section. It passes the result of
// each section to the func each. If each returns an error, Audit ends and returns that error. To begin at the first
// key, from is empty. To continue an interrupted audit, from is the Audited.Next of the last section. Audit also fails
// like listing.Bucket.List or Blobs.List.
//
// If pace is not nil, Audit also reads the blobs to compare each body with its checksum. It leaves out bodies that are
// stored in rows. Before each read it calls pace with the number of bytes that it is going to read. pace may wait, to
// limit the speed, and an error of pace ends the audit.
func (c bucketCare) Audit(
	ctx context.Context, from string, pace func(ctx context.Context, bytes int64) error, each func(care.Audited) error,
) error {
	b, err := c.pinned(ctx)
	if err != nil {
		return err
	}
	a := &audit{b: b, pace: pace, place: bucketPart(b.rows.Name()) + "/"}
	q := listing.Query{Limit: 1000, From: objectsBegin}
	after := ""
	if from != "" {
		last, err := hex.DecodeString(from)
		if err != nil {
			return store.Errorf(store.InvalidArgument, "%.64q is not where an audit ended", from)
		}
		at, err := parseRow(last)
		if err != nil {
			return err
		}
		q.After = append(rowKey(at.key, at.id), noteSuffix)
		after = b.behind(at.key, at.id)
		if len(at.key) > nameBytes { // behind all keys with the same beginning
			q.After = store.PrefixEnd(escape(nil, at.key[:nameBytes]))
		}
	}
	next, stop := iter.Pull2(a.blobs(ctx, after))
	defer stop()
	a.next = next
	if err := a.step(); err != nil {
		return err
	}
	return a.run(ctx, q, each)
}

// audit is one audit of a bucket while it is running: its position in the rows of the bucket and in the blobs, and the
// findings of the present section.
type audit struct {
	b     *Bucket
	place string                             // the beginning of the names of the bucket's blobs
	pace  func(context.Context, int64) error // nil: bodies are not read
	next  func() (sized, error, bool)
	blob  sized // the next blob to be judged; empty behind the last one
	now   store.Timestamp
	part  care.Audited

	homes []audited // versions with a home, whose blobs come later in the order of names

	// last is the key of the last row whose version was compared. All rows and blobs before last are done, except for
	// the versions in homes, which are compared later. For a version that was in homes, last is made of the object's
	// key and record.home, the ID in the names of the version's blobs.
	last []byte

	judged string // the name of the blobs of the version that stands looked up last
	known  standing

	begin   []byte // the beginning of the keys of the uploads in the next field
	uploads map[string][]byte
}

// sized is a blob of the bucket in a listing of blobs: its name, and its size in bytes.
type sized struct {
	name string
	size int64
}

// behind returns a text by which sorted names of blobs are divided at one version. The names of this version's blobs
// are below the text, and those of the next version's blobs are above it. key is the object's key, and id the version's
// ID. If the key is longer than nameBytes (400), the text is above the names for all keys with the same first 400
// bytes.
func (b *Bucket) behind(key []byte, id ID) string {
	if len(key) > nameBytes {
		return b.stem(key[:nameBytes]) + "~"
	}
	return b.blobName(key, id) + "0"
}

// blobs returns an iterator over the blobs of the bucket. The parameter after is a name: only blobs with greater names
// are returned. If listing the blobs fails, the last element of the iterator is the error.
func (a *audit) blobs(ctx context.Context, after string) iter.Seq2[sized, error] {
	return func(yield func(sized, error) bool) {
		enough := errors.New("enough")
		err := a.b.o.blobs.List(ctx, a.place, after, func(name string, size int64) error {
			if !yield(sized{name, size}, nil) {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			yield(sized{}, store.Wrap("list the blobs", err))
		}
	}
}

// step moves the audit on to the next blob of the listing of blobs: step stores the blob in a.blob, and counts the
// blob. Behind the last blob, a.blob has an empty name.
func (a *audit) step() (err error) {
	if a.blob, err, _ = a.next(); a.blob.name != "" {
		a.part.Blobs++
	}
	return err
}

// flushHomes compares versions from the list a.homes with their blobs, and removes these versions from the list. It
// takes those whose blobs have names below end, or all versions if end is empty. An audit keeps versions in a.homes if
// it meets their blobs only later. The list is sorted by the names of the blobs.
func (a *audit) flushHomes(ctx context.Context, end string) error {
	for len(a.homes) > 0 && (end == "" || a.homes[0].name < end) {
		v := a.homes[0]
		a.homes = a.homes[1:]
		if err := a.compare(ctx, &v); err != nil {
			return err
		}
		a.last = rowKey(v.key, v.r.home)
	}
	return nil
}

// home puts the version v into the list a.homes, to be compared with its blobs later. The names of these blobs contain
// an older ID (record.home) than that of v. So an audit meets the blobs later than it meets the row of v.
func (a *audit) home(v *audited) {
	v.key = bytes.Clone(v.key)
	at, _ := slices.BinarySearchFunc(a.homes, v.name, func(h audited, name string) int {
		return strings.Compare(h.name, name)
	})
	a.homes = slices.Insert(a.homes, at, *v)
}

// run reads the rows of the bucket page by page, from the query q on, and compares each version with its blobs. After
// each section it passes the result to each.
func (a *audit) run(ctx context.Context, q listing.Query, each func(care.Audited) error) error {
	var stretch []audited // versions of keys above nameBytes that begin alike
	flush := func() error {
		slices.SortFunc(stretch, func(x, y audited) int { return strings.Compare(x.name, y.name) })
		for i := range stretch {
			if err := a.compare(ctx, &stretch[i]); err != nil {
				return err
			}
			a.last = rowKey(stretch[i].key, stretch[i].id)
		}
		stretch = stretch[:0]
		return nil
	}
	// A part ends between two versions, after a page was read, and only while no version waits to be compared.
	pages, told := 0, 0
	tell := func() error {
		if told == pages || a.last == nil || len(stretch)+len(a.homes) > 0 {
			return nil
		}
		told, a.part.Next = pages, hex.EncodeToString(a.last)
		return each(a.take())
	}
	for ; ; pages++ {
		stamp, err := door.Client(a.b.o.c).Stamps(ctx, 1)
		if err != nil {
			return err
		}
		a.now = stamp
		page, err := a.b.rows.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Items {
			v, err := a.read(&page.Items[i])
			if err != nil {
				continue
			}
			if len(stretch) > 0 && !bytes.HasPrefix(v.key, stretch[0].key[:nameBytes]) {
				if err := flush(); err != nil {
					return err
				}
			}
			if len(v.key) <= nameBytes {
				if err := a.flushHomes(ctx, a.b.blobName(v.key, v.id)); err != nil {
					return err
				}
				if err := tell(); err != nil {
					return err
				}
				a.part.Rows++
				if !v.r.home.isZero() {
					a.home(&v)
					continue
				}
				if err := a.compare(ctx, &v); err != nil {
					return err
				}
				a.last = page.Items[i].Key
				continue
			}
			if err := a.flushHomes(ctx, ""); err != nil {
				return err
			}
			if err := tell(); err != nil {
				return err
			}
			a.part.Rows++
			if len(stretch) == mostOfStretch {
				if err := a.skip(ctx, a.b.behind(v.key, v.id)); err != nil {
					return err
				}
				stretch = stretch[:1] // the first one keeps the beginning, by which further ones are skipped, too
			}
			v.key = bytes.Clone(v.key)
			stretch = append(stretch, v)
		}
		if page.Next == "" {
			break
		}
		q.Token = page.Next
	}
	if err := errors.Join(a.flushHomes(ctx, ""), flush()); err != nil {
		return err
	}
	for a.blob.name != "" {
		if err := a.unowned(ctx, nil); err != nil {
			return err
		}
	}
	return each(a.take())
}

// take returns the result of the present section, and begins the result of the next section.
func (a *audit) take() care.Audited {
	part := a.part
	a.part = care.Audited{}
	return part
}

// read decodes a row into the version that an audit compares with blobs. It fails with errBeside if the row only
// belongs to a version, e.g. a row of tags. If the row can't be decoded, read fails with Corrupt, and adds the row to
// the audit's findings as damaged.
func (a *audit) read(item *listing.Item) (audited, error) {
	at, err := parseRow(item.Key)
	if err == nil && at.beside() {
		return audited{}, errBeside
	}
	v := audited{key: at.key, id: at.id}
	if err == nil {
		v.r, err = decode(item.Value)
	}
	if err != nil {
		a.part.Rows++
		a.part.Findings = append(a.part.Findings, finding(care.Damaged, at.key, at.id, "", -1, -1))
		return v, err
	}
	v.name = a.b.blobName(v.key, v.r.bodies(v.id))
	return v, nil
}

// errBeside is the error of audit.read for a row that is not the row of a version itself, e.g. a row of tags.
var errBeside = errors.New("no row of a version")

// skip counts all blobs whose names are below end as Unjudged, and moves the audit past these blobs. It is called if
// too many keys begin alike, so that the audit can't tell whether the blobs belong to a version.
func (a *audit) skip(ctx context.Context, end string) error {
	for a.blob.name != "" && a.blob.name < end {
		a.part.Unjudged++
		if err := errors.Join(a.step(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// found adds a fault of the given kind to the findings of the section. want and size are the right and the actual size
// of the blob with the given name, in bytes (see care.Finding).
func (a *audit) found(f care.Fault, key []byte, id ID, name string, want, size int64) {
	a.part.Findings = append(a.part.Findings, finding(f, bytes.Clone(key), id, name, want, size))
}

// finding returns the finding of an audit with the given fields (see care.Finding). If id is zero, the finding has no
// version.
func finding(f care.Fault, key []byte, id ID, blob string, want, size int64) care.Finding {
	found := care.Finding{Fault: f, Key: key, Blob: blob, Want: want, Size: size}
	if !id.isZero() {
		found.Version = id.String()
	}
	return found
}
