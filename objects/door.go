package objects

import (
	"context"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
)

// objectsCare has the operations on all buckets of objects that only packages of this module may call.
type objectsCare struct{ *Objects }

// bucketCare has the operations on a bucket of objects that only packages of this module may call.
type bucketCare struct{ *Bucket }

// init gives package care its functions. Through these, other packages of this module reach operations that programs do
// not see.
func init() {
	care.Of = func(objects any) care.Objects { return objectsCare{objects.(*Objects)} }
	care.OfBucket = func(bucket any) care.Bucket { return bucketCare{bucket.(*Bucket)} }
	care.LostSettings = lostSettings
}

func (o objectsCare) Everywhere() care.Objects { return objectsCare{o.everywhere()} }

func (o objectsCare) Open(ctx context.Context, name string) (care.Bucket, error) {
	b, _, err := o.Objects.Open(ctx, name)
	return bucketCare{b}, err
}

func (o objectsCare) BucketOf(info listing.BucketInfo) care.Bucket {
	return bucketCare{&Bucket{o: o.Objects, rows: o.c.BucketOf(info)}}
}

func (b bucketCare) ByAge(ctx context.Context) (bool, error) {
	s, err := b.settings(ctx)
	return s.Lifecycle.byAge(), err
}
