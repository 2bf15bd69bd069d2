package forecast

import (
	"fmt"
	"math"
	"slices"
)

// timeline is a time in each key at the same place, by which the keys are ordered, and what follows it.
type timeline struct {
	name       string // what it is, for people
	finest     string // how finely it tells the time: the name of a tick
	top        []byte // the highest key
	start, end int    // of the time, in the key
	// zones: it may be local time.
	zones bool
	// times are the keys', in nanoseconds since 1970, and time reads others.
	times []int64
	time  func(key []byte) (ns int64, ok bool)
	// tick returns when the time begins and ends that looks the same in keys.
	tick func(ns int64) (from, to int64)
	// key is the prefix that all keys of the tick have which begins then, or the lowest of them.
	key func(ns int64) []byte
	// cut is a short key between those of the tick that begins then and those before.
	cut func(ns int64) []byte
}

// inner is what follows the time, where one tick has the rows of several partitions.
type inner struct {
	n *number
	// random: anywhere in the tick; else a counter.
	random bool
	line   line
	first  uint64 // the lowest number seen
	// on: the counter goes on from tick to tick.
	on bool
}

// over is by how much a partition may become larger than wanted.
const over = 1.1

// How finely times are cut is a part of what a partition takes.
const fine = 200

// The keys' own times are believed where they say that rows come by so many times faster than was given: what is counted
// of a load that has just begun is too low. What says much more is not the time of writing.
const (
	faster     = 1.1
	mostFaster = 5
)

// many is how many different dates make a line.
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
		// How full the present tick is says how far it has gone.
		done := 0
		for i := len(c.times) - 1; i >= 0 && c.times[i] == last; i-- {
			done++
		}
		now = top + min(length*0.99, float64(done)/rate)
	}
	return c.cuts(t, f, in, now, rate, missing)
}

// timesOf reads the times of keys, in nanoseconds since 1970; nil: some key has none, or they do not ascend.
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

// seconds are times since a moment.
func seconds(times []int64, since int64) []float64 {
	xs := make([]float64, len(times))
	for i, x := range times {
		xs[i] = float64(x-since) / 1e9
	}
	return xs
}

// Keys may have local time: quarters of an hour, fourteen hours at most.
const (
	quarter = 900.0
	zones   = 14 * 3600.0
	day     = 86400.0
	// usual is the seconds of delay that a source may always have.
	usual = 300
)

// plausible says whether the time in the highest key may be that of its writing. One that does not move on is a name
// like any other, unless it is the present.
func (c *timeline) plausible(t *tail, ticks int, top, length float64) bool {
	near, past := 1.5*day, 1.5*day
	if !c.zones {
		near, past = 3600, 3600
	}
	if ticks > 1 {
		near, past = 2*day, 2*day
		if t.written == nil {
			past = 400 * day // so long nothing may have been appended
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

// present is the time that the next keys have, in Unix seconds: where they always lie behind the clock, or have local
// time, that is not now. top is the beginning of the highest's tick.
func (c *timeline) present(t *tail, top, length float64) float64 {
	if t.o.Now.IsZero() {
		return top
	}
	now := t.now()
	at, known := now, false // when the highest keys were written, or might have been
	if t.written != nil && math.Abs(t.writtenTop()-top) <= length+zones+usual {
		at, known = t.writtenTop(), true // and they have not been imported later
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

// now is the wall clock in Unix seconds.
func (t *tail) now() float64 { return float64(t.o.Now.UnixMicro()) / 1e6 }

// writtenTop is when the highest keys were written, in Unix seconds.
func (t *tail) writtenTop() float64 {
	return float64(slices.Max(t.written[max(0, len(t.written)-Fewest):])) / 1e6
}

// rate learns how many rows come per second, where few ticks are seen; 0: it can't.
func (c *timeline) rate(t *tail, in *inner, ticks int) float64 {
	n := len(c.times)
	if ticks >= 3 {
		// The first and the last are not complete.
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
		// They are the highest of all that came in the time.
		rows = float64(n) * in.share()
	}
	return rows / span
}

// cuts adds the cuts to f. now is the time of the next key in Unix seconds.
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
			since = max(from, begin) // nothing was appended before
		}
		into := float64(ns-since) / 1e9 * rate // rows of its tick below the cut
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
			// Rows of the present tick fall anywhere in it: only those of the next can be forecast.
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
			at = rows // so that none has more than wanted
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

// nice is the largest round time that is not above some seconds, in nanoseconds.
func nice(seconds float64) int64 {
	for _, s := range []float64{86400, 3600, 600, 60, 10, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6} {
		if s <= seconds {
			return int64(s * 1e9)
		}
	}
	return 1
}

// inner finds out about what follows the time, if a tick has too many rows for cuts between ticks alone; rows is how
// many it has, 0: unknown.
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

// share is how many rows a tick has for each of the highest ones that were seen.
func (in *inner) share() float64 {
	n := in.n
	return float64(n.cap) / max(1, float64(n.cap-in.first))
}

// cut is a key with the tick's number at some rows into the tick, of tickRows that it will have, or rows from now on.
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
