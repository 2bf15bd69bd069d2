package mapclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Store is what a map client needs of a store.
type Store interface {
	store.Registers
	store.Nodes
}

// Options of a client; the zero value is good.
type Options struct {
	// CacheBytes bounds the decoded segments and index nodes in memory, of all
	// buckets together; 64 MiB if zero.
	CacheBytes int64
	// RootBytes bounds the decoded roots in memory; 32 MiB if zero. A bucket with
	// live leases is never forgotten, so leases may take it above.
	RootBytes int64
	// Now stamps roots and entries; time.Now if nil.
	Now func() time.Time
	// Lease is how long a client of the network form may act on a map without
	// asking again: 3 s if zero. All clients and movers of a store need the same.
	Lease time.Duration
	// Clocks is the number of map clocks among which NewNetwork chooses for the
	// buckets that it creates, 16 if zero; they have to exist (InitClocks).
	Clocks int
	// MaxClockSkew is commontime.Options.Limit of the network form. All clients and
	// movers of a store need the same.
	MaxClockSkew time.Duration
	// Monotonic is the network form's other clock, which no step turns, as the
	// time since some moment; that of the machine if nil.
	Monotonic func() time.Duration
	// NewID draws the ids of nodes and partitions and the tokens of swaps;
	// uuid.New if nil. Tests that have to be repeatable give their own.
	NewID func() uuid.UUID
	// Jitter draws from 0 to 1 when the network form polls and tries again;
	// rand.Float64 if nil. For tests, like NewID.
	Jitter func() float64
}

// ErrClosing and ErrDeleted say why a bucket gives no lease.
var (
	ErrClosing = errors.New("the bucket is being deleted")
	ErrDeleted = errors.New("the bucket is deleted")
)

// ErrStale says that a lease's epoch is no longer whole in the store: take a new
// lease and do the read again.
var ErrStale = errors.New("the map has moved on: take a new lease")

// ErrNoClock says that the row of a map clock is missing. It tells nothing of the
// bucket that was asked for.
var ErrNoClock = errors.New("its row is missing")

// Client is a map client, in one of two forms.
//
// Embedded (NewEmbedded): clients and movers share the process, every swap goes
// through this one client, and a lease is a reference count per epoch. There are
// no timers, no polling and no map clocks.
//
// Network (NewNetwork): any number of processes share the store, each with one
// client. A lease holds for a time; clients learn of swaps by polling map clocks.
//
// All methods are safe for concurrent use. Errors carry a store.Kind.
type Client struct {
	store  Store
	opts   Options
	nodes  nodes
	epochs epochs
	net    *network // nil in the embedded form
}

// NewEmbedded makes a client. There must be only one per store.
func NewEmbedded(s Store, o Options) *Client {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.RootBytes <= 0 {
		o.RootBytes = 32 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.New
	}
	return &Client{
		store:  s,
		opts:   o,
		nodes:  nodes{store: s, cache: newLRU[store.NodeID, *slot](o.CacheBytes)},
		epochs: epochs{buckets: newLRU[store.BucketID, *bucket](o.RootBytes)},
	}
}

// Lease is the right to act on one epoch of a bucket's map. It is held for one
// page or write, and until its store calls have really ended.
type Lease struct {
	c        *Client
	epoch    *epoch
	proof    *poll // of the network form
	released atomic.Bool
}

// Root is the leased map, read-only.
func (l *Lease) Root() *partmap.Root { return l.epoch.root }

// Valid reports whether the lease may still be acted on. In the embedded form it
// may until Release, in the network form until its time is over, if that is
// before.
func (l *Lease) Valid() bool {
	return !l.released.Load() && (l.c.net == nil || l.c.net.alive(l.proof))
}

// Timed reports whether the lease ends by time, so that nobody waits for its
// Release (the network form).
func (l *Lease) Timed() bool { return l.c.net != nil }

// Release ends the lease. A second call does nothing.
func (l *Lease) Release() {
	if !l.released.Swap(true) && l.c.net == nil {
		l.c.epochs.release(l.epoch)
	}
}

// Acquire takes a lease on the newest root of a bucket. It fails with NotFound
// (no such root), with ErrClosing (Unavailable) or ErrDeleted (NotFound), or with
// what reading the root says. In the network form a missing root is Unavailable,
// with NotFound as its cause, and so is a map clock that can't be read.
func (c *Client) Acquire(ctx context.Context, id store.BucketID) (*Lease, error) {
	if c.net != nil {
		e, p, err := c.net.acquire(ctx, id)
		if err != nil {
			return nil, err
		}
		return &Lease{c: c, epoch: e, proof: p}, nil
	}
	e, err := c.epochs.acquire(id)
	if err != nil {
		return nil, err
	}
	if e == nil {
		if e, err = c.acquireCold(ctx, id); err != nil {
			return nil, err
		}
	}
	return &Lease{c: c, epoch: e}, nil
}

