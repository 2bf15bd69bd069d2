package objects

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// CleanOptions are the options of a Cleaner, which deletes what no reader of a bucket can see any more. A zero field
// means its default.
type CleanOptions struct {
	// Grace is how long a burned version keeps its blob. It must be longer than any read may take, and longer than
	// PutTimeout. Default 24 hours.
	Grace time.Duration
	// Now shortens the grace, to make room: a version that is older than any put may take is deleted with its blob once
	// its burning was acknowledged for SoonGrace. Streams of readers who began before may break off.
	Now bool
	// Settled is the age from which on late writes can't arrive any more. Two things are deleted at this age: a delete
	// marker that hides nothing, in a bucket that never had versions, and, by Condemn, a body without a row. Default 11
	// days, which is more than Cassandra's default of gc_grace_seconds.
	Settled time.Duration
	// Pacer, if not nil, limits the rows per second that passes look at.
	Pacer *wait.Pacer
	// Before, if not nil, is called before each step of the cleaner. If it returns false, the step is left out.
	Before func(Deed) bool
	// Report, if not nil, is called after each page of rows, with the sums of the pass so far.
	Report func(Cleaned)
	// Later, if not nil, is called for each object in which a step may be due later, with the time until then.
	Later func(key []byte, after time.Duration)
}

// settled is the default of CleanOptions.Settled, the age from which on late writes can't arrive any more: 11 days.
const settled = 11 * 24 * time.Hour

// Deed is one step that a cleaner is about to take with a version or an upload, for example the deletion of a version.
type Deed struct {
	// Do is the kind of the step: "supersede", "prove", "finish", "unmark", "expire", "lapse", "settle", "condemn" or
	// "free".
	Do  string
	Key []byte
	// ID is the ID of the version, or of the version that the upload becomes.
	ID ID
	// Why is the reason, as a sentence for people.
	Why string
}

// may asks CleanOptions.Before whether the cleaner may take a step. do is the kind of the step, and id the version.
// true: it may.
func (c *Cleaner) may(do tidy.Do, key []byte, id ID) bool {
	return c.o.Before == nil || c.o.Before(Deed{Do: do.String(), Key: bytes.Clone(key), ID: id, Why: do.Why()})
}

// stale reports whether the bucket's settings have changed since the cleaner last read them. true: the caller leaves
// out the step that was decided by the old settings, since its rule may be deleted by now. The next pass decides again.
func (c *Cleaner) stale(ctx context.Context) (bool, error) {
	same, err := c.learn(ctx)
	return !same, store.Wrap("read the settings of the bucket", err)
}

// Cleaner deletes from one bucket what no reader can see any more, and what the bucket's Lifecycle rules tell it to
// delete. Any number of Cleaners may run at the same time, in any processes. The rows of deleted versions say since
// when they are deleted, so one Cleaner goes on where another one stopped. A Cleaner works on the bucket that has the
// name when the Cleaner first does something, and never on a later bucket with this name.
type Cleaner struct {
	b *Bucket
	o CleanOptions

	least time.Duration // the age at which no put can be under way any more
	hints Hints         // for versions that Condemn burns; nil: there are none

	mu    sync.Mutex // guards b, which pin sets
	known knownSettings
	clock slowClock
}

// slowClock is the clock by which a cleaner measures ages, such as the time since a deletion was acknowledged. It shows
// the time of the store's stamps. But it never advances further than the slower one of the process's two clocks has
// since the cleaner began. So if some clock is set forward, the time of grace before blobs are deleted does not end too
// early.
type slowClock struct {
	stamp store.Timestamp // the time of stamps when the cleaner began
	began wait.Instant
	now   store.Timestamp // the time of the present pass, or of the last one
}

func (s *slowClock) tell(stamp store.Timestamp, at wait.Instant) {
	if s.stamp == 0 {
		s.stamp, s.began = stamp, at
	}
	least, _ := at.Since(s.began)
	s.now = min(stamp, s.stamp+store.Timestamp(least.Microseconds()))
}

// since returns the time that has passed since the time of a proof (a stamp that says when a deletion had been
// acknowledged). It returns 0 if that time is in the future.
func (s *slowClock) since(proof store.Timestamp) time.Duration { return max(age(s.now, proof), 0) }

