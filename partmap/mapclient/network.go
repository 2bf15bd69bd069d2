package mapclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Limits and presets of the network form.
const (
	DefaultLease  = 3 * time.Second
	MinLease      = 50 * time.Millisecond
	MaxLease      = 10 * time.Minute
	DefaultClocks = 16
	MaxClocks     = 1 << 16
)

// Join makes what the processes of a store share, where it is missing, agrees with it on
// the terms of o, and returns a client: what a process does at its start. change has the
// store take this process's terms; every other process has to have ended before. It fails
// like InitClocks, AgreeOnLease, AgreeOnClockSkew and NewNetwork.
func Join(ctx context.Context, s Store, o Options, change bool) (*Client, error) {
	if o.Clocks == 0 {
		o.Clocks = DefaultClocks
	}
	// Every process makes them: it is cheap where they are there, and one step less for
	// whoever lays out a store.
	if err := InitClocks(ctx, s, o.Clocks); err != nil {
		return nil, err
	}
	if err := AgreeOnLease(ctx, s, o.Lease, change); err != nil {
		return nil, err
	}
	var err error
	if o.MaxClockSkew, err = AgreeOnClockSkew(ctx, s, o.MaxClockSkew, change); err != nil {
		return nil, err
	}
	return NewNetwork(s, o)
}

// NewNetwork makes a client whose leases hold for a time, for stores that many
// processes share: each has a client of its own. The store's map clocks have to
// be there (InitClocks). It polls those that it uses until Close. It fails with
// InvalidArgument where an option is out of bounds.
func NewNetwork(s Store, o Options) (*Client, error) {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Lease < MinLease || o.Lease > MaxLease {
		return nil, store.Errorf(store.InvalidArgument, "Options.Lease is %v: %v to %v", o.Lease, MinLease, MaxLease)
	}
	if o.Clocks == 0 {
		o.Clocks = DefaultClocks
	}
	if o.Clocks < 1 || o.Clocks > MaxClocks {
		return nil, store.Errorf(store.InvalidArgument, "Options.Clocks is %d: 1 to %d", o.Clocks, MaxClocks)
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	c := NewEmbedded(s, o)
	n := &network{
		client: c, store: s, lease: o.Lease, now: wait.Instants(o.Now, o.Monotonic), clocks: map[uint32]*clock{},
		jitter: o.Jitter,
		pauses: wait.Backoff{First: 4 * time.Millisecond, Most: 256 * time.Millisecond, Jitter: 1, Rand: o.Jitter},
	}
	n.ask = n.askClock
	n.ctx, n.stop = context.WithCancel(context.Background())
	if servers, ok := s.(store.WallClock); ok {
		var err error
		n.time, err = commontime.New(servers, commontime.Options{
			Limit: o.MaxClockSkew, Wall: o.Now, Monotonic: o.Monotonic,
		})
		if err != nil {
			return nil, err
		}
	}
	c.net = n
	return c, nil
}

// Above returns a timestamp above every one that a client of the store has given out
// until now, for what has to hide writes that arrive late. It fails with Unavailable
// or Timeout where the time is not known.
//
// In the embedded form, where nothing arrives late, and over a store whose servers have
// no clocks it is the wall clock: that may have been set back, so add what is known of
// the rows.
func (c *Client) Above(ctx context.Context) (store.Timestamp, error) {
	if clock := c.Time(); clock != nil {
		return clock.Above(ctx)
	}
	return store.Timestamp(c.opts.Now().UnixMicro()), nil
}

// network keeps the leases of the network form (the protocol's section "Map
// clocks, leases, acknowledgement, waits").
//
// A root may be acted on for the time of a lease, counted from the moment at which
// the read of the clock value was sent under which the root was read. So each
// epoch remembers the poll under which its root was last proven to be the newest:
// read after it, or not named by any bump between an older such poll and it. A
// mover swaps the root, then bumps the clock, then waits: polls sent after the
// bump was acknowledged name the bucket, and what was proven by those sent
// before is over when the wait is.
type network struct {
	client *Client
	store  Store
	lease  time.Duration
	now    func() wait.Instant
	jitter func() float64 // 0 to 1
	pauses wait.Backoff   // before a swap or a bump is tried again
	// ask reads a clock once; askClock.
	ask func(ctx context.Context, number uint32) (*poll, error)
	// time is nil where the store's servers have no wall clocks.
	time *commontime.Clock

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	work    sync.WaitGroup
	roots   shared // reads of roots, by bucket
	counts  counters
	mu      sync.Mutex // guards clocks and closed
	clocks  map[uint32]*clock
	stopped bool
}

var errClosed = store.Errorf(store.Unavailable, "the map client is closed")

// Close ends the polls, and with them after the time of a lease all leases. The
// embedded form has nothing to close.
func (c *Client) Close() {
	if c.net == nil {
		return
	}
	c.net.mu.Lock()
	c.net.stopped = true
	c.net.mu.Unlock()
	c.net.stop()
	if c.net.time != nil {
		c.net.time.Close()
	}
	c.net.work.Wait()
}

// Time returns the common time of the store's servers, from which writers take
// timestamps; nil in the embedded form, and over a store whose servers have no
// clocks. It ends with Close.
func (c *Client) Time() *commontime.Clock {
	if c.net == nil {
		return nil
	}
	return c.net.time
}

// start runs f in the background until Close, or reports that it is too late.
func (n *network) start(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		n.work.Go(f)
	}
	return !n.stopped
}

