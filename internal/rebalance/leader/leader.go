package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// DefaultLease is the time for which a process stays the leader without renewing its lease, if Options.Lease is zero.
const DefaultLease = 15 * time.Second

// ErrLost is the error of a process that has led, and has lost its lease. It is the cause by which the context of the
// leader's work ends. The work must stop then, since another process may lead.
var ErrLost = store.Errorf(store.Conflict, "the lease of the leader is over: another process may lead now")

// Options are the settings of a process that wants to be elected leader: its name, and the length of its lease. Zero
// values stand for the defaults.
type Options struct {
	// Work is the kind of work that the leader does: Moves (of ranges of keys), which is the default, or Cleaning.
	Work Work
	// Name is the name of this process for people. Admin is the URL of this process's admin API, to which other
	// processes refer their users.
	Name, Admin string
	// Version is the version of the program; it is only shown to people.
	Version string
	// Lease is the time for which a leader leads without a renewal, DefaultLease if zero. The leader renews after two
	// fifths of this time. Other candidates read the leader's record about each third of this time.
	Lease time.Duration
	// Skew is the bound on the differences between the wall clocks of candidates, 1 s if zero. If the clocks differ by
	// more, two candidates may lead at the same time for a while.
	Skew time.Duration
	// Now and Monotonic return the two clocks of this machine. If they are nil, the real clocks are used.
	Now       func() time.Time
	Monotonic func() time.Duration
}

// A Candidate takes part, for this process, in the election of a leader. The leader does one kind of work, for all
// buckets or for one shard (a group of buckets). Run and Try must be called from one goroutine. The other methods are
// safe for concurrent use.
type Candidate struct {
	regs store.Registers
	o    Options
	now  func() wait.Instant
	id   uuid.UUID
	// shards is the number of shards (groups of buckets) into which the work is divided, or 0. It is stored in the
	// records of this candidate (Holder.Shards).
	shards int

	// The fields from leading to since describe the lease, while this candidate holds it. mu guards them.
	mu      sync.Mutex
	leading bool
	holder  Holder
	version store.Version
	since   wait.Instant // the instant from which the lease counts

	known sight
}

// sight is what a candidate knows about another leader: the newest leader's record that it has read, and the instant
// since which this record has not changed. From the two the candidate computes whether the leader's lease is over.
type sight struct {
	holder  Holder
	version store.Version
	since   wait.Instant
	// refuted is true if the stored record is newer than this one: a compare-and-swap that expected this one met a
	// Conflict.
	refuted bool
}

// New returns a candidate for the election, which is not the leader yet. New neither reads nor writes the store; Run
// and Try take part in the election.
func New(regs store.Registers, o Options) *Candidate {
	if o.Work == "" {
		o.Work = Moves
	}
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.Skew <= 0 {
		o.Skew = time.Second
	}
	return &Candidate{regs: regs, o: o, now: wait.Instants(o.Now, o.Monotonic), id: uuid.New()}
}

// Leading returns the last record that this candidate wrote as the leader. The bool is true if the candidate leads now,
// with a lease that is not over.
func (c *Candidate) Leading() (Holder, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holder, c.leading && !c.over(c.now())
}

// left returns the time until this candidate's lease ends, at the instant `now`. The result is 0 or negative if the
// lease is over. An instant has the time of two clocks, wall and monotonic; the clock that leaves less time decides.
func (c *Candidate) left(now wait.Instant) time.Duration {
	_, most := now.Since(c.since)
	return c.o.Lease - most
}

func (c *Candidate) over(now wait.Instant) bool { return c.left(now) <= 0 }

// Run waits until this candidate leads, and then calls work. It does so each time that the candidate becomes the
// leader. If the lease is lost, the context of work ends with ErrLost, and work must return. Run returns
//   - the result of work, if work returns while the lease holds (the lease is then given up), or
//   - Timeout, when ctx ends.
//
// The function observe, if not nil, gets each new error: a HeldError for each other leader, or a failure.
func (c *Candidate) Run(ctx context.Context, work func(ctx context.Context) error, observe func(error)) error {
	// While another candidate leads, the leader's record is read from the nearest data centre only (Local), about each
	// third of a lease. Serial operations of many candidates would hinder each other, and the leader's renewals. When
	// the lease looks free or over, all candidates notice it at about the same time. So each candidate waits a random
	// delay, and reads the record again before it takes the lease.
	if observe == nil {
		observe = func(error) {}
	}
	var observed string
	failures := wait.Backoff{First: c.o.Lease / 3, Most: c.o.Lease}
	for failed, turn := 0, false; ; {
		err := c.look(ctx, store.Local)
		held := c.held()
		switch {
		case held && err == nil:
			err = c.heldError()
		case !held && !turn && ctx.Err() == nil:
			turn = true
			_ = wait.Sleep(ctx, wait.Turn(c.o.Lease/6))
			continue
		case !held:
			err = c.act(ctx, err)
		}
		if err == nil {
			observed, failed = "", 0
			if err = c.lead(ctx, work); !errors.Is(err, ErrLost) && ctx.Err() == nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return store.Wrap("wait to "+c.o.Work.lead(), context.Cause(ctx))
		}
		// Each holder is reported once, not at each of its renewals.
		is := err.Error()
		if other, ok := errors.AsType[*HeldError](err); ok {
			is = other.Holder.ID.String()
		}
		if is != observed {
			observed = is
			observe(err)
		}
		var pause time.Duration
		if c.held() {
			failed = 0
			pause, turn = c.untilNextLook()
		} else {
			failed++
			pause, turn = wait.Turn(failures.Pause(failed)), true
		}
		if wait.Sleep(ctx, pause) != nil {
			return store.Wrap("wait to "+c.o.Work.lead(), context.Cause(ctx))
		}
	}
}

