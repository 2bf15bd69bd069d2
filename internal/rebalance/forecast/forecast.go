package forecast

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap/keyspread"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// MostCuts is how many cuts Ahead returns at most.
const MostCuts = 1 << 18

// Fill is how full ranges that are cut ahead should become, as a share of the maximum: a forecast errs by some percent.
const Fill = 0.9

// Counted is how full they should become where the keys count the rows: a range that a queue has emptied must not have
// so many tombstones that it is refreshed while it is being emptied.
const Counted = 0.93

// Options of Ahead.
type Options struct {
	// First is how many more rows are wanted below the first cut, Each how many between two cuts.
	First, Each float64
	// N is how many cuts are wanted, 1 to MostCuts.
	N int
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

// Forecast says where the next keys fall.
type Forecast struct {
	// Cuts are Options.N cuts above the highest key, strictly ascending, each as short as possible.
	Cuts [][]byte
	// Rows are how many rows are expected to come below each cut, from now on.
	Rows []float64
	// Late is how many rows the first cut comes too late: what is expected below it in excess of First, because keys
	// within the present hour or day come in no order.
	Late   float64
	Method Method
	// Counted: the keys have a number that counts them, so the cuts are right at whatever rate rows come.
	Counted bool
	// How describes what was learned.
	How string
	// Sure is how well the keys lie on a line, 0 to 1.
	Sure float64
}

// Unpredictable is the error for keys that can't be forecast, with the reason.
type Unpredictable struct{ Reason string }

func (u *Unpredictable) Error() string { return "the next keys can't be forecast: " + u.Reason }

func cannot(format string, args ...any) error {
	return &Unpredictable{fmt.Sprintf(format, args...)}
}

// errUnlike is returned by a way of reading keys that does not fit them.
var errUnlike = errors.New("forecast: keys are not like that")

// Fewest is the least number of keys for a forecast; a thousand are better.
const Fewest = 8

// Ahead cuts ahead of the highest of recent: the highest keys of a range, all of them, in ascending order. It fails
// with *Unpredictable, or with InvalidArgument for a wrong argument. The result shares no memory with the arguments.
func Ahead(recent [][]byte, o Options) (*Forecast, error) {
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
		var no *Unpredictable
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
		return bad("forecast: First is a number of rows from 0 on, not %v", o.First)
	case !(o.Each > 0) || math.IsInf(o.Each, 0):
		return bad("forecast: Each is a number of rows above 0, not %v", o.Each)
	case o.N < 1 || o.N > MostCuts:
		return bad("forecast: N is from 1 to %d, not %d", MostCuts, o.N)
	case !(o.RowsPerSecond >= 0) || math.IsInf(o.RowsPerSecond, 0):
		return bad("forecast: RowsPerSecond is from 0 on, not %v", o.RowsPerSecond)
	case o.Written != nil && len(o.Written) != len(recent):
		return bad("forecast: %d times of writing for %d keys", len(o.Written), len(recent))
	}
	for i, k := range recent {
		if len(k) == 0 || len(k) > store.MaxKeyBytes {
			return bad("forecast: key %d has %d bytes: 1 to %d", i, len(k), store.MaxKeyBytes)
		}
		if i > 0 && bytes.Compare(recent[i-1], k) >= 0 {
			return bad("forecast: the keys do not ascend: %s before %s", text(recent[i-1]), text(k))
		}
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
func ahead(t *tail) (*Forecast, error) {
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

// add appends a cut with the number of rows below it. It returns false for a cut that is too long, or not above the
// one before.
func (f *Forecast) add(t *tail, cut []byte, rows float64) bool {
	last := t.top()
	if n := len(f.Cuts); n > 0 {
		last = f.Cuts[n-1]
	} else {
		f.Late = max(0, rows-t.o.First)
	}
	if len(cut) > store.MaxKeyBytes || bytes.Compare(cut, last) <= 0 {
		return false
	}
	f.Cuts, f.Rows = append(f.Cuts, cut), append(f.Rows, max(0, rows))
	return true
}

// Timed reports whether a key has a time in it that may be that of its writing, by the wall clock: where the next keys
// fall depends on how fast they come.
func Timed(key []byte, now time.Time) bool {
	if len(key) == 0 || now.IsZero() {
		return false
	}
	t := &tail{keys: [][]byte{key}, o: &Options{Now: now}}
	times := findWords(t)
	if c := findCalendar(t); c != nil {
		times = append(times, c.timeline())
	}
	return slices.ContainsFunc(times, func(l *timeline) bool {
		from, to := l.tick(l.times[0])
		return l.plausible(t, 1, float64(l.times[0])/1e9, float64(to-from)/1e9)
	})
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
