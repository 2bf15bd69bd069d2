package sim

import (
	"fmt"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// history knows every write that was begun and what every answer has proven. Each
// key is a register that keeps the highest timestamp. A write of unknown outcome
// may apply at any time or never; once it was seen it stays, until something
// newer.
type history struct {
	mu     sync.Mutex
	writes map[store.Timestamp]*write
	keys   map[string]*register
	// What the run did, so that a test can see that it tested something.
	acked, unknown, shown, absent, pages int
}

type write struct {
	key, value string
	deletes    bool
	ts         store.Timestamp
}

type register struct {
	// least: whatever is newest now has this timestamp or a higher one.
	least   store.Timestamp
	byValue map[string]*write
	deletes []*write
}

func newHistory(keys []string) *history {
	h := &history{writes: map[store.Timestamp]*write{}, keys: map[string]*register{}}
	for _, k := range keys {
		h.keys[k] = &register{byValue: map[string]*write{}}
	}
	return h
}

// begin notes a write, when its timestamp is drawn.
func (h *history) begin(w *write) {
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
func (h *history) faithful(row store.Row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writes[row.Timestamp]
	if w == nil {
		return fmt.Errorf("nobody wrote %q at %d", row.Key, row.Timestamp)
	}
	value, live, err := store.EntryValue(row.Value)
	if err != nil || string(row.Key) != w.key || live == w.deletes || string(value) != w.value {
		return fmt.Errorf("%q at %d (live: %v, %q) is not what was written: %+v", row.Key, row.Timestamp, live, value, *w)
	}
	return nil
}

// acknowledge notes that a write is there, for all operations that begin later.
func (h *history) acknowledge(w *write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked++
	h.keys[w.key].least = max(h.keys[w.key].least, w.ts)
}

// proven reports whether a row, or something newer of its key, was acknowledged or
// seen.
func (h *history) proven(row store.Row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return row.Timestamp <= h.keys[string(row.Key)].least
}

// view is what was proven when an operation began.
type view map[string]store.Timestamp

func (h *history) view() view {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := view{}
	for k, r := range h.keys {
		v[k] = r.least
	}
	return v
}

// read holds one key of an answer to what was proven when its operation began.
func (h *history) read(before view, key string, shown bool, value string) error {
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
			return fmt.Errorf("I2: key %q shows %q of %d, but %d was acknowledged or seen before", key, value, w.ts, least)
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
		return fmt.Errorf("I2: key %q is absent, but %d was acknowledged or seen before, and nothing deletes it", key, least)
	}
	r.least = max(r.least, oldest)
	return nil
}
