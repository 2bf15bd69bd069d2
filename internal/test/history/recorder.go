package history

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/store"
)

// Recorder does the calls of a test and takes down what came of them. It is safe
// for concurrent use.
type Recorder struct {
	now     atomic.Int64
	stamped atomic.Bool

	mu sync.Mutex
	h  History
}

// Timestamps is listing.Timestamps.
type Timestamps interface {
	Next(ctx context.Context, n int) (store.Timestamp, error)
	Passed(ctx context.Context, ts store.Timestamp) error
	Seen(ts store.Timestamp)
}

// Timestamps passes a client's source of timestamps through and takes down what it
// gave for each write. It is needed where clients' clocks differ; then every
// client of the history needs it, from the start. Without it all writes have to
// take their timestamps from clocks that agree to within a call.
func (r *Recorder) Timestamps(of Timestamps) Timestamps {
	r.stamped.Store(true)
	return stamps{of}
}

type stamps struct{ Timestamps }

type stampKey struct{}

// stamp is where a write's timestamps are taken down.
type stamp struct {
	mu        sync.Mutex
	low, high int64
}

// Next implements listing.Timestamps.
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

// Put has do put a value that no other put has, with the context that it is given. It
// returns do's error.
func (r *Recorder) Put(ctx context.Context, site, key string, do func(ctx context.Context, value []byte) error) error {
	w := Write{Key: key, Site: site, Begin: r.tick()}
	w.Value = fmt.Sprintf("value %d", w.Begin)
	return r.write(ctx, w, func(ctx context.Context) error { return do(ctx, []byte(w.Value)) })
}

// Delete has do delete a key, with the context that it is given. It returns do's
// error.
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

// Get has do read a key; what failed is not taken down. It returns do's error.
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

// List has page read the pages of one listing, one after the other, until it says
// that there is no more. Where it fails, goOn (nil: no) says whether to try the same page
// again; else List returns the error, and what was answered before counts.
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

// Join says that from now on all sites see what any of them saw before.
func (r *Recorder) Join() {
	at := r.tick()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Joins = append(r.h.Joins, at)
}

// History returns what was taken down so far: of calls that have ended, so take
// it when none is under way, or what they wrote seems to come from nowhere.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{
		Writes: slices.Clone(r.h.Writes), Reads: slices.Clone(r.h.Reads),
		Listings: slices.Clone(r.h.Listings), Joins: slices.Clone(r.h.Joins),
	}
}
