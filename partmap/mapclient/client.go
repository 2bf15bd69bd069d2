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
	"github.com/evenkeel/evenkeel/store/record"
)

// Store is what a map client needs of a store.
type Store interface {
	store.Registers
	store.Nodes
}

// Options of a Client. The zero value has the defaults.
type Options struct {
	// CacheBytes bounds the memory of decoded segments and index nodes, of all buckets
	// together, default 64 MiB. Decoded roots get half as much beside it, at least 1 MiB.
	CacheBytes int64
	// Now is the wall clock, default time.Now.
	Now func() time.Time
	// Lease is the length of leases of the network form, default 3 s; for Join that of the
	// store. All clients and movers of a store must have the same.
	Lease time.Duration
	// Clocks is the number of map clocks for buckets that a client of the network form
	// creates, default 16. They must exist (InitClocks).
	Clocks int
	// MaxClockSkew is commontime.Options.Limit of the network form; for Join by default that of
	// the store. All clients and movers of a store must have the same.
	MaxClockSkew time.Duration
	// Monotonic is a second clock of the network form, which is never set: the time since
	// some moment. Default: the monotonic clock of the machine.
	Monotonic func() time.Duration
	// NewID draws the ids of nodes and partitions and the tokens of swaps, default
	// uuid.New. It is for repeatable tests.
	NewID func() uuid.UUID
	// Jitter draws a number from 0 to 1 for polls and retries, default rand.Float64. It is
	// for repeatable tests.
	Jitter func() float64
}

// RootBytes returns the bound of the memory of decoded roots, beside a cache of so many bytes. Buckets with live leases are never evicted and
// may exceed it.
func RootBytes(cacheBytes int64) int64 { return max(cacheBytes/2, 1<<20) }

// ErrClosing and ErrDeleted are the reasons why a bucket gives no lease.
var (
	ErrClosing = errors.New("the bucket is being deleted")
	ErrDeleted = errors.New("the bucket is deleted")
)

// ErrStale means that nodes of a lease's epoch have been collected: take a new lease and
// repeat the read.
var ErrStale = errors.New("the map has moved on: take a new lease")

// ErrNoClock means that the record of a map clock is missing. It says nothing about the
// bucket.
var ErrNoClock = errors.New("its row is missing")

// Client is a map client, in one of two forms.
//
// Embedded (NewEmbedded): all users of the store share this one client, every swap goes
// through it, and leases are counted per epoch. There are no timers, polls or map clocks.
//
// Network (NewNetwork): any number of processes share the store, each with one client.
// Leases end by time; clients learn of swaps by polling map clocks.
//
// All methods are safe for concurrent use. Errors carry a store.Kind.
type Client struct {
	store  Store
	opts   Options
	nodes  nodes
	epochs epochs
	net    *network // nil in the embedded form
	schema Schema   // of the store, as this process found it at its start
}

// NewEmbedded makes a client of the embedded form. There must be only one per store.
func NewEmbedded(s Store, o Options) *Client {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
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
		epochs: epochs{buckets: newLRU[store.BucketID, *bucket](RootBytes(o.CacheBytes))},
		schema: NewestSchema,
	}
}

// LeavesNotes reports whether movers leave notes in the ranges that they empty. A program of before versions of the
// schema that takes over such a move would copy the note as a row, which hides the entry of its key; so in a store that
// is Unversioned there are none.
func (c *Client) LeavesNotes() bool { return c.schema != Unversioned }

// Lease is the right to act on one epoch of a bucket's map. It is held for one page or write,
// until its store calls have really ended.
type Lease struct {
	c        *Client
	epoch    *epoch
	proof    *proof // of the network form
	released atomic.Bool
}

// Root returns the leased map, read-only.
func (l *Lease) Root() *partmap.Root { return l.epoch.root }

// Valid reports whether the lease is valid: until Release, and in the network form until its
// time is over.
func (l *Lease) Valid() bool {
	return !l.released.Load() && (l.c.net == nil || l.c.net.alive(l.proof))
}

// Timed reports whether the lease ends by time (the network form), so that no mover waits for
// its Release.
func (l *Lease) Timed() bool { return l.c.net != nil }

// Release ends the lease. A second call does nothing.
func (l *Lease) Release() {
	if !l.released.Swap(true) && l.c.net == nil {
		l.c.epochs.release(l.epoch)
	}
}

