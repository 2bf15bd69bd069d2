package objects

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Condemn deletes a useless blob that an audit has found: the finding f is an Orphan or an Unlisted part. First it
// reads the rows again, since the blob may belong to a version by now (docs/objects.md, rules 7 and 16):
//
//   - a whole body without a version is deleted if it is older than CleanOptions.Settled. So is a part if the key of
//     its object can't be found;
//   - a part of an upload that has become no version stays at first. Condemn makes sure that the upload can't become a
//     version any more, and passes of cleaners delete the part after CleanOptions.Grace;
//   - a part that no version of its upload uses is deleted under two conditions. All parts of these versions must
//     exist, and the versions must have the state kept, which passes of cleaners give them;
//   - any other blob stays.
//
// Condemn fails like Pass, and with InvalidArgument if f is no blob that can be deleted, or if the blob is too young.
func (c *cleaner) Condemn(ctx context.Context, f care.Finding) error {
	if err := c.pin(ctx); err != nil {
		return err
	}
	n, ok := c.b.parseName(f.Blob)
	if !ok || !f.Fault.Condemnable() {
		return store.Errorf(store.InvalidArgument, "a cleaner can't delete %.200q: it is a %s", f.Blob, f.Fault)
	}
	still := c.b.o.deadline(writeTimeout)
	now, err := door.Client(c.b.o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	begun := n.begun()
	if age(now, begun) < c.o.Grace {
		return store.Errorf(store.InvalidArgument, "%.200q is younger than the grace of %v", f.Blob, c.o.Grace)
	}
	if n.key == nil {
		if n.key, err = c.b.keyOf(ctx, f.Blob, n.begin); err != nil {
			return err
		}
	}
	if n.key == nil {
		return c.deleteSettled(ctx, f.Blob, now, begun)
	}
	s, err := c.b.stands(ctx, n.key, n.id)
	switch {
	case err != nil || s.upload:
		return err
	case len(s.versions) == 0 && n.number < 0:
		return c.deleteSettled(ctx, f.Blob, now, begun)
	case len(s.versions) == 0:
		err := c.condemn(ctx, n.key, &member{id: n.id, ash: &record{rank: burned, where: inParts}}, still)
		if err == nil && c.tells.o.Hints != nil {
			c.tells.o.Hints.Note(c.b.rows.ID(), n.key, c.o.Grace+clockSlack)
		}
		return err
	case n.number < 0 || slices.ContainsFunc(s.versions, func(v stored) bool { return v.r.rank != kept }):
		return nil // it belongs to a version, or is left to a pass or the next audit
	}
	listed, err := c.b.lists(ctx, n, s.versions)
	if err != nil || listed {
		return err
	}
	names := map[string]bool{}
	for i := 0; i < len(s.versions) && err == nil; i++ {
		err = c.listed(ctx, n.key, &s.versions[i], names)
	}
	if err == nil {
		err = c.b.allThere(ctx, n.key, n.id, names)
	}
	if err != nil {
		return err
	}
	return c.b.o.blobs.Delete(ctx, f.Blob)
}

// deleteSettled deletes the named blob, which has no row, if the blob is so old that no row can appear for it any more.
// Its age is the time from begun, when its put began, to now. deleteSettled fails with InvalidArgument if the age is
// below CleanOptions.Settled.
func (c *cleaner) deleteSettled(ctx context.Context, blob string, now, begun store.Timestamp) error {
	if age(now, begun) < c.o.Settled {
		return store.Errorf(store.InvalidArgument, "%.200q has no row, but is younger than %v: one may still come", blob,
			c.o.Settled)
	}
	return c.b.o.blobs.Delete(ctx, blob)
}

// keyOf finds the key of the object to which a blob belongs, if the key is too long to be in the blob's name. The name
// has only the first bytes of the key, begin, and a hash of the whole key. keyOf looks for an upload or a version whose
// key gives this name. The result is nil if there is none.
func (b *Bucket) keyOf(ctx context.Context, blob string, begin []byte) (key []byte, err error) {
	// Uploads come first, because an upload writes its version before its own rows are removed.
	stem, _, _ := strings.Cut(blob, "-/")
	uploads := func(row []byte) ([]byte, error) {
		at, err := parseUploadRow(row)
		return at.key, err
	}
	versions := func(row []byte) ([]byte, error) {
		at, err := parseRow(row)
		return at.key, err
	}
	for _, look := range []struct {
		prefix []byte
		key    func(row []byte) ([]byte, error)
	}{{escape(bytes.Clone(uploadsBegin), begin), uploads}, {escape(nil, begin), versions}} {
		for q := (listing.Query{Prefix: look.prefix, Limit: 1000, KeysOnly: true}); ; {
			page, err := b.rows.List(ctx, q)
			if err != nil {
				return nil, err
			}
			for _, item := range page.Items {
				if key, err := look.key(item.Key); err == nil && b.stem(key) == stem {
					return bytes.Clone(key), nil
				}
			}
			if page.Next == "" {
				break
			}
			q.Token = page.Next
		}
	}
	return nil, nil
}
