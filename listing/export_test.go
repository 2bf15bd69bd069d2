package listing

import (
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Stretches returns the stretches that SplitPoints makes of a bucket's ranges: their ends, and how
// many ranges each has.
func Stretches(
	ctx context.Context, c *Client, id store.BucketID, q Query, most int,
) (los, his [][]byte, ranges []int, err error) {
	s := sampler{c: c, id: id}
	all, err := s.stretches(ctx, q.span(), most)
	for _, x := range all {
		los, his, ranges = append(los, x.span.lo), append(his, x.span.hi), append(ranges, x.ranges)
	}
	return los, his, ranges, err
}

// Enlist puts a bucket on the list of buckets, and nowhere else.
func (c *Client) Enlist(ctx context.Context, name string, id store.BucketID) error {
	return c.enlist(ctx, name, id, 1)
}
