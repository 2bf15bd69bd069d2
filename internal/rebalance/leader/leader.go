package leader

import (
	"context"
	"errors"
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
	// each third of it.
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

	// The lease, while it is held.
	mu      sync.Mutex
	leading bool
	holder  Holder
	version store.Version
	since   wait.Instant // the lease counts from it

	// Another holder's record: its version, and since when it is unchanged.
	seen      store.Version
	seenSince wait.Instant
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
func (c *Candidate) Run(ctx context.Context, work func(ctx context.Context) error, observe func(error)) error {
	if observe == nil {
		observe = func(error) {}
	}
	var observed string
	for {
		err := c.take(ctx)
		if err == nil {
			observed = ""
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
		if wait.Sleep(ctx, c.o.Lease/3) != nil {
			return store.Wrap("wait to "+c.o.Work.lead(), context.Cause(ctx))
		}
	}
}

// Try runs work if nobody else leads. Otherwise it fails with a *HeldError (Conflict). When the
// lease is lost it returns ErrLost.
func (c *Candidate) Try(ctx context.Context, work func(ctx context.Context) error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	return c.lead(ctx, work)
}

// take makes this candidate the holder, or fails with a HeldError.
func (c *Candidate) take(ctx context.Context) error {
	const tries = 4 // of swaps of unknown outcome
	var err error
	for range tries {
		var h Holder
		var v store.Version
		if h, v, err = read(ctx, c.regs, c.o.Work); err != nil {
			return err
		}
		// Its own record is that of a swap of unknown outcome. It swaps again, since it
		// does not know from when that lease counts.
		if !h.free() && h.ID != c.id && !c.ended(h, v) {
			return held(c.o.Work, h)
		}
		sent := c.now()
		mine := Holder{ID: c.id, Name: c.o.Name, Admin: c.o.Admin, Version: c.o.Version, Since: sent.Wall, Lease: c.o.Lease}
		if err = c.write(ctx, v, mine, sent); err == nil {
			return nil
		}
	}
	return store.Wrap("take the leader's lease", err)
}

// ended reports whether another holder's lease is over: by its own end, or because its record
// has not changed for longer than the lease. The second does not need wall clocks that agree.
func (c *Candidate) ended(h Holder, v store.Version) bool {
	now := c.now()
	if now.Wall.After(h.Until.Add(c.o.Skew)) {
		return true
	}
	if c.seen != v {
		c.seen, c.seenSince = v, now
		return false
	}
	patience := h.Lease + h.Lease/100 + c.o.Skew
	least, _ := now.Since(c.seenSince)
	return least > patience
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

// keep renews the lease each third of it, more often after a failure. It ends the work when
// somebody else holds the lease.
func (c *Candidate) keep(ctx context.Context, stop context.CancelCauseFunc) {
	pause := c.o.Lease / 3
	for wait.Sleep(ctx, pause) == nil {
		pause = c.o.Lease / 3
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
	now, v, rerr := read(ctx, c.regs, c.o.Work)
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
		if h, v, err = read(ctx, c.regs, c.o.Work); err != nil || h.ID != c.id {
			return
		}
	}
}

// Leader returns the leader, if it is known, and whether it is this candidate.
func (c *Candidate) Leader(ctx context.Context) (h Holder, known, mine bool) {
	if h, mine := c.Leading(); mine {
		return h, true, true
	}
	h, err := Current(ctx, c.regs, c.o.Work)
	return h, err == nil, false
}
