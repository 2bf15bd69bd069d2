package objects

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// CleanOptions are options of a Cleaner; zero values have the defaults.
type CleanOptions struct {
	// Grace is how long a burned version keeps its blob: longer than any read may take, and longer
	// than PutTimeout. Default 24 hours.
	Grace time.Duration
	// Now: a version that is older than any put may take is deleted with its blob once its burning was acknowledged
	// for SoonGrace. Streams of readers who began before may break off.
	Now bool
	// Settled is the age at which a delete marker that hides nothing is removed from a bucket that
	// never had versions: nothing older than it can arrive any more. Default 11 days, above
	// Cassandra's default of gc_grace_seconds.
	Settled time.Duration
	// Pacer, if not nil, bounds the rows that passes look at per second.
	Pacer *wait.Pacer
	// Before, if not nil, is told of each deed before it is done, and says whether to do it.
	Before func(Deed) bool
	// Report, if not nil, is told of what a pass has done so far, after each page that it has looked at.
	Report func(Cleaned)
}

// Deed is what a cleaner does to a version or an upload.
type Deed struct {
	// Do is "supersede", "prove", "finish", "unmark", "expire", "lapse", "settle", "condemn" or
	// "free".
	Do  string
	Key []byte
	// ID is that of the version, also of the one that an upload becomes.
	ID ID
	// Why is a sentence for people.
	Why string
}

// may asks whether to do a step.
func (c *Cleaner) may(do tidy.Do, key []byte, id ID) bool {
	return c.o.Before == nil || c.o.Before(Deed{Do: do.String(), Key: bytes.Clone(key), ID: id, Why: do.Why()})
}

// stale reports whether the bucket's settings have changed since the cleaner read them last. A step that was decided by
// settings of before, such as a rule that is deleted now, is left: the next pass decides anew.
func (c *Cleaner) stale(ctx context.Context) (bool, error) {
	same, err := c.learn(ctx)
	return !same, store.Wrap("read the settings of the bucket", err)
}

// Cleaner deletes from one bucket what no reader sees any more, and what the bucket's Lifecycle tells it to delete. Any
// number of Cleaners may run at the same time, in any processes: the rows say since when versions are burned, so one
// Cleaner goes on where another one stopped. A Cleaner works on the bucket that has the name at the time when the
// Cleaner first does something.
type Cleaner struct {
	b *Bucket
	o CleanOptions

	least time.Duration // the age of which no put can be under way any more

	mu    sync.Mutex // guards b, which pin sets
	known knownSettings
	clock slowClock
}

// slowClock is the clock by which a cleaner measures the age of proofs. It shows the time of stamps, but while the
// cleaner lives it goes no faster than the slower clock of the process. So a clock that is set forward ends no grace
// early.
type slowClock struct {
	stamp store.Timestamp // at the beginning
	began wait.Instant
	now   store.Timestamp // as of the present pass, or the last
}

func (s *slowClock) tell(stamp store.Timestamp, at wait.Instant) {
	if s.stamp == 0 {
		s.stamp, s.began = stamp, at
	}
	least, _ := at.Since(s.began)
	s.now = min(stamp, s.stamp+store.Timestamp(least.Microseconds()))
}

// since returns the time that has passed since a proof was obtained.
func (s *slowClock) since(proof store.Timestamp) time.Duration { return max(age(s.now, proof), 0) }

// Cleaned is what a pass has done and found, in versions.
type Cleaned struct {
	// Rows were looked at, and Bytes are those of the versions that were finished.
	Rows, Bytes                                                   int64
	Seen, Superseded, Proven, Finished, Unmarked, Expired, Lapsed int64
	// Waiting are burned, and keep their blobs for the grace.
	Waiting int64
	// Ended are uploads that are known to have ended, Freed those of which nothing is left but the
	// version that they became, if they did.
	Ended, Freed int64
	// Remembered are the versions and uploads that keep their blobs for the grace, and whose rows tell since when.
	Remembered int64
	// Next is where another pass goes on (PassFrom): at the last object that was looked at. It is empty before the first.
	Next string
	// Damaged rows can't be read; they stay.
	Damaged int64
	// Failed steps are due again in the next pass; FirstFailure is the error of one, and Reasons counts
	// them by kind.
	Failed       int64
	FirstFailure error
	Reasons      map[store.Kind]int64
}

func (d *Cleaned) fail(err error) {
	if d.Failed++; d.FirstFailure == nil {
		d.FirstFailure, d.Reasons = err, map[store.Kind]int64{}
	}
	d.Reasons[store.KindOf(err)]++
}

