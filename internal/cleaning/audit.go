package cleaning

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Compared counts what one or more audits have compared, such as rows and blobs, and the problems that the audits have
// found. An audit compares the versions of objects with the stored bodies (blobs).
type Compared struct {
	Buckets  int64 `json:"buckets"`
	Rows     int64 `json:"rows"`
	Blobs    int64 `json:"blobs"`
	Problems int64 `json:"problems"`
	// Condemned is the number of problems that were solved: a body without a version was deleted, or cleaners will
	// delete it.
	Condemned int64 `json:"condemned"`
	// InUse is the number of bodies that belong to uploads. Waiting bodies belong to deleted versions, and Young bodies
	// may belong to puts that are under way. Unjudged bodies are those whose version an audit can't look up.
	InUse    int64 `json:"in_use"`
	Waiting  int64 `json:"waiting"`
	Young    int64 `json:"young"`
	Unjudged int64 `json:"unjudged"`
	// Checked is the number of bodies that were compared with a checksum, and Unchecked the number of bodies without a
	// known checksum.
	Checked   int64 `json:"checked,omitempty"`
	Unchecked int64 `json:"unchecked,omitempty"`
}

// Take adds the numbers of part, which is the result of one section of an audit, to c.
func (c *Compared) Take(part *care.Audited) {
	c.add(&Compared{
		Rows: part.Rows, Blobs: part.Blobs, Problems: int64(len(part.Findings)),
		InUse: part.InUse, Waiting: part.Waiting, Young: part.Young, Unjudged: part.Unjudged,
		Checked: part.Checked, Unchecked: part.Unchecked,
	})
}

func (c *Compared) add(more *Compared) {
	c.Buckets, c.Rows, c.Blobs = c.Buckets+more.Buckets, c.Rows+more.Rows, c.Blobs+more.Blobs
	c.Problems, c.Condemned = c.Problems+more.Problems, c.Condemned+more.Condemned
	c.InUse, c.Waiting, c.Young = c.InUse+more.InUse, c.Waiting+more.Waiting, c.Young+more.Young
	c.Unjudged, c.Checked, c.Unchecked = c.Unjudged+more.Unjudged, c.Checked+more.Checked, c.Unchecked+more.Unchecked
}

// Guilty is a set of bodies in one bucket that an audit has found to belong to no version, and that are to be deleted.
// It also records whether bodies of versions are missing in this bucket. The zero value is an empty set.
type Guilty struct {
	found []care.Finding
	lost  bool
}

// mostGuilty is the largest number of bodies without a version that one audit of a bucket collects for deletion. The
// next audit finds the rest.
const mostGuilty = 100_000

// Take adds to the set g those bodies that an audit has found to belong to no version. The parameter part is the result
// of one section of the audit.
func (g *Guilty) Take(part *care.Audited) {
	for _, f := range part.Findings {
		g.lost = g.lost || f.Fault == care.LostBody
		if f.Fault.Condemnable() && len(g.found) < mostGuilty {
			g.found = append(g.found, f)
		}
	}
}

// ErrBodiesLost is the error if bodies are not deleted although they belong to no version. The reason is that bodies of
// other versions of the bucket are missing: perhaps the server uses the bodies of another store by mistake.
var ErrBodiesLost = store.Errorf(store.InvalidArgument, "nothing is condemned: bodies of versions are lost, so that "+
	"these may be the bodies of another keyspace; if they are the right ones, bring back what is lost, or delete its "+
	"versions")

// Condemn deletes the bodies in the set g, which belong to no version, or makes cleaners delete them later. It is
// called once an audit has read the whole bucket b. Bodies that are too young, or whose rows are damaged, are left to
// the next audit. The parameter p limits the speed. The result is the number of bodies.
//
// Condemn fails with ErrBodiesLost, or like care.Cleaner.Condemn, which it calls for each body. A second call goes
// on where a failed call has stopped.
func (g *Guilty) Condemn(ctx context.Context, b care.Bucket, p *wait.Pacer) (n int64, err error) {
	if len(g.found) > 0 && g.lost {
		return 0, ErrBodiesLost
	}
	// The passes of another cleaner prove and finish what this cleaner burns.
	cleaner, err := b.Cleaner(care.CleanOptions{})
	if err != nil {
		return 0, err
	}
	return g.each(ctx, p, cleaner.Condemn)
}

