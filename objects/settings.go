package objects

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Status says whether a bucket keeps the older versions of its objects: Never, Enabled or Suspended, as in S3. It is
// stored in the bucket's settings.
type Status byte

const (
	// Never means that the bucket has never kept versions, as every bucket begins.
	Never Status = iota
	// Enabled means that puts and deletes keep the older versions of objects.
	Enabled
	// Suspended means that the bucket keeps no new versions any more. Versions that were kept before stay.
	Suspended
)

// ErrPlain means that the bucket is not a bucket of objects: it was made with package listing, and its entries are
// plain keys and values.
var ErrPlain = store.Errorf(store.InvalidArgument, "the bucket was made for plain entries, not for objects")

// Settings are the settings of a bucket of objects: whether the bucket keeps versions, its lifecycle rules, and the
// documents of the layer above, such as S3's rules for web pages of other origins. They are stored in the bucket's root
// record, and have at most 16 KiB in encoded form.
type Settings struct {
	Status    Status
	Lifecycle Lifecycle
	// Documents are in the order of their names, which are all different.
	Documents []Document
}

// Document is a setting of a bucket that package objects stores for the layer above, and does not read. Name says what
// the document is, in at most 32 bytes. Body has at least one byte.
type Document struct {
	Name string
	Body []byte
}

// maxDocumentName is the largest length of the name of a document, in bytes.
const maxDocumentName = 32

// The settings of a bucket are stored as three bytes: kindObjects, the version of the format, and the Status. In
// version 2 the lifecycle rules follow. In version 3 these rules may have tags, too. In version 4 a byte follows, which
// is the version that the settings would have without documents, then the lifecycle rules as a byte string, which is
// empty for the version 1, and then the number of documents, with the name and the body of each as byte strings. A
// program that does not know the version refuses to use the bucket.
const (
	kindObjects      = 'o'
	settingsVersion  = 1
	rulesVersion     = 2
	byTagsVersion    = 3
	documentsVersion = 4
)

// encode returns the encoded settings, in the lowest version of the format that has all of them.
func (s *Settings) encode() []byte {
	version := byte(settingsVersion)
	switch {
	case s.Lifecycle.byTags():
		version = byTagsVersion
	case len(s.Lifecycle) > 0:
		version = rulesVersion
	}
	var rules []byte
	if version != settingsVersion {
		rules = s.Lifecycle.encode()
	}
	if len(s.Documents) == 0 {
		return append([]byte{kindObjects, version, byte(s.Status)}, rules...)
	}
	b := appendBytes([]byte{kindObjects, documentsVersion, byte(s.Status), version}, rules)
	b = binary.AppendUvarint(b, uint64(len(s.Documents)))
	for i := range s.Documents {
		b = appendBytes(wire.AppendString(b, s.Documents[i].Name), s.Documents[i].Body)
	}
	return b
}

func appendBytes(b, v []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(v))), v...) }

// decode decodes the part of the settings that follows the Status, by the version of the format.
func (s *Settings) decode(version byte, b []byte) (ok bool) {
	switch version {
	case settingsVersion:
		return len(b) == 0
	case rulesVersion, byTagsVersion:
		s.Lifecycle, ok = decodeLifecycle(b, version == byTagsVersion)
		return ok
	case documentsVersion:
		if len(b) == 0 || b[0] == documentsVersion {
			return false
		}
		d := wire.Shortest{Of: b[1:]}
		rules := d.Bytes(mapcodec.MaxSettingsBytes)
		for n := d.Uint(); n > uint64(len(s.Documents)); {
			one := Document{Name: d.String(maxDocumentName), Body: d.Bytes(mapcodec.MaxSettingsBytes)}
			last := ""
			if has := len(s.Documents); has > 0 {
				last = s.Documents[has-1].Name
			}
			if len(one.Body) == 0 || one.Name <= last {
				return false
			}
			s.Documents = append(s.Documents, one)
		}
		return !d.Bad && len(d.Rest()) == 0 && len(s.Documents) > 0 && s.decode(b[0], rules)
	}
	return false
}

// Document returns the body of the document with the given name, or nil if the bucket has no such document.
func (s *Settings) Document(name string) []byte {
	at, has := s.find(name)
	if !has {
		return nil
	}
	return s.Documents[at].Body
}

func (s *Settings) find(name string) (at int, has bool) {
	return slices.BinarySearchFunc(s.Documents, name, func(d Document, name string) int {
		return strings.Compare(d.Name, name)
	})
}

