package policysim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Load is a series of simulated requests to a bucket, e.g. puts of ascending keys at 100 per second.
type Load struct {
	// Do is the kind of the requests: put, delete or get. The default is put.
	Do Do `yaml:"do"`
	// Keys is the pattern of the keys in the requests. The default is random keys.
	Keys Keys `yaml:"keys"`
	// Prefix is a constant prefix of all keys. If Prefixes is above 0, a second prefix follows, chosen at random among
	// that number of prefixes, e.g. "t3/" for a tenant.
	Prefix   string `yaml:"prefix"`
	Prefixes int    `yaml:"prefixes"`
	// First is the number that precedes the number in the first key, for ascending keys. The keys have numbers of 8
	// digits, e.g. 00000001 after 0.
	First uint64 `yaml:"first"`
	// Gaps are the gaps between the numbers of successive keys, if keys ascend or descend. The default is gaps of 1.
	// With random gaps the next keys can be forecast, and with wild gaps they cannot.
	Gaps Gaps `yaml:"gaps"`
	// Among is the number of different keys that are put again and again, for the pattern "again".
	Among int `yaml:"among"`
	// Share is the share of the requests that go to a small part of the keys, for hotspot keys. Within is the share of
	// that part in all keys. The defaults are 0.8 and 0.01. For deletes, Share is the share of the existing rows that
	// are deleted.
	Share  float64 `yaml:"share"`
	Within float64 `yaml:"within"`

	// PerS is the number of requests per second. If PerS is 0, all requests come at once.
	PerS float64 `yaml:"per_s"`
	// From and To are the times at which the requests begin and end, counted from the beginning of the simulation. If
	// To is 0, the load lasts until Rows requests are made, or to the end.
	From time.Duration `yaml:"from"`
	To   time.Duration `yaml:"to"`
	// Rows is the maximum number of requests. If Rows is 0, the number is not limited.
	Rows int64 `yaml:"rows"`
	// Keep is the number of rows that remain in the bucket, as in a queue: rows above that number are deleted at once.
	// If Keep is 0, the load deletes nothing for that reason.
	Keep int `yaml:"keep"`
	// Every is the time from the start of one repetition of the load to the start of the next. Times is the number of
	// repetitions, at least 1.
	Every time.Duration `yaml:"every"`
	Times int           `yaml:"times"`
}

// Do is the kind of a simulated request: put, delete or get of a row.
type Do string

// These are the kinds of simulated requests to a bucket: to write, delete or read a row.
const (
	Put    Do = "put"
	Delete Do = "delete"
	Get    Do = "get"
)

// Keys is the pattern of the keys in a series of simulated requests, e.g. random or ascending.
type Keys string

// These are the patterns of the keys in simulated requests. Deletes of random keys and of the oldest key choose among
// the keys that exist.
const (
	RandomKeys  Keys = "random"       // hexadecimal numbers
	AppendKeys  Keys = "append"       // a decimal number that grows
	Descending  Keys = "descending"   // a decimal number that shrinks
	UUIDv7      Keys = "uuidv7"       // the time in milliseconds, then random digits
	DateCounter Keys = "date-counter" // the day, then a number that starts over each day
	DateHash    Keys = "date-hash"    // the day, then random digits
	DailyName   Keys = "daily-name"   // a random name each day, then a number that grows
	HotspotKeys Keys = "hotspot"      // random keys, a share of which lie close together
	Again       Keys = "again"        // the same keys again and again
	OneKey      Keys = "one"          // a single key
	Newest      Keys = "newest"       // for gets: one of the hundred keys that were written last
	Oldest      Keys = "oldest"       // for deletes: the key that was written first
	Absent      Keys = "absent"       // for deletes: keys that do not exist
)

// Gaps says how the numbers in successive keys differ, if keys ascend or descend: always by 1, or by random numbers.
type Gaps string

// These are the kinds of gaps between the numbers in successive keys: always 1, random with a mean, or random without a
// mean (wild).
const (
	NoGaps     Gaps = ""
	RandomGaps Gaps = "random"
	WildGaps   Gaps = "wild"
)

var patterns = map[Do][]Keys{
	Put:    {RandomKeys, AppendKeys, Descending, UUIDv7, DateCounter, DateHash, DailyName, HotspotKeys, Again, OneKey},
	Delete: {RandomKeys, Oldest, Absent},
	Get:    {RandomKeys, HotspotKeys, OneKey, Newest},
}