// CondemnUnnamed deletes the bodies in the set g, which belong to a bucket that does not exist. The parameter name is
// the name of the bucket. Bodies that are too young are left to the next audit. The parameter p limits the speed. The
// result is the number of deleted bodies.
//
// CondemnUnnamed fails like care.Objects.CondemnUnnamed, which it calls for each body. A second call goes on where a
// failed call has stopped.
func (g *Guilty) CondemnUnnamed(
	ctx context.Context, name string, wide care.Objects, p *wait.Pacer,
) (n int64, err error) {
	return g.each(ctx, p, func(ctx context.Context, f care.Finding) error {
		return wide.CondemnUnnamed(ctx, name, f)
	})
}

func (g *Guilty) each(
	ctx context.Context, p *wait.Pacer, condemn func(context.Context, care.Finding) error,
) (n int64, err error) {
	for ; len(g.found) > 0; g.found = g.found[1:] {
		if err := p.Take(ctx, 1); err != nil {
			return n, err
		}
		err := condemn(ctx, g.found[0])
		if err == nil {
			n++
		} else if k := store.KindOf(err); k != store.InvalidArgument && k != store.Corrupt {
			return n, store.Wrap("condemn "+g.found[0].Blob, err)
		}
	}
	return n, nil
}

// Audit is the result of one audit, which compares all versions in all buckets of a store with all stored bodies.
type Audit struct {
	Began time.Time `json:"began"`
	// Ended is the end of the audit, or zero while the audit is under way.
	Ended time.Time `json:"ended,omitzero"`
	Compared
	Faults Counts `json:"faults"`
	// Found has at most ten of the buckets with faults. Buckets with lost or damaged versions come first.
	Found []Found `json:"found,omitempty"`
	// Error is the last error that interrupted the audit. The audit later continues where it was interrupted.
	Error string `json:"error,omitempty"`
}

// Found is the name of a bucket and the numbers of faults that an audit has found in the bucket.
type Found struct {
	Bucket string `json:"bucket"`
	Faults Counts `json:"faults"`
}

// Counts are the numbers of faults that an audit has found, e.g. two lost bodies. The index of the map is the kind of
// the fault.
type Counts map[care.Fault]int64

