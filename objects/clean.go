package objects

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects/internal/tidy"
	"github.com/evenkeel/evenkeel/store"
)

// settled is the default of CleanOptions.Settled: 11 days. A write that was delayed for this time can't arrive any
// more.
const settled = 11 * 24 * time.Hour

// may asks the callback CleanOptions.Before whether the cleaner may take a step, and returns the answer. do is the kind
// of the step, e.g. a deletion. key is the object's key, and id the version's ID. Without a callback, may returns true.
func (c *cleaner) may(do tidy.Do, key []byte, id ID) bool {
	return c.o.Before == nil ||
		c.o.Before(care.Deed{Do: do.String(), Key: bytes.Clone(key), Version: id.String(), Why: do.Why()})
}

// stale reports whether the bucket's settings have changed since the cleaner last read them. If so, the caller does not
// take the step that it has decided on, as the lifecycle rule behind it may be deleted. The next pass decides again.
func (c *cleaner) stale(ctx context.Context) (bool, error) {
	same, err := c.learn(ctx)
	return !same, store.Wrap("read the settings of the bucket", err)
}

// cleaner deletes from one bucket the versions and bodies that no reader can see any more. It implements care.Cleaner,
// which describes it.
type cleaner struct {
	b *Bucket
	o care.CleanOptions

	least time.Duration // the age at which no put can be under way any more
	tells *Objects      // whose Options.Hints get a hint of each version that Condemn burns

	mu    sync.Mutex // guards b, which pin sets
	known knownSettings
	clock slowClock
}

// slowClock is the clock by which a cleaner measures ages, such as the time since a deletion was acknowledged. It shows
// the time of the store's timestamps, but never advances further than the slower of the process's two clocks. So if a
// clock is set forward, bodies of deleted versions are not removed too early.
type slowClock struct {
	stamp store.Timestamp // the time of stamps when the cleaner began
	began wait.Instant
	now   store.Timestamp // the time of the present pass, or of the last one
}

// tell sets the clock to the time of a new timestamp, stamp, that was drawn at the moment `at`. If the process's clocks
// have advanced less than the timestamps since the first call, the clock advances only that far.
func (s *slowClock) tell(stamp store.Timestamp, at wait.Instant) {
	if s.stamp == 0 {
		s.stamp, s.began = stamp, at
	}
	least, _ := at.Since(s.began)
	s.now = min(stamp, s.stamp+store.Timestamp(least.Microseconds()))
}

// since returns the time that has passed since a deletion was known to be acknowledged. proof is the timestamp of that
// acknowledgement. The result is 0 if proof is in the future.
func (s *slowClock) since(proof store.Timestamp) time.Duration { return max(age(s.now, proof), 0) }

// This declaration compiles only if care.SoonGrace is twice writeTimeout. SoonGrace is the time for which bodies of
// deleted versions stay if CleanOptions.Now is set. It must be longer than the time from a read to a write that depends
// on the read.
var _ [2]struct{} = [care.SoonGrace / writeTimeout]struct{}{}

// mostOfGroup is the largest number of versions of one object that a cleaner looks at together. Of an object with more
// versions, the cleaner looks at one group of versions after the other, the newest first. Of the newer groups it takes
// into account only the newest null version, which makes older null versions useless. (Null versions are written while
// the bucket keeps no versions.) If a lifecycle rule deletes a version because of versions in a newer group, the
// version waits until these are gone.
const mostOfGroup = 10_000

