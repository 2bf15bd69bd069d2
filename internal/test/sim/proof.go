package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// proof is the record of every write of clients, and of what answers have proven. Each key is a register that keeps the
// write with the highest timestamp. A write of unknown outcome may be applied at any time, or never. Once an answer has
// shown the write, it stays until a newer one.
type proof struct {
	mu     sync.Mutex
	writes map[store.Timestamp]*write
	keys   map[string]*cell
	// deleted is true after the bucket was deleted. No later write may be acknowledged.
	deleted bool
	// certain reports whether an answer proves that the shown entry stays.
	certain func() bool
	// calls are all calls and answers, which package history checks after the run. now is the current instant in calls.
	now   history.Instant
	calls history.History
	// The counts of what the run did. Tests check by the counts that a run did enough.
	acked, unknown, shown, absent, pages int
}

type write struct {
	key, value string
	deletes    bool
	ts         store.Timestamp
	centre     int       // the data centre of the writer
	acked      bool      // and not of unknown outcome
	ended      time.Time // when it was acknowledged, on a stage
	begun      history.Instant
	// before and also belong to the deletion of a range of keys: what was proven when the deletion began, and the
	// deletes of the range's other keys, at the same timestamp.
	before view
	also   []*write
	// aged is true if the timestamp is a time before the call, so that the deletion leaves newer entries.
	aged bool
}

// clears makes w the deletion of all the given keys.
func (w *write) clears(keys []string) {
	w.key, w.deletes = keys[0], true
	for _, k := range keys[1:] {
		w.also = append(w.also, &write{key: k, deletes: true, aged: w.aged})
	}
}

// each calls f for w, and for the deletes of the other keys of the same call.
func (w *write) each(f func(*write)) {
	f(w)
	for _, o := range w.also {
		o.ts, o.begun, o.before, o.centre, o.acked = w.ts, w.begun, w.before, w.centre, w.acked
		f(o)
	}
}

type cell struct {
	// least is, by data centre, the lowest timestamp that the newest write of the key can have there.
	least   [2]store.Timestamp
	byValue map[string]*write
	deletes []*write
}

// anywhere stands for all data centres, where a parameter is the number of a data centre.
const anywhere = -1

// proven returns the lowest timestamp that the key's newest write can have in a data centre, or in the best of all.
func (r *cell) proven(centre int) store.Timestamp {
	if centre == anywhere {
		return max(r.least[0], r.least[1])
	}
	return r.least[centre]
}

// prove records that the key's newest write in a data centre has at least the timestamp ts. If centre is anywhere, the
// first data centre counts.
func (r *cell) prove(centre int, ts store.Timestamp) {
	at := &r.least[max(centre, 0)]
	*at = max(*at, ts)
}

func newProof(keys []string) *proof {
	h := &proof{writes: map[store.Timestamp]*write{}, keys: map[string]*cell{}, certain: func() bool { return true }}
	for _, k := range keys {
		h.keys[k] = &cell{byValue: map[string]*write{}}
	}
	return h
}

// begin records a write at the moment at which its timestamp is drawn.
func (h *proof) begin(w *write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[w.ts] = w
	w.each(func(w *write) {
		r := h.keys[w.key]
		if w.deletes {
			r.deletes = append(r.deletes, w)
		} else {
			r.byValue[w.value] = w
		}
	})
}

// faithful returns an error if a row differs from the client's write with the same timestamp.
func (h *proof) faithful(row store.Row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writes[row.Timestamp]
	if w == nil {
		return fmt.Errorf("no client wrote %q with timestamp %d", row.Key, row.Timestamp)
	}
	for _, o := range w.also {
		if o.key == string(row.Key) {
			w = o
		}
	}
	value, live, err := store.EntryValue(row.Value)
	if err != nil || string(row.Key) != w.key || live == w.deletes || string(value) != w.value {
		return fmt.Errorf("%q with timestamp %d (live: %v, %q) differs from the write: %+v", row.Key, row.Timestamp,
			live, value,
			*w)
	}
	return nil
}

// acknowledge records that a write was acknowledged, so that operations which begin later must see the write. It
// returns an error if the bucket was deleted before.
func (h *proof) acknowledge(w *write) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked++
	w.acked = true
	if w.before != nil {
		w.each(h.cleared)
	} else {
		h.record(w, history.Acknowledged)
		h.keys[w.key].prove(w.centre, w.ts)
	}
	if h.deleted {
		return fmt.Errorf("I2: a write of %q with timestamp %d was acknowledged after the bucket was deleted", w.key,
			w.ts)
	}
	return nil
}