// String returns the numbers of faults as a text for people, such as "lost body: 2, orphan: 1".
func (c Counts) String() string {
	var parts []string
	for _, fault := range care.Faults() {
		if n := c[fault]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", fault, n))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// harm returns the number of faults that are damage, such as a lost body. It does not count bodies without a version,
// which only take space.
func (c Counts) harm() (n int64) {
	for fault, found := range c {
		if !fault.Condemnable() {
			n += found
		}
	}
	return n
}

// level returns the level of a log line about these faults: Warn if some of them are damage, and otherwise Info.
func (c Counts) level() slog.Level {
	if c.harm() > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

const (
	// firstAudit is the shortest time from the start of the process to its first audit. So after a restore from a
	// backup an operator has time to check the result before an audit deletes bodies.
	firstAudit = time.Hour
	// mostFound is the largest length of Audit.Found. mostNamed is the largest number of faults of one kind in a bucket
	// that the log describes one by one.
	mostFound = 10
	mostNamed = 3
)

// auditing is the state of an audit of all buckets that is under way.
type auditing struct {
	Audit                                 // of the buckets that are done
	done  map[store.BucketID]bool         // buckets that are done
	begun map[store.BucketID]*bucketAudit // buckets under way; zero id: a name without a bucket
	names map[string]bool                 // names without a bucket that are done
}

// bucketAudit is the state of the audit of one bucket, which may be interrupted and continued.
type bucketAudit struct {
	next     string // the position from which to go on
	whole    bool   // the bucket was compared to its end
	compared Compared
	faults   Counts
	named    map[care.Fault][]string
	guilty   Guilty
}

func newBucketAudit() *bucketAudit {
	return &bucketAudit{faults: Counts{}, named: map[care.Fault][]string{}}
}

// audit returns the result of an audit so far. The result includes the numbers of buckets that are not yet compared to
// their end.
func (a *auditing) audit() *Audit {
	all := a.Audit
	all.Faults = maps.Clone(a.Faults)
	for _, b := range a.begun {
		all.Compared.add(&b.compared)
		for fault, n := range b.faults {
			all.Faults[fault] += n
		}
	}
	return &all
}

// end ends the audit of one bucket, b: it adds the result x of the bucket to the result of the whole audit.
func (a *auditing) end(b *bucket, x *bucketAudit) {
	a.Compared.add(&x.compared)
	for fault, n := range x.faults {
		a.Faults[fault] += n
	}
	if len(x.faults) > 0 {
		found := append(slices.Clone(a.Found), Found{b.name, x.faults})
		slices.SortStableFunc(found, func(a, b Found) int { return cmp.Compare(b.Faults.harm(), a.Faults.harm()) })
		a.Found = found[:min(len(found), mostFound)]
	}
	delete(a.begun, b.id)
	a.done[b.id] = true
}

// series is a sequence of audits, one after the other. A Cleaning has two, which go on beside each other:
//   - audits, which compare the names and sizes of bodies, and
//   - scrubs, which read all bodies and compare their checksums. A scrub may take weeks. It counts only damaged bodies,
//     because an audit finds all other faults sooner.
type series struct {
	key  string                             // of the register that keeps the last audit
	pace func(context.Context, int64) error // called before bodies are read; nil: these are audits, which read none
	// last and now are protected by Cleaning.mu.
	last *Audit    // the last whole audit, perhaps of another process
	now  *auditing // the audit under way, or nil
}

// audits runs one audit after the other until ctx ends, each after a pause. s is the sequence to which the audits
// belong: audits of names and sizes, or scrubs, which read the bodies.
func (c *Cleaning) audits(ctx context.Context, s *series) {
	for pause := c.untilAudit(ctx, s); wait.Sleep(ctx, pause) == nil; {
		if pause = c.o.Every; c.audit(ctx, s) {
			pause = c.o.AuditEvery
		}
	}
}

// untilAudit returns the pause before the first audit of this process in the sequence s. An audit is due when
// Options.AuditEvery has passed since the last one ended, perhaps in another process. The pause is at least an hour, or
// AuditEvery if that is shorter.
func (c *Cleaning) untilAudit(ctx context.Context, s *series) time.Duration {
	recalled := c.recall(ctx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if recalled != nil {
		s.last = recalled
	}
	least := min(c.o.AuditEvery, firstAudit)
	if s.last == nil {
		return least
	}
	if s.now != nil && s.last.Ended.After(s.now.Began) {
		s.now = nil // another process has led shard 0 meanwhile, and made an audit
	}
	// The pause is bounded, as a clock may have been wrong.
	return max(least, min(c.o.AuditEvery, time.Until(s.last.Ended.Add(c.o.AuditEvery))))
}

// audit continues the audit under way in the sequence s, or begins an audit if there is none. It compares all buckets
// that are not yet done. It returns true if the audit is done now, and false if buckets are left because of an error or
// a pause.
func (c *Cleaning) audit(ctx context.Context, s *series) bool {
	c.mu.Lock()
	if s.now == nil {
		s.now = &auditing{
			Audit: Audit{Began: time.Now().UTC(), Faults: Counts{}},
			done:  map[store.BucketID]bool{}, begun: map[store.BucketID]*bucketAudit{}, names: map[string]bool{},
		}
	}
	a := s.now
	c.mu.Unlock()
	wanted := func(info listing.BucketInfo) bool { return !a.done[info.ID] }
	paused, _, err := c.each(ctx, s.key, wanted, func(ctx context.Context, b *bucket) error {
		return c.auditBucket(ctx, s, a, b)
	})
	if err == nil && !paused && s.pace == nil {
		err = c.beforePause(ctx, store.BucketID{}, func(ctx context.Context) error { return c.auditUnnamed(ctx, s, a) })
		if paused = errors.Is(err, errPaused); paused {
			err = nil
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if last := c.ended(s, a, paused, err); last != nil {
		what := "bodies of objects are audited"
		if s.pace != nil {
			what = "bodies of objects are compared with their checksums"
		}
		c.o.Log.Log(ctx, last.Faults.level(), what, "buckets", last.Buckets, "rows", last.Rows,
			"bodies", last.Blobs, "found", last.Faults.String(), "condemned", last.Condemned, "unjudged", last.Unjudged,
			"took", last.Ended.Sub(last.Began).Round(time.Millisecond))
		c.remember(ctx, s, last)
		return true
	}
	if err != nil {
		c.o.Log.Warn("bodies of objects could not all be audited; it is tried again", "error", err)
	}
	return false
}

// ended ends the audit a, and returns its result. The result is nil if the audit was interrupted and goes on later.
// This is so if
//   - err, the error of the audit, is not nil, or
//   - paused is true, because an operator has paused moves.
func (c *Cleaning) ended(s *series, a *auditing, paused bool, err error) *Audit {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		a.Error = err.Error()
		c.sums.failures[store.KindOf(err).Error()]++
		return nil
	case paused:
		a.Error = errPaused.Error()
		return nil
	}
	last := a.Audit
	last.Ended, last.Error = time.Now().UTC(), ""
	s.last, s.now = &last, nil
	return &last
}

// findings returns the number of known faults of the kind f. It is the number from the last whole audit or, if higher,
// from the audit under way.
func (s *series) findings(f care.Fault) (n int64) {
	if s.last != nil {
		n = s.last.Faults[f]
	}
	if s.now != nil {
		n = max(n, s.now.audit().Faults[f])
	}
	return n
}

// auditBucket audits the bucket b as a step of the audit a. It begins where the audit of the bucket was interrupted. If
// Options.Condemn is set, auditBucket then deletes the bodies that belong to no version.
func (c *Cleaning) auditBucket(ctx context.Context, s *series, a *auditing, b *bucket) error {
	x := a.begun[b.id]
	if x == nil {
		x = newBucketAudit()
	}
	if !x.whole {
		err := b.Audit(ctx, x.next, s.pace, func(part care.Audited) error {
			c.compared(s, a, b, x, &part)
			return c.pacer.Take(ctx, int(part.Rows+part.Blobs))
		})
		if err != nil {
			return err
		}
	}
	if c.o.Condemn && s.pace == nil {
		n, err := x.guilty.Condemn(ctx, b.Bucket, c.pacer)
		c.mu.Lock()
		x.compared.Condemned += n
		c.mu.Unlock()
		if err != nil && !errors.Is(err, ErrBodiesLost) {
			return err
		}
		if err != nil {
			c.o.Log.Warn("bodies without a version are not condemned", "bucket", b.name, "error", err)
		}
	}
	c.name(ctx, "an audit has found faults", b.name, x)
	c.mu.Lock()
	defer c.mu.Unlock()
	x.compared.Buckets++
	a.end(b, x)
	return nil
}

// name writes the faults that an audit has found in a bucket to the log. There is one line for each kind of fault, with
// the number of faults and the first few of them. The parameter what is the message of the line.
func (c *Cleaning) name(ctx context.Context, what, bucket string, x *bucketAudit) {
	for _, fault := range care.Faults() {
		if n := x.faults[fault]; n > 0 {
			c.o.Log.Log(ctx, Counts{fault: n}.level(), what, "bucket", bucket, "fault", string(fault), "number", n,
				"first", strings.Join(x.named[fault], "; "))
		}
	}
}

// auditUnnamed audits stored bodies that belong to no existing bucket, for each bucket name that such bodies have. Most
// of these buckets were deleted. If the audit of a bucket name is interrupted, it begins anew.
func (c *Cleaning) auditUnnamed(ctx context.Context, s *series, a *auditing) error {
	for name, err := range c.wide.Unnamed(ctx) {
		if err != nil {
			return err
		}
		if a.names[name] {
			continue
		}
		b, x := &bucket{name: name}, newBucketAudit()
		err := c.wide.AuditUnnamed(ctx, name, func(part care.Audited) error {
			c.compared(s, a, b, x, &part)
			return c.pacer.Take(ctx, int(part.Blobs))
		})
		if err == nil && c.o.Condemn {
			x.compared.Condemned, err = x.guilty.CondemnUnnamed(ctx, name, c.wide, c.pacer)
		}
		if err != nil {
			return store.Wrap("audit the bodies of bucket "+name+", which is not there", err)
		}
		c.name(ctx, "an audit has found bodies of a bucket that is not there", name, x)
		c.mu.Lock()
		a.end(b, x)
		c.mu.Unlock()
		a.names[name] = true
	}
	return ctx.Err()
}

// compared adds the result of one section of an audit, which is part, to the result x of the bucket b. It also sets the
// position from which the audit of b continues.
func (c *Cleaning) compared(s *series, a *auditing, b *bucket, x *bucketAudit, part *care.Audited) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.begun[b.id] = x
	if s.pace == nil {
		c.sums.comparedRows += part.Rows
		c.sums.comparedBlobs += part.Blobs
	} else {
		c.sums.scrubbed += part.Checked
		part.Findings = slices.DeleteFunc(part.Findings, func(f care.Finding) bool {
			return f.Fault != care.DamagedBody
		})
	}
	x.compared.Take(part)
	for i := range part.Findings {
		f := &part.Findings[i]
		x.faults[f.Fault]++
		if len(x.named[f.Fault]) < mostNamed {
			x.named[f.Fault] = append(x.named[f.Fault], f.String())
		}
	}
	if c.o.Condemn {
		x.guilty.Take(part)
	}
	x.next, x.whole = part.Next, part.Next == ""
}

// auditKey and scrubKey are the keys of the registers, small values in the store, with the results of the last audit
// and the last scrub. By them the next process knows when the next audit is due. If they are lost, the next audit only
// begins sooner. auditForm is the version of their format, and keepTime is the longest time of a write.
const (
	auditKey  = "audit"
	scrubKey  = "scrub"
	auditForm = 1
	keepTime  = 5 * time.Second
)

// recall returns the stored result of the last whole audit in the sequence s, perhaps of another process. It returns
// nil if no audit is known.
func (c *Cleaning) recall(ctx context.Context, s *series) *Audit {
	a := &Audit{}
	known, err := c.read(ctx, s.key, auditForm, a)
	if err != nil && ctx.Err() == nil {
		c.o.Log.Warn("when bodies of objects were last audited is not known", "error", err)
	}
	if err != nil || !known {
		return nil
	}
	return a
}

// remember stores the result of a whole audit, by which the next process knows when the next audit is due. It is stored
// in a register, which is a small value in the store.
func (c *Cleaning) remember(ctx context.Context, s *series, a *Audit) {
	if err := c.write(ctx, s.key, auditForm, a); err != nil {
		c.o.Log.Warn("when bodies of objects were audited could not be noted: the next process audits anew", "error", err)
	}
}

// write stores value as JSON in a register, which is a small value in the store that is changed atomically. key names
// the register, and form is the version of the format.
func (c *Cleaning) write(ctx context.Context, key string, form byte, value any) error {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	_, old, err := record.Read(ctx, c.o.Registers, store.Process, key, store.Serial, form)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return c.o.Registers.Swap(ctx, store.Process, []byte(key), old, record.Seal(form, record.Next(old), payload))
}

// read decodes the JSON in a register, which is a small value in the store, into value. key names the register, and
// form is the version of the format. read returns false if the register is empty.
func (c *Cleaning) read(ctx context.Context, key string, form byte, value any) (bool, error) {
	payload, _, err := record.Read(ctx, c.o.Registers, store.Process, key, store.Local, form)
	if err != nil || payload == nil {
		return false, err
	}
	return true, json.Unmarshal(payload, value)
}