// alive reports whether what was proven under a poll may still be acted on.
func (n *network) alive(p *poll) bool { return p != nil && !leaseOver(p.sent, n.now(), n.lease) }

// clockOf is the clock of a bucket that is yet to be created. Of one that exists
// it is a guess, right as long as the number of clocks stays.
func (n *network) clockOf(id store.BucketID) uint32 {
	return uint32(xxhash.Sum64(id[:]) % uint64(n.client.opts.Clocks))
}

// acquire finds the newest epoch of a bucket and the poll that proves it.
func (n *network) acquire(ctx context.Context, id store.BucketID) (*epoch, *poll, error) {
	if b, ok := n.client.epochs.buckets.peek(id); ok {
		if e := b.newest.Load(); e != nil && e.refused == nil {
			p := e.proof.Load()
			if p != nil && p.clock.latest.Load() == p && n.alive(p) {
				b.touch()
				p.clock.touch()
				return e, p, nil
			}
		}
	}
	e, p, err := n.prove(ctx, id)
	if err != nil {
		n.counts.refused.Add(1)
	}
	return e, p, err
}

// prove is acquire where something has to be looked at, or read.
func (n *network) prove(ctx context.Context, id store.BucketID) (*epoch, *poll, error) {
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	b.touch()
	const tries = 5 // a guess of the clock that was wrong, a swap meanwhile
	for range tries {
		e := b.newest.Load()
		if e != nil && e.root.State == partmap.Deleted {
			return nil, nil, e.refused // it will never be anything else
		}
		number := n.clockOf(id)
		if e != nil {
			number = e.root.Clock
		}
		p, err := n.clock(number).current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if e == nil || !n.renew(e, p) {
			if err := n.refresh(ctx, id, p); err != nil {
				return nil, nil, err
			}
			continue
		}
		if e.refused != nil {
			return nil, nil, e.refused
		}
		if n.alive(p) && b.newest.Load() == e {
			return e, p, nil
		}
	}
	return nil, nil, store.Errorf(store.Unavailable, "bucket %s: no map could be proven to be the newest; try again", id)
}

// renew proves an epoch by a later poll, if that poll has no news of the bucket.
func (n *network) renew(e *epoch, p *poll) bool {
	was := e.proof.Load()
	switch {
	case was == nil:
		return false // read at Serial, or swapped: not yet seen at Local
	case was == p:
		return true
	case was.clock != p.clock || was.line != p.line || p.mapClock.mayConcern(e.root.Bucket, was.mapClock.value):
		return false
	case e.root.State == partmap.Closing:
		return false // back in a moment; a bump of that may never have come
	}
	e.prove(was, p)
	n.counts.renewals.Add(1)
	return true
}

// prove replaces an epoch's proof, unless somebody else has.
func (e *epoch) prove(was, p *poll) { e.proof.CompareAndSwap(was, p) }

// refresh reads the root of a bucket under a poll. Callers at the same time share
// one read; so what they get may be proven by another poll, or by none, and they
// look again.
func (n *network) refresh(ctx context.Context, id store.BucketID, p *poll) error {
	_, err := n.roots.do(ctx, string(id[:]), fmt.Sprintf("read the root of bucket %s", id), func() (any, error) {
		ctx, cancel := context.WithTimeout(n.ctx, n.lease)
		defer cancel()
		return nil, n.read(ctx, id, p)
	})
	return err
}

func (n *network) read(ctx context.Context, id store.BucketID, p *poll) error {
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	n.counts.roots.Add(1)
	r, err := n.client.readRoot(ctx, id, store.Local)
	if err != nil {
		if store.KindOf(err) == store.NotFound {
			// Roots are never removed: a replica lacks it.
			err = store.Errorf(store.Unavailable, "its root is missing: %w", err)
		}
		return err
	}
	e := n.client.epochs.publish(b, r)
	if e.root.Epoch == r.Epoch && e.root.Token != r.Token {
		return store.Errorf(store.Corrupt, "the root of bucket %s changed without a swap at epoch %d", id, r.Epoch)
	}
	// A lower epoch than is known proves nothing: nobody goes back to it, and the
	// known one is proven when a read at this level shows it.
	if was := e.proof.Load(); e.root.Epoch == r.Epoch && r.Clock == p.clock.number &&
		(was == nil || was.mapClock.value <= p.mapClock.value) {
		e.prove(was, p)
	}
	return nil
}
