package listing

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/store"
)

// Client is a client of all buckets of a store: it creates, lists and deletes buckets, and returns handles for their
// entries. It is safe for concurrent use. A process needs only one Client for each store.
type Client struct {
	rows   store.Rows
	regs   store.Registers
	maps   *mapclient.Client
	stamps Timestamps
	names  *nameCache
	absent *absences
	o      Options
	// emptied has, for each bucket whose deletion was interrupted, how far that deletion has searched the bucket for
	// entries.
	emptied *lru.Cache[store.BucketID, emptied]
	// deletions bounds the number of ranges of maps on which all deletions of the process together work at a time.
	deletions *semaphore.Weighted
}

// Store is the part of a store that a Client needs. It has
//   - rows, which hold the entries of buckets;
//   - registers, which are small records that change only by compare-and-swap; and
//   - nodes, of which the maps of buckets consist.
type Store interface {
	store.Rows
	store.Registers
	store.Nodes
}

// Timestamps is a source of the timestamps of writes. Of two writes of the same key, the write with the higher
// timestamp wins. Sources in several processes can work on the same store if each is a commontime.Clock.
type Timestamps interface {
	// Next returns the first of n consecutive timestamps. All n are above all timestamps that this source has returned
	// before. They are also above all timestamps that were acknowledged (Passed), by any source, before the call.
	Next(ctx context.Context, n int) (store.Timestamp, error)
	// Passed returns once a write with the timestamp ts may be acknowledged: from then on, Next of any source returns
	// more than ts.
	Passed(ctx context.Context, ts store.Timestamp) error
	// Seen tells the source of a timestamp ts that a read has returned. Later timestamps of this source are above ts.
	Seen(ts store.Timestamp)
}

// Options are the options of a Client, such as the length of the longest value. The zero value has the defaults.
type Options struct {
	// MaxValueBytes is the length of the longest value in bytes. The default is DefaultMaxValueBytes, the greatest
	// possible length store.MaxValueBytes - 1.
	MaxValueBytes int
	// MaxIdleReads bounds the number of reads of a page that find no item. After that many reads the page ends early,
	// with a token for the next page. The default is 256.
	MaxIdleReads int
	// MaxParallel bounds the number of partitions that an operation reads or writes at a time; the default is 8. If
	// data centres are far apart, reads mostly wait for the distance. A deletion of a bucket or of a range of keys may
	// then use more: up to 48 times MaxParallel, but at most 1,024. All deletions of a process together may use twice
	// that number.
	MaxParallel int
	// RowsPerRead is the number of rows that the store reads in the time that one more read takes. A listing with a
	// delimiter reads through groups of fewer rows, and jumps over larger groups. The default is 16, and 128 for a
	// store that processes share, about as measured on Pebble and Cassandra.
	RowsPerRead int
	// ReadAhead bounds the number of concurrent reads of a page of a listing with a delimiter; 1 disables reading
	// ahead. The default is 1, as a read takes no longer than starting another read. For a store that processes share,
	// the default is twice MaxParallel, as such reads are small.
	ReadAhead int
	// ReadAheadAfter is the number of reads that a page makes in sequence before it reads ahead, with several reads at
	// a time. The default is 8.
	ReadAheadAfter int
	// WriteAttempts bounds the number of attempts of a write whose outcome is unknown. All attempts have the same
	// timestamp. The default is 3.
	WriteAttempts int
	// Timestamps is the source of the timestamps of writes. A process has one source. The default is a source that
	// keeps its state in the store. For a store that processes share, the default is the common time of the store's
	// servers, or the wall clock if the servers have no clocks.
	Timestamps Timestamps
	// CacheBytes bounds the memory, in bytes, of the cache of maps. 0 means 64 MiB. The client also remembers a bucket
	// name for each 2 KiB of it, but at least 1,000 names. For a store that processes share, the cache is bounded where
	// the process joins them.
	CacheBytes int64
	// Now returns the time of the wall clock. A nil Now means time.Now.
	Now func() time.Time
	// Recorder is told of each write and read, to count them; a counter.Recorder, for example. A nil Recorder records
	// nothing.
	Recorder Recorder
	// Sizes returns the number of rows of partitions, and where these rows lie. With Sizes, SplitPoints makes even
	// parts with few reads. Sizes is nil if the sizes are not known.
	Sizes counter.Source
}

// Recorder is told of each acknowledged write, with its timestamp, and of each read of a partition. A Recorder counts
// the sizes of partitions, for example. Operations call it directly, from many goroutines: its methods must return at
// once and must not keep the key.
type Recorder interface {
	// Put records that an entry was put. Its key and value have size bytes together.
	Put(p store.Partition, key []byte, size int, at store.Timestamp)
	// Delete records the deletion of a key. The parameter marker is true if the range of the key moves, and a marker, a
	// row that records the deletion, was written in place of a tombstone.
	Delete(p store.Partition, key []byte, at store.Timestamp, marker bool)
	// Read records a read of a partition: of the entry of key, or of several entries from key on. An empty key means
	// the beginning of the partition.
	Read(p store.Partition, key []byte)
	// Removed records that an unknown number of entries of a partition were deleted at once.
	Removed(p store.Partition)
}

