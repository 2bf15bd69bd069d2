package objects

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/store"
)

// Audits go from bucket to bucket, so by themselves they would never see the blobs of a bucket that is deleted. Such
// blobs exist: a put that failed may have left its blob in a bucket that was deleted later. So audits also look at the
// names below which there are blobs, although no bucket has such a name (docs/objects.md, rule 20).

// Tops is an interface that a store of blobs (Blobs) may implement, too. With Tops, audits find blobs that are left of
// deleted buckets.
type Tops interface {
	// Tops calls the func each with the text before the first slash of the names of all blobs, e.g. photos for the blob
	// photos/C4N6. It may also call each with a text with which no blob's name begins any more. If each returns an
	// error, the call ends, and Tops returns that error.
	Tops(ctx context.Context, each func(top string) error) error
	// Written returns the time when the named blob was stored, by the clock of the store of blobs. It fails with
	// NotFound if there is no such blob.
	Written(ctx context.Context, name string) (time.Time, error)
}

// Unnamed iterates over the names of buckets that do not exist, but of which blobs exist or existed. Most of these
// buckets were deleted, and some of their blobs are left. The iteration is empty if the store of blobs does not
// implement Tops, and ends with the first error. It leaves out
//
//   - names above 100 bytes, since the names of blobs contain only the beginning of such a name;
//   - names whose record can't be read, since a bucket may have the name.
func (o objectsCare) Unnamed(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		tops, ok := o.blobs.(Tops)
		if !ok {
			return
		}
		enough := errors.New("enough")
		err := tops.Tops(ctx, func(top string) error {
			name, ok := bucketOf(top)
			if !ok {
				return nil
			}
			vacant, _, err := door.Client(o.c).Vacant(ctx, name)
			if store.KindOf(err) == store.Corrupt {
				return nil
			}
			if err == nil && vacant && !yield(name, nil) {
				err = enough
			}
			return err
		})
		if err != nil && !errors.Is(err, enough) {
			yield("", store.Wrap("look for bodies of deleted buckets", err))
		}
	}
}

// bucketOf returns the name of the bucket to which blobs belong. top is the text before the first slash in the names of
// the blobs, e.g. photos for the blob photos/C4N6. The result ok is false if no bucket's name gives such a text (see
// bucketPart). It is also false for a long name, of which the text has only the beginning.
func bucketOf(top string) (name string, ok bool) {
	name = top
	if text, coded := strings.CutPrefix(top, "="); coded {
		b, err := ordered.DecodeString(text)
		if err != nil {
			return "", false
		}
		name = string(b)
	}
	return name, name != "" && bucketPart(name) == top
}

// AuditUnnamed finds the blobs of a bucket that does not exist. What they are reported as depends on the bucket's name:
//
//   - If a bucket with this name was deleted, its blobs are findings of the kind Orphan. Blobs that a put may still be
//     writing are not reported.
//   - If no bucket with this name is known, its blobs are Strangers: the bucket may exist, and only the record of its
//     name be lost.
//   - If a bucket has the name now, AuditUnnamed finds nothing. The audit of that bucket looks at the blobs.
//
// AuditUnnamed passes the results to the func each, as the audit of a bucket does. An interrupted call can't be
// continued: Audited.Next is empty.
func (o objectsCare) AuditUnnamed(ctx context.Context, name string, each func(care.Audited) error) error {
	now, err := door.Client(o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	vacant, freed, err := door.Client(o.c).Vacant(ctx, name)
	if err != nil || !vacant {
		return err
	}
	b := o.Bucket(name, Never)
	a := &audit{b: b, now: now}
	err = o.blobs.List(ctx, bucketPart(name)+"/", "", func(blob string, size int64) error {
		a.part.Blobs++
		n, ok := b.parseName(blob)
		switch {
		case !ok || !freed:
			a.found(care.Stranger, n.key, n.id, blob, -1, size)
		case age(now, n.begun()) < o.orphanAge():
			a.part.Young++
		default:
			a.found(care.Orphan, n.key, n.id, blob, -1, size)
		}
		const most = 1000
		if a.part.Blobs == most {
			return each(a.take())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(a.take())
}

// CondemnUnnamed deletes the blob of the finding f, an Orphan that AuditUnnamed has found for the bucket's name. It
// does so only if a bucket with this name was deleted and no bucket has the name now. It fails with InvalidArgument if
// that is not certain, or if the blob is so young that its row may still appear (docs/objects.md, rule 20).
func (o objectsCare) CondemnUnnamed(ctx context.Context, name string, f care.Finding) error {
	n, ok := o.Bucket(name, Never).parseName(f.Blob)
	tops, known := o.blobs.(Tops)
	if !ok || !known || f.Fault != care.Orphan {
		return store.Errorf(store.InvalidArgument, "%.200q can't be deleted: it is a %s", f.Blob, f.Fault)
	}
	// The caller has compared the owner of the blobs before. Without an owner nothing is deleted.
	owner, err := care.Owner(ctx, o.blobs)
	if err != nil {
		return err
	}
	if owner == "" {
		return store.Errorf(store.InvalidArgument, "%.200q may be of another store: the place of bodies has no mark %s",
			f.Blob, care.OwnerMark)
	}
	// The time is drawn before the look: a bucket that gets the name later draws its stamps after this time.
	now, err := door.Client(o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	if _, freed, err := door.Client(o.c).Vacant(ctx, name); err != nil || !freed {
		if err == nil {
			err = store.Errorf(store.InvalidArgument, "%.200q is not known to be of a deleted bucket: the name is taken, "+
				"or its record is not there", f.Blob)
		}
		return err
	}
	written, err := tops.Written(ctx, f.Blob)
	switch {
	case store.KindOf(err) == store.NotFound:
		return nil
	case err != nil:
		return err
	case age(now, n.begun()) < settled || age(now, store.Timestamp(written.UnixMicro())) < settled:
		return store.Errorf(store.InvalidArgument, "%.200q is younger than %v, or came to its place since", f.Blob,
			settled)
	}
	return o.blobs.Delete(ctx, f.Blob)
}
