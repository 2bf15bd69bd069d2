package mapclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Store is the part of a store that a Client needs. It has the nodes of maps, and small records that change by
// compare-and-swap (registers). The registers hold the roots of maps, the map clocks, and the settings on which
// all processes agree.
type Store interface {
	store.Registers
	store.Nodes
}

// Options are the options of a Client. A zero field has the default.
type Options struct {
	// CacheBytes bounds the memory, in bytes, of the decoded segments and index nodes of all buckets together;
	// 0 means 64 MiB. Decoded roots have a bound of their own (RootBytes): half of CacheBytes, at least 1 MiB.
	CacheBytes int64
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Lease is the length of the leases of the network form. 0 means 3 s; for Join, 0 means the lease on which
	// the processes of the store have agreed. All clients and movers of a store must have the same Lease.
	Lease time.Duration
	// Clocks is the number of map clocks over which a client of the network form spreads the buckets that the
	// client creates; 0 means 16. The map clocks must exist (InitClocks).
	Clocks int
	// MaxClockSkew is commontime.Options.Limit in the network form. For Join, 0 means the limit on which the
	// processes of the store have agreed. All clients and movers of a store must have the same MaxClockSkew.
	MaxClockSkew time.Duration
	// Monotonic is the second clock of the network form: the time since some moment, by a clock that is never
	// set. nil means the monotonic clock of the machine.
	Monotonic func() time.Duration
	// NewID draws the ids of nodes and partitions, and the tokens of swaps; nil means uuid.New. Tests set it,
	// to be repeatable.
	NewID func() uuid.UUID
	// Jitter draws a number from 0 to 1 for the pauses of polls and retries; nil means rand.Float64. Tests set
	// it, to be repeatable.
	Jitter func() float64
}

// RootBytes returns how much memory, in bytes, a Client may use for decoded roots of maps, given its
// Options.CacheBytes. Buckets with valid leases are never evicted, so the memory may be larger.
func RootBytes(cacheBytes int64) int64 { return max(cacheBytes/2, 1<<20) }

// ErrClosing and ErrDeleted are the reasons why a bucket gives no lease: its deletion has begun, or is over.
var (
	ErrClosing = errors.New("the bucket is being deleted")
	ErrDeleted = errors.New("the bucket is deleted")
)

// ErrStale means that the map of a lease is old, and that nodes of this map have been collected. The caller
// should take a new lease and repeat the read.
var ErrStale = errors.New("the map has moved on: take a new lease")

// ErrNoClock means that the record of a map clock is missing. Whether the bucket exists remains unknown.
var ErrNoClock = errors.New("its row is missing")

// Client gives leases on the maps of buckets, finds ranges in the maps, and swaps roots. It has one of two
// forms.
//
// Embedded (NewEmbedded): all users of the store share one Client, and every swap goes through this Client.
// Leases are counted per epoch. There are no timers, polls or map clocks.
//
// Network (NewNetwork): any number of processes share the store, each with one Client. A lease ends after a
// fixed time. Clients learn of swaps by polling map clocks, which are counters in the store.
//
// All methods are safe for concurrent use. Errors carry a store.Kind.
type Client struct {
	store  Store
	opts   Options
	nodes  nodes
	epochs epochs
	net    *network // nil in the embedded form
	schema Schema   // version of the store's schema, as this process found it at its start
}

// NewEmbedded returns a Client for a store that only this process uses. A store must have only one such Client.
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

// LeavesNotes reports whether a mover leaves a note in each range that it empties: a row that says where the
// range's rows are now. In an Unversioned store movers leave no notes. There, programs may run that do not know
// notes. If such a program took over a move, it would copy the note as an ordinary row. The copy would hide the
// entry with the same key.
func (c *Client) LeavesNotes() bool { return c.schema != Unversioned }

// StampsCompletions reports which version an object that is uploaded in parts gets. With true, it is the
// timestamp of the completion of the upload; with false, that of its begin. The schema must have version 2 or
// later. Older programs would take the blobs of an object with the later timestamp for blobs without an object,
// and delete them.
func (c *Client) StampsCompletions() bool { return c.schema >= 2 }

// StampsEnds reports which version an object gets whose body is one blob. With true, it is the timestamp of the
// end of the body; with false, that of its begin. The schema must have version 3 or later. Before an older
// program deletes a blob without a row, it marks as deleted only the version that the blob's name tells. So it
// could delete the blob of a put whose row arrives late, under another version. In the embedded form no row
// arrives late, so the result is true, and the format of a data directory is the same.
func (c *Client) StampsEnds() bool { return c.schema >= 3 }

