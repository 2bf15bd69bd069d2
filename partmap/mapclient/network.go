package mapclient

import (
	"cmp"
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

// Defaults and limits of the options of the network form.
const (
	DefaultLease  = 3 * time.Second
	MinLease      = 50 * time.Millisecond
	MaxLease      = 10 * time.Minute
	DefaultClocks = 16
	MaxClocks     = 1 << 16
)

// Join returns a client of a store that this process shares with others, and makes the process ready to use the store.
// It creates missing map clocks, checks the version of the schema, and takes over the lease and the clock skew of the
// other processes. A lease or a clock skew that o has must be equal to that of the store. With change, the terms of o
// replace the stored ones, and all other processes must have ended. Join fails like InitClocks, AgreeOnSchema,
// AgreeOnLease, AgreeOnClockSkew and NewNetwork.
func Join(ctx context.Context, s Store, o Options, change bool) (*Client, error) {
	return join(ctx, s, o, change, false)
}

// JoinDamaged returns a client like Join, for a process that looks for damage and is run by people who know the terms.
// If the stored lease or clock skew can't be read (Corrupt), the one that o has is used instead. A stored one that can
// be read must be equal to that of o. If o does not have one, the stored one must be readable. A version of the schema
// that can't be read is taken for a known version.
func JoinDamaged(ctx context.Context, s Store, o Options) (*Client, error) {
	return join(ctx, s, o, false, true)
}

func join(ctx context.Context, s Store, o Options, change, damaged bool) (*Client, error) {
	if o.Clocks == 0 {
		o.Clocks = DefaultClocks
	}
	// Every process does this: it is cheap if the clocks exist, and saves a setup step.
	if err := InitClocks(ctx, s, o.Clocks); err != nil {
		return nil, err
	}
	schema, err := AgreeOnSchema(ctx, s)
	if damaged && store.KindOf(err) == store.Corrupt {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	lease, err := AgreeOnLease(ctx, s, o.Lease, change)
	if damaged && o.Lease != 0 && store.KindOf(err) == store.Corrupt {
		lease, err = o.Lease, nil
	}
	if err != nil {
		return nil, err
	}
	skew, err := AgreeOnClockSkew(ctx, s, o.MaxClockSkew, change)
	if damaged && o.MaxClockSkew != 0 && store.KindOf(err) == store.Corrupt {
		skew, err = o.MaxClockSkew, nil
	}
	if err != nil {
		return nil, err
	}
	o.Lease, o.MaxClockSkew = lease, skew
	c, err := NewNetwork(s, o)
	if err == nil {
		c.schema = schema
	}
	return c, err
}

// NewNetwork makes a client of the network form, one per process. The store must have its map
// clocks (InitClocks). The client polls those that it uses until Close. It fails with
// InvalidArgument where an option is out of bounds.
//
// It agrees on nothing with other processes, and acknowledged rows are lost where their lease or
// clock skew is another one: programs call Join.
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

// Above returns a timestamp above all that clients of the store have drawn until now, for
// removals that must hide late writes. It fails with Unavailable or Timeout where the time is
// unknown.
//
// In the embedded form, which has no late writes, and over a store whose servers have no
// clocks, it returns the wall clock. That may have been set back: callers must also take the
// timestamps of the rows into account.
func (c *Client) Above(ctx context.Context) (store.Timestamp, error) {
	if clock := c.Time(); clock != nil {
		return clock.Above(ctx)
	}
	return store.Timestamp(c.opts.Now().UnixMicro()), nil
}

// MaxClockSkew returns the limit for the skew of clocks that the processes of the store have agreed on;
// 0 in the embedded form.
func (c *Client) MaxClockSkew() time.Duration {
	if c.net == nil {
		return 0
	}
	return cmp.Or(c.opts.MaxClockSkew, commontime.DefaultLimit)
}

// network has the state of the network form (docs/protocol.md, "Map clocks, leases,
// acknowledgement, waits").
//
// A poll proves that a root is the newest if the root was read after the poll was sent, or if
// an older poll has proven it and no bump between the two polls names the bucket. The root may
// be used for the length of a lease from the time at which the poll was sent, so each epoch
// keeps the latest poll that proves it.
//
// A mover swaps the root, bumps the clock, and then waits. Polls that are sent after the
// acknowledgement of the bump name the bucket; leases from polls that were sent earlier end
// before the wait does.
type network struct {
	client *Client
	store  Store
	lease  time.Duration
	now    func() wait.Instant
	jitter func() float64 // 0 to 1
	pauses wait.Backoff   // before retries of swaps and bumps
	// ask is askClock, except in a test of a mistake in it.
	ask func(ctx context.Context, number uint32) (*poll, error)
	// time is nil if the store's servers have no wall clocks.
	time *commontime.Clock

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	work    sync.WaitGroup
	roots   shared // reads of roots, by bucket
	counts  counters
	mu      sync.Mutex // guards clocks and stopped
	clocks  map[uint32]*clock
	stopped bool
}

var errClosed = store.Errorf(store.Unavailable, "the map client is closed")

// Close ends the polls; leases end within the length of a lease. In the embedded form it does
// nothing.
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

// Time returns the common time of the store's servers, the source of timestamps, until Close.
// It is nil in the embedded form, and over a store whose servers have no clocks.
func (c *Client) Time() *commontime.Clock {
	if c.net == nil {
		return nil
	}
	return c.net.time
}

// start runs f in the background, or returns false after Close, which waits for f.
func (n *network) start(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		n.work.Go(f)
	}
	return !n.stopped
}

// alive reports whether leases from a poll are still valid.
func (n *network) alive(p *proof) bool { return p != nil && !leaseOver(p.sent, n.now(), n.lease) }

// clockOf returns the clock of a new bucket. For an existing one it is a guess, wrong if the
// number of clocks has changed since.
func (n *network) clockOf(id store.BucketID) uint32 {
	return uint32(xxhash.Sum64(id[:]) % uint64(n.client.opts.Clocks))
}

// acquire finds the newest epoch of a bucket and the poll that proves it.
func (n *network) acquire(ctx context.Context, id store.BucketID) (*epoch, *proof, error) {
	b, ok := n.client.epochs.buckets.peek(id)
	known := ok && b.newest.Load() != nil
	n.client.epochs.buckets.count(known)
	if known {
		if e := b.newest.Load(); e != nil && e.refused == nil {
			p := e.proof.Load()
			if p != nil && p.clock.latest.Load().proof == p && n.alive(p) {
				touch(&b.used)
				return e, p, nil
			}
		}
	}
	e, p, err := n.prove(ctx, id)
	if err != nil {
		n.counts.add(&n.counts.Refused)
	}
	return e, p, err
}

// prove is acquire if the cached epoch is not proven by the latest poll.
func (n *network) prove(ctx context.Context, id store.BucketID) (*epoch, *proof, error) {
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	touch(&b.used)
	const tries = 5 // for a wrong guess of the clock, and for swaps meanwhile
	for range tries {
		e := b.newest.Load()
		if e != nil && e.root.State == partmap.Deleted {
			return nil, nil, e.refused // final
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
		if n.alive(p.proof) && b.newest.Load() == e {
			return e, p.proof, nil
		}
	}
	return nil, nil, store.Errorf(store.Unavailable, "bucket %s: no map could be proven to be the newest; try again", id)
}

// renew proves an epoch by a later poll, if no bump since the older poll may concern the bucket.
func (n *network) renew(e *epoch, p *poll) bool {
	was := e.proof.Load()
	switch {
	case was == nil:
		return false // known by a read at Serial or a swap, not yet by a read at Local
	case was == p.proof:
		return true
	case was.line != p.line || p.mapClock.mayConcern(e.root.Bucket, was.value):
		return false
	case e.root.State == partmap.Closing:
		return false // it may soon be open again, and the bump of that may be missing
	}
	e.proof.CompareAndSwap(was, p.proof)
	n.counts.add(&n.counts.Renewals)
	return true
}

// refresh reads the root of a bucket after a poll. Concurrent callers share one read. So the
// root may be proven by another poll, or by none, and the caller must check.
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
	n.counts.add(&n.counts.RootReads)
	r, err := n.client.readRoot(ctx, id, store.Local)
	if err != nil {
		if store.KindOf(err) == store.NotFound {
			// Roots are never removed: the replica is stale.
			err = store.Errorf(store.Unavailable, "its root is missing: %w", err)
		}
		return err
	}
	e := n.client.epochs.publish(b, r)
	if e.root.Epoch == r.Epoch && e.root.Token != r.Token {
		return store.Errorf(store.Corrupt, "the root of bucket %s changed without a swap at epoch %d", id, r.Epoch)
	}
	// A lower epoch than the known one proves nothing. The known one is proven once a read at
	// Local returns it.
	if was := e.proof.Load(); e.root.Epoch == r.Epoch && r.Clock == p.clock.number &&
		(was == nil || was.value <= p.value) {
		e.proof.CompareAndSwap(was, p.proof)
	}
	return nil
}
