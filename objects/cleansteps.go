package objects

// The steps of a cleaner: how it carries out on one version what package tidy has decided. Each step reads again what
// it relies on, and writes only while its deadline is not over.

import (
	"bytes"
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
)

// do carries out one step of cleaning, s, on a version of the object key, e.g. a deletion. group has the object's
// versions. do returns false without an error if the step turns out not to be due any more. The func named still
// reports whether there is time left. Once it returns false, do writes no row of a version any more, with one exception
// (see expire).
func (c *cleaner) do(ctx context.Context, key []byte, group []member, s tidy.Step, still func() bool) (bool, error) {
	v := &group[s.Version]
	switch s.Do {
	case tidy.Supersede:
		if ok, err := c.relyOn(ctx, key, &group[s.By], still); err != nil || !ok {
			return false, err
		}
		return true, c.burn(ctx, key, v, still)
	case tidy.Lapse:
		for _, by := range []int{s.Enough, s.By} {
			if ok, err := c.relyOn(ctx, key, &group[by], still); err != nil || !ok {
				return false, err
			}
		}
		return true, c.burn(ctx, key, v, still)
	case tidy.Prove:
		return true, c.burn(ctx, key, v, still)
	case tidy.Finish:
		return c.finish(ctx, key, v, still)
	case tidy.Expire:
		return c.expire(ctx, key, v, still)
	}
	if alone, err := c.alone(ctx, key, v.id); err != nil || !alone {
		return false, err
	}
	return true, door.Bucket(c.b.rows).DeleteAt(ctx, rowKey(key, v.id), door.Given{At: v.id.at(gone), Still: still})
}

// alone reports whether the delete marker with the given ID may be removed. The result is true if
//
//   - the marker hides no version, and
//   - no version can appear later that the marker would hide, e.g. from an upload that began before the marker.
func (c *cleaner) alone(ctx context.Context, key []byte, id ID) (bool, error) {
	// The rows of uploads are read first, because an upload writes its version before its own rows are removed.
	uploads := listing.Query{Prefix: uploadGroup(key), To: uploadKey(key, UploadID(id)), Limit: 1, KeysOnly: true}
	page, err := c.b.rows.List(ctx, uploads)
	if err != nil || len(page.Items) > 0 {
		return false, err
	}
	page, err = c.b.rows.List(ctx, listing.Query{Prefix: groupOf(key), Limit: 2, KeysOnly: true})
	return err == nil && len(page.Items) == 1 && bytes.Equal(page.Items[0].Key, rowKey(key, id)), err
}

