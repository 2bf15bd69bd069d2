package forecast

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/partmap/keyspread"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// MostCuts is how many cuts Ahead returns at most.
const MostCuts = 1 << 18

// Fill is how full ranges that are cut ahead should become, as a share of the maximum: a forecast errs by some percent.
const Fill = 0.9

// Options of Ahead.
type Options struct {
	// First is how many more rows are wanted below the first cut, Each how many between two cuts.
	First, Each float64
	// N is how many cuts are wanted, 1 to MostCuts.
	N int
	// End bounds the cuts, which lie below it; empty: nothing does.
	End []byte
	// RowsPerSecond that will come; 0: learn it from the keys. It matters only for keys with a time in them.
	RowsPerSecond float64
	// Now is the wall clock; zero: unknown. Without it a time in the keys is taken for the present.
	Now time.Time
	// Written says when each of the recent keys was written (Unix microseconds); nil: unknown. What was written in no
	// order is not appended.
	Written []int64
}

// Method is the kind of forecast.
type Method string

// The methods.
const (
	// Number: a number grows with the rows.
	Number Method = "number"
	// Clock: a number that is a time grows with the time.
	Clock Method = "clock"
	// Calendar: a date or a time of day, as people write it, grows.
	Calendar Method = "calendar"
)

// Foresight is a forecast of where the next keys fall.
type Foresight struct {
	// Cuts ascend strictly, lie above the highest key and below Options.End, and are as short as may be. There are
	// fewer than Options.N where the others would not lie below Options.End.
	Cuts [][]byte
	// Rows are how many rows are expected to come below each cut, from now on.
	Rows []float64
	// Late is how many rows the first cut comes too late: what is expected below it in excess of First, because keys
	// within the present hour or day come in no order.
	Late   float64
	Method Method
	// How describes what was learned.
	How string
	// Sure is how well the keys lie on a line, 0 to 1.
	Sure float64
}

// Unforeseeable is the error that says why keys can't be forecast.
type Unforeseeable struct{ Reason string }

// Error is the reason.
func (u *Unforeseeable) Error() string { return "the keys to come can't be foreseen: " + u.Reason }

func cannot(format string, args ...any) error {
	return &Unforeseeable{fmt.Sprintf(format, args...)}
}

// errUnlike says that a way of reading the keys does not fit them.
var errUnlike = errors.New("foresee: keys are not like that")

// Fewest is the least number of keys for a forecast; a thousand are better.
const Fewest = 8

