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

// Store is the interface of a store that a Client needs. It has the nodes of maps, and small records that change by
// compare-and-swap (registers). The registers hold the roots of maps, the map clocks (counters that are raised after
// changes of maps), and the settings on which all processes agree.
type Store interface {
	store.Registers
	store.Nodes
}

// Options are the options of a Client, such as the size of its cache. A field that is zero has its default.
type Options struct {
	// CacheBytes bounds the memory, in bytes, of the decoded nodes of the maps of all buckets together. 0 means 64 MiB.
	// Decoded roots have a bound of their own (RootBytes): half of CacheBytes, at least 1 MiB.
	CacheBytes int64
	// Now returns the time of the wall clock. A nil Now means time.Now.
	Now func() time.Time
	// Lease is how long a process may use its copy of a bucket's map, if several processes share the store. 0 means 3
	// s. For Join, 0 means the lease on which the processes of the store have agreed. All clients and movers of a store
	// must have the same Lease.
	Lease time.Duration
	// Clocks is the number of map clocks over which the client spreads the buckets that it creates, if several
	// processes share the store. Map clocks are counters, made by InitClocks, by which processes learn of changed maps.
	// 0 means 16.
	Clocks int
	// MaxClockSkew is the greatest difference between the clocks of the servers (commontime.Options.Limit), if several
	// processes share the store. For Join, 0 means the limit on which the processes of the store have agreed. All
	// clients and movers of a store must have the same MaxClockSkew.
	MaxClockSkew time.Duration
	// Monotonic returns the time since some fixed moment, by a clock that is never set. It is the second clock for
	// leases, if several processes share the store. A nil Monotonic means the monotonic clock of the machine.
	Monotonic func() time.Duration
	// NewID draws the ids of nodes and partitions, and the tokens of swaps. A nil NewID means uuid.New. Tests set
	// NewID, to be repeatable.
	NewID func() uuid.UUID
	// Jitter draws a number from 0 to 1 for the pauses of polls and retries. A nil Jitter means rand.Float64. Tests set
	// Jitter, to be repeatable.
	Jitter func() float64
}

// RootBytes returns how much memory, in bytes, a Client may use for decoded roots of maps, if its Options.CacheBytes is
// cacheBytes. A root with a valid lease is never evicted, so the memory may be larger.
func RootBytes(cacheBytes int64) int64 { return max(cacheBytes/2, 1<<20) }

// CachedNames returns the number of bucket names that a client of buckets caches. It is one name for each 2 KiB of
// cacheBytes, but at least 1,000. cacheBytes is the limit of the cache of maps, in bytes.
func CachedNames(cacheBytes int64) int {
	// A name takes some 200 bytes. The root of a small bucket's map takes some 1,000 bytes, of half of the cache.
	const bytesPerName, leastNames = 2 << 10, 1_000
	return int(max(cacheBytes/bytesPerName, leastNames))
}

// ErrClosing and ErrDeleted are the reasons why a client gets no lease on the map of a bucket: the deletion of the
// bucket has begun, or is over.
var (
	ErrClosing = errors.New("the bucket is being deleted")
	ErrDeleted = errors.New("the bucket is deleted")
)

// ErrStale means that the map for which a lease was given is too old to be read: some of its nodes have been deleted.
// The caller should take a new lease and repeat the read.
var ErrStale = errors.New("the map has moved on: take a new lease")

// ErrNoClock means that the record of a map clock is missing from the store. A map clock is a counter by which
// processes learn of changed maps. Whether the bucket exists remains unknown.
var ErrNoClock = errors.New("its row is missing")

// Client gives leases on the maps of buckets (the right to use a map for a while), finds ranges of keys in the maps,
// and swaps the roots of maps. It has one of two forms.
//
// Embedded (NewEmbedded): all users of the store share a single Client, and every swap goes through this Client. Leases
// are counted per version of a map. There are no timers, polls or map clocks.
//
// Network (NewNetwork): any number of processes share the store, each with a Client of its own. A lease ends after a
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

// NewEmbedded returns a Client for a store that only this process uses. A store must have only one such Client. For a
// store that several processes share, use Join.
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

