package balancer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// class orders buckets that are to be looked at: of a lower one all come first.
type class int

const (
	_       class = iota
	hot           // grows fast, is new, or has changed
	due           // written to, or its time has come
	scanned       // looked at because everything is, from time to time
	classes
)

// agenda says which buckets are to be looked at, and where in them. It is safe for concurrent use.
//
// Of each partition that is to be looked at it keeps some 60 bytes, of at most partitionsKept in all: of buckets that
// exceed that all ranges are looked at. Of each bucket that waits it keeps some 300 bytes.
type agenda struct {
	mu    sync.Mutex
	of    map[store.BucketID]*watched
	soon  []store.BucketID // to be queued at the next turn
	queue [classes][]store.BucketID
	busy  int           // visits under way
	wait  int           // buckets that are queued
	scans int           // of them: for a scan only
	left  int           // buckets of the scan that are still to be looked at
	parts int           // partitions in all
	ready chan struct{} // has an element when there may be something to do
	room  chan struct{} // has an element when a scan may go on
	r     *rand.Rand
}

// watched is a bucket that must be looked at, now or later.
type watched struct {
	// parts are the partitions to look at, with their neighbours, and when; the zero time is the next interval.
	parts map[store.PartitionID]time.Time
	next  time.Time // the earliest of parts
	spans []span
	// whole: look at all ranges. scan: so does a scan. soon: at the next turn. busy: it is being looked at.
	whole, scan, soon, busy bool
	queued                  class // 0: it is not
	since                   time.Time
	need                    float64 // rows per second that its moves need, by the looks since the interval began
}

// span is a part of a bucket that has changed. Its ranges are found from near on.
type span struct {
	partmap.Span
	near []byte
}

// visit is one look at a bucket.
type visit struct {
	id    store.BucketID
	class class
	parts map[store.PartitionID]bool
	spans []span
	whole bool
	scan  bool
	need  float64 // of the looks before
}

const (
	// partitionsKept bounds the partitions of an agenda, spansKept the spans of one bucket.
	partitionsKept = 1 << 20
	spansKept      = 256
	// looksAtOnce is how many buckets are looked at at once, ScansAtOnce how many of them for a scan only.
	looksAtOnce = 16
	ScansAtOnce = 8
)

// newAgenda makes an agenda. Buckets that are due at once are looked at in an order that follows from a seed.
func newAgenda(seed uint64) *agenda {
	return &agenda{
		of: map[store.BucketID]*watched{}, ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
		r: rand.New(rand.NewPCG(seed, 0x6c6f6f6b)),
	}
}

// bucket finds or makes a bucket's entry. agenda.mu is held.
func (a *agenda) bucket(id store.BucketID) *watched {
	w := a.of[id]
	if w == nil {
		w = &watched{}
		a.of[id] = w
	}
	return w
}

// look has a partition looked at, from a time on; the zero time is the next interval.
func (a *agenda) look(p store.Partition, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(a.bucket(p.Bucket), p.ID, at)
}

func (a *agenda) add(w *watched, p store.PartitionID, at time.Time) {
	was, there := w.parts[p]
	switch {
	case there && !at.Before(was):
		return
	case there:
	case a.parts >= partitionsKept:
		w.whole = true
		a.drop(w)
		return
	default:
		a.parts++
	}
	if w.parts == nil {
		w.parts = map[store.PartitionID]time.Time{}
	}
	if len(w.parts) == 0 || at.Before(w.next) {
		w.next = at
	}
	w.parts[p] = at
}

func (a *agenda) drop(w *watched) {
	a.parts -= len(w.parts)
	w.parts = nil
}

// changed has a span looked at, at the next turn.
func (a *agenda) changed(id store.BucketID, s span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.bucket(id)
	if len(w.spans) >= spansKept {
		w.whole, w.spans = true, nil
		a.drop(w)
	}
	w.spans = append(w.spans, s)
	a.hurried(id, w)
}

// hurry has what is due of a bucket looked at at the next turn, not only at the next interval.
func (a *agenda) hurry(id store.BucketID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hurried(id, a.bucket(id))
}

func (a *agenda) hurried(id store.BucketID, w *watched) {
	if !w.soon {
		w.soon = true
		a.soon = append(a.soon, id)
	}
}

// everything has all ranges of a bucket looked at, as part of a scan.
func (a *agenda) everything(id store.BucketID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.bucket(id)
	if !w.scan {
		w.scan = true
		a.left++
	}
	if w.queued == 0 && !w.busy {
		a.push(id, w, scanned, now)
	}
}