func (c *Client) acquireCold(ctx context.Context, id store.BucketID) (*epoch, error) {
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	for {
		e, err := c.epochs.lease(b)
		if e != nil || err != nil {
			return e, err
		}
		if _, err := c.load(ctx, b); err != nil {
			return nil, err
		}
	}
}

// refusal says why a root in this state gives no lease.
func refusal(r *partmap.Root) error {
	op := fmt.Sprintf("lease on bucket %s", r.Bucket)
	switch r.State {
	case partmap.Open:
		return nil
	case partmap.Closing:
		return &store.Error{Kind: store.Unavailable, Op: op, Err: ErrClosing}
	}
	return &store.Error{Kind: store.NotFound, Op: op, Err: ErrDeleted}
}

// Load reads the root at Serial in whatever state it is, decoded and checked,
// and publishes it to all later Acquires if it is news.
func (c *Client) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	e, err := c.load(ctx, b)
	if err != nil {
		return nil, err
	}
	return e.root, nil
}

func (c *Client) load(ctx context.Context, b *bucket) (*epoch, error) {
	known := b.newest.Load()
	r, err := c.readRoot(ctx, b.id, store.Serial)
	if err != nil {
		return nil, err
	}
	if known != nil && (r.Epoch < known.root.Epoch || r.Epoch == known.root.Epoch && r.Token != known.root.Token) {
		return nil, store.Errorf(store.Corrupt, "the root of bucket %s went back from epoch %d to %d, or changed without a swap", b.id, known.root.Epoch, r.Epoch)
	}
	return c.epochs.publish(b, r), nil
}

// readRoot reads the newest root. A torn read, whose blob is not of the
// record's version, is repeated.
func (c *Client) readRoot(ctx context.Context, id store.BucketID, l store.Level) (*partmap.Root, error) {
	const tries = 3
	for try := 1; ; try++ {
		rec, err := c.store.Read(ctx, store.Roots, id[:], l)
		if err != nil {
			return nil, store.Wrap(fmt.Sprintf("read the root of bucket %s", id), err)
		}
		r, err := partmap.DecodeRoot(id, rec)
		if err == nil || try == tries || store.KindOf(err) != store.Unavailable {
			return r, err
		}
	}
}

// Find returns the range that contains key. It does not allocate where the nodes
// on its way are in memory. It fails with ErrStale where the lease's map has been
// collected, and with Corrupt, naming the node, where it is damaged.
func (c *Client) Find(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, false, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// FindBefore returns the range that contains the highest keys below key, for
// reverse listings; the empty key stands for plus infinity. Otherwise it is like
// Find.
func (c *Client) FindBefore(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, true, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// explain finds out what a missing node means: a map that has moved on, or
// damage. Any other error is passed on.
func (c *Client) explain(ctx context.Context, r *partmap.Root, err error) error {
	if store.KindOf(err) != store.NotFound {
		return err
	}
	newest, loadErr := c.Load(ctx, r.Bucket)
	switch {
	case loadErr != nil:
		return loadErr
	case newest.Epoch > r.Epoch:
		return &store.Error{Kind: store.Unavailable, Op: fmt.Sprintf("epoch %d of bucket %s", r.Epoch, r.Bucket), Err: ErrStale}
	}
	return &store.Error{Kind: store.Corrupt, Op: fmt.Sprintf("epoch %d of bucket %s", r.Epoch, r.Bucket), Err: fmt.Errorf("the root names a node that is not there: %v", err)}
}

// Ranges iterates over the ranges of a root in order, from the one that contains
// from. It ends with the first error, of the same kinds as Find's.
func (c *Client) Ranges(ctx context.Context, r *partmap.Root, from []byte) iter.Seq2[partmap.Range, error] {
	return func(yield func(partmap.Range, error) bool) {
		v := newView(r)
		for {
			var next partmap.Range
			if err := v.find(ctx, &c.nodes, from, false, &next); err != nil {
				yield(partmap.Range{}, c.explain(ctx, r, err))
				return
			}
			if !yield(next, nil) || len(next.End) == 0 {
				return
			}
			from = next.End
		}
	}
}

// RangeBefore returns the range of a root that ends at a cut; false if that is the
// lowest key. It fails like Ranges.
func (c *Client) RangeBefore(ctx context.Context, r *partmap.Root, cut []byte) (before partmap.Range, found bool, err error) {
	if len(cut) == 0 {
		return before, false, nil
	}
	if err = newView(r).find(ctx, &c.nodes, cut, true, &before); err != nil {
		return before, false, c.explain(ctx, r, err)
	}
	return before, true, nil
}

// Usage is what a client holds in memory, about.
type Usage struct {
	Nodes, NodeBytes     int64 // decoded segments and index nodes
	Buckets, BucketBytes int64 // decoded roots with their leases
}

// Usage tells what the client holds in memory at this moment.
func (c *Client) Usage() (u Usage) {
	u.Nodes, u.NodeBytes = c.nodes.cache.usage()
	u.Buckets, u.BucketBytes = c.epochs.buckets.usage()
	return u
}

// Edit begins a change of a root: with a fresh stamp, reading the nodes that it
// needs from the store.
func (c *Client) Edit(ctx context.Context, r *partmap.Root) *partmap.Edit {
	return partmap.NewEdit(r, c.Stamp(), c.Reader(ctx, r.Bucket))
}

// Reader reads a bucket's nodes for the functions of partmap.
func (c *Client) Reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) { return c.store.Node(ctx, id, n) }
}