// Cleaned is the result of a cleaner's pass: numbers of what it has found and done. The fields count versions, unless
// another unit is named.
type Cleaned struct {
	// Rows are the rows that the pass has looked at, and Bytes are the bytes of the bodies of Finished versions. Seen
	// versions are visible to readers. Each of the other fields counts versions to which one kind of step was done
	// (tidy.Do).
	Rows, Bytes                                                   int64
	Seen, Superseded, Proven, Finished, Unmarked, Expired, Lapsed int64
	// Waiting versions are burned, and keep their blobs until the grace is over.
	Waiting int64
	// Ended are uploads that are known to have ended. Freed are uploads of which nothing is left, except for the
	// version that an upload has become.
	Ended, Freed int64
	// Overdue are steps in Superseded and Finished that were due for hours: no hint has led to these objects in time.
	Overdue int64
	// Remembered are the burned versions and the ended uploads that keep their blobs for the grace. Their rows tell
	// since when, so another cleaner can go on.
	Remembered int64
	// Next is the position that the pass has reached, the last object that it has looked at. PassFrom goes on from
	// there. Empty: the pass has looked at no object.
	Next string
	// Damaged are rows that can't be read. They stay.
	Damaged int64
	// Failed are steps that failed; the next pass tries them again. FirstFailure is the error of the first one, and
	// Reasons counts all by the kind of their errors.
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

// add adds to d the counts of another pass of a cleaner, one that has looked at other objects of the bucket.
func (d *Cleaned) add(more *Cleaned) {
	for _, n := range []struct{ to, more *int64 }{
		{&d.Rows, &more.Rows}, {&d.Bytes, &more.Bytes}, {&d.Seen, &more.Seen}, {&d.Superseded, &more.Superseded},
		{&d.Proven, &more.Proven}, {&d.Finished, &more.Finished}, {&d.Unmarked, &more.Unmarked},
		{&d.Expired, &more.Expired}, {&d.Lapsed, &more.Lapsed}, {&d.Waiting, &more.Waiting}, {&d.Ended, &more.Ended},
		{&d.Freed, &more.Freed}, {&d.Overdue, &more.Overdue}, {&d.Remembered, &more.Remembered},
		{&d.Damaged, &more.Damaged}, {&d.Failed, &more.Failed},
	} {
		*n.to += *n.more
	}
	if d.FirstFailure == nil {
		d.FirstFailure, d.Reasons = more.FirstFailure, map[store.Kind]int64{}
	}
	for kind, n := range more.Reasons {
		d.Reasons[kind] += n
	}
}

// SoonGrace is the time for which a deleted version keeps its blob if CleanOptions.Now is set: two minutes. It is
// longer than the time that may pass between reading a row and sending a write that follows from what was read.
const SoonGrace = 2 * writeTimeout

// mostOfGroup is the largest number of versions of one object that a cleaner looks at together. If there are more, it
// begins with the newest 10,000. From the older ones it then deletes only null versions, which were written while the
// bucket kept no versions, because a newer null version makes them useless. All other steps for the older versions come
// once the newer ones are gone.
const mostOfGroup = 10_000

// Cleaner returns a cleaner of the bucket. The cleaner follows the bucket's settings as they are at each step, and
// ignores the Versioning of the handle b. The Objects wide must read and write through a quorum of each data centre
// (Objects.Everywhere); with only one data centre any Objects will do. Cleaner fails with InvalidArgument if o.Grace or
// o.Settled is shorter than a put may take.
func (b *Bucket) Cleaner(wide *Objects, o CleanOptions) (*Cleaner, error) {
	if o.Grace == 0 {
		o.Grace = 24 * time.Hour
	}
	if o.Settled == 0 {
		o.Settled = settled
	}
	least := b.o.orphanAge()
	if o.Grace < least || o.Settled < least {
		return nil, store.Errorf(store.InvalidArgument, "Grace of %v, Settled of %v: at least %v, longer than a put may take",
			o.Grace, o.Settled, least)
	}
	w, quiet := *b, *wide
	quiet.o.Hints = nil // the cleaner calls o.Later instead
	w.o, w.rows = &quiet, b.rows.With(wide.c)
	return &Cleaner{b: &w, o: o, least: least, hints: wide.o.Hints}, nil
}

// member is one version of the object that a cleaner is looking at, with what the cleaner has read or written of it.
type member struct {
	id   ID
	what tidy.Version
	tags []Pair
	ash  *record
	kept bool // this pass has written the version kept, and that was acknowledged
	// damaged is true if the version's row can't be read, perhaps because a newer program has written it. Then the
	// cleaner does nothing to the version, whatever rows stand beside it. The version only keeps its place in the
	// group.
	damaged bool
}

// Pass looks once at all uploads and all versions of the bucket, and takes the steps that are due, such as deletions. A
// step that fails is counted, and is due again in the next pass. Pass itself fails only if rows can't be listed.
func (c *Cleaner) Pass(ctx context.Context) (Cleaned, error) { return c.PassFrom(ctx, "") }

// PassFrom looks at the uploads and versions of the bucket and takes the steps that are due, such as deletions. It is
// for continuing an earlier pass that has stopped: from is the Cleaned.Next of that pass. Uploads are left out then, as
// that pass has looked at them. An empty from means a whole pass, as by Pass.
func (c *Cleaner) PassFrom(ctx context.Context, from string) (done Cleaned, err error) {
	ctx = store.MakingRoom(ctx)
	now, err := c.begin(ctx)
	if err != nil {
		return done, err
	}
	q := listing.Query{Limit: 1000, From: objectsBegin}
	if from == "" {
		if err := c.uploads(ctx, now, &done); err != nil {
			return done, err
		}
	} else if q.From, err = hex.DecodeString(from); err != nil || bytes.Compare(q.From, objectsBegin) < 0 {
		return done, store.Errorf(store.InvalidArgument, "%.64q is not where a pass was", from)
	}
	for w := (walk{c: c, now: now}); ; {
		next, err := w.page(ctx, q, &done)
		if err != nil || next == "" {
			return done, err
		}
		q.Token = next
	}
}

// PassUploads looks once at all uploads in parts of the bucket, and takes the steps that are due for them, such as the
// end of an abandoned upload. It does not look at the versions of objects.
func (c *Cleaner) PassUploads(ctx context.Context) (done Cleaned, err error) {
	ctx = store.MakingRoom(ctx)
	now, err := c.begin(ctx)
	if err == nil {
		err = c.uploads(ctx, now, &done)
	}
	return done, err
}

// begin begins a pass: it fixes the bucket on which the cleaner works, and sets the cleaner's clock. It returns a new
// stamp as the time of the pass.
func (c *Cleaner) begin(ctx context.Context) (store.Timestamp, error) {
	if err := c.pin(ctx); err != nil {
		return 0, err
	}
	now, err := c.b.o.c.Stamps(ctx, 1)
	if err == nil {
		c.clock.tell(now, c.b.o.o.Now())
	}
	return now, err
}

// pin ties the cleaner to the one bucket that has the name now. Without pin, a cleaner that remembers the settings of
// this bucket could apply them to a later bucket with the same name.
func (c *Cleaner) pin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.b.pinned(ctx)
	if err == nil && b != c.b {
		c.b = b
	}
	return err
}

