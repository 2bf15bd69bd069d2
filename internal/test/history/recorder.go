package history

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// Recorder runs the calls of a test, and records them with their answers. The methods are safe for concurrent use.
type Recorder struct {
	now     atomic.Int64
	stamped atomic.Bool

	mu sync.Mutex
	h  History
}

// Timestamps is a source of timestamps for a client, like listing.Timestamps.
type Timestamps interface {
	Next(ctx context.Context, n int) (store.Timestamp, error)
	Passed(ctx context.Context, ts store.Timestamp) error
	Seen(ts store.Timestamp)
}

// Timestamps returns a source of timestamps that records the timestamps of each write, which it takes from the source
// `of`. Clients need the recorded source if their clocks differ, and then every client of the history needs it from the
// start. Without recorded timestamps, the clocks of all clients must agree to within the time of a call.
func (r *Recorder) Timestamps(of Timestamps) Timestamps {
	r.stamped.Store(true)
	return stamps{of}
}

type stamps struct{ Timestamps }

type stampKey struct{}

// stamp records the timestamps of one write.
type stamp struct {
	mu        sync.Mutex
	low, high int64
}

// Next returns the first of n successive timestamps, and records them for the write of ctx.
func (s stamps) Next(ctx context.Context, n int) (store.Timestamp, error) {
	first, err := s.Timestamps.Next(ctx, n)
	if at, ok := ctx.Value(stampKey{}).(*stamp); ok && err == nil {
		at.mu.Lock()
		defer at.mu.Unlock()
		low, high := int64(first), int64(first)+int64(n)-1
		if at.low == 0 || low < at.low {
			at.low = low
		}
		at.high = max(at.high, high)
	}
	return first, err
}

func (r *Recorder) tick() Instant { return Instant(r.now.Add(1)) }

// Put calls do to put a value that no other put has, records the put, and returns do's error. do must use the context
// that it gets.
func (r *Recorder) Put(ctx context.Context, site, key string, do func(ctx context.Context, value []byte) error) error {
	w := Write{Key: key, Site: site, Begin: r.tick()}
	w.Value = fmt.Sprintf("value %d", w.Begin)
	return r.write(ctx, w, func(ctx context.Context) error { return do(ctx, []byte(w.Value)) })
}

// Delete calls do to delete a key, records the deletion, and returns do's error. do must use the context that it gets.
func (r *Recorder) Delete(ctx context.Context, site, key string, do func(ctx context.Context) error) error {
	return r.write(ctx, Write{Key: key, Site: site, Delete: true, Begin: r.tick()}, do)
}

func (r *Recorder) write(ctx context.Context, w Write, do func(ctx context.Context) error) error {
	var at stamp
	err := do(context.WithValue(ctx, stampKey{}, &at))
	w.End = r.tick()
	switch {
	case err == nil:
		w.Outcome = Acknowledged
	case !store.OutcomeUnknown(err):
		w.Outcome = Refused
	}
	w.Low, w.High = int64(w.Begin), int64(w.End)
	if r.stamped.Load() {
		at.mu.Lock()
		w.Low, w.High = at.low, at.high
		at.mu.Unlock()
		if w.High == 0 {
			if err == nil {
				panic("history: an acknowledged write without a timestamp: its client does not take them from Recorder.Timestamps")
			}
			w.Outcome = Refused // it failed before it had one
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Writes = append(r.h.Writes, w)
	return err
}

// Get calls do to read a key, records the answer, and returns do's error. A failed read is not recorded.
func (r *Recorder) Get(site, key string, do func() (value []byte, found bool, err error)) error {
	g := Read{Key: key, Site: site, Begin: r.tick()}
	value, found, err := do()
	if err != nil {
		return err
	}
	g.Value, g.Found, g.End = string(value), found, r.tick()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Reads = append(r.h.Reads, g)
	return nil
}

// List calls page for each page of a listing, until more is false, and records the pages. After an error, the function
// goOn says whether to try the same page again. If goOn is nil or returns false, List returns the error, and records
// the pages before the error.
func (r *Recorder) List(l Listing, page func() (items []Item, more bool, err error), goOn func(err error) bool) error {
	for {
		p := Page{Begin: r.tick()}
		items, more, err := page()
		if err != nil {
			if goOn != nil && goOn(err) {
				continue
			}
			r.listed(l)
			return err
		}
		p.Items, p.Last, p.End = slices.Clone(items), !more, r.tick()
		l.Pages = append(l.Pages, p)
		if p.Last {
			r.listed(l)
			return nil
		}
	}
}

func (r *Recorder) listed(l Listing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Listings = append(r.h.Listings, l)
}

// Join records that from now on all sites see what any site saw before.
func (r *Recorder) Join() {
	at := r.tick()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Joins = append(r.h.Joins, at)
}

// History returns the record of all calls that have ended so far. Call History when no call is under way. Otherwise the
// values of unfinished writes seem to come from nowhere.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{
		Writes: slices.Clone(r.h.Writes), Reads: slices.Clone(r.h.Reads),
		Listings: slices.Clone(r.h.Listings), Joins: slices.Clone(r.h.Joins),
	}
}
