package objects

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"errors"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// uploadMember is the multipart upload that a cleaner is looking at, with the contents of its rows.
type uploadMember struct {
	key  []byte
	id   UploadID
	what tidy.Upload
	null bool
	// versions are the IDs of the versions that clients have begun to make from the upload.
	versions []ID
	// damaged is true if the upload's own row can't be read, so that the cleaner can't tell whether the upload is open.
	// Then the cleaner does nothing to the upload.
	damaged bool
	// proofs are the times at which the end of the upload was known to be acknowledged. The versions that the upload
	// had become may differ from time to time: the index of the map is a hash of them (hashOf).
	proofs map[claim]store.Timestamp
}

// uploads looks at all multipart uploads of the bucket, and takes the step that each needs now, e.g. aborts an
// abandoned upload. The parameter now is the time of the pass. uploads adds what it has found and done to the counts in
// done.
func (c *cleaner) uploads(ctx context.Context, now store.Timestamp, done *care.Cleaned) error {
	q := listing.Query{Limit: 1000, Prefix: uploadsBegin, Sift: sumUp}
	var u *uploadMember
	still := c.b.o.deadline(writeTimeout)
	flush := func() {
		if u != nil && !u.damaged && ctx.Err() == nil {
			c.upload(ctx, u, still, done)
		}
		u = nil
	}
	for {
		read := c.b.o.deadline(writeTimeout)
		if _, err := c.learn(ctx); err != nil {
			return err
		}
		page, err := c.b.rows.List(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			at, err := parseUploadRow(item.Key)
			if err != nil {
				done.Damaged++
				continue
			}
			if u == nil || u.id != at.id || !bytes.Equal(u.key, at.key) {
				flush()
				still = read
				u = &uploadMember{key: bytes.Clone(at.key), id: at.id}
				u.what.Claimed = -1
				u.what.Age = age(now, at.id.Stamp)
			}
			switch {
			case at.own():
				r, err := decode(item.Value)
				if err != nil {
					done.Damaged++
					u.damaged = true
					continue
				}
				u.what.Open, u.null = r.rank == live, r.null
			case at.claims == nil:
			default:
				if claimed, version, ok := decodeClaim(item.Value); ok {
					d := max(age(now, claimed), 0)
					if u.what.Claimed < 0 || d < u.what.Claimed {
						u.what.Claimed = d
					}
					if version.isZero() {
						version = u.id.version()
					}
					if *at.claims != aborts && !slices.Contains(u.versions, version) {
						u.versions = append(u.versions, version)
					}
				} else if proof, ok := decodeProof(item.Value); ok {
					if u.proofs == nil {
						u.proofs = map[claim]store.Timestamp{}
					}
					u.proofs[*at.claims] = proof
				}
			}
		}
		if page.Next == "" {
			flush()
		}
		if err := c.pace(ctx, len(page.Items), done); err != nil || page.Next == "" {
			return err
		}
		q.Token = page.Next
	}
}

// sumUp is a filter for listing the rows of uploads. It shows only one of the rows for the parts of each upload, as the
// reader needs to know only whether there are parts. All other rows are shown.
func sumUp(e listing.Entry) listing.Sifted {
	at, err := parseUploadRow(e.Key)
	if err != nil || at.part == 0 {
		return listing.Sifted{}
	}
	return listing.Sifted{Pass: len(at.group) + 1}
}

// age returns the time from the timestamp `of` to the timestamp now. The result is negative if `of` is later than now.
func age(now, of store.Timestamp) time.Duration { return time.Duration(now-of) * time.Microsecond }

// upload takes the step that is due for the upload u, if any, such as its end or the removal of its rows. It adds the
// step to the counts in done. The func named still reports whether there is time left. Once it returns false, upload
// writes no row any more, and does not delete the upload's own row. Useless blobs, and rows of parts, may still be
// deleted.
func (c *cleaner) upload(ctx context.Context, u *uploadMember, still func() bool, done *care.Cleaned) {
	step, err := c.doUpload(ctx, u, still)
	if err != nil {
		done.Fail(store.Wrap(step.String()+" upload "+u.id.String(), err))
		return
	}
	switch step {
	case tidy.Settle:
		done.Ended++
		done.Remembered++
	case tidy.Free, tidy.Finish:
		done.Freed++
	default:
		if u.what.Proven >= 0 {
			done.Remembered++
		}
	}
}

