// Package engine keeps the buckets of a store in shape. It watches how large their ranges are, splits ranges that
// are too large, merges ranges that are too small, cuts ahead of appended keys, and moves the rows while clients read
// and write.
//
// A process makes a [Rebalancer] with [New] over its store and its client, and calls [Rebalancer.Run], which works
// until the process ends. If several processes share a store (Cassandra), each of them runs a Rebalancer with
// Options.Leader set. The processes divide the buckets among them, and when one ends or dies the others take over its
// share. The state of every move is in the store, so the next process completes the moves that another one left
// unfinished.
//
// Most programs need only this, and get it from package evenkeel. The other methods are what operators do by hand,
// which the programs listd and rebalancer offer as commands:
//
//   - [Rebalancer.Status] reports which buckets move, how far their jobs are, and what failed.
//   - [Rebalancer.Plan] works out a request (split here, merge this, prepare for a number of appended rows) as a [Plan]
//     of moves with their costs; nothing changes.
//   - [Rebalancer.Apply] submits the moves of a plan as a [Job]; [Rebalancer.Job] reports how far it is.
//
// Sizes come from a counter.Backend, to which clients report their writes. Without a backend each check of the sizes
// counts every row.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

// These types describe the requests, plans and jobs of moves, and the processes that lead. They are defined in internal
// packages.
type (
	// Request describes the moves of one bucket that an operator wants, e.g. a split of a range at given keys.
	Request = scheduler.Ask
	// Append describes rows that clients will append to a bucket, in a Request: the rate, the time, and keys like those
	// of the new rows. The plan for the Request cuts ranges ahead of these keys.
	Append = scheduler.Append
	// Plan is a list of moves of one bucket with their costs. It is computed for one epoch, which is the version of the
	// bucket's map of ranges.
	Plan = scheduler.Plan
	// Job is a group of moves of one bucket that were submitted together, with the state of each move.
	Job = scheduler.Job
	// Status reports which buckets move, how far their jobs are, and what failed.
	Status = scheduler.Status
	// Candidate describes a process that may be elected to lead the moves: its name, and the address at which it takes
	// commands.
	Candidate = leader.Options
	// Holder describes the process that leads the moves: its name, its admin address and its lease.
	Holder = leader.Holder
)

// These are the kinds of requests that an operator may make, as values of Request.Kind.
const (
	Split    = scheduler.Split    // cuts ranges in front of keys
	Merge    = scheduler.Merge    // joins neighbouring ranges
	Refresh  = scheduler.Refresh  // rewrites ranges, without their tombstones
	Presplit = scheduler.Presplit // cuts exactly at keys, and may pin the cuts
)

// Options are the settings of a Rebalancer: the store, the limits of partitions, and how processes share the work.
// Store and Buckets are required.
type Options struct {
	Store store.Store
	// Buckets is the client through which this process reads and writes buckets. With an embedded store all operations
	// of the process must use this client, since moves wait only for its requests.
	Buckets *listing.Client
	// MaxRows is the maximum number of rows of a partition, 100,000 by default.
	MaxRows int64
	// MoveRate is the maximum number of rows copied and compared per second; 0 means no limit.
	MoveRate int
	// Wait is the longest time that a move waits after each change of a partition map, until no client uses the old map
	// any more; EmbeddedWait by default.
	Wait time.Duration
	// Balance replaces the policy, which says when ranges are split and merged. If Balance is nil, the policy follows
	// from MaxRows, MoveRate and Wait. If Balance.Every is 0, sizes are not watched, and only requested moves are done.
	Balance *balancer.Options
	// Counts is the backend that estimates the rows of partitions. If Counts is nil, each check of the sizes counts
	// every row.
	Counts counter.Backend
	// Counting says how the processes of a shared store know the sizes of partitions, e.g. whether the sizes are
	// counted at all. All processes agree on one value.
	Counting mapclient.Counting
	// Leader describes this process as a candidate in the elections among the processes of a shared store. The elected
	// leaders divide the moves among them. Leader is nil if no other process uses the store.
	Leader *Candidate
	// Presence is this process's entry in the list of processes that share the store; nil if it has no entry. New adds
	// the admin address of Leader to the entry.
	Presence *processes.Presence
	// Version and Commit say from which source the program was built. They are only shown to people.
	Version, Commit string
	// HistoryFile is the name of the file that keeps the history (sizes and requests of ranges by time) over a restart.
	// If HistoryFile is empty, the history is in memory only.
	HistoryFile string
	// Aside makes this process leave moves to other processes: the process never leads, and does not watch sizes.
	Aside bool
	// Cleaning is what deletes old versions in buckets of objects in this process, or nil if this process does not do
	// that. The Rebalancer only reports its status.
	Cleaning *cleaning.Cleaning
	// Retention holds the rules by which old entries are deleted. The rules must be valid (retention.Check) and are
	// applied every RetentionEvery, an hour by default.
	Retention      []retention.Rule
	RetentionEvery time.Duration
	// Log receives messages about work that begins, ends or fails. If Log is nil, nothing is logged.
	Log *slog.Logger
}

