// Package door gives the packages of this module access to operations of package listing that programs may not use.
// Adoptions copy rows from another system. Package objects chooses timestamps and stores settings. Rules of retention
// find old entries, and repairs correct the names of buckets. The public interface of package listing has none of these
// operations. Package listing, which lies above this package, sets Bucket, Client and UnderWay at its start.
package door

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket returns those operations on a bucket that only packages of this module may use. The parameter handle is a
// *listing.Bucket; anything else panics.
var Bucket func(handle any) BucketRows

// Client returns those operations on the names of buckets, and on timestamps, that only packages of this module may
// use. The parameter client is a *listing.Client; anything else panics.
var Client func(client any) ClientNames

// UnderWay returns a channel that is closed once the writes of a failed operation have ended. From then on none of them
// can be applied any more. The parameter err is the error of the operation, whose context ended while its writes were
// running. The channel is nil if
//   - no write is running, or
//   - the end of the writes is not known, as on Cassandra: there a lease (the time in which a write may rely on the
//     bucket's map) just expires.
//
// For a *listing.BatchError UnderWay considers only the first outcome with a running write: call it for each outcome.
var UnderWay func(err error) <-chan struct{}

// ListOfBuckets is the id of the bucket that holds the list of buckets: one entry per bucket name, in the order of
// names. This bucket has no name, so no client opens it by accident. It does not exist before the first CreateBucket.
// If the list and the directory (the registers that lead from names to buckets) differ, the directory is right.
// CreateBucket and verification then correct the list.
var ListOfBuckets = store.BucketID{'e', 'v', 'e', 'n', 'k', 'e', 'e', 'l', ' ', 'b', 'u', 'c', 'k', 'e', 't', 's'}

// BucketRows are operations on the rows of a bucket: writes with timestamps that the caller has chosen, copies from
// another system, and the search for old entries; and the settings of the bucket. Package listing implements and
// describes them.
type BucketRows interface {
	// ChangeSettings replaces the settings of the bucket by the result of change, which gets the present settings.
	ChangeSettings(ctx context.Context, change func(now []byte) ([]byte, error)) error
	// Mark returns the present moment in the life of the bucket. A program that copies rows into the bucket takes the
	// Mark first, then reads the rows, and calls Bring with the Mark.
	Mark(ctx context.Context) (Mark, error)
	// Bring writes rows into the bucket that were read from another system after the mark m was taken. For rows that
	// were read earlier see Mark.Remembers.
	Bring(ctx context.Context, m Mark, rows []store.Row) error
	// PutAt stores an entry with the timestamp g.At. An entry of the key with a newer timestamp stays.
	PutAt(ctx context.Context, key, value []byte, g Given) error
	// DeleteAt removes the entry of a key with the timestamp g.At. An entry with a newer timestamp stays.
	DeleteAt(ctx context.Context, key []byte, g Given) error
	// OlderThan returns a summary of the old entries with from <= key < to. An entry is old if the timestamp of its
	// last put is not above `at`.
	OlderThan(ctx context.Context, from, to []byte, at store.Timestamp) (Older, error)
	// DeleteOlderUntil deletes the old entries with from <= key < to: those whose last put has a timestamp not above
	// `at`. It ends at the time until. The result next is as that of listing.Bucket.DeleteRangeUntil.
	DeleteOlderUntil(ctx context.Context, from, to []byte, at store.Timestamp, until time.Time) (next []byte, err error)
}

// ClientNames are operations on the names of buckets, and the timestamps of a client. Package listing implements and
// describes them.
type ClientNames interface {
	// CreateWith creates a bucket that has settings.
	CreateWith(ctx context.Context, name string, settings []byte, cuts ...[]byte) error
	// DeleteBut deletes a bucket even if entries are left that r accepts.
	DeleteBut(ctx context.Context, name string, r Remains) error
	// EndDelete completes a DeleteBut that was interrupted after it had deleted the bucket.
	EndDelete(ctx context.Context, name string, r Remains) error
	// Owner returns the bucket that has the name according to the directory.
	Owner(ctx context.Context, name string) (Named, error)
	// Listed returns the bucket that has the name according to the list of buckets.
	Listed(ctx context.Context, name string) (Named, error)
	// Stamps returns the first of n consecutive timestamps, which the caller may use for PutAt and DeleteAt.
	Stamps(ctx context.Context, n int) (store.Timestamp, error)
	// Vacant reports whether no bucket has the name, and whether a deleted bucket had it.
	Vacant(ctx context.Context, name string) (vacant, freed bool, err error)
	// Mend corrects the list of buckets for one name, so that the list agrees with the directory.
	Mend(ctx context.Context, name string) error
	// Restore gives a bucket that is listed its name back.
	Restore(ctx context.Context, name string) error
	// Release frees the name of a bucket of which nothing is left.
	Release(ctx context.Context, name string) error
	// Discard deletes the bucket id, which has no name and no entries.
	Discard(ctx context.Context, id store.BucketID) error
}