// doUpload decides which step is due for the upload u, and takes this step. The result is the step, or 0 if no step was
// taken. If the step fails, doUpload returns the step together with the error.
func (c *cleaner) doUpload(ctx context.Context, u *uploadMember, still func() bool) (step tidy.Do, err error) {
	u.what.Proven, u.what.VersionProven = -1, -1
	var seen []stored
	var strays []ID // versions that claims name, or that were burned, and that are not seen
	if u.what.Open && u.what.Claimed >= 0 || len(u.proofs) > 0 {
		if seen, strays, err = c.versionsOf(ctx, u); err != nil {
			return 0, err
		}
		if proof, ok := u.proofs[hashOf(u.id.version(), seen)]; ok {
			u.what.Proven = c.clock.since(proof)
		}
		if u.what.Strays = len(strays) > 0; u.what.Proven >= 0 && u.what.Strays {
			if u.what.VersionProven, err = c.provenVersions(ctx, u.key, strays); err != nil {
				return 0, err
			}
		}
	}
	step = tidy.DecideUpload(u.what, c.rules(u.key, nil))
	of := u.id.version()
	if len(seen) > 0 {
		of = seen[0].id
	}
	if step == 0 || !c.may(step, u.key, of) {
		return 0, nil
	}
	if stale, err := c.stale(ctx); err != nil || stale {
		return 0, err
	}
	switch step {
	case tidy.Settle:
		err = c.settle(ctx, u, still)
	case tidy.Condemn:
		for i := 0; i < len(strays) && err == nil; i++ {
			err = c.condemn(ctx, u.key, u.stray(strays[i]), still)
		}
		if c.o.Later != nil { // passes over objects delete the stray, if the upload has become another version
			c.o.Later(u.key, c.o.Grace+clockSlack)
		}
	case tidy.Free:
		listed := map[string]bool{}
		for i := 0; i < len(seen) && err == nil; i++ {
			err = c.listed(ctx, u.key, &seen[i], listed)
		}
		if err == nil {
			err = c.b.deleteParts(ctx, u.key, u.id.version(), listed)
		}
		if err == nil {
			err = c.freeRows(ctx, u, still)
		}
	case tidy.Finish:
		err = c.b.deleteParts(ctx, u.key, u.id.version(), nil)
		for i := 0; i < len(strays) && err == nil; i++ {
			err = c.remove(ctx, u.key, u.stray(strays[i]), still)
		}
		if err == nil {
			err = c.freeRows(ctx, u, still)
		}
	}
	return step, err
}

// stray returns a stand-in for a version that the upload may have become, but that no reader can see. The stand-in has
// the given ID and the state deleted. With it a cleaner deletes whatever rows and blobs of the version exist.
func (u *uploadMember) stray(id ID) *member {
	v := &member{id: id, what: tidy.Version{Note: true}, ash: &record{rank: burned, where: inParts, null: u.null}}
	if id != u.id.version() {
		v.ash.home = u.id.version()
	}
	return v
}

// versionsOf returns the versions that the upload u has become or may still become, and sets u.what.Version. The
// results are
//
//   - seen: the versions that readers can see, the newest first;
//   - strays: the IDs of all others, which are deleted or which a client has begun to make.
//
// If there are none at all, strays has the upload's own ID. So seen and strays are never both empty.
func (c *cleaner) versionsOf(ctx context.Context, u *uploadMember) (seen []stored, strays []ID, err error) {
	all, err := c.b.became(ctx, u.key, u.id.version())
	if err != nil {
		return nil, nil, err
	}
	strays = slices.Clone(u.versions)
	for _, v := range all {
		at := slices.Index(strays, v.id)
		switch {
		case v.r.rank.Seen():
			seen = append(seen, v)
			if at >= 0 {
				strays = slices.Delete(strays, at, at+1)
			}
		case at < 0:
			strays = append(strays, v.id)
		}
	}
	if len(seen)+len(strays) == 0 {
		strays = append(strays, u.id.version())
	}
	for _, v := range seen {
		u.what.Version = max(u.what.Version, v.r.rank)
	}
	for _, v := range seen {
		u.what.Version = min(u.what.Version, v.r.rank) // Live, if one of them is live
	}
	return seen, strays, nil
}

// provenVersions returns how long ago the deletion of all given versions was known to be acknowledged by all data
// centres. The version with the latest acknowledgement decides. The result is negative if for one of the versions no
// acknowledgement is known.
func (c *cleaner) provenVersions(ctx context.Context, key []byte, ids []ID) (least time.Duration, err error) {
	for i, id := range ids {
		proven, err := c.provenVersion(ctx, key, id)
		if err != nil || proven < 0 {
			return -1, err
		}
		if i == 0 || proven < least {
			least = proven
		}
	}
	return least, nil
}

