package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Fault is what is wrong with a version or a blob.
type Fault string

const (
	// LostBody: a version is seen whose blob, or one of its parts, is not there or has another size.
	LostBody Fault = "lost body"
	// DamagedBody: a version is seen whose blob has another checksum than when it was put.
	DamagedBody Fault = "damaged body"
	// Orphan: a blob has no version, no upload, and is older than a put may take. Cleaner.Condemn deletes it.
	Orphan Fault = "orphan"
	// Unlisted: a part lies below a version that does not list it, and has no upload. Cleaner.Condemn
	// deletes it.
	Unlisted Fault = "unlisted part"
	// Stranger: a blob has a name that no version gives.
	Stranger Fault = "stranger"
	// Damaged: a row can't be read.
	Damaged Fault = "damaged row"
)

// Faults are all of them.
func Faults() []Fault { return []Fault{LostBody, DamagedBody, Orphan, Unlisted, Stranger, Damaged} }

// Condemnable reports whether it is a blob that no version has: Cleaner.Condemn deletes it.
func (f Fault) Condemnable() bool { return f == Orphan || f == Unlisted }

// Finding is one fault that an audit has found, and looked at twice.
type Finding struct {
	Fault Fault
	// Key and ID are those of the version; Key is nil where the blob's name does not tell it, as those
	// of keys above 400 bytes.
	Key []byte
	ID  ID
	// Blob is the name of the blob, Want the size that it should have, or -1, Size the one that it
	// has, or -1 where there is none.
	Blob       string
	Want, Size int64
}

// String says where it is, and what is there, for people.
func (f *Finding) String() string {
	var parts []string
	if f.Key != nil {
		parts = append(parts, "key "+keytext.Format(f.Key))
	}
	if !f.ID.IsZero() {
		parts = append(parts, "version "+f.ID.String())
	}
	switch {
	case f.Blob == "":
	case f.Size < 0:
		parts = append(parts, fmt.Sprintf("body %s is not there", f.Blob))
	case f.Want >= 0:
		parts = append(parts, fmt.Sprintf("body %s has %d bytes, not %d", f.Blob, f.Size, f.Want))
	default:
		parts = append(parts, fmt.Sprintf("body %s of %d bytes", f.Blob, f.Size))
	}
	return strings.Join(parts, ", ")
}

// Audited is a part of an audit.
type Audited struct {
	Findings []Finding
	// Rows and Blobs are how many were compared. Of the blobs InUse belong to uploads, Waiting to
	// versions that were deleted, and Young to puts that may be under way. Unjudged ones belong to
	// versions whose row is damaged, or to keys of more than 400 bytes with the same beginning, of which
	// there are too many.
	Rows, Blobs, InUse, Waiting, Young, Unjudged int64
	// Checked bodies were compared with checksums; Unchecked ones have none (AuditBodies).
	Checked, Unchecked int64
	// Next continues an audit behind this part; empty at the end.
	Next string
}

// mostOfStretch bounds the versions of keys above nameBytes with the same beginning that are sorted in
// memory.
const mostOfStretch = 100_000

// Audit compares all versions with all blobs of a bucket: two listings in the same order, each read
// once. wide is as for Cleaner. from continues an audit: the Next of the last part, or empty. each gets
// the parts one after the other; it may wait, and ends the audit by an error. Audit fails with that, or
// like listing.Bucket.List or Blobs.List.
func (b *Bucket) Audit(ctx context.Context, wide *Objects, from string, each func(Audited) error) error {
	return b.AuditBodies(ctx, wide, from, nil, each)
}

