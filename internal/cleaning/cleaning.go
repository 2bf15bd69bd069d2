// Package cleaning deletes for good, now and then, what readers of buckets of objects do not see any
// more, and audits the bodies of these buckets. Of the processes that share a store one cleans at a time, which
// saves work; safety depends on the rules of versions only (docs/objects.md). Pauses of moves hold for cleaners,
// too.
package cleaning

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Options of a Cleaning. Buckets, Objects, Registers and Every are required.
type Options struct {
	Buckets   *listing.Client
	Objects   *objects.Objects
	Registers store.Registers
	// Every is the time from the end of a round to the beginning of the next one.
	Every time.Duration
	// RowsPerSecond is the most rows, and bodies, that are looked at; 0: no limit.
	RowsPerSecond int
	// AuditEvery is the time from the end of an audit to the beginning of the next one; 0: none is made.
	AuditEvery time.Duration
	// Condemn has the bodies deleted that audits find without a version.
	Condemn bool
	// Claim fails where the bodies may belong to another store; then nothing is cleaned or audited. nil: there are none.
	Claim func(context.Context) error
	// Leader lets the processes of a shared store elect one that cleans; nil: this process has its store
	// for itself.
	Leader *leader.Options
	// Log receives what begins, ends and fails.
	Log *slog.Logger
}

// Round is one look at all buckets of objects.
type Round struct {
	Began time.Time `json:"began,omitzero"`
	// Ended is zero while the round is under way.
	Ended   time.Time `json:"ended,omitzero"`
	Buckets int64     `json:"buckets"`
	Rows    int64     `json:"rows"`
	// Burned versions are not seen any more, Deleted ones are gone with their bodies, of so many bytes.
	Burned  int64 `json:"burned"`
	Deleted int64 `json:"deleted"`
	Bytes   int64 `json:"bytes"`
	// Waiting were deleted, and keep their bodies for the grace.
	Waiting int64 `json:"waiting"`
	// Remembered are the versions and uploads that keep their bodies for the grace, and whose rows tell since when.
	Remembered int64 `json:"remembered"`
	// Failed steps are due again in the next round; Error is that of one of them.
	Failed int64  `json:"failed"`
	Error  string `json:"error,omitempty"`
}

// Status is what goes on, as far as this process knows.
type Status struct {
	// Leading: this process cleans. Else Leader is the one that does, if it is known.
	Leading bool           `json:"leading"`
	Leader  *leader.Holder `json:"leader,omitempty"`
	// Paused: buckets were passed over in the last round because moves are paused.
	Paused bool `json:"paused"`
	// Since is when this process began to clean.
	Since time.Time `json:"since,omitzero"`
	// Last is the last whole round of this process, Now the one that is under way.
	Last *Round `json:"last,omitempty"`
	Now  *Round `json:"now,omitempty"`
	// LastAudit is the last whole audit, also one of another process, and Audit the one under way.
	LastAudit *Audit `json:"last_audit,omitempty"`
	Audit     *Audit `json:"audit,omitempty"`
}

// Cleaning cleans all buckets of objects of a store. Run is for one goroutine; the other methods are safe
// for concurrent use.
type Cleaning struct {
	o         Options
	wide      *objects.Objects
	candidate *leader.Candidate // nil: this process has its store for itself
	pacer     *wait.Pacer
	// cleaners remember since when they know the settings of their buckets.
	cleaners map[store.BucketID]*bucketCleaner
	place    place // where the round is

	mu       sync.Mutex
	state    Status // but for Audit, which is in auditing
	sums     sums
	auditing *auditing // nil: no audit is under way
}

type bucketCleaner struct {
	*objects.Cleaner
	report func(objects.Cleaned) // of the present pass
}

// sums are since this process began.
type sums struct {
	steps       map[string]int64
	failures    map[string]int64 // by the kind of the error
	rows, bytes int64
	rounds      int64
	// of audits
	comparedRows, comparedBlobs int64
}

// errPaused ends a pass.
var errPaused = errors.New("moves are paused")

const (
	// firstRound is the longest time from the start to the first round.
	firstRound = time.Minute
	// lookEvery is how often a pass looks whether moves are paused; it ends where that has not been
	// known for blindFor.
	lookEvery = time.Second
	blindFor  = time.Minute
	// mostFailures is how many buckets are named that could not be cleaned.
	mostFailures = 10
	// skew is by how much pauses end later here: clocks differ.
	skew = time.Second
)

// New makes a Cleaning. It does no I/O.
func New(o Options) *Cleaning {
	c := &Cleaning{
		o: o, wide: o.Objects, pacer: wait.NewPacer(o.RowsPerSecond), cleaners: map[store.BucketID]*bucketCleaner{},
		sums: sums{steps: map[string]int64{}, failures: map[string]int64{}},
	}
	if o.Leader != nil {
		elect := *o.Leader
		elect.Work = leader.Cleaning
		c.wide, c.candidate = o.Objects.Everywhere(), leader.New(o.Registers, elect)
	}
	return c
}

