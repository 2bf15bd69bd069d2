package listing

import (
	"bytes"
	"context"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/partmap/keyspread"
	"github.com/evenkeel/evenkeel/store"
)

// A listing with a delimiter jumps from one common prefix to the next, one of the latest versions from one object to
// the next, and each jump waits for the previous read. Where reads take long and a page needs many, the rest of the page
// is divided into walks that are listed concurrently. Their items join the page in order;
// what the page does not need is dropped. Only the page's latency changes.
//
// The waste is bounded: a walk beyond the first reads on only while all such walks together
// have cost at most half of the useful reads so far, and while the walks before it are not
// expected to fill the page. With the number of useful reads the walks get more and longer.
const (
	// readsPerWalk is the number of useful reads for each concurrent walk.
	readsPerWalk = 8
	// A walk is made for one in walkShare of the useful reads, and for maxWalk at most.
	walkShare, maxWalk = 16, 32
)

// walk is one of the parts of the rest of a page.
type walk struct {
	pager         // lists the part; its items are those not yet on the page
	begin []byte  // near end of the part
	guess float64 // items expected of it
	found int     // items found in it, since it was cut
	any   bool    // it had items
	last  bool    // it ends where the query does
	busy  bool    // a read is under way, which owns the walk
	wave  []read  // the latest read
	err   error   // of the latest read
	again bool    // the latest read failed; it is repeated if the page needs it
	bad   error   // the latest read returned damaged rows
}

// ahead reads ahead for one page.
type ahead struct {
	p     *pager
	walks []*walk // in listing order, and without gaps
	done  chan *walk
	busy  int
	names [][]byte // the names before the latest cut
}

// worthReadingAhead reports whether a page should try to read ahead: it has made some
// reads one after the other, and is expected to need twice as many more.
func (p *pager) worthReadingAhead() bool {
	o := &p.c.o
	return p.mayReadAhead() && p.reads >= o.ReadAheadAfter && p.n < p.limit &&
		p.pace > 0 && float64(p.limit-p.n) > p.pace*float64(2*o.ReadAheadAfter)
}

// mayReadAhead reports whether a page of this query could.
func (p *pager) mayReadAhead() bool { return p.c.o.ReadAhead > 1 && p.q.stretches() }

// leastWalk returns the least number of reads for which a walk is made.
func leastWalk(o *Options) int { return max(o.ReadAheadAfter/2, 1) }

// part returns the pager of a part of what a page lacks, with the estimates of p.
func (p *pager) part(page *pager, left span) pager {
	return pager{
		c: p.c, q: p.q, limit: page.limit - page.n, left: left, slice: p.slice, rows: p.rows, floor: p.floor,
		pace: p.pace, rg: p.rg,
	}
}

// divide makes walks of the rest of a page; nil where there is nothing to divide.
func (p *pager) divide() *ahead {
	first := &walk{pager: p.part(p, p.left), guess: math.Inf(1), last: true}
	a := &ahead{p: p, walks: []*walk{first}, done: make(chan *walk, p.c.o.ReadAhead)}
	a.cutAll()
	if len(a.walks) == 1 {
		return nil
	}
	return a
}

// run continues the page by several walks, as long as there are any.
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
				return nil // it had found all that the page lacked
			}
			return err
		}
		before := w.n
		w.bad = w.consume(w.wave) // the page may be full before it comes to what is bad
		w.found += w.n - before
		w.any = w.any || w.found > 0
		if err := a.join(); err != nil {
			return err
		}
		a.cutAll()
	}
	return nil
}

// drain waits for the reads under way and ignores their results.
func (a *ahead) drain() {
	for ; a.busy > 0; a.busy-- {
		w := <-a.done
		w.busy = false
	}
}

// next starts the next read of each walk that may read on, and waits for one of them. It
// returns the error of that read, or of one that could not start.
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

// most returns the number of reads that may be under way.
func (a *ahead) most() int {
	return min(max(a.p.reads/readsPerWalk, 2), a.p.c.o.ReadAhead)
}

// finished reports whether nothing is left of the part, or the page needs no more of it.
func (w *walk) finished() bool { return w.left.done || w.more || w.n >= w.limit }

// expected estimates the items that a walk will have for the page.
func (w *walk) expected() float64 {
	if w.last || w.finished() {
		return float64(w.n)
	}
	return float64(w.n) + max(w.guess-float64(w.found), 0)
}

// join puts the items of the walks on the page, up to the first gap.
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

// cutAll divides walks until there are as many as reads allowed: the last one, where names
// are expected to go on, and any that has more items than expected.
func (a *ahead) cutAll() {
	active, expected, on := 0, float64(a.p.n), true
	for _, w := range a.walks {
		if expected += w.expected(); !w.finished() {
			active++
		}
		if w.again || w.bad != nil || w.left.done && !w.any {
			on = false // there seems to be nothing more, or it can't be read
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

// cut divides what is left of walk i: the walk keeps the near part, a new one after it gets
// the far part.
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

// guess predicts the key at which that many items of walk i end, from the latest names.
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

// edge returns the end of the range that was read last, and the items expected before it:
// the mean of the ranges so far.
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

// outside moves a cut within a stretch that the listing passes over to the far end of the stretch, or both walks
// would list it. The walk that finds the stretch jumps there, without another read.
func (a *ahead) outside(at []byte) []byte {
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
