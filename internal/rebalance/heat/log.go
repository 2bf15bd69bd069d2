package heat

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// State is the state of a move of ranges in the log of moves, such as begun or refused.
type State string

// The states of a move.
const (
	Begun   State = "begun"
	Met     State = "met"
	Refused State = "refused"
	Dropped State = "dropped"
	// Left: the process that logged the move ended before the move. The next leader completes it.
	Left State = "left"
)

// Event is the entry of a log for one move of ranges of a bucket. It has the reason for the move and its state.
type Event struct {
	// ID is a number that grows with each event of a log.
	ID     int64          `json:"id"`
	Bucket store.BucketID `json:"bucket_id"`
	// Name is the bucket's name, if it is known. A Log leaves it empty.
	Name string `json:"bucket,omitempty"`
	// Kind is the kind of move, like split or roll. By is who asked for the move: automatic or request.
	Kind string `json:"kind"`
	By   string `json:"by"`
	// Start and End bound the move, Cuts are the first few of its cuts; long keys are cut short. Parts is the number of
	// ranges afterwards.
	Start keytext.Key  `json:"start"`
	End   keytext.Key  `json:"end"`
	Cuts  keytext.Keys `json:"cuts"`
	Parts int          `json:"parts"`
	// Rows is about the number of rows that the ranges had, and Copies about the number of rows to copy. Copied is the
	// number of rows copied.
	Rows   int64 `json:"rows"`
	Copies int64 `json:"copies"`
	Copied int64 `json:"copied"`
	// Cause is the reason in one word, Why the reason in a sentence.
	Cause string    `json:"cause,omitempty"`
	Why   string    `json:"why,omitempty"`
	State State     `json:"state"`
	Asked time.Time `json:"asked,omitzero"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Job is the id of the move's job. Error says why the move was refused.
	Job   string `json:"job,omitempty"`
	Error string `json:"error,omitempty"`
}

const (
	// mostEvents and logBytes bound a Log: its events, and about the bytes of its memory.
	mostEvents = 20_000
	logBytes   = 16 << 20
	// cutsKept bounds the cuts of an event, eventKey and eventText the bytes of each key and text. eventBytes is the
	// memory of the rest.
	cutsKept   = 8
	eventKey   = 256
	eventText  = 512
	eventBytes = 400
)

// Log is a list of the latest moves of ranges, each an Event, in the order of their ids. It forgets the oldest events
// to stay within bounds. It is not safe for concurrent use.
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

// Add adds the event e, a move of ranges, to the log. It returns the event as the log keeps it: with its id, and with
// long keys and texts cut short.
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

// Change changes the event with this id in the log, by calling change. It returns the changed event, and true. It
// returns false if the log has forgotten the event.
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

// find returns the index, in the log, of the event with this id, and true. If there is none, it returns the index of
// the first event with a higher id, and false.
func (l *Log) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(l.events, id, func(e Event, id int64) int { return int(min(1, max(-1, e.ID-id))) })
}

// Before calls f for each event of the log whose id is below the given id, from the newest to the oldest. It stops when
// f returns false. With the id 0 it goes through all events.
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

// Clone returns a copy of the log of moves that later changes of l do not reach.
func (l *Log) Clone() *Log { return &Log{slices.Clone(l.events), l.last, l.bytes} }

// Last returns the id of the event that was added last to the log; 0 if none was ever added.
func (l *Log) Last() int64 { return l.last }
