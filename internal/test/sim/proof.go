package sim

import (
	"fmt"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// proof knows every write that was begun and what every answer has proven. Each
// key is a register that keeps the highest timestamp. A write of unknown outcome
// may apply at any time or never; once it was seen it stays, until something
// newer.
type proof struct {
	mu     sync.Mutex
	writes map[store.Timestamp]*write
	keys   map[string]*cell
	// deleted: the bucket is, and nothing may be acknowledged any more.
	deleted bool
	// told is the same for the searches of package history, once the run is over.
	now  history.Instant
	told history.History
	// What the run did, so that a test can see that it tested something.
	acked, unknown, shown, absent, pages int
}

type write struct {
	key, value string
	deletes    bool
	ts         store.Timestamp
	begun      history.Instant
}

type cell struct {
	// least: whatever is newest now has this timestamp or a higher one.
	least   store.Timestamp
	byValue map[string]*write
	deletes []*write
}

func newProof(keys []string) *proof {
	h := &proof{writes: map[store.Timestamp]*write{}, keys: map[string]*cell{}}
	for _, k := range keys {
		h.keys[k] = &cell{byValue: map[string]*write{}}
	}
	return h
}

// begin notes a write, when its timestamp is drawn.
func (h *proof) begin(w *write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[w.ts] = w
	r := h.keys[w.key]
	if w.deletes {
		r.deletes = append(r.deletes, w)
	} else {
		r.byValue[w.value] = w
	}
}

// faithful says how a row differs from what was written under its timestamp.
func (h *proof) faithful(row store.Row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writes[row.Timestamp]
	if w == nil {
		return fmt.Errorf("nobody wrote %q at %d", row.Key, row.Timestamp)
	}
	value, live, err := store.EntryValue(row.Value)
	if err != nil || string(row.Key) != w.key || live == w.deletes || string(value) != w.value {
		return fmt.Errorf("%q at %d (live: %v, %q) is not what was written: %+v", row.Key, row.Timestamp, live, value,
			*w)
	}
	return nil
}

// acknowledge notes that a write is there, for all operations that begin later.
func (h *proof) acknowledge(w *write) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked++
	h.tell(w, history.Acknowledged)
	h.keys[w.key].least = max(h.keys[w.key].least, w.ts)
	if h.deleted {
		return fmt.Errorf("I2: a write of %q at %d was acknowledged, and the bucket is deleted", w.key, w.ts)
	}
	return nil
}

// doubt notes that a write has ended without an acknowledgement.
func (h *proof) doubt(w *write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown++
	if w.ts > 0 {
		h.tell(w, history.Unknown)
	}
}

func (h *proof) tell(w *write, o history.Outcome) {
	h.now++
	h.told.Writes = append(h.told.Writes, history.Write{
		Key: w.key, Value: w.value, Delete: w.deletes, Begin: w.begun, End: h.now, Outcome: o, Low: int64(w.ts),
		High: int64(w.ts),
	})
}

// tick is a moment of the history.
func (h *proof) tick() history.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// get notes an answered read.
func (h *proof) get(key string, begun history.Instant, found bool, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	h.told.Reads = append(h.told.Reads, history.Read{Key: key, Value: value, Found: found, Begin: begun, End: h.now})
}

// page notes an answered page.
func (h *proof) page(l *history.Listing, begun history.Instant, page listing.Page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages++
	h.now++
	p := history.Page{Begin: begun, End: h.now, Last: page.Next == ""}
	for _, item := range page.Items {
		p.Items = append(p.Items, history.Item{Key: string(item.Key), Value: string(item.Value)})
	}
	l.Pages = append(l.Pages, p)
}

// over reports whether the bucket is deleted.
func (h *proof) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deleted
}

// list notes a listing, as far as it came.
func (h *proof) list(l *history.Listing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told.Listings = append(h.told.Listings, *l)
}

// gone holds the deletion of the bucket to what was proven: it is empty.
func (h *proof) gone() (err error) {
	now := h.view()
	for key := range now {
		if e := h.read(now, key, false, ""); e != nil {
			err = fmt.Errorf("the bucket is deleted: %w", e)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted = true
	return err
}

// deletes reports whether somebody has begun to delete a key at a timestamp, or above.
func (h *proof) deletes(key string, ts store.Timestamp) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.keys[key].deletes, func(d *write) bool { return d.ts >= ts })
}

// undone reports whether a row is older than what was acknowledged or seen of its key.
func (h *proof) undone(row store.Row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return row.Timestamp < h.keys[string(row.Key)].least
}

// proven reports whether a row, or something newer of its key, was acknowledged or
// seen.
func (h *proof) proven(row store.Row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return row.Timestamp <= h.keys[string(row.Key)].least
}

// view is what was proven when an operation began.
type view map[string]store.Timestamp

func (h *proof) view() view {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := view{}
	for k, r := range h.keys {
		v[k] = r.least
	}
	return v
}

// mayBe reports whether a key may be there, for an operation that began when so much
// was proven.
func (h *proof) mayBe(before view, key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.keys[key].byValue {
		if w.ts >= before[key] {
			return true
		}
	}
	return false
}

// read holds one key of an answer to what was proven when its operation began.
func (h *proof) read(before view, key string, shown bool, value string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, least := h.keys[key], before[key]
	if r == nil {
		return fmt.Errorf("key %q was never written", key)
	}
	if shown {
		h.shown++
		w := r.byValue[value]
		switch {
		case w == nil:
			return fmt.Errorf("I2: key %q shows %q, which nobody has written", key, value)
		case w.ts < least:
			return fmt.Errorf("I2: key %q shows %q of %d, but %d was acknowledged or seen before", key, value, w.ts,
				least)
		}
		r.least = max(r.least, w.ts)
		return nil
	}
	h.absent++
	if least == 0 {
		return nil
	}
	var oldest store.Timestamp
	for _, d := range r.deletes {
		if d.ts >= least && (oldest == 0 || d.ts < oldest) {
			oldest = d.ts
		}
	}
	if oldest == 0 {
		return fmt.Errorf("I2: key %q is absent, but %d was acknowledged or seen before, and nothing deletes it", key,
			least)
	}
	r.least = max(r.least, oldest)
	return nil
}
