package objects

import (
	"bytes"
	"context"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Condemn deletes what an audit has found, an Orphan or an Unlisted part, unless it belongs to a
// version now. Of an orphan it burns the version that is not there (docs/objects.md, rule 7): passes
// delete the blob when the grace is over. Where nothing tells the key, it deletes the blob once it is
// older than CleanOptions.Settled (rule 16). It fails with InvalidArgument where there is nothing that
// can be deleted, or not yet, or like Pass.
func (c *Cleaner) Condemn(ctx context.Context, f Finding) error {
	if err := c.pin(ctx); err != nil {
		return err
	}
	n, ok := c.b.parseName(f.Blob)
	if !ok || !f.Fault.Condemnable() {
		return store.Errorf(store.InvalidArgument, "a cleaner can't delete %.200q: it is a %s", f.Blob, f.Fault)
	}
	still := c.b.o.deadline(writeTimeout)
	now, err := c.b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	begun := n.id.Stamp
	if n.number >= 0 {
		begun = n.part.Stamp
	}
	if age(now, begun) < c.o.Grace {
		return store.Errorf(store.InvalidArgument, "%.200q is younger than the grace of %v", f.Blob, c.o.Grace)
	}
	if n.key == nil {
		if n.key, err = c.b.keyOf(ctx, f.Blob, n.begin); err != nil {
			return err
		}
	}
	if n.key == nil {
		if age(now, begun) < c.o.Settled {
			return store.Errorf(store.InvalidArgument, "%.200q is younger than %v, and no row tells its key: one may still "+
				"come", f.Blob, c.o.Settled)
		}
		return c.b.o.blobs.Delete(ctx, f.Blob)
	}
	s, err := c.b.stands(ctx, n.key, n.id)
	switch {
	case err != nil || s.upload:
		return err
	case s.version == nil:
		where := inBlob
		if n.number >= 0 {
			where = inParts
		}
		return c.condemn(ctx, n.key, &member{id: n.id, ash: &record{rank: burned, where: where}}, still)
	case s.version.rank != kept || n.number < 0:
		return nil // burned: a pass deletes it
	}
	listed, err := c.b.lists(ctx, n, s.version)
	if err != nil || listed {
		return err
	}
	return c.b.o.blobs.Delete(ctx, f.Blob)
}

// keyOf finds the key of a blob whose name has only its beginning, and a hash, among the uploads and then
// the rows of objects, as each upload becomes a version before its rows are removed. nil: none of them has it.
func (b *Bucket) keyOf(ctx context.Context, blob string, begin []byte) (key []byte, err error) {
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