// cleared records that a deletion of a range included the key of w. An older entry that was proven before the deletion
// is gone. An entry that was being put at the time may stay, whatever its timestamp, because a deletion that finds
// nothing leaves no tombstone.
func (h *proof) cleared(w *write) {
	if w.aged {
		h.record(w, history.Unknown) // package history knows no deletion that leaves what is newer
	} else {
		h.record(w, history.Cleared)
	}
	r, had := h.keys[w.key], w.before[w.key]
	for _, put := range r.byValue {
		if put.ts == had && had < w.ts {
			r.prove(w.centre, had+1)
		}
	}
}

// doubt records that a write ended without an acknowledgement, so its outcome is unknown.
func (h *proof) doubt(w *write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown++
	if w.ts > 0 {
		w.each(func(w *write) { h.record(w, history.Unknown) })
	}
}

func (h *proof) record(w *write, o history.Outcome) {
	h.now++
	h.calls.Writes = append(h.calls.Writes, history.Write{
		Key: w.key, Value: w.value, Delete: w.deletes, Begin: w.begun, End: h.now, Outcome: o, Low: int64(w.ts),
		High: int64(w.ts),
	})
}

// tick returns the next instant of the history of calls.
func (h *proof) tick() history.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// get records a read and its answer in the history of calls.
func (h *proof) get(key string, begun history.Instant, found bool, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	h.calls.Reads = append(h.calls.Reads, history.Read{Key: key, Value: value, Found: found, Begin: begun, End: h.now})
}

// page adds a page of an answer to the listing l.
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

// over reports whether the bucket was deleted, which ends the run.
func (h *proof) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deleted
}

// list records a listing in the history of calls. The listing may be incomplete.
func (h *proof) list(l *history.Listing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls.Listings = append(h.calls.Listings, *l)
}

// gone records that the bucket was deleted. It returns an error if a key cannot be absent.
func (h *proof) gone() (err error) {
	now := h.view(anywhere)
	for key := range now {
		if e := h.read(anywhere, now, key, false, ""); e != nil {
			err = fmt.Errorf("the bucket is deleted: %w", e)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted = true
	return err
}

// deletes reports whether a delete of the key with the timestamp ts or a higher one has begun.
func (h *proof) deletes(key string, ts store.Timestamp) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.keys[key].deletes, func(d *write) bool { return d.ts >= ts })
}

// clears reports whether a client deletes a range of keys at the timestamp ts.
func (h *proof) clears(ts store.Timestamp) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writes[ts]
	return w != nil && w.before != nil
}

// undone reports whether a newer write of the row's key was acknowledged or shown.
func (h *proof) undone(row store.Row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return row.Timestamp < h.keys[string(row.Key)].proven(anywhere)
}

// proven reports whether the row, or a newer write of the row's key, was acknowledged or shown.
func (h *proof) proven(row store.Row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return row.Timestamp <= h.keys[string(row.Key)].proven(anywhere)
}

// view is what was proven of a data centre when an operation began: by key, the lowest timestamp that the key's newest
// write can have.
type view map[string]store.Timestamp

func (h *proof) view(centre int) view {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := view{}
	for k, r := range h.keys {
		v[k] = r.proven(centre)
	}
	return v
}

// mayBe reports whether an operation may find the key. before is what was proven when the operation began.
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

// read checks one key of an answer against before, which is what was proven when the operation began. shown says
// whether the answer has the key, and value is the value that the answer shows.
//
// After a cut of the link between two data centres, an answer does not prove a write whose outcome is unknown.
func (h *proof) read(centre int, before view, key string, shown bool, value string) error {
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
			return fmt.Errorf("I2: key %q shows %q, which no client wrote", key, value)
		case w.ts < least:
			return fmt.Errorf("I2: key %q shows %q of timestamp %d, but timestamp %d was acknowledged or shown before",
				key, value, w.ts,
				least)
		}
		if w.acked || h.certain() {
			r.prove(centre, w.ts)
		}
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
		return fmt.Errorf("I2: key %q is absent, but timestamp %d was acknowledged or shown, and no delete is newer",
			key, least)
	}
	if h.certain() {
		r.prove(centre, oldest)
	}
	return nil
}
