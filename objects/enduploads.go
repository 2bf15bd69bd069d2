package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Complete makes a version of the named parts. check, if not nil, sees them, and the upload, before anything is
// written: it returns the checksums of the version (nil: those of CreateUpload), or an error, with which Complete
// fails. Then it looks whether the bodies of the parts are there. Whoever completes an upload again with the same ETags
// gets the answer of the first completion. It fails with ErrNoSuchUpload, ErrInvalidPart, ErrPartOrder, ErrUploadEnds,
// an error of check, or like Put.
func (b *Bucket) Complete(
	ctx context.Context, key []byte, id UploadID, named []NamedPart, check func(Upload, []Part) ([]Pair, error),
) (i Info, err error) {
	if len(named) == 0 || len(named) > MaxParts {
		return Info{}, store.Errorf(store.InvalidArgument, "a list of %d parts: 1 to %d", len(named), MaxParts)
	}
	if !inOrder(named) {
		return Info{}, ErrPartOrder
	}
	if b, err = b.pinned(ctx); err != nil {
		return Info{}, err
	}
	err = takeTurns(ctx, func() error {
		i, err = b.complete(ctx, key, id, named, check)
		return err
	})
	return i, err
}

// pauses are between the tries to end an upload, of which two may disturb each other.
var pauses = wait.Backoff{First: 20 * time.Millisecond, Most: 320 * time.Millisecond, Jitter: 1}

// takeTurns tries some times to end an upload, while others try, too.
func takeTurns(ctx context.Context, end func() error) error {
	const most = 5
	for failures := 1; ; failures++ {
		err := end()
		if !errors.Is(err, ErrUploadEnds) || failures == most || pauses.Sleep(ctx, failures) != nil {
			return err
		}
	}
}

// complete is one try of Complete.
func (b *Bucket) complete(
	ctx context.Context, key []byte, id UploadID, named []NamedPart, check func(Upload, []Part) ([]Pair, error),
) (Info, error) {
	still := b.o.deadline(writeTimeout)
	r, err := b.openUpload(ctx, key, id)
	if errors.Is(err, ErrNoSuchUpload) {
		return b.completed(ctx, key, id, named)
	}
	if err != nil {
		return Info{}, err
	}
	found, err := b.allParts(ctx, key, id)
	if err != nil {
		return Info{}, err
	}
	pieces, parts, sum := make([]piece, len(named)), make([]Part, len(named)), md5.New()
	wants := md5.New() // of the claim
	r.size = 0
	for i, n := range named {
		p := found[n.Number]
		if p == nil || hexOf(p.md5) != n.ETag {
			return Info{}, ErrInvalidPart
		}
		own, err := decodeManifest(p.body, p.size)
		if err != nil || len(own) != 1 {
			return Info{}, store.Wrap(fmt.Sprintf("part %d", n.Number), damagedManifest(p.body))
		}
		pieces[i], parts[i] = own[0], p.part(n.Number, own[0].id)
		_, _ = sum.Write(p.md5)
		_, _ = wants.Write(binary.BigEndian.AppendUint16(nil, uint16(n.Number))) //nolint:gosec // checked
		_, _ = wants.Write(p.md5)
		if r.size += p.size; r.size < 0 {
			return Info{}, ErrWrongSize
		}
	}
	if check != nil {
		sums, err := check(r.upload(key, id), parts)
		if err != nil {
			return Info{}, err
		}
		if sums != nil {
			r.sums = sums
		}
	}
	if err := b.haveBodies(ctx, key, id.Version(), pieces); err != nil {
		return Info{}, err
	}
	r.sumPieces(pieces, parts)
	r.etag = etagOf(sum.Sum(nil), len(named))
	if err := r.check(); err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	withdraw, err := b.claim(ctx, key, id, claim(wants.Sum(nil)), still)
	if err != nil {
		return Info{}, err
	}
	if err := b.list(ctx, key, id, r, pieces); err != nil {
		withdraw()
		return Info{}, err
	}
	if err := b.write(ctx, key, id.Version(), r, still); err != nil {
		if !errors.Is(err, listing.ErrOutcomeUnknown) {
			withdraw()
		}
		return Info{}, err
	}
	// The version decides. A cleaner ends what stays open here.
	_ = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
	return r.info(key, id.Version()), nil
}

// haveBodies fails with ErrInvalidPart where the body of a part is not there, or has another size. Nothing deletes
// it while the upload is open; but who acknowledges an object should have seen that it is whole.
func (b *Bucket) haveBodies(ctx context.Context, key []byte, version ID, pieces []piece) error {
	missing := make(map[string]*piece, len(pieces))
	for i := range pieces {
		missing[b.partName(key, version, pieces[i].number, pieces[i].id)] = &pieces[i]
	}
	err := b.o.blobs.List(ctx, b.blobName(key, version)+"/", "", func(name string, size int64) error {
		if p := missing[name]; p != nil && p.size == size {
			delete(missing, name)
		}
		return nil
	})
	if err != nil {
		return store.Wrap("look at the bodies of the parts", err)
	}
	for _, p := range missing {
		return fmt.Errorf("%w: the body of part %d is lost, upload it again", ErrInvalidPart, p.number)
	}
	return nil
}

