// Package history compares the answers that clients of one bucket got with what the clients did: acknowledged writes
// are seen, deleted entries are not, and listings have no holes and no repeats. The package knows nothing of ranges and
// moves. So it can check any run: under failures, under moves, and over any store.
//
// A key is a register that keeps the write with the highest timestamp, whatever the order of arrival. So each write is
// recorded with bounds of its timestamp. Of writes whose order the bounds leave open, either may have won. A write of
// unknown outcome may have happened, may happen later, or may never happen. But once an answer has shown a write, no
// older write is shown again.
//
// A Recorder records calls, and the record is a History. The method Check checks a history, key by key, by what is
// known for sure. The method Linearizable searches for an order of calls that explains the history. Times are ticks of
// a counter, or parameters. So the results are always the same, except that the search may run out of time.
package history

// Instant is a point in the common order of the beginnings and ends of calls. A call that ended at a lower Instant than
// another call began happened before that call.
type Instant int64

// Outcome is what the client that makes a write knows about the write afterwards.
type Outcome uint8

const (
	// Unknown means that the write may have happened, may happen later, or may never happen.
	Unknown Outcome = iota
	// Acknowledged means that the write has happened.
	Acknowledged
	// Refused means that the write has not happened and never will.
	Refused
	// Cleared means that a deletion hid the entry that existed at some moment of the call, and left nothing where no
	// entry existed. A put that comes later shows, even with a lower timestamp.
	Cleared
)

func (o Outcome) String() string {
	switch o {
	case Acknowledged:
		return "acknowledged"
	case Cleared:
		return "cleared"
	case Refused:
		return "refused"
	}
	return "of unknown outcome"
}

// Write is one put or delete of a client. No two puts of a key have the same value.
type Write struct {
	Key, Value string // a deletion has no value
	Delete     bool
	Site       string
	Begin, End Instant
	Outcome    Outcome
	// Low and High are the bounds of the write's timestamp, both inclusive. The bounds of all writes must be of the
	// same kind: exact timestamps, or the time before and after the write by a clock that all writers share.
	Low, High int64
}

// Read is one get of a client that was answered.
type Read struct {
	Key, Value string
	Found      bool
	Site       string
	Begin, End Instant
}

// Item is an entry of a listing: its key and its value.
type Item struct{ Key, Value string }

// Page is one page of a listing that was answered, with its items in the order of the answer.
type Page struct {
	Items      []Item
	Begin, End Instant
	// Last is true if the listing ends with the page. Otherwise the next page begins where the page ended, which may be
	// well beyond the page's last item.
	Last bool
}

// Listing is all pages of one listing, or as many pages as were answered.
type Listing struct {
	// From and To are the bounds of the listing: From <= key < To. An empty bound stands for no bound.
	From, To string
	Reverse  bool
	KeysOnly bool // the items have no values
	Site     string
	Pages    []Page
}

// History is the record of all calls of clients. Writes, reads and listings at the same site, e.g. in one data centre,
// see each other at once. They see those of other sites from the next instant of Joins on.
type History struct {
	Writes   []Write
	Reads    []Read
	Listings []Listing
	Joins    []Instant
}
