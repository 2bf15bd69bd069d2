package listing

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/timestamps"
)

// Client works on all buckets of one store. It is safe for concurrent use; a process
// needs one.
type Client struct {
	rows   store.Rows
	regs   store.Registers
	maps   *mapclient.Client
	stamps Timestamps
	names  *nameCache
	absent *absences
	o      Options
	// emptied is the progress of bucket deletions that were interrupted.
	emptied *lru.Cache[store.BucketID, emptied]
	// deletions bounds the ranges on which all deletions of the process work at a time.
	deletions *semaphore.Weighted
}

// Store is what a Client needs of a store, in addition to the map client.
type Store interface {
	store.Rows
	store.Registers
}

// Timestamps is the source of the timestamps of writes. commontime.Clock is a source that
// any number of processes share.
type Timestamps interface {
	// Next returns the first of n consecutive timestamps. They are above all that this
	// source has returned, and above all that were acknowledged (Passed), by any source,
	// before the call.
	Next(ctx context.Context, n int) (store.Timestamp, error)
	// Passed returns once a write at ts may be acknowledged: when every later Next, of any
	// source, returns more than ts.
	Passed(ctx context.Context, ts store.Timestamp) error
	// Seen reports a timestamp that a read returned. Later timestamps are above it.
	Seen(ts store.Timestamp)
}

// Options of a Client. The zero value has the defaults.
type Options struct {
	// MaxValueBytes is the longest value: default DefaultMaxValueBytes, at most store.MaxValueBytes - 1.
	MaxValueBytes int
	// MaxIdleReads bounds the reads of one page that find nothing for it, default 256.
	// After them the page ends early, with a token.
	MaxIdleReads int
	// MaxParallel bounds the partitions that one operation reads or writes at a time,
	// default 8. Where reads of several data centres take long because these are far apart, deletions
	// of buckets and of ranges look at up to 48 times as many, but not at more than 1,024; and all those of a
	// process at twice that.
	MaxParallel int
	// RowsPerRead is how many rows the store reads in the time that one more read takes:
	// a listing with a delimiter reads through fewer rows, and jumps over more. Default
	// 16 with NewEmbedded and 128 with New, about as measured on Pebble and Cassandra.
	RowsPerRead int
	// ReadAhead bounds the concurrent reads of one page of a listing with a delimiter; 1
	// disables reading ahead. Default 1 with NewEmbedded, where a read takes no longer
	// than starting another one, and twice MaxParallel with New, as such reads are small.
	ReadAhead int
	// ReadAheadAfter is how many reads a page makes in sequence before it reads ahead,
	// default 8.
	ReadAheadAfter int
	// WriteAttempts bounds the attempts of a write whose outcome is unknown, all with the
	// same timestamp, default 3.
	WriteAttempts int
	// Timestamps is the source of timestamps, one per process. The default of New is the
	// common time of the store's servers, or the wall clock where they have no clocks; of
	// NewEmbedded, a source that is kept in the store.
	Timestamps Timestamps
	// CacheBytes bounds the map cache of NewEmbedded; see mapclient.Options. The client remembers
	// CachedNames of it.
	CacheBytes int64
	// Now is the wall clock, default time.Now.
	Now func() time.Time
	// Recorder receives what was written and read, for example a counter.Recorder; nil
	// for none.
	Recorder Recorder
	// Sizes returns how many rows partitions have, and where, so that SplitPoints makes
	// even parts with few reads; nil where sizes are not known.
	Sizes counter.Source
}

// Recorder receives each acknowledged write, with its timestamp, and each read of a
// partition. Operations call it directly, from many goroutines: it must return at once
// and must not keep the key.
type Recorder interface {
	// Put records an entry with size bytes of key and value.
	Put(p store.Partition, key []byte, size int, at store.Timestamp)
	// Delete records the deletion of a key, by a marker if its range moves.
	Delete(p store.Partition, key []byte, at store.Timestamp, marker bool)
	// Read records one read of a partition: of an entry, or of a page from a key on (empty: from the beginning).
	Read(p store.Partition, key []byte)
	// Removed records that many entries of a partition were deleted at once, nobody knows how many.
	Removed(p store.Partition)
}

// noRecorder takes the place of a nil Recorder.
type noRecorder struct{}

func (noRecorder) Put(store.Partition, []byte, int, store.Timestamp)     {}
func (noRecorder) Delete(store.Partition, []byte, store.Timestamp, bool) {}
func (noRecorder) Read(store.Partition, []byte)                          {}
func (noRecorder) Removed(store.Partition)                               {}

// DefaultMaxValueBytes is the longest value where Options say nothing else.
const DefaultMaxValueBytes = 64 << 10

const (
	defaultParallel = 8
	// absentNames is for how many bucket names their absence is remembered.
	absentNames = 10_000
	// A name takes some 200 bytes, and a root of a small bucket, which gets half of CacheBytes, some 1,000.
	bytesPerName = 2 << 10
	leastNames   = 1_000
)

// CachedNames returns how many names of buckets a client remembers whose map cache has so many bytes.
func CachedNames(cacheBytes int64) int { return int(max(cacheBytes/bytesPerName, leastNames)) }

// nameCache has the ids of bucket names.
type nameCache struct {
	*lru.Cache[string, store.BucketID]
	hits, misses, evictions atomic.Int64
}

