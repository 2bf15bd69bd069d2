// Package care declares the operations by which the servers and commands of this module maintain buckets of objects:
//
//   - Cleaners delete the versions and bodies that no reader can see any more.
//   - Audits compare the versions of objects with the stored bodies (blobs).
//   - LostSettings makes new settings for a bucket whose settings are lost.
//
// Of all these, programs see only the method objects.Bucket.Clean.
//
// Package objects implements the operations, since they read and write the rows of versions. Here are interfaces, the
// types of arguments and results, and the variables Of, OfBucket and LostSettings. Package objects, which lies above
// this package, sets these variables at its start. Claim and Owner are implemented here, since they need no rows: they
// mark to which store of rows a store of blobs belongs.
package care

import (
	"context"
	"iter"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Of returns the operations that maintain all buckets of objects of a store. The parameter objects is an
// *objects.Objects; anything else panics.
var Of func(objects any) Objects

// OfBucket returns the operations that maintain one bucket of objects. The parameter bucket is an *objects.Bucket;
// anything else panics.
var OfBucket func(bucket any) Bucket

// LostSettings returns new settings for a bucket whose own settings are lost. The parameter rows has samples of the
// bucket's rows. If they show that the bucket has objects, the new settings keep all versions. Otherwise the result is
// nil, as the bucket seems to have plain entries. Package objects implements LostSettings.
var LostSettings func(rows []store.Row) []byte

// SoonGrace is the time for which a deleted version keeps its body if CleanOptions.Now is set: two minutes. It is
// longer than the time that may pass between a read of a row and a write that depends on what was read.
const SoonGrace = 2 * time.Minute

// Objects has the operations that maintain all buckets of objects of a store: their cleaners and audits, and the
// deletion of what is left of deleted buckets. Package objects implements and describes them.
type Objects interface {
	// Everywhere returns an Objects that reads and writes through a quorum of each data centre
	// (listing.Client.Everywhere). Cleaners and audits need it, since a body that they delete must not be in use in any
	// data centre. With only one data centre any Objects will do.
	Everywhere() Objects
	// Open returns the operations on the bucket that has the given name now. They never act on a later bucket of that
	// name. Open fails with objects.ErrPlain, or like listing.Bucket.Settings.
	Open(ctx context.Context, name string) (Bucket, error)
	// BucketOf returns the operations on exactly the bucket that info describes, as a listing of buckets has returned
	// info. If info.ID is zero, they act on the bucket that has the name info.Name when they are first used.
	BucketOf(info listing.BucketInfo) Bucket
	// EndDelete completes an interrupted deletion of the named bucket: it deletes the bucket's remaining rows and
	// blobs.
	EndDelete(ctx context.Context, name string) error
	// Unnamed iterates over the names of buckets that do not exist, but of which blobs exist or existed.
	Unnamed(ctx context.Context) iter.Seq2[string, error]
	// AuditUnnamed finds the blobs of a bucket that does not exist, and passes them to the func each as findings.
	AuditUnnamed(ctx context.Context, name string, each func(Audited) error) error
	// CondemnUnnamed deletes the blob of the finding f, which AuditUnnamed has returned for the same name.
	CondemnUnnamed(ctx context.Context, name string, f Finding) error
}

// Bucket has the operations that maintain one bucket of objects: it makes cleaners and audits the bucket. Package
// objects implements and describes them.
type Bucket interface {
	// ByAge reports whether a lifecycle rule of the bucket hides or deletes versions, or delete markers, once they are
	// old enough. If so, cleaners must look at all rows of the bucket now and then. Hints, which lead a cleaner to
	// single objects, are written when an object is written, and not when an object gets old. ByAge mostly needs no
	// I/O. It fails with objects.ErrPlain, or like listing.Bucket.Settings.
	ByAge(ctx context.Context) (bool, error)
	// Cleaner returns a cleaner, which deletes what no reader of the bucket can see any more. It fails with
	// InvalidArgument if o.Grace or o.Settled is shorter than a put may take.
	Cleaner(o CleanOptions) (Cleaner, error)
	// Audit compares all versions of the bucket with all its blobs, section by section, and passes the result of each
	// section to the func each. The parameter from is empty, or the Audited.Next at which an earlier audit stopped. If
	// pace is not nil, Audit also reads the blobs and compares each body with its checksum. Before each read it calls
	// pace with the number of bytes, and pace may wait.
	Audit(
		ctx context.Context, from string, pace func(ctx context.Context, bytes int64) error, each func(Audited) error,
	) error
}