func (l *Load) complete() {
	if l.Do == "" {
		l.Do = Put
	}
	if l.Keys == "" {
		l.Keys = RandomKeys
		if l.Keep > 0 {
			l.Keys = Oldest
		}
	}
	if l.Keys == HotspotKeys && l.Share == 0 {
		l.Share = 0.8
	}
	if l.Keys == HotspotKeys && l.Within == 0 {
		l.Within = 0.01
	}
	if l.Times == 0 {
		l.Times = 1
	}
}

func (l *Load) check(at string, no func(string, ...any)) {
	if known := patterns[l.Do]; known == nil {
		no("%s.do is %q: put, delete or get", at, l.Do)
	} else if !slices.Contains(known, l.Keys) {
		no("%s.keys is %q: a %s takes one of %v", at, l.Keys, l.Do, known)
	}
	if l.Gaps != NoGaps && (l.Gaps != RandomGaps && l.Gaps != WildGaps || l.Keys != AppendKeys && l.Keys != Descending) {
		no("%s.gaps is %q: random or wild, of append or descending keys", at, l.Gaps)
	}
	if l.First > 0 && l.Keys != AppendKeys {
		no("%s.first is of append keys", at)
	}
	if !(l.PerS >= 0 && l.PerS <= 1e6) || l.Rows < 0 || l.Keep < 0 || l.Prefixes < 0 || l.Prefixes > 1e6 {
		no("%s has per_s %g (up to 1e6), rows %d, keep %d, prefixes %d (up to 1e6): none is below 0", at, l.PerS, l.Rows,
			l.Keep, l.Prefixes)
	}
	if l.PerS == 0 && l.Rows == 0 && l.Keep == 0 && !(l.Do == Delete && l.Share > 0) {
		no("%s has neither per_s, rows, keep nor the share of a delete: how much is requested?", at)
	}
	if l.Keep > 0 && l.Do != Delete {
		no("%s.keep is of deletes", at)
	}
	if !(l.Share >= 0 && l.Share <= 1) || !(l.Within >= 0 && l.Within <= 1) {
		no("%s.share is %g and within %g: 0 to 1", at, l.Share, l.Within)
	}
	if (l.Keys == Again) != (l.Among > 0) || l.Among > 1e7 {
		no("%s.among is %d: how many keys are put again and again", at, l.Among)
	}
	if l.From < 0 || l.To < 0 || l.To > 0 && l.To <= l.From {
		no("%s lasts from %v to %v", at, l.From, l.To)
	}
	if l.Times < 1 || l.Times > 1e6 || l.Every < 0 || l.Times > 1 && l.Every == 0 {
		no("%s.times is %d, every %v: how often, and with which pause between the beginnings", at, l.Times, l.Every)
	}
}

// most returns an upper bound for the number of requests of the load. Deletes of rows that other loads have written
// count as 0.
func (l *Load) most(s *Scenario) float64 {
	// These are the deletes of a share of the rows, and those of the rows above Keep.
	n := math.Inf(1)
	if l.Rows > 0 {
		n = float64(l.Rows)
	}
	to := s.end()
	if l.To > 0 {
		to = min(to, l.To)
	}
	if l.PerS > 0 {
		n = min(n, l.PerS*max(0, (to-l.From).Seconds()))
	}
	if math.IsInf(n, 1) {
		return 0
	}
	return n * float64(max(1, l.Times))
}

// loads returns the series of requests (loads) that the Kind of a tenant stands for, e.g. puts of random keys. A tenant
// is a group of buckets that behave alike.
func (t *Tenant) loads(s *Scenario) (out []Load) {
	l := Load{
		Do: Put, PerS: t.PerMinute / 60, From: days(t.From), To: min(s.end(), days(t.To)), Times: 1,
	}
	switch t.Kind {
	case Random:
		l.Keys = RandomKeys
	case Append, Queue:
		l.Keys, l.Gaps = AppendKeys, RandomGaps
	case Reversed:
		l.Keys, l.Gaps = Descending, RandomGaps
	case Dates:
		l.Keys = DateHash
	case Hotspot:
		l.Keys, l.Share, l.Within = HotspotKeys, 0.8, 0.01
	case Overwrite:
		l.Keys, l.Among = Again, t.Keys
	}
	if t.Opaque && l.Gaps != NoGaps {
		l.Gaps = WildGaps
	}
	if l.PerS > 0 {
		out = append(out, l)
	}
	if t.Kind == Queue {
		out = append(out, Load{Do: Delete, Keys: Oldest, Keep: int(max(1, s.MaxRows/4)), Times: 1})
	}
	for _, at := range t.DeleteAt {
		out = append(out, Load{Do: Delete, Keys: RandomKeys, Share: 1 - t.DeleteKeep, From: days(at), Times: 1})
	}
	return out
}

