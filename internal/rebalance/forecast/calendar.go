package forecast

import (
	"bytes"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/internal/keyspread"
)

// unit is a part of a date or of a time of day that digits in a key stand for, such as the month.
type unit int

const (
	year unit = iota
	month
	dayOfMonth
	hour
	minute
	second
	fraction
)

func (u unit) String() string {
	return [...]string{"year", "month", "day", "hour", "minute", "second", "fraction of a second"}[u]
}

// place is the position of one part of a date in the keys, such as the month. The field `at` is the index of its first
// digit, and n is its number of digits.
type place struct {
	unit  unit
	at, n int
}

// calendar describes a date that all keys have at the same place, such as 2026-11-21, 2026/11/21/17, 20261121T171500 or
// year=2026/month=11. The parts of the date come in the usual order, beginning with the year. Each part has a constant
// number of digits, and the bytes between the parts are constant.
type calendar struct {
	// top is the highest key of the range.
	top    []byte
	places []place
	end    int // position in the key at which the date ends
	// times are the dates in the keys, in nanoseconds since 1970, read as if they were UTC.
	times []int64
}

// findCalendar returns the date that all keys contain at the same place, or nil. The parameter t has the keys. The
// result is nil if the keys have no date, or if they already differ in the bytes before the date.
func findCalendar(t *tail) *calendar {
	// Keys that differ before the date are not sorted by the date.
	top := t.top()
	p := t.differ()
	for i := 0; i+6 <= len(top) && i <= p; i++ {
		if !numeral(top[i]) || i > 0 && numeral(top[i-1]) {
			continue
		}
		c := &calendar{top: bytes.Clone(top)}
		c.read(i)
		for len(c.places) >= 2 {
			if c.times = timesOf(t.keys, c.time); c.times != nil {
				return c
			}
			c.shorten()
		}
	}
	return nil
}

// read finds the parts of a date, such as year and month, in the highest key. The parameter `at` is the index of the
// first digit of the date. read stops at the first digits that cannot be the next part of the date.
func (c *calendar) read(at int) {
	const farthest = 10 // most bytes between two parts
	u := year
	for u <= fraction {
		run := 0
		for at+run < len(c.top) && numeral(c.top[at+run]) {
			run++
		}
		// The adjacent digits have to be whole parts: "/0001234" after a day is a counter.
		rest, parts := run, c.places
		compact := u == year || len(parts) == 3 && parts[2].at == parts[0].at+6
		for next := u; rest > 0; next++ {
			n := 2
			switch {
			case next == year:
				n = 4
			case next == fraction:
				n = min(rest, 9)
			case next > fraction:
				return
			}
			if next == fraction && next != u && (!compact || rest%3 != 0) || rest < n {
				return
			}
			parts = append(parts, place{next, at + run - rest, n})
			rest -= n
		}
		if run == 0 {
			return
		}
		c.places = parts
		u = parts[len(parts)-1].unit + 1
		c.end = at + run
		at = c.end
		for at < len(c.top) && !numeral(c.top[at]) && at-c.end < farthest {
			at++
		}
		if u == fraction && (at != c.end+1 || c.top[c.end] != '.' && c.top[c.end] != ',') {
			return
		}
	}
}

// shorten removes the last part of the date, such as the seconds. It is called if that part turns out to be something
// else, e.g. a counter that looked like hours. Parts right before it, without bytes between, are removed as well, since
// they may belong to the same number. The day stays if a part after it is removed, since any digits may follow a day.
func (c *calendar) shorten() {
	n := len(c.places) - 1
	for n > 0 && n != 3 && c.places[n-1].at+c.places[n-1].n == c.places[n].at {
		n--
	}
	if c.places = c.places[:n]; n > 0 {
		c.end = c.places[n-1].at + c.places[n-1].n
	}
}

// time returns the date in the given key, in nanoseconds since 1970. The result ok is false if the key has no valid
// date at the place, or a date before 1990 or after 2150.
func (c *calendar) time(key []byte) (ns int64, ok bool) {
	parts := [...]int{1970, 1, 1, 0, 0, 0, 0}
	at := 0
	for _, p := range c.places {
		if p.unit == fraction {
			// Trailing zeros may be left out, and the point with them.
			v, n := 0, 0
			if at < len(key) && at < p.at && key[at] == c.top[at] || at == p.at {
				for ; n < 9 && p.at+n < len(key) && numeral(key[p.at+n]); n++ {
					v = v*10 + int(key[p.at+n]-'0')
				}
			}
			for ; n < 9; n++ {
				v *= 10
			}
			parts[fraction] = v
			continue
		}
		if p.at+p.n > len(key) || !bytes.Equal(key[at:p.at], c.top[at:p.at]) {
			return 0, false
		}
		v := 0
		for _, b := range key[p.at : p.at+p.n] {
			if !numeral(b) {
				return 0, false
			}
			v = v*10 + int(b-'0')
		}
		parts[p.unit] = v
		at = p.at + p.n
	}
	date := time.Date(parts[year], time.Month(parts[month]), parts[dayOfMonth], 0, 0, 0, 0, time.UTC)
	if parts[year] < 1990 || parts[year] > 2150 || parts[hour] > 23 || parts[minute] > 59 || parts[second] > 60 ||
		int(date.Month()) != parts[month] || date.Day() != parts[dayOfMonth] { // there is no such day
		return 0, false
	}
	seconds := (parts[hour]*60+parts[minute])*60 + parts[second]
	return date.UnixNano() + int64(seconds)*1e9 + int64(parts[fraction]), true
}

// finest returns the position, in the keys, of the last and finest part of the date, such as the seconds.
func (c *calendar) finest() place { return c.places[len(c.places)-1] }

// tick returns the start and the end of the shortest unit that the date shows, such as a second or a month, around the
// time ns. All times are in nanoseconds since 1970. tick becomes the field timeline.tick.
func (c *calendar) tick(ns int64) (from, to int64) {
	switch f := c.finest(); f.unit {
	case month:
		t := time.Unix(0, ns).UTC()
		from := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
		return from.UnixNano(), from.AddDate(0, 1, 0).UnixNano()
	case fraction:
		return floor(ns, int64(math.Pow10(9-min(9, f.n))))
	default:
		return floor(ns, [...]int64{dayOfMonth: 86400e9, hour: 3600e9, minute: 60e9, second: 1e9}[f.unit])
	}
}

func floor(ns, by int64) (from, to int64) {
	from = ns - (ns%by+by)%by
	return from, from + by
}

// timeline returns the date in the keys as a timeline, which is the form that forecasts use for times of any kind.
func (c *calendar) timeline() *timeline {
	return &timeline{
		name: "time", top: c.top, start: c.places[0].at, end: c.end, finest: c.finest().unit.String(), zones: true,
		times: c.times, time: c.time, tick: c.tick, key: c.key,
		cut: func(ns int64) []byte {
			before, _ := c.tick(ns - 1)
			return keyspread.Separator(c.key(before), c.key(ns))
		},
	}
}

// key returns the beginning of all keys that contain the date ns, which is in nanoseconds since 1970. key becomes the
// field timeline.key.
func (c *calendar) key(ns int64) []byte {
	t := time.Unix(0, ns).UTC()
	out := bytes.Clone(c.top[:c.end])
	for _, p := range c.places {
		v := [...]int{t.Year(), int(t.Month()), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond()}[p.unit]
		if p.unit == fraction {
			for range 9 - p.n {
				v /= 10
			}
		}
		for i := p.at + p.n - 1; i >= p.at; i-- {
			out[i] = '0' + byte(v%10)
			v /= 10
		}
	}
	return out
}
