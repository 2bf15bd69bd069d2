package listing

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// List reads one page. It fails with InvalidArgument, ErrBadToken, ErrNoSuchBucket,
// ErrBucketClosing, Unavailable, Timeout or Corrupt, and may be repeated with the same
// token.
func (b *Bucket) List(ctx context.Context, q Query) (Page, error) {
	page, err := b.list(ctx, q)
	return page, wrap("list", b.name, err)
}

func (b *Bucket) list(ctx context.Context, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	h, err := b.acquire(ctx)
	if err != nil {
		return Page{}, err
	}
	p := pager{c: b.c, q: &q, left: q.span(), limit: q.limit(), h: h, each: q.Each}
	if q.Sift != nil && !q.Reverse && !h.Timed() {
		p.slice, p.rows = wholePage, 1
	}
	defer func() { p.h.release() }()
	id := h.Root().Bucket
	if q.Token != "" {
		if err := p.left.resume(q.Token, id, &q); err != nil {
			return Page{}, err
		}
	}
	if err := p.run(ctx); err != nil {
		return Page{}, err
	}
	page := Page{id: id, q: &q, left: p.left}
	if q.Each == nil {
		page.Items = p.items
	}
	if !p.left.done {
		page.Next = p.left.token(id, &q)
	}
	return page, nil
}

const (
	// maxPageBytes bounds the memory of a page with large values.
	maxPageBytes = 8 << 20
	// leastReadBytes is the least byte limit of a read, however little the page lacks.
	leastReadBytes = 16 << 10
	// maxPeeks bounds the reads of a full page that find out whether it is the last one.
	maxPeeks = 8
	// minSlice and maxSlice bound the row limit of reads of a listing that jumps; it
	// begins with firstSlice at least.
	minSlice, firstSlice, maxSlice = 4, 64, 1000
	// wholePage is what a listing that sifts begins with where the store is embedded: that leaves
	// out what the listing passes over, so each row is an item, and a slice costs more than rows.
	wholePage = defaultLimit + 1
)

// pager fills one page.
type pager struct {
	c     *Client
	q     *Query
	limit int
	h     *hold // the present lease

	left  span // what is still to be listed
	n     int  // items found
	items []Item
	each  func(Item, int) error // takes them in the place of items
	bytes int
	more  bool // the page is full and there is at least one more item

	slice int // present row limit of a listing that jumps
	rows  int // recent rows per item
	floor int // smallest row limit: it grows where reads find only markers
	wide  int // ranges read at once: it doubles while waves end theirs, so small ones cost little
	idle  int // reads that found nothing
	peeks int // reads since the page was full

	reads  int           // all reads
	pace   float64       // recent items per read
	ranges int           // ranges listed to their end
	rg     partmap.Range // of the latest read
	room   [1]read       // of the most common wave, so that it costs no allocation
}

// read is one slice of one range: the request and its result.
type read struct {
	rg     partmap.Range
	bounds store.Bounds
	got    piece
	into   *rowsOfPage // memory for the rows of got, until they are taken
	sifted *[]Sifted   // of those rows that the store has asked about; or nil
}

// rowsOfPage are the rows of a page, and the one behind it.
type rowsOfPage [defaultLimit + 1]store.Row

// rowsOfPages pools that memory: rows are dropped once they are items. Without the pool
// they are a quarter of what a page allocates, and full of pointers.
var rowsOfPages = sync.Pool{New: func() any { return new(rowsOfPage) }}

var siftedOfPages = sync.Pool{New: func() any { return new([]Sifted) }}

// free gives the memory of the rows back.
func (r *read) free() {
	if rows := r.got.rows; len(rows) > 0 && &rows[0] == &r.into[0] {
		clear(rows) // or the pool would keep keys and values alive
	}
	rowsOfPages.Put(r.into)
	r.into, r.got = nil, piece{}
	if r.sifted != nil {
		*r.sifted = (*r.sifted)[:0]
		siftedOfPages.Put(r.sifted)
		r.sifted = nil
	}
}

// sift sifts a row for the store (store.SliceOptions.Sift), and remembers the result.
func (r *read) sift(q *Query, key, cell []byte) (pass, keep int) {
	var what Sifted
	keep = len(cell)
	if value, live, err := store.EntryValue(cell); err == nil && live {
		switch what = q.sift(key, value); {
		case what.Hidden || what.CommonPrefix:
			keep -= len(value)
		case what.ValueBytes > 0:
			keep -= max(len(value)-what.ValueBytes, 0)
		}
	}
	*r.sifted = append(*r.sifted, what)
	return what.Pass, keep
}

