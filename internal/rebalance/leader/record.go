package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// Holder is the content of the leader's record.
type Holder struct {
	// ID is a random id of the candidate; zero: nobody leads.
	ID uuid.UUID `json:"id"`
	// Name is for people: a host and a process.
	Name string `json:"name,omitempty"`
	// Admin is the URL of the leader's admin API; empty for none.
	Admin string `json:"admin,omitempty"`
	// Version is the program's, for people.
	Version string `json:"version,omitempty"`
	// Since is when it began to lead, and Until the end of its lease unless it renews,
	// both by the holder's wall clock.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Lease is the length of the lease; in a record it is never 0.
	Lease time.Duration `json:"lease_ns,omitzero"`
	// Shards is in how many shards the work is divided, of which the record is about one: shard.Count. 0: the holder
	// does all of the work, as movers did before there were shards.
	Shards int `json:"shards,omitempty"`
	// Epoch is the register's. It grows with each change, so a later leader has a higher one.
	Epoch uint64 `json:"-"`
}

// free reports whether nobody holds the lease.
func (h *Holder) free() bool { return h.ID == uuid.Nil }

func (h *Holder) String() string {
	if h.Name == "" {
		return h.ID.String()
	}
	return fmt.Sprintf("%s (%s)", h.Name, h.ID)
}

// Work is what one process does for all. Each has a leader of its own.
type Work string

// The works, by the keys of their records in store.Process.
const (
	Moves    Work = "leader"
	Cleaning Work = "cleaner"
)

func (w Work) key() []byte { return []byte(w) }

// shard returns a shard of the work. Shard 0 has the record of the whole: so a program that knows no shards does not
// begin while another one leads that shard.
func (w Work) shard(n int) Work {
	if n == 0 {
		return w
	}
	return Work(fmt.Sprintf("%s-%d", w, n))
}

// leader names who does the work, and lead says what it does.
func (w Work) leader() string {
	if w == Cleaning {
		return "cleaner"
	}
	return "rebalancer"
}

func (w Work) lead() string {
	if w == Cleaning {
		return "lead the cleaning"
	}
	return "lead the rebalancing"
}

// HeldError is returned while another process leads.
type HeldError struct {
	Holder Holder
	Work   Work // Moves if empty
}

func (e *HeldError) Error() string {
	how := "it takes no commands; wait until it has ended"
	if e.Holder.Admin != "" {
		how = "give commands to it, with --admin " + e.Holder.Admin
	}
	until := e.Holder.Until.UTC().Format(time.RFC3339)
	return fmt.Sprintf("another %s leads already: %s, until %s unless it renews: %s", e.Work.leader(), &e.Holder, until, how)
}

func held(w Work, h Holder) error {
	return &store.Error{Kind: store.Conflict, Op: w.lead(), Err: &HeldError{h, w}}
}

// form of the record: a Holder as JSON.
const form = 1

func seal(v store.Version, h *Holder) (store.Record, error) {
	payload, err := json.Marshal(h)
	if err != nil {
		return store.Record{}, store.Errorf(store.InvalidArgument, "the leader's record: %w", err)
	}
	return record.Seal(form, v, payload), nil
}

// read returns the record, or a zero Holder at the zero version if there is none.
func read(ctx context.Context, regs store.Registers, w Work, l store.Level) (h Holder, v store.Version, err error) {
	payload, v, err := record.Read(ctx, regs, store.Process, string(w), l, form)
	if err == nil && payload != nil {
		if jerr := json.Unmarshal(payload, &h); jerr != nil {
			err = store.Errorf(store.Corrupt, "%w", jerr)
		}
	}
	if err != nil {
		return Holder{}, store.Version{}, store.Wrap("read the leader's record", err)
	}
	h.Epoch = v.Epoch
	return h, v, nil
}

// Current returns the leader of a work, by its record: it may have died since. NotFound: nobody leads. It reads at
// Local, where another one may be missing that has begun to lead just now.
func Current(ctx context.Context, regs store.Registers, w Work) (Holder, error) {
	h, _, err := read(ctx, regs, w, store.Local)
	if err == nil && h.free() {
		err = store.Errorf(store.NotFound, "no %s leads", w.leader())
	}
	return h, err
}