// Lease is the right to act on the map of a bucket at one epoch. An operation holds its lease for one page of a
// listing, or for one write. It keeps the lease until its calls of the store have really ended.
type Lease struct {
	c        *Client
	epoch    *epoch
	proof    *proof // the poll from which the lease counts; network form only
	released atomic.Bool
}

// Root returns the root of the map for which the lease was given. The root is read-only.
func (l *Lease) Root() *partmap.Root { return l.epoch.root }

// Valid reports whether the lease may still be used. A lease is valid until Release. If several processes share
// the store (the network form), it also ends after the length of a lease.
func (l *Lease) Valid() bool {
	return !l.released.Load() && (l.c.net == nil || l.c.net.alive(l.proof))
}

// Timed reports whether the lease ends by itself after some time, as it does if several processes share the
// store (the network form). A mover waits for this time, and not for the Release.
func (l *Lease) Timed() bool { return l.c.net != nil }

// Release ends the lease. A second call does nothing.
func (l *Lease) Release() {
	if !l.released.Swap(true) && l.c.net == nil {
		l.c.epochs.release(l.epoch)
	}
}

// Acquire returns a lease on the newest map of a bucket. It fails with NotFound (there is no root), ErrClosing
// (Unavailable), ErrDeleted (NotFound), or the error of reading the root. If several processes share the store
// (the network form), a missing root or map clock is Unavailable, with NotFound as its cause: a replica may
// have missed the write.
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

// acquireCold returns the newest epoch of a bucket, with a lease taken on it, if the root of the bucket is not
// cached. It reads the root first. Only the embedded form uses acquireCold.
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

// refusal returns the error with which a bucket refuses leases, given its root. It returns nil if the bucket is
// open, and so gives leases.
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

// Load reads the newest root of a bucket from the store (at Serial), whatever the state of the bucket. If the
// root is newer than the one that this Client knows, later calls of Acquire use it. If it is older, Load fails
// with Corrupt.
func (c *Client) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	e, err := c.load(ctx, b)
	if err != nil {
		return nil, err
	}
	return e.root, nil
}

// load reads the newest root of the bucket b from the store (at Serial), and gives it to later calls of Acquire
// unless a newer root is known. It returns the newest known root, as an epoch. Before the call, the caller must
// have called begin, which keeps b from being evicted.
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

// Look returns the root that this data centre has, in any state, or the root that the client knows if the known
// one is newer. Callers that read the roots of many buckets use Look: Load would cost a round trip to another
// data centre for each bucket.
//
// The returned root may lack swaps that were not acknowledged in every data centre yet. Of a move the root
// lacks at most the swap to the present phase, because the work of a phase begins after that acknowledgement. A
// caller that acts by such a root has to prove the root by Load, or by a swap.
//
// If this data centre lacks the root, or has a root that is closing, Look reads at Serial. So no bucket seems
// absent or about to be deleted only because a replica is late.
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

// readRoot returns the root of a bucket, read from the store at the consistency level l. If a read is torn (the
// root contradicts its record), it is repeated.
func (c *Client) readRoot(ctx context.Context, id store.BucketID, l store.Level) (*partmap.Root, error) {
	read := func() (store.Record, error) {
		rec, err := c.store.Read(ctx, store.Roots, id[:], l)
		return rec, store.Wrap(fmt.Sprintf("read the root of bucket %s", id), err)
	}
	return record.ReadAs(read, func(rec store.Record) (*partmap.Root, error) { return partmap.DecodeRoot(id, rec) })
}