// untilNextLook returns how long this candidate waits, while another one leads, before it reads the leader's record
// again. There are two cases:
//   - The other's lease lasts for longer than about a third of a lease: pause is that third, and turn is false.
//   - The other's lease ends sooner: pause reaches to its end plus a random delay, and turn is true. This candidate may
//     take the lease right after the pause.
func (c *Candidate) untilNextLook() (pause time.Duration, turn bool) {
	const least, spread = 0.75, 0.5
	pause = time.Duration(float64(c.o.Lease/3) * (least + spread*rand.Float64()))
	if left := c.leftOfKnown(); left < pause {
		return left + wait.Turn(c.o.Lease/3), true
	}
	return pause, false
}

// Try makes this candidate the leader, and runs work. If another process leads, Try does not wait for the lease, but
// fails at once with a *HeldError, of kind Conflict. If the lease is lost while work runs, Try returns ErrLost.
func (c *Candidate) Try(ctx context.Context, work func(ctx context.Context) error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	return c.lead(ctx, work)
}

// take makes this candidate the leader, or fails with a HeldError if another candidate leads. It first reads the newest
// leader's record, by a quorum of all data centres (Serial).
func (c *Candidate) take(ctx context.Context) error {
	const tries = 4 // bounds the swaps of unknown outcome
	var err error
	for range tries {
		if err = c.look(ctx, store.Serial); err != nil {
			return err
		}
		if c.held() {
			return c.heldError()
		}
		if err = c.swap(ctx); err == nil {
			return nil
		}
	}
	return err
}

// act makes this candidate the leader, after a read from the nearest data centre (Local) has shown no other leader. The
// parameter err is the error of this read, or nil. In two cases act first reads the newest record (Serial):
//   - The read has failed.
//   - The last swap has shown that this data centre has an old record.
func (c *Candidate) act(ctx context.Context, err error) error {
	if err != nil || c.known.refuted { // this data centre does not have the newest record
		if err = c.look(ctx, store.Serial); err != nil {
			return err
		}
		if c.held() {
			return c.heldError()
		}
	}
	return c.swap(ctx)
}

// look reads the leader's record at the consistency level l. It stores the record in c.known if the record is newer
// than the one in c.known. A record that is read at Local may be out of date.
func (c *Candidate) look(ctx context.Context, l store.Level) error {
	h, v, err := read(ctx, c.regs, c.o.Work, l)
	newer := l == store.Serial || v.Epoch > c.known.version.Epoch
	if err == nil && newer && v != c.known.version {
		c.known = sight{holder: h, version: v, since: c.now()}
	}
	return err
}

// held reports whether another candidate holds the lease, by the newest leader's record that this candidate has read. A
// record with this candidate's own id does not count.
func (c *Candidate) held() bool {
	// A record with the own id comes from a swap of unknown outcome. The candidate must swap again, since it does not
	// know when the lease of this record began.
	h := &c.known.holder
	return !h.free() && h.ID != c.id && c.leftOfKnown() >= 0
}

func (c *Candidate) heldError() error { return held(c.o.Work, c.known.holder) }

// leftOfKnown returns the time until the lease of another leader ends, by the newest record that this candidate has
// read. The result is negative if the lease is over, which it is
//   - at the time in the record, or
//   - when the record has not changed for longer than the lease. This rule works even if wall clocks differ.
func (c *Candidate) leftOfKnown() time.Duration {
	// A record from a data centre that is behind does no harm, since a candidate that takes the lease swaps exactly
	// this record. Versions only grow. So if the swap succeeds, the record was the newest all the time since it was
	// first read, and the leader has not renewed in between.
	now, h := c.now(), &c.known.holder
	patience := h.Lease + h.Lease/100 + c.o.Skew
	least, _ := now.Since(c.known.since)
	return min(h.Until.Add(c.o.Skew).Sub(now.Wall), patience-least)
}

// swap makes this candidate the leader, by a compare-and-swap of the leader's record that this candidate has read last.
// The error is Conflict if the stored record has changed since.
func (c *Candidate) swap(ctx context.Context) error {
	sent := c.now()
	mine := Holder{ID: c.id, Name: c.o.Name, Admin: c.o.Admin, Version: c.o.Version, Since: sent.Wall, Lease: c.o.Lease,
		Shards: c.shards}
	err := c.write(ctx, c.known.version, mine, sent)
	c.known.refuted = errors.Is(err, store.Conflict)
	return store.Wrap("take the leader's lease", err)
}

