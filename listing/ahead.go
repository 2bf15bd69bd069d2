package listing

import (
	"bytes"
	"context"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// A listing with a delimiter jumps from one common prefix to the next, and each jump waits for the previous read. If
// reads take long and a page needs many of them, the rest of the page is divided into walks: neighbouring intervals of
// keys that are listed concurrently. (The same holds for a listing of the latest versions, which jumps from object to
// object.)
//
//	on the page | walk 0 | walk 1 | walk 2 …    (ascending keys)
//
// The items of walk 0 join the page at once, those of walk 1 when walk 0 has ended, and so on. Items that the page does
// not need are dropped. Only the latency of the page changes.
//
// The number of useless reads is bounded. A walk behind the first walk reads on only while
//   - all such walks together have cost at most half as many reads as were useful so far, and
//   - the walks before it are not expected to fill the page.
//
// As the number of useful reads grows, there are more walks, and longer ones.
const (
	// readsPerWalk is the number of useful reads of a page that allow one more concurrent read.
	readsPerWalk = 8
	// walkShare and maxWalk set the length of a new walk, an interval of keys that is listed concurrently with others.
	// A walk should take as many reads as the page has made useful reads so far, divided by walkShare, but at most
	// maxWalk.
	walkShare, maxWalk = 16, 32
)

// A walk is an interval of keys that a page lists concurrently with other intervals. The rest of the page is divided
// into several neighbouring walks.
type walk struct {
	pager         // lists the interval; its items are those that are not on the page yet
	begin []byte  // the end at which the listing of the interval begins
	guess float64 // expected number of items in the interval
	found int     // number of items found in the interval, since it was divided last
	any   bool    // at least one item was found in the interval
	last  bool    // the interval ends where the query ends
	busy  bool    // a read is under way, whose goroutine writes the fields wave and err
	wave  []read  // the latest read
	err   error   // the error of the latest read
	again bool    // the latest read failed; it is repeated if the page needs the walk
	bad   error   // the error of damaged rows in the latest read
}

// ahead is the state of reading ahead for a page of a listing. The rest of the page is divided into walks, neighbouring
// intervals of keys that are listed concurrently.
type ahead struct {
	p     *pager
	walks []*walk // in listing order, without gaps between them
	done  chan *walk
	busy  int
	names [][]byte // the names from which the latest cut was predicted
}

// worthReadingAhead reports whether a page should try to read ahead: to list several intervals of keys concurrently. It
// returns true if the page has made Options.ReadAheadAfter reads, one after the other, and is expected to need more
// than twice that number of further reads.
func (p *pager) worthReadingAhead() bool {
	o := &p.c.o
	return p.mayReadAhead() && p.reads >= o.ReadAheadAfter && p.n < p.limit &&
		p.pace > 0 && float64(p.limit-p.n) > p.pace*float64(2*o.ReadAheadAfter)
}

// mayReadAhead reports whether pages of this query may ever read ahead, that is, list several intervals of keys
// concurrently.
func (p *pager) mayReadAhead() bool { return p.c.o.ReadAhead > 1 && p.q.stretches() }

// leastWalk returns the smallest number of reads that a new walk should take; a shorter walk is not worth beginning. A
// walk is an interval of keys that is listed concurrently with others, to fill a page faster.
func leastWalk(o *Options) int { return max(o.ReadAheadAfter/2, 1) }

// part returns a pager that lists one part of a page, concurrently with the pagers of other parts. The parameter left
// is the interval of keys to list. The parameter page is the pager of the whole page: the new pager lists at most as
// many items as that page still lacks. The new pager begins with the estimates of the pager p, such as the number of
// items in one read.
func (p *pager) part(page *pager, left span) pager {
	return pager{
		c: p.c, q: p.q, limit: page.limit - page.n, left: left, slice: p.slice, rows: p.rows, floor: p.floor,
		pace: p.pace, rg: p.rg,
	}
}

// divide divides the rest of a page into walks, intervals of keys that are listed concurrently, and returns the state
// of reading ahead. It returns nil if the rest can't be divided.
func (p *pager) divide() *ahead {
	first := &walk{pager: p.part(p, p.left), guess: math.Inf(1), last: true}
	a := &ahead{p: p, walks: []*walk{first}, done: make(chan *walk, p.c.o.ReadAhead)}
	a.cutAll()
	if len(a.walks) == 1 {
		return nil
	}
	return a
}

// run fills the rest of a page by several concurrent walks, each of which lists an interval of keys. It returns when
// the page is full or all walks have ended.
func (a *ahead) run(ctx context.Context) error {
	p := a.p
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		a.drain() // nothing is read when the page's lease has been released
	}()
	for len(a.walks) > 0 && !p.enough() && p.n < p.limit {
		if bad := a.walks[0].bad; bad != nil {
			return bad
		}
		w, err := a.next(ctx)
		switch {
		case leaseOver(err) || err == nil && !p.h.Valid():
			// Reads under way are repeated under another lease.
			a.drain()
			if p.h, err = p.c.renew(ctx, p.h); err != nil {
				return err
			}
			continue
		case err != nil && w != a.walks[0]:
			w.again = true
			continue
		case err != nil:
			if err := a.join(); err != nil {
				return err
			}
			if p.enough() || p.n == p.limit {
				return nil // the walk had found all that the page lacked
			}
			return err
		}
		before := w.n
		w.bad = w.consume(w.wave) // the page may be full before it reaches the damaged rows
		w.found += w.n - before
		w.any = w.any || w.found > 0
		if err := a.join(); err != nil {
			return err
		}
		a.cutAll()
	}
	return nil
}