// known returns what the listing shows for row i, if the store has asked about it: it asks in the
// order of the rows.
func (r *read) known(i int) (what Sifted, ok bool) {
	if r.sifted == nil || i >= len(*r.sifted) {
		return Sifted{}, false
	}
	return (*r.sifted)[i], true
}

// run reads ranges in waves until the page is full, the listing is at its end, or the page
// has used up its reads.
func (p *pager) run(ctx context.Context) error {
	for !p.left.done && !p.enough() {
		// A store in memory does not check ctx, and there may be millions of empty ranges.
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.worthReadingAhead() {
			if a := p.divide(); a != nil {
				if err := a.run(ctx); err != nil {
					return err
				}
				continue
			}
		}
		wave, err := p.plan(ctx, p.room[:0], max(p.wide, 1))
		if err == nil {
			err = p.fetch(ctx, wave)
		}
		if leaseOver(err) || err == nil && !p.h.Valid() {
			// Repeat under another lease, from the last proven key.
			if p.h, err = p.c.renew(ctx, p.h); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := p.consume(wave); err != nil {
			return err
		}
	}
	return nil
}

func (p *pager) enough() bool {
	return p.more || p.bytes >= p.q.bytes() || p.idle >= p.c.o.MaxIdleReads ||
		p.n == p.limit && p.peeks >= maxPeeks
}

// plan returns the next reads, of n ranges at most: the rest of the present one, and those
// behind it.
func (p *pager) plan(ctx context.Context, wave []read, n int) ([]read, error) {
	for s := p.left; n > 0 && !s.done; n-- {
		var rg partmap.Range
		var err error
		if s.reverse {
			rg, err = p.c.maps.FindBefore(ctx, p.h.Lease, s.hi)
		} else {
			rg, err = p.c.maps.Find(ctx, p.h.Lease, s.lo)
		}
		if err != nil {
			return nil, err
		}
		wave = append(wave, read{rg: rg, bounds: s.within(&rg)})
		s.passRange(&rg)
	}
	return wave, nil
}

// sliceLimit returns the row limit of each read: what the page lacks, and one more, which
// shows whether the page is the last. With a delimiter many rows may make one item, and
// few rows of a slice may be useful; then adapt sets the limit.
func (p *pager) sliceLimit() int {
	n := p.limit + 1 - p.n
	if p.q.jumps() {
		if p.slice == 0 {
			p.slice, p.rows = min(max(2*p.c.o.RowsPerRead, firstSlice), maxSlice), 1
		}
		n = min(n*p.rows, p.slice)
	}
	return min(max(n, minSlice, p.floor), store.MaxPageRows)
}

// fetch does the reads of a wave concurrently.
func (p *pager) fetch(ctx context.Context, wave []read) error {
	o := store.SliceOptions{Limit: p.sliceLimit(), Reverse: p.q.Reverse}
	if p.q.Bytes > 0 {
		o.Bytes = max((p.q.bytes()-p.bytes)/len(wave), leastReadBytes)
	}
	one := func(ctx context.Context, r *read) (err error) {
		o := o
		r.into = rowsOfPages.Get().(*rowsOfPage)
		o.Into = r.into[:]
		if p.q.jumps() && !p.q.Reverse {
			r.sifted = siftedOfPages.Get().(*[]Sifted)
			o.Sift = func(key, cell []byte) (pass, keep int) { return r.sift(p.q, key, cell) }
		}
		r.got, err = p.c.readRange(ctx, p.h, &r.rg, r.bounds, o)
		return err
	}
	if len(wave) == 1 {
		return one(ctx, &wave[0])
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := range wave {
		r := &wave[i]
		g.Go(func() error { return one(gctx, r) })
	}
	return g.Wait()
}

// consume takes the results of a wave, in order, up to the first gap.
func (p *pager) consume(wave []read) error {
	full := p.n == p.limit
	for i := range wave {
		r := &wave[i]
		before := p.n
		if err := p.take(r); err != nil {
			return err
		}
		more := r.got.more
		r.free()
		found := p.n - before
		if found == 0 {
			p.idle++
		}
		p.reads++
		p.pace = (p.pace + float64(found)) / 2
		if p.rg = r.rg; p.left.passedRange(&p.rg) {
			p.ranges++
		}
		if full {
			p.peeks++
		}
		if p.more {
			return nil
		}
		if more && !p.left.passedRange(&r.rg) {
			p.wide = 0
			return nil // the reads behind the gap are useless
		}
	}
	p.wide = min(max(2*p.wide, 1), p.c.o.MaxParallel)
	return nil
}

// take puts the items of one read on the page and advances the near end of left.
func (p *pager) take(r *read) error {
	rows := r.got.rows // of which a common prefix may have passed some
	if r.sifted != nil && len(*r.sifted) > len(rows) {
		// Their values may be cut, so they can't be sifted again.
		return fmt.Errorf("the store has asked about %d rows, and returned %d", len(*r.sifted), len(rows))
	}
	first := sort.Search(len(rows), func(i int) bool { return !p.left.passed(rows[i].Key) })
	rows = rows[first:]
	var keys []byte // with KeysOnly: memory of the keys, so that values are freed
	if p.q.KeysOnly {
		var size int
		for i := range rows {
			size += len(rows[i].Key)
		}
		keys = make([]byte, 0, size)
	}
	var last, passed []byte // the last key that was judged, and what the listing passes over with it
	before := p.n
	for i := 0; i < len(rows); i++ {
		key := rows[i].Key
		value, live, err := store.EntryValue(rows[i].Value)
		if err != nil {
			return store.Wrap("row of range "+r.rg.Partition.String(), err)
		}
		if !live {
			continue
		}
		what, ok := r.known(first + i)
		if !ok {
			what = p.q.sift(key, value)
		}
		if !what.Hidden && p.n == p.limit {
			p.more = true
			break
		}
		last, passed = key, key[:what.Pass]
		switch {
		case what.Hidden:
		case what.CommonPrefix:
			item := Item{Entry: Entry{Key: bytes.Clone(passed)}, CommonPrefix: true}
			if err := p.add(item, len(rows)-1-i); err != nil {
				return err
			}
		default:
			if n := what.ValueBytes; n > 0 && n < len(value) {
				value = value[:n:n]
			}
			if p.q.KeysOnly {
				at := len(keys)
				keys = append(keys, key...)
				key, value = keys[at:len(keys):len(keys)], nil
			}
			if err := p.add(Item{Entry: Entry{Key: key, Value: value}}, len(rows)-1-i); err != nil {
				return err
			}
		}
		if rest := rows[i+1:]; !ok && len(passed) > 0 && len(rest) > 0 && bytes.HasPrefix(rest[0].Key, passed) {
			i += sort.Search(len(rest), func(j int) bool { return !bytes.HasPrefix(rest[j].Key, passed) })
		}
	}
	if len(passed) > 0 { // which ends behind the last key
		p.left.passPrefix(bytes.Clone(passed))
	} else if last != nil {
		p.left.passKey(last)
	}
	if p.more {
		return nil
	}
	p.adapt(r, p.n-before)
	if r.got.more {
		p.left.passKey(r.got.last)
	} else {
		p.left.passRange(&r.rg)
	}
	return nil
}

// add adds an item to the page. more is how many rows have been read that are not looked at yet.
func (p *pager) add(item Item, more int) error {
	more = min(more, p.limit-1-p.n)
	p.n++
	p.bytes += len(item.Key) + len(item.Value)
	if p.each == nil || p.mayReadAhead() { // which guesses from items
		if n := len(p.items); n == cap(p.items) {
			p.items = append(make([]Item, 0, min(max(n+1+more, 2*n), p.limit)), p.items...)
		}
		p.items = append(p.items, item)
	}
	if p.each == nil {
		return nil
	}
	return p.each(item, more)
}

// adapt sets the next row limit of a listing with a delimiter. Where a slice ended under a
// common prefix that is listed already, the next read jumps over the rest of its keys.
// That pays where a prefix has many keys; where it has few, reading on is cheaper, with a
// growing limit.
func (p *pager) adapt(r *read, found int) {
	if r.got.more && found == 0 {
		p.floor = 2 * max(p.floor, minSlice)
	}
	rows := len(r.got.rows)
	if found > 0 {
		p.rows = (rows + found - 1) / found
	}
	switch {
	case p.slice == 0 || !r.got.more:
	case p.left.passed(r.got.last) && found < rows && (found < 2 || 2*rows > p.c.o.RowsPerRead*(2*found-1)):
		// The estimate: half of the last prefix is in the slice.
		p.slice = max(p.slice/2, minSlice)
	default:
		p.slice = min(2*p.slice, maxSlice)
	}
}
