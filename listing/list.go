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

// List returns one page of the listing that q selects: entries, and common prefixes if q has a delimiter. It fails with
// InvalidArgument, ErrBadToken, ErrNoSuchBucket, ErrBucketClosing, Unavailable, Timeout or Corrupt. The call may be
// repeated with the same token.
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
	// maxPageBytes is the greatest number of bytes of keys and values on a page of a listing. It bounds the memory of a
	// page with large values.
	maxPageBytes = 8 << 20
	// leastReadBytes is the smallest limit, in bytes, of a read for a page, however few bytes the page lacks.
	leastReadBytes = 16 << 10
	// maxPeeks is the greatest number of reads for a page that is full already. These reads find out whether the page
	// is the last page.
	maxPeeks = 8
	// minSlice and maxSlice bound the row limit of a read, in a listing that skips keys. The first row limit of such a
	// listing is at least firstSlice.
	minSlice, firstSlice, maxSlice = 4, 64, 1000
	// wholePage is the first row limit of a listing with Query.Sift over an embedded store: the rows of a whole page.
	// That store leaves out the rows that the listing skips, so each row is an item, and one more read costs more than
	// rows.
	wholePage = defaultLimit + 1
)

// A pager fills a page of a listing. It reads the ranges of the map in waves, groups of concurrent reads, from the near
// end of what is still to be listed:
//
//	wave 1:  [range a      ]  read to its end: the next wave is wider
//	wave 2:  [range b][range c]  read concurrently; taken in the order of keys
//	wave 3:  [range d - - -|  has more rows: the next wave is one read again
//
// A read that ends within its range leaves a gap, so the results behind the gap are dropped. If the lease ends, the
// wave is read again under another lease. Listings that skip keys have row limits of their own (adapt), and over a
// network they read ahead (see ahead).
type pager struct {
	c     *Client
	q     *Query
	limit int
	h     *hold // the present lease

	left  span // the keys that are still to be listed
	n     int  // number of items on the page
	items []Item
	each  func(Item, int) error // if not nil, receives the items in place of the field items
	bytes int
	more  bool // the page is full and there is at least one more item

	slice int // the present row limit of a listing that skips keys
	rows  int // number of rows per item, in the latest read with items
	floor int // the smallest row limit: it doubles after a read that found only markers
	wide  int // ranges read at once: it doubles after a wave that read all its ranges to their ends
	idle  int // number of reads without an item
	peeks int // number of reads since the page was full

	reads  int           // number of all reads
	pace   float64       // recent number of items in one read
	ranges int           // number of ranges read to their ends
	rg     partmap.Range // the range of the latest read
	room   [1]read       // memory for the most common wave, of one read, so that the wave costs no allocation
}

// A read is a request for rows of one range of the map, and its result. The field bounds has the keys that are asked
// for, the field got the rows that the store has returned.
type read struct {
	rg     partmap.Range
	bounds store.Bounds
	got    piece
	into   *rowsOfPage // memory for the rows of got, until free gives it back
	sifted *[]Sifted   // the results for the rows that the store has asked about, in order; or nil
}

// rowsOfPage is memory for the rows of a page of the default size, and for one more row, which shows whether there are
// more.
type rowsOfPage [defaultLimit + 1]store.Row

// rowsOfPages is a pool of memory for the rows that reads return. A read gives its memory back once the rows have
// become items of a page. The pool saves a quarter of the memory that a page would allocate.
var rowsOfPages = sync.Pool{New: func() any { return new(rowsOfPage) }}

// siftedOfPages is a pool of memory for results of Query.Sift, which say in which form a listing shows an entry. A read
// keeps these results in its field sifted.
var siftedOfPages = sync.Pool{New: func() any { return new([]Sifted) }}

