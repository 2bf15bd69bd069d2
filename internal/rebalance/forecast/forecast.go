package forecast

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// MostCuts is the maximum number of cuts (keys at which empty ranges begin) that Ahead returns, and the maximum of
// Options.N.
const MostCuts = 1 << 18

// Fill is how full a range should become that is made before its rows come, as a share of the maximum number of rows.
// The remaining tenth is for the error of the forecast, which is some percent.
const Fill = 0.9

// Counted takes the place of Fill if a number in the keys counts the rows and no rows are deleted. It is how full a new
// range should become, as a share of the maximum number of rows. A larger share would leave too many tombstones in a
// range that a queue empties.
const Counted = 0.93

// Options are the settings of a forecast: how many cuts are wanted, how many rows should lie between two cuts, and what
// is known besides the keys, e.g. the rate of new rows.
type Options struct {
	// First is the number of new rows wanted below the first cut, at least 0. Each is the number of rows wanted between
	// two cuts, above 0.
	First, Each float64
	// N is the number of cuts wanted, from 1 to MostCuts.
	N int
	// RowsPerSecond is the expected rate of new rows. If RowsPerSecond is 0, the rate is learned from the keys. The
	// rate matters only for keys that contain a time.
	RowsPerSecond float64
	// Now is the present time of the wall clock. If Now is zero, the time in the highest keys is taken for the present
	// time.
	Now time.Time
	// Written are the times at which the recent keys were written, in Unix microseconds, or nil if they are not known.
	// Keys that were not written in the order of the keys are not appended, and cannot be forecast.
	Written []int64
}

// Method says what in the keys the forecast of the next keys is based on: a number that counts, a number that is a
// time, or a date.
type Method string

// These are the methods of a forecast of the next keys. They differ in the part of the keys that grows.
const (
	// Number is the method for keys with a number that grows with the rows, e.g. order/00123.
	Number Method = "number"
	// Clock is the method for keys with a number that stands for a time and grows with the time, e.g. UUIDv7.
	Clock Method = "clock"
	// Calendar is the method for keys with a date or a time of day that people can read, e.g. 2026-11-21.
	Calendar Method = "calendar"
)

// Forecast says where the next keys of a range are expected. It has cuts, which are keys at which empty ranges can be
// made in advance, each for about the wanted number of rows.
type Forecast struct {
	// Cuts are the cuts of a forecast, each as short as possible. The function Ahead returns Options.N cuts above the
	// highest key, in ascending order. The function Below returns at most that number of cuts below the lowest key, in
	// descending order. No two cuts are equal.
	Cuts [][]byte
	// Rows has, for each cut, the number of new rows that are expected before the keys reach the cut.
	Rows []float64
	// Late is the number of rows by which the first cut comes too late: the rows expected before the cut in excess of
	// Options.First. Late is above 0 if keys within the present hour or day come in no order.
	Late   float64
	Method Method
	// Counted is true if a number in the keys counts the rows, so that the cuts are right at any rate of rows.
	Counted bool
	// How describes the growth of the keys for people, e.g. "number after 'order/', step 10.00".
	How string
	// Sure is the certainty of the forecast, from 0 to 1: how well the keys fit a line.
	Sure float64
}

// Unpredictable is the error for keys from which the next keys cannot be forecast, e.g. random keys. Reason says why,
// for people.
type Unpredictable struct{ Reason string }

func (u *Unpredictable) Error() string { return "the next keys can't be forecast: " + u.Reason }

func cannot(format string, args ...any) error {
	return &Unpredictable{fmt.Sprintf(format, args...)}
}

// errUnlike is the error of an attempt to read the keys in one way, e.g. as times, if they do not have that form. The
// caller then tries another way, e.g. as numbers.
var errUnlike = errors.New("forecast: keys are not like that")

// Fewest is the least number of keys from which a forecast of the next keys is made. A thousand keys give a better
// forecast.
const Fewest = 8

// Ahead forecasts the next keys of a range, and returns keys at which to make empty ranges for them in advance (cuts).
// The cuts lie above the highest key. The parameter recent has the highest keys of the range, without gaps, in
// ascending order. The error is *Unpredictable if the keys cannot be forecast, and InvalidArgument for a wrong
// argument. The result shares no memory with the arguments.
func Ahead(recent [][]byte, o Options) (*Forecast, error) {
	if err := check(recent, &o); err != nil {
		return nil, err
	}
	if len(recent) < Fewest {
		return nil, cannot("there are %d keys to learn from, at least %d are needed", len(recent), Fewest)
	}
	// Among the lower keys there may be other prefixes than the one that grows. So each attempt takes half the keys of
	// the last one.
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

// tail is what a forecast learns from: the highest keys of a range, and the times at which they were written.
type tail struct {
	keys    [][]byte
	below   [][]byte // the keys next below, at most as many
	written []int64
	o       *Options
}

func (t *tail) top() []byte { return t.keys[len(t.keys)-1] }

// differ returns the index of the first byte in which the keys are not all the same.
func (t *tail) differ() int { return keyspread.Common(t.keys[0], t.top()) }

// ahead makes one attempt at a forecast from the highest keys of a range, which are in t. If the error is errUnlike or
// errUnpadded, the caller may try again with fewer keys.
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

// add appends a cut, which is a key at which a new range begins, to the forecast. The parameter rows is the number of
// new rows expected below the cut. The result is false, and nothing is appended, if the cut is too long for a key, or
// not above the last cut.
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

// Timed reports whether a key seems to contain the time at which it was written. The forecast of such keys depends on
// the rate of new rows. The parameter `now` is the time of the wall clock; if it is zero, the result is false.
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

// quoted returns words that say where in a key a number or time begins, for texts to people: e.g. "after 'order/'", or
// "at the beginning of the key" if the prefix is empty.
func quoted(prefix []byte) string {
	if len(prefix) == 0 {
		return "at the beginning of the key"
	}
	return "after '" + text(prefix) + "'"
}
