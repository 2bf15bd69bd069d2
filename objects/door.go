package objects

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
)

// objectsCare has the operations on all buckets of objects that only packages of this module may call. It implements
// care.Objects.
type objectsCare struct{ *Objects }

// bucketCare has the operations on a bucket of objects that only packages of this module may call. It implements
// care.Bucket.
type bucketCare struct{ *Bucket }

// init sets the variables of package care, since package care can't import this package. Through them, other packages
// of this module reach operations that programs do not see.
func init() {
	care.Of = func(objects any) care.Objects { return objectsCare{objects.(*Objects)} }
	care.OfBucket = func(bucket any) care.Bucket { return bucketCare{bucket.(*Bucket)} }
	care.LostSettings = lostSettings
}

// Everywhere returns the operations that read and write through a quorum of each data centre. It implements
// care.Objects.
func (o objectsCare) Everywhere() care.Objects { return objectsCare{o.everywhere()} }

// Open returns the operations on the bucket that has the given name now, and never on a later bucket of that name. It
// fails with ErrPlain, or like listing.Bucket.Settings. It implements care.Objects.
func (o objectsCare) Open(ctx context.Context, name string) (care.Bucket, error) {
	b, _, err := o.Objects.Open(ctx, name)
	return bucketCare{b}, err
}

// BucketOf returns the operations on exactly the bucket that info describes. It implements care.Objects.
func (o objectsCare) BucketOf(info listing.BucketInfo) care.Bucket {
	return bucketCare{&Bucket{o: o.Objects, rows: o.c.BucketOf(info)}}
}

// ByAge reports whether a lifecycle rule of the bucket hides or deletes versions, or delete markers, once they are old
// enough (see Lifecycle.byAge). It implements care.Bucket.
func (b bucketCare) ByAge(ctx context.Context) (bool, error) {
	s, err := b.settings(ctx)
	return s.Lifecycle.byAge(), err
}