// Find returns the range that contains key in the map of the lease l. It does not allocate memory if the nodes
// are cached. It fails with ErrStale if nodes of the map have been deleted as unused, and with Corrupt, naming
// the node, if the map is damaged.
func (c *Client) Find(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, false, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// FindBefore returns the range that contains the highest keys below key, for reverse listings. An empty key is
// plus infinity. It fails with ErrStale if nodes of the map have been deleted as unused, and with Corrupt if
// the map is damaged.
func (c *Client) FindBefore(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, true, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// explain returns the error for the user of a lookup in the map of root r, given the error err of reading a
// node. If err is NotFound, the node is missing. The result is then ErrStale if the bucket has a newer root,
// and Corrupt if r is still the newest root. Any other err is returned as it is.
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

// Ranges iterates in order over the ranges of the map of root r, beginning with the range that contains the key
// `from`. An error ends the iteration. It is ErrStale if nodes of the map have been deleted as unused, and
// Corrupt if the map is damaged.
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

// RangeBefore returns the range that ends at cut, in the map of a root. If cut is the lowest key of all, no
// range ends there, and found is false. RangeBefore fails with ErrStale if nodes of the map have been deleted
// as unused, and with Corrupt if the map is damaged.
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

// RangesSince iterates in order over the ranges of a map that changed at the given epoch or later. Some ranges
// that did not change come as well. It reads nodes from the store, not from the cache.
func (c *Client) RangesSince(ctx context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error] {
	return partmap.RangesSince(r, c.Reader(ctx, r.Bucket), epoch)
}

// Usage is the approximate memory of a Client's caches, with counters of their hits and misses.
type Usage struct {
	Nodes, NodeBytes     int64 // number and bytes of decoded segments and index nodes
	Buckets, BucketBytes int64 // number and bytes of decoded roots with their leases
	NodeCache, RootCache CacheCounts
}

// CacheCounts are the counters of one cache, since its start. A use of a cached value counts as a hit, even if
// the store has a newer value.
type CacheCounts struct{ Hits, Misses, Evictions int64 }

// Usage returns the present memory of the client, and the counters of its caches.
func (c *Client) Usage() (u Usage) {
	u.Nodes, u.NodeBytes = c.nodes.cache.usage()
	u.Buckets, u.BucketBytes = c.epochs.buckets.usage()
	u.NodeCache, u.RootCache = c.nodes.cache.counts(), c.epochs.buckets.counts()
	return u
}

// CacheBytes returns Options.CacheBytes, or its default.
func (c *Client) CacheBytes() int64 { return c.opts.CacheBytes }

// Edit returns an empty Edit, with which the caller changes the map of root r. The Edit has fresh random ids
// and the present time. It reads nodes from the store, not from the cache.
func (c *Client) Edit(ctx context.Context, r *partmap.Root) *partmap.Edit {
	return partmap.NewEdit(r, c.Stamp(), c.Reader(ctx, r.Bucket))
}

// Reader returns a function that reads the nodes of a bucket's map from the store, not from the cache. The
// functions of package partmap take it.
func (c *Client) Reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) { return c.store.Node(ctx, id, n) }
}

// Stamp returns what every change of a map needs: a fresh random token for the new root, the present time, and
// a function that draws fresh node ids.
func (c *Client) Stamp() partmap.Stamp {
	return partmap.Stamp{
		Token:   store.Token(c.opts.NewID()),
		Now:     c.opts.Now(),
		NewNode: func() store.NodeID { return store.NodeID(c.opts.NewID()) },
	}
}

// Create writes and returns the first root of a bucket. The bucket id must be new. The map has one range below
// the first cut, and one range from each cut on, each with a fresh partition. The cuts must ascend. Create
// fails with Conflict if the bucket id has a root already.
func (c *Client) Create(ctx context.Context, id store.BucketID, cuts [][]byte) (*partmap.Root, error) {
	return c.CreateWith(ctx, id, nil, cuts)
}

// CreateWith writes and returns the first root of a bucket that has settings (partmap.Root.Settings). The
// settings aside, it acts like Create.
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

// Swap applies a change: it writes the nodes of the change, and then swaps the root. If Swap returns nil, the
// change is applied and published: every later Acquire gets its root, or a later one. After Conflict the change
// is not applied and never will be. After any other error the change may have been applied, or may still be
// applied later: see Load.
//
// In the network form Swap then bumps a map clock, from which other processes learn of the change. If the bump
// fails, Swap still returns nil, and Wait repeats the bump. Without a Wait, other processes may use the old map
// until the next change of the bucket.
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

// Wait returns once no lease on an older map of the bucket than that of its present epoch is valid. It first
// reads the present epoch from the store. So a mover need not know whether its own swap, or that of a mover
// before it, was applied. Wait fails with Timeout if ctx ends.
//
// If several processes share the store (the network form), Wait lasts for the length of a lease and a margin,
// on both clocks of the machine. The time counts from the moment at which the map clock, the counter that
// clients poll, was raised after the swap. If this client has not raised it since the swap, Wait raises it.
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
