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

// A version that is seen must have all its blobs, of the right sizes. A version that is burned may have blobs until its
// grace is over. If something is missing the version is read again, as it may have been deleted meanwhile, or an upload
// may have been completed anew.

// audited is a version of an object that an audit compares with stored bodies (blobs). The names of all blobs of the
// version begin with the field name.
type audited struct {
	key  []byte
	id   ID
	name string
	r    *record
}

// compare checks that the version v has all its blobs, with the right sizes, and adds what is wrong to the audit's
// findings. Before that, compare handles the blobs whose names sort before those of v: no version uses these blobs.
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
		case !listed: // the versions of one upload that was completed twice are compared one after the other
			if err := a.unowned(ctx, v.key); err != nil {
				return err
			}
			continue // unowned has made the step
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

// checked reads the body of the version v and compares the body with its checksum. checked counts the body as Checked,
// or as Unchecked if no checksum is known. A damaged body is added to the audit's findings.
func (a *audit) checked(ctx context.Context, v *audited) error {
	err := a.b.checkBody(ctx, v.key, v.id, v.r, a.pace)
	switch {
	case err == nil:
		a.part.Checked++
	case errors.Is(err, errNoSum):
		a.part.Unchecked++
	case errors.Is(err, errBodyDamaged):
		if _, err := a.b.version(ctx, v.key, v.id); err != nil {
			if errors.Is(err, listing.ErrNotFound) {
				return nil
			}
			return err
		}
		a.found(care.DamagedBody, v.key, v.id, v.name, -1, v.r.size)
	case store.KindOf(err) != store.Corrupt: // else the body is lost, which compare has found already
		return err
	}
	return nil
}

// sortedNames returns the keys of m in ascending order.
func sortedNames(m map[string]int64) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// wants returns the blobs that the version v must have: a map from the name of each blob to its size in bytes. The map
// is nil if the version has no blobs, because it is deleted or its body is in its row.
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
		want[a.b.partName(v.key, v.r.bodies(v.id), p.number, p.id)] = p.size
	}
	if name, ok := a.b.listName(v.key, v.id, v.r); ok {
		want[name] = int64(len(encodeManifest(pieces)))
	}
	return want, nil
}

// noList is passed to the method lost in place of a blob's right size, if that size is unknown. It is unknown if the
// list of a version's parts is lost or damaged.
const noList = -2

// lost decides whether a blob that seems to be missing, or to have a wrong size, is a fault. An audit reads rows and
// blobs while they change, so lost looks a second time. name is the blob's name, v the version that needs the blob, and
// want its right size in bytes. Nothing is wrong if v was deleted meanwhile, or if its upload was completed again.
// Otherwise lost adds the blob to the audit's findings.
func (a *audit) lost(ctx context.Context, v *audited, name string, want int64) error {
	now, err := a.b.version(ctx, v.key, v.id)
	if errors.Is(err, listing.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if want == noList {
		a.found(care.LostBody, v.key, v.id, name, -1, -1)
		return nil
	}
	if now.where != v.r.where || !bytes.Equal(now.body, v.r.body) {
		return nil // another completion of the upload has replaced the list
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
		a.found(care.LostBody, v.key, v.id, name, want, size)
	}
	return nil
}
