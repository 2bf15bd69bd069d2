package layouts

import (
	"bytes"
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/store"
)

// catalogue lists the partitions that a layout has, as an auxiliary table would. Each partition has a row in the
// catalogue, whose key is the partition's name. The names sort like the partitions. The catalogue itself is a small
// partition. Each process writes a partition's name once, before the process's first row in the partition.
type catalogue struct {
	table
	id    store.PartitionID
	known sync.Map // names that this process has written
}

func newCatalogue(t table) *catalogue {
	id := store.PartitionID{0: 0xff, 15: 1} // no number and, but for chance, no hash
	return &catalogue{table: t, id: id}
}

// add writes the names of partitions into the catalogue, except names that this process has already written.
func (c *catalogue) add(ctx context.Context, names ...[]byte) error {
	for _, name := range names {
		if _, known := c.known.Load(string(name)); known {
			continue
		}
		if err := c.put(ctx, c.id, name, nil); err != nil {
			return err
		}
		c.known.Store(string(name), struct{}{})
	}
	return nil
}

// names returns up to limit names of partitions within b. The result more is true if b may have further names.
func (c *catalogue) names(
	ctx context.Context, b store.Bounds, limit int, reverse bool,
) (names [][]byte, more bool, err error) {
	page, err := c.slice(ctx, c.id, b, limit, reverse)
	for _, r := range page.Rows {
		names = append(names, r.Key)
	}
	return names, page.More, err
}

const (
	// namesOnce is the number of names that a walk reads from the catalogue at once. walkOnce is the largest number of
	// partitions that a walk reads at the same time.
	namesOnce = 64
	walkOnce  = 8
)

// walk returns up to limit rows from successive partitions. It first reads the partition called first, without the
// catalogue, if first is not nil. Then it reads the partitions that the catalogue lists within rest. The first
// partitions are read one by one, then more and more at the same time, so that many small partitions cost little. The
// function read reads one partition.
func (c *catalogue) walk(ctx context.Context, first []byte, rest store.Bounds, limit int, reverse bool,
	read func(ctx context.Context, name []byte, limit int) ([]store.Row, error)) (out []store.Row, err error) {
	if first != nil {
		if out, err = read(ctx, first, limit); err != nil || len(out) == limit {
			return out, err
		}
		rest = beyond(rest, first, reverse)
	}
	for at := 1; !empty(rest) && len(out) < limit; {
		names, more, err := c.names(ctx, rest, namesOnce, reverse)
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			rest = beyond(rest, names[len(names)-1], reverse)
		}
		for len(names) > 0 && len(out) < limit {
			n := min(at, len(names))
			found := make([][]store.Row, n)
			g, gctx := errgroup.WithContext(ctx)
			for i, name := range names[:n] {
				g.Go(func() (err error) {
					found[i], err = read(gctx, name, limit-len(out))
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return nil, err
			}
			for _, rows := range found {
				out = append(out, rows[:min(len(rows), limit-len(out))]...)
			}
			names, at = names[n:], min(2*at, walkOnce)
		}
		if !more {
			break
		}
	}
	return out, nil
}

// all returns the names of all partitions in the catalogue.
func (c *catalogue) all(ctx context.Context) (names [][]byte, err error) {
	b := store.Bounds{}
	for {
		some, more, err := c.names(ctx, b, ScanPage, false)
		names = append(names, some...)
		if err != nil || !more {
			return names, err
		}
		b = beyond(b, some[len(some)-1], false)
	}
}

// prefixed is a layout that divides keys by their first n bytes: PRIMARY KEY ((bucket, first n bytes), key).
type prefixed struct {
	*catalogue
	n int
}

// NewPrefix returns a layout that divides the keys of a bucket into partitions by their first n bytes. An auxiliary
// table lists the prefixes that occur, so that a listing knows which partitions to read.
func NewPrefix(rows store.Rows, bucket store.BucketID, n int) Layout {
	return &prefixed{newCatalogue(newTable(rows, bucket)), n}
}

func (p *prefixed) name(key []byte) []byte { return key[:min(p.n, len(key))] }

func (p *prefixed) place(key []byte) store.PartitionID { return hashID(p.name(key)) }

func (p *prefixed) Put(ctx context.Context, key, value []byte) error {
	if err := p.add(ctx, p.name(key)); err != nil {
		return err
	}
	return p.put(ctx, p.place(key), key, value)
}

func (p *prefixed) Load(ctx context.Context, entries []Entry) error {
	for _, e := range entries {
		if err := p.add(ctx, p.name(e.Key)); err != nil {
			return err
		}
	}
	return p.load(ctx, entries, p.place)
}

func (p *prefixed) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return p.get(ctx, p.place(key), key)
}

func (p *prefixed) Partition(_ context.Context, key []byte) (string, error) {
	return string(p.name(key)), nil
}

// List returns a page of keys in order. It reads the partitions in the order of their prefixes, which is also the order
// of their keys.
func (p *prefixed) List(ctx context.Context, q Query) ([]Item, error) {
	return list(ctx, &q, func(ctx context.Context, b store.Bounds, limit int, reverse bool) ([]store.Row, error) {
		// Names of partitions that may hold keys within b.
		names := store.Bounds{Start: p.name(b.Start)}
		var first []byte
		switch {
		case reverse && len(b.End) > 0:
			first = p.name(b.End) // keys below End may begin with the same bytes; then what is below it
		case len(b.End) > 0:
			if names.End = store.PrefixEnd(p.name(b.End)); names.End == nil {
				names.End = append(bytes.Clone(p.name(b.End)), 0)
			}
		}
		if !reverse && len(b.Start) >= p.n {
			first = p.name(b.Start)
		}
		return p.walk(ctx, first, names, limit, reverse,
			func(ctx context.Context, name []byte, limit int) ([]store.Row, error) {
				page, err := p.slice(ctx, hashID(name), b, limit, reverse)
				return page.Rows, err
			})
	})
}

// Scan reads all entries partition by partition, and calls `each` with every page. readers is the number of partitions
// that are read at the same time.
func (p *prefixed) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	return p.scan(ctx, readers, each,
		func(name []byte) []store.PartitionID { return []store.PartitionID{hashID(name)} })
}

// scan reads all partitions of all names in the catalogue, and calls `each` with every page. The function `of` returns
// the partitions of a name.
func (c *catalogue) scan(
	ctx context.Context, readers int, each func([]Entry) error, of func(name []byte) []store.PartitionID,
) error {
	names, err := c.all(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(readers, 1))
	for _, name := range names {
		for _, id := range of(name) {
			g.Go(func() error { return c.through(ctx, id, store.Bounds{}, each) })
		}
	}
	return g.Wait()
}
