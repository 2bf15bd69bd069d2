package mapclient

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// These are the defaults and limits of two options of a Client whose store several processes share: the length of
// leases, and the number of map clocks, which are counters in the store.
const (
	DefaultLease  = 3 * time.Second
	MinLease      = 50 * time.Millisecond
	MaxLease      = 10 * time.Minute
	DefaultClocks = 16
	MaxClocks     = 1 << 16
)

// Join returns a Client of a store that this process shares with other processes. It creates missing map clocks
// (counters by which processes learn of changed maps), and checks the version of the schema. It takes over the lease
// and the clock skew that the other processes use. A lease or a clock skew in o must be equal to theirs.
//
// If change is true, the lease and the clock skew in o replace the stored values; all other processes must have ended
// before. Join fails like InitClocks, AgreeOnSchema, AgreeOnLease, AgreeOnClockSkew and NewNetwork.
func Join(ctx context.Context, s Store, o Options, change bool) (*Client, error) {
	return join(ctx, s, o, change, false)
}

// JoinDamaged returns a Client of a shared store that may be damaged, for a process that looks for the damage. If the
// stored lease or clock skew can't be read (Corrupt), the value in o is used; without a value in o, JoinDamaged fails.
// If it can be read, a value in o must be equal to it. A version of the schema that can't be read is taken for a known
// version.
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

// NewNetwork returns a Client of a store that several processes share (the network form). Programs call Join instead,
// which also makes sure that all processes have the same lease and clock skew. If these differ, acknowledged rows are
// lost.
//
// A process needs only one such Client. The store must have its map clocks (InitClocks), counters by which processes
// learn of changed maps. The client polls the clocks that it uses until Close. NewNetwork fails with InvalidArgument if
// an option is out of bounds.
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

// Above returns a timestamp above all timestamps that clients of the store have drawn until now. A mover removes rows
// at this timestamp, so that the removal also hides writes that arrive late. The timestamp comes from the common time
// of the store's servers. Above fails with Unavailable or Timeout if this time is not known.
//
// In two cases the result is the time of this machine's wall clock: in the embedded form, and over a store whose
// servers have no clocks. The wall clock may have been set back, so the timestamp must also be raised above those of
// the rows.
func (c *Client) Above(ctx context.Context) (store.Timestamp, error) {
	if clock := c.Time(); clock != nil {
		return clock.Above(ctx)
	}
	return store.Timestamp(c.opts.Now().UnixMicro()), nil
}

// MaxClockSkew returns the greatest difference between clocks on which all processes of the store have agreed. It is 0
// in the embedded form, in which a single process has the store to itself.
func (c *Client) MaxClockSkew() time.Duration {
	if c.net == nil {
		return 0
	}
	return cmp.Or(c.opts.MaxClockSkew, commontime.DefaultLimit)
}

// network is the state of a Client whose store several processes share: the network form (docs/protocol.md, "Map
// clocks" to "Waits").
//
// A poll is a read of a map clock, a counter in the store that is raised (bumped) after each change of a bucket's map.
// A poll proves that a root is the newest if
//   - the root was read after the poll was sent, or
//   - an older poll has proven the root, and no bump between the two polls names the bucket.
//
// The root may then be used for the length of a lease from the time at which the poll was sent. So each epoch (a cached
// version of a root) keeps the latest poll that proves it.
//
//	mover     swap of the root    acknowledged bump |----------- wait -----------|
//	poll 1    sent before the bump               |------- lease -------|
//	poll 2    sent after the bump                      | names the bucket: the root is read again
//
// A mover swaps the root, bumps the clock, and then waits. Leases from polls that were sent before the acknowledgement
// of the bump end before the wait does. Later polls name the bucket.
type network struct {
	client *Client
	store  Store
	lease  time.Duration
	now    func() wait.Instant
	jitter func() float64 // returns a number from 0 to 1
	pauses wait.Backoff   // before retries of swaps and bumps
	// ask reads the map clock with the given number. It is askClock, except in a test that puts a mistake into it.
	ask func(ctx context.Context, number uint32) (*poll, error)
	// time is the clock from which timestamps are drawn. It is nil if the store's servers have no wall clocks.
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

// Close stops the background reads of map clocks (counters by which clients learn of changed maps) and of the servers'
// time. All leases then end within the length of a lease. In the embedded form, in which a single process has the store
// to itself, Close does nothing.
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

// Time returns the clock from which timestamps are drawn, which computes a common time from the clocks of the store's
// servers. The clock works until Close. The result is nil in the embedded form, and over a store whose servers have no
// clocks.
func (c *Client) Time() *commontime.Clock {
	if c.net == nil {
		return nil
	}
	return c.net.time
}

// start runs the function f in a goroutine and returns true. Close waits for the end of f. After Close has been called,
// start does not run f, and returns false.
func (n *network) start(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		n.work.Go(f)
	}
	return !n.stopped
}

// alive reports whether leases that rest on the proof p may still be used. A proof is a read of a map clock that showed
// a root to be the newest; leases count from the time of this read. The result is false if p is nil.
func (n *network) alive(p *proof) bool { return p != nil && !leaseOver(p.sent, n.now(), n.lease) }

// clockOf chooses the map clock for the new bucket id: the counter that is raised after each change of the bucket's
// map. It returns the number of the clock. For an existing bucket the result is only a guess, since the number of
// clocks may have changed.
func (n *network) clockOf(id store.BucketID) uint32 {
	return uint32(xxhash.Sum64(id[:]) % uint64(n.client.opts.Clocks))
}

// acquire returns the newest root of the bucket id, as an epoch, and a proof that the root is the newest. The proof is
// a recent read of the bucket's map clock, a counter that is raised after each change of the map. A lease counts from
// the time of this read.
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

// prove returns the newest root of the bucket id as an epoch, and the proof that it is the newest. It reads the map
// clock (a counter of changes of maps), and the root if necessary. It is the slow path of acquire, for a cached root
// that the last read of the clock does not prove.
func (n *network) prove(ctx context.Context, id store.BucketID) (*epoch, *proof, error) {
	b := n.client.epochs.begin(id)
	defer n.client.epochs.end(b)
	touch(&b.used)
	const tries = 5 // more than one, for a wrong guess of the clock, and for swaps meanwhile
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

// renew tries to extend the use of the epoch e, which is a cached version of a bucket's root. p is a new read of the
// map clock. If the clock was not raised for the bucket since an earlier read proved e, then e is still the newest
// version. In this case e gets the new proof, and the result is true.
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

// refresh reads the root of the bucket id after the poll p, a read of the map clock (a counter of changes of maps).
// Concurrent callers share a single read of the root. It may rest on the poll of another caller, made earlier. So the
// caller must check afterwards whether a poll proves that the root is the newest.
func (n *network) refresh(ctx context.Context, id store.BucketID, p *poll) error {
	_, err := n.roots.do(ctx, string(id[:]), fmt.Sprintf("read the root of bucket %s", id), func() (any, error) {
		ctx, cancel := context.WithTimeout(n.ctx, n.lease)
		defer cancel()
		return nil, n.read(ctx, id, p)
	})
	return err
}

// read reads the root of the bucket id in this data centre (Local), and gives the root to later leases. The parameter p
// is a poll, a read of the map clock, that was made before. It proves that the root is the newest, if no newer root is
// known.
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
