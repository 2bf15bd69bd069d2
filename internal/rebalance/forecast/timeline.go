package forecast

import (
	"fmt"
	"math"
	"slices"
)

// timeline describes a time that each key contains at the same place. The keys are sorted by that time. The time is
// exact to some unit, such as a second or a day, which is called the tick.
type timeline struct {
	name       string // the kind of time, for people
	finest     string // the name of a tick, for people
	top        []byte // the highest key
	start, end int    // where the time begins and ends in the key
	// zones is true if the time may be local time, which differs from UTC.
	zones bool
	// times are the times in the keys, in nanoseconds since 1970. time returns the time in any other key. The result ok
	// is false if the key has no time.
	times []int64
	time  func(key []byte) (ns int64, ok bool)
	// tick returns the start and the end of the tick (unit of the time) in which the time ns lies.
	tick func(ns int64) (from, to int64)
	// key returns the bytes with which the keys of the tick (unit of the time) that begins at ns start. If there are
	// several, the result is the lowest.
	key func(ns int64) []byte
	// cut returns a short key that divides the keys with times before ns from the keys of the tick (unit of the time)
	// that begins at ns.
	cut func(ns int64) []byte
}

// inner describes the number that follows the time in the keys. The number is needed if the keys of one tick (unit of
// the time, such as a second) fill several partitions.
type inner struct {
	n *number
	// random is true if the number is random, so that keys lie anywhere in a tick (unit of the time). If random is
	// false, the number is a counter.
	random bool
	line   line
	first  uint64 // the lowest number seen in the last tick
	// on is true if the counter goes on from tick to tick (unit of the time). If on is false, the counter starts over
	// with each tick.
	on bool
}

// over is how far a partition may exceed the wanted number of rows by a forecast: 1.1 means by a tenth.
const over = 1.1

// fine is the least number of places within one partition at which a range may begin. These places are round times or
// numbers, since round ones make short keys.
const fine = 200

// faster and mostFaster say when the rate of new rows is learned from the times in keys, although a rate was given. The
// learned rate must be above 1.1 times and below 5 times the given rate.
//
// A load that has just begun is counted too low. A still higher rate is wrong, since the times are not those at which
// the keys were written.
const (
	faster     = 1.1
	mostFaster = 5
)

// many is the least number of different times in the keys for a forecast that follows a line through these times.
const many = 20

func (c *timeline) ahead(t *tail) (*Forecast, error) {
	o := t.o
	last := c.times[len(c.times)-1]
	tickFrom, tickTo := c.tick(last)
	top := float64(last) / 1e9
	length := float64(tickTo-tickFrom) / 1e9
	ticks := 1
	for i := 1; i < len(c.times); i++ {
		if c.times[i] != c.times[i-1] {
			ticks++
		}
	}
	if !c.plausible(t, ticks, top, length) {
		return nil, errUnlike
	}
	f := &Forecast{Method: Clock, Sure: 0.5}
	if c.zones {
		f.Method = Calendar
	}
	rate, missing, learned := o.RowsPerSecond, 0.0, ""
	if ticks >= many {
		xs := seconds(c.times, c.times[0])
		l := fit(xs)
		l.thinner(seconds(timesOf(t.below, c.time), c.times[0]))
		if !l.even(len(xs)) {
			return nil, errUnlike
		}
		if err := t.inOrder(); err != nil {
			return nil, err
		}
		f.Sure = l.sure()
		seen := 1 / l.perRow
		if rate == 0 {
			missing = l.missing
		}
		if rate == 0 || seen > faster*rate && seen < mostFaster*rate {
			rate = seen
			learned = fmt.Sprintf(", %s rows per second", perSecond(rate))
		}
	}
	in, err := c.inner(t, tickFrom, rate*length)
	if err != nil {
		return nil, err
	}
	if rate == 0 {
		if rate = c.rate(t, in, ticks); rate == 0 {
			return nil, cannot("the highest keys have the same %s (%s), "+
				"which does not tell how many rows come in a second: that has to be given", c.finest, text(c.top[:c.end]))
		}
		learned = fmt.Sprintf(", about %s rows per second", perSecond(rate))
	}
	if rate*length <= o.Each/4 {
		in = nil
	}
	f.How = fmt.Sprintf("%s %s, to the %s%s", c.name, quoted(c.top[:c.start]), c.finest, learned)
	if in != nil {
		f.How += in.describe()
	}
	now := c.present(t, top, length)
	if o.Now.IsZero() && ticks < many {
		// The rows of the present tick tell how much of it has passed.
		done := 0
		for i := len(c.times) - 1; i >= 0 && c.times[i] == last; i-- {
			done++
		}
		now = top + min(length*0.99, float64(done)/rate)
	}
	return c.cuts(t, f, in, now, rate, missing)
}

