package heat

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// State is the state of a move of ranges in the log of moves, e.g. begun or refused.
type State string

// These are the states that a move of ranges can have in the log of moves.
const (
	Begun   State = "begun"
	Met     State = "met"
	Refused State = "refused"
	Dropped State = "dropped"
	// Left is the state of a move whose process ended before the move did. Another process completes the move.
	Left State = "left"
)

// Event is the entry for one move of ranges in the log of moves, e.g. for a split. It has the reason for the move and
// the state of the move.
type Event struct {
	// ID is the number of the event, which grows with each event of a log.
	ID     int64          `json:"id"`
	Bucket store.BucketID `json:"bucket_id"`
	// Name is the name of the bucket, if the name is known. A Log leaves Name empty.
	Name string `json:"bucket,omitempty"`
	// Kind is the kind of the move, e.g. split. By says who asked for the move: "automatic" or "request".
	Kind string `json:"kind"`
	By   string `json:"by"`
	// Start and End are the bounds of the keys in the move. Cuts are the first 8 keys at which the ranges are cut. Long
	// keys are cut short. Parts is the number of ranges after the move.
	Start keytext.Key  `json:"start"`
	End   keytext.Key  `json:"end"`
	Cuts  keytext.Keys `json:"cuts"`
	Parts int          `json:"parts"`
	// Rows is the estimated number of rows in the ranges before the move. Copies is the estimated number of rows to
	// copy. Copied is the number of rows that were copied.
	Rows   int64 `json:"rows"`
	Copies int64 `json:"copies"`
	Copied int64 `json:"copied"`
	// Cause is the reason for the move in one word. Why is the reason in a sentence.
	Cause string    `json:"cause,omitempty"`
	Why   string    `json:"why,omitempty"`
	State State     `json:"state"`
	Asked time.Time `json:"asked,omitzero"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Job is the id of the job that the move belongs to. Error says why the move was refused.
	Job   string `json:"job,omitempty"`
	Error string `json:"error,omitempty"`
}

const (
	// mostEvents is the maximum number of events in a log of moves. logBytes is the approximate maximum of the log's
	// memory in bytes.
	mostEvents = 20_000
	logBytes   = 16 << 20
	// cutsKept is the maximum number of cuts in an event. eventKey and eventText are the maximum numbers of bytes of
	// each key and each text. eventBytes is the memory of an event without its keys and texts.
	cutsKept   = 8
	eventKey   = 256
	eventText  = 512
	eventBytes = 400
)

// Log is a list of the latest moves of ranges, in the order of their ids. Each entry is an Event. The log forgets the
// oldest events, so that it has at most 20,000 events and takes about 16 MiB at most. A Log is not safe for concurrent
// use.
type Log struct {
	events []Event
	last   int64
	bytes  int
}

func (e *Event) size() int {
	n := eventBytes + len(e.Start) + len(e.End) + len(e.Kind) + len(e.Why) + len(e.Error)
	for _, c := range e.Cuts {
		n += 24 + len(c)
	}
	return n
}

func short[T ~string | ~[]byte](s T, most int) T { return s[:min(len(s), most)] }

func (e *Event) bound() {
	e.Start, e.End = slices.Clone(short(e.Start, eventKey)), slices.Clone(short(e.End, eventKey))
	cuts := make(keytext.Keys, 0, min(len(e.Cuts), cutsKept))
	for _, c := range e.Cuts[:min(len(e.Cuts), cutsKept)] {
		cuts = append(cuts, slices.Clone(short(c, eventKey)))
	}
	e.Cuts, e.Why, e.Error = cuts, short(e.Why, eventText), short(e.Error, eventText)
}

// Add appends the event e, which is a move of ranges, to the log. The result is the event as the log keeps it: with its
// id, and with long keys and texts cut short.
func (l *Log) Add(e Event) Event {
	l.last++
	e.ID = l.last
	e.bound()
	l.events = append(l.events, e)
	l.bytes += e.size()
	for len(l.events) > mostEvents || l.bytes > logBytes {
		l.bytes -= l.events[0].size()
		l.events[0] = Event{}
		l.events = l.events[1:]
	}
	return e
}

// Change calls the function change to modify the event with the given id, and returns the modified event. The boolean
// result is false if the log has forgotten the event.
func (l *Log) Change(id int64, change func(*Event)) (Event, bool) {
	i, ok := l.find(id)
	if !ok {
		return Event{}, false
	}
	e := &l.events[i]
	l.bytes -= e.size()
	change(e)
	e.bound()
	l.bytes += e.size()
	return *e, true
}

// find returns the index, in the log, of the event with the given id. If there is no such event, the boolean result is
// false, and the index is that of the first event with a higher id.
func (l *Log) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(l.events, id, func(e Event, id int64) int { return int(min(1, max(-1, e.ID-id))) })
}

// Before calls f for each event of the log whose id is below the given id, from the newest event to the oldest, until f
// returns false. If id is 0, all events count.
func (l *Log) Before(id int64, f func(*Event) bool) {
	i := len(l.events)
	if id > 0 {
		i, _ = l.find(id)
	}
	for i--; i >= 0; i-- {
		if !f(&l.events[i]) {
			return
		}
	}
}

// Clone returns a copy of the log of moves, which does not change when l is changed later.
func (l *Log) Clone() *Log { return &Log{slices.Clone(l.events), l.last, l.bytes} }

// Last returns the id of the newest event that was ever added to the log, or 0 if no event was added.
func (l *Log) Last() int64 { return l.last }