// set replaces the body of the document with the given name. A nil body removes the document.
func (s *Settings) set(name string, body []byte) {
	at, has := s.find(name)
	switch {
	case has && len(body) == 0:
		s.Documents = slices.Delete(s.Documents, at, at+1)
	case has:
		s.Documents[at].Body = body
	case len(body) > 0:
		s.Documents = slices.Insert(s.Documents, at, Document{name, body})
	}
}

// lostSettings returns new settings for a bucket whose own settings are lost. rows are samples of the bucket's rows. If
// a sample is the row of a version or of an upload, the bucket is a bucket of objects. Then the new settings keep all
// versions, as nobody knows which versions may be deleted, and have no lifecycle rules. Otherwise lostSettings returns
// nil, as the bucket seems to have plain entries of package listing.
func lostSettings(rows []store.Row) []byte {
	for i := range rows {
		value, live, err := store.EntryValue(rows[i].Value)
		if err != nil || !live {
			continue
		}
		version, err := parseRow(rows[i].Key)
		if version.beside() || err != nil {
			_, err = parseUploadRow(rows[i].Key)
		}
		if err == nil {
			_, err = decode(value)
		}
		// Key and value have forms that entries of a plain bucket do not have by chance.
		if err == nil {
			return (&Settings{Status: Enabled}).encode()
		}
	}
	return nil
}

// parseSettings decodes the encoded settings of a bucket. It fails with ErrPlain if b is empty: the bucket was made
// with package listing, and has no settings of objects. It fails with Unavailable if a newer program has written b in
// an unknown form.
func parseSettings(b []byte) (s Settings, err error) {
	if len(b) == 0 {
		return s, ErrPlain
	}
	if len(b) >= 3 && b[0] == kindObjects && b[2] <= byte(Suspended) {
		s.Status = Status(b[2])
		if s.decode(b[1], b[3:]) {
			return s, nil
		}
	}
	return Settings{}, store.Errorf(store.Unavailable,
		"the bucket has settings %.64x that this program does not know: a newer one made them", b)
}

// CreateBucket creates a bucket of objects, which keeps no versions at first (the status Never). cuts are keys, in any
// order, at which the bucket is divided into ranges from the start. Without cuts the bucket begins as one range.
// CreateBucket fails like listing.Client.CreateBucket.
func (o *Objects) CreateBucket(ctx context.Context, name string, cuts ...[]byte) error {
	rows := make([][]byte, len(cuts))
	for i, cut := range cuts {
		rows[i] = escape(nil, cut)
	}
	return door.Client(o.c).CreateWith(ctx, name, (&Settings{}).encode(), rows...)
}

// settings returns the bucket's settings, such as its lifecycle rules. It mostly needs no I/O. It fails with ErrPlain,
// or like listing.Bucket.Settings.
func (b *Bucket) settings(ctx context.Context) (Settings, error) {
	raw, err := b.rows.Settings(ctx)
	if err != nil {
		return Settings{}, err
	}
	return parseSettings(raw)
}

// SetStatus changes whether a bucket keeps versions. The parameter to is the new status, either Enabled or Suspended.
// Once SetStatus has returned, all processes see this status, or a newer one. SetStatus fails with ErrPlain,
// InvalidArgument, or like listing.Bucket.Put.
func (o *Objects) SetStatus(ctx context.Context, name string, to Status) error {
	if to != Enabled && to != Suspended {
		return store.Errorf(store.InvalidArgument, "a bucket can't go to status %d: Enabled or Suspended", to)
	}
	return o.change(ctx, name, func(s *Settings) { s.Status = to })
}

// SetDocument replaces the document of the bucket that has the given name among the bucket's documents. A nil body
// removes the document. SetDocument returns like SetStatus, and fails like SetStatus.
func (o *Objects) SetDocument(ctx context.Context, bucket, name string, body []byte) error {
	if name == "" || len(name) > maxDocumentName {
		return store.Errorf(store.InvalidArgument, "a document has a name of %d bytes: 1 to %d", len(name),
			maxDocumentName)
	}
	return o.change(ctx, bucket, func(s *Settings) { s.set(name, body) })
}

// change reads the settings of the named bucket, lets f change them, and stores them. If another client changes the
// settings at the same time, change calls f again with the newer settings. It fails with InvalidArgument if the new
// settings are too large.
func (o *Objects) change(ctx context.Context, name string, f func(*Settings)) error {
	return door.Bucket(o.c.Bucket(name)).ChangeSettings(ctx, func(now []byte) ([]byte, error) {
		s, err := parseSettings(now)
		if err != nil {
			return nil, err
		}
		f(&s)
		next := s.encode()
		if n := len(next); n > mapcodec.MaxSettingsBytes {
			return nil, store.Errorf(store.InvalidArgument, "the bucket's settings would have %d bytes together "+
				"(lifecycle rules, CORS and others): at most %d", n, mapcodec.MaxSettingsBytes)
		}
		return next, nil
	})
}

