package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// A Holder describes a process that leads: its name, its admin address and its lease. It is stored as JSON in the
// leader's record.
type Holder struct {
	// ID is the random id of the candidate that leads. Zero means that no candidate leads.
	ID uuid.UUID `json:"id"`
	// Name is the name of the leader for people: program, host and process.
	Name string `json:"name,omitempty"`
	// Admin is the URL of the leader's admin API, or empty.
	Admin string `json:"admin,omitempty"`
	// Version is the version of the leader's program; it is only shown to people.
	Version string `json:"version,omitempty"`
	// Since is when the holder began to lead. Until is the time at which its lease ends if the holder does not renew
	// the lease. Both are by the holder's wall clock.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Lease is the time for which the holder leads without a renewal. In a stored record it is never 0.
	Lease time.Duration `json:"lease_ns,omitzero"`
	// Shards is the number of shards (groups of buckets) into which the work is divided: shard.Count, if the record is
	// about one shard. 0 means that the holder does the work for all buckets, as programs from before there were shards
	// do.
	Shards int `json:"shards,omitempty"`
	// Epoch is the version of the leader's record. It grows with each change, so a later leader has a higher epoch.
	Epoch uint64 `json:"-"`
}

// free reports whether the record names no leader, so that any candidate may take the lease.
func (h *Holder) free() bool { return h.ID == uuid.Nil }

func (h *Holder) String() string {
	if h.Name == "" {
		return h.ID.String()
	}
	return fmt.Sprintf("%s (%s)", h.Name, h.ID)
}

// Work names a kind of work that one process, the leader, does for all processes, such as moving ranges. Each kind of
// work has its own leader.
type Work string

// These are the kinds of work that have a leader. The values are the keys of the leaders' records in the table
// store.Process.
const (
	Moves    Work = "leader"
	Cleaning Work = "cleaner"
)

func (w Work) key() []byte { return []byte(w) }

// shard returns the name of the work w for shard n, which is one group of the buckets. The name is the key of the
// record of the shard's leader. Shard 0 has the name of the whole work.
func (w Work) shard(n int) Work {
	// Old programs that know no shards use the record of the whole work, and so do not lead while another process
	// leads shard 0.
	if n == 0 {
		return w
	}
	return Work(fmt.Sprintf("%s-%d", w, n))
}

// leader returns the word for the leader of the work w in error messages: "cleaner" or "rebalancer". The method lead
// returns a verb phrase such as "lead the cleaning".
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

// HeldError is the error of a process that wants to lead while another process (the Holder) leads. The text of the
// error tells people to which process they should give their commands.
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
	return store.Wrap(w.lead(), store.Errorf(store.Conflict, "%w", &HeldError{h, w}))
}

// form is the version of the format of the leader's record. In version 1 the record has a Holder as JSON.
const form = 1

func seal(v store.Version, h *Holder) (store.Record, error) {
	payload, err := json.Marshal(h)
	if err != nil {
		return store.Record{}, store.Errorf(store.InvalidArgument, "the leader's record: %w", err)
	}
	return record.Seal(form, v, payload), nil
}

// read returns the leader's record of the work w, and the version of the record, which a swap of the record needs. Both
// are zero if there is no record. The argument l is the consistency level of the read.
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

// Current returns the process that leads the work w, by the leader's record in the store. This process may have died
// since. The error is NotFound if no process leads. Current reads from the nearest data centre (Local), so it may miss
// a process that has begun to lead just now.
func Current(ctx context.Context, regs store.Registers, w Work) (Holder, error) {
	h, _, err := read(ctx, regs, w, store.Local)
	if err == nil && h.free() {
		err = store.Errorf(store.NotFound, "no %s leads", w.leader())
	}
	return h, err
}
