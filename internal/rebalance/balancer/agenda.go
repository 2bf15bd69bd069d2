package balancer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// class is the priority of a bucket in the queue of buckets to check. All waiting buckets of a lower class are checked
// first.
type class int

const (
	_       class = iota
	hot           // the bucket grows fast, is new, or has changed
	due           // ranges of the bucket were written to, or the time of their next check has come
	scanned       // the bucket is checked only as part of the regular check of all buckets
	classes
)

// agenda is the queue of the buckets to check, with the partitions in each bucket that may need a decision, such as a
// split. An agenda is safe for concurrent use.
//
// An agenda keeps at most partitionsKept partitions in all. If there are more, all ranges of a bucket are checked
// instead. It takes about 60 bytes of memory for each partition, and about 300 bytes for each waiting bucket.
type agenda struct {
	mu    sync.Mutex
	of    map[store.BucketID]*watched
	soon  []store.BucketID // buckets to queue within about a second, by the next call of turn
	queue [classes][]store.BucketID
	busy  int           // visits under way
	wait  int           // buckets in the queues
	scans int           // visits under way that belong only to the regular check of all buckets
	left  int           // buckets that the present check of all buckets has still to check
	parts int           // partitions in all buckets
	ready chan struct{} // has an element when there may be something to do
	room  chan struct{} // has an element when the check of all buckets may add buckets
	r     *rand.Rand
}

// watched is the agenda's entry for a bucket that must be checked, now or later, with the partitions and intervals of
// keys to check.
type watched struct {
	// parts are the partitions to check together with their neighbours. The value is the time from which on the
	// partition is to be checked. A zero time means the next interval.
	parts map[store.PartitionID]time.Time
	next  time.Time // the earliest time in parts
	spans []span
	// whole is true if all ranges of the bucket are to be checked. scan is true if all ranges are to be checked as a
	// part of the regular check of all buckets. soon is true if the next call of turn queues the bucket. busy is true
	// while a check of the bucket is under way.
	whole, scan, soon, busy bool
	queued                  class     // the queue that has the bucket, 0 if none has
	since                   time.Time // when the bucket was queued
	need                    float64   // rows per second that the bucket's moves need, by the checks in this interval
}

// span is an interval of keys of a bucket whose ranges have changed and must be checked. The field `near` is a key at
// or below the first range of the interval. A search of the bucket's map begins at near.
type span struct {
	store.Bounds
	near []byte
}

// visit is one check of a bucket: of some of its partitions and changed intervals of keys, or of all its ranges.
type visit struct {
	id    store.BucketID
	class class
	parts map[store.PartitionID]bool
	spans []span
	whole bool
	scan  bool
	need  float64 // rows per second that the bucket's moves need, by the checks before
}

const (
	// partitionsKept is the maximum number of partitions in the queue of buckets to check. spansKept is the maximum
	// number of changed intervals of keys that are kept for one bucket.
	partitionsKept = 1 << 20
	spansKept      = 256
	// looksAtOnce is the number of buckets that are checked concurrently. ScansAtOnce is the maximum number of those
	// that are checked only as a part of the regular check of all buckets.
	looksAtOnce = 16
	ScansAtOnce = 8
)

// newAgenda returns an empty agenda, which is the queue of buckets to check. The seed determines the order of buckets
// that are due at the same time.
func newAgenda(seed uint64) *agenda {
	return &agenda{
		of: map[store.BucketID]*watched{}, ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
		r: rand.New(rand.NewPCG(seed, 0x6c6f6f6b)),
	}
}

// bucket returns the agenda's entry for a bucket. If there is no entry, bucket makes an empty one. The caller holds
// agenda.mu.
func (a *agenda) bucket(id store.BucketID) *watched {
	w := a.of[id]
	if w == nil {
		w = &watched{}
		a.of[id] = w
	}
	return w
}

// look makes the balancer check partition p. The parameter `at` is the time of the check. If at is zero, the check is
// made at the next regular interval.
func (a *agenda) look(p store.Partition, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(a.bucket(p.Bucket), p.ID, at)
}

// add puts partition p on the list of partitions to check in a bucket's entry w. The parameter `at` is the time of the
// check; if the partition is on the list already, the earlier time is kept. If the agenda is full, all ranges of the
// bucket are checked instead. The caller holds agenda.mu.
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

// drop removes all partitions from a bucket's entry w, because all ranges of the bucket are checked anyway. The caller
// holds agenda.mu.
func (a *agenda) drop(w *watched) {
	a.parts -= len(w.parts)
	w.parts = nil
}

// changed makes the balancer check an interval of keys, whose ranges have changed, about a second later. id is the
// bucket, and s is the interval of keys.
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

// hurry makes the balancer check a bucket about a second later, and not only at the next regular interval. The check
// covers the partitions of the bucket that are due then.
func (a *agenda) hurry(id store.BucketID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hurried(id, a.bucket(id))
}

// hurried queues a bucket, whose entry is w, for a check about a second later, like the method hurry. The caller holds
// agenda.mu.
func (a *agenda) hurried(id store.BucketID, w *watched) {
	if !w.soon {
		w.soon = true
		a.soon = append(a.soon, id)
	}
}

// everything adds a bucket, with all its ranges, to the regular check of all buckets. The parameter `now` is the
// present time, at which the bucket begins to wait.
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

// push appends a bucket to the queue of priority c. id is the bucket, and w is its entry in the agenda. The parameter
// `now` is the present time, at which the bucket begins to wait. The caller holds agenda.mu.
func (a *agenda) push(id store.BucketID, w *watched, c class, now time.Time) {
	if w.queued == 0 {
		w.since = now
		a.wait++
	}
	w.queued = c
	a.queue[c] = append(a.queue[c], id)
	wait.Signal(a.ready)
}

// turn queues the buckets that must be checked quickly. The balancer calls turn about once a second. If interval is
// true, a regular interval begins, and turn also queues all buckets with partitions that are due.
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

// shuffle puts the list ids of buckets into a random order. The order depends only on the buckets, on the seed of the
// agenda, and on the earlier calls. The caller holds agenda.mu.
func (a *agenda) shuffle(ids []store.BucketID) {
	slices.SortFunc(ids, func(x, y store.BucketID) int { return bytes.Compare(x[:], y[:]) })
	a.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
}

// take removes the first bucket from the queues, and returns the check (visit) to make of the bucket. The result is nil
// if no bucket waits. The caller ends the check by a call of done.
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

// visit returns a new check of a bucket, whose entry in the agenda is w. The check covers all ranges of the bucket, or
// only the partitions and intervals of keys that are due now. The caller holds agenda.mu.
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

// done ends the visit v, which is one check of a bucket. The parameters are:
//   - all: true if the check covered all ranges of the bucket
//   - vain: true if the check failed, so that the same partitions must be checked again at the next interval
//   - now: the present time
//
// The result is true if no other check is under way and no bucket waits.
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

// idle reports whether no bucket is being checked and no bucket waits for a check.
func (a *agenda) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.busy == 0 && a.wait == 0
}

// late returns the longest time for which a bucket has been waiting for its check, or 0 if no bucket waits. Buckets
// that wait only for the regular check of all buckets do not count.
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

// remaining returns the number of buckets that the present check of all buckets has still to check.
func (a *agenda) remaining() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}
