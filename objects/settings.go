package objects

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Status is whether a bucket keeps versions, as S3 has it. It is stored in the bucket's settings.
type Status byte

const (
	// Never: versions were never kept.
	Never Status = iota
	// Enabled: they are kept.
	Enabled
	// Suspended: they are not kept any more. Those that were stay.
	Suspended
)

// Versioning is what puts and deletes do under the status.
func (s Status) Versioning() Versioning { return s == Enabled }

// ErrPlain: the bucket has entries of package listing, no objects.
var ErrPlain = store.Errorf(store.InvalidArgument, "the bucket was made for plain entries, not for objects")

// Settings are what a bucket of objects keeps about itself.
type Settings struct {
	Status    Status
	Lifecycle Lifecycle
}

// The settings of a bucket of objects: its kind, their version, the status; in version 2 the rules
// follow, in version 3 rules with tags. Programs that do not know the version refuse the bucket.
const (
	kindObjects     = 'o'
	settingsVersion = 1
	rulesVersion    = 2
	byTagsVersion   = 3
)

func (s *Settings) encode() []byte {
	version := byte(settingsVersion)
	switch {
	case s.Lifecycle.byTags():
		version = byTagsVersion
	case len(s.Lifecycle) > 0:
		version = rulesVersion
	}
	b := []byte{kindObjects, version, byte(s.Status)}
	if version == settingsVersion {
		return b
	}
	return append(b, s.Lifecycle.encode()...)
}

// LostSettings returns the settings for a bucket that has lost its own with its root, if one of the rows, which are from
// the bucket's partitions, is that of an object's version or of an upload. With these settings the bucket keeps all
// versions, since nobody knows any more which ones may go, and has no rules of lifecycle. nil: no row is of an object.
func LostSettings(rows []store.Row) []byte {
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

// ParseSettings reads the settings of a bucket. It fails with ErrPlain where there are none.
func ParseSettings(b []byte) (s Settings, err error) {
	if len(b) == 0 {
		return s, ErrPlain
	}
	if len(b) >= 3 && b[0] == kindObjects && b[2] <= byte(Suspended) {
		s.Status = Status(b[2])
		ok := b[1] == settingsVersion && len(b) == 3
		if b[1] == rulesVersion || b[1] == byTagsVersion {
			s.Lifecycle, ok = decodeLifecycle(b[3:], b[1] == byTagsVersion)
		}
		if ok {
			return s, nil
		}
	}
	return Settings{}, store.Errorf(store.Unavailable,
		"the bucket has settings %.64x that this program does not know: a newer one made them", b)
}

// CreateBucket creates a bucket of objects that never kept versions. The cuts are keys of objects.
// It fails like listing.Client.CreateBucket.
func (o *Objects) CreateBucket(ctx context.Context, name string, cuts ...[]byte) error {
	rows := make([][]byte, len(cuts))
	for i, cut := range cuts {
		rows[i] = escape(nil, cut)
	}
	return o.c.CreateBucketWith(ctx, name, (&Settings{}).encode(), rows...)
}

// Status returns whether a bucket keeps versions. It mostly needs no I/O. It fails with ErrPlain, or
// like listing.Bucket.Settings.
func (o *Objects) Status(ctx context.Context, name string) (Status, error) {
	s, err := o.Bucket(name, Unversioned).Settings(ctx)
	return s.Status, err
}

// Settings returns the bucket's settings. It fails like Objects.Status.
func (b *Bucket) Settings(ctx context.Context) (Settings, error) {
	raw, err := b.rows.Settings(ctx)
	if err != nil {
		return Settings{}, err
	}
	return ParseSettings(raw)
}

// SetStatus changes whether a bucket keeps versions: to Enabled or Suspended. Once it has returned,
// Status returns that or what came later, in all processes. It fails with ErrPlain,
// InvalidArgument, or like listing.Bucket.ChangeSettings.
func (o *Objects) SetStatus(ctx context.Context, name string, to Status) error {
	if to != Enabled && to != Suspended {
		return store.Errorf(store.InvalidArgument, "a bucket can't go to status %d: Enabled or Suspended", to)
	}
	return o.change(ctx, name, func(s *Settings) { s.Status = to })
}

// change changes a part of a bucket's settings.
func (o *Objects) change(ctx context.Context, name string, f func(*Settings)) error {
	return o.c.Bucket(name).ChangeSettings(ctx, func(now []byte) ([]byte, error) {
		s, err := ParseSettings(now)
		if err != nil {
			return nil, err
		}
		f(&s)
		return s.encode(), nil
	})
}

// DeleteBucket deletes a bucket of objects that has no version left, its uploads, and then the blobs
// of both; whoever reads one of them may find it cut off. In a bucket that never kept
// versions delete markers do not count. It may be interrupted and repeated: a call that deletes the rest
// of a bucket that is deleted fails with listing.ErrNoSuchBucket. It fails with ErrPlain or like
// listing.Client.DeleteBucketBut.
func (o *Objects) DeleteBucket(ctx context.Context, name string) error {
	b, s, err := o.Open(ctx, name)
	if errors.Is(err, listing.ErrNoSuchBucket) {
		return cmp.Or(o.EndDelete(ctx, name), err)
	}
	if err != nil {
		return err
	}
	if s.Status == Never {
		// One that is closing has none any more.
		if err := b.burnMarkers(ctx); err != nil && !errors.Is(err, listing.ErrBucketClosing) {
			return err
		}
	}
	return o.c.DeleteBucketBut(ctx, name, o.remains(name))
}

// EndDelete deletes the rest of a bucket whose deletion was interrupted, as listing.Client.EndDelete does.
func (o *Objects) EndDelete(ctx context.Context, name string) error {
	return o.c.EndDelete(ctx, name, o.remains(name))
}

// remains are what may be left in a bucket that is deleted: burned versions, what is beside versions, and uploads.
// Their blobs go once the bucket is deleted for good; an upload of a bucket that is opened again can be completed.
func (o *Objects) remains(name string) listing.Remains {
	b := o.Bucket(name, Versioned)
	return listing.Remains{
		Of: func(settings []byte) bool { return len(settings) > 0 },
		Gone: func(e listing.Entry) bool {
			if _, err := parseUploadRow(e.Key); err == nil {
				return true
			}
			at, err := parseRow(e.Key)
			if err != nil || at.beside() {
				return err == nil
			}
			// What Discard could not read would keep it from its end for ever.
			r, err := decode(e.Value)
			return err == nil && !r.rank.Seen()
		},
		Discard: func(ctx context.Context, e listing.Entry) error {
			if u, err := parseUploadRow(e.Key); err == nil {
				if !u.own() {
					return nil
				}
				return b.deleteParts(ctx, u.key, u.id.Version(), nil)
			}
			at, err := parseRow(e.Key)
			if err != nil || at.beside() {
				return err
			}
			r, err := decode(e.Value)
			if err != nil {
				return err
			}
			switch r.where {
			case inBlob:
				return o.blobs.Delete(ctx, b.blobName(at.key, at.id))
			case inParts, inListedParts:
				return b.deleteParts(ctx, at.key, at.id, nil)
			}
			return nil
		},
	}
}

// burnMarkers burns the delete markers of a bucket that never kept versions, with the null versions
// that they hide. It fails with listing.ErrNotEmpty where there is an object.
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