// free gives the memory of a read back to the pools: the memory of its rows, and that of the results of Query.Sift.
func (r *read) free() {
	if rows := r.got.rows; len(rows) > 0 && &rows[0] == &r.into[0] {
		clear(rows) // otherwise the pool would keep keys and values alive
	}
	rowsOfPages.Put(r.into)
	r.into, r.got = nil, piece{}
	if r.sifted != nil {
		*r.sifted = (*r.sifted)[:0]
		siftedOfPages.Put(r.sifted)
		r.sifted = nil
	}
}

// sift decides how much of a row the store returns. The store calls it for each row (store.SliceOptions.Sift), with the
// key and the cell, the encoded value. The results are
//   - keep, the number of bytes of the cell to return; and
//   - pass: if it is not 0, the store leaves out the following rows whose keys begin with the first pass bytes of key.
//
// sift also appends the form in which the listing shows the entry to r.sifted.
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

// known returns the form in which the listing shows the i-th row, if sift has computed the form already. Otherwise ok
// is false. The store calls sift in the order of the rows, so only the first rows have a known form.
func (r *read) known(i int) (what Sifted, ok bool) {
	if r.sifted == nil || i >= len(*r.sifted) {
		return Sifted{}, false
	}
	return (*r.sifted)[i], true
}

// run fills a page of a listing: it reads ranges of the map in waves, groups of concurrent reads. It returns when the
// page is full, the listing is at its end, or the page has used up its reads.
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

// enough reports whether the page is complete: the page has all its items or bytes, or has used up its reads.
func (p *pager) enough() bool {
	return p.more || p.bytes >= p.q.bytes() || p.idle >= p.c.o.MaxIdleReads ||
		p.n == p.limit && p.peeks >= maxPeeks
}

// plan prepares the next wave of a page, a group of concurrent reads. It appends at most n reads to wave: a read of the
// rest of the present range, and a read of each of the next ranges. It returns the extended wave.
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

// sliceLimit returns the greatest number of rows that each of the next reads returns. Mostly that is the number of
// items that the page lacks, plus one: the extra row shows that another page follows. For a listing that skips keys the
// method adapt sets the limit.
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

// fetch does the reads of a wave, a group of reads of neighbouring ranges, concurrently. It puts the result of each
// read into the field got of the read.
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

// consume puts the results of a wave, a group of concurrent reads of neighbouring ranges, on the page. It takes the
// reads in order, up to the first read that did not reach the end of its range. The results behind that gap are
// useless, and are dropped.
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

// take puts the items of the read r on the page. It then moves the beginning of the interval that is still to be listed
// behind the keys that the read has covered.
func (p *pager) take(r *read) error {
	rows := r.got.rows // an earlier common prefix may have passed some of them
	if r.sifted != nil && len(*r.sifted) > len(rows) {
		// The values of these rows may be cut, so the rows can't be sifted again.
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
	var last, passed []byte // the last key that was sifted, and the prefix that the listing skips with that key
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
	if len(passed) > 0 { // the keys with this prefix end behind the last key
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

// add adds an item to the page. The parameter more is the number of further rows that were read for the page: a hint
// for allocating memory.
func (p *pager) add(item Item, more int) error {
	more = min(more, p.limit-1-p.n)
	p.n++
	p.bytes += len(item.Key) + len(item.Value)
	if p.each == nil || p.mayReadAhead() { // reading ahead predicts keys from items
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

// adapt sets the row limit of the next read of a listing that skips keys, such as a listing with a delimiter. The
// listing either reads through the keys of a prefix or jumps to the next prefix. adapt halves the limit if the last
// read shows that jumping is cheaper, and mostly doubles it otherwise. The parameter r is the last read, and found is
// the number of items that it has brought.
func (p *pager) adapt(r *read, found int) {
	// A read may end within a common prefix that is listed already: then the next read jumps over the other keys of
	// that prefix. A jump costs as much as reading Options.RowsPerRead rows. So if prefixes have more rows than that, a
	// lower limit makes more jumps.
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
		// The rows of one prefix are estimated as if half of the last prefix lay in this slice.
		p.slice = max(p.slice/2, minSlice)
	default:
		p.slice = min(2*p.slice, maxSlice)
	}
}
