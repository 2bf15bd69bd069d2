// Package rebalance keeps the buckets of a store in shape: it watches how large their
// ranges are, splits what is too large, merges what is too small, cuts ahead of appended
// keys, and moves the rows while clients read and write.
//
// A process makes a [Rebalancer] with [New] over its store and its client, and lets
// [Rebalancer.Run] work until the process ends. If several processes share a store
// (Cassandra), each of them runs one with Options.Leader set; they divide the buckets among them,
// and the others take over the share of one that ends or dies. Whatever a process leaves
// unfinished, the next one completes: the state of every move is in the store.
//
// Most programs need only that, and get it from package evenkeel. The other methods are
// what operators do by hand, which the programs listd and rebalancer offer as commands:
//
//   - [Rebalancer.Status] reports which buckets move, how far their jobs are, and what failed.
//   - [Rebalancer.Plan] works out a request (split here, merge this, prepare for so many
//     appended rows) as a [Plan] of moves with their costs; nothing changes.
//   - [Rebalancer.Apply] submits the moves of a plan as a [Job]; [Rebalancer.Job] reports how
//     far it is.
//
// Sizes come from a counter.Backend, to which clients report what they write. Without one
// each look counts every row.
package rebalance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// The types of plans and their moves.
type (
	// Request is what an operator wants of one bucket.
	Request = scheduler.Ask
	// Append is a future load by appends, for a Request.
	Append = scheduler.Append
	// Plan is the moves of one bucket, on the map of one epoch.
	Plan = scheduler.Plan
	// Job is the moves of one bucket that were submitted together.
	Job = scheduler.Job
	// Status is what goes on.
	Status = scheduler.Status
	// Candidate is a process that may lead: its name, and where it takes commands.
	Candidate = leader.Options
	// Holder is the process that leads.
	Holder = leader.Holder
)

// The kinds of requests.
const (
	Split    = scheduler.Split    // cuts ranges in front of keys
	Merge    = scheduler.Merge    // joins neighbouring ranges
	Refresh  = scheduler.Refresh  // rewrites ranges, without their tombstones
	Presplit = scheduler.Presplit // cuts exactly at keys, and may pin the cuts
)

// Options of a Rebalancer. Store and Buckets are required.
type Options struct {
	Store store.Store
	// Buckets is the client of this process. With an embedded store all of the process's
	// operations must go through it.
	Buckets *listing.Client
	// MaxRows is the most rows of a partition, default 100,000.
	MaxRows int64
	// MoveRate is the most rows copied and compared per second; 0: no limit.
	MoveRate int
	// Wait is the longest that one wait of a move takes, default EmbeddedWait.
	Wait time.Duration
	// Balance replaces the policy that follows from MaxRows, MoveRate and Wait. If its
	// Every is 0, sizes are not watched: only requested moves are done.
	Balance *balancer.Options
	// Counts is where sizes are counted; nil: each look counts every row.
	Counts counter.Backend
	// Counting is how sizes are known, as the processes of a shared store have agreed.
	Counting mapclient.Counting
	// Leader lets the processes of a shared store elect one that does the work; nil: this
	// process has its store for itself.
	Leader *Candidate
	// Presence is this process's entry in the list of those that share the store, to which New adds the admin address of
	// Leader; nil: it has none.
	Presence *processes.Presence
	// Version and Commit are what the program was built from, for people.
	Version, Commit string
	// HistoryFile keeps the history over a restart; empty: it is in memory only.
	HistoryFile string
	// Aside: never lead.
	Aside bool
	// Cleaning is what cleans buckets of objects in this process, for the status; nil: nothing does.
	Cleaning *cleaning.Cleaning
	// Retention are rules by which old entries are dropped, every RetentionEvery, default an hour. They must be valid
	// (retention.Check).
	Retention      []retention.Rule
	RetentionEvery time.Duration
	// Log receives what begins, ends and fails; nil: nothing is logged.
	Log *slog.Logger
}

const (
	// EmbeddedWait is the longest wait of a move if one process has the store for itself:
	// for writes in flight.
	EmbeddedWait = time.Second

	defaultMaxRows = 100_000
	// lookEvery is the default pause between two looks at sizes.
	lookEvery = 10 * time.Second
	// ledWithin bounds how long a request that needs the leader waits while there is none. It is longer than the turns
	// of candidates, and shorter than the patience of clients.
	ledWithin = 4 * time.Second
)

// Wait returns the longest wait of a move with a lease.
func Wait(lease time.Duration) time.Duration { return lease + lease/10 }

// Rebalancer keeps buckets in shape. Its methods are safe for concurrent use; Run and Lead
// are for one goroutine at a time.
type Rebalancer struct {
	o         Options
	scheduler *scheduler.Scheduler
	balancer  *balancer.Balancer // nil: sizes are not watched
	candidate *leader.Shards     // nil: this process has its store for itself
	beside    wait.While         // what goes on while any shard is led
	names     *Names
	history   *History // nil if balancer is
	retention *Retention
}

// New makes a Rebalancer. Nothing is read or written until Run.
func New(o Options) *Rebalancer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Balance == nil {
		b := balancer.For(cmp.Or(o.MaxRows, defaultMaxRows), o.MoveRate, lookEvery, cmp.Or(o.Wait, EmbeddedWait))
		o.Balance = &b
	}
	o.RetentionEvery = cmp.Or(o.RetentionEvery, RetentionEvery)
	maps := o.Buckets.Maps()
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
			counts = counter.NewMemory(nil)
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

// Options returns what the Rebalancer was made of, with Balance and Log set.
func (r *Rebalancer) Options() Options { return r.o }