// Clean deletes the versions and bodies that no reader can see any more, and what the bucket's Lifecycle rules tell it
// to delete. It looks once at all rows of the bucket, and returns the number of versions that are deleted with their
// bodies. A body stays for a day after its version was deleted, so that readers who began before can finish. Any number
// of calls may run at the same time, in any processes.
//
// If a step fails, such as the deletion of a body, Clean takes the other steps, and then returns the error of the first
// step that failed. The next call tries these steps again. If rows of the bucket can't be read, Clean leaves them as they
// are, and fails with Corrupt at its end. Clean also fails with ErrPlain, like List, and with InvalidArgument if
// Options.PutTimeout is a day or longer.
func (b *Bucket) Clean(ctx context.Context) (deleted int64, err error) {
	c, err := bucketCare{b.through(b.o.everywhere())}.Cleaner(care.CleanOptions{})
	if err != nil {
		return 0, err
	}
	done, err := c.Pass(ctx)
	err = cmp.Or(err, done.FirstFailure)
	if err == nil && done.Damaged > 0 {
		err = store.Errorf(store.Corrupt, "%d rows of the bucket can't be read: they stay", done.Damaged)
	}
	return done.Finished, err
}

// Cleaner returns a cleaner of the bucket, with the options o. The cleaner follows the bucket's settings as they are at
// each step, and ignores the status of the handle. Cleaner fails with InvalidArgument if o.Grace or o.Settled is
// shorter than a put may take.
func (b bucketCare) Cleaner(o care.CleanOptions) (care.Cleaner, error) {
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
	quiet := *b.o
	quiet.o.Hints = nil // the cleaner calls o.Later instead
	return &cleaner{b: b.through(&quiet), o: o, least: least, tells: b.o}, nil
}

// member is one version of the object that a cleaner is looking at, with the cleaner's knowledge about the version from
// all of its rows.
type member struct {
	id   ID
	what tidy.Version
	tags []Pair
	ash  *record
	kept bool // this pass has written the version kept, and that was acknowledged
	// damaged is true if the version's row can't be read, perhaps because a newer program has written the row. Then the
	// cleaner does nothing to the version.
	damaged bool
}

// Pass looks once at all uploads and all versions of the bucket, and deletes what is due to be deleted. It returns the
// counts of what was found and done. A failed deletion is counted in Cleaned.Failed, and is tried again by the next
// pass. Pass itself fails only if rows can't be listed.
func (c *cleaner) Pass(ctx context.Context) (care.Cleaned, error) { return c.PassFrom(ctx, "") }

// PassFrom continues an earlier pass over the bucket that has stopped: from is the Cleaned.Next of that pass. Like
// Pass, it deletes what is due to be deleted. It leaves out the uploads, as the earlier pass has looked at them. If
// from is empty, PassFrom is the same as Pass.
func (c *cleaner) PassFrom(ctx context.Context, from string) (done care.Cleaned, err error) {
	ctx = storekit.MakingRoom(ctx)
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

// PassUploads looks once at all multipart uploads of the bucket, and does what is due for each. For example, it aborts
// an abandoned upload and deletes the parts of an aborted upload. It does not look at the versions of objects. It
// returns the counts of what was found and done.
func (c *cleaner) PassUploads(ctx context.Context) (done care.Cleaned, err error) {
	ctx = storekit.MakingRoom(ctx)
	now, err := c.begin(ctx)
	if err == nil {
		err = c.uploads(ctx, now, &done)
	}
	return done, err
}

// begin prepares a pass: it fixes the bucket on which the cleaner works, and sets the cleaner's clock. It returns a new
// timestamp, the time of the pass.
func (c *cleaner) begin(ctx context.Context) (store.Timestamp, error) {
	if err := c.pin(ctx); err != nil {
		return 0, err
	}
	now, err := door.Client(c.b.o.c).Stamps(ctx, 1)
	if err == nil {
		c.clock.tell(now, c.b.o.now())
	}
	return now, err
}

// pin ties the cleaner to the bucket that has the name now. Without pin, a cleaner that remembers the settings of this
// bucket could apply the settings to a later bucket with the same name.
func (c *cleaner) pin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.b.pinned(ctx)
	if err == nil && b != c.b {
		c.b = b
	}
	return err
}

// pace keeps a cleaner to the speed that CleanOptions.Pacer allows: it waits until the Pacer allows the given number of
// rows. Before that it adds the rows to the counts in done, and passes the counts to CleanOptions.Report.
func (c *cleaner) pace(ctx context.Context, rows int, done *care.Cleaned) error {
	if done.Rows += int64(rows); c.o.Report != nil {
		c.o.Report(*done)
	}
	if c.o.Pacer == nil {
		return ctx.Err()
	}
	return c.o.Pacer.Take(ctx, rows)
}