// Named is the bucket that has a certain name, and the time at which the bucket got the name. A zero ID means that no
// bucket has the name.
type Named struct {
	ID      store.BucketID
	Created time.Time
}

// Remains says which entries do not prevent DeleteBut from deleting their bucket, such as those of unfinished uploads.
// The layer that wrote the entries decides, and frees what belongs to them elsewhere, such as the bodies of objects.
type Remains struct {
	// Of reports whether the other fields are for a bucket with these settings; a nil Of means every bucket. If Of
	// returns false, the call fails with Unavailable: the name has got another bucket meanwhile.
	Of func(settings []byte) bool
	// Gone reports whether the bucket may be deleted although the entry of key is in it. A nil Gone means that the
	// bucket must have no entries. Gone is called from several goroutines, and must not keep the key and the value.
	Gone func(key, value []byte) bool
	// Discard, if not nil, frees what belongs elsewhere to the entry of key, which Gone has accepted. It is called only
	// once the bucket is deleted, from several goroutines, and perhaps repeatedly for the same entry. If Discard fails,
	// it is still called for the other entries, but the bucket's name is not freed.
	Discard func(ctx context.Context, key, value []byte) error
}

// Mark is a moment in the life of a bucket. Bring needs it to copy rows from another system into the bucket: the rows
// must be read from that system after this moment.
type Mark struct {
	Bucket store.BucketID
	Epoch  uint64
	Stamp  store.Timestamp
	Taken  wait.Instant
	// Settled is a time at which the present map of the bucket had surely begun, although clocks may differ. It is 0 if
	// a range moves. First means that the present map is the one with which the bucket was made.
	Settled store.Timestamp
	First   bool
}

// At returns the time at which the mark was taken. A write to the bucket is older if it was acknowledged before, and
// newer if it begins after that time. There is one exception: a write in another data centre is surely newer only if it
// begins after that data centre
//   - was told of the mark, or
//   - was asked for a row because of the mark.
func (m Mark) At() store.Timestamp { return m.Stamp }

// deletionsKept is a time for which every store surely keeps tombstones, as long as their partition exists. Stores keep
// them for much longer.
const deletionsKept = 24 * time.Hour

// Remembers reports whether Bring may write rows that another system had at an earlier time, the parameter since. Rows
// that were deleted from the bucket after that time must stay deleted, so the bucket must still have the tombstones of
// these deletions. The result is true if the following holds since that time, or since the bucket was created if that
// is later:
//   - no range of the bucket's map has moved, and
//   - less than a day has passed.
func (m Mark) Remembers(since store.Timestamp) bool {
	if m.Settled == 0 || !m.First && m.Settled >= since {
		return false
	}
	return m.Stamp-max(m.Settled, since) < store.Timestamp(deletionsKept.Microseconds())
}

// ErrMoved means that Bring has not written all rows. Since the mark was taken, the map of the bucket has changed, or
// too much time has passed. Take another mark, read the rows again from the other system, and call Bring again.
var ErrMoved = store.Errorf(store.Conflict,
	"the bucket's map has changed since the rows were read, or that is long ago")

// Older is a summary of the old entries in an interval of keys. An entry is old if the timestamp of its last put is not
// above a given timestamp.
type Older struct {
	// First and Last are the first and the last key of an old entry. They are nil if no entry is old.
	First, Last []byte
	// Entries is the number of old entries. Ranges is the number of ranges of the map that have old entries.
	Entries, Ranges int64
}

// Given is the timestamp that the caller of PutAt or DeleteAt has chosen, and a function that can stop the write if it
// is late. While such a write may still be sent, the caller must not delete the key, and must not rely on a deletion of
// the key. A newer deletion hides the late write only in its own partition. If the key has moved, the late write may
// reach another partition, and would be visible there.
type Given struct {
	// At is the timestamp of the write, which Stamps has returned.
	At store.Timestamp
	// Still reports whether the write may still be sent. It is called while the write has a lease of the bucket's map.
	// So the write reaches a partition that all later operations know of.
	Still func() bool
}

// ErrTooLate means that PutAt or DeleteAt has written nothing, because Given.Still has returned false: the time that
// the caller allows for the write is over.
var ErrTooLate = store.Errorf(store.Conflict, "the time for the write is over; nothing was written")