const (
	// EmbeddedWait is the longest time that a move waits after a change of a map, if no other process uses the store.
	// The move waits for writes of this process that still use the old map.
	EmbeddedWait = time.Second

	defaultMaxRows = 100_000
	// lookEvery is the default pause between two checks of the sizes of partitions.
	lookEvery = 10 * time.Second
	// ledWithin is how long a request that only a leader can serve waits while no process leads; then it fails. The
	// time is longer than the random delays of candidates before they take a lease, and shorter than the patience of
	// clients.
	ledWithin = 4 * time.Second
)

// Wait returns the longest time that a move has to wait after a change of a bucket's partition map, until no process
// uses the old map any more. lease is the time for which a process may use a map without reading the map again. The
// result is a tenth longer than the lease.
func Wait(lease time.Duration) time.Duration { return lease + lease/10 }

// A Rebalancer keeps the partitions of all buckets within the limits of their size, by splitting and merging ranges of
// keys. The methods of a Rebalancer are safe for concurrent use, except that only one goroutine at a time may call Run
// or Lead.
type Rebalancer struct {
	o         Options
	scheduler *scheduler.Scheduler
	balancer  *balancer.Balancer // nil if sizes are not watched
	candidate *leader.Shards     // nil if no other process uses the store
	beside    wait.While         // the work beside moves, while any shard is led
	names     *Names
	history   *History // nil if balancer is nil
	retention *Retention
}

// sizeSteps is the number of times that the size of a partition is stored beside its rows, while the partition grows to
// its maximum. The stored sizes are used if the counters (e.g. Redis) lose their counts.
const sizeSteps = 16

// told returns a function that logs that the sizes of partitions could not be stored beside the rows, with the reason.
// The function logs at most once an hour, and ignores calls in between.
func told(log *slog.Logger) func(error) {
	var next atomic.Int64 // Unix seconds
	return func(err error) {
		now := time.Now().Unix()
		if at := next.Load(); now >= at && next.CompareAndSwap(at, now+3600) {
			log.Warn("sizes of partitions are not kept beside the rows: if the counters lose them, all rows are counted again",
				"error", err)
		}
	}
}

// New returns a Rebalancer with the options o. New neither reads nor writes the store; the work begins with Run.
func New(o Options) *Rebalancer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Balance == nil {
		b := balancer.For(cmp.Or(o.MaxRows, defaultMaxRows), o.MoveRate, lookEvery, cmp.Or(o.Wait, EmbeddedWait))
		o.Balance = &b
	}
	o.RetentionEvery = cmp.Or(o.RetentionEvery, RetentionEvery)
	maps := mapclient.Of(o.Buckets)
	names := newNames(o.Buckets)
	o.Log = slog.New(&namedLog{o.Log.Handler(), names})
	r := &Rebalancer{o: o, names: names}
	r.retention = newRetention(&r.o)
	moves := scheduler.Options{RowsPerSecond: o.MoveRate, Logger: o.Log}
	watched := o.Balance.Every > 0 && !o.Aside
	if watched {
		r.history = newHistory(o.HistoryFile, o.Log)
		moves.Moved = r.history.moved
	}
	r.scheduler = scheduler.New(o.Store, maps, moves)
	if watched {
		b, counts := *o.Balance, o.Counts
		b.Changed = r.history.changed
		b.Logger = o.Log
		b.Led = r.scheduler.Led
		if b.Exact = counts == nil; b.Exact {
			counts = countbook.NewMemory(nil)
		} else if keeper, ok := o.Store.(countbook.Keeper); ok {
			counts = countbook.Keep(counts, keeper, countbook.KeepOptions{
				Step: max(1, b.Policy.MaxRows/sizeSteps), Failed: told(o.Log),
				Restored: func() { r.balancer.LookAtAll() },
			})
		}
		r.balancer = balancer.New(o.Store, maps, r.scheduler, counts, b)
	}
	if o.Leader != nil {
		candidate := *o.Leader
		candidate.Version = cmp.Or(candidate.Version, o.Version)
		r.candidate = leader.NewShards(o.Store, candidate, r.candidates())
		if o.Presence != nil && candidate.Admin != "" {
			o.Presence.SetAdmin(candidate.Admin)
		}
	}
	return r
}