// AuditBodies makes the same audit as Audit, and also reads all bodies that are not in rows, to compare them with their
// checksums. It tells pace the number of bytes before it reads them. pace may wait, and an error from it ends the
// audit.
func (b *Bucket) AuditBodies(
	ctx context.Context, wide *Objects, from string, pace func(ctx context.Context, bytes int64) error,
	each func(Audited) error,
) error {
	b, err := b.pinned(ctx)
	if err != nil {
		return err
	}
	w := *b
	w.o, w.rows = wide, b.rows.With(wide.c)
	a := &audit{b: &w, pace: pace, home: bucketPart(b.rows.Name()) + "/"}
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
		after = w.behind(at.key, at.id)
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

type audit struct {
	b    *Bucket
	home string
	pace func(context.Context, int64) error // nil: bodies are not read
	next func() (sized, error, bool)
	blob sized // the next one that is to be judged; empty behind the last
	now  store.Timestamp
	part Audited

	judged string // the version that was looked up last
	known  standing

	begin   []byte // of keys, whose uploads are these
	uploads map[string][]byte
}

type sized struct {
	name string
	size int64
}

// standing is what there is where a blob's name says that its version is.
type standing struct {
	version *record
	upload  bool
}

// behind is above the names of a version's blobs, and below those of the next one; of a key above
// nameBytes it is above those of all keys with the same beginning.
func (b *Bucket) behind(key []byte, id ID) string {
	if len(key) > nameBytes {
		return b.stem(key[:nameBytes]) + "~"
	}
	return b.blobName(key, id) + "0"
}

// blobs returns the listing as an iterator.
func (a *audit) blobs(ctx context.Context, after string) iter.Seq2[sized, error] {
	return func(yield func(sized, error) bool) {
		enough := errors.New("enough")
		err := a.b.o.blobs.List(ctx, a.home, after, func(name string, size int64) error {
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

// step goes on to the next blob.
func (a *audit) step() error {
	blob, err, ok := a.next()
	if !ok {
		blob = sized{}
	}
	if a.blob = blob; a.blob.name != "" {
		a.part.Blobs++
	}
	return err
}

// audited is a version that is compared with blobs.
type audited struct {
	key  []byte
	id   ID
	name string
	r    *record
}

func (a *audit) run(ctx context.Context, q listing.Query, each func(Audited) error) error {
	var stretch []audited // keys above nameBytes with the same beginning
	var last []byte       // the last row that was compared
	flush := func() error {
		slices.SortFunc(stretch, func(x, y audited) int { return strings.Compare(x.name, y.name) })
		for i := range stretch {
			if err := a.compare(ctx, &stretch[i]); err != nil {
				return err
			}
			last = rowKey(stretch[i].key, stretch[i].id)
		}
		stretch = stretch[:0]
		return nil
	}
	for {
		stamp, err := a.b.o.c.Stamps(ctx, 1)
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
				if err := a.compare(ctx, &v); err != nil {
					return err
				}
				last = page.Items[i].Key
				continue
			}
			if len(stretch) == mostOfStretch {
				if err := a.skip(ctx, a.b.behind(v.key, v.id)); err != nil {
					return err
				}
				stretch = stretch[:1] // of the same beginning: what follows is passed over, too
			}
			v.key = bytes.Clone(v.key)
			stretch = append(stretch, v)
		}
		if page.Next == "" {
			break
		}
		q.Token = page.Next
		if len(stretch) == 0 && last != nil {
			a.part.Next = hex.EncodeToString(last)
			if err := each(a.take()); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for a.blob.name != "" {
		if err := a.unowned(ctx, nil); err != nil {
			return err
		}
	}
	return each(a.take())
}

func (a *audit) take() Audited {
	part := a.part
	a.part = Audited{}
	return part
}

// read reads a row; an error says that it is none of a version.
func (a *audit) read(item *listing.Item) (audited, error) {
	at, err := parseRow(item.Key)
	if err == nil && at.beside() {
		return audited{}, errBeside
	}
	a.part.Rows++
	v := audited{key: at.key, id: at.id}
	if err == nil {
		v.r, err = decode(item.Value)
	}
	if err != nil {
		a.part.Findings = append(a.part.Findings, Finding{Fault: Damaged, Key: at.key, ID: at.id, Want: -1, Size: -1})
		return v, err
	}
	v.name = a.b.blobName(v.key, v.id)
	return v, nil
}

var errBeside = errors.New("no row of a version")

// skip passes over blobs that can't be judged.
func (a *audit) skip(ctx context.Context, end string) error {
	for a.blob.name != "" && a.blob.name < end {
		a.part.Unjudged++
		if err := errors.Join(a.step(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// compare compares a version with the blobs up to its own.
func (a *audit) compare(ctx context.Context, v *audited) error {
	for a.blob.name != "" && a.blob.name < v.name {
		if err := a.unowned(ctx, nil); err != nil {
			return err
		}
	}
	want, err := a.wants(ctx, v)
	if store.KindOf(err) == store.Corrupt { // the list of its parts is lost or damaged
		name, _ := a.b.listName(v.key, v.id, v.r)
		err = a.lost(ctx, v, name, noList)
	}
	if err != nil {
		return err
	}
	for own := a.blob; own.name == v.name || strings.HasPrefix(own.name, v.name+"/"); own = a.blob {
		size, listed := want[own.name]
		delete(want, own.name)
		switch {
		case v.r.rank == burned:
			a.part.Waiting++
		case !listed:
			if err := a.unowned(ctx, v.key); err != nil {
				return err
			}
			continue // it has gone on
		case size != own.size:
			if err := a.lost(ctx, v, own.name, size); err != nil {
				return err
			}
		}
		if err := a.step(); err != nil {
			return err
		}
	}
	for _, name := range sortedNames(want) {
		if err := a.lost(ctx, v, name, want[name]); err != nil {
			return err
		}
	}
	if a.pace == nil || v.r.rank == burned || v.r.where == inline {
		return nil
	}
	return a.checked(ctx, v)
}

// checked compares the body of a version with its checksum.
func (a *audit) checked(ctx context.Context, v *audited) error {
	err := a.b.checkBody(ctx, v.key, v.id, v.r, a.pace)
	switch {
	case err == nil:
		a.part.Checked++
	case errors.Is(err, errNoSum):
		a.part.Unchecked++
	case errors.Is(err, ErrBodyDamaged):
		if _, err := a.b.version(ctx, v.key, v.id); err != nil {
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			return err
		}
		a.found(DamagedBody, v.key, v.id, v.name, -1, v.r.size)
	case store.KindOf(err) != store.Corrupt: // else it is lost, and found as that
		return err
	}
	return nil
}

func sortedNames(m map[string]int64) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// wants returns the blobs that a version must have, with their sizes.
func (a *audit) wants(ctx context.Context, v *audited) (map[string]int64, error) {
	if v.r.rank == burned || v.r.where == inline {
		return nil, nil //nolint:nilnil // none
	}
	if v.r.where == inBlob {
		return map[string]int64{v.name: v.r.size}, nil
	}
	pieces, err := a.b.pieces(ctx, v.key, v.id, v.r)
	if err != nil {
		return nil, err
	}
	want := make(map[string]int64, len(pieces)+1)
	for _, p := range pieces {
		want[a.b.partName(v.key, v.id, p.number, p.id)] = p.size
	}
	if name, ok := a.b.listName(v.key, v.id, v.r); ok {
		want[name] = int64(len(encodeManifest(pieces)))
	}
	return want, nil
}

// noList stands for the size of a list of parts that is lost or damaged.
const noList = -2

// lost looks again at a version whose blob is not as it should be: it may have been deleted meanwhile.
func (a *audit) lost(ctx context.Context, v *audited, name string, want int64) error {
	now, err := a.b.version(ctx, v.key, v.id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if want == noList {
		a.found(LostBody, v.key, v.id, name, -1, -1)
		return nil
	}
	if now.where != v.r.where || !bytes.Equal(now.body, v.r.body) {
		return nil // another completion of its upload
	}
	body, size, err := a.b.o.blobs.Open(ctx, name, 0, 0)
	switch {
	case store.KindOf(err) == store.NotFound:
		size = -1
	case err != nil:
		return store.Wrap("look for the blob", err)
	default:
		_ = body.Close()
	}
	if size != want {
		a.found(LostBody, v.key, v.id, name, want, size)
	}
	return nil
}

func (a *audit) found(f Fault, key []byte, id ID, name string, want, size int64) {
	a.part.Findings = append(a.part.Findings,
		Finding{Fault: f, Key: bytes.Clone(key), ID: id, Blob: name, Want: want, Size: size})
}

// unowned judges the present blob, which belongs to no version that was read, or is no part that the
// version of key lists, and goes on.
func (a *audit) unowned(ctx context.Context, key []byte) error {
	blob := a.blob
	n, ok := a.b.parseName(blob.name)
	if !ok {
		a.found(Stranger, nil, ID{}, blob.name, -1, blob.size)
		return a.step()
	}
	least := max(a.b.o.o.PutTimeout, writeTimeout) + writeTimeout
	begun := n.id.Stamp
	if n.number >= 0 {
		begun = n.part.Stamp
	}
	if age(a.now, begun) < least {
		a.part.Young++
		return a.step()
	}
	if n.key == nil {
		n.key = key
	}
	if n.key == nil {
		uploads, err := a.uploadsOf(ctx, n.begin)
		if err != nil {
			return err
		}
		n.key = uploads[blob.name[:strings.Index(blob.name, "-/")+len("-/")+2*idBytes]]
	}
	switch {
	case n.key != nil:
	case len(a.uploads) == mostOfStretch:
		a.part.Unjudged++
		return a.step()
	default:
		a.found(Orphan, nil, n.id, blob.name, -1, blob.size)
		return a.step()
	}
	if base := a.b.blobName(n.key, n.id); base != a.judged {
		known, err := a.b.stands(ctx, n.key, n.id)
		if store.KindOf(err) == store.Corrupt { // the row is damaged, which is found at its place
			a.part.Unjudged++
			return a.step()
		}
		if err != nil {
			return err
		}
		a.judged, a.known = base, known
	}
	switch v := a.known.version; {
	case a.known.upload:
		a.part.InUse++
	case v == nil:
		a.found(Orphan, n.key, n.id, blob.name, -1, blob.size)
	case v.rank == burned:
		a.part.Waiting++
	case n.number < 0 && v.where == inBlob: // it has come meanwhile
	default:
		listed, err := a.b.lists(ctx, n, v)
		if err != nil && store.KindOf(err) != store.Corrupt {
			return err
		}
		if err == nil && !listed { // without its list nothing can be said
			a.found(Unlisted, n.key, n.id, blob.name, -1, blob.size)
		}
	}
	return a.step()
}

// uploadsOf returns the keys of the uploads whose keys begin so, by the names of their blobs: at most
// mostOfStretch. It remembers those of one beginning.
func (a *audit) uploadsOf(ctx context.Context, begin []byte) (map[string][]byte, error) {
	if a.uploads != nil && bytes.Equal(a.begin, begin) {
		return a.uploads, nil
	}
	a.uploads, a.begin = map[string][]byte{}, begin
	q := listing.Query{Prefix: escape(bytes.Clone(uploadsBegin), begin), Sift: sumUp}
	for {
		page, err := a.b.rows.List(ctx, q)
		if err != nil {
			a.uploads = nil
			return nil, err
		}
		for _, item := range page.Items {
			if at, err := parseUploadRow(item.Key); err == nil && len(a.uploads) < mostOfStretch {
				a.uploads[a.b.blobName(at.key, at.id.Version())] = bytes.Clone(at.key)
			}
		}
		if page.Next == "" {
			return a.uploads, nil
		}
		q.Token = page.Next
	}
}

// stands looks up the version and the upload of a blob.
func (b *Bucket) stands(ctx context.Context, key []byte, id ID) (s standing, err error) {
	// The upload first: of one that is completed and freed meanwhile there is a version then.
	_, err = b.rows.Get(ctx, uploadKey(key, UploadID(id)))
	switch {
	case err == nil:
		s.upload = true
	case !errors.Is(err, ErrNotFound):
		return s, err
	}
	e, err := b.rows.Get(ctx, rowKey(key, id))
	if errors.Is(err, ErrNotFound) {
		return s, nil
	}
	if err == nil {
		s.version, err = decode(e.Value)
	}
	return s, err
}

// lists reports whether a version has a blob as its part, or as the list of its parts.
func (b *Bucket) lists(ctx context.Context, n blobOf, v *record) (bool, error) {
	if v.where != inParts && v.where != inListedParts {
		return false, nil
	}
	if n.number == 0 {
		name, ok := b.listName(n.key, n.id, v)
		return ok && name == b.partName(n.key, n.id, 0, n.part), nil
	}
	pieces, err := b.pieces(ctx, n.key, n.id, v)
	return slices.ContainsFunc(pieces, func(p piece) bool { return p.number == n.number && p.id == n.part }), err
}

// blobOf is what the name of a blob says.
type blobOf struct {
	key    []byte // nil: it is longer than the name tells,
	begin  []byte // which is this then
	id     ID
	number int // of a part; negative: it is the whole body
	part   ID
}

// parseName is the inverse of blobName and partName.
func (b *Bucket) parseName(name string) (n blobOf, ok bool) {
	rest, ok := strings.CutPrefix(name, bucketPart(b.rows.Name())+"/")
	if !ok {
		return n, false
	}
	stem, rest, ok := strings.Cut(rest, "-/")
	if !ok {
		return n, false
	}
	version, part, inPart := strings.Cut(rest, "/")
	id, err := ParseID(version)
	if err != nil {
		return n, false
	}
	n.id, n.number = id, -1
	if inPart {
		number, partID, _ := strings.Cut(part, "-")
		if n.number, err = strconv.Atoi(number); err != nil || len(number) != 5 || n.number < 0 || n.number > MaxParts {
			return n, false
		}
		if n.part, err = ParseID(partID); err != nil {
			return n, false
		}
	}
	if begin, sum, long := strings.Cut(stem, "="); long {
		n.begin, err = ordered.DecodeString(strings.ReplaceAll(begin, "/", ""))
		return n, err == nil && len(n.begin) == nameBytes && len(sum) == 2*md5.Size
	}
	n.key, err = ordered.DecodeString(strings.ReplaceAll(stem, "/", ""))
	if err != nil || len(n.key) == 0 || len(n.key) > nameBytes {
		return n, false
	}
	// There is one name of a blob.
	return n, b.stem(n.key)+"-/"+rest == name
}
