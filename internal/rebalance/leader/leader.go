package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
	"github.com/evenkeel/evenkeel/store/wait"
)

// DefaultLease is the default of Options.Lease.
const DefaultLease = 15 * time.Second

// ErrLost is the cause of the end of a work's context when the lease is lost.
var ErrLost = store.Errorf(store.Conflict, "the lease of the leader is over: another process may lead now")

// Options of a candidate. Zero values are the defaults.
type Options struct {
	// Work is what the leader does; Moves if empty.
	Work Work
	// Name is for people. Admin is the URL of this process's admin API.
	Name, Admin string
	// Version is the program's, for people.
	Version string
	// Lease is how long a leader leads without renewing, DefaultLease if zero. It renews
	// after two fifths of it; others look each third of it.
	Lease time.Duration
	// Skew is the bound on the differences of candidates' wall clocks, 1 s if zero. Beyond
	// it two may lead for a while.
	Skew time.Duration
	// Now and Monotonic are the two clocks of this machine; the real ones if nil.
	Now       func() time.Time
	Monotonic func() time.Duration
}

// Candidate is a process that may lead. Run and Try are for one goroutine; the other methods
// are safe for concurrent use.
type Candidate struct {
	regs store.Registers
	o    Options
	now  func() wait.Instant
	id   uuid.UUID
	// shards is Holder.Shards of its records.
	shards int

	// The lease, while it is held.
	mu      sync.Mutex
	leading bool
	holder  Holder
	version store.Version
	since   wait.Instant // the lease counts from it

	known sight
}

// sight is the newest record that a candidate has seen, and since when it is unchanged.
type sight struct {
	holder  Holder
	version store.Version
	since   wait.Instant
	// refuted: there is a newer one, since a swap of this one met a Conflict.
	refuted bool
}

// New makes a candidate. It does no I/O.
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

// Leading returns this candidate's record while it leads.
func (c *Candidate) Leading() (Holder, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holder, c.leading && !c.over(c.now())
}

// left is the rest of the lease, by the faster of both clocks.
func (c *Candidate) left(now wait.Instant) time.Duration {
	_, most := now.Since(c.since)
	return c.o.Lease - most
}

func (c *Candidate) over(now wait.Instant) bool { return c.left(now) <= 0 }

