package retention

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/store"
)

// A form is the way in which times are written in keys. It is either a layout, for texts such as 2006-01-02, or a
// number, for example of milliseconds since 1970.
type form interface {
	// before returns the interval of texts, from <= text < to, that begin with a time before t. If a time names a
	// period, such as a day, the whole period must be before t. If there are no such texts, from is nil. If the
	// interval has no end, to is nil.
	before(t time.Time) (from, to []byte)
	// read returns the time with which the text begins. It fails if the text begins with no time of this form.
	read(text []byte) (time.Time, error)
	// least returns the earliest credible time. If a number in a key gives an earlier time, the number must be in
	// another unit, such as seconds instead of milliseconds.
	least() time.Time
}

// Written is the value of Rule.Time for a rule that goes by the time at which an entry was put last. Such a rule needs
// no time in the key of the entry.
const Written = "written"

// form returns the way in which times are written in the keys of the rule, as the field r.Time describes it (2006-01-02
// or decimal-ms, for example). form fails if
//   - r.Time is no valid description, or
//   - r.NewestFirst is set and the times are not written as numbers.
func (r *Rule) form() (form, error) {
	if strings.HasPrefix(r.Time, elements[0]) {
		if err := checkLayout(r.Time); err != nil {
			return nil, err
		}
		if r.NewestFirst {
			return nil, fmt.Errorf("newest-first is for numbers: keys with %s come in the order of their time", r.Time)
		}
		return layout(r.Time), nil
	}
	encoding, name, _ := strings.Cut(r.Time, "-")
	i := slices.IndexFunc(units, func(u unit) bool { return u.name == name })
	if !slices.Contains([]string{"decimal", "binary", "tuple"}, encoding) || i < 0 {
		return nil, fmt.Errorf("time %q is no form: give a layout such as 2006-01-02, 2006/01/02/15 or 20060102T150405, or "+
			"decimal, binary or tuple, a hyphen, and day, hour, s, ms, us, ns or snowflake, such as decimal-ms; or written, "+
			"for the time of the put", r.Time)
	}
	return number{encoding, &units[i], r.NewestFirst}, nil
}

// A layout is a way of writing times in keys as text, in the notation of package time. For example, 2006-01-02 stands
// for days. All texts of a layout have the same length, and the order of the texts is the order of the times.
type layout string

// elements are the numbers that make up a layout, a text such as 2006-01-02 that says how times are written: year,
// month, day, hour, minute and second. A layout must have them in this order, from the year on, but may end early.
var elements = []string{"2006", "01", "02", "15", "04", "05"}

// checkLayout returns nil if the text is a usable layout, such as 2006-01-02: one whose times sort as texts in the
// order of the times. Otherwise it returns an error that says what a layout must be.
func checkLayout(text string) error {
	rest, n := text, 0
	for ; rest != ""; n++ {
		if n == len(elements) || !strings.HasPrefix(rest, elements[n]) {
			return fmt.Errorf("time %q is no layout of fixed width that sorts: it has 2006, 01, 02, 15, 04 and 05 in this "+
				"order, from the year as far as you like, with %s or nothing between them", text, separators)
		}
		rest = strings.TrimLeft(rest[len(elements[n]):], separators)
	}
	return nil
}

// separators are the characters that may stand between the numbers of a layout. A layout is a text such as 2006-01-02
// that says how times are written in keys.
const separators = "-/._:TZ "

func (l layout) before(t time.Time) (from, to []byte) {
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return nil, nil
	}
	from, to = time.Time{}.AddDate(-1, 0, 0).AppendFormat(nil, string(l)), t.AppendFormat(nil, string(l))
	if string(from) >= string(to) {
		return nil, nil
	}
	return from, to
}

func (l layout) read(text []byte) (time.Time, error) {
	if len(text) < len(l) {
		return time.Time{}, errors.New("it is too short")
	}
	return time.Parse(string(l), string(text[:len(l)]))
}

func (layout) least() time.Time { return time.Time{} }

// A unit is a unit of time, such as the millisecond, in which keys may count the time since 1970.
type unit struct {
	name   string
	digits int // number of digits of the present time as a decimal number
	of     func(time.Time) int64
	time   func(int64) time.Time
	// least is the earliest credible time. If a number gives an earlier time, the number is in another unit: today's
	// milliseconds, for example, are in January of 1970 if they are taken for microseconds.
	least time.Time
}