// Run cleans until ctx ends, while this process leads.
func (c *Cleaning) Run(ctx context.Context) {
	if c.candidate == nil {
		c.work(ctx)
		return
	}
	for ctx.Err() == nil {
		err := c.candidate.Run(ctx, func(ctx context.Context) error {
			c.o.Log.Info("this process cleans buckets of objects now")
			c.work(ctx)
			return context.Cause(ctx)
		}, func(err error) {
			var held *leader.HeldError
			if errors.As(err, &held) {
				c.o.Log.Info("another process cleans buckets of objects", "cleaner", held.Holder.String())
				return
			}
			c.o.Log.Warn("this process does not clean buckets of objects", "error", err)
		})
		if ctx.Err() == nil && store.KindOf(err) == store.Corrupt {
			c.o.Log.Error("nothing is cleaned by this process", "error", err)
			return
		}
	}
}

// work cleans and audits until ctx ends.
func (c *Cleaning) work(ctx context.Context) {
	var auditing sync.WaitGroup
	if c.o.AuditEvery > 0 { // an audit may take days: rounds go on meanwhile
		auditing.Go(func() { c.audits(ctx) })
	}
	c.rounds(ctx)
	auditing.Wait()
}

// rounds cleans until ctx ends.
func (c *Cleaning) rounds(ctx context.Context) {
	c.change(func(s *Status) { s.Since = time.Now().UTC() })
	c.place = c.recallPlace(ctx)
	for pause := min(c.o.Every, firstRound); wait.Sleep(ctx, pause) == nil; pause = c.o.Every {
		c.round(ctx)
	}
}

