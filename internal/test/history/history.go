// Package history checks what clients of one bucket were told against what they
// did: acknowledged writes are seen, deleted entries are not, listings have no
// holes and no repeats. It knows nothing of ranges and moves, so it may judge any
// run: under failures, under moves, over any store.
//
// A key is a register that keeps the write with the highest timestamp, whatever
// the order of arrival. Each write is therefore recorded with bounds of its
// timestamp. Of writes whose order the bounds leave open either may have won, and
// a write of unknown outcome may have happened, may happen later, or never; but
// once something was shown, nothing older is shown again.
//
// Recorder takes down what happens; History is what it took down, and Check
// judges it, key by key, by what is known for sure; Linearizable searches for an
// order of calls that explains it. The package is pure, but for the patience of that
// search: times are ticks of a counter or are passed in.
package history

// Instant orders the beginnings and ends of calls, as everybody saw them. What
// ended at an Instant below another's beginning happened before it.
type Instant int64

// Outcome is what a writer was told.
type Outcome uint8

const (
	// Unknown: the write may have happened, may happen later, or never.
	Unknown Outcome = iota
	// Acknowledged: it has happened.
	Acknowledged
	// Refused: it has not happened and never will.
	Refused
	// Cleared: a deletion hid what was there at some moment of the call, and left nothing where nothing was: what
	// comes later shows, also with a lower timestamp.
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

// Write is one put or delete. No two puts of a key have the same value.
type Write struct {
	Key, Value string // a deletion has no value
	Delete     bool
	Site       string
	Begin, End Instant
	Outcome    Outcome
	// Low and High bound the write's timestamp, both included. The bounds of all
	// writes are of the same kind: exact timestamps, or those that a clock common to all
	// writers showed before and after.
	Low, High int64
}

// Read is one answered get.
type Read struct {
	Key, Value string
	Found      bool
	Site       string
	Begin, End Instant
}

// Item is an entry of a listing.
type Item struct{ Key, Value string }

// Page is one answered page of a listing, its items in the order in which they
// came.
type Page struct {
	Items      []Item
	Begin, End Instant
	// Last: the listing ends here. Otherwise a page goes on where the one before
	// ended, which may be well beyond its last item.
	Last bool
}

// Listing is all pages of one listing, or as many as were answered.
type Listing struct {
	// From <= key < To; empty is no bound.
	From, To string
	Reverse  bool
	KeysOnly bool // the items have no values
	Site     string
	Pages    []Page
}

// History is what was recorded. Only writes, reads and listings of the same site
// (a data centre, say) see each other at once; those of other sites from the first
// of Joins on that is not before them.
type History struct {
	Writes   []Write
	Reads    []Read
	Listings []Listing
	Joins    []Instant
}
