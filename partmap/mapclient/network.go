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
)

// Limits and presets of the network form.
const (
	DefaultLease  = 3 * time.Second
	MinLease      = 50 * time.Millisecond
	MaxLease      = 10 * time.Minute
	DefaultClocks = 16
	MaxClocks     = 1 << 16
	MinClockSkew  = 10 * time.Millisecond
)

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
	if o.MaxClockSkew == 0 {
		o.MaxClockSkew = DefaultClockSkew
	}
	if o.MaxClockSkew < MinClockSkew {
		return nil, store.Errorf(store.InvalidArgument, "Options.MaxClockSkew is %v: at least %v", o.MaxClockSkew, MinClockSkew)
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	c := NewEmbedded(s, o)
	n := &network{client: c, store: s, lease: o.Lease, maxSkew: o.MaxClockSkew, now: instants(o.Now, o.Monotonic), clocks: map[uint32]*clock{}, jitter: o.Jitter}
	n.ask = n.askClock
	n.ctx, n.stop = context.WithCancel(context.Background())
	if clock, ok := s.(store.WallClock); ok {
		n.skew = newSkewWatch(n, clock, o.MaxClockSkew)
	}
	c.net = n
	return c, nil
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
	client  *Client
	store   Store
	lease   time.Duration
	maxSkew time.Duration
	now     func() instant
	jitter  func() float64 // 0 to 1
	// ask reads a clock once; askClock.
	ask func(ctx context.Context, number uint32) (*poll, error)
	// skew is nil where the store's servers have no wall clocks.
	skew *skewWatch

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
	c.net.work.Wait()
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
	if was := e.proof.Load(); e.root.Epoch == r.Epoch && r.Clock == p.clock.number && (was == nil || was.mapClock.value <= p.mapClock.value) {
		e.prove(was, p)
	}
	return nil
}