// Options returns the options of the Rebalancer, with the defaults filled in: Balance and Log are set, even if they
// were nil for New.
func (r *Rebalancer) Options() Options { return r.o }

// Scheduler returns the component of the Rebalancer that runs the moves.
func (r *Rebalancer) Scheduler() *scheduler.Scheduler { return r.scheduler }

// Balancer returns the component of the Rebalancer that watches the sizes of ranges, or nil if sizes are not watched.
func (r *Rebalancer) Balancer() *balancer.Balancer { return r.balancer }

// History returns the record of the sizes and requests of ranges over time. The record covers the time in which this
// process led. The result is nil if sizes are not watched.
func (r *Rebalancer) History() *History { return r.history }

// Retention returns the component that deletes old entries by the rules in Options.Retention. The result is never nil,
// even if there are no rules.
func (r *Rebalancer) Retention() *Retention { return r.retention }

// Names returns the cache that has the names of buckets by their ids, for reports to people.
func (r *Rebalancer) Names() *Names { return r.names }

// candidates returns a function that counts the live processes that may lead moves. The result is nil if this process
// has no entry in the list of processes (Options.Presence).
func (r *Rebalancer) candidates() func(ctx context.Context) (int, error) {
	if r.o.Presence == nil {
		return nil
	}
	return func(ctx context.Context) (int, error) { return processes.Movers(ctx, r.o.Store) }
}

// Shards is the number of shards, which are the groups into which the buckets of a shared store are divided. For each
// shard one elected process, its leader, does the moves.
const Shards = shard.Count

// Leading reports whether this process leads at least one shard (one of the 16 groups of buckets) at present, and so
// does the moves of these buckets.
func (r *Rebalancer) Leading() bool { return len(r.Led()) > 0 }

// Led returns the numbers of the shards (the 16 groups of buckets) whose moves this process leads at present, in
// ascending order. Without Options.Leader these are all shards.
func (r *Rebalancer) Led() []int {
	if r.candidate == nil {
		return shard.All.List()
	}
	return r.candidate.Led().List()
}

// Leader returns the leader of shard 0, the first of the 16 groups of buckets. The leader of shard 0 also does the work
// that is done once for all buckets. The result known is true if h is set, and mine is true if this process is the
// leader. Without Options.Leader, known is false and mine is true.
func (r *Rebalancer) Leader(ctx context.Context) (h Holder, known, mine bool) {
	return r.leader(ctx, 0)
}

func (r *Rebalancer) leader(ctx context.Context, n int) (h Holder, known, mine bool) {
	if r.candidate == nil {
		return h, false, true
	}
	return r.candidate.Leader(ctx, n)
}

// Leaders returns, for each shard (one of the 16 groups of buckets), the process that leads the shard. An element is
// nil if no process leads the shard, or if the leader is not known. Without Options.Leader all elements are nil.
func (r *Rebalancer) Leaders(ctx context.Context) (all [Shards]*Holder) {
	if r.candidate != nil {
		all = r.candidate.Leaders(ctx)
	}
	return all
}

// Unattended returns a text for people that says why partitions are not split or merged by their sizes, e.g. since the
// counters do not answer. The text is empty if, as far as this process knows, the sizes are watched.
func (r *Rebalancer) Unattended() string {
	if r.o.Counting == mapclient.NotCounted || r.candidate == nil && r.balancer == nil && !r.o.Aside {
		return "nothing is split, merged or cut ahead automatically: sizes are neither counted nor looked at; " +
			"give every process the same --counter, or --rebalance-interval above 0"
	}
	if r.balancer == nil || !r.Leading() {
		return ""
	}
	if since := r.balancer.Status().Away; !since.IsZero() {
		return fmt.Sprintf("nothing is split or merged, only cut ahead of appends: the counters have not answered since %s",
			since.UTC().Format(time.RFC3339))
	}
	return ""
}

// announce tells the other processes, through the store, the limits of the sizes of partitions (rows and bytes) of this
// process. It logs a warning if theirs differ. The result is false if the store could not be written. The caller goes
// on even then, since different limits are safe.
func (r *Rebalancer) announce(ctx context.Context) bool {
	before, err := mapclient.AnnounceLimits(ctx, r.o.Store, r.limits())
	if err != nil && ctx.Err() == nil {
		r.o.Log.Warn("whether other processes have the same limits of partitions is not known; it is tried again when "+
			"this process leads", "error", err)
	}
	if err == nil && before != (mapclient.Limits{}) && before != r.limits() {
		r.o.Log.Warn("another process was started with other limits of partitions: whoever leads applies its own; "+
			"give all the same --max-rows, --min-rows and --max-bytes", "limits", r.limits().String(), "others", before.String())
	}
	return err == nil
}

