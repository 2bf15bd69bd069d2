package listing

import (
	"context"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Fleeting makes the leases of c like those of the network form, which end by
// themselves: all that are held, whenever end is called.
func Fleeting(c *Client) (end func()) {
	f := &fleeting{maps: c.maps}
	c.maps = f
	return func() { f.era.Add(1) }
}

type fleeting struct {
	maps
	era atomic.Int64
}

type fleetingLease struct {
	lease
	f   *fleeting
	era int64
}

func (l fleetingLease) Valid() bool { return l.era == l.f.era.Load() && l.lease.Valid() }

func (f *fleeting) Acquire(ctx context.Context, id store.BucketID) (lease, error) {
	era := f.era.Load()
	l, err := f.maps.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	return fleetingLease{l, f, era}, nil
}

func (f *fleeting) Find(ctx context.Context, l lease, key []byte) (partmap.Range, error) {
	return f.maps.Find(ctx, l.(fleetingLease).lease, key)
}

func (f *fleeting) FindBefore(ctx context.Context, l lease, key []byte) (partmap.Range, error) {
	return f.maps.FindBefore(ctx, l.(fleetingLease).lease, key)
}

// Wait waits until all older leases have ended.
func (f *fleeting) Wait(context.Context, store.BucketID) error {
	f.era.Add(1)
	return nil
}

// Stretches are what SplitPoints takes together of a bucket's ranges: their ends, and
// how many they are.
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