// pace slows a cleaner down. It adds the given number of rows to the counts done, reports the counts, and waits until
// the Pacer allows that many further rows.
func (c *Cleaner) pace(ctx context.Context, rows int, done *Cleaned) error {
	if done.Rows += int64(rows); c.o.Report != nil {
		c.o.Report(*done)
	}
	if c.o.Pacer == nil {
		return ctx.Err()
	}
	return c.o.Pacer.Take(ctx, rows)
}

// add adds one row to a group, which is the list of the versions of one object, and returns the group. value is the
// value of the row, and now the time of the pass. The rows of a version come one after the other: the version itself,
// its tags, and its note, which is a cleaner's own record about the version. If tags can't be read, the version counts
// as one without tags. add fails with Corrupt if the row can't be read.
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

// proofVersion is the first byte of a proof: the value of a row by which a cleaner says that every data centre has
// acknowledged a deletion. The rest of the value is a stamp drawn after the acknowledgement. The proof that a version
// is deleted is in a row beside that version. The proof that an upload has ended is in a row of its own (proofKey).
// Older programs take the first kind for an ordinary note about the version, and ignore the second kind.
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

// prove writes a proof into the given row: a new stamp, which says that a write was acknowledged before this time. The
// proof is written only while still returns true.
func (c *Cleaner) prove(ctx context.Context, row []byte, still func() bool) error {
	stamp, err := c.b.o.c.Stamps(ctx, 1)
	if err != nil {
		return err
	}
	return c.b.rows.PutAt(ctx, row, encodeProof(stamp), listing.Given{At: stamp, Still: still})
}