// request is one simulated request to a bucket, with the key that is put, deleted or read.
type request struct {
	do    Do
	key   string
	fresh bool // true if the request puts a key that was never put before
}

// player makes the simulated requests to one bucket, in the order of time. The same seed gives the same requests.
type player struct {
	r     *rand.Rand
	begin time.Time
	end   time.Duration
	loads []playing
	// alive are the existing keys of the bucket, the oldest first. They are remembered only if a load chooses among
	// existing keys.
	alive    []string
	remember bool
}

// playing is a series of requests to a bucket (a load), with the number of requests made so far.
type playing struct {
	*Load
	round  int
	made   int64 // requests made in this round
	total  int64 // number of deletes in this round, for the delete of a share, -1 if not known yet
	serial uint64
	counts []uint64 // the last number, for each prefix
	day    string
	name   string
	keys   []string
}

func newPlayer(t *Tenant, begin time.Time, end time.Duration, seed uint64) *player {
	p := &player{r: rand.New(rand.NewPCG(seed, 0x73696d)), begin: begin, end: end}
	for i := range t.Loads {
		l := &t.Loads[i]
		x := playing{Load: l, total: -1, counts: make([]uint64, max(1, l.Prefixes))}
		for k := range x.counts {
			x.counts[k] = l.First
		}
		if l.Keys == Descending {
			x.serial = math.MaxUint64 / 2
			for k := range x.counts {
				x.counts[k] = 99_999_999
			}
		}
		p.remember = p.remember || l.Do == Delete && l.Keys != Absent || l.Keys == Newest
		p.loads = append(p.loads, x)
	}
	return p
}

const never = time.Duration(math.MaxInt64)

// due returns the time of the next request of a load, counted from the beginning of the simulation. The parameter end
// is the length of the simulation. The result is the constant never if no request is left.
func (x *playing) due(end time.Duration) time.Duration {
	for ; x.round < x.Times; x.round, x.made, x.total = x.round+1, 0, -1 {
		shift := time.Duration(x.round) * x.Every
		if x.From+shift >= end {
			break
		}
		if x.Rows > 0 && x.made >= x.Rows || x.total >= 0 && x.made >= x.total || x.Keep > 0 {
			continue
		}
		at := x.From + shift
		if x.PerS > 0 {
			at += time.Duration(float64(x.made+1) / x.PerS * float64(time.Second))
		}
		if at > end {
			break
		}
		if x.To == 0 || at <= x.To+shift {
			return at
		}
	}
	return never
}

// next returns the time of the next request to the bucket from any of its loads, counted from the beginning of the
// simulation. The result is the constant never if there is no request.
func (p *player) next() time.Duration {
	at := never
	for i := range p.loads {
		at = min(at, p.loads[i].due(p.end))
	}
	return at
}

// until makes all requests to the bucket that are due, in the order of time, and calls the function do with each
// request. The parameter `at` is the present time, counted from the beginning of the simulation.
func (p *player) until(at time.Duration, do func(request)) {
	for {
		first, when := -1, at+1
		for i := range p.loads {
			if d := p.loads[i].due(p.end); d < when {
				first, when = i, d
			}
		}
		if first < 0 {
			break
		}
		x := &p.loads[first]
		if x.Do == Delete && x.Share > 0 && x.total < 0 {
			x.total = int64(math.Round(x.Share * float64(len(p.alive))))
			continue
		}
		x.made++
		if r, ok := p.request(x, when); ok {
			do(r)
		}
		p.trim(when, do)
	}
	p.trim(at, do)
}

// trim deletes a bucket's rows in excess of the number Load.Keep, as the consumers of a queue do. The parameter `at` is
// the present simulated time.
func (p *player) trim(at time.Duration, do func(request)) {
	for i := range p.loads {
		x := &p.loads[i]
		for x.Keep > 0 && len(p.alive) > x.Keep && at >= x.From && (x.To == 0 || at <= x.To) {
			do(request{do: Delete, key: p.pick(x.Keys)})
		}
	}
}

// pick chooses an existing key to be deleted, removes the key from the list of existing keys, and returns the key. If k
// is RandomKeys, the key is a random one. For any other k, the key is the oldest one.
func (p *player) pick(k Keys) string {
	i := 0
	if k == RandomKeys {
		i = p.r.IntN(len(p.alive))
	}
	key := p.alive[i]
	p.alive[i] = p.alive[0]
	p.alive = p.alive[1:]
	return key
}

// hex returns a random key of 16 hexadecimal digits.
func (p *player) hex() string { return fmt.Sprintf("%016x", p.r.Uint64()) }