var (
	// firstYear is the end of the year 1970, the earliest credible time in a key. If a number in a larger unit is taken
	// for one in a smaller unit, it gives a time before firstYear, which shows the mistake.
	firstYear = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

	units = []unit{
		{"day", 5, whole(24 * time.Hour), wholes(24 * time.Hour), firstYear},
		{"hour", 6, whole(time.Hour), wholes(time.Hour), firstYear},
		{"s", 10, time.Time.Unix, func(v int64) time.Time { return time.Unix(v, 0) }, firstYear},
		{"ms", 13, time.Time.UnixMilli, time.UnixMilli, firstYear},
		{"us", 16, time.Time.UnixMicro, time.UnixMicro, firstYear},
		{"ns", 19, nanoseconds, func(v int64) time.Time { return time.Unix(0, v) }, firstYear},
		{"snowflake", 19, keys.FirstSnowflake, keys.SnowflakeTime, keys.SnowflakeTime(0).AddDate(0, 1, 0)},
	}
)

// whole returns the function that converts a time to the number of whole units since 1970, such as days. The parameter
// d is the length of the unit.
func whole(d time.Duration) func(time.Time) int64 {
	return func(t time.Time) int64 { return t.Unix() / int64(d/time.Second) }
}

// wholes returns the function that converts a number of units since 1970, such as days, to a time. The parameter d is
// the length of the unit.
func wholes(d time.Duration) func(int64) time.Time {
	return func(v int64) time.Time { // a number too large for a time becomes a time far in the future
		return time.Unix(min(v, math.MaxInt64/int64(d/time.Second))*int64(d/time.Second), 0)
	}
}

// nanoseconds returns the number of nanoseconds from 1970 to a time, or the largest int64 if the time is later than an
// int64 can count.
func nanoseconds(t time.Time) int64 {
	if t.Unix() > math.MaxInt64/int64(time.Second)-1 {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// A number is a way of writing times in keys: as the number of units, such as milliseconds, since 1970. The encoding is
// "decimal" (text), "binary" (eight bytes) or "tuple" (an integer of package keys).
type number struct {
	encoding    string
	unit        *unit
	newestFirst bool
}

func (n number) least() time.Time { return n.unit.least }

// nines returns the greatest decimal number that has as many digits as the numbers in keys, such as 99999 for days. It
// is for keys in which the newest time comes first: such a key has nines minus the number, in place of the number.
func (n number) nines() uint64 {
	v := uint64(1)
	for range n.unit.digits {
		v *= 10
	}
	return v - 1
}

func (n number) before(t time.Time) (from, to []byte) {
	if t.Unix() <= 0 {
		return nil, nil
	}
	end := uint64(n.unit.of(t))
	if n.encoding == "decimal" {
		end = min(end, n.nines())
	}
	switch {
	case end == 0:
		return nil, nil
	case n.newestFirst:
		return n.encode(end - 1), store.PrefixEnd(n.encode(0))
	}
	return n.encode(0), n.encode(end)
}

// encode returns the bytes that stand in keys for a time. v is the time as a number of units, such as milliseconds,
// since 1970.
func (n number) encode(v uint64) []byte {
	switch n.encoding {
	case "tuple":
		e := keys.Uint(v)
		if n.newestFirst {
			e = keys.Desc(e)
		}
		return keys.Of(e)
	case "binary":
		if n.newestFirst {
			v = ^v
		}
		return keys.BigEndian(v)
	}
	if n.newestFirst {
		v = n.nines() - v
	}
	return fmt.Appendf(nil, "%0*d", n.unit.digits, v)
}

func (n number) read(text []byte) (time.Time, error) {
	var v uint64
	switch n.encoding {
	case "tuple":
		r := keys.Read(text)
		v = r.Uint()
		if string(n.encode(v)) != string(text[:len(text)-len(r.Rest())]) {
			return time.Time{}, errors.New("it has no such element")
		}
	case "binary":
		if len(text) < 8 {
			return time.Time{}, errors.New("it is too short")
		}
		if v = binary.BigEndian.Uint64(text); n.newestFirst {
			v = ^v
		}
	default:
		digits := text[:len(text)-len(bytes.TrimLeft(text, "0123456789"))]
		var err error
		if v, err = strconv.ParseUint(string(digits), 10, 64); err != nil || len(digits) != n.unit.digits {
			return time.Time{}, fmt.Errorf("it has %d digits, not %d", len(digits), n.unit.digits)
		}
		if n.newestFirst {
			v = n.nines() - v
		}
	}
	if v > math.MaxInt64 {
		return time.Time{}, errors.New("the number is too large")
	}
	return n.unit.time(int64(v)), nil
}