// add adds one row of an object to group, the list of the object's versions, and returns the list. The parameter at is
// the decoded key of the row, value is its value, and now is the time of the pass. A version may have up to three rows,
// in this order:
//
//   - the version itself;
//   - its tags. A version whose tags can't be read counts as a version without tags;
//   - its note, by which a cleaner records something about the version.
//
// add fails with Corrupt if the row can't be read.
func (c *cleaner) add(group []member, at *row, value []byte, now store.Timestamp) ([]member, error) {
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

// proofVersion is the first byte of a proof: the value of a row by which a cleaner records that every data centre has
// acknowledged a deletion. The other bytes are a timestamp that was drawn after the acknowledgement. There are two
// kinds of proofs:
//
//   - a version is deleted: the row is beside the row of the version. Older programs take it for a note of another
//     kind;
//   - an upload has ended: the row is one of the upload's rows (proofKey). Older programs ignore it.
const proofVersion = 2

// encodeProof returns the value of a row that records the acknowledgement of a deletion, at the time `at` (see
// proofVersion).
func encodeProof(at store.Timestamp) []byte {
	return binary.BigEndian.AppendUint64([]byte{proofVersion}, uint64(at)) //nolint:gosec // positive
}

// decodeProof returns the time in a value that encodeProof has made. The result ok is false for any other value.
func decodeProof(value []byte) (at store.Timestamp, ok bool) {
	if len(value) != 9 || value[0] != proofVersion {
		return 0, false
	}
	return store.Timestamp(binary.BigEndian.Uint64(value[1:])), true //nolint:gosec // any
}

// prove records in the given row that an earlier write is acknowledged: it writes a timestamp of the present time. The
// func named still reports whether there is time left. Once it returns false, prove writes nothing more.
func (c *cleaner) prove(ctx context.Context, row []byte, still func() bool) error {
	stamp, err := door.Client(c.b.o.c).Stamps(ctx, 1)
	if err != nil {
		return err
	}
	return door.Bucket(c.b.rows).PutAt(ctx, row, encodeProof(stamp), door.Given{At: stamp, Still: still})
}

// tidy takes the steps that are due for one object, such as deletions of versions, and adds them to the counts in done.
// group has the object's versions, or a section of them. The parameter behind is true if newer versions of the object
// were handled before, and more is true if older versions follow. The func named still reports whether there is time
// left. Once it returns false, tidy writes no row of a version any more.
func (c *cleaner) tidy(
	ctx context.Context, key []byte, group []member, behind, more bool, still func() bool, done *care.Cleaned,
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

// take carries out the given steps, such as deletions, on the versions of one object, and returns the number of steps
// done. It changes the elements of versions to the state after the steps. For example, a deleted version gets the state
// burned. The func named still reports whether there is time left. Once it returns false, take writes no row of a
// version any more.
func (c *cleaner) take(
	ctx context.Context, key []byte, group []member, versions []tidy.Version, steps []tidy.Step, still func() bool,
	done *care.Cleaned,
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
				done.Fail(err)
			}
			return taken
		}
		did, err := c.do(ctx, key, group, s, still)
		if err != nil {
			done.Fail(store.Wrap(s.Do.String()+" version "+group[s.Version].id.String(), err))
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
	// overdue is the longest delay with which a hint (Options.Hints) leads a cleaner to an object. If something has
	// been due for longer, the hint was lost.
	overdue = 6 * time.Hour
	// retryAfter is the delay after which a hint leads a cleaner back to an object. It is used if a step for the object
	// has failed, or has to wait for another step.
	retryAfter = time.Hour
	// clockSlack is added to the delay of a hint. The clock by which a cleaner measures ages may be behind other clocks
	// by up to clockSlack. A cleaner that follows a hint too early finds nothing to do.
	clockSlack = time.Minute
)