// Acquire takes a lease on the newest root of a bucket. It fails with NotFound (no such
// root), ErrClosing (Unavailable), ErrDeleted (NotFound), or the error of reading the root.
// In the network form a missing root is Unavailable with NotFound as its cause, and so is a
// map clock that can't be read.
func (c *Client) Acquire(ctx context.Context, id store.BucketID) (*Lease, error) {
	if c.net != nil {
		e, p, err := c.net.acquire(ctx, id)
		if err != nil {
			return nil, err
		}
		return &Lease{c: c, epoch: e, proof: p}, nil
	}
	var e *epoch
	var err error
	if b, ok := c.epochs.buckets.peek(id); ok {
		e, err = c.epochs.lease(b)
	}
	c.epochs.buckets.count(e != nil || err != nil)
	if e == nil && err == nil {
		e, err = c.acquireCold(ctx, id)
	}
	if err != nil {
		return nil, err
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

// refusal returns why a root gives no lease; nil for an open bucket.
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

// Load reads the root at Serial, in any state, and publishes it to later Acquires if it is
// newer than the known one.
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
		return nil, store.Errorf(
			store.Corrupt, "the root of bucket %s went back from epoch %d to %d, or changed without a swap", b.id,
			known.root.Epoch, r.Epoch,
		)
	}
	return c.epochs.publish(b, r), nil
}