func (c *Cleaning) change(f func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

// round cleans all buckets of objects once.
func (c *Cleaning) round(ctx context.Context) {
	r := &Round{Began: time.Now().UTC()}
	c.change(func(s *Status) { s.Now = r })
	paused, err := c.buckets(ctx, r)
	if ctx.Err() != nil {
		c.change(func(s *Status) { s.Now = nil })
		return
	}
	if err != nil {
		c.failed(r, 1, map[store.Kind]int64{store.KindOf(err): 1}, err)
		c.o.Log.Warn("buckets of objects could not all be cleaned; it is tried again", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.state.Paused
	c.state.Now, c.state.Paused = nil, paused
	switch {
	case err != nil:
	case paused:
		if !was {
			c.o.Log.Info("buckets of objects are not cleaned while moves are paused")
		}
	default:
		r.Ended = time.Now().UTC()
		c.state.Last = r
		c.sums.rounds++
		level := slog.LevelInfo
		if r.Burned+r.Deleted+r.Failed == 0 {
			level = slog.LevelDebug
		}
		c.o.Log.Log(ctx, level, "buckets of objects are cleaned", "buckets", r.Buckets, "rows", r.Rows, "burned", r.Burned,
			"deleted", r.Deleted, "bytes", r.Bytes, "waiting", r.Waiting, "failed", r.Failed,
			"took", r.Ended.Sub(r.Began).Round(time.Millisecond))
	}
}

// failed counts failures.
func (c *Cleaning) failed(r *Round, n int64, reasons map[store.Kind]int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Failed += n; err != nil {
		r.Error = err.Error()
	}
	for kind, n := range reasons {
		c.sums.failures[kind.String()] += n
	}
}

// buckets cleans all buckets of objects, and reports whether one was passed over because of a pause.
func (c *Cleaning) buckets(ctx context.Context, r *Round) (paused bool, err error) {
	there := map[store.BucketID]bool{}
	from := c.place // another process may have been there
	wanted := func(info listing.BucketInfo) bool { there[info.ID] = true; return info.Name >= from.Bucket }
	paused, listed, err := c.each(ctx, "clean", wanted, func(ctx context.Context, b *bucket) error {
		return c.pass(ctx, b, r)
	})
	for id := range c.cleaners {
		if listed && !there[id] {
			delete(c.cleaners, id)
		}
	}
	if listed && ctx.Err() == nil {
		c.movePlace(ctx, place{})
	}
	return paused, err
}

// bucket is a bucket of objects.
type bucket struct {
	*objects.Bucket
	id   store.BucketID
	name string
}

// each does something to each bucket of objects that is wanted, until its moves are paused, or that can't be known. It
// reports whether moves of one are paused, and whether all buckets were listed. Those that are deleted meanwhile do
// not count.
func (c *Cleaning) each(
	ctx context.Context, what string, wanted func(listing.BucketInfo) bool, do func(context.Context, *bucket) error,
) (paused, listed bool, err error) {
	if c.o.Claim != nil {
		if err := c.o.Claim(ctx); err != nil {
			return false, false, err
		}
	}
	var failures []error
	for info, err := range c.o.Buckets.Buckets(ctx, "", "") {
		if err != nil {
			return paused, false, err
		}
		if !wanted(info) {
			continue
		}
		err := c.unlessPaused(ctx, info, do)
		switch {
		case errors.Is(err, errPaused):
			paused = true
		case err != nil && !errors.Is(err, objects.ErrPlain) && store.KindOf(err) != store.NotFound:
			if len(failures) < mostFailures {
				failures = append(failures, store.Wrap(what+" bucket "+info.Name, err))
			}
		}
	}
	return paused, true, errors.Join(failures...)
}

func (c *Cleaning) unlessPaused(
	ctx context.Context, info listing.BucketInfo, do func(context.Context, *bucket) error,
) error {
	b := c.o.Objects.BucketOf(info, objects.Versioned)
	_, gone := b.Settings(ctx)
	if gone != nil && !errors.Is(gone, listing.ErrNoSuchBucket) {
		return gone // it is no bucket of objects
	}
	if paused, err := c.paused(ctx, info.ID); err != nil || paused {
		if paused {
			err = errPaused
		}
		return err
	}
	if gone != nil { // it is still on the list: its deletion was interrupted
		return cmp.Or(c.o.Objects.EndDelete(ctx, info.Name), gone)
	}
	ctx, stop := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { c.look(ctx, info.ID, stop) })
	defer looking.Wait()
	defer stop(nil)
	err := do(ctx, &bucket{b, info.ID, info.Name})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// pass cleans a bucket once.
func (c *Cleaning) pass(ctx context.Context, b *bucket, r *Round) (err error) {
	cleaner := c.cleaners[b.id]
	if cleaner == nil {
		made := &bucketCleaner{}
		made.Cleaner, err = b.Cleaner(c.wide, objects.CleanOptions{
			Pacer: c.pacer, Report: func(now objects.Cleaned) { made.report(now) },
		})
		if err != nil {
			return err
		}
		cleaner = made
		c.cleaners[b.id] = cleaner
	}
	from := ""
	if c.place.ID == b.id {
		from = c.place.Next
	}
	var before objects.Cleaned
	cleaner.report = func(now objects.Cleaned) {
		c.count(r, before, now)
		before = now
		c.movePlace(ctx, place{b.name, b.id, cmp.Or(now.Next, from), c.place.kept})
	}
	did, err := cleaner.PassFrom(ctx, from)
	cleaner.report(did)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if did.FirstFailure != nil {
		c.o.Log.Warn("some steps of cleaning failed; they are due again", "bucket", b.name, "steps", did.Failed,
			"error", did.FirstFailure)
		c.failed(r, did.Failed, did.Reasons, did.FirstFailure)
	}
	if err == nil {
		c.mu.Lock()
		r.Buckets++
		c.mu.Unlock()
	}
	return err
}

// count adds what a pass has done since it was counted before.
func (c *Cleaning) count(r *Round, before, now objects.Cleaned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for step, n := range map[string]int64{
		"superseded": now.Superseded - before.Superseded, "proven": now.Proven - before.Proven,
		"finished": now.Finished - before.Finished, "unmarked": now.Unmarked - before.Unmarked,
		"expired": now.Expired - before.Expired, "lapsed": now.Lapsed - before.Lapsed,
		"uploads_ended": now.Ended - before.Ended, "uploads_freed": now.Freed - before.Freed,
	} {
		c.sums.steps[step] += n
	}
	c.sums.rows += now.Rows - before.Rows
	c.sums.bytes += now.Bytes - before.Bytes
	r.Rows += now.Rows - before.Rows
	r.Burned += now.Superseded - before.Superseded + now.Lapsed - before.Lapsed
	r.Deleted += now.Finished - before.Finished
	r.Bytes += now.Bytes - before.Bytes
	r.Waiting += now.Waiting - before.Waiting
	r.Remembered += now.Remembered - before.Remembered
}

// paused reports whether moves of a bucket are paused.
func (c *Cleaning) paused(ctx context.Context, id store.BucketID) (bool, error) {
	s, err := pause.Read(ctx, c.o.Registers, store.Local)
	if err != nil {
		return false, err
	}
	_, paused := s.Of(id, time.Now().Add(-skew))
	return paused, nil
}

// look ends work on a bucket once moves of it are paused, or that can't be known.
func (c *Cleaning) look(ctx context.Context, id store.BucketID, stop context.CancelCauseFunc) {
	known := time.Now()
	for wait.Sleep(ctx, lookEvery) == nil {
		paused, err := c.paused(ctx, id)
		switch {
		case err == nil && paused:
			stop(errPaused)
		case err == nil:
			known = time.Now()
		case time.Since(known) > blindFor:
			stop(err)
		}
	}
}

// Leading reports whether this process cleans at present.
func (c *Cleaning) Leading() bool {
	if c.candidate == nil {
		return true
	}
	_, mine := c.candidate.Leading()
	return mine
}

// Status reports what goes on.
func (c *Cleaning) Status(ctx context.Context) Status {
	var holder *leader.Holder
	leading := true
	if c.candidate != nil {
		h, known, mine := c.candidate.Leader(ctx)
		if leading = mine; known {
			h.Lease = 0
			holder = &h
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Leading, s.Leader = leading, holder
	if !leading {
		return Status{Leader: holder}
	}
	if s.Now != nil {
		now := *s.Now
		s.Now = &now
	}
	if c.auditing != nil {
		s.Audit = c.auditing.audit()
	}
	return s
}