// timesOf returns the times in the keys, in nanoseconds since 1970. The parameter time is a function that reads the
// time in one key. The result is nil if a key has no time, or if a time is lower than the time before.
func timesOf(keys [][]byte, time func(key []byte) (ns int64, ok bool)) []int64 {
	times := make([]int64, len(keys))
	for i, k := range keys {
		ns, ok := time(k)
		if !ok || i > 0 && ns < times[i-1] {
			return nil
		}
		times[i] = ns
	}
	return times
}

// seconds converts times from nanoseconds since 1970 to seconds since a reference time. The parameter `since` is the
// reference time, in nanoseconds since 1970.
func seconds(times []int64, since int64) []float64 {
	xs := make([]float64, len(times))
	for i, x := range times {
		xs[i] = float64(x-since) / 1e9
	}
	return xs
}

// quarter and zones are the step and the maximum, in seconds, of the difference between local time and UTC: a quarter
// of an hour and fourteen hours. Keys may contain local time.
const (
	quarter = 900.0
	zones   = 14 * 3600.0
	day     = 86400.0
	// usual is the delay, in seconds, by which keys from a source may always lag behind the wall clock.
	usual = 300
)

// plausible reports whether the highest key was perhaps written at the time that it contains. The time in a key is
// exact to a unit such as a day, which is called the tick. The parameters are:
//   - top: the start of the highest key's tick, in Unix seconds
//   - length: the length of that tick, in seconds
//   - ticks: the number of different times in the keys
//
// If all keys have the same time, it must be nearer to the present, since it may be a mere name.
func (c *timeline) plausible(t *tail, ticks int, top, length float64) bool {
	near, past := 1.5*day, 1.5*day
	if !c.zones {
		near, past = 3600, 3600
	}
	if ticks > 1 {
		near, past = 2*day, 2*day
		if t.written == nil {
			past = 400 * day // nothing may have been appended for this long
		}
	}
	var now float64
	switch {
	case t.written != nil:
		now = t.writtenTop()
	case !t.o.Now.IsZero():
		now = t.now()
	default:
		const earliest, latest = 1420070400, 2208988800 // 2015 to 2040
		return earliest <= top && top <= latest
	}
	return now >= top-near && now <= top+length+past
}

// present returns the time that the next keys will contain, in Unix seconds. It differs from the wall clock's time if
// keys always lag behind the clock, or contain local time. The highest key's time is exact to a tick, e.g. a day. top
// is the start of that tick, in Unix seconds, and length is its length in seconds.
func (c *timeline) present(t *tail, top, length float64) float64 {
	if t.o.Now.IsZero() {
		return top
	}
	now := t.now()
	at, known := now, false // the time at which the highest keys were written, or might have been
	if t.written != nil && math.Abs(t.writtenTop()-top) <= length+zones+usual {
		at, known = t.writtenTop(), true // the keys were not imported later
	}
	late, off := at-(top+length), 0.0
	switch {
	case at < top:
		off = top - at
		if length >= quarter {
			off = math.Ceil(off/quarter) * quarter
		}
	case late < 0:
	case known && length < quarter:
		off = -late
	case known:
		off = -(math.Floor(late/quarter) + 1) * quarter
	case late <= usual:
		off = -late
	case c.zones && late <= zones:
		if near := math.Round(late/quarter) * quarter; length >= quarter {
			off = -(math.Floor(late/quarter) + 1) * quarter
		} else if math.Abs(near-late) < usual/2 {
			off = -late
		}
	}
	return max(top, now+off)
}