// push queues a bucket. agenda.mu is held.
func (a *agenda) push(id store.BucketID, w *watched, c class, now time.Time) {
	if w.queued == 0 {
		w.since = now
		a.wait++
	}
	w.queued = c
	a.queue[c] = append(a.queue[c], id)
	wait.Signal(a.ready)
}

// turn queues the buckets that are to be looked at soon, and at an interval all whose time has come.
func (a *agenda) turn(now time.Time, interval bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	soon := a.soon
	a.soon = nil
	a.shuffle(soon)
	for _, id := range soon {
		switch w := a.of[id]; {
		case w == nil:
		case w.busy:
			a.soon = append(a.soon, id)
		default:
			w.soon = false
			a.push(id, w, hot, now)
		}
	}
	if !interval {
		return
	}
	var ids []store.BucketID
	for id, w := range a.of {
		w.need = 0
		ready := w.whole || len(w.spans) > 0 || len(w.parts) > 0 && !w.next.After(now)
		if ready && !w.busy && (w.queued == 0 || w.queued == scanned) {
			ids = append(ids, id)
		}
	}
	a.shuffle(ids)
	for _, id := range ids {
		a.push(id, a.of[id], due, now)
	}
}

// shuffle brings buckets into an order that follows from the seed. agenda.mu is held.
func (a *agenda) shuffle(ids []store.BucketID) {
	slices.SortFunc(ids, func(x, y store.BucketID) int { return bytes.Compare(x[:], y[:]) })
	a.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
}

// take takes a bucket to look at; nil: there is none. The visit has to be ended by done.
func (a *agenda) take(now func() time.Time) *visit {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := hot; c < classes; c++ {
		for len(a.queue[c]) > 0 && (c != scanned || a.scans < ScansAtOnce) {
			id := a.queue[c][0]
			if a.queue[c] = a.queue[c][1:]; len(a.queue[c]) == 0 {
				a.queue[c] = nil
			}
			if w := a.of[id]; w != nil && w.queued == c { // else it was taken from another queue
				wait.Signal(a.ready) // others may have more to do
				return a.visit(id, w, now())
			}
		}
	}
	return nil
}

// visit begins a look at what is due in a bucket. agenda.mu is held.
func (a *agenda) visit(id store.BucketID, w *watched, now time.Time) *visit {
	v := &visit{id: id, class: w.queued, spans: w.spans, need: w.need}
	// What is due is not held up by a look at all ranges, which comes right after it.
	v.scan = w.scan && v.class == scanned
	v.whole = w.whole || v.scan
	a.busy++
	a.wait--
	if v.class == scanned {
		a.scans++
	}
	w.busy, w.queued, w.spans, w.whole, w.scan = true, 0, nil, false, w.scan && !v.scan
	if v.whole {
		a.drop(w)
		return v
	}
	v.parts = map[store.PartitionID]bool{}
	first := true
	for p, at := range w.parts {
		if !at.After(now) {
			v.parts[p] = true
			delete(w.parts, p)
			a.parts--
		} else if first || at.Before(w.next) {
			w.next, first = at, false
		}
	}
	return v
}

// done ends a visit, which may have been at all ranges. If it was in vain, what it was for is due again at the next
// interval.
func (a *agenda) done(v *visit, all, vain bool, now time.Time) (idle bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.of[v.id]
	w.busy = false
	w.need = max(w.need, v.need)
	a.busy--
	if v.class == scanned {
		a.scans--
		wait.Signal(a.ready)
	}
	if all && !vain && w.scan { // a scan came to it meanwhile
		w.scan = false
		a.left--
	}
	if v.scan {
		a.left--
	}
	wait.Signal(a.room)
	if vain {
		w.whole = w.whole || v.whole
		w.spans = append(w.spans, v.spans...)
		for p := range v.parts {
			a.add(w, p, time.Time{})
		}
	}
	switch {
	case w.scan:
		a.push(v.id, w, scanned, now)
	case len(w.parts) == 0 && len(w.spans) == 0 && !w.whole && !w.soon:
		delete(a.of, v.id)
	}
	return a.busy == 0 && a.wait == 0
}

// idle reports whether nothing is to be looked at now.
func (a *agenda) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.busy == 0 && a.wait == 0
}

// late is for how long the bucket that waits longest has been due, apart from scans.
func (a *agenda) late(now time.Time) (late time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range []class{hot, due} {
		for _, id := range a.queue[c] {
			if w := a.of[id]; w != nil && w.queued == c {
				late = max(late, now.Sub(w.since))
				break // they are in the order of their times
			}
		}
	}
	return late
}

// remaining is how many buckets of the scan are still to be looked at.
func (a *agenda) remaining() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}
