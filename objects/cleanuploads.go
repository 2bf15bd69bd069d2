package objects

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// uploadMember is an upload under a cleaner's eyes.
type uploadMember struct {
	key  []byte
	id   UploadID
	what tidy.Upload
	null bool
	// damaged: its own row can't be read, so nobody knows whether it is open. Nothing is done with it.
	damaged bool
	// proofs are when its end was acknowledged, by what its version was then: the hash of its record, once it was kept.
	proofs map[claim]store.Timestamp
}

// uploads looks at all uploads, and does what is due.
func (c *Cleaner) uploads(ctx context.Context, now store.Timestamp, done *Cleaned) error {
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
			case len(item.Value) == 9 && item.Value[0] == claimVersion:
				d := max(age(now, store.Timestamp(binary.BigEndian.Uint64(item.Value[1:]))), 0) //nolint:gosec // any
				if u.what.Claimed < 0 || d < u.what.Claimed {
					u.what.Claimed = d
				}
			default:
				if proof, ok := decodeProof(item.Value); ok {
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

// sumUp shows one part of each upload: it says that there are parts.
func sumUp(e listing.Entry) listing.Sifted {
	at, err := parseUploadRow(e.Key)
	if err != nil || at.part == 0 {
		return listing.Sifted{}
	}
	return listing.Sifted{Pass: len(at.group) + 1}
}

func age(now, of store.Timestamp) time.Duration { return time.Duration(now-of) * time.Microsecond }

// upload does what is due for an upload.
func (c *Cleaner) upload(ctx context.Context, u *uploadMember, still func() bool, done *Cleaned) {
	step, err := c.doUpload(ctx, u, still)
	if err != nil {
		done.fail(store.Wrap(step.String()+" upload "+u.id.String(), err))
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

func (c *Cleaner) doUpload(ctx context.Context, u *uploadMember, still func() bool) (step tidy.Do, err error) {
	u.what.Proven, u.what.VersionProven = -1, -1
	var r *record
	if u.what.Open && u.what.Claimed >= 0 || len(u.proofs) > 0 {
		if r, err = c.anyVersion(ctx, u); err != nil {
			return 0, err
		}
		if r != nil {
			u.what.Version = r.rank
		}
		if proof, ok := u.proofs[hashOf(r)]; ok {
			u.what.Proven = c.clock.since(proof)
		}
		if u.what.Proven >= 0 && !u.what.Version.Seen() {
			if u.what.VersionProven, err = c.provenVersion(ctx, u.key, u.id.Version()); err != nil {
				return 0, err
			}
		}
	}
	step = tidy.DecideUpload(u.what, c.rules(u.key, nil))
	if step == 0 || !c.may(step, u.key, u.id.Version()) {
		return 0, nil
	}
	if stale, err := c.stale(ctx); err != nil || stale {
		return 0, err
	}
	v := &member{id: u.id.Version(), ash: &record{rank: burned, where: inParts, null: u.null}}
	switch step {
	case tidy.Settle:
		err = c.settle(ctx, u, still)
	case tidy.Condemn:
		err = c.condemn(ctx, u.key, v, still)
	case tidy.Free:
		var list []piece
		if list, err = c.b.pieces(ctx, u.key, v.id, r); err == nil {
			err = c.b.deleteParts(ctx, u.key, v.id, c.listed(u.key, v.id, r, list))
		}
		if err == nil {
			err = c.freeRows(ctx, u, still)
		}
	case tidy.Finish:
		v.what.Note = true
		if err = c.finish(ctx, u.key, v, still); err == nil {
			err = c.freeRows(ctx, u, still)
		}
	}
	return step, err
}

// anyVersion reads the row of an upload's version, which may be burned; nil: there is none.
func (c *Cleaner) anyVersion(ctx context.Context, u *uploadMember) (*record, error) {
	e, err := c.b.rows.Get(ctx, rowKey(u.key, u.id.Version()))
	if errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // none
	}
	if err != nil {
		return nil, err
	}
	return decode(e.Value)
}

// provenVersion returns how long ago the burning of a version was acknowledged; negative: that is not known.
func (c *Cleaner) provenVersion(ctx context.Context, key []byte, id ID) (time.Duration, error) {
	e, err := c.b.rows.Get(ctx, append(rowKey(key, id), noteSuffix))
	if errors.Is(err, ErrNotFound) {
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

// hashOf tells apart what a version may be for good: kept with a list of parts, or not seen.
func hashOf(r *record) (sum claim) {
	if r == nil || !r.rank.Seen() {
		return sum
	}
	return md5.Sum(append([]byte{byte(r.rank)}, r.body...))
}

// settle ends an upload, and keeps the version that it has become. From then on nobody begins to
// complete it.
func (c *Cleaner) settle(ctx context.Context, u *uploadMember, still func() bool) error {
	if err := c.b.writeUpload(ctx, u.key, u.id, &record{rank: burned, null: u.null}, still); err != nil {
		return err
	}
	r, err := c.anyVersion(ctx, u)
	if err != nil {
		return err
	}
	if r != nil && r.rank.Seen() {
		r.rank = kept
		if err := c.b.write(ctx, u.key, u.id.Version(), r, still); err != nil {
			return err
		}
	}
	return c.prove(ctx, proofKey(u.key, u.id, hashOf(r)), still)
}

// condemn burns the version that an upload has not become (rule 7).
func (c *Cleaner) condemn(ctx context.Context, key []byte, v *member, still func() bool) error {
	note := append(rowKey(key, v.id), noteSuffix)
	stamp, err := c.b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	if err := c.b.rows.PutAt(ctx, note, []byte{noteVersion}, listing.Given{At: stamp, Still: still}); err != nil {
		return err
	}
	if _, err := c.b.version(ctx, key, v.id); !errors.Is(err, ErrNotFound) {
		return err // it has come meanwhile
	}
	return c.burn(ctx, key, v, still)
}

// noteVersion is the value of a note.
const noteVersion = 1

// deleteParts deletes the blobs below a version that are not listed. One that can't be deleted keeps no others; it
// returns the first error.
func (b *Bucket) deleteParts(ctx context.Context, key []byte, id ID, listed map[string]bool) error {
	var first error
	err := b.o.blobs.List(ctx, b.blobName(key, id)+"/", "", func(name string, _ int64) error {
		if listed[name] {
			return nil
		}
		first = cmp.Or(first, b.o.blobs.Delete(ctx, name))
		return ctx.Err()
	})
	return cmp.Or(first, err)
}

// listed returns the names of the blobs that a version in parts has.
func (c *Cleaner) listed(key []byte, id ID, r *record, list []piece) map[string]bool {
	names := make(map[string]bool, len(list)+1)
	for _, p := range list {
		names[c.b.partName(key, id, p.number, p.id)] = true
	}
	if name, ok := c.b.listName(key, id, r); ok {
		names[name] = true
	}
	return names
}

// freeRows deletes the rows of an upload, its own as the last.
func (c *Cleaner) freeRows(ctx context.Context, u *uploadMember, still func() bool) error {
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
	return c.b.rows.DeleteAt(ctx, own, listing.Given{At: ID(u.id).at(gone), Still: still})
}
