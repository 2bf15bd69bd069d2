// Package cleaning deletes, in the background, the versions and bodies of objects that no reader sees any more, and
// audits the bodies of objects.
//
// The processes that share a store divide its buckets by shards (internal/rebalance/shard). At any time one process
// cleans the buckets of a shard, and the process with shard 0 audits all buckets. The division only saves work: safety
// depends on the rules of docs/objects.md alone, which hold for any number of cleaners. When an operator pauses the
// moves of ranges of keys, cleaners pause, too.
package cleaning

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Options are the settings of a Cleaning. Buckets, Objects, Registers and Every are required.
type Options struct {
	Buckets   *listing.Client
	Objects   *objects.Objects
	Registers store.Registers
	// Every is the pause between the end of a round of cleaning and the beginning of the next round.
	Every time.Duration
	// Hints, if not nil, stores hints, which are keys of objects that may have something to delete. Cleaners rely on
	// hints only while all processes that may write objects also write hints. Noting returns whether all processes do
	// so, and a nil Noting means that they do. While hints are relied on, a round reads all rows only once in AllEvery.
	// Otherwise each round reads all rows.
	Hints    *hints.Journal
	Noting   func(context.Context) (bool, error)
	AllEvery time.Duration
	// RowsPerSecond is the largest number of rows and bodies per second that this process looks at. Zero means no
	// limit.
	RowsPerSecond int
	// AuditEvery is the pause between the end of an audit and the beginning of the next audit. Zero means no audits.
	AuditEvery time.Duration
	// ScrubMiBPerSecond is the largest amount of bodies, in MiB per second, that scrubs read to compare the bodies with
	// their checksums. Zero means no scrubs.
	ScrubMiBPerSecond int
	// Condemn makes audits delete the bodies that belong to no version.
	Condemn bool
	// Claim returns an error if the bodies may belong to another store. Then nothing is cleaned or audited. A nil Claim
	// means that there is no store of bodies.
	Claim func(context.Context) error
	// Leader has the options by which the processes of a shared store elect one process for each shard, which is a
	// group of buckets. The lease is a minute by default. A nil Leader means that no other process uses the store.
	Leader *leader.Options
	// Live returns the number of processes that clean, this process included. The number decides how many shards a
	// process leads. If Live is nil, the number is not known, and a process keeps all shards that it leads.
	Live func(context.Context) (int, error)
	// Log is the logger for the beginning, the end and failures of work.
	Log *slog.Logger
}

// Round is the result of one round of cleaning, which looks once at each bucket of objects. Mostly a round covers one
// shard, which is a group of buckets that one process cleans. The result also counts what was cleaned since the
// previous round because of hints, which lead to single objects. Only objects that a cleaner has looked at are counted.
type Round struct {
	Began time.Time `json:"began,omitzero"`
	// Ended is the end of the round, or zero while the round is under way.
	Ended   time.Time `json:"ended,omitzero"`
	Buckets int64     `json:"buckets"`
	Rows    int64     `json:"rows"`
	// Burned is the number of versions that this round has made invisible to readers. Deleted is the number of versions
	// whose bodies, too, were deleted. Bytes is the length of these bodies together.
	Burned  int64 `json:"burned"`
	Deleted int64 `json:"deleted"`
	Bytes   int64 `json:"bytes"`
	// Waiting is the number of deleted versions that keep their bodies until the time of grace for readers is over.
	Waiting int64 `json:"waiting"`
	// Remembered is the number of deleted versions and ended uploads that keep their bodies until the time of grace for
	// readers is over. Their rows tell when that time began, so another process can go on.
	Remembered int64 `json:"remembered"`
	// Failed is the number of steps, such as deletions, that failed and that the next round tries again. Error is the
	// error of one of them.
	Failed int64  `json:"failed"`
	Error  string `json:"error,omitempty"`
}

// Status says what cleaners and audits are doing at present, as far as this process knows.
type Status struct {
	// Leading is true while this process cleans buckets, which are those of the shards in Shards. Leader is the process
	// that cleans the buckets of shard 0, or nil if it is not known.
	Leading bool           `json:"leading"`
	Leader  *leader.Holder `json:"leader,omitempty"`
	Shards  []int          `json:"shards,omitempty"`
	// Paused is true if the last round left buckets out because an operator has paused moves of ranges of keys.
	Paused bool `json:"paused"`
	// Since is the time when this process began to clean.
	Since time.Time `json:"since,omitzero"`
	// Last is the result of this process's last whole round of cleaning, and Now that of the round under way. As each
	// shard has its own rounds, the results are sums over the shards. Last is nil until each shard has had a whole
	// round.
	Last *Round `json:"last,omitempty"`
	Now  *Round `json:"now,omitempty"`
	// LastAudit is the last whole audit, perhaps of another process, and Audit is the audit under way. Only the process
	// with shard 0 knows the two.
	LastAudit *Audit `json:"last_audit,omitempty"`
	Audit     *Audit `json:"audit,omitempty"`
	// LastScrub is the last whole scrub, and Scrub is the scrub under way. A scrub reads all bodies, and finds only
	// damaged bodies.
	LastScrub *Audit `json:"last_scrub,omitempty"`
	Scrub     *Audit `json:"scrub,omitempty"`
}