func (r *Rebalancer) limits() mapclient.Limits {
	p := &r.o.Balance.Policy
	return mapclient.Limits{MaxRows: p.MaxRows, MinRows: p.MinRows, MaxBytes: p.MaxBytes}
}

// OtherLimits returns the limits of the sizes of partitions that this process has (mine), and those of the process that
// was started last (other). The result differ is true if both are known and are not equal; then an operator should give
// all processes the same flags.
func (r *Rebalancer) OtherLimits(ctx context.Context) (mine, other mapclient.Limits, differ bool) {
	if r.candidate == nil || r.balancer == nil {
		return mine, other, false
	}
	mine = r.limits()
	other, err := mapclient.AnnouncedLimits(ctx, r.o.Store)
	return mine, other, err == nil && other != (mapclient.Limits{}) && other != mine
}

// work does the moves of the buckets in some shards (groups of buckets), until ctx ends. `of` is the set of these
// shards. If shard 0 is in the set, work also applies the rules of retention, which delete old entries.
func (r *Rebalancer) work(ctx context.Context, of shard.Set) (err error) {
	r.beside.During(ctx, r.begin, func() {
		var once sync.WaitGroup
		if of.Has(0) && len(r.o.Retention) > 0 {
			once.Go(func() { r.retention.Run(ctx) }) // it ends with ctx
		}
		err = r.scheduler.RunShards(ctx, of)
		once.Wait()
	})
	return err
}

// begin prepares the work that goes on beside the moves: watching sizes, sampling the history and learning the names of
// buckets. It returns a function that does this work until ctx ends. The work is done once for all shards (groups of
// buckets) that this process leads.
func (r *Rebalancer) begin(ctx context.Context) (work func()) {
	if r.candidate != nil {
		r.o.Log.Info("this process leads the moves now")
	}
	r.names.learnAll(ctx)
	if r.balancer != nil {
		r.history.load()
	}
	return func() {
		var beside sync.WaitGroup
		if r.balancer != nil {
			beside.Go(func() { _ = r.balancer.Run(ctx) })
			beside.Go(func() { r.history.run(ctx, r.balancer) })
		}
		r.names.run(ctx)
		beside.Wait()
	}
}

// Run takes part in the election of leaders, and does the moves of all shards (groups of buckets) that this process
// leads, until ctx ends. Run returns when no move is running and the leases are given up.
//
// Errors of the election, such as a damaged record of a leader, are logged, and the election goes on. Run returns an
// error only if the work of a shard fails with Corrupt.
func (r *Rebalancer) Run(ctx context.Context) error {
	log := r.o.Log
	if why := r.Unattended(); why != "" {
		log.Warn("the sizes of partitions are not looked after", "why", why)
	}
	switch {
	case r.o.Aside:
		log.Info("moves are left to other processes")
		<-ctx.Done()
		return nil
	case r.candidate == nil:
		_ = r.work(ctx, shard.All)
		return nil
	}
	if r.o.Presence != nil {
		r.o.Presence.SetMoves(true)
		defer r.o.Presence.SetMoves(false)
	}
	announced := r.balancer == nil || r.announce(ctx)
	for ctx.Err() == nil {
		err := r.candidate.Run(ctx, func(ctx context.Context, n int) error {
			log.Debug("this process leads the moves of a shard now", "shard", n)
			if n == 0 && !announced {
				announced = r.announce(ctx)
			}
			return r.work(ctx, shard.Only(n))
		}, func(err error) {
			if held, ok := errors.AsType[*leader.HeldError](err); ok {
				log.Info("another process leads the moves of shard 0", "leader", held.Holder.String(), "admin", held.Holder.Admin)
				return
			}
			log.Warn("this process does not lead the moves of some shards", "error", err)
		})
		if ctx.Err() == nil && store.KindOf(err) == store.Corrupt {
			log.Error("nothing is moved by this process", "error", err)
			return err
		}
	}
	return nil
}

// Lead makes this process the leader of all shards (groups of buckets) while f runs, and does their moves. It is for a
// command that needs to move ranges itself. The error is a *leader.HeldError if another process leads a shard, else the
// error of f. Options.Leader must be set.
func (r *Rebalancer) Lead(ctx context.Context, f func(ctx context.Context) error) error {
	return r.candidate.Try(ctx, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { _ = r.work(ctx, shard.All) }) // it ends with ctx
		defer work.Wait()
		defer stop()
		return f(ctx)
	})
}