func etagOf(sum []byte, parts int) string { return fmt.Sprintf("%x-%d", sum, parts) }

// list puts the list of parts into a record, or into a blob that it names.
func (b *Bucket) list(ctx context.Context, key []byte, id UploadID, r *record, pieces []piece) error {
	r.where, r.body = inParts, encodeManifest(pieces)
	if len(r.body) <= mostInline {
		return nil
	}
	stamp, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	at, all := newID(stamp), r.body // two completions have lists of their own
	r.where, r.body = inListedParts, at.append(binary.AppendUvarint(nil, uint64(len(pieces))))
	err = b.o.blobs.Create(ctx, b.partName(key, id.Version(), 0, at), bytes.NewReader(all), int64(len(all)))
	return store.Wrap("store the list of parts", err)
}

// completed answers as the completion did that ended an upload.
func (b *Bucket) completed(ctx context.Context, key []byte, id UploadID, named []NamedPart) (Info, error) {
	r, err := b.version(ctx, key, id.Version())
	if errors.Is(err, ErrNotFound) {
		return Info{}, ErrNoSuchUpload
	}
	if err != nil {
		return Info{}, err
	}
	sum := md5.New()
	for _, n := range named {
		own, err := hex.DecodeString(n.ETag)
		if err != nil {
			return Info{}, ErrInvalidPart
		}
		_, _ = sum.Write(own)
	}
	if r.etag != etagOf(sum.Sum(nil), len(named)) {
		return Info{}, ErrNoSuchUpload
	}
	return r.info(bytes.Clone(key), id.Version()), nil
}

// claim says what shall become of an upload. It fails with ErrUploadEnds where others want something else:
// then they or this one go on, but not both (docs/objects.md, rule 12). Whoever has a claim and does nothing
// withdraws it: so the next who tries is alone. It stays for good once a write was sent whose outcome is unknown.
func (b *Bucket) claim(
	ctx context.Context, key []byte, id UploadID, c claim, still func() bool,
) (withdraw func(), err error) {
	stamp, err := b.o.c.Stamps(ctx, 1)
	if err != nil {
		return nil, err
	}
	all := append(uploadKey(key, id), claimSuffix)
	wanted := append(bytes.Clone(all), c[:]...)
	own := newID(stamp).append(bytes.Clone(wanted))
	withdraw = func() {
		// If that fails, a cleaner ends the upload.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = b.rows.Delete(ctx, own)
	}
	value := binary.BigEndian.AppendUint64([]byte{claimVersion}, uint64(stamp))
	err = b.rows.PutAt(ctx, own, value, listing.Given{At: stamp, Still: still})
	if err == nil {
		err = b.unopposed(ctx, all, wanted)
	}
	if err != nil {
		withdraw()
		return nil, err
	}
	return withdraw, nil
}

// unopposed fails with ErrUploadEnds where one of all claims is for something else than what is wanted.
func (b *Bucket) unopposed(ctx context.Context, all, wanted []byte) error {
	q := listing.Query{Prefix: all, Limit: 1, Sift: func(e listing.Entry) listing.Sifted {
		return listing.Sifted{Hidden: bytes.HasPrefix(e.Key, wanted)}
	}}
	for {
		page, err := b.rows.List(ctx, q)
		switch {
		case err != nil:
			return err
		case len(page.Items) > 0:
			return ErrUploadEnds
		case page.Next == "":
			return nil
		}
		q.Token = page.Next
	}
}

// claimVersion is the first byte of a claim's value; the time of the claim follows.
const claimVersion = 1

// Abort ends an upload without a version. It fails with ErrNoSuchUpload, ErrUploadEnds or like Put.
func (b *Bucket) Abort(ctx context.Context, key []byte, id UploadID) error {
	b, err := b.pinned(ctx)
	if err != nil {
		return err
	}
	return takeTurns(ctx, func() error { return b.abort(ctx, key, id) })
}

// abort is one try of Abort.
func (b *Bucket) abort(ctx context.Context, key []byte, id UploadID) error {
	still := b.o.deadline(writeTimeout)
	if _, err := b.openUpload(ctx, key, id); err != nil {
		return err
	}
	withdraw, err := b.claim(ctx, key, id, aborts, still)
	if errors.Is(err, ErrUploadEnds) {
		_, err := b.version(ctx, key, id.Version())
		switch {
		case errors.Is(err, ErrNotFound):
			return ErrUploadEnds
		case err != nil:
			return err
		}
		// It was completed, but is still open.
		_ = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
		return ErrNoSuchUpload
	}
	if err != nil {
		return err
	}
	err = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
	if err != nil && !errors.Is(err, listing.ErrOutcomeUnknown) {
		withdraw()
	}
	return err
}