// noRecorder is a Recorder that does nothing. A Client uses noRecorder if Options.Recorder is nil.
type noRecorder struct{}

func (noRecorder) Put(store.Partition, []byte, int, store.Timestamp)     {}
func (noRecorder) Delete(store.Partition, []byte, store.Timestamp, bool) {}
func (noRecorder) Read(store.Partition, []byte)                          {}
func (noRecorder) Removed(store.Partition)                               {}

// DefaultMaxValueBytes is the default of Options.MaxValueBytes, the length of the longest value: 64 KiB.
const DefaultMaxValueBytes = 64 << 10

const (
	defaultParallel = 8
	// absentNames is the number of bucket names of which a client remembers that no bucket has them.
	absentNames = 10_000
)

// nameCache is a cache of bucket ids by bucket name, with the numbers of its hits, misses and evictions.
type nameCache struct {
	*lru.Cache[string, store.BucketID]
	hits, misses, evictions atomic.Int64
}

func newNameCache(n int) *nameCache {
	c, _ := lru.New[string, store.BucketID](n) // New fails only for a size that is not positive
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

// New returns a client of the buckets in the store s, which only this process uses, such as a directory. The client
// needs no clocks: the leases of its maps are not timed, and its timestamps never repeat after a restart. Of several
// clients in different processes, one would not see what another has changed; for a store that processes share, see
// evenkeel.OpenCassandra. New does no I/O. It fails with InvalidArgument if an option is out of bounds, or if the store
// is one that processes share.
func New(s Store, o Options) (*Client, error) {
	var data mapclient.Data = s
	var maps *mapclient.Client
	if m, ok := s.(mapclient.Mapped); ok {
		data, maps = m.Data, m.Maps()
	} else {
		if _, shared := s.(store.WallClock); shared {
			return nil, store.Errorf(store.InvalidArgument, "processes share this store, and have to agree on the times of "+
				"their leases: open it by evenkeel.OpenCassandra")
		}
		if o.Timestamps == nil {
			o.Timestamps = timestamps.Kept(s, o.Now)
		}
		o.RowsPerRead, o.ReadAhead = cmp.Or(o.RowsPerRead, 16), cmp.Or(o.ReadAhead, 1)
		maps = mapclient.NewEmbedded(s, mapclient.Options{CacheBytes: o.CacheBytes, Now: o.Now})
	}
	o, err := o.withDefaults(maps.Time())
	if err != nil {
		return nil, err
	}
	names := newNameCache(mapclient.CachedNames(maps.CacheBytes()))
	// lru.New fails only for a size that is not positive.
	looks, _ := lru.New[store.BucketID, emptied](rememberedLooks)
	return &Client{
		rows: data, regs: data, maps: maps, stamps: o.Timestamps, names: names, absent: newAbsences(o.Now),
		o: o, emptied: looks, deletions: semaphore.NewWeighted(int64(2 * farRanges(o.MaxParallel))),
	}, nil
}

// Everywhere returns a client that reads and writes rows through a quorum of each data centre. It shares everything
// else with c. If the store has only one data centre, it does the same as c.
func (c *Client) Everywhere() *Client {
	wide := *c
	wide.rows = storekit.Everywhere(c.rows)
	return &wide
}

// Bucket returns a handle of the bucket with the given name, whether the bucket exists or not. It does no I/O.
// Operations on a bucket that does not exist fail with ErrNoSuchBucket.
func (c *Client) Bucket(name string) *Bucket { return &Bucket{c: c, name: name} }

// BucketOf returns a handle of exactly the bucket that Buckets has returned as info. After that bucket is deleted,
// operations by the handle fail with ErrNoSuchBucket, even if another bucket has the name by then. BucketOf does no
// I/O.
func (c *Client) BucketOf(info BucketInfo) *Bucket {
	return &Bucket{c: c, name: info.Name, id: info.ID}
}

// Pinned returns a handle of exactly the bucket that has the name of b now. The handle never leads to a later bucket of
// that name. An operation of several steps begins by taking such a handle, so that all its steps work on the same
// bucket. Pinned needs no I/O if the map of the bucket is known. It fails like Settings.
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

// withDefaults returns the options with defaults in place of zero values. The parameter common is the clock that the
// servers of the store keep in common, or nil if they have no such clock. withDefaults fails with InvalidArgument if an
// option is out of bounds.
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