// request returns the next request of the load x. The parameter `at` is the time of the request, counted from the
// beginning of the simulation. The boolean result is false if the request needs an existing key and the bucket has no
// keys.
func (p *player) request(x *playing, at time.Duration) (request, bool) {
	r := request{do: x.Do}
	switch {
	case x.Do == Delete && x.Keys != Absent:
		if len(p.alive) == 0 {
			return r, false
		}
		r.key = p.pick(x.Keys)
		return r, true
	case x.Keys == Newest:
		if len(p.alive) == 0 {
			return r, false
		}
		r.key = p.alive[len(p.alive)-1-p.r.IntN(min(100, len(p.alive)))]
		return r, true
	}
	prefix, group := x.Prefix, 0
	if x.Prefixes > 0 {
		group = p.r.IntN(x.Prefixes)
		prefix += fmt.Sprintf("t%0*d/", len(fmt.Sprint(x.Prefixes-1)), group)
	}
	rest, fresh := p.rest(x, group, at)
	r.key, r.fresh = prefix+rest, fresh && x.Do == Put
	if r.fresh && p.remember {
		p.alive = append(p.alive, r.key)
	}
	return r, true
}

// rest returns the key of the next request of the load x, without its prefix. The parameter group is the number of the
// prefix, and `at` is the simulated time of the request. The result fresh is true if no earlier request has put the
// key.
func (p *player) rest(x *playing, group int, at time.Duration) (key string, fresh bool) {
	now := p.begin.Add(at).UTC()
	day := now.Format("2006-01-02")
	newDay := day != x.day
	x.day = day
	n := &x.counts[group]
	switch x.Keys {
	case AppendKeys:
		if x.Gaps != NoGaps {
			x.serial += p.gap(x.Gaps)
			return fmt.Sprintf("%020d", x.serial), true
		}
		*n++
		return fmt.Sprintf("%08d", *n), true
	case Descending:
		if x.Gaps != NoGaps {
			x.serial -= p.gap(x.Gaps)
			return fmt.Sprintf("%020d", x.serial), true
		}
		*n--
		return fmt.Sprintf("%08d", *n), true
	case UUIDv7:
		ms, a, b := now.UnixMilli(), p.r.Uint64(), p.r.Uint64()
		return fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", ms>>16, ms&0xffff, a&0xfff, 0x8000|(a>>16)&0x3fff,
			b&0xffffffffffff), true
	case DateCounter:
		if newDay {
			x.serial = 0
		}
		x.serial++
		return fmt.Sprintf("%s/%06d", day, x.serial), true
	case DateHash:
		return day + "/" + p.hex(), true
	case DailyName:
		if newDay {
			x.name = p.hex()
		}
		x.serial++
		return fmt.Sprintf("%s/%08d", x.name, x.serial), true
	case HotspotKeys:
		k := p.r.Uint64()
		if p.r.Float64() < x.Share {
			k = math.MaxUint64/3 + uint64(float64(k)*x.Within)
		}
		return fmt.Sprintf("%016x", k), true
	case Again:
		if len(x.keys) < x.Among {
			x.keys = append(x.keys, p.hex())
			return x.keys[len(x.keys)-1], true
		}
		return x.keys[p.r.IntN(len(x.keys))], false
	case OneKey:
		x.serial++
		return "8000000000000000", x.serial == 1
	}
	return p.hex(), true
}

// gap returns a random difference between the numbers in two successive keys. Wild gaps have no mean, so the next keys
// cannot be forecast.
func (p *player) gap(g Gaps) uint64 {
	if g == WildGaps { // these gaps have no mean, so no line fits the keys
		return uint64(min(math.Pow(1-p.r.Float64(), -3), 1<<52))
	}
	return 1 + p.r.Uint64N(1<<21)
}

// cuts returns the keys at which each bucket of the tenant is cut into ranges when the simulation begins. The cuts
// divide hexadecimal keys evenly.
func (t *Tenant) cuts() (out [][]byte) {
	for i := 1; i < t.Start.Ranges; i++ {
		out = append(out, fmt.Appendf(nil, "%016x", uint64(float64(i)/float64(t.Start.Ranges)*math.MaxUint64)))
	}
	return out
}

// grid returns the end of the step of the simulation that contains a given time, the parameter at. All requests that
// fall within a step are made at its end.
func (s *Scenario) grid(at time.Duration) time.Duration {
	if at >= s.end() {
		return s.end()
	}
	return min(s.end(), (at+s.Step-1)/s.Step*s.Step)
}