// Run waits until this candidate leads and then runs work, each time that it leads again, until
// work returns while the lease holds, or ctx ends. The context of work ends with ErrLost when
// the lease is lost; work must return then. Run resigns and returns the result of work, or
// Timeout when ctx ended. observe, if not nil, gets each new error: a HeldError for each other
// leader, or a failure.
//
// While another one leads it reads at Local only, about each third of a lease. Operations at Serial
// of many candidates would hinder each other, and the leader's renewals. When the lease looks free or
// over all candidates see that: each waits a turn of its own, and looks again before it acts.
func (c *Candidate) Run(ctx context.Context, work func(ctx context.Context) error, observe func(error)) error {
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
		// Once for each holder, not for each of its renewals.
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

// untilNextLook returns when to look again while another one leads: after a third of its own lease, more or less, or
// once the other one's lease is over, and then when it is this candidate's turn to act.
func (c *Candidate) untilNextLook() (pause time.Duration, turn bool) {
	const least, spread = 0.75, 0.5
	pause = time.Duration(float64(c.o.Lease/3) * (least + spread*rand.Float64()))
	if left := c.leftOfKnown(); left < pause {
		return left + wait.Turn(c.o.Lease/3), true
	}
	return pause, false
}

// Try runs work if nobody else leads. Otherwise it fails with a *HeldError (Conflict). When the
// lease is lost it returns ErrLost.
func (c *Candidate) Try(ctx context.Context, work func(ctx context.Context) error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	return c.lead(ctx, work)
}

// take makes this candidate the holder, or fails with a HeldError. It goes by the newest record.
func (c *Candidate) take(ctx context.Context) error {
	const tries = 4 // of swaps of unknown outcome
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

// act makes this candidate the holder, as the lease looks free or over at Local, where a look had the error err.
func (c *Candidate) act(ctx context.Context, err error) error {
	if err != nil || c.known.refuted { // this data centre does not tell
		if err = c.look(ctx, store.Serial); err != nil {
			return err
		}
		if c.held() {
			return c.heldError()
		}
	}
	return c.swap(ctx)
}

// look reads the record, and keeps it if it is newer than the known one. What is read at Local may be older.
func (c *Candidate) look(ctx context.Context, l store.Level) error {
	h, v, err := read(ctx, c.regs, c.o.Work, l)
	newer := l == store.Serial || v.Epoch > c.known.version.Epoch
	if err == nil && newer && v != c.known.version {
		c.known = sight{holder: h, version: v, since: c.now()}
	}
	return err
}

// held reports whether another one holds the lease by the known record. Its own record is that of a swap of unknown
// outcome: it swaps again, since it does not know from when that lease counts.
func (c *Candidate) held() bool {
	h := &c.known.holder
	return !h.free() && h.ID != c.id && c.leftOfKnown() >= 0
}

func (c *Candidate) heldError() error { return held(c.o.Work, c.known.holder) }

// leftOfKnown is the rest of the lease of the known holder: until its own end, or until its record has not changed for
// longer than the lease. The second does not need wall clocks that agree.
//
// Nothing is inferred from a record that a stale data centre shows, since whoever acts swaps that very record.
// Versions only grow: if it is still the newest then, it was so ever since it was seen first, and the holder has
// renewed at no time in between.
func (c *Candidate) leftOfKnown() time.Duration {
	now, h := c.now(), &c.known.holder
	patience := h.Lease + h.Lease/100 + c.o.Skew
	least, _ := now.Since(c.known.since)
	return min(h.Until.Add(c.o.Skew).Sub(now.Wall), patience-least)
}

// swap makes this candidate the holder, if the known record is the newest.
func (c *Candidate) swap(ctx context.Context) error {
	sent := c.now()
	mine := Holder{ID: c.id, Name: c.o.Name, Admin: c.o.Admin, Version: c.o.Version, Since: sent.Wall, Lease: c.o.Lease,
		Shards: c.shards}
	err := c.write(ctx, c.known.version, mine, sent)
	c.known.refuted = errors.Is(err, store.Conflict)
	return store.Wrap("take the leader's lease", err)
}

// write swaps the record. If that succeeds the lease counts from sent.
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

// lead runs work while the lease holds.
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

// watch ends the work when the lease is over on one of both clocks.
func (c *Candidate) watch(ctx context.Context, stop context.CancelCauseFunc) {
	const looks = 20 // per lease: a machine that was suspended finds out soon
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

// keep renews the lease after two fifths of it, more often after a failure. It ends the work when
// somebody else holds the lease.
//
// A renewal is a lightweight transaction, which all data centres vote on: with the default lease there are ten a
// minute. A renewal that fails by the store's time limit can be repeated in what is left of the lease.
func (c *Candidate) keep(ctx context.Context, stop context.CancelCauseFunc) {
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
	// Whatever the error, the record decides.
	now, v, rerr := read(ctx, c.regs, c.o.Work, store.Serial)
	switch {
	case rerr != nil:
		return rerr
	case now.ID != c.id:
		return ErrLost
	}
	// This renewal was applied, or an earlier one late. The next one swaps that version.
	// The record may be older than sent, so the lease is not extended.
	c.mu.Lock()
	c.version = v
	c.mu.Unlock()
	return err
}

// resign gives up the lease if it still holds, so that nobody has to wait for its end.
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

// Leader returns the leader, if it is known, and whether it is this candidate. It reads like Current.
func (c *Candidate) Leader(ctx context.Context) (h Holder, known, mine bool) {
	if h, mine := c.Leading(); mine {
		return h, true, true
	}
	h, err := Current(ctx, c.regs, c.o.Work)
	return h, err == nil, false
}
