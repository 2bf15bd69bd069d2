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

// class is the priority with which a bucket is looked at. All waiting buckets of a lower class come first.
type class int

const (
	_       class = iota
	hot           // the bucket grows fast, is new, or has changed
	due           // ranges of the bucket were written to, or their time has come
	scanned       // the bucket is looked at only by the regular look at everything
	classes
)

// agenda is the list of the buckets to look at, with the partitions in each of them that may need a decision. It is
// safe for concurrent use.
//
// The agenda keeps about 60 bytes for each partition to look at, and about 300 bytes for each bucket that waits. It
// keeps at most partitionsKept partitions in all. If there are more, all ranges of a bucket are looked at instead.
type agenda struct {
	mu    sync.Mutex
	of    map[store.BucketID]*watched
	soon  []store.BucketID // buckets that are queued at the next turn
	queue [classes][]store.BucketID
	busy  int           // visits under way
	wait  int           // buckets in the queues
	scans int           // visits under way that are for a scan only
	left  int           // buckets of the present scan that are still to be looked at
	parts int           // partitions in all buckets
	ready chan struct{} // has an element when there may be something to do
	room  chan struct{} // has an element when a scan may add buckets
	r     *rand.Rand
}

// watched is a bucket that must be looked at, now or later, with the parts to look at.
type watched struct {
	// parts are the partitions to look at, with their neighbours. Each has the time from which on it is to be looked
	// at; the zero time is the next interval.
	parts map[store.PartitionID]time.Time
	next  time.Time // the earliest time in parts
	spans []span
	// whole: all ranges are to be looked at. scan: all ranges are to be looked at, by a scan. soon: the bucket is
	// queued at the next turn. busy: a visit of the bucket is under way.
	whole, scan, soon, busy bool
	queued                  class     // the queue that has the bucket; 0: none
	since                   time.Time // when the bucket was queued
	need                    float64   // rows per second that its moves need, by the visits since the interval began
}

// span is a part of a bucket whose ranges have changed. near is a key at or below the first range of the part. A search
// of the bucket's map begins there.
type span struct {
	partmap.Span
	near []byte
}

// visit is one look at a bucket: at some of its partitions and changed parts, or at all its ranges.
type visit struct {
	id    store.BucketID
	class class
	parts map[store.PartitionID]bool
	spans []span
	whole bool
	scan  bool
	need  float64 // that of watched, from the visits before
}

const (
	// partitionsKept is the maximum number of partitions in an agenda, spansKept that of spans of one bucket.
	partitionsKept = 1 << 20
	spansKept      = 256
	// looksAtOnce is the number of concurrent visits. ScansAtOnce is the maximum number of those that are for a scan
	// only.
	looksAtOnce = 16
	ScansAtOnce = 8
)

// newAgenda returns an empty agenda, which is the list of buckets to look at. The seed determines the order of buckets
// that are due at the same time.
func newAgenda(seed uint64) *agenda {
	return &agenda{
		of: map[store.BucketID]*watched{}, ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
		r: rand.New(rand.NewPCG(seed, 0x6c6f6f6b)),
	}
}

// bucket returns the agenda's entry of the bucket id, and makes one if there is none. The caller holds agenda.mu.
func (a *agenda) bucket(id store.BucketID) *watched {
	w := a.of[id]
	if w == nil {
		w = &watched{}
		a.of[id] = w
	}
	return w
}

// look adds partition p to the partitions that are to be looked at. It is looked at when the time at has come. Zero: at
// the next interval.
func (a *agenda) look(p store.Partition, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(a.bucket(p.Bucket), p.ID, at)
}

// add adds partition p to the agenda's entry of a bucket, w, or makes the time of its look earlier. If the agenda is
// full, the whole bucket is to be looked at instead. The caller holds agenda.mu.
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

// drop removes all partitions from the agenda's entry of a bucket, w. The caller holds agenda.mu.
func (a *agenda) drop(w *watched) {
	a.parts -= len(w.parts)
	w.parts = nil
}

// changed adds the part s of a bucket, whose ranges have changed, to the agenda. The part is looked at in the next
// turn, about a second later.
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

// hurry makes the next turn, about a second later, look at a bucket. The parts of the bucket that are due do not wait
// for the next interval then.
func (a *agenda) hurry(id store.BucketID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hurried(id, a.bucket(id))
}

// hurried does the work of hurry for the bucket id, whose entry is w. The caller holds agenda.mu.
func (a *agenda) hurried(id store.BucketID, w *watched) {
	if !w.soon {
		w.soon = true
		a.soon = append(a.soon, id)
	}
}

// everything makes the regular look at all buckets include a bucket, with all its ranges.
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

// push puts a bucket into the queue of the priority c. id and w are the id and the entry of the bucket. The caller
// holds agenda.mu.
func (a *agenda) push(id store.BucketID, w *watched, c class, now time.Time) {
	if w.queued == 0 {
		w.since = now
		a.wait++
	}
	w.queued = c
	a.queue[c] = append(a.queue[c], id)
	wait.Signal(a.ready)
}

// turn queues the buckets that are in a hurry, so that they are looked at. If a regular interval begins (interval is
// true), it also queues all buckets with parts that are due.
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

// shuffle puts buckets into a random order that depends only on the buckets and on the seed of the agenda. The caller
// holds agenda.mu.
func (a *agenda) shuffle(ids []store.BucketID) {
	slices.SortFunc(ids, func(x, y store.BucketID) int { return bytes.Compare(x[:], y[:]) })
	a.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
}

// take removes the first bucket from the queues, and begins a visit, which is one look at the bucket. The caller ends
// the visit by calling done. nil: no bucket waits.
func (a *agenda) take(now func() time.Time) *visit {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := hot; c < classes; c++ {
		for len(a.queue[c]) > 0 && (c != scanned || a.scans < ScansAtOnce) {
			id := a.queue[c][0]
			if a.queue[c] = a.queue[c][1:]; len(a.queue[c]) == 0 {
				a.queue[c] = nil
			}
			if w := a.of[id]; w != nil && w.queued == c { // else another queue had the bucket first
				wait.Signal(a.ready) // others may have more to do
				return a.visit(id, w, now())
			}
		}
	}
	return nil
}

// visit begins a look at the parts of a bucket that are due, or at all its ranges. w is the bucket's entry. The caller
// holds agenda.mu.
func (a *agenda) visit(id store.BucketID, w *watched, now time.Time) *visit {
	v := &visit{id: id, class: w.queued, spans: w.spans, need: w.need}
	// Due parts are not held up by a look at all ranges, which comes in a visit of its own right afterwards.
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

// done ends the visit v, which is one look at a bucket. all: the visit covered all ranges of the bucket. vain: the
// visit failed, and its parts are due again at the next interval. The result is true if no other visit is under way and
// no bucket waits.
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
	if all && !vain && w.scan { // a scan asked for the bucket during the visit
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

// idle reports whether no bucket is being looked at and none waits for a look.
func (a *agenda) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.busy == 0 && a.wait == 0
}

// late returns the longest time for which a bucket has been due and has waited for a look. 0: no bucket waits. Buckets
// that wait only for the regular look at all buckets do not count.
func (a *agenda) late(now time.Time) (late time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range []class{hot, due} {
		for _, id := range a.queue[c] {
			if w := a.of[id]; w != nil && w.queued == c {
				late = max(late, now.Sub(w.since))
				break // a queue is in the order of since
			}
		}
	}
	return late
}

// remaining returns the number of buckets that the present scan of all buckets has still to look at.
func (a *agenda) remaining() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}
