package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// A Pause is a time in which no move begins, in all buckets or in one bucket. It says who paused the moves, why, and
// until when.
type Pause struct {
	// By is the name of the person or program that paused the moves, and Why is the reason; both are for people.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// Since is the time at which the pause began, by the clock of the caller.
	Since time.Time `json:"since"`
	// Until is the time at which the pause ends; zero means never.
	Until time.Time `json:"until,omitzero"`
}

// String describes the pause for people, e.g. "since 2026-01-02T03:04:05Z by ann (backup), until 2026-01-02T04:00:00Z".
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

// State holds all pauses of moves, and the announcements of batches of moves that are about to begin. It is stored as
// JSON in one register, which is a small record that changes by compare-and-swap. So no batch of moves can be announced
// once a pause is stored.
type State struct {
	// All is the pause of the moves of all buckets, or nil.
	All *Pause `json:"all,omitempty"`
	// Buckets are the pauses of single buckets, at most 80.
	Buckets []BucketPause `json:"buckets,omitempty"`
	// Begins are the notes by which processes announce that they are about to begin moves in a bucket, at most 200 (see
	// the package's comment).
	Begins []begin `json:"begins,omitempty"`
}

// BucketPause is a pause of the moves of a single bucket, with the id of the bucket.
type BucketPause struct {
	Bucket store.BucketID `json:"bucket"`
	Pause
}

// begin is a note by which a process announces that it is about to begin a batch (a group) of moves in a bucket. The
// batch begins by a compare-and-swap of the bucket's root, which may come at any time after the note.
type begin struct {
	Bucket store.BucketID `json:"bucket"`
	Epoch  uint64         `json:"epoch"` // the epoch that the swap replaces
}

// Of returns the pause that is in force for the bucket id at the time `now`: the pause of all moves, or else the
// bucket's own pause. The bool is false if moves of the bucket are not paused.
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

// find returns the bucket's own pause, or nil if it has none. A pause that has ended counts as well, and the pause of
// all moves does not. The result points into s, so that the caller may change the pause.
func (s *State) find(id store.BucketID) *Pause {
	i := slices.IndexFunc(s.Buckets, func(b BucketPause) bool { return b.Bucket == id })
	if i < 0 {
		return nil
	}
	return &s.Buckets[i].Pause
}

// of returns the pause that is in force for the bucket id at the time `now`. If id is nil, only a pause of all moves
// counts. The bool is false if no such pause is in force.
func (s *State) of(id *store.BucketID, now time.Time) (Pause, bool) {
	switch {
	case id != nil:
		return s.Of(*id, now)
	case s.All != nil && !s.All.over(now):
		return *s.All, true
	}
	return Pause{}, false
}

// maxText, maxBuckets and maxBegins bound the texts and lists of the stored pauses, so that these stay smaller than the
// largest record of a store (store.MaxRecordBytes).
const (
	maxText    = 200 // bytes of Pause.By and of Pause.Why
	maxBuckets = 80  // number of buckets with pauses of their own
	maxBegins  = 200 // number of notes
)

// registerKey is the key under which the pauses are stored, in the table store.Process.
const registerKey = "pause"

// form is the number of the format in which the pauses are stored. Format 1 is a State as JSON.
const form = 1

// Read returns the state of all pauses of moves, as stored. The argument l is the consistency level of the read: at
// Local the result may be out of date.
func Read(ctx context.Context, regs store.Registers, l store.Level) (s State, err error) {
	text, _, err := record.Read(ctx, regs, store.Process, registerKey, l, form)
	if err == nil {
		s, err = decode(text)
	}
	return s, store.Wrap("read whether moves are paused", err)
}

// decode returns the state of all pauses that is stored as text, or the zero State if text is empty.
func decode(text []byte) (s State, err error) {
	if text != nil {
		if err = json.Unmarshal(text, &s); err != nil {
			return State{}, store.Errorf(store.Corrupt, "%w", err)
		}
	}
	return s, nil
}

// change modifies the stored state of the pauses, by a compare-and-swap. The function f modifies the state; its boolean
// result says whether the state must be written. After a conflict, or a write of unknown outcome, change reads the
// state anew and calls f again. So f must be able to run twice.
func change(ctx context.Context, regs store.Registers, f func(*State) (bool, error)) error {
	var failed error // of f, which says itself what has failed
	err := record.Change(ctx, regs, store.Process, registerKey, form, func(text []byte) ([]byte, error) {
		s, err := decode(text)
		if err != nil {
			return nil, err
		}
		var changed bool
		if changed, failed = f(&s); failed != nil || !changed {
			return nil, nil
		}
		if text, err = json.Marshal(s); err != nil {
			return nil, store.Errorf(store.InvalidArgument, "%w", err)
		}
		return text, nil
	})
	if failed != nil {
		return failed
	}
	return store.Wrap("note whether moves are paused", err)
}

// Set pauses the moves of the bucket id, or all moves if id is nil. If there is a pause already, the old pause stays,
// and its end is moved to the end of p if that is later. The results are:
//   - holds: the pause that is in force afterwards
//   - fresh: true if there was no pause before
//
// The texts By and Why are cut to 200 bytes. Set fails with InvalidArgument if too many buckets (80) have pauses of
// their own.
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

// Lift ends the pause of the bucket id, or all pauses if id is nil. The result lifted is false if there was no pause to
// end.
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

// forget removes from the state the pauses that have ended at the time `now`.
func (s *State) forget(now time.Time) {
	if s.All != nil && s.All.over(now) {
		s.All = nil
	}
	s.Buckets = slices.DeleteFunc(s.Buckets, func(b BucketPause) bool { return b.over(now) })
}

// strike removes the given announcements of batches of moves from the state. The batches have begun, or can't begin any
// more. The result is true if the state had at least one of the announcements.
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