// now returns the time of the wall clock in Unix seconds.
func (t *tail) now() float64 { return float64(t.o.Now.UnixMicro()) / 1e6 }

// writtenTop returns the latest time at which one of the 8 highest keys was written, in Unix seconds.
func (t *tail) writtenTop() float64 {
	return float64(slices.Max(t.written[max(0, len(t.written)-Fewest):])) / 1e6
}

// rate returns the number of new rows per second. It is learned from the times in the keys, or from the times at which
// the keys were written. ticks is the number of different times in the keys, which is small. The parameter `in` is the
// number after the time, or nil. The result is 0 if the rate cannot be learned.
func (c *timeline) rate(t *tail, in *inner, ticks int) float64 {
	n := len(c.times)
	if ticks >= 3 {
		// The first tick and the last one are not complete.
		from, to := 0, n
		for c.times[from] == c.times[0] {
			from++
		}
		for c.times[to-1] == c.times[n-1] {
			to--
		}
		span := float64(c.times[to]-c.times[from]) / 1e9
		return float64(to-from) / span
	}
	if t.written == nil {
		return 0
	}
	span := float64(slices.Max(t.written)-slices.Min(t.written)) / 1e6
	if span <= 0 {
		return 0
	}
	rows := float64(n)
	if in != nil && in.random {
		// The keys are the highest of all rows that came in this time.
		rows = float64(n) * in.share()
	}
	return rows / span
}

// cuts adds the wanted cuts (keys at which new ranges begin) to the forecast f, and returns f. The other parameters
// are:
//   - now: the time that the next key will contain, in Unix seconds
//   - rate: the number of new rows per second
//   - missing: the number of rows that are still expected below the highest key
//   - in: the number after the time in the keys, or nil if the time alone is enough for cuts
func (c *timeline) cuts(t *tail, f *Forecast, in *inner, now, rate, missing float64) (*Forecast, error) {
	o := t.o
	topFrom, topTo := c.tick(c.times[len(c.times)-1])
	grid := nice(o.Each / rate / fine)
	begin := int64(now * 1e9)
	last := c.times[len(c.times)-1]       // the highest key's time, then the last cut's
	at := max(o.First/4, o.First-missing) // rows from now on
	for range o.N {
		ahead := at / rate * 1e9
		if float64(begin)+ahead > 5.6e18 { // the year 2150
			return nil, cannot("so many rows take until after the year 2150, at %.3g per second", rate)
		}
		ns := begin + int64(ahead)
		from, to := c.tick(ns)
		since := from
		if from > topFrom {
			since = max(from, begin) // the present tick has no rows before now
		}
		into := float64(ns-since) / 1e9 * rate // the tick's rows below the cut
		var key []byte
		switch {
		case in == nil || into < o.Each/10 && from > topFrom:
			round := from
			if grid > to-from {
				round, _ = c.tick(ns - ns%grid)
			}
			if ns = round; ns <= last {
				_, ns = c.tick(last) // a partition for each tick
			}
			key = c.cut(ns)
		case in.random && from <= topFrom:
			// Rows of the present tick fall anywhere in it. Only rows of the next tick can be forecast.
			ns = topTo
			key = c.cut(ns)
		default:
			tickRows := float64(to-since) / 1e9 * rate
			inside, ok := in.cut(from <= topFrom, into, tickRows, (float64(ns)-float64(begin))/1e9*rate, o.Each)
			if !ok {
				return nil, in.n.short(t)
			}
			key = append(c.key(from), inside[c.end:]...)
		}
		rows := float64(ns-begin) / 1e9 * rate
		tick := float64(to-from) / 1e9 * rate
		if !f.add(t, key, rows+missing) || in == nil && tick > o.Each*over {
			return nil, cannot("more rows than a partition is to have come in one %s (%.3g), "+
				"and what follows it can't be forecast", c.finest, tick)
		}
		last = ns
		if len(f.Cuts) == 1 || tick > o.Each/precise {
			at = rows // no partition gets more rows than wanted
		}
		at += o.Each
	}
	return f, nil
}