// Cleaning cleans the buckets of objects of a store: it deletes the versions and bodies that no reader can see any
// more. In a store with several processes, each process cleans only the shards, which are groups of buckets, that it
// leads. Run is for one goroutine. The other methods are safe for concurrent use.
type Cleaning struct {
	o         Options
	wide      care.Objects   // through all data centres, if processes share the store
	candidate *leader.Shards // nil: no other process uses the store
	pacer     *wait.Pacer
	rounds    []*rounds // one for each shard; in an embedded store one for all shards

	mu       sync.Mutex
	sums     sums
	audited  series
	scrubbed series
}

// sums are counts of what this process has done since it began, for metrics.
type sums struct {
	steps       map[string]int64
	failures    map[string]int64 // by the kind of the error
	rows, bytes int64
	hinted      int64   // objects that were looked at because of hints
	overdue     int64   // steps that a round over all rows found although hints should have led to them
	rounds      float64 // a round over one shard counts as a part of one
	// The following counts are those of audits.
	comparedRows, comparedBlobs int64
	scrubbed                    int64 // versions whose bodies had the right checksum
}

// errPaused is the error that ends the work on a bucket because an operator has paused moves of the bucket's ranges of
// keys. Cleaning and audits pause at the same time as moves.
var errPaused = errors.New("moves are paused")

const (
	// firstRound is the longest pause from the start of the process to the first round of cleaning.
	firstRound = time.Minute
	// lookEvery is the interval at which a process checks whether an operator has paused moves. Work on a bucket ends
	// if the checks have failed for blindFor.
	lookEvery = time.Second
	blindFor  = time.Minute
	// mostFailures is the largest number of buckets with failures that one error names.
	mostFailures = 10
	// skew is the time by which cleaners prolong a pause of moves, since the clocks of processes differ.
	skew = time.Second
	// lease is how long the buckets of a shard are not cleaned after the death of the process that cleaned them. It is
	// long because each renewal is a lightweight transaction, on which all data centres vote: a process that leads all
	// shards makes 40 renewals a minute.
	lease = time.Minute
)

// New returns a Cleaning with the options o. It cleans buckets of objects once Run is called. New does no I/O.
func New(o Options) *Cleaning {
	c := &Cleaning{
		o: o, wide: care.Of(o.Objects), pacer: wait.NewPacer(o.RowsPerSecond),
		sums: sums{steps: map[string]int64{}, failures: map[string]int64{}}, audited: series{key: auditKey},
	}
	kib := wait.NewPacer(o.ScrubMiBPerSecond << 10)
	c.scrubbed = series{key: scrubKey, pace: func(ctx context.Context, n int64) error {
		return kib.Take(ctx, int((n+1023)>>10))
	}}
	add := func(of shard.Set) {
		c.rounds = append(c.rounds, &rounds{
			c: c, of: of, cleaners: map[store.BucketID]*bucketCleaner{}, hinted: map[store.BucketID]care.Cleaner{},
			aged: map[store.BucketID]int{},
		})
	}
	if o.Leader == nil {
		add(shard.All)
		return c
	}
	for n := range shard.Count {
		add(shard.Only(n))
	}
	elect := *o.Leader
	elect.Work, elect.Lease = leader.Cleaning, cmp.Or(elect.Lease, lease)
	c.wide, c.candidate = c.wide.Everywhere(), leader.NewShards(o.Registers, elect, o.Live)
	return c
}

// Run cleans, until ctx ends, the buckets of all shards that this process leads. A shard is one of the groups into
// which the buckets are divided. While the process leads shard 0, Run also makes audits.
func (c *Cleaning) Run(ctx context.Context) {
	if c.candidate == nil {
		c.work(ctx, 0)
		return
	}
	_ = c.candidate.Run(ctx, func(ctx context.Context, n int) error {
		c.o.Log.Info("this process cleans buckets of objects now", "shard", n)
		c.work(ctx, n)
		return context.Cause(ctx)
	}, func(err error) {
		if held, ok := errors.AsType[*leader.HeldError](err); ok {
			c.o.Log.Info("another process cleans buckets of objects of shard 0, and audits all",
				"cleaner", held.Holder.String())
			return
		}
		c.o.Log.Warn("this process does not clean the buckets of objects of some shards", "error", err)
	})
}

// work cleans the buckets of shard n until ctx ends. A shard is one of the groups into which the buckets are divided.
// In an embedded store work cleans all buckets. With shard 0 it also makes audits, which compare the stored bodies of
// all buckets with the versions of objects.
func (c *Cleaning) work(ctx context.Context, n int) {
	var auditing sync.WaitGroup
	if c.o.Hints != nil { // a round over all rows may take days
		auditing.Go(func() { c.rounds[n].followHints(ctx) })
	}
	if n == 0 && c.o.AuditEvery > 0 { // an audit may take days: rounds go on meanwhile
		auditing.Go(func() { c.audits(ctx, &c.audited) })
		if c.o.ScrubMiBPerSecond > 0 {
			auditing.Go(func() { c.audits(ctx, &c.scrubbed) })
		}
	}
	c.rounds[n].run(ctx)
	auditing.Wait()
}