// Stamp makes the stamp of a change: a fresh token, the time, fresh node ids.
func (c *Client) Stamp() partmap.Stamp {
	return partmap.Stamp{
		Token:   store.Token(c.opts.NewID()),
		Now:     c.opts.Now(),
		NewNode: func() store.NodeID { return store.NodeID(c.opts.NewID()) },
	}
}

// Create writes the first root of a fresh bucket id, with a fresh partition for
// each range: one below the first cut, and one from each cut on. The cuts have to
// ascend. Conflict: the bucket id has a root already.
func (c *Client) Create(ctx context.Context, id store.BucketID, cuts [][]byte) (*partmap.Root, error) {
	s := c.Stamp()
	entries := make([]partmap.Entry, 1+len(cuts))
	for i := range entries {
		entries[i].Partition = store.PartitionID(c.opts.NewID())
		entries[i].Created = s.Now.Unix()
		if i > 0 {
			entries[i].Start = cuts[i-1]
		}
	}
	var clock uint32
	if c.net != nil {
		clock = c.net.clockOf(id)
	}
	change, err := partmap.New(id, clock, entries, s)
	if err != nil {
		return nil, err
	}
	if err := c.Swap(ctx, change); err != nil {
		return nil, err
	}
	return change.Next, nil
}

// Swap writes the nodes of a change and then swaps its root. When it returns nil
// the change is applied and published: every later Acquire gets it or a later
// one. Conflict means that it is not applied and never will be. After any other
// error it may be applied or may be later: Load tells what is.
//
// In the network form other processes learn of the change from the map clock that
// is bumped before Swap returns. Where that fails, Wait does it again; without a
// Wait they may go on with the old map until the bucket's next change.
func (c *Client) Swap(ctx context.Context, change partmap.Change) error {
	id := change.Next.Bucket
	rec, err := partmap.EncodeRoot(change.Next)
	if err != nil {
		return err
	}
	// What is published is what was written, decoded: it shares no memory with
	// the caller's, and a root that could not be read again is never swapped in.
	next, err := partmap.DecodeRoot(id, rec)
	if err != nil {
		return err
	}
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	for _, n := range change.Nodes {
		if err := c.store.WriteNode(ctx, id, n.ID, n.Blob); err != nil {
			return store.Wrap(fmt.Sprintf("write node %s of bucket %s", n.ID, id), err)
		}
	}
	if err := c.swapRoot(ctx, id, change.Old, rec); err != nil {
		return store.Wrap(fmt.Sprintf("swap the root of bucket %s to epoch %d", id, next.Epoch), err)
	}
	c.epochs.publish(b, next)
	if c.net != nil && change.Old != (store.Version{}) { // of a new bucket nobody knows an older map
		ctx, cancel := context.WithTimeout(ctx, c.net.lease)
		defer cancel()
		_, _, _ = c.net.announce(ctx, id) // Wait does it again
	}
	return nil
}

func (c *Client) swapRoot(ctx context.Context, id store.BucketID, old store.Version, next store.Record) error {
	if c.net != nil {
		return c.net.swapRoot(ctx, id, old, next)
	}
	return c.store.Swap(ctx, store.Roots, id[:], old, next)
}

// Wait returns when no lease older than the bucket's present epoch is alive. The
// present epoch is read at Serial first and published, so that a mover that does
// not know the outcome of its swap, or took over from another, may simply wait.
// An ended context ends it with Timeout.
//
// In the network form that is when the time of a lease and a margin have run on
// both clocks since a bump, made after the swap was acknowledged, was acknowledged
// itself. A client that has not made such a bump itself makes one first.
func (c *Client) Wait(ctx context.Context, id store.BucketID) error {
	if c.net != nil {
		return store.Wrap(fmt.Sprintf("wait for the leases of bucket %s", id), c.net.wait(ctx, id))
	}
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	e, err := c.load(ctx, b)
	if err != nil {
		return err
	}
	if err := c.epochs.wait(ctx, b, e.root.Epoch); err != nil {
		return store.Wrap(fmt.Sprintf("wait for the leases of bucket %s below epoch %d", id, e.root.Epoch), err)
	}
	return nil
}