// SoonGrace is longer than the time from a read of a row to a write that follows from it.
const SoonGrace = 2 * writeTimeout

// mostOfGroup is the largest number of versions of an object that are looked at together. Older versions have their
// turn when these are gone, or are compared with the last one of these.
const mostOfGroup = 10_000

// Cleaner returns a cleaner of a bucket. It acts by the bucket's settings as they are at each step, whatever the
// Versioning of b. wide is a client that reads and writes through a quorum of
// each data centre: Objects over store.Everywhere, or the same ones where there is only one.
func (b *Bucket) Cleaner(wide *Objects, o CleanOptions) (*Cleaner, error) {
	if o.Grace == 0 {
		o.Grace = 24 * time.Hour
	}
	if o.Settled == 0 {
		o.Settled = 11 * 24 * time.Hour
	}
	least := max(b.o.o.PutTimeout, writeTimeout) + writeTimeout
	if o.Grace < least || o.Settled < least {
		return nil, store.Errorf(store.InvalidArgument, "Grace of %v, Settled of %v: at least %v, longer than a put may take",
			o.Grace, o.Settled, least)
	}
	w := *b
	w.o, w.rows = wide, b.rows.With(wide.c)
	return &Cleaner{b: &w, o: o, least: least}, nil
}

// member is a version of the group under a cleaner's eyes.
type member struct {
	id   ID
	what tidy.Version
	tags []Pair
	ash  *record
	kept bool // that it is kept was acknowledged, to this pass
	// damaged: the row can't be read, as a newer program may have written it. Nothing is done with the version, whatever
	// stands beside it: only its place in the group is known.
	damaged bool
}

// Pass looks at all versions once, and does what is due. Steps that fail are counted, and due again
// in the next pass; the error is that of a listing.
func (c *Cleaner) Pass(ctx context.Context) (Cleaned, error) { return c.PassFrom(ctx, "") }

// PassFrom makes a pass like Pass, but begins where another pass ended: from is the Cleaned.Next of that pass, or
// empty.
func (c *Cleaner) PassFrom(ctx context.Context, from string) (done Cleaned, err error) {
	ctx = store.MakingRoom(ctx)
	if err := c.pin(ctx); err != nil {
		return done, err
	}
	now, err := c.b.o.c.Stamps(ctx, 1)
	if err != nil {
		return done, err
	}
	c.clock.tell(now, c.b.o.o.Now())
	q := listing.Query{Limit: 1000, From: objectsBegin}
	if from == "" {
		if err := c.uploads(ctx, now, &done); err != nil {
			return done, err
		}
	} else if q.From, err = hex.DecodeString(from); err != nil || bytes.Compare(q.From, objectsBegin) < 0 {
		return done, store.Errorf(store.InvalidArgument, "%.64q is not where a pass was", from)
	}
	var key []byte
	var group []member
	still := c.b.o.deadline(writeTimeout)
	behind := false // the group has newer versions
	flush := func(more bool) {
		if len(group) > 0 {
			c.tidy(ctx, key, group, behind, more, still, &done)
			group = group[:0]
		}
		behind = more
	}
	for {
		read := c.b.o.deadline(writeTimeout)
		if _, err := c.learn(ctx); err != nil {
			return done, err
		}
		page, err := c.b.rows.List(ctx, q)
		if err != nil {
			return done, err
		}
		for i := range page.Items {
			at, err := parseRow(page.Items[i].Key)
			if err != nil {
				done.Damaged++
				continue
			}
			if !bytes.Equal(at.key, key) {
				flush(false)
				key = bytes.Clone(at.key)
				done.Next = hex.EncodeToString(at.group)
			} else if len(group) >= mostOfGroup && !at.beside() {
				flush(true)
			}
			if len(group) == 0 {
				still = read // of the oldest page that the group is of
			}
			if group, err = c.add(group, &at, page.Items[i].Value, now); err != nil {
				done.Damaged++
			}
		}
		if page.Next == "" {
			flush(false)
		}
		if err := c.pace(ctx, len(page.Items), &done); err != nil || page.Next == "" {
			return done, err
		}
		q.Token = page.Next
	}
}

// pin makes the cleaner one of the very bucket that has the name now: what it remembers means nothing in another one.
func (c *Cleaner) pin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.b.pinned(ctx)
	if err == nil && b != c.b {
		c.b = b
	}
	return err
}

