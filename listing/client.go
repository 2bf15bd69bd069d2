package listing

import (
	"cmp"
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/base/timestamps"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/commontime"
)

// Client serves all buckets of one store. It is safe for concurrent use; a
// process needs one.
type Client struct {
	rows   store.Rows
	regs   store.Registers
	maps   *mapclient.Client
	stamps Timestamps
	names  *lru.Cache[string, store.BucketID]
	absent *absences
	o      Options
	// emptied is how far the deletions of buckets have come that were given up.
	emptied *lru.Cache[store.BucketID, emptied]
}

// Store is what a Client needs of a store beside the map.
type Store interface {
	store.Rows
	store.Registers
}

// Timestamps is where the timestamps of writes come from. commontime.Clock is one
// that any number of processes share; timestamps.Source is one that a process has alone.
type Timestamps interface {
	// Next returns the first of n consecutive timestamps, all above every one that it
	// has given out, and above every one that anybody had acknowledged (Passed) before
	// the call. With an error none is given out.
	Next(ctx context.Context, n int) (store.Timestamp, error)
	// Passed returns when a write at ts may be acknowledged: when every timestamp that
	// anybody is given from now on is above ts.
	Passed(ctx context.Context, ts store.Timestamp) error
	// Seen tells of a timestamp that a read returned: later ones are above it.
	Seen(ts store.Timestamp)
}

// Options bound what a Client does. The zero Options has the defaults.
type Options struct {
	// MaxValueBytes is the longest value, default 64 KiB, at most
	// store.MaxValueBytes less the kind byte.
	MaxValueBytes int
	// MaxIdleReads is how many reads of a partition one page may spend that
	// find nothing for it, default 256. Then the page ends early, with a token.
	MaxIdleReads int
	// MaxParallel is how many partitions one operation reads or writes at once,
	// default 8.
	MaxParallel int
	// RowsPerRead is how many rows the store reads in the time that one more read
	// takes: a listing with a delimiter reads on over fewer, and jumps over more.
	// By default 16 with NewEmbedded and 128 with New, about as measured over
	// Pebble and Cassandra.
	RowsPerRead int
	// ReadAhead is how many reads of a listing with a delimiter may go on at once; 1:
	// each waits for the one before. By default 1 with NewEmbedded, where a read takes
	// no longer than to begin another one, and twice MaxParallel with New, as such reads
	// are small.
	ReadAhead int
	// ReadAheadAfter is how many reads a page makes one after the other before it
	// reads ahead, default 8.
	ReadAheadAfter int
	// WriteAttempts is how often a write whose outcome is unknown is tried, with
	// the same timestamp, default 3.
	WriteAttempts int
	// Timestamps is the source of timestamps; one per process. By default New takes
	// the common time of the store's servers, or where they have no clocks the wall
	// clock's, and NewEmbedded one that is kept in the store.
	Timestamps Timestamps
	// CacheBytes bounds the map cache that NewEmbedded makes; see
	// mapclient.Options.
	CacheBytes int64
	// Now is the wall clock, default time.Now.
	Now func() time.Time
	// Recorder is told what was written and read; nil for nobody. See
	// counter.Recorder.
	Recorder Recorder
	// Sizes tells how many rows partitions have, and where in them, so that
	// SplitPoints makes even parts with few reads; nil: nobody knows.
	Sizes counter.Source
}

// Recorder learns what becomes of partitions: of each acknowledged write, at the
// write's timestamp, and of each read. It is called on the way of every operation,
// from many goroutines: it must return at once, and keep no key.
type Recorder interface {
	// Put: an entry, of so many bytes of key and value, is in a partition.
	Put(p store.Partition, key []byte, size int, at store.Timestamp)
	// Delete: a key was deleted; by a marker, if its range moves.
	Delete(p store.Partition, key []byte, at store.Timestamp, marker bool)
	// Read: a partition was read once, a page or an entry.
	Read(p store.Partition)
}

// noRecorder is in the place of the recorder that nobody gave.
type noRecorder struct{}

func (noRecorder) Put(store.Partition, []byte, int, store.Timestamp)     {}
func (noRecorder) Delete(store.Partition, []byte, store.Timestamp, bool) {}
func (noRecorder) Read(store.Partition)                                  {}

const (
	defaultMaxValueBytes = 64 << 10
	defaultIdleReads     = 256
	defaultParallel      = 8
	defaultRowsPerRead   = 128
	embeddedRowsPerRead  = 16
	defaultReadAfter     = 8
	defaultAttempts      = 3
	// cachedNames is for how many bucket names ids, or their absence, are remembered.
	cachedNames = 10_000
)

// New makes a client over a store and a client of its maps. Nothing is read or
// written yet. It fails with InvalidArgument where o is out of bounds.
func New(s Store, m *mapclient.Client, o Options) (*Client, error) {
	o, err := o.withDefaults(m.Time())
	if err != nil {
		return nil, err
	}
	// They fail only for a size that is not positive.
	names, _ := lru.New[string, store.BucketID](cachedNames)
	looks, _ := lru.New[store.BucketID, emptied](rememberedLooks)
	return &Client{
		rows: s, regs: s, maps: m, stamps: o.Timestamps, names: names, absent: newAbsences(o.Now),
		o: o, emptied: looks,
	}, nil
}

// NewEmbedded makes a client for a store that this process has for itself:
// with a map client whose leases need no clocks, and timestamps that do not
// repeat after a restart.
func NewEmbedded(s store.Store, o Options) (*Client, error) {
	if o.Timestamps == nil {
		o.Timestamps = timestamps.Kept(s, o.Now)
	}
	if o.RowsPerRead == 0 {
		o.RowsPerRead = embeddedRowsPerRead
	}
	if o.ReadAhead == 0 {
		o.ReadAhead = 1
	}
	return New(s, mapclient.NewEmbedded(s, mapclient.Options{CacheBytes: o.CacheBytes, Now: o.Now}), o)
}

// Maps is the map client that c uses. In the embedded form movers of the same
// process must use it too, or they do not see the leases of c.
func (c *Client) Maps() *mapclient.Client { return c.maps }

// Bucket names a bucket to work with. It does no I/O: whether the bucket exists
// shows in each operation.
func (c *Client) Bucket(name string) *Bucket { return &Bucket{c: c, name: name} }

func (o Options) withDefaults(common *commontime.Clock) (Options, error) {
	for _, d := range []struct {
		what         string
		value        *int
		preset, most int
	}{
		{"MaxValueBytes", &o.MaxValueBytes, defaultMaxValueBytes, store.MaxValueBytes - 1},
		{"MaxIdleReads", &o.MaxIdleReads, defaultIdleReads, 1 << 30},
		{"MaxParallel", &o.MaxParallel, defaultParallel, 1 << 10},
		{"RowsPerRead", &o.RowsPerRead, defaultRowsPerRead, store.MaxPageRows},
		{"ReadAhead", &o.ReadAhead, 2 * cmp.Or(o.MaxParallel, defaultParallel), 1 << 11},
		{"ReadAheadAfter", &o.ReadAheadAfter, defaultReadAfter, 1 << 30},
		{"WriteAttempts", &o.WriteAttempts, defaultAttempts, 1 << 10},
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
