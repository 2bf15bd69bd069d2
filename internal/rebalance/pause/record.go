package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// Pause is one pause, of all moves or of those of a bucket.
type Pause struct {
	// By is who paused, and Why the reason, for people.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// Since is the beginning, by the clock of the caller.
	Since time.Time `json:"since"`
	// Until is the end; zero: none.
	Until time.Time `json:"until,omitzero"`
}

// String is a text for people.
func (p Pause) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "since %s", p.Since.UTC().Format(time.RFC3339))
	if p.By != "" {
		fmt.Fprintf(&b, " by %s", p.By)
	}
	if p.Why != "" {
		fmt.Fprintf(&b, " (%s)", p.Why)
	}
	if !p.Until.IsZero() {
		fmt.Fprintf(&b, ", until %s", p.Until.UTC().Format(time.RFC3339))
	}
	return b.String()
}

func (p Pause) over(now time.Time) bool { return !p.Until.IsZero() && now.After(p.Until) }

// State is the content of the register.
type State struct {
	// All is the pause of all moves; nil for none.
	All *Pause
	// Buckets are the pauses of single buckets.
	Buckets map[store.BucketID]Pause
	begins  []begin
}

// begin is a note: a swap that begins a batch may be pending.
type begin struct {
	Bucket store.BucketID `json:"bucket"`
	Epoch  uint64         `json:"epoch"` // which the swap replaces
}

// Of returns the pause of a bucket at a time, if there is one.
func (s *State) Of(id store.BucketID, now time.Time) (Pause, bool) {
	if s.All != nil && !s.All.over(now) {
		return *s.All, true
	}
	p, found := s.Buckets[id]
	return p, found && !p.over(now)
}

// of is Of; for nil, the pause of all moves.
func (s *State) of(id *store.BucketID, now time.Time) (Pause, bool) {
	switch {
	case id != nil:
		return s.Of(*id, now)
	case s.All != nil && !s.All.over(now):
		return *s.All, true
	}
	return Pause{}, false
}

// The limits keep the record below store.MaxRecordBytes.
const (
	maxText    = 200 // bytes of Pause.By and of Why
	maxBuckets = 80  // with pauses of their own
	maxBegins  = 200
)

// registerKey is the key of the record, in store.Process.
const registerKey = "pause"

// form of the record: a payload as JSON.
const form = 1

type payload struct {
	All     *Pause        `json:"all,omitempty"`
	Buckets []bucketPause `json:"buckets,omitempty"`
	Begins  []begin       `json:"begins,omitempty"`
}

type bucketPause struct {
	Bucket store.BucketID `json:"bucket"`
	Pause
}

func (s *State) encode() ([]byte, error) {
	p := payload{All: s.All, Begins: s.begins}
	for id, b := range s.Buckets {
		p.Buckets = append(p.Buckets, bucketPause{id, b})
	}
	return json.Marshal(p)
}

func decode(text []byte) (State, error) {
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return State{}, store.Errorf(store.Corrupt, "%w", err)
	}
	s := State{All: p.All, Buckets: map[store.BucketID]Pause{}, begins: p.Begins}
	for _, b := range p.Buckets {
		s.Buckets[b.Bucket] = b.Pause
	}
	return s, nil
}

// Read returns the state at a level.
func Read(ctx context.Context, regs store.Registers, l store.Level) (State, error) {
	s, _, err := read(ctx, regs, l)
	return s, err
}

func read(ctx context.Context, regs store.Registers, l store.Level) (s State, v store.Version, err error) {
	text, v, err := record.Read(ctx, regs, store.Process, registerKey, l, form)
	if err == nil && text == nil {
		return State{Buckets: map[store.BucketID]Pause{}}, v, nil
	}
	if err == nil {
		s, err = decode(text)
	}
	if err != nil {
		return State{}, store.Version{}, store.Wrap("read whether moves are paused", err)
	}
	return s, v, nil
}

// change reads the state, changes it and swaps it in, until a swap is known to be applied. Each
// try calls f, which reports whether it has changed anything. f's change may be applied twice.
func change(ctx context.Context, regs store.Registers, f func(*State) (bool, error)) error {
	const tries = 20
	var err error
	for range tries {
		var s State
		var v store.Version
		if s, v, err = read(ctx, regs, store.Serial); err != nil {
			break
		}
		changed, ferr := f(&s)
		if ferr != nil || !changed {
			return ferr
		}
		text, merr := s.encode()
		if merr != nil {
			return store.Errorf(store.InvalidArgument, "%w", merr)
		}
		err = regs.Swap(ctx, store.Process, []byte(registerKey), v, record.Seal(form, record.Next(v), text))
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return store.Wrap("note whether moves are paused", err)
}

// Set pauses the moves of a bucket (nil: all moves). A pause that exists stays, and its end is
// extended to that of p. It returns the pause that holds, and whether it is new. By and Why are
// cut to 200 bytes. It fails with InvalidArgument if too many buckets have pauses of their own.
func Set(
	ctx context.Context, regs store.Registers, id *store.BucketID, p Pause, now time.Time,
) (holds Pause, fresh bool, err error) {
	p.By, p.Why = clip(p.By), clip(p.Why)
	err = change(ctx, regs, func(s *State) (bool, error) {
		s.forget(now)
		old, found := s.All, s.All != nil
		if id != nil {
			var b Pause
			b, found = s.Buckets[*id]
			old = &b
		}
		if holds, fresh = p, !found; found {
			holds = *old
			switch {
			case holds.Until.IsZero():
				return false, nil
			case p.Until.IsZero() || p.Until.After(holds.Until):
				holds.Until = p.Until
			default:
				return false, nil
			}
		}
		switch {
		case id == nil:
			s.All = &holds
		case fresh && len(s.Buckets) >= maxBuckets:
			return false, store.Errorf(store.InvalidArgument,
				"%d buckets are paused one by one, which is the most: pause all", maxBuckets)
		default:
			s.Buckets[*id] = holds
		}
		return true, nil
	})
	return holds, fresh, err
}

// Lift ends the pause of a bucket (nil: all pauses), and reports whether there was any.
func Lift(ctx context.Context, regs store.Registers, id *store.BucketID) (lifted bool, err error) {
	return lifted, change(ctx, regs, func(s *State) (bool, error) {
		if id != nil {
			_, found := s.Buckets[*id]
			lifted = lifted || found
			delete(s.Buckets, *id)
			return found, nil
		}
		found := s.All != nil || len(s.Buckets) > 0
		lifted = lifted || found
		s.All = nil
		clear(s.Buckets)
		return found, nil
	})
}

// forget drops pauses that have ended.
func (s *State) forget(now time.Time) {
	if s.All != nil && s.All.over(now) {
		s.All = nil
	}
	maps.DeleteFunc(s.Buckets, func(_ store.BucketID, p Pause) bool { return p.over(now) })
}

// strike drops begins.
func (s *State) strike(over []begin) (struck bool) {
	n := len(s.begins)
	s.begins = slices.DeleteFunc(s.begins, func(b begin) bool { return slices.Contains(over, b) })
	return len(s.begins) < n
}

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	at := maxText
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at]
}