// bucket is the care of a bucket of objects, with the bucket's ID and name.
type bucket struct {
	care.Bucket
	id   store.BucketID
	name string
}

// each calls do for each bucket of objects that wanted selects, except for buckets whose moves an operator has paused.
// If the moves are paused while do is running, or the pause can't be read any more, the context of do ends. The
// parameter what names the work in errors, e.g. "clean". The results are
//   - paused: true if a bucket was left out, or the context of do ended, because of a pause;
//   - listed: true if all buckets were listed;
//   - err: not nil if the list of buckets or the work on a bucket failed. A bucket that is deleted meanwhile is not a
//     failure.
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
	b := c.wide.BucketOf(info)
	_, gone := b.ByAge(ctx)
	if gone != nil && !errors.Is(gone, listing.ErrNoSuchBucket) {
		return gone // the bucket has plain entries, or can't be read
	}
	return c.beforePause(ctx, info.ID, func(ctx context.Context) error {
		if gone != nil { // the bucket is still in the list, as its deletion was interrupted
			return cmp.Or(care.Of(c.o.Objects).EndDelete(ctx, info.Name), gone)
		}
		return do(ctx, &bucket{b, info.ID, info.Name})
	})
}

// beforePause calls do, and ends the context of do once an operator pauses moves of the bucket id. It then fails with
// errPaused. If the moves are paused already, it fails without a call of do. If id is zero, which no bucket has, only a
// pause of all moves counts.
func (c *Cleaning) beforePause(ctx context.Context, id store.BucketID, do func(context.Context) error) error {
	if paused, err := c.paused(ctx, id); err != nil || paused {
		if paused {
			err = errPaused
		}
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { c.look(ctx, id, stop) })
	defer looking.Wait()
	defer stop(nil)
	err := do(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// failed adds n failed steps, such as deletions, to the result r of a round of cleaning. reasons has their numbers by
// the kind of the error, and err is one of the errors.
func (c *Cleaning) failed(r *Round, n int64, reasons map[store.Kind]int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Failed += n; err != nil {
		r.Error = err.Error()
	}
	for kind, n := range reasons {
		c.sums.failures[kind.Error()] += n
	}
}

// count adds what was done in a bucket since the previous call of count to the result r of a round of cleaning. before
// and now are the bucket's counts at the previous call and at this call.
func (c *Cleaning) count(r *Round, before, now care.Cleaned) {
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

// paused reports whether an operator has paused moves of the ranges of keys of a bucket. Cleaning pauses at the same
// time.
func (c *Cleaning) paused(ctx context.Context, id store.BucketID) (bool, error) {
	s, err := pause.Read(ctx, c.o.Registers, store.Local)
	if err != nil {
		return false, err
	}
	_, paused := s.Of(id, time.Now().Add(-skew))
	return paused, nil
}

// look checks every second whether an operator has paused moves of the bucket id, while other work on the bucket goes
// on. In case of a pause, look calls stop, which ends the other work. It also calls stop if the checks have failed for
// a minute (blindFor). look returns when ctx ends.
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

// Leading reports whether this process cleans any buckets at present.
func (c *Cleaning) Leading() bool { return c.led() != 0 }

// led returns the shards, which are groups of buckets, whose buckets this process cleans at present.
func (c *Cleaning) led() shard.Set {
	if c.candidate == nil {
		return shard.All
	}
	return c.candidate.Led()
}

// Leaders returns the process that cleans the buckets of each shard. Shards are groups of buckets, and the index in the
// result is the shard's number. An element is nil if no process cleans the shard, or if the process is not known.
// Leaders returns nil if no other process uses the store.
func (c *Cleaning) Leaders(ctx context.Context) []*leader.Holder {
	if c.candidate == nil {
		return nil
	}
	all := c.candidate.Leaders(ctx)
	return all[:]
}

// Status returns what cleaners and audits are doing at present, e.g. the round of cleaning under way, as far as this
// process knows.
func (c *Cleaning) Status(ctx context.Context) Status {
	led := c.led()
	var holder *leader.Holder
	if c.candidate != nil {
		if h, known, _ := c.candidate.Leader(ctx, 0); known {
			h.Lease = 0
			holder = &h
		}
	}
	if led == 0 {
		return Status{Leader: holder}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sum(led)
	s.Leading, s.Leader, s.Shards = true, holder, led.List()
	if !led.Has(0) {
		return s // another process audits
	}
	s.LastAudit, s.LastScrub = c.audited.last, c.scrubbed.last
	if c.audited.now != nil {
		s.Audit = c.audited.now.audit()
	}
	if c.scrubbed.now != nil {
		s.Scrub = c.scrubbed.now.audit()
	}
	return s
}
