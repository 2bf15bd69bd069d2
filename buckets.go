package evenkeel

import (
	"context"
	"iter"

	"github.com/evenkeel/evenkeel/listing"
)

// CreateBucket creates the bucket with the given name. The cuts are keys, in any order, at which the bucket is divided
// into ranges from the beginning. Cuts help a bucket that many clients fill at once; without cuts the bucket has one
// range, and is split as it grows. Of several concurrent calls for the same name, in any process, one succeeds.
//
// CreateBucket fails with listing.ErrBucketExists, listing.ErrBucketClosing, listing.ErrTimeUnknown,
// listing.ErrOutcomeUnknown, or with an error of kind InvalidArgument, Unavailable, Timeout or Corrupt. If an error
// that is Unavailable or Timeout wraps store.ErrUnwritable, nothing was done.
func (db *DB) CreateBucket(ctx context.Context, name string, cuts ...[]byte) error {
	return db.all.CreateBucket(ctx, name, cuts...)
}

// Bucket returns a handle of the bucket with the given name, by which entries are put, read, listed and deleted. It
// does no I/O, and does not fail: if the bucket does not exist, the operations of the handle fail with
// listing.ErrNoSuchBucket. A handle is small, stays valid, and is safe for concurrent use.
func (db *DB) Bucket(name string) *listing.Bucket { return db.all.Bucket(name) }

// BucketOf returns a handle of exactly the bucket that Buckets has returned as info. After that bucket is deleted, the
// operations of the handle fail with listing.ErrNoSuchBucket, even if another bucket has the name by then. BucketOf
// does no I/O.
func (db *DB) BucketOf(info listing.BucketInfo) *listing.Bucket { return db.all.BucketOf(info) }

// Buckets iterates over the buckets whose names begin with prefix and sort above after, in the order of their names. An
// empty prefix or after is no bound. The iteration ends with the first error, which is of kind Unavailable, Timeout or
// Corrupt. Buckets that are created or deleted meanwhile may be missing.
func (db *DB) Buckets(ctx context.Context, prefix, after string) iter.Seq2[listing.BucketInfo, error] {
	return db.all.Buckets(ctx, prefix, after)
}

// DeleteBucket deletes an empty bucket. A bucket with entries is emptied before by its method DeletePrefix, with an
// empty prefix. DeleteBucket searches the whole bucket for entries. If it is interrupted, repeat it, in any process;
// until then the bucket may stay closed for a while, and operations on it fail with listing.ErrBucketClosing.
//
// DeleteBucket fails with listing.ErrNoSuchBucket, listing.ErrNotEmpty, listing.ErrOutcomeUnknown, or with an error of
// kind InvalidArgument, Unavailable, Timeout or Corrupt. If an error that is Unavailable or Timeout wraps
// store.ErrUnwritable, nothing was done.
func (db *DB) DeleteBucket(ctx context.Context, name string) error {
	return db.all.DeleteBucket(ctx, name)
}

// Client returns the client of the buckets of the DB, for packages that work with a client of any store, such as s3api.
// The client is that of the methods of the DB: what is written by it is counted, too. It must not be used after Close.
func (db *DB) Client() *listing.Client { return db.all.Client }