// LeavesNotes reports whether a mover leaves a note in each range that it empties: a row that says where the rows of
// the range are now. The result is false for an Unversioned store.
//
// Programs that do not know notes may run on an Unversioned store. Such a program could copy a note like an ordinary
// row, and the copy would hide the entry with the same key.
func (c *Client) LeavesNotes() bool { return c.schema != Unversioned }

// StampsCompletions reports whether an object that is uploaded in parts gets the timestamp at which its upload was
// completed. If the result is false, the object gets the timestamp at which the upload began. The result is true from
// version 2 of the store's schema on.
//
// Programs that know only older versions would delete the blobs of an object with the later timestamp.
func (c *Client) StampsCompletions() bool { return c.schema >= 2 }

// StampsEnds reports whether an object whose body is a single blob gets the timestamp at which its body ended. If the
// result is false, the object gets the timestamp at which its body began. The result is true from version 3 of the
// store's schema on, and in the embedded form.
//
// Programs that know only older versions could delete the blob of a put whose row arrives late. Before they delete a
// blob without a row, they mark as deleted only the version in the blob's name. In the embedded form no row is late.
func (c *Client) StampsEnds() bool { return c.schema >= 3 }

// Lease is the right to act on one version of the map of a bucket. An operation holds a lease for one page of a
// listing, or for one write, until its last call of the store has ended. A mover of rows changes data only once no
// lease on an older version is left.
type Lease struct {
	c        *Client
	epoch    *epoch
	proof    *proof // the read of the map clock from which the lease counts; network form only
	released atomic.Bool
}

// Root returns the root of the map for which the lease was given. The root is read-only.
func (l *Lease) Root() *partmap.Root { return l.epoch.root }

// Valid reports whether the lease may still be used. A lease is valid until Release. If several processes share the
// store, the lease also ends after a fixed time, by default 3 s.
func (l *Lease) Valid() bool {
	return !l.released.Load() && (l.c.net == nil || l.c.net.alive(l.proof))
}

// Timed reports whether the lease ends by itself after a fixed time, as it does if several processes share the store. A
// mover waits for this time, and not for the Release.
func (l *Lease) Timed() bool { return l.c.net != nil }

// Release ends the lease, the right to act on a version of a map. A second call does nothing.
func (l *Lease) Release() {
	if !l.released.Swap(true) && l.c.net == nil {
		l.c.epochs.release(l.epoch)
	}
}

// Acquire returns a lease on the newest map of the bucket id: the right to act on the map until Release. It fails with
//   - ErrClosing (Unavailable), if the deletion of the bucket has begun;
//   - ErrDeleted (NotFound), if the deletion is over;
//   - NotFound, if the bucket has no root;
//   - Unavailable with NotFound as its cause, if several processes share the store, and a replica may have missed the
//     root or the map clock;
//   - the store's error, if the root can't be read.
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

// acquireCold takes a lease on the newest root of the bucket id, and returns this root as an epoch. Acquire calls it if
// the root is not cached, so it reads the root first. It is only for a client that has the store to itself (the
// embedded form).
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

// refusal returns nil if a bucket is open and gives leases. Otherwise it returns ErrClosing or ErrDeleted, with a
// store.Kind. The parameter r is the root of the bucket's map.
func refusal(r *partmap.Root) error {
	op := fmt.Sprintf("lease on bucket %s", r.Bucket)
	switch r.State {
	case partmap.Open:
		return nil
	case partmap.Closing:
		return store.Wrap(op, store.Errorf(store.Unavailable, "%w", ErrClosing))
	}
	return store.Wrap(op, store.Errorf(store.NotFound, "%w", ErrDeleted))
}

// Load returns the newest root of the bucket id, in any state of the bucket. It reads the root from the store (at
// Serial). If the root is newer than the one that this Client knows, later calls of Acquire use it. If it is older,
// Load fails with Corrupt.
func (c *Client) Load(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	b := c.epochs.begin(id)
	defer c.epochs.end(b)
	e, err := c.load(ctx, b)
	if err != nil {
		return nil, err
	}
	return e.root, nil
}