func perSecond(rate float64) string {
	if rate >= 100 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.3g", rate)
}

// nice returns a round time, such as an hour, a minute or a millisecond: the longest one that is at most the given
// seconds. The result is in nanoseconds, and at least 1.
func nice(seconds float64) int64 {
	for _, s := range []float64{86400, 3600, 600, 60, 10, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6} {
		if s <= seconds {
			return int64(s * 1e9)
		}
	}
	return 1
}

// inner returns the number that follows the time in the keys, or nil if the time is enough for a forecast. The number
// is needed if the rows of one tick (unit of the time, such as a second) fill several partitions. The parameters are:
//   - tick: the start of the last tick
//   - rows: the number of rows of a tick, or 0 if unknown
//
// The error says that a number that is needed cannot be read.
func (c *timeline) inner(t *tail, tick int64, rows float64) (*inner, error) {
	if rows > 0 && rows <= t.o.Each/4 {
		return nil, nil
	}
	// The keys of the last tick.
	from := len(c.times)
	for from > 0 && c.times[from-1] == c.times[len(c.times)-1] {
		from--
	}
	x := &tail{keys: t.keys[from:], o: t.o}
	if t.written != nil {
		x.written = t.written[from:]
	}
	hopeless := func() (*inner, error) {
		if rows <= t.o.Each*over {
			return nil, nil // a partition for each tick
		}
		return nil, cannot("in a %s more rows come (about %.3g) than a partition is to have, "+
			"and what follows it in %s is not understood", c.finest, rows, text(c.top))
	}
	if len(x.keys) < Fewest || x.differ() < c.end {
		return hopeless()
	}
	n, err := findNumber(x, c.end, false)
	if err != nil {
		return hopeless()
	}
	xs, first, ok := n.values(x.keys)
	if !ok {
		return hopeless()
	}
	in := &inner{n: n, line: fit(xs), first: first}
	if !in.line.even(len(xs)) {
		return hopeless()
	}
	if in.random = n.full(&in.line) && len(n.left) == 0; in.random {
		return in, nil
	}
	if err := x.inOrder(); err != nil {
		return nil, err
	}
	if from > 0 {
		before := n.of(t.keys[from-1])
		in.on = before < first && float64(first-before) < 1000*in.line.perRow
	} else if rows > 0 {
		in.on = float64(n.of(n.top))/in.line.perRow > 4*rows
	}
	return in, nil
}

// share returns an estimate of all rows of a tick (unit of the time in the keys), as a multiple of the rows that were
// seen. The rows that were seen are the highest ones of the tick. share is for keys with a random number after the
// time.
func (in *inner) share() float64 {
	n := in.n
	return float64(n.cap) / max(1, float64(n.cap-in.first))
}

// cut returns a key at which a new range begins, in the middle of a tick. A tick is the unit of the time in the keys,
// such as a second. The key has the time of the highest known key, which the caller replaces. The parameters are:
//   - present: true for the present tick
//   - into: the number of rows of the tick below the cut
//   - tickRows: the number of all rows of the tick
//   - rows: the number of new rows below the cut
//   - each: the wanted number of rows between two cuts
//
// The boolean result is false if the number after the time has too few digits.
func (in *inner) cut(present bool, into, tickRows, rows, each float64) ([]byte, bool) {
	n := in.n
	var v, unit float64
	switch {
	case in.random:
		unit = float64(n.cap) / tickRows
		v = into * unit
	case present || in.on:
		unit = in.line.perRow
		v = float64(n.of(n.top)) + rows*unit
	default:
		unit = in.line.perRow
		v = into * unit
	}
	if v >= mostValue {
		return nil, false
	}
	g := n.grid(each * unit / fine)
	return n.cut(max(1, uint64(v)/g*g))
}

func (in *inner) describe() string {
	switch {
	case in.random:
		return ", random keys (" + in.n.alphabet.name + ") within it"
	case in.on:
		return ", then a " + in.n.describe(&in.line) + " that goes on"
	}
	return ", then a " + in.n.describe(&in.line) + " that begins anew"
}