// pace reports that so many rows were looked at, and waits until they may have been.
func (c *Cleaner) pace(ctx context.Context, rows int, done *Cleaned) error {
	if done.Rows += int64(rows); c.o.Report != nil {
		c.o.Report(*done)
	}
	if c.o.Pacer == nil {
		return ctx.Err()
	}
	return c.o.Pacer.Take(ctx, rows)
}

// add adds what a row says to a group. Tags and a note come right behind the row of their version. A version
// whose tags can't be read has none for the rules.
func (c *Cleaner) add(group []member, at *row, value []byte, now store.Timestamp) ([]member, error) {
	if at.beside() {
		if n := len(group); n == 0 || group[n-1].id != at.id {
			v := tidy.Version{Age: age(now, at.id.Stamp), Proven: -1}
			group = append(group, member{id: at.id, what: v, ash: &record{rank: burned}})
		}
		m := &group[len(group)-1]
		if m.damaged {
			return group, nil
		}
		m.what.Tags, m.what.Note = m.what.Tags || at.tags, m.what.Note || at.note
		var err error
		if at.tags {
			m.tags, err = decodeTags(value)
		} else if proof, ok := decodeProof(value); ok && !m.what.Rank.Seen() {
			m.what.Proven = c.clock.since(proof)
		}
		return group, err
	}
	r, err := decode(value)
	if err != nil {
		v := tidy.Version{Age: age(now, at.id.Stamp), Proven: -1}
		return append(group, member{id: at.id, what: v, ash: &record{rank: burned}, damaged: true}), err
	}
	return append(group, member{id: at.id, what: r.version(at.id, now), tags: r.tags, ash: r.ashes()}), nil
}

// proofVersion is the first byte of a proof. A proof says that every data centre has acknowledged something: the
// burning of a version, in the value of the note beside that version, or the end of an upload, in a row of its own
// (proofKey). The time of a proof was drawn after the acknowledgement. Older programs take a proof of a burning for an
// ordinary note, and pass over a proof of the end of an upload.
const proofVersion = 2

func encodeProof(at store.Timestamp) []byte {
	return binary.BigEndian.AppendUint64([]byte{proofVersion}, uint64(at)) //nolint:gosec // positive
}

func decodeProof(value []byte) (at store.Timestamp, ok bool) {
	if len(value) != 9 || value[0] != proofVersion {
		return 0, false
	}
	return store.Timestamp(binary.BigEndian.Uint64(value[1:])), true //nolint:gosec // any
}

// prove writes the proof of what was acknowledged just now.
func (c *Cleaner) prove(ctx context.Context, row []byte, still func() bool) error {
	stamp, err := c.b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	return c.b.rows.PutAt(ctx, row, encodeProof(stamp), listing.Given{At: stamp, Still: still})
}

// tidy does what is due in a group.
func (c *Cleaner) tidy(
	ctx context.Context, key []byte, group []member, behind, more bool, still func() bool, done *Cleaned,
) {
	versions := make([]tidy.Version, len(group))
	for i := range group {
		versions[i] = group[i].what
		if versions[i].Rank.Seen() {
			done.Seen++
		} else if versions[i].Rank == burned && versions[i].Proven >= 0 && versions[i].Proven < c.o.Grace {
			done.Waiting++
			done.Remembered++
		}
	}
	var tags []Pair
	newest := slices.IndexFunc(group, func(m member) bool { return m.what.Rank.Seen() })
	if newest >= 0 && !(more && newest == len(group)-1) { // else its tags may come in the next part
		tags = group[newest].tags
	}
	for _, s := range tidy.Decide(versions, behind, more, c.rules(key, tags)) {
		if ctx.Err() != nil {
			return
		}
		if !c.may(s.Do, key, group[s.Version].id) {
			continue
		}
		if stale, err := c.stale(ctx); err != nil || stale {
			if err != nil {
				done.fail(err)
			}
			return
		}
		did, err := c.do(ctx, key, group, s, still)
		if err != nil {
			done.fail(store.Wrap(s.Do.String()+" version "+group[s.Version].id.String(), err))
			continue
		}
		if !did {
			continue
		}
		if s.Do == tidy.Supersede || s.Do == tidy.Prove || s.Do == tidy.Lapse {
			done.Remembered++
		}
		switch s.Do {
		case tidy.Supersede:
			done.Superseded++
		case tidy.Prove:
			done.Proven++
		case tidy.Finish:
			done.Finished++
			done.Bytes += group[s.Version].ash.size
			if v := &versions[s.Version]; v.Rank == burned && v.Proven < c.o.Grace { // it was not to wait
				done.Waiting--
				done.Remembered--
			}
		case tidy.Unmark:
			done.Unmarked++
		case tidy.Expire:
			done.Expired++
		case tidy.Lapse:
			done.Lapsed++
		}
	}
}