// load reads the newest root of the bucket b from the store (at Serial). Later calls of Acquire use it, unless a newer
// root is known. The result is the newest known root, as an epoch. The caller must have called begin before, so that b
// is not evicted.
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

// Look returns the root of the bucket id, in any state, by a fast read in this data centre. If the client knows a newer
// root, it returns that one. Callers that read the roots of many buckets use Look, because Load costs a round trip to
// another data centre for each bucket.
//
// The newest changes may be missing in the root. A caller that acts on the root must first prove, by Load or by a swap,
// that the root is the newest.
func (c *Client) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	// If this data centre has no root, or has a root that is closing, Look reads the newest root like Load.
	// The root found at Local may lack swaps that were not acknowledged in every data centre yet. Of a move it lacks at
	// most the swap to the present phase, because the work of a phase begins after that acknowledgement. The read at
	// Serial is for buckets that seem absent or about to be deleted only because a replica is late.
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

// readRoot returns the root of the map of the bucket id, read from the store at the consistency level l. If a read is
// torn (the root contradicts its record), the read is repeated.
func (c *Client) readRoot(ctx context.Context, id store.BucketID, l store.Level) (*partmap.Root, error) {
	read := func() (store.Record, error) {
		rec, err := c.store.Read(ctx, store.Roots, id[:], l)
		return rec, store.Wrap(fmt.Sprintf("read the root of bucket %s", id), err)
	}
	return record.ReadAs(read, func(rec store.Record) (*partmap.Root, error) { return partmap.DecodeRoot(id, rec) })
}