// Scheduler and Balancer are the parts; Balancer is nil if sizes are not watched.
func (r *Rebalancer) Scheduler() *scheduler.Scheduler { return r.scheduler }
func (r *Rebalancer) Balancer() *balancer.Balancer    { return r.balancer }

// History is what ranges had and took while this process led; nil if sizes are not watched.
func (r *Rebalancer) History() *History { return r.history }

// Retention applies the rules of retention, if there are any.
func (r *Rebalancer) Retention() *Retention { return r.retention }

// Names are the names of buckets that were met.
func (r *Rebalancer) Names() *Names { return r.names }

// candidates returns what counts the processes that may lead; nil: they are not known.
func (r *Rebalancer) candidates() func(ctx context.Context) (int, error) {
	if r.o.Presence == nil {
		return nil
	}
	return func(ctx context.Context) (int, error) { return processes.Movers(ctx, r.o.Store) }
}

// Shards is the number of parts of a shared store, each with a leader of its own.
const Shards = shard.Count

// Leading reports whether this process does the work, or a part of it, at present.
func (r *Rebalancer) Leading() bool { return len(r.Led()) > 0 }

// Led returns the shards that this process leads at present, ascending.
func (r *Rebalancer) Led() []int {
	if r.candidate == nil {
		return shard.All.List()
	}
	return r.candidate.Led().List()
}

// Leader returns the process that leads shard 0, with which goes what is done once for all buckets, if it is known, and
// whether it is this one. Without Options.Leader it is always this one, of which nothing is known.
func (r *Rebalancer) Leader(ctx context.Context) (h Holder, known, mine bool) {
	return r.leader(ctx, 0)
}

func (r *Rebalancer) leader(ctx context.Context, n int) (h Holder, known, mine bool) {
	if r.candidate == nil {
		return h, false, true
	}
	return r.candidate.Leader(ctx, n)
}

// Leaders returns the process that leads each shard; nil: nobody, or it is not known. Without Options.Leader none is.
func (r *Rebalancer) Leaders(ctx context.Context) (all [Shards]*Holder) {
	if r.candidate != nil {
		all = r.candidate.Leaders(ctx)
	}
	return all
}

// Unattended says what is not looked after, and why, as far as this process knows; empty if all
// is.
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

// announce tells the other processes this one's limits, and the log if theirs are others. It reports whether that has
// succeeded: equal limits are no condition of safety, so a process goes on without.
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

// OtherLimits returns this process's limits of partitions, and those of the process that was started
// last, where it has others.
func (r *Rebalancer) OtherLimits(ctx context.Context) (mine, other mapclient.Limits, differ bool) {
	if r.candidate == nil || r.balancer == nil {
		return mine, other, false
	}
	mine = r.limits()
	other, err := mapclient.AnnouncedLimits(ctx, r.o.Store)
	return mine, other, err == nil && other != (mapclient.Limits{}) && other != mine
}

// work does the work of some shards until ctx ends.
func (r *Rebalancer) work(ctx context.Context, of shard.Set) (err error) {
	r.beside.During(ctx, r.begin, func() {
		var once sync.WaitGroup
		if of.Has(0) && len(r.o.Retention) > 0 {
			once.Go(func() { r.retention.run(ctx) }) // it ends with ctx
		}
		err = r.scheduler.RunShards(ctx, of)
		once.Wait()
	})
	return err
}

// begin prepares what is done beside moves, for all shards together, until ctx ends.
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

// Run does the work until ctx ends, while this process leads. It returns when nothing
// moves and the lease is given up. The error is not nil only if this process can never
// lead, because the record of the leader is damaged or of a later version.
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

// Lead does all of the work while f runs. It fails with *leader.HeldError if another process
// leads a part of it, else with f's error. Options.Leader must be set.
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

// Status reports what goes on.
func (r *Rebalancer) Status() Status { return r.scheduler.Status() }

// Plan works out a request. It only reads; rows are counted at the pace of moves. The error
// is NotFound if there is no such bucket, InvalidArgument if the request does not fit its
// map or its rows, Conflict if ranges concerned move already, and Unavailable while the
// bucket is being deleted.
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

// Ready fails unless moves of a bucket can begin: with *NotLeading if another process
// leads its shard, with Unavailable if none does, and with Conflict if moves are paused.
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

// Leads fails unless this process leads any shard, with *NotLeading if another process leads shard 0. While none does
// it waits for ledWithin: processes that start, or whose leader has resigned, each wait a turn of some seconds before
// one of them leads, and whoever asks in between would only have to ask again.
func (r *Rebalancer) Leads(ctx context.Context) error { return r.leads(ctx, 0, r.Leading) }

// LeadsShardOf fails like Leads unless this process leads the shard of a bucket.
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

// NotLeading is the error of a request that only the leader can do.
type NotLeading struct{ Leader Holder }

func (e *NotLeading) Error() string {
	if e.Leader.Admin == "" {
		return fmt.Sprintf("this process does not lead: %s does, which takes no commands; wait until it has ended", &e.Leader)
	}
	return fmt.Sprintf("this process does not lead: %s does, at %s", &e.Leader, e.Leader.Admin)
}

// Apply submits the moves of a plan; what names them in the status, like "split". It fails
// like Ready. If the bucket changes before a move begins, that move is refused.
func (r *Rebalancer) Apply(ctx context.Context, what string, p *Plan) (Job, error) {
	if err := r.Ready(ctx, p.Bucket); err != nil {
		return Job{}, err
	}
	return r.scheduler.Submit(p.Bucket, what, p), nil
}

// Job returns a job by its id. Jobs are kept in memory: those of other processes and old
// ones are not known.
func (r *Rebalancer) Job(id string) (Job, bool) { return r.scheduler.Job(id) }

// Name is a name for this process of a program, for people.
func Name(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s on %s, process %d", program, host, os.Getpid())
}