// Ahead cuts ahead of the highest of recent: the highest keys of a range, all of them, in ascending order. It fails
// with *Unforeseeable, or with InvalidArgument if something is wrong with what it is given. Nothing that it returns
// shares memory with what it is given.
func Ahead(recent [][]byte, o Options) (*Foresight, error) {
	if err := check(recent, &o); err != nil {
		return nil, err
	}
	if len(recent) < Fewest {
		return nil, cannot("there are %d keys to learn from, at least %d are needed", len(recent), Fewest)
	}
	// Below the prefix that grows there may be others: so from fewer and fewer keys.
	var first error
	for m := len(recent); m >= Fewest && m >= len(recent)/64; m /= 2 {
		keys := recent[len(recent)-m:]
		written := o.Written
		if written != nil {
			written = written[len(recent)-m:]
		}
		below := recent[max(0, len(recent)-2*m) : len(recent)-m]
		f, err := ahead(&tail{keys: keys, below: below, written: written, o: &o})
		var no *Unforeseeable
		switch {
		case err == nil:
			return f, nil
		case errors.As(err, &no):
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	if errors.Is(first, errUnpadded) {
		return nil, cannot("they have numbers without leading zeros (such as in %s), "+
			"which are not in the order of their values",
			text(recent[len(recent)-1]))
	}
	return nil, cannot("nothing in them grows evenly up to the highest, %s", text(recent[len(recent)-1]))
}

func check(recent [][]byte, o *Options) error {
	bad := func(format string, args ...any) error { return store.Errorf(store.InvalidArgument, format, args...) }
	switch {
	case !(o.First >= 0) || math.IsInf(o.First, 0):
		return bad("foresee: First is a number of rows from 0 on, not %v", o.First)
	case !(o.Each > 0) || math.IsInf(o.Each, 0):
		return bad("foresee: Each is a number of rows above 0, not %v", o.Each)
	case o.N < 1 || o.N > MostCuts:
		return bad("foresee: N is from 1 to %d, not %d", MostCuts, o.N)
	case !(o.RowsPerSecond >= 0) || math.IsInf(o.RowsPerSecond, 0):
		return bad("foresee: RowsPerSecond is from 0 on, not %v", o.RowsPerSecond)
	case o.Written != nil && len(o.Written) != len(recent):
		return bad("foresee: %d times of writing for %d keys", len(o.Written), len(recent))
	}
	for i, k := range recent {
		if len(k) == 0 || len(k) > store.MaxKeyBytes {
			return bad("foresee: key %d has %d bytes: 1 to %d", i, len(k), store.MaxKeyBytes)
		}
		if i > 0 && bytes.Compare(recent[i-1], k) >= 0 {
			return bad("foresee: the keys do not ascend: %s before %s", text(recent[i-1]), text(k))
		}
	}
	if n := len(recent); n > 0 && len(o.End) > 0 && bytes.Compare(recent[n-1], o.End) >= 0 {
		return bad("foresee: the highest key %s is not below the end %s", text(recent[n-1]), text(o.End))
	}
	return nil
}

// tail is the keys that one attempt learns from.
type tail struct {
	keys    [][]byte
	below   [][]byte // as many again from below them
	written []int64
	o       *Options
}

func (t *tail) top() []byte { return t.keys[len(t.keys)-1] }

// differ is the first position in which the keys are not all the same.
func (t *tail) differ() int { return keyspread.Common(t.keys[0], t.top()) }

// ahead makes one attempt. errUnlike and errUnpadded say to try fewer keys.
func ahead(t *tail) (*Foresight, error) {
	times := findWords(t)
	if c := findCalendar(t); c != nil {
		times = append(times, c.timeline())
	}
	for _, l := range times {
		if f, err := l.ahead(t); !errors.Is(err, errUnlike) {
			return f, err
		}
	}
	return aheadByNumber(t)
}

// cuts gathers cuts and sees that each is a good one.
type cuts struct {
	t    *tail
	all  [][]byte
	rows []float64
	// full: the next would not lie below the end.
	full bool
}

// add takes a cut with the rows that come below it; errUnlike: it is none.
func (c *cuts) add(cut []byte, rows float64) error {
	last := c.t.top()
	if n := len(c.all); n > 0 {
		last = c.all[n-1]
	}
	switch {
	case len(cut) > store.MaxKeyBytes, bytes.Compare(cut, last) <= 0:
		return errUnlike
	case len(c.t.o.End) > 0 && bytes.Compare(cut, c.t.o.End) >= 0:
		c.full = true
		return nil
	}
	c.all, c.rows = append(c.all, cut), append(c.rows, max(0, rows))
	return nil
}

// done is the foresight, if there is a cut.
func (c *cuts) done(f *Foresight) (*Foresight, error) {
	if len(c.all) == 0 {
		return nil, cannot("the first cut would not lie below the end of the range, %s", text(c.t.o.End))
	}
	f.Cuts, f.Rows = c.all, c.rows
	f.Late = max(0, f.Rows[0]-c.t.o.First)
	return f, nil
}

func text(key []byte) string {
	const most = 80
	if len(key) > most {
		return keytext.Format(key[:most]) + "…"
	}
	return keytext.Format(key)
}

// quoted is a prefix for people.
func quoted(prefix []byte) string {
	if len(prefix) == 0 {
		return "at the beginning of the key"
	}
	return "after '" + text(prefix) + "'"
}