// Find returns the range that contains key, and so the partition of the key. It uses the map for which the lease l was
// given. If the nodes of the map are cached, it does not allocate memory. Find fails with ErrStale if nodes of the map
// have been deleted as unused. It fails with Corrupt, naming the node, if the map is damaged.
func (c *Client) Find(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, false, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// FindBefore returns the range that contains the keys directly below key, for reverse listings. It uses the map for
// which the lease l was given. An empty key is plus infinity. It fails with ErrStale if nodes of the map have been
// deleted as unused, and with Corrupt if the map is damaged.
func (c *Client) FindBefore(ctx context.Context, l *Lease, key []byte) (r partmap.Range, err error) {
	if err = l.epoch.find(ctx, &c.nodes, key, true, &r); err != nil {
		err = c.explain(ctx, l.epoch.root, err)
	}
	return r, err
}

// explain returns the error to report after err, the error of reading a node of the map with the root r. There are
// three cases:
//   - err is NotFound, and the bucket has a newer root: the result is ErrStale.
//   - err is NotFound, and r is still the newest root: a node is missing, and the result is Corrupt.
//   - err is another error: the result is err.
func (c *Client) explain(ctx context.Context, r *partmap.Root, err error) error {
	if store.KindOf(err) != store.NotFound {
		return err
	}
	op := fmt.Sprintf("epoch %d of bucket %s", r.Epoch, r.Bucket)
	newest, loadErr := c.Load(ctx, r.Bucket)
	switch {
	case loadErr != nil:
		return loadErr
	case newest.Epoch > r.Epoch:
		return store.Wrap(op, store.Errorf(store.Unavailable, "%w", ErrStale))
	}
	return store.Wrap(op, store.Errorf(store.Corrupt, "the root names a node that is not there: %v", err))
}

// Ranges iterates in order over the ranges of the map of root r. The first of them contains the key `from`. An error
// ends the iteration. The error is ErrStale if nodes of the map have been deleted as unused, and Corrupt if the map is
// damaged.
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

// RangeBefore returns the range that ends at the key cut, in the map of root r. The result found is false if cut is the
// lowest key of all, at which no range ends. RangeBefore fails with ErrStale if nodes of the map have been deleted as
// unused, and with Corrupt if the map is damaged.
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

// RangesSince iterates in order over the ranges of the map of root r that changed at the given epoch or later. Ranges
// that did not change may come as well. RangesSince reads nodes from the store, not from the cache.
func (c *Client) RangesSince(ctx context.Context, r *partmap.Root, epoch uint64) iter.Seq2[partmap.Range, error] {
	return partmap.RangesSince(r, c.Reader(ctx, r.Bucket), epoch)
}

// Usage is the approximate memory of the caches of a Client, and the numbers of their hits and misses.
type Usage struct {
	Nodes, NodeBytes     int64 // number and bytes of decoded segments and index nodes
	Buckets, BucketBytes int64 // number and bytes of decoded roots with their leases
	NodeCache, RootCache CacheCounts
}

// CacheCounts are the numbers of hits, misses and evictions of a cache, since the client was made. A use of a cached
// value counts as a hit, even if the store has a newer value.
type CacheCounts struct{ Hits, Misses, Evictions int64 }

// Usage returns the present memory of the client's caches, and the numbers of their hits and misses.
func (c *Client) Usage() (u Usage) {
	u.Nodes, u.NodeBytes = c.nodes.cache.usage()
	u.Buckets, u.BucketBytes = c.epochs.buckets.usage()
	u.NodeCache, u.RootCache = c.nodes.cache.counts(), c.epochs.buckets.counts()
	return u
}

// CacheBytes returns the bound for the memory of decoded nodes of maps, in bytes: Options.CacheBytes, or its default of
// 64 MiB.
func (c *Client) CacheBytes() int64 { return c.opts.CacheBytes }

// Edit returns an empty Edit, with which the caller changes the map of root r. The Edit has fresh random ids and the
// present time. It reads nodes of the map from the store, not from the cache.
func (c *Client) Edit(ctx context.Context, r *partmap.Root) partmap.Edit {
	return partmap.NewEdit(r, c.Stamp(), c.Reader(ctx, r.Bucket))
}

// Reader returns a function that reads the nodes of the map of the bucket id from the store, not from the cache.
// Functions of package partmap, such as Validate, need it.
func (c *Client) Reader(ctx context.Context, id store.BucketID) partmap.Reader {
	return func(n store.NodeID) ([]byte, error) { return c.store.Node(ctx, id, n) }
}

// Stamp returns what every change of a map needs: a fresh random token for the new root, the present time, and a
// function that draws fresh node ids.
func (c *Client) Stamp() partmap.Stamp {
	return partmap.Stamp{
		Token:   store.Token(c.opts.NewID()),
		Now:     c.opts.Now(),
		NewNode: func() store.NodeID { return store.NodeID(c.opts.NewID()) },
	}
}

// Create writes and returns the first root of the bucket id, which must be new. The map has a range below the first of
// the cuts, and a range from each cut on, each with a fresh partition. The cuts are keys and must ascend. Create fails
// with Conflict if the bucket id has a root already.
func (c *Client) Create(ctx context.Context, id store.BucketID, cuts [][]byte) (*partmap.Root, error) {
	return c.CreateWith(ctx, id, nil, cuts)
}

// CreateWith writes and returns the first root of the bucket id, like Create, and gives the bucket settings (see
// partmap.Root.Settings).
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

// Swap applies a change of a bucket's map: it writes the new nodes of the change, and then swaps the root. The error
// says what came of it:
//   - nil: the change is applied and published. Every later Acquire gets the new root, or a later root.
//   - Conflict: the change is not applied and never will be.
//   - any other error: the change may have been applied, or may still be applied later (see Load).
//
// If several processes share the store, Swap then raises a map clock, the counter from which other processes learn of
// the change. If the raise fails, Swap still returns nil, and Wait repeats the raise. Without a Wait, other processes
// may use the old map until the next change of the bucket.
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

// Wait returns once no valid lease is left on an older map of the bucket than the present one. A mover of rows calls it
// between two phases of a move. Wait fails with Timeout if ctx ends.
//
// If several processes share the store (the network form), Wait lasts a little longer than a lease. The time counts
// from the moment at which the map clock, the counter that clients poll, was raised after the last swap. If this client
// has not raised the clock since then, Wait raises it.
func (c *Client) Wait(ctx context.Context, id store.BucketID) error {
	// The mover need not know whether its own swap, or that of a mover before it, was applied: the present root is
	// read from the store first.
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
