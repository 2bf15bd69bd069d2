package pause

import (
	"context"
	"encoding/json"
	"fmt"
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

// State is the content of the register, which has it as JSON.
type State struct {
	// All is the pause of all moves; nil for none.
	All *Pause `json:"all,omitempty"`
	// Buckets are the pauses of single buckets.
	Buckets []BucketPause `json:"buckets,omitempty"`
	// Begins are the notes of this package.
	Begins []begin `json:"begins,omitempty"`
}

// BucketPause is the pause of a bucket.
type BucketPause struct {
	Bucket store.BucketID `json:"bucket"`
	Pause
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
	p := s.find(id)
	if p == nil || p.over(now) {
		return Pause{}, false
	}
	return *p, true
}

// find returns the pause of a bucket, also one that is over; nil: it has none.
func (s *State) find(id store.BucketID) *Pause {
	i := slices.IndexFunc(s.Buckets, func(b BucketPause) bool { return b.Bucket == id })
	if i < 0 {
		return nil
	}
	return &s.Buckets[i].Pause
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

// form of the record: a State as JSON.
const form = 1

// Read returns the state at a level.
func Read(ctx context.Context, regs store.Registers, l store.Level) (State, error) {
	s, _, err := read(ctx, regs, l)
	return s, err
}

func read(ctx context.Context, regs store.Registers, l store.Level) (s State, v store.Version, err error) {
	text, v, err := record.Read(ctx, regs, store.Process, registerKey, l, form)
	if err == nil && text != nil {
		if jerr := json.Unmarshal(text, &s); jerr != nil {
			err = store.Errorf(store.Corrupt, "%w", jerr)
		}
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
		text, merr := json.Marshal(s)
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
		old := s.All
		if id != nil {
			old = s.find(*id)
		}
		if holds, fresh = p, old == nil; !fresh {
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
		case !fresh:
			*old = holds
		case id == nil:
			s.All = &holds
		case len(s.Buckets) >= maxBuckets:
			return false, store.Errorf(store.InvalidArgument,
				"%d buckets are paused one by one, which is the most: pause all", maxBuckets)
		default:
			s.Buckets = append(s.Buckets, BucketPause{*id, holds})
		}
		return true, nil
	})
	return holds, fresh, err
}

// Lift ends the pause of a bucket (nil: all pauses), and reports whether there was any.
func Lift(ctx context.Context, regs store.Registers, id *store.BucketID) (lifted bool, err error) {
	return lifted, change(ctx, regs, func(s *State) (bool, error) {
		was := len(s.Buckets)
		s.Buckets = slices.DeleteFunc(s.Buckets, func(b BucketPause) bool { return id == nil || b.Bucket == *id })
		found := len(s.Buckets) < was || id == nil && s.All != nil
		lifted = lifted || found
		if id == nil {
			s.All = nil
		}
		return found, nil
	})
}

// forget drops pauses that have ended.
func (s *State) forget(now time.Time) {
	if s.All != nil && s.All.over(now) {
		s.All = nil
	}
	s.Buckets = slices.DeleteFunc(s.Buckets, func(b BucketPause) bool { return b.over(now) })
}

// strike drops begins.
func (s *State) strike(over []begin) (struck bool) {
	n := len(s.Begins)
	s.Begins = slices.DeleteFunc(s.Begins, func(b begin) bool { return slices.Contains(over, b) })
	return len(s.Begins) < n
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