// expire hides an object whose newest version, v, is older than a lifecycle rule allows. What it does depends on the
// bucket's Status, as in S3 ("Expiring objects"):
//
//   - Enabled: a delete marker hides v.
//   - Suspended: a delete marker that is a null version hides v, and takes the place of another null version.
//   - Never: v is deleted, as such a bucket keeps no older versions. DeleteVersion reads v again, and has a time limit
//     of its own.
//
// The result is false if nothing was done. The func named still reports whether there is time left. Once it returns
// false, expire writes no delete marker any more.
func (c *cleaner) expire(ctx context.Context, key []byte, v *member, still func() bool) (bool, error) {
	// The marker has the timestamp of v, and a salt that is one less: it is the next ID above that of v. So it hides
	// neither newer versions nor versions that are still being written.
	if v.what.Null && c.known.Status == Never {
		_, err := c.b.DeleteVersion(ctx, key, v.id)
		if errors.Is(err, listing.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	id := v.id
	for i := len(id.Salt) - 1; i >= 0; i-- {
		if id.Salt[i]--; id.Salt[i] != 0xFF {
			now, err := door.Client(c.b.o.c).Stamps(ctx, 1)
			if err != nil {
				return false, err
			}
			r := &record{rank: live, marker: true, null: c.known.Status != Enabled, meta: hidesSince(now)}
			return true, c.b.write(ctx, key, id, r, still)
		}
	}
	return false, nil // the salt is zero, as that of one in 2^48 versions
}

// relyOn protects a version, before another version is deleted because of it. The parameter by is the version that must
// stay. relyOn writes the row of that version again with the state kept, so that no other cleaner deletes it. The
// result is false if that version is deleted, or if another cleaner has noted that it seems to be missing. Then the
// caller must not delete the other version. The func named still reports whether there is time left. Once it returns
// false, relyOn writes nothing more.
func (c *cleaner) relyOn(ctx context.Context, key []byte, by *member, still func() bool) (bool, error) {
	if !by.kept {
		ok, err := c.keep(ctx, key, by.id, still)
		if err != nil || !ok {
			return false, err
		}
		by.kept = true
	}
	noted, err := c.noted(ctx, key, by.id)
	return err == nil && !noted, err
}

// keep protects a version from other cleaners, because the deletion of another version relies on it: it writes the
// version's row again with the state kept. The result is false if the version is deleted. The func named still reports
// whether there is time left. Once it returns false, keep writes nothing more.
func (c *cleaner) keep(ctx context.Context, key []byte, id ID, still func() bool) (bool, error) {
	r, err := c.b.version(ctx, key, id)
	if errors.Is(err, listing.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.rank = kept
	return true, c.b.write(ctx, key, id, r, still)
}

// noted reports whether there is a note about a version. A note is a row by which a cleaner says that the version seems
// to be missing.
func (c *cleaner) noted(ctx context.Context, key []byte, id ID) (bool, error) {
	_, err := c.b.rows.Get(ctx, append(rowKey(key, id), noteSuffix))
	if errors.Is(err, listing.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// burn deletes the version v for readers, who never see the version again. Its blobs stay until CleanOptions.Grace is
// over. burn writes two rows. The first is that of the version, with the state burned (deleted). The second has the
// time at which the first write was known to be acknowledged. The func named still reports whether there is time left.
// Once it returns false, burn writes nothing more.
func (c *cleaner) burn(ctx context.Context, key []byte, v *member, still func() bool) error {
	if err := c.b.write(ctx, key, v.id, v.ash, still); err != nil {
		return err
	}
	return c.prove(ctx, append(rowKey(key, v.id), noteSuffix), still)
}

// finish removes all that is left of a deleted version: first its blobs, and then its rows. It returns false if
// something else has to happen before, e.g. the end of the upload to which the blobs belong. The func named still
// reports whether there is time left. Once it returns false, the version's row is not deleted any more; its blobs may
// be.
func (c *cleaner) finish(ctx context.Context, key []byte, v *member, still func() bool) (bool, error) {
	switch v.ash.where {
	case inBlob:
		if err := c.b.o.blobs.Delete(ctx, c.b.blobName(key, v.ash.bodies(v.id))); err != nil {
			return false, err
		}
	case inParts, inListedParts:
		alone, done, err := c.apart(ctx, key, v)
		if err == nil && alone {
			err = c.b.deleteParts(ctx, key, v.ash.bodies(v.id), nil)
		}
		if err != nil || !done {
			return false, err
		}
	}
	return true, c.remove(ctx, key, v, still)
}

// remove deletes the row of the version v, and then its row of tags and the cleaner's note about v, if they exist. The
// func named still reports whether there is time left. Once it returns false, the row of v is not deleted any more, and
// remove fails.
func (c *cleaner) remove(ctx context.Context, key []byte, v *member, still func() bool) error {
	row := rowKey(key, v.id)
	if err := door.Bucket(c.b.rows).DeleteAt(ctx, row, door.Given{At: v.id.at(gone), Still: still}); err != nil {
		return err
	}
	if v.what.Tags {
		if err := c.b.rows.Delete(ctx, append(row[:len(row):len(row)], tagsSuffix)); err != nil {
			return err
		}
	}
	if !v.what.Note {
		return nil
	}
	return c.b.rows.Delete(ctx, append(row, noteSuffix))
}