// drain waits for the reads that are still running, and ignores their results. It is called before the lease of the
// page is released: no read may run after that.
func (a *ahead) drain() {
	for ; a.busy > 0; a.busy-- {
		w := <-a.done
		w.busy = false
	}
}

// next starts reads for several parts of a page, and waits until one of the reads has ended. The parts are the walks:
// intervals of keys that are listed concurrently. Each walk has at most one read at a time.
//
// The result is the walk whose read has ended, with the error of that read. If a read can't be started, next returns
// its walk and the error at once.
func (a *ahead) next(ctx context.Context) (*walk, error) {
	most := a.most()
	risk, size, expected := 0, 0, float64(a.p.n)
	for _, w := range a.walks[1:] {
		risk += w.reads
		size += w.bytes
		if w.busy {
			risk++
		}
	}
	for i, w := range a.walks {
		wanted := i == 0 || a.busy < most && risk <= a.p.reads/2 && size < a.p.q.bytes() && expected <= float64(a.p.limit) &&
			!w.finished() && !w.again && w.bad == nil
		expected += w.expected()
		if !wanted || w.busy {
			continue
		}
		w.h, w.again = a.p.h, false
		if w.wave, w.err = w.plan(ctx, w.room[:0], 1); w.err != nil {
			return w, w.err
		}
		if i > 0 {
			risk++
		}
		a.busy++
		w.busy = true
		go func() {
			w.err = w.fetch(ctx, w.wave)
			a.done <- w
		}()
	}
	w := <-a.done
	a.busy--
	w.busy = false
	return w, w.err
}

// most returns the number of concurrent reads that a page may have under way. The number grows with the reads that were
// useful so far.
func (a *ahead) most() int {
	return min(max(a.p.reads/readsPerWalk, 2), a.p.c.o.ReadAhead)
}

// finished reports whether a walk needs no further read. A walk lists one interval of keys for a page. The result is
// true if the interval is listed to its end, or if the walk has all items that the page lacks.
func (w *walk) finished() bool { return w.left.done || w.more || w.n >= w.limit }

// expected returns the estimated number of items that a walk, which lists one interval of keys for a page, will add to
// the page. The number includes items that the walk has read already.
func (w *walk) expected() float64 {
	if w.last || w.finished() {
		return float64(w.n)
	}
	return float64(w.n) + max(w.guess-float64(w.found), 0)
}

// join moves the items that were listed concurrently to the page, in listing order. It goes through the walks, the
// intervals of keys that are listed concurrently, and stops at the first walk that is not listed to its end. So the
// page has no gap.
func (a *ahead) join() error {
	p := a.p
	for len(a.walks) > 0 && !a.walks[0].busy {
		w := a.walks[0]
		for i := range w.items {
			item := &w.items[i]
			if p.more = p.n == p.limit; p.more || p.bytes >= p.q.bytes() {
				return nil
			}
			if err := p.add(*item, len(w.items)-1-i); err != nil {
				return err
			}
			if passed := p.q.stretch(item.Key); item.CommonPrefix {
				p.left.passPrefix(item.Key)
			} else if len(passed) > 0 {
				p.left.passPrefix(bytes.Clone(passed))
			} else {
				p.left.passKey(item.Key)
			}
		}
		p.reads, p.idle, p.ranges = p.reads+w.reads, p.idle+w.idle, p.ranges+w.ranges
		p.slice, p.rows, p.floor, p.pace, p.wide = w.slice, w.rows, w.floor, w.pace, 0
		p.rg = w.rg
		w.reads, w.idle, w.ranges, w.n, w.items, w.bytes, w.more = 0, 0, 0, 0, nil, 0, false
		w.limit = p.limit - p.n
		if !w.left.done {
			p.left.passNear(&w.left)
			return nil
		}
		if a.walks = a.walks[1:]; len(a.walks) == 0 {
			p.left.done = true
			return nil
		}
		next := a.walks[0]
		p.left.passNear(&span{lo: next.begin, hi: next.begin})
		if !next.busy {
			next.left.passNear(&p.left)
		}
	}
	return nil
}