// tidy takes the steps that are due for one object, such as deletions. group has the object's versions, or a part of
// them. behind is true if newer versions of the object were looked at before. more is true if older versions follow.
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
	if newest >= 0 && !(more && newest == len(group)-1) { // else the tags may come in the next part
		tags = group[newest].tags
	}
	rules := c.rules(key, tags)
	steps := tidy.Decide(versions, behind, more, rules)
	taken := c.take(ctx, key, group, versions, steps, still, done)
	if c.o.Later == nil {
		return
	}
	left := slices.DeleteFunc(versions, func(v tidy.Version) bool { return v.Rank == gone })
	after, ok := tidy.Next(left, behind, more, rules)
	if taken < len(steps) && (!ok || after > retryAfter) {
		after, ok = retryAfter, true
	}
	if ok {
		c.o.Later(key, max(after, 0)+clockSlack)
	}
}

// take carries out the given steps, such as deletions, on the versions of one object. It returns the number of steps
// that were done. It changes the elements of versions to the state after the steps; for example, a version that was
// deleted gets the rank burned.
func (c *Cleaner) take(
	ctx context.Context, key []byte, group []member, versions []tidy.Version, steps []tidy.Step, still func() bool,
	done *Cleaned,
) (taken int) {
	for _, s := range steps {
		if ctx.Err() != nil {
			return taken
		}
		if !c.may(s.Do, key, group[s.Version].id) {
			continue
		}
		if stale, err := c.stale(ctx); err != nil || stale {
			if err != nil {
				done.fail(err)
			}
			return taken
		}
		did, err := c.do(ctx, key, group, s, still)
		if err != nil {
			done.fail(store.Wrap(s.Do.String()+" version "+group[s.Version].id.String(), err))
			continue
		}
		if !did {
			continue
		}
		taken++
		v := &versions[s.Version]
		if s.Do == tidy.Supersede || s.Do == tidy.Prove || s.Do == tidy.Lapse {
			done.Remembered++
		}
		switch s.Do {
		case tidy.Supersede:
			done.Superseded++
			if versions[s.By].Age > overdue {
				done.Overdue++
			}
			v.Rank, v.Proven = burned, 0
		case tidy.Prove:
			done.Proven++
			v.Proven = 0
		case tidy.Finish:
			done.Finished++
			done.Bytes += group[s.Version].ash.size
			if v.Rank == burned && v.Proven < c.o.Grace { // deleted before the grace was over, by CleanOptions.Now
				done.Waiting--
				done.Remembered--
			}
			if v.Proven > c.o.Grace+overdue {
				done.Overdue++
			}
			v.Rank = gone
		case tidy.Unmark:
			done.Unmarked++
			v.Rank = gone
		case tidy.Expire:
			done.Expired++
		case tidy.Lapse:
			done.Lapsed++
			v.Rank, v.Proven = burned, 0
		}
	}
	return taken
}

const (
	// overdue is the longest delay with which hints lead to a step that is due. If a step has been due for longer, its
	// hint was lost.
	overdue = 6 * time.Hour
	// retryAfter is the delay of a hint to a step that failed, or that has to wait for another step.
	retryAfter = time.Hour
	// clockSlack is added to the delay of a hint, since a hint that is followed too early leads to nothing: the clock
	// by which a cleaner measures ages may be slower than other clocks by up to this time.
	clockSlack = time.Minute
)
