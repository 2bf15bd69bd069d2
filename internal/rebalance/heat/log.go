package heat

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// State is how far a move of an Event has come.
type State string

// The states of a move.
const (
	Begun   State = "begun"
	Met     State = "met"
	Refused State = "refused"
	Dropped State = "dropped"
	// Left: the process that noted it ended first. Whoever leads next completes it.
	Left State = "left"
)

// Event is a move of some ranges of a bucket.
type Event struct {
	// ID grows with each event.
	ID     int64          `json:"id"`
	Bucket store.BucketID `json:"bucket_id"`
	// Name is the bucket's, as far as it is known; a Log leaves it empty.
	Name string `json:"bucket,omitempty"`
	// Kind is what was done, like split or roll, and By who wanted it: automatic or request.
	Kind string `json:"kind"`
	By   string `json:"by"`
	// Start, End and Cuts are the keys, the first few of Cuts and the beginnings of long ones; Parts is into how many
	// ranges.
	Start keytext.Key  `json:"start"`
	End   keytext.Key  `json:"end"`
	Cuts  keytext.Keys `json:"cuts"`
	Parts int          `json:"parts"`
	// Rows that the ranges had, Copies those to copy, both about; Copied those that were.
	Rows   int64 `json:"rows"`
	Copies int64 `json:"copies"`
	Copied int64 `json:"copied"`
	// Cause is the reason in one word, Why in a sentence.
	Cause string    `json:"cause,omitempty"`
	Why   string    `json:"why,omitempty"`
	State State     `json:"state"`
	Asked time.Time `json:"asked,omitzero"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Job is the job, and Error why the move was refused.
	Job   string `json:"job,omitempty"`
	Error string `json:"error,omitempty"`
}

const (
	// mostEvents and logBytes bound a Log.
	mostEvents = 20_000
	logBytes   = 16 << 20
	// cutsKept, eventKey and eventText bound an event.
	cutsKept   = 8
	eventKey   = 256
	eventText  = 512
	eventBytes = 400
)

// Log is the last events, by their ids. It is not safe for concurrent use.
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

// Add adds an event and returns it as it is kept, with its id.
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

// Change changes an event that is still kept, and returns it.
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

// find returns where an event is, or the first one above it would be.
func (l *Log) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(l.events, id, func(e Event, id int64) int { return int(min(1, max(-1, e.ID-id))) })
}

// Before returns the events below an id (0: all), the newest first, until f is false.
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

// Clone copies the log.
func (l *Log) Clone() *Log { return &Log{slices.Clone(l.events), l.last, l.bytes} }

// Last is the id of the last event.
func (l *Log) Last() int64 { return l.last }