// cutAll divides walks, the intervals of keys that are listed concurrently, so that more reads can run at a time. It
// stops at the allowed number of unfinished walks. It divides
//   - each walk that has more items than expected, and
//   - the last walk, if the page is not expected to be full without it.
func (a *ahead) cutAll() {
	active, expected, on := 0, float64(a.p.n), true
	for _, w := range a.walks {
		if expected += w.expected(); !w.finished() {
			active++
		}
		if w.again || w.bad != nil || w.left.done && !w.any {
			on = false // the listing seems to have ended, or can't be read there
		}
	}
	most := a.most()
	for i := 0; i < len(a.walks) && active < most; i++ {
		w := a.walks[i]
		wanted := !w.last && float64(w.found) > w.guess || w.last && on && expected < float64(a.p.limit)
		if wanted && !w.busy && !w.finished() && w.bad == nil && a.cut(i) {
			active++
			expected += w.expected()
		}
	}
}

// cut divides the i-th walk, an interval of keys that is listed concurrently with others, into two walks. The first of
// them keeps the keys that are listed earlier; a new walk behind it gets the others. The result is false if cut finds
// no key at which to divide.
func (a *ahead) cut(i int) bool {
	w := a.walks[i]
	lack, o := float64(a.p.limit-a.p.n), &a.p.c.o
	reads := max(min(a.p.reads/walkShare, maxWalk), leastWalk(o))
	items := max(min(float64(reads)*w.pace, lack/float64(o.ReadAhead)), float64(leastWalk(o))*w.pace, 1)
	at := a.guess(i, items)
	if at == nil {
		at, items = a.edge(w)
	}
	if len(at) == 0 || len(at) > store.MaxKeyBytes {
		return false
	}
	near, far := w.left, w.left
	if near.reverse {
		near.raise(at, false)
		far.lower(at)
	} else {
		near.lower(at)
		far.raise(at, false)
	}
	if near.done || far.done {
		return false
	}
	next := &walk{begin: at, guess: max(w.guess-items, 1), last: w.last, pager: w.part(a.p, far)}
	w.left, w.guess, w.found, w.last = near, items, 0, false
	a.walks = slices.Insert(a.walks, i+1, next)
	return true
}

// guess predicts a key at which to divide the i-th walk, an interval of keys that is listed concurrently with others.
// It extends the pattern of the names that were listed last. The parameter items is the number of items that should lie
// before the key. The result is nil if the names follow no pattern.
func (a *ahead) guess(i int, items float64) []byte {
	w, seen := a.walks[i], a.walks[i].items
	if i == 0 {
		seen = a.p.items
	}
	near := w.left.lo
	if w.left.reverse {
		near = w.left.hi
	}
	if len(seen) >= keyspread.MinNames {
		a.names = a.names[:0]
		for _, item := range seen[max(len(seen)-keyspread.MaxNames, 0):] {
			name := item.Key
			if passed := a.p.q.stretch(name); len(passed) > 0 {
				name = passed
			}
			a.names = append(a.names, name)
		}
	}
	if at := keyspread.Predict(a.names, len(a.p.q.Prefix), near, items, w.left.reverse); at != nil {
		return a.outside(at)
	}
	return nil
}

// edge returns the end of the range of the map that the walk w has read last, as a key at which w may be divided (see
// outside). A walk is an interval of keys that is listed concurrently with others. The result at is nil if w has listed
// that range already, or if the page has not listed any range to its end yet. The result items estimates the number of
// items before the key: the mean number of items per range so far.
func (a *ahead) edge(w *walk) (at []byte, items float64) {
	if a.p.ranges == 0 || w.left.passedRange(&w.rg) {
		return nil, 0
	}
	at = w.rg.End
	if w.left.reverse {
		at = w.rg.Start
	}
	return a.outside(at), max(float64(a.p.n)/float64(a.p.ranges), 1)
}

// outside returns a key at which a listing can be divided into two parts. The parameter at is the wanted key, and
// mostly the result. The key must not lie within a group of keys that the listing skips together (by a delimiter, or by
// Query.Stretch), or both parts would list that group. The result is then the far end of the group:
//
//	at            delimiter    result, in ascending order
//	photos/b      none         photos/b
//	photos/b      /            photos0, the first key behind all keys that begin with photos/
func (a *ahead) outside(at []byte) []byte {
	// If the listing were divided within a group, both parts would list the group. The part that finds the group jumps
	// to its end, without another read.
	if !bytes.HasPrefix(at, a.p.q.Prefix) {
		return at
	}
	stretch := a.p.q.stretch(at)
	switch {
	case len(stretch) == 0:
		return at
	case a.p.left.reverse:
		return bytes.Clone(stretch)
	}
	return store.PrefixEnd(stretch)
}
