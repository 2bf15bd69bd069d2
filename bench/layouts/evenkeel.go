package layouts

import (
	"bytes"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// even is the layout of evenkeel itself: a bucket that a map cuts into ranges of keys, one partition each.
type even struct {
	client *listing.Client
	bucket *listing.Bucket
}

// NewEvenkeel returns the layout of evenkeel. bucket is the name of an existing bucket of the client c.
func NewEvenkeel(c *listing.Client, bucket string) Layout {
	return &even{c, c.Bucket(bucket)}
}

func (e *even) Put(ctx context.Context, key, value []byte) error {
	return e.bucket.Put(ctx, key, value)
}

func (e *even) Load(ctx context.Context, entries []Entry) error {
	return e.bucket.PutBatch(ctx, entries)
}

func (e *even) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	entry, err := e.bucket.Get(ctx, key)
	if errors.Is(err, listing.ErrNotFound) {
		return nil, false, nil
	}
	return entry.Value, err == nil, err
}

func (e *even) List(ctx context.Context, q Query) ([]Item, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	lq := listing.Query{Prefix: q.Prefix, Delimiter: q.Delimiter, After: q.After, Limit: q.limit(), Reverse: q.Reverse}
	if p, folded := q.commonPrefix(q.After); folded && len(p) == len(q.After) {
		lq.From, lq.After = store.PrefixEnd(p), nil
		if lq.From == nil {
			return nil, nil
		}
	}
	page, err := e.bucket.List(ctx, lq)
	items := page.Items
	for err == nil && page.Next != "" && len(items) < q.limit() { // a page may be short
		lq.Token, lq.Limit = page.Next, q.limit()-len(items)
		page, err = e.bucket.List(ctx, lq)
		items = append(items, page.Items...)
	}
	return items, err
}

// Scan reads all entries of the bucket, and calls `each` with every page. Several readers each read a part of the keys,
// which Bucket.SplitPoints divides.
func (e *even) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	points, err := e.bucket.SplitPoints(ctx, listing.Query{}, max(readers, 1))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range len(points) + 1 {
		q := listing.Query{Limit: ScanPage}
		if i > 0 {
			q.From = points[i-1]
		}
		if i < len(points) {
			q.To = points[i]
		}
		g.Go(func() error { return e.through(ctx, q, each) })
	}
	return g.Wait()
}

func (e *even) through(ctx context.Context, q listing.Query, each func([]Entry) error) error {
	for {
		page, err := e.bucket.List(ctx, q)
		if err != nil {
			return err
		}
		entries := make([]Entry, len(page.Items))
		for i := range page.Items {
			entries[i] = page.Items[i].Entry
		}
		if len(entries) > 0 {
			if err := each(entries); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Token = page.Next
	}
}

// Partition returns the id of the partition in which a key lies. The lookup in the map costs one or two requests.
func (e *even) Partition(ctx context.Context, key []byte) (name string, err error) {
	err = e.ranges(ctx, key, func(rg partmap.Range) bool {
		name = rg.Partition.String()
		return false
	})
	return name, err
}

// Cuts returns the keys at which the map cuts the bucket into ranges, in ascending order.
func (e *even) Cuts(ctx context.Context) (cuts [][]byte, err error) {
	err = e.ranges(ctx, nil, func(rg partmap.Range) bool {
		if len(rg.Start) > 0 {
			cuts = append(cuts, bytes.Clone(rg.Start))
		}
		return true
	})
	return cuts, err
}

// ranges calls f for each range of the bucket's map, beginning with the range of the key from, until f returns false.
func (e *even) ranges(ctx context.Context, from []byte, f func(partmap.Range) bool) error {
	id, err := e.client.BucketID(ctx, e.bucket.Name())
	if err != nil {
		return err
	}
	root, err := mapclient.Of(e.client).Load(ctx, id)
	if err != nil {
		return err
	}
	for rg, err := range mapclient.Of(e.client).Ranges(ctx, root, from) {
		if err != nil {
			return err
		}
		if !f(rg) {
			return nil
		}
	}
	return nil
}

// EvenCuts returns cuts that divide the sorted keys into ranges with the same number of keys, as a balancer would.
// ranges is the number of ranges. Equal cuts occur once in the result.
func EvenCuts(sorted [][]byte, ranges int) (cuts [][]byte) {
	for i := 1; i < ranges; i++ {
		if cut := sorted[i*len(sorted)/ranges]; len(cuts) == 0 || bytes.Compare(cut, cuts[len(cuts)-1]) > 0 {
			cuts = append(cuts, cut)
		}
	}
	return cuts
}
