package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Complete makes one version of an object out of those parts of an upload that the client names. Of the parts named,
// only Number and ETag are used. Complete returns the version's metadata. It fails if the body of a part does not
// exist.
//
// If check is not nil, Complete calls check with the upload and these parts before it writes anything. check returns
// the checksums of the version, or nil to keep those that were given to CreateUpload. If check returns an error,
// Complete ends.
//
// A client that completes an upload again with the same ETags gets the answer of the first completion. Complete fails
// with ErrNoSuchUpload, ErrInvalidPart, ErrPartOrder, an error of check, or like Put. It fails with Conflict while
// another client completes the upload with other parts, or aborts the upload.
func (b *Bucket) Complete(
	ctx context.Context, key []byte, id UploadID, named []Part, check func(Upload, []Part) ([]Pair, error),
) (i Info, err error) {
	if len(named) == 0 || len(named) > care.MaxParts {
		return Info{}, store.Errorf(store.InvalidArgument, "a list of %d parts: 1 to %d", len(named), care.MaxParts)
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

// pauses are the times for which Complete and Abort wait before they try again to end an upload. The times are random,
// since two clients that try at the same time may disturb each other.
var pauses = wait.Backoff{First: 20 * time.Millisecond, Most: 320 * time.Millisecond, Jitter: 1}

// takeTurns repeats an attempt to complete or abort an upload while other clients try to end the same upload. It calls
// end, which makes one attempt, at most 5 times: again, after a random pause, if end fails with errUploadEnds.
func takeTurns(ctx context.Context, end func() error) error {
	const most = 5
	for failures := 1; ; failures++ {
		err := end()
		if !errors.Is(err, errUploadEnds) || failures == most || pauses.Sleep(ctx, failures) != nil {
			return err
		}
	}
}

// complete tries once to complete an upload. Complete calls it again if other clients try to end the upload at the same
// time.
func (b *Bucket) complete(
	ctx context.Context, key []byte, id UploadID, named []Part, check func(Upload, []Part) ([]Pair, error),
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
	wants := md5.New() // the hash that the claim has
	r.size, r.null = 0, !b.versioned
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
			return Info{}, errWrongSize
		}
	}
	wanted := claim(wants.Sum(nil))
	version, err := b.stampOf(ctx, key, id, wanted)
	if err != nil {
		return Info{}, err
	}
	if version != id.version() {
		wanted, r.home = wanted.at(version), id.version()
	}
	if check != nil {
		u := r.upload(key, id)
		u.Version = version
		sums, err := check(u, parts)
		if err != nil {
			return Info{}, err
		}
		if sums != nil {
			r.sums = sums
		}
	}
	if err := b.haveBodies(ctx, key, id.version(), pieces); err != nil {
		return Info{}, err
	}
	r.sumPieces(pieces, parts)
	r.etag = etagOf(sum.Sum(nil), len(named))
	if err := r.check(); err != nil {
		return Info{}, err
	}
	key = bytes.Clone(key)
	withdraw, err := b.claim(ctx, key, id, wanted, r.home, version, still)
	if err != nil {
		return Info{}, err
	}
	if err := b.list(ctx, key, id, r, pieces); err != nil {
		withdraw()
		return Info{}, err
	}
	if err := b.write(ctx, key, version, r, still); err != nil {
		if !errors.Is(err, listing.ErrOutcomeUnknown) {
			withdraw()
		}
		return Info{}, err
	}
	// The version decides. If this write fails, a cleaner ends the upload.
	_ = b.writeUpload(ctx, key, id, &record{rank: burned}, still)
	return r.info(key, version), nil
}