func newNameCache(n int) *nameCache {
	c, _ := lru.New[string, store.BucketID](n) // it fails only for a size that is not positive
	return &nameCache{Cache: c}
}

func (c *nameCache) get(name string) (store.BucketID, bool) {
	id, ok := c.Get(name)
	if ok {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return id, ok
}

func (c *nameCache) add(name string, id store.BucketID) {
	if c.Add(name, id) {
		c.evictions.Add(1)
	}
}

// Names returns the counters of the cache of bucket names, which show how well the cache is used.
func (c *Client) Names() mapclient.CacheCounts {
	return mapclient.CacheCounts{
		Hits: c.names.hits.Load(), Misses: c.names.misses.Load(), Evictions: c.names.evictions.Load(),
	}
}

// New makes a client over a store and its map client. It does no I/O. It fails with
// InvalidArgument where an option is out of bounds.
func New(s Store, m *mapclient.Client, o Options) (*Client, error) {
	o, err := o.withDefaults(m.Time())
	if err != nil {
		return nil, err
	}
	names := newNameCache(CachedNames(m.CacheBytes()))
	// It fails only for a size that is not positive.
	looks, _ := lru.New[store.BucketID, emptied](rememberedLooks)
	return &Client{
		rows: s, regs: s, maps: m, stamps: o.Timestamps, names: names, absent: newAbsences(o.Now),
		o: o, emptied: looks, deletions: semaphore.NewWeighted(int64(2 * farRanges(o.MaxParallel))),
	}, nil
}

// Everywhere returns a client that reads and writes rows through a quorum of each data centre, and shares
// all else with this one. Where the store has only one it is like this one.
func (c *Client) Everywhere() *Client {
	wide := *c
	wide.rows = store.Everywhere(c.rows)
	return &wide
}

// NewEmbedded makes a client for a store that only this process uses. Its map client has
// leases without clocks, and its timestamps never repeat after a restart. It fails like
// New.
func NewEmbedded(s store.Store, o Options) (*Client, error) {
	if o.Timestamps == nil {
		o.Timestamps = timestamps.Kept(s, o.Now)
	}
	if o.RowsPerRead == 0 {
		o.RowsPerRead = 16
	}
	if o.ReadAhead == 0 {
		o.ReadAhead = 1
	}
	return New(s, mapclient.NewEmbedded(s, mapclient.Options{CacheBytes: o.CacheBytes, Now: o.Now}), o)
}

// Maps returns the map client of c. In the embedded form movers must use the same one, or
// they do not see the leases of c.
func (c *Client) Maps() *mapclient.Client { return c.maps }

// Bucket returns a handle of a bucket. It does no I/O: operations on a bucket that does
// not exist fail with ErrNoSuchBucket.
func (c *Client) Bucket(name string) *Bucket { return &Bucket{c: c, name: name} }

// BucketOf returns a handle of the very bucket that Buckets has shown. Once that bucket is deleted, entries can't be read
// or changed by the handle any more (ErrNoSuchBucket), also where another bucket has the same name by then. It does no
// I/O.
func (c *Client) BucketOf(info BucketInfo) *Bucket {
	return &Bucket{c: c, name: info.Name, id: info.ID}
}

// Pinned returns a handle, as of BucketOf, of the very bucket that b means now. An operation of several steps takes one
// at its beginning: its later steps would else go to another bucket that has got the name meanwhile. It needs no I/O
// where the bucket's map is known. It fails like Settings.
func (b *Bucket) Pinned(ctx context.Context) (*Bucket, error) {
	if b.id != (store.BucketID{}) {
		return b, nil
	}
	root, err := b.present(ctx)
	if err != nil {
		return nil, wrap("find the bucket", b.name, err)
	}
	return &Bucket{c: b.c, name: b.name, id: root.Bucket}, nil
}

// With returns a handle over another client of the same store: of the same bucket if b is of BucketOf or Pinned, else
// of the same name.
func (b *Bucket) With(c *Client) *Bucket { return &Bucket{c: c, name: b.name, id: b.id} }

func (o Options) withDefaults(common *commontime.Clock) (Options, error) {
	for _, d := range []struct {
		what         string
		value        *int
		preset, most int
	}{
		{"MaxValueBytes", &o.MaxValueBytes, DefaultMaxValueBytes, store.MaxValueBytes - 1},
		{"MaxIdleReads", &o.MaxIdleReads, 256, 1 << 30},
		{"MaxParallel", &o.MaxParallel, defaultParallel, 1 << 10},
		{"RowsPerRead", &o.RowsPerRead, 128, store.MaxPageRows},
		{"ReadAhead", &o.ReadAhead, 2 * cmp.Or(o.MaxParallel, defaultParallel), 1 << 11},
		{"ReadAheadAfter", &o.ReadAheadAfter, 8, 1 << 30},
		{"WriteAttempts", &o.WriteAttempts, 3, 1 << 10},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < 1 || *d.value > d.most {
			return o, invalid("Options.%s is %d: 1 to %d", d.what, *d.value, d.most)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Timestamps != nil:
	case common != nil:
		o.Timestamps = common
	default:
		o.Timestamps = timestamps.New(o.Now)
	}
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	return o, nil
}
