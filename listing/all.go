package listing

import (
	"bytes"
	"cmp"
	"context"
	"iter"

	"github.com/evenkeel/evenkeel/store"
)

// All iterates over all items that the query q lists: entries, and common prefixes if q has a delimiter. It reads the
// next page while the consumer works on the present page. It holds no lease between the pages. The iteration ends with
// the first error, which is like an error of List. When the loop ends, no read is left running.
func (b *Bucket) All(ctx context.Context, q Query) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := b.all(ctx, q, yield); err != nil {
			yield(Item{}, wrap("list", b.name, err))
		}
	}
}

// loaded is the result of reading a page of a listing: the items of the page, and the interval of keys that is still to
// be listed.
type loaded struct {
	items []Item
	left  span
	err   error
}

func (b *Bucket) all(ctx context.Context, q Query, yield func(Item, error) bool) error {
	if err := q.check(); err != nil {
		return err
	}
	// The consumer may change its query while pages are read.
	for _, part := range []*[]byte{&q.Prefix, &q.Delimiter, &q.From, &q.To, &q.After} {
		*part = bytes.Clone(*part)
	}
	h, err := b.acquire(ctx)
	if err != nil {
		return err
	}
	id := h.Root().Bucket
	h.release()
	left := q.span()
	if q.Token != "" {
		if err := left.resume(q.Token, id, &q); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	pages := make(chan loaded)
	load := func(left span, limit int, into []Item) { pages <- b.c.load(ctx, id, &q, left, limit, into) }
	pending := false
	defer func() {
		stop()
		if pending {
			<-pages
		}
	}()
	rest := q.Limit // 0: no limit
	pageSize := func() int { return min(cmp.Or(rest, defaultLimit), defaultLimit) }
	var spare []Item // memory of the previous page; the consumer has copies of its items
	for now := b.c.load(ctx, id, &q, left, pageSize(), nil); ; {
		if now.err != nil {
			return now.err
		}
		if rest > 0 { // rest was the limit of the page
			if rest -= len(now.items); rest == 0 {
				now.left.done = true
			}
		}
		if pending = !now.left.done; pending {
			go load(now.left, pageSize(), spare)
		}
		for _, item := range now.items {
			if !yield(item, nil) {
				return nil
			}
		}
		if !pending {
			return nil
		}
		spare = now.items[:0]
		now, pending = <-pages, false
	}
}

// load returns a page of a listing of the bucket id, with at most limit items. The parameter left is the interval of
// keys that is still to be listed. The items use the memory of the slice into, which may be nil.
func (c *Client) load(ctx context.Context, id store.BucketID, q *Query, left span, limit int, into []Item) loaded {
	h, err := c.acquire(ctx, id)
	if err != nil {
		return loaded{err: err}
	}
	p := pager{c: c, q: q, left: left, limit: limit, h: h, items: into}
	defer func() { p.h.release() }()
	err = p.run(ctx)
	return loaded{items: p.items, left: p.left, err: err}
}
