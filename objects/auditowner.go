package objects

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// A blob without a version may be that of a put that goes on, of an upload, or of a version that is burned. It is an
// orphan only if it is older than a put may take, and has neither an upload nor a row of a version. The upload is
// looked for first, since each upload becomes a version before its rows are removed. A blob that can't be judged is not
// taken for an orphan.

// standing says to what a blob may belong: to versions of an object, or to an upload. Both are looked up by the key and
// the ID that the blob's name contains.
type standing struct {
	versions []stored // with blobs of this name
	upload   bool
}

// unowned decides whether a.blob, a blob that no known version uses, is a fault, and adds a fault to the audit's
// findings. Then it moves the audit on to the next blob. If the blob's name begins like the blobs of a known version,
// key is the key of that version, else nil.
func (a *audit) unowned(ctx context.Context, key []byte) error {
	blob := a.blob
	n, ok := a.b.parseName(blob.name)
	if !ok {
		a.found(care.Stranger, nil, ID{}, blob.name, -1, blob.size)
		return a.step()
	}
	if age(a.now, n.begun()) < a.b.o.orphanAge() {
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
		a.found(care.Orphan, nil, n.id, blob.name, -1, blob.size)
		return a.step()
	}
	if base := a.b.blobName(n.key, n.id); base != a.judged {
		known, err := a.b.stands(ctx, n.key, n.id)
		if store.KindOf(err) == store.Corrupt { // the row is damaged, which is a finding at its own place
			a.part.Unjudged++
			return a.step()
		}
		if err != nil {
			return err
		}
		a.judged, a.known = base, known
	}
	switch vs := a.known.versions; {
	case a.known.upload:
		a.part.InUse++
	case len(vs) == 0:
		a.found(care.Orphan, n.key, n.id, blob.name, -1, blob.size)
	case slices.ContainsFunc(vs, func(v stored) bool { return v.r.rank == burned }):
		a.part.Waiting++
	case n.number < 0 && vs[0].r.where == inBlob: // the version has come meanwhile
	default:
		listed, err := a.b.lists(ctx, n, vs)
		if err != nil && store.KindOf(err) != store.Corrupt {
			return err
		}
		if err == nil && !listed { // if the list can't be read nothing is known
			a.found(care.Unlisted, n.key, n.id, blob.name, -1, blob.size)
		}
	}
	return a.step()
}

// uploadsOf returns the object keys of uploads, at most mostOfStretch (100,000) of them. The parameter begin has the
// first bytes of these keys. The index of the map is the text with which the names of all blobs of the upload begin.
// The audit remembers the map until uploadsOf is called with another begin.
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
				a.uploads[a.b.blobName(at.key, at.id.version())] = bytes.Clone(at.key)
			}
		}
		if page.Next == "" {
			return a.uploads, nil
		}
		q.Token = page.Next
	}
}

// stands looks up to what a blob may belong: the upload and the versions of the object key that have the given ID. The
// key and the ID come from the name of the blob.
func (b *Bucket) stands(ctx context.Context, key []byte, id ID) (s standing, err error) {
	// The upload is read first: if it is completed and freed meanwhile, then its version is there.
	_, err = b.rows.Get(ctx, uploadKey(key, UploadID(id)))
	switch {
	case err == nil:
		s.upload = true
	case !errors.Is(err, listing.ErrNotFound):
		return s, err
	}
	s.versions, err = b.became(ctx, key, id)
	return s, err
}

// lists reports whether one of the versions in vs uses a blob. n is the decoded name of the blob. A version uses a blob
// as one of the parts of its body, or as its manifest, which is the list of these parts.
func (b *Bucket) lists(ctx context.Context, n blobOf, vs []stored) (listed bool, err error) {
	for i := 0; i < len(vs) && err == nil && !listed; i++ {
		listed, err = b.listedBy(ctx, n, vs[i].r)
	}
	return listed, err
}

// listedBy reports whether the version with the record v uses the blob with the decoded name n: as one of the parts of
// its body, or as the list of these parts.
func (b *Bucket) listedBy(ctx context.Context, n blobOf, v *record) (bool, error) {
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