// stampOf returns the ID of the version that a completion of an upload is going to make. parts is a hash of the parts.
// The ID is the first of these that applies:
//
//   - the ID that another client uses, if that client has begun to complete the upload with the same parts. So both
//     clients make the same version;
//   - the upload's own ID, if older programs are running, which expect this ID, or if a clock was set back;
//   - a new ID.
func (b *Bucket) stampOf(ctx context.Context, key []byte, id UploadID, parts claim) (ID, error) {
	claims := append(uploadKey(key, id), claimSuffix)
	for q := (listing.Query{Prefix: claims, Limit: 100}); ; {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return ID{}, err
		}
		for _, item := range page.Items {
			at, err := parseUploadRow(item.Key)
			if err != nil {
				return ID{}, err
			}
			_, version, ok := decodeClaim(item.Value)
			switch {
			case !ok || at.claims == nil:
			case version.isZero() && *at.claims == parts:
				return id.version(), nil
			case !version.isZero() && *at.claims == parts.at(version):
				return version, nil
			}
		}
		if page.Next == "" {
			break
		}
		q.Token = page.Next
	}
	if !mapclient.Of(b.o.c).StampsCompletions() {
		return id.version(), nil
	}
	version, err := b.draw(ctx)
	if err == nil && version.Stamp <= id.Stamp { // a clock went back: became looks at newer versions only
		version = id.version()
	}
	return version, err
}

// haveBodies checks that the blobs of all given parts of an upload exist and have the right sizes. Otherwise it fails
// with ErrInvalidPart. Nothing deletes these blobs while the upload is open. The check is a safeguard, so that no
// object without a body is acknowledged.
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

// etagOf returns the ETag of a version in parts: the given MD5 of the MD5s of its parts, a hyphen, and the number of
// parts.
func etagOf(sum []byte, parts int) string { return fmt.Sprintf("%x-%d", sum, parts) }

// list stores the manifest of a version, which is the list of its parts, pieces. The manifest becomes the body in the
// record r. If the manifest is longer than mostInline (8 KiB), it is stored as a blob, and r gets the ID of the blob.
func (b *Bucket) list(ctx context.Context, key []byte, id UploadID, r *record, pieces []piece) error {
	r.where, r.body = inParts, encodeManifest(pieces)
	if len(r.body) <= mostInline {
		return nil
	}
	stamp, err := door.Client(b.o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	at, all := newID(stamp), r.body // the ID is new, since two completions have two lists
	r.where, r.body = inListedParts, at.append(binary.AppendUvarint(nil, uint64(len(pieces))))
	err = b.o.blobs.Create(ctx, b.partName(key, id.version(), 0, at), bytes.NewReader(all), int64(len(all)))
	return store.Wrap("store the list of parts", err)
}

// completed returns the metadata of the version that an upload has become, for a client that completes the upload
// again. It fails with ErrNoSuchUpload if readers see no version that was made of the parts named.
func (b *Bucket) completed(ctx context.Context, key []byte, id UploadID, named []Part) (Info, error) {
	became, err := b.became(ctx, key, id.version())
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
	for _, v := range became {
		if v.r.rank.Seen() && v.r.etag == etagOf(sum.Sum(nil), len(named)) {
			return v.r.info(bytes.Clone(key), v.id), nil
		}
	}
	return Info{}, ErrNoSuchUpload
}

// stored is a version of an object together with its decoded row: the version's ID and its record.
type stored struct {
	id ID
	r  *record
}

// became returns all versions of an object whose blobs have the ID home in their names, the newest first. These are the
// version with the ID home itself, and newer versions with this record.home. Mostly there is one. There may be several
// if home is the ID of an upload: two data centres that were cut off from each other may both have completed the
// upload. became fails with Corrupt if a newer version can't be read, since that version may be one of them.
func (b *Bucket) became(ctx context.Context, key []byte, home ID) (found []stored, err error) {
	own := rowKey(key, home)
	q := listing.Query{Prefix: groupOf(key), To: append(bytes.Clone(own), tagsSuffix), Limit: 100}
	q.Sift = func(e listing.Entry) listing.Sifted {
		return listing.Sifted{Hidden: !bytes.Equal(e.Key, own) && !mayHaveHome(e, home)}
	}
	for {
		page, err := b.rows.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			at, err := parseRow(item.Key)
			if err != nil {
				return nil, err
			}
			if at.beside() {
				continue
			}
			r, err := decode(item.Value)
			if err != nil {
				return nil, store.Wrap("version "+at.id.String(), err)
			}
			found = append(found, stored{at.id, r})
		}
		if page.Next == "" {
			return found, nil
		}
		q.Token = page.Next
	}
}