// Look returns the root that this data centre has, in any state, or the root that the client knows if that is newer. It
// is for looks at many buckets, where Load would cost a round trip to another data centre for each bucket. The returned
// root may lack swaps that were not acknowledged in every data centre yet. Of a move it lacks at most the swap to the
// present phase, as the work of a phase begins after that acknowledgement. Whoever acts by what is in the root has to
// prove the root by Load, or by a swap.
//
// A root that this data centre lacks, and a root that is closing, are read at Serial: so no bucket seems absent or
// about to be deleted only because a replica is late.
func (c *Client) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	r, err := c.readRoot(ctx, id, store.Local)
	if store.KindOf(err) == store.NotFound {
		return c.Load(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	if b, cached := c.epochs.buckets.peek(id); cached {
		if known := b.newest.Load(); known != nil && known.root.Epoch >= r.Epoch {
			if known.root.Epoch == r.Epoch && known.root.Token != r.Token {
				return nil, store.Errorf(
					store.Corrupt, "the root of bucket %s changed without a swap at epoch %d", id, r.Epoch,
				)
			}
			r = known.root
		}
	}
	if r.State == partmap.Closing {
		return c.Load(ctx, id)
	}
	return r, nil
}

// readRoot reads the newest root.
func (c *Client) readRoot(ctx context.Context, id store.BucketID, l store.Level) (*partmap.Root, error) {
	read := func() (store.Record, error) {
		rec, err := c.store.Read(ctx, store.Roots, id[:], l)
		return rec, store.Wrap(fmt.Sprintf("read the root of bucket %s", id), err)
	}
	return record.ReadAs(read, func(rec store.Record) (*partmap.Root, error) { return partmap.DecodeRoot(id, rec) })
}

// Find returns the range that contains key. It does not allocate if the nodes are cached. It
// fails with ErrStale where the map of the lease has been collected, and with Corrupt, naming
// the node, where it is damaged.
func (c *Client) Find(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, false, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// FindBefore is Find for the highest keys below key, for reverse listings; the empty key is
// plus infinity.
func (c *Client) FindBefore(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, true, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// explain decides whether a missing node means a stale map or damage. It returns any other
// error as it is.
func (c *Client) explain(ctx context.Context, r *partmap.Root, err error) error {
	if store.KindOf(err) != store.NotFound {
		return err
	}
	newest, loadErr := c.Load(ctx, r.Bucket)
	switch {
	case loadErr != nil:
		return loadErr
	case newest.Epoch > r.Epoch:
		return &store.Error{
			Kind: store.Unavailable, Op: fmt.Sprintf("epoch %d of bucket %s", r.Epoch, r.Bucket), Err: ErrStale,
		}
	}
	return &store.Error{
		Kind: store.Corrupt, Op: fmt.Sprintf("epoch %d of bucket %s", r.Epoch, r.Bucket),
		Err: fmt.Errorf("the root names a node that is not there: %v", err),
	}
}

// Ranges iterates over the ranges of a root in order, starting with the one that contains
// from. It ends with the first error, which is like one of Find.
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

// RangeBefore returns the range of a root that ends at a cut; false if that is the lowest
// key. It fails like Find.
func (c *Client) RangeBefore(
	ctx context.Context, r *partmap.Root, cut []byte,
) (before partmap.Range, found bool, err error) {
	if len(cut) == 0 {
		return before, false, nil
	}
	if err = newView(r).find(ctx, &c.nodes, cut, true, &before); err != nil {
		return before, false, c.explain(ctx, r, err)
	}
	return before, true, nil
}

// RangesSince is partmap.RangesSince.
func (c *Client) RangesSince(ctx context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error] {
	return partmap.RangesSince(r, c.Reader(ctx, r.Bucket), epoch)
}

// Usage is the approximate memory of a client, with counters that show how well its caches are used.
type Usage struct {
	Nodes, NodeBytes     int64 // decoded segments and index nodes
	Buckets, BucketBytes int64 // decoded roots with their leases
	NodeCache, RootCache CacheCounts
}

// CacheCounts are the counters of a cache. A hit may return something older than what the store has: the counters do
// not show that.
type CacheCounts struct{ Hits, Misses, Evictions int64 }

// Usage returns the present memory of the client.
func (c *Client) Usage() (u Usage) {
	u.Nodes, u.NodeBytes = c.nodes.cache.usage()
	u.Buckets, u.BucketBytes = c.epochs.buckets.usage()
	u.NodeCache, u.RootCache = c.nodes.cache.counts(), c.epochs.buckets.counts()
	return u
}

// CacheBytes returns Options.CacheBytes, or its default.
func (c *Client) CacheBytes() int64 { return c.opts.CacheBytes }

// Edit starts a change of a root, with a fresh stamp. It reads nodes from the store.
func (c *Client) Edit(ctx context.Context, r *partmap.Root) *partmap.Edit {
	return partmap.NewEdit(r, c.Stamp(), c.Reader(ctx, r.Bucket))
}

// Reader returns a reader of a bucket's nodes, for functions of partmap.
func (c *Client) Reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) { return c.store.Node(ctx, id, n) }
}

// Stamp returns the stamp of a change: a fresh token, the time, fresh node ids.
func (c *Client) Stamp() partmap.Stamp {
	return partmap.Stamp{
		Token:   store.Token(c.opts.NewID()),
		Now:     c.opts.Now(),
		NewNode: func() store.NodeID { return store.NodeID(c.opts.NewID()) },
	}
}

// Create writes the first root of a fresh bucket id, with a fresh partition for each range:
// one below the first cut, and one from each cut on. The cuts must ascend. It fails with
// Conflict if the bucket id has a root.
func (c *Client) Create(ctx context.Context, id store.BucketID, cuts [][]byte) (*partmap.Root, error) {
	return c.CreateWith(ctx, id, nil, cuts)
}

// CreateWith is Create of a bucket that has settings.
func (c *Client) CreateWith(
	ctx context.Context, id store.BucketID, settings []byte, cuts [][]byte,
) (*partmap.Root, error) {
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
	change.Next.Settings = settings
	if err := c.Swap(ctx, change); err != nil {
		return nil, err
	}
	return change.Next, nil
}

// Swap writes the nodes of a change and then swaps its root. If it returns nil the change is
// applied and published: every later Acquire gets it or a later one. After Conflict it is not
// applied and never will be. After any other error it may have been applied, or may be later:
// see Load.
//
// In the network form Swap bumps a map clock, from which other processes learn of the change.
// If that fails Wait repeats it; without a Wait they may use the old map until the next
// change of the bucket.
func (c *Client) Swap(ctx context.Context, change partmap.Change) error {
	id := change.Next.Bucket
	rec, err := partmap.EncodeRoot(change.Next)
	if err != nil {
		return err
	}
	// Publish the decoded record: it shares no memory with the caller, and a root that
	// can't be decoded is never written.
	next, err := partmap.DecodeRoot(id, rec)
	if err != nil {
		return err
	}
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	if err := c.nodes.write(ctx, id, change.Nodes); err != nil {
		return err
	}
	if c.net != nil {
		err = c.net.swapRoot(ctx, id, change.Old, rec)
	} else {
		err = c.store.Swap(ctx, store.Roots, id[:], change.Old, rec)
	}
	if err != nil {
		return store.Wrap(fmt.Sprintf("swap the root of bucket %s to epoch %d", id, next.Epoch), err)
	}
	c.epochs.publish(b, next)
	if c.net != nil && change.Old != (store.Version{}) { // a new bucket has no older map
		ctx, cancel := context.WithTimeout(ctx, c.net.lease)
		defer cancel()
		_, _, _ = c.net.announce(ctx, id) // Wait repeats it
	}
	return nil
}

// Wait returns when no lease older than the bucket's present epoch is valid. It reads the
// present epoch at Serial first and publishes it; so a mover need not know the outcome of its
// swap, or of that of a mover before it. It fails with Timeout if ctx ends.
//
// In the network form it waits for the length of a lease and a margin, on both clocks, since
// the acknowledgement of a bump that was made after the swap was acknowledged. It makes that
// bump itself if this client has not.
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