// DeleteBucket deletes a bucket of objects that has no version left. Open uploads do not prevent the deletion, and nor
// do delete markers in a bucket with the status Never. After the bucket, DeleteBucket deletes the blobs of the bucket's
// uploads and deleted versions. So somebody who still reads such a blob may find the body cut off.
//
// An interrupted call can be repeated. If the bucket is deleted already, the call deletes the bucket's remaining rows
// and blobs, and then fails with listing.ErrNoSuchBucket. DeleteBucket fails with ErrPlain or like
// listing.Client.DeleteBucket.
func (o *Objects) DeleteBucket(ctx context.Context, name string) error {
	b, s, err := o.Open(ctx, name)
	if errors.Is(err, listing.ErrNoSuchBucket) {
		return cmp.Or(objectsCare{o}.EndDelete(ctx, name), err)
	}
	if err != nil {
		return err
	}
	if s.Status == Never {
		// A bucket that is closing has no markers any more.
		if err := b.burnMarkers(ctx); err != nil && !errors.Is(err, listing.ErrBucketClosing) {
			return err
		}
	}
	return door.Client(o.c).DeleteBut(ctx, name, o.remains(name))
}

// EndDelete completes an interrupted deletion of the named bucket: it deletes the bucket's remaining rows and blobs. It
// fails like listing.Client.DeleteBucket.
func (o objectsCare) EndDelete(ctx context.Context, name string) error {
	return door.Client(o.c).EndDelete(ctx, name, o.remains(name))
}

// remains tells package listing which rows may still be in a bucket that is deleted, and how to discard them. These are
// deleted versions, rows that only belong to versions (such as tags), and uploads. Their blobs are deleted only once
// the bucket can't come back. Until then the deletion may be cancelled, and an upload in the bucket can be completed.
func (o *Objects) remains(name string) door.Remains {
	b := o.Bucket(name, Never)
	return door.Remains{
		Of: func(settings []byte) bool { return len(settings) > 0 },
		Gone: func(key, value []byte) bool {
			if _, err := parseUploadRow(key); err == nil {
				return true
			}
			at, err := parseRow(key)
			if err != nil || at.beside() {
				return err == nil
			}
			// Discard could not read such a row, and the bucket's deletion would never end.
			r, err := decode(value)
			return err == nil && !r.rank.Seen()
		},
		Discard: func(ctx context.Context, key, value []byte) error {
			if u, err := parseUploadRow(key); err == nil {
				if !u.own() {
					return nil
				}
				return b.deleteParts(ctx, u.key, u.id.version(), nil)
			}
			at, err := parseRow(key)
			if err != nil || at.beside() {
				return err
			}
			r, err := decode(value)
			if err != nil {
				return err
			}
			switch r.where {
			case inBlob:
				return o.blobs.Delete(ctx, b.blobName(at.key, r.bodies(at.id)))
			case inParts, inListedParts:
				return b.deleteParts(ctx, at.key, r.bodies(at.id), nil)
			}
			return nil
		},
	}
}

// burnMarkers deletes all delete markers of a bucket that never kept versions, and the older versions that the markers
// hide. It fails with listing.ErrNotEmpty if the bucket has an object.
func (b *Bucket) burnMarkers(ctx context.Context) error {
	first, err := b.List(ctx, Query{Limit: 1})
	for err == nil && len(first.Items) == 0 && first.Next != "" {
		first, err = b.List(ctx, Query{Limit: 1, Token: first.Next})
	}
	if err != nil || len(first.Items) > 0 {
		if err == nil {
			err = listing.ErrNotEmpty
		}
		return err
	}
	for q := (Query{}); ; {
		page, err := b.ListVersions(ctx, q)
		if err != nil {
			return err
		}
		g, gctx := errgroup.WithContext(ctx)
		const atOnce = 64
		g.SetLimit(atOnce)
		for i := range page.Items {
			item := &page.Items[i]
			if !item.Marker {
				return listing.ErrNotEmpty
			}
			g.Go(func() error {
				if _, err := b.DeleteVersion(gctx, item.Key, item.ID); store.KindOf(err) != store.NotFound {
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil || page.Next == "" {
			return err
		}
		q.Token = page.Next
	}
}