// mayHaveHome reports whether the row e may contain a version whose blobs have the ID home in their names. It returns
// true for a row that can't be read.
func mayHaveHome(e listing.Entry, home ID) bool {
	if of, ok := homeIn(e.Value); ok {
		return of == home
	}
	if _, err := decodeHead(e.Value); err == nil && e.Value[1] < recordVersion {
		return false
	}
	at, err := parseRow(e.Key)
	return err != nil || !at.beside()
}

// claim announces how a client is going to end an upload: with a version of certain parts, or without a version. The
// announcement is a row. claim fails with errUploadEnds if another client has announced another end. Of two clients
// that announce different ends at the same time, at most one succeeds (docs/objects.md, rule 12).
//
// c is a hash of the parts, and version the ID of the version. If home is zero, the version has the upload's own ID, or
// there is no version. The func named still reports whether there is time left. Once it returns false, the row is not
// sent any more.
//
// The result withdraw deletes the row. The caller calls it if it does not end the upload after all. If the outcome of
// the caller's own later write is unknown, the caller does not call it.
func (b *Bucket) claim(
	ctx context.Context, key []byte, id UploadID, c claim, home, version ID, still func() bool,
) (withdraw func(), err error) {
	stamp, err := door.Client(b.o.c).Stamps(ctx, 1)
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
	if !home.isZero() {
		value = version.append(value)
	}
	err = door.Bucket(b.rows).PutAt(ctx, own, value, door.Given{At: stamp, Still: still})
	if err == nil {
		err = b.unopposed(ctx, all, wanted)
	}
	if err != nil {
		withdraw()
		return nil, err
	}
	return withdraw, nil
}

// unopposed fails with errUploadEnds if another client is going to end the upload in another way. Clients announce how
// they end an upload by writing a row. The parameter all has the first bytes of the keys of all these rows. The
// parameter wanted has the first bytes of the keys of those rows that announce the same end as this client.
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
			return errUploadEnds
		case page.Next == "":
			return nil
		}
		q.Token = page.Next
	}
}

// claimVersion is the first byte of the value of a claim. A claim is a row by which a client announces how it wants to
// end an upload. The time of the claim follows. If the version that the client wants to make has another ID than the
// upload, the version's ID comes last.
const claimVersion = 1

// decodeClaim decodes the value of a claim, the row by which a client announces how it is going to end an upload. The
// results are
//
//   - at: the time of the claim;
//   - version: the ID of the version that the client is going to make. It is zero if that is the upload's own ID, or if
//     there will be no version;
//   - ok: false if value is not a claim.
func decodeClaim(value []byte) (at store.Timestamp, version ID, ok bool) {
	if len(value) < 9 || value[0] != claimVersion {
		return 0, ID{}, false
	}
	at = store.Timestamp(binary.BigEndian.Uint64(value[1:])) //nolint:gosec // any
	if len(value) == 9 {
		return at, ID{}, true
	}
	version, ok = parseID(value[9:])
	return at, version, ok
}

// Abort ends an upload without making a version of an object. It fails with ErrNoSuchUpload if the upload is not open,
// with Conflict if another client is ending the upload, or like Put.
func (b *Bucket) Abort(ctx context.Context, key []byte, id UploadID) error {
	b, err := b.pinned(ctx)
	if err != nil {
		return err
	}
	return takeTurns(ctx, func() error { return b.abort(ctx, key, id) })
}

// abort tries once to abort an upload. Abort calls it again if other clients try to end the upload at the same time.
func (b *Bucket) abort(ctx context.Context, key []byte, id UploadID) error {
	still := b.o.deadline(writeTimeout)
	if _, err := b.openUpload(ctx, key, id); err != nil {
		return err
	}
	withdraw, err := b.claim(ctx, key, id, aborts, ID{}, ID{}, still)
	if errors.Is(err, errUploadEnds) {
		became, err := b.became(ctx, key, id.version())
		switch seen := func(v stored) bool { return v.r.rank.Seen() }; {
		case err != nil:
			return err
		case !slices.ContainsFunc(became, seen):
			return errUploadEnds
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