// write replaces the leader's record by h, by a compare-and-swap that expects the version `old` of the record. If the
// swap succeeds, this candidate leads, and its lease counts from the instant `sent`, just before the swap.
func (c *Candidate) write(ctx context.Context, old store.Version, h Holder, sent wait.Instant) error {
	h.Until = sent.Wall.Add(c.o.Lease)
	next := record.Next(old)
	rec, err := seal(next, &h)
	if err != nil {
		return err
	}
	if err := c.regs.Swap(ctx, store.Process, c.o.Work.key(), old, rec); err != nil {
		return err
	}
	h.Epoch = next.Epoch
	c.hold(h, next, sent)
	return nil
}

func (c *Candidate) hold(h Holder, v store.Version, since wait.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading, c.holder, c.version, c.since = true, h, v, since
}

// lead runs work as the leader. It renews the lease meanwhile, and ends the context of work if the lease is lost. After
// work has returned, lead gives up the lease. The result is ErrLost if the lease was lost, else the result of work.
func (c *Candidate) lead(ctx context.Context, work func(ctx context.Context) error) error {
	wctx, stop := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { c.keep(wctx, stop) })
	renewing.Go(func() { c.watch(wctx, stop) })
	err := work(wctx)
	lost := errors.Is(context.Cause(wctx), ErrLost)
	stop(context.Canceled)
	renewing.Wait()
	c.resign(ctx)
	if lost {
		return ErrLost
	}
	return err
}

// watch ends the leader's work when the lease is over by one of the machine's two clocks. It calls stop with ErrLost
// then, and returns when ctx ends.
func (c *Candidate) watch(ctx context.Context, stop context.CancelCauseFunc) {
	const looks = 20 // per lease: a machine that was suspended notices it soon
	for {
		c.mu.Lock()
		left := c.left(c.now())
		c.mu.Unlock()
		if left <= 0 {
			stop(ErrLost)
			return
		}
		if wait.Sleep(ctx, min(left, c.o.Lease/looks)) != nil {
			return
		}
	}
}

// keep renews the leader's lease again and again, until ctx ends: after two fifths of the lease, and sooner after a
// failure. If another candidate holds the lease, keep ends the leader's work by calling stop with ErrLost.
func (c *Candidate) keep(ctx context.Context, stop context.CancelCauseFunc) {
	// A renewal is a lightweight transaction, on which all data centres vote. With the default lease there are ten a
	// minute. A renewal that fails by the store's time limit can be repeated in the rest of the lease.
	usual := c.o.Lease * 2 / 5
	pause := usual
	for wait.Sleep(ctx, pause) == nil {
		pause = usual
		if err := c.renew(ctx); err != nil {
			if errors.Is(err, ErrLost) {
				stop(ErrLost)
				return
			}
			pause = c.o.Lease / 20
		}
	}
}

func (c *Candidate) renew(ctx context.Context) error {
	c.mu.Lock()
	h, v := c.holder, c.version
	c.mu.Unlock()
	sent := c.now()
	err := c.write(ctx, v, h, sent)
	if err == nil {
		return nil
	}
	// Whatever the error says, the record decides whether this candidate still leads.
	now, v, rerr := read(ctx, c.regs, c.o.Work, store.Serial)
	switch {
	case rerr != nil:
		return rerr
	case now.ID != c.id:
		return ErrLost
	}
	// This renewal was applied, or an earlier one was applied late. The next renewal swaps the version that was read.
	// The record may be older than sent, so the lease is not extended.
	c.mu.Lock()
	c.version = v
	c.mu.Unlock()
	return err
}

// resign gives up this candidate's lease, so that another candidate can lead at once. If the lease is over already,
// resign writes nothing, since another candidate may lead by now.
func (c *Candidate) resign(ctx context.Context) {
	c.mu.Lock()
	h, v, over := c.holder, c.version, c.over(c.now())
	c.leading = false
	c.mu.Unlock()
	if over {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Lease/3)
	defer cancel()
	const tries = 3
	for range tries {
		next := record.Next(v)
		rec, err := seal(next, &Holder{Since: h.Since, Until: c.now().Wall, Lease: h.Lease})
		if err != nil || c.regs.Swap(ctx, store.Process, c.o.Work.key(), v, rec) == nil {
			return
		}
		// An interrupted renewal may have been applied.
		if h, v, err = read(ctx, c.regs, c.o.Work, store.Serial); err != nil || h.ID != c.id {
			return
		}
	}
}

// Leader returns the process that leads. The result known is true if h is set, and mine is true if this candidate
// leads. The record of another leader is read from the nearest data centre (Local), so it may be out of date.
func (c *Candidate) Leader(ctx context.Context) (h Holder, known, mine bool) {
	if h, mine := c.Leading(); mine {
		return h, true, true
	}
	h, err := Current(ctx, c.regs, c.o.Work)
	return h, err == nil, false
}
