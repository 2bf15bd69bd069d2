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

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Compared is what audits have compared and found.
type Compared struct {
	Buckets  int64 `json:"buckets"`
	Rows     int64 `json:"rows"`
	Blobs    int64 `json:"blobs"`
	Problems int64 `json:"problems"`
	// Condemned are those problems that a cleaner will mend.
	Condemned int64 `json:"condemned"`
	// InUse blobs belong to uploads, Waiting to versions that were deleted, Young to puts that may be
	// under way. Unjudged ones can't be judged.
	InUse    int64 `json:"in_use"`
	Waiting  int64 `json:"waiting"`
	Young    int64 `json:"young"`
	Unjudged int64 `json:"unjudged"`
	// Checked bodies were compared with their checksums, Unchecked ones have none.
	Checked   int64 `json:"checked,omitempty"`
	Unchecked int64 `json:"unchecked,omitempty"`
}

// Take adds what a part of an audit has compared.
func (c *Compared) Take(part *objects.Audited) {
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

// Guilty are the bodies of a bucket that an audit has found to be without a version. The zero value is ready.
type Guilty struct {
	found []objects.Finding
	lost  bool
}

// mostGuilty bounds the memory of an audit. What is more is found by the next one.
const mostGuilty = 100_000

// Take adds what a part of an audit has found.
func (g *Guilty) Take(part *objects.Audited) {
	for _, f := range part.Findings {
		g.lost = g.lost || f.Fault == objects.LostBody
		if f.Fault.Condemnable() && len(g.found) < mostGuilty {
			g.found = append(g.found, f)
		}
	}
}

// ErrBodiesLost: of the same bucket bodies are lost, so that these may be the bodies of something else.
var ErrBodiesLost = store.Errorf(store.InvalidArgument, "nothing is condemned: bodies of versions are lost, so that "+
	"these may be the bodies of another keyspace; if they are the right ones, bring back what is lost, or delete its "+
	"versions")

// Condemn condemns them (objects.Cleaner.Condemn), once an audit has read all of their bucket, and returns how many.
// Those that are too young, or whose rows are damaged, are left to the next audit. It fails with ErrBodiesLost, or like
// Condemn; then it goes on where it was when it is called again.
func (g *Guilty) Condemn(
	ctx context.Context, b *objects.Bucket, wide *objects.Objects, p *wait.Pacer,
) (n int64, err error) {
	if len(g.found) > 0 && g.lost {
		return 0, ErrBodiesLost
	}
	// A pass of another cleaner burns again what this one burns.
	cleaner, err := b.Cleaner(wide, objects.CleanOptions{})
	if err != nil {
		return 0, err
	}
	for ; len(g.found) > 0; g.found = g.found[1:] {
		if err := p.Take(ctx, 1); err != nil {
			return n, err
		}
		err := cleaner.Condemn(ctx, g.found[0])
		if err == nil {
			n++
		} else if k := store.KindOf(err); k != store.InvalidArgument && k != store.Corrupt {
			return n, store.Wrap("condemn "+g.found[0].Blob, err)
		}
	}
	return n, nil
}

// Audit is one comparison of all versions of a store with all bodies.
type Audit struct {
	Began time.Time `json:"began"`
	// Ended is zero while the audit is under way.
	Ended time.Time `json:"ended,omitzero"`
	Compared
	Faults Counts `json:"faults"`
	// Found are some of the buckets in which something was found, first those that lack something.
	Found []Found `json:"found,omitempty"`
	// Error is why the audit was interrupted last; it goes on where it was.
	Error string `json:"error,omitempty"`
}

// Found is what was found in a bucket.
type Found struct {
	Bucket string `json:"bucket"`
	Faults Counts `json:"faults"`
}

// Counts are numbers of findings, by their fault.
type Counts map[objects.Fault]int64

// String is a text for people.
func (c Counts) String() string {
	var parts []string
	for _, fault := range objects.Faults() {
		if n := c[fault]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", fault, n))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// harm counts what does not only take space.
func (c Counts) harm() (n int64) {
	for fault, found := range c {
		if !fault.Condemnable() {
			n += found
		}
	}
	return n
}

// level is that of a line in the log.
func (c Counts) level() slog.Level {
	if c.harm() > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

const (
	// firstAudit is the least time from the start to an audit: whoever has restored something can look at it before.
	firstAudit = time.Hour
	// mostFound bounds Audit.Found, and mostNamed the findings of a bucket that the log names, of each fault.
	mostFound = 10
	mostNamed = 3
)

// auditing is an audit under way.
type auditing struct {
	Audit                                 // of the buckets that are done
	done  map[store.BucketID]bool         // and need not be looked at again
	begun map[store.BucketID]*bucketAudit // how far others are
}

// bucketAudit is the audit of one bucket.
type bucketAudit struct {
	next     string // where it goes on
	whole    bool   // all was compared
	compared Compared
	faults   Counts
	named    map[objects.Fault][]string
	guilty   Guilty
}

// audit is what was compared so far.
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

// end ends the audit of a bucket.
func (a *auditing) end(b *bucket, x *bucketAudit) {
	x.compared.Buckets++
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

// audits makes audits until ctx ends.
func (c *Cleaning) audits(ctx context.Context) {
	for pause := c.untilAudit(ctx); wait.Sleep(ctx, pause) == nil; {
		if pause = c.o.Every; c.audit(ctx) {
			pause = c.o.AuditEvery
		}
	}
}

// untilAudit returns how long to wait before the first audit: another process may have made one.
func (c *Cleaning) untilAudit(ctx context.Context) time.Duration {
	recalled := c.recall(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if recalled != nil {
		c.state.LastAudit = recalled
	}
	last, least := c.state.LastAudit, min(c.o.AuditEvery, firstAudit)
	if last == nil {
		return least
	}
	if c.auditing != nil && last.Ended.After(c.auditing.Began) {
		c.auditing = nil // another process has led meanwhile
	}
	// A clock may have been wrong.
	return max(least, min(c.o.AuditEvery, time.Until(last.Ended.Add(c.o.AuditEvery))))
}

// audit audits the buckets that are not done, and reports whether the audit has ended.
func (c *Cleaning) audit(ctx context.Context) bool {
	c.mu.Lock()
	if c.auditing == nil {
		c.auditing = &auditing{
			Audit: Audit{Began: time.Now().UTC(), Faults: Counts{}},
			done:  map[store.BucketID]bool{}, begun: map[store.BucketID]*bucketAudit{},
		}
	}
	a := c.auditing
	c.mu.Unlock()
	wanted := func(info listing.BucketInfo) bool { return !a.done[info.ID] }
	paused, _, err := c.each(ctx, "audit", wanted, func(ctx context.Context, b *bucket) error {
		return c.auditBucket(ctx, a, b)
	})
	if ctx.Err() != nil {
		return false
	}
	if last := c.ended(a, paused, err); last != nil {
		c.o.Log.Log(ctx, last.Faults.level(), "bodies of objects are audited", "buckets", last.Buckets, "rows", last.Rows,
			"bodies", last.Blobs, "found", last.Faults.String(), "condemned", last.Condemned, "unjudged", last.Unjudged,
			"took", last.Ended.Sub(last.Began).Round(time.Millisecond))
		c.remember(ctx, last)
		return true
	}
	if err != nil {
		c.o.Log.Warn("bodies of objects could not all be audited; it is tried again", "error", err)
	}
	return false
}

// ended ends an audit unless something is left of it; nil: something is.
func (c *Cleaning) ended(a *auditing, paused bool, err error) *Audit {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		a.Error = err.Error()
		c.sums.failures[store.KindOf(err).String()]++
		return nil
	case paused:
		a.Error = errPaused.Error()
		return nil
	}
	last := a.Audit
	last.Ended, last.Error = time.Now().UTC(), ""
	c.state.LastAudit, c.auditing = &last, nil
	return &last
}

// auditBucket audits a bucket from where it was, and condemns what it has found.
func (c *Cleaning) auditBucket(ctx context.Context, a *auditing, b *bucket) error {
	x := a.begun[b.id]
	if x == nil {
		x = &bucketAudit{faults: Counts{}, named: map[objects.Fault][]string{}}
	}
	if !x.whole {
		err := b.Audit(ctx, c.wide, x.next, func(part objects.Audited) error {
			c.compared(a, b, x, &part)
			return c.pacer.Take(ctx, int(part.Rows+part.Blobs))
		})
		if err != nil {
			return err
		}
	}
	if c.o.Condemn {
		n, err := x.guilty.Condemn(ctx, b.Bucket, c.wide, c.pacer)
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
	for _, fault := range objects.Faults() {
		if n := x.faults[fault]; n > 0 {
			c.o.Log.Log(ctx, Counts{fault: n}.level(), "an audit has found faults", "bucket", b.name, "fault", string(fault),
				"number", n, "first", strings.Join(x.named[fault], "; "))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.end(b, x)
	return nil
}

// compared takes a part of the audit of a bucket.
func (c *Cleaning) compared(a *auditing, b *bucket, x *bucketAudit, part *objects.Audited) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.begun[b.id] = x
	c.sums.comparedRows += part.Rows
	c.sums.comparedBlobs += part.Blobs
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

// The last audit is kept in store.Process, for the next process. It is a hint: without it an audit begins sooner.
const (
	auditKey  = "audit"
	auditForm = 1
	keepTime  = 5 * time.Second
)

// recall returns the last whole audit of this store; nil: none is known.
func (c *Cleaning) recall(ctx context.Context) *Audit {
	a := &Audit{}
	known, err := c.read(ctx, auditKey, auditForm, a)
	if err != nil && ctx.Err() == nil {
		c.o.Log.Warn("when bodies of objects were last audited is not known", "error", err)
	}
	if err != nil || !known {
		return nil
	}
	return a
}

// remember writes down the last audit.
func (c *Cleaning) remember(ctx context.Context, a *Audit) {
	if err := c.write(ctx, auditKey, auditForm, a); err != nil {
		c.o.Log.Warn("when bodies of objects were audited could not be noted: the next process audits anew", "error", err)
	}
}

// write stores a value in a register of store.Process, in place of the value that is there.
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

// read returns what write has kept; false: nothing.
func (c *Cleaning) read(ctx context.Context, key string, form byte, value any) (bool, error) {
	payload, _, err := record.Read(ctx, c.o.Registers, store.Process, key, store.Local, form)
	if err != nil || payload == nil {
		return false, err
	}
	return true, json.Unmarshal(payload, value)
}
