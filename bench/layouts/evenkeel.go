package layouts

import (
	"bytes"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// even is evenkeel itself.
type even struct {
	client *listing.Client
	bucket *listing.Bucket
}

// NewEvenkeel is a bucket of evenkeel, which exists.
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

// Scan reads by SplitPoints with more readers than one.
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

// Partition asks the map, which is a request or two.
func (e *even) Partition(ctx context.Context, key []byte) (name string, err error) {
	err = e.ranges(ctx, key, func(rg partmap.Range) bool {
		name = rg.Partition.String()
		return false
	})
	return name, err
}

// Cuts lists the cuts of the map.
func (e *even) Cuts(ctx context.Context) (cuts [][]byte, err error) {
	err = e.ranges(ctx, nil, func(rg partmap.Range) bool {
		if len(rg.Start) > 0 {
			cuts = append(cuts, bytes.Clone(rg.Start))
		}
		return true
	})
	return cuts, err
}

// ranges goes through the map from the range of a key on, as long as f wants.
func (e *even) ranges(ctx context.Context, from []byte, f func(partmap.Range) bool) error {
	id, err := e.client.BucketID(ctx, e.bucket.Name())
	if err != nil {
		return err
	}
	root, err := e.client.Maps().Load(ctx, id)
	if err != nil {
		return err
	}
	for rg, err := range e.client.Maps().Ranges(ctx, root, from) {
		if err != nil {
			return err
		}
		if !f(rg) {
			return nil
		}
	}
	return nil
}

// EvenCuts are cuts that part sorted keys into so many ranges of the same size:
// what a balancer would have made of them.
func EvenCuts(sorted [][]byte, ranges int) (cuts [][]byte) {
	for i := 1; i < ranges; i++ {
		if cut := sorted[i*len(sorted)/ranges]; len(cuts) == 0 || bytes.Compare(cut, cuts[len(cuts)-1]) > 0 {
			cuts = append(cuts, cut)
		}
	}
	return cuts
}