// provenVersion returns how long ago the deletion of a version was known to be acknowledged by all data centres. The
// time is in a row beside the version. The result is negative if this row does not exist.
func (c *cleaner) provenVersion(ctx context.Context, key []byte, id ID) (time.Duration, error) {
	e, err := c.b.rows.Get(ctx, append(rowKey(key, id), noteSuffix))
	if errors.Is(err, listing.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	if proof, ok := decodeProof(e.Value); ok {
		return c.clock.since(proof), nil
	}
	return -1, nil
}

// hashOf returns a hash of the versions that an upload has become and that readers can see. It covers their states,
// lists of parts and IDs. A cleaner stores the hash in its record that the upload has ended. Once the hash is another,
// the record does not count. The hash is zero if there is no such version.
func hashOf(upload ID, seen []stored) (sum claim) {
	var all []byte
	for _, v := range seen {
		all = append(append(all, byte(v.r.rank)), v.r.body...)
		if v.id != upload {
			all = v.id.append(all)
		}
	}
	if len(all) == 0 {
		return sum
	}
	return md5.Sum(all)
}

// settle ends the upload u in three steps:
//
//   - It ends the upload, so that no client can begin to complete the upload any more.
//   - It writes the versions that the upload has become again, with the state kept, so that no cleaner deletes them.
//   - It writes a row with the time at which the end was known to be acknowledged.
//
// The func named still reports whether there is time left. Once it returns false, settle writes nothing more.
func (c *cleaner) settle(ctx context.Context, u *uploadMember, still func() bool) error {
	if err := c.b.writeUpload(ctx, u.key, u.id, &record{rank: burned, null: u.null}, still); err != nil {
		return err
	}
	seen, _, err := c.versionsOf(ctx, u)
	if err != nil {
		return err
	}
	for _, v := range seen {
		v.r.rank = kept
		if err := c.b.write(ctx, u.key, v.id, v.r, still); err != nil {
			return err
		}
	}
	return c.prove(ctx, proofKey(u.key, u.id, hashOf(u.id.version(), seen)), still)
}

// condemn deletes in advance the version v, which an upload could have become but has not. So v can't appear later,
// when its blobs are gone (docs/objects.md, rule 7). First condemn writes a note, which tells other cleaners that v
// seems to be missing. If v has appeared meanwhile, v stays. The func named still reports whether there is time left.
// Once it returns false, condemn writes nothing more.
func (c *cleaner) condemn(ctx context.Context, key []byte, v *member, still func() bool) error {
	note := append(rowKey(key, v.id), noteSuffix)
	stamp, err := door.Client(c.b.o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	g := door.Given{At: stamp, Still: still}
	if err := door.Bucket(c.b.rows).PutAt(ctx, note, []byte{noteVersion}, g); err != nil {
		return err
	}
	if _, err := c.b.version(ctx, key, v.id); !errors.Is(err, listing.ErrNotFound) {
		return err // nil: the version has come meanwhile
	}
	return c.burn(ctx, key, v, still)
}

// noteVersion is the value of a note. A note is a row by which a cleaner says that a version seems to be missing. The
// row is beside that of the version.
const noteVersion = 1

// deleteParts deletes the blobs with the parts of a version or an upload, whose ID is id. The blobs named in listed
// stay. If a blob can't be deleted, deleteParts goes on with the other blobs, and returns the first error. If allThere
// finds that listed may be wrong, deleteParts deletes nothing.
func (b *Bucket) deleteParts(ctx context.Context, key []byte, id ID, listed map[string]bool) error {
	if err := b.allThere(ctx, key, id, listed); err != nil {
		return err
	}
	var first error
	err := b.o.blobs.List(ctx, b.blobName(key, id)+"/", "", func(name string, _ int64) error {
		if _, needed := listed[name]; needed {
			return nil
		}
		first = cmp.Or(first, b.o.blobs.Delete(ctx, name))
		return ctx.Err()
	})
	return cmp.Or(first, err)
}

// allThere is a safeguard before useless parts of a version are deleted: it fails with Corrupt if the list of useful
// parts seems to be wrong. Then the caller must delete no blob of the version.
//
// listed has the names of all blobs that the version id needs. The value is true for a list of parts that is a blob
// itself, and for the names in such a list. This list may be damaged without an error, and then names blobs that do not
// exist. So allThere checks that all blobs with the value true exist.
func (b *Bucket) allThere(ctx context.Context, key []byte, id ID, listed map[string]bool) error {
	want, there := 0, 0
	for _, inBlob := range listed {
		if inBlob {
			want++
		}
	}
	if want == 0 {
		return nil
	}
	err := b.o.blobs.List(ctx, b.blobName(key, id)+"/", "", func(name string, _ int64) error {
		if listed[name] {
			there++
		}
		return ctx.Err()
	})
	if err == nil && there < want {
		err = store.Errorf(store.Corrupt, "%d of %d parts of %s are not there, or the list of them is damaged: no part is "+
			"deleted; restore them, or delete the version", want-there, want, id)
	}
	return err
}

// listed adds the names of all blobs of the version v to the map names, if v was uploaded in parts. These are the blobs
// of the parts and, unless it is in the row of v, the list of the parts. The value of each name is true if the list is
// a blob, and false if it is in the row.
func (c *cleaner) listed(ctx context.Context, key []byte, v *stored, names map[string]bool) error {
	if v.r.parts() == 0 {
		return nil
	}
	list, err := c.b.pieces(ctx, key, v.id, v.r)
	if err != nil {
		return err
	}
	for _, p := range list {
		name := c.b.partName(key, v.r.bodies(v.id), p.number, p.id)
		names[name] = names[name] || v.r.where == inListedParts // another version may list the part, too
	}
	if name, ok := c.b.listName(key, v.id, v.r); ok {
		names[name] = true
	}
	return nil
}

// apart reports what a cleaner may remove of the version v. v was uploaded in parts and then deleted, and its time of
// grace for readers is over. The results are
//
//   - alone and done, if no other version needs the blobs: the blobs may be deleted, and then the rows;
//   - only done, if a visible or an older version needs the blobs: only the rows may be removed;
//   - neither, if the cleaner has to wait: a newer deleted version with the same blobs must be removed first, or the
//     upload may still become another version.
func (c *cleaner) apart(ctx context.Context, key []byte, v *member) (alone, done bool, err error) {
	// The upload may still become another version as long as it has rows, except if it has ended and no client has
	// begun to make another version from it (onlyBecame).
	upload := v.ash.bodies(v.id)
	_, err = c.b.rows.Get(ctx, uploadKey(key, UploadID(upload)))
	if err == nil {
		over, err := c.onlyBecame(ctx, key, UploadID(upload), v.id)
		if err != nil || !over {
			return false, false, err
		}
	} else if !errors.Is(err, listing.ErrNotFound) {
		return false, false, err
	}
	became, err := c.b.became(ctx, key, upload)
	if err != nil {
		return false, false, err
	}
	alone, done = true, true
	for _, other := range became {
		switch {
		case other.id == v.id:
		case other.r.rank.Seen() || other.id.String() > v.id.String(): // the blobs are left to the other version
			return false, true, nil
		default:
			done = false // the other version is newer, and goes first
		}
	}
	return alone && done, done, nil
}

// onlyBecame reports whether version is the only version that an upload can have become. This is so if, by the upload's
// rows, the upload has ended and no client has begun to make another version from it.
func (c *cleaner) onlyBecame(ctx context.Context, key []byte, upload UploadID, version ID) (bool, error) {
	ended := version == upload.version() // passes have always deleted the blobs of such a version at once
	for q := (listing.Query{Prefix: append(uploadKey(key, upload), claimSuffix), Limit: 100}); ; {
		page, err := c.b.rows.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, item := range page.Items {
			at, err := parseUploadRow(item.Key)
			if err != nil || at.claims == nil {
				return false, err
			}
			_, claimed, ok := decodeClaim(item.Value)
			if claimed.isZero() {
				claimed = upload.version()
			}
			if ok && *at.claims != aborts && claimed != version {
				return false, nil
			}
			proof, ok := decodeProof(item.Value)
			ended = ended || ok && c.clock.since(proof) >= care.SoonGrace
		}
		if page.Next == "" {
			return ended, nil
		}
		q.Token = page.Next
	}
}

// freeRows deletes the rows of the upload u. The row that says whether the upload is open is deleted last. The func
// named still reports whether there is time left. Once it returns false, that last row is not deleted any more; the
// others may be.
func (c *cleaner) freeRows(ctx context.Context, u *uploadMember, still func() bool) error {
	own := uploadKey(u.key, u.id)
	q := listing.Query{Prefix: own, After: own, KeysOnly: true}
	for {
		page, err := c.b.rows.List(ctx, q)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := c.b.rows.Delete(ctx, item.Key); err != nil {
				return err
			}
		}
		if page.Next == "" {
			break
		}
		q.Token = page.Next
	}
	return door.Bucket(c.b.rows).DeleteAt(ctx, own, door.Given{At: ID(u.id).at(gone), Still: still})
}