// Status returns a report of the moves: which buckets move, how far their jobs are, and what failed.
func (r *Rebalancer) Status() Status { return r.scheduler.Status() }

// Plan returns the moves that fulfil the operator's request q for the bucket id, without starting them. Apply starts
// the moves of the plan. To find keys at which to cut, Plan may count rows, at the pace of moves. The error is
//   - NotFound if there is no such bucket,
//   - InvalidArgument if the request does not fit the bucket's ranges or rows,
//   - Conflict if ranges of the request are moving already, or
//   - Unavailable while the bucket is being deleted.
func (r *Rebalancer) Plan(ctx context.Context, id store.BucketID, q Request) (*Plan, error) {
	most := r.o.Balance.Policy.MaxRows
	q.MaxRows = most
	if q.Append != nil && q.Append.MaxRows == 0 {
		a := *q.Append
		a.MaxRows = cmp.Or(most, defaultMaxRows)
		q.Append = &a
	}
	return r.scheduler.Plan(ctx, id, q)
}

// Ready returns nil if moves of the bucket id can begin in this process. The error is
//   - *NotLeading if another process leads the shard (group of buckets) that has the bucket,
//   - Unavailable if no process leads the shard, or
//   - of kind Conflict if moves are paused.
func (r *Rebalancer) Ready(ctx context.Context, id store.BucketID) error {
	if err := r.LeadsShardOf(ctx, id); err != nil {
		return err
	}
	s, err := pause.Read(ctx, r.o.Store, store.Local)
	if err != nil {
		return err
	}
	if p, paused := s.Of(id, time.Now()); paused {
		return &pause.Error{Pause: p}
	}
	return nil
}

// Leads returns nil if this process leads any shard (a group of buckets), and *NotLeading if another process leads
// shard 0. For some seconds after a start, no process leads shard 0. Leads waits for that time, but for at most
// ledWithin (4 s), and then returns Unavailable.
func (r *Rebalancer) Leads(ctx context.Context) error { return r.leads(ctx, 0, r.Leading) }

// LeadsShardOf returns nil if this process leads the shard (group of buckets) that has the bucket id, and *NotLeading
// if another process leads the shard. If no process leads the shard, LeadsShardOf waits for at most ledWithin (4 s),
// and then returns Unavailable.
func (r *Rebalancer) LeadsShardOf(ctx context.Context, id store.BucketID) error {
	return r.leads(ctx, shard.Of(id), func() bool { return false })
}

func (r *Rebalancer) leads(ctx context.Context, n int, enough func() bool) error {
	for end := time.Now().Add(ledWithin); ; {
		if enough() {
			return nil
		}
		switch holder, known, mine := r.leader(ctx, n); {
		case mine:
			return nil
		case known:
			return &NotLeading{holder}
		}
		if time.Now().After(end) || wait.Sleep(ctx, ledWithin/20) != nil {
			return store.Errorf(store.Unavailable,
				"no process leads at present: one will in a moment, if one is left; try again")
		}
	}
}

// NotLeading is the error of a request, such as a split, that only the leader of the moves can serve, if another
// process leads. Leader is that process; the client should send the request to Leader.Admin.
type NotLeading struct{ Leader Holder }

func (e *NotLeading) Error() string {
	if e.Leader.Admin == "" {
		return fmt.Sprintf("this process does not lead: %s does, which takes no commands; wait until it has ended", &e.Leader)
	}
	return fmt.Sprintf("this process does not lead: %s does, at %s", &e.Leader, e.Leader.Admin)
}

// Apply starts the moves of the plan p, and returns the job that makes them. `what` is a text that names the moves in
// the status, for example "split". If moves can't begin in this process, Apply fails with an error of Ready. If the
// bucket's ranges change before a move begins, this move is refused, and the job reports that.
func (r *Rebalancer) Apply(ctx context.Context, what string, p *Plan) (Job, error) {
	if err := r.Ready(ctx, p.Bucket); err != nil {
		return Job{}, err
	}
	return r.scheduler.Submit(p.Bucket, what, p), nil
}

// Job returns the job with the given id, as Apply returned it. The bool is false if the job is not found. Jobs are kept
// in memory, so old jobs and those of other processes are not found.
func (r *Rebalancer) Job(id string) (Job, bool) { return r.scheduler.Job(id) }

// Name returns a name of this process for people: the name of the program, the host and the process id, e.g. "listd on
// host1, process 4711".
func Name(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s on %s, process %d", program, host, os.Getpid())
}
