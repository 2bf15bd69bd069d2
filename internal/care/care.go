// Package care is how the servers and commands of this module take care of buckets of objects. Cleaners delete what no
// reader sees any more, audits compare versions with stored bodies, and repairs guess lost settings. Programs see only
// one method of this, objects.Bucket.Clean.
//
// The code that does the work is in package objects, since it reads and writes the rows of versions. Here are the doors
// to that code, and the types of its arguments and results. Package objects, which lies above this package, opens the
// doors at its start. The mark of the owner of a store of bodies is here as a whole (claim.go), as it has no rows.
package care

import (
	"context"
	"iter"
	"time"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Of returns the care of all buckets of objects. The parameter objects is an *objects.Objects; anything else panics.
var Of func(objects any) Objects

// OfBucket returns the care of one bucket of objects. The parameter bucket is an *objects.Bucket; anything else panics.
var OfBucket func(bucket any) Bucket

// LostSettings returns new settings for a bucket whose own settings are lost, or nil if the bucket seems to have plain
// entries. Package objects implements and describes it.
var LostSettings func(rows []store.Row) []byte

// SoonGrace is the time for which a deleted version keeps its body if CleanOptions.Now is set: two minutes. It is
// longer than the time that may pass between a read of a row and a write that depends on what was read.
const SoonGrace = 2 * time.Minute

// Objects is the care of all buckets of objects of a store. Package objects implements and describes it.
type Objects interface {
	// Everywhere returns an Objects that reads and writes through a quorum of each data centre
	// (listing.Client.Everywhere). Cleaners and audits need it, since a body that they delete must not be in use in any
	// data centre. With only one data centre any Objects will do.
	Everywhere() Objects
	// Open returns the care of the bucket that has the given name now, and never of a later bucket of that name. It
	// fails with objects.ErrPlain, or like listing.Bucket.Settings.
	Open(ctx context.Context, name string) (Bucket, error)
	// BucketOf returns the care of exactly the bucket that info describes, as a listing of buckets has returned it.
	// Without info.ID, it is the bucket that has the name info.Name at the first step.
	BucketOf(info listing.BucketInfo) Bucket
	// EndDelete completes an interrupted deletion of the named bucket: it deletes the bucket's remaining rows and
	// blobs.
	EndDelete(ctx context.Context, name string) error
	// Unnamed iterates over the names of buckets that do not exist, but of which blobs exist or existed.
	Unnamed(ctx context.Context) iter.Seq2[string, error]
	// AuditUnnamed finds the blobs of a bucket that does not exist.
	AuditUnnamed(ctx context.Context, name string, each func(Audited) error) error
	// CondemnUnnamed deletes the blob of a finding of AuditUnnamed.
	CondemnUnnamed(ctx context.Context, name string, f Finding) error
}

// Bucket is the care of one bucket of objects. Package objects implements and describes it.
type Bucket interface {
	// ByAge reports whether a lifecycle rule of the bucket hides or deletes versions, or delete markers, once they are
	// old enough. If so, cleaners must look at all rows of the bucket now and then. Hints, which lead a cleaner to
	// single objects, are written when an object is written, and not when an object gets old. ByAge mostly needs no
	// I/O. It fails with objects.ErrPlain, or like listing.Bucket.Settings.
	ByAge(ctx context.Context) (bool, error)
	// Cleaner returns a cleaner of the bucket. It fails with InvalidArgument if o.Grace or o.Settled is shorter than a
	// put may take.
	Cleaner(o CleanOptions) (Cleaner, error)
	// Audit compares all versions of the bucket with all its blobs, section by section. If pace is not nil, it also
	// reads the blobs to compare each body with its checksum.
	Audit(
		ctx context.Context, from string, pace func(ctx context.Context, bytes int64) error, each func(Audited) error,
	) error
}