// do does one step; false: it was not due any more.
func (c *Cleaner) do(ctx context.Context, key []byte, group []member, s tidy.Step, still func() bool) (bool, error) {
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
		return true, c.finish(ctx, key, v, still)
	case tidy.Expire:
		return c.expire(ctx, key, v, still)
	}
	if alone, err := c.alone(ctx, key, v.id); err != nil || !alone {
		return false, err
	}
	return true, c.b.rows.DeleteAt(ctx, rowKey(key, v.id), listing.Given{At: v.id.at(gone), Still: still})
}

// alone reports whether a delete marker hides nothing, and nothing that comes: no upload has a row that
// was created before it, and then there is no other row of the object. In this order: what an upload
// became is there before the rows of the upload are removed.
func (c *Cleaner) alone(ctx context.Context, key []byte, id ID) (bool, error) {
	uploads := listing.Query{Prefix: uploadGroup(key), To: uploadKey(key, UploadID(id)), Limit: 1, KeysOnly: true}
	page, err := c.b.rows.List(ctx, uploads)
	if err != nil || len(page.Items) > 0 {
		return false, err
	}
	page, err = c.b.rows.List(ctx, listing.Query{Prefix: groupOf(key), Limit: 2, KeysOnly: true})
	return err == nil && len(page.Items) == 1 && bytes.Equal(page.Items[0].Key, rowKey(key, id)), err
}

// expire hides a version as a delete would that came right behind it, before everything that is newer
// now, or is on its way. So a delete marker has the version's stamp and a salt that is one less. In a bucket that never
// had versions nobody expects to get a null version back: it is deleted. Where versioning is suspended the marker is a
// null version, which takes the place of another null version (S3, "Expiring objects").
func (c *Cleaner) expire(ctx context.Context, key []byte, v *member, still func() bool) (bool, error) {
	if v.what.Null && c.known.Status == Never {
		_, err := c.b.DeleteVersion(ctx, key, v.id)
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	id := v.id
	for i := len(id.Salt) - 1; i >= 0; i-- {
		if id.Salt[i]--; id.Salt[i] != 0xFF {
			now, err := c.b.o.c.Stamps(ctx, 1)
			if err != nil {
				return false, err
			}
			r := &record{rank: live, marker: true, null: c.known.Status != Enabled, meta: hidesSince(now)}
			return true, c.b.write(ctx, key, id, r, still)
		}
	}
	return false, nil // one of 2^48 versions has a salt of zero
}

// relyOn keeps a version, because of which another one is to be burned. It returns false where it is
// not seen any more, or has a note.
func (c *Cleaner) relyOn(ctx context.Context, key []byte, by *member, still func() bool) (bool, error) {
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

// keep writes a version kept. It returns false where it is not seen any more.
func (c *Cleaner) keep(ctx context.Context, key []byte, id ID, still func() bool) (bool, error) {
	r, err := c.b.version(ctx, key, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.rank = kept
	return true, c.b.write(ctx, key, id, r, still)
}

// noted reports whether a note lies beside a version.
func (c *Cleaner) noted(ctx context.Context, key []byte, id ID) (bool, error) {
	_, err := c.b.rows.Get(ctx, append(rowKey(key, id), noteSuffix))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// burn burns a version, and writes down when that was acknowledged.
func (c *Cleaner) burn(ctx context.Context, key []byte, v *member, still func() bool) error {
	if err := c.b.write(ctx, key, v.id, v.ash, still); err != nil {
		return err
	}
	return c.prove(ctx, append(rowKey(key, v.id), noteSuffix), still)
}

// finish deletes what is left of a version.
func (c *Cleaner) finish(ctx context.Context, key []byte, v *member, still func() bool) error {
	switch v.ash.where {
	case inBlob:
		if err := c.b.o.blobs.Delete(ctx, c.b.blobName(key, v.id)); err != nil {
			return err
		}
	case inParts, inListedParts:
		if err := c.b.deleteParts(ctx, key, v.id, nil); err != nil {
			return err
		}
	}
	row := rowKey(key, v.id)
	if err := c.b.rows.DeleteAt(ctx, row, listing.Given{At: v.id.at(gone), Still: still}); err != nil {
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
