package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Rule is a rule about what clients may observe. Each Violation breaks one rule.
type Rule string

// The rules that Check and Overtaken enforce.
const (
	// Lost is broken by an answer that shows an old value although a newer one was acknowledged or shown before, or
	// that shows no value although no delete explains that.
	Lost Rule = "lost"
	// Undeleted is broken like Lost, where the newer write is a delete.
	Undeleted Rule = "undeleted"
	// Invented is broken by an answer with a value that no client wrote, that was written only later, or whose write
	// was refused.
	Invented Rule = "invented"
	// Overtaken is broken by a write whose timestamp is not above that of each write, of any key, that was acknowledged
	// before the write began.
	Overtaken Rule = "overtaken"
	// Disordered is broken by an item of a listing that is out of order, repeated, or beyond the bounds of the listing.
	Disordered Rule = "disordered"
)

// Violation is one observation that a client of a correct store cannot make.
type Violation struct {
	Rule   Rule
	Key    string
	Detail string
}

func (v Violation) String() string { return fmt.Sprintf("%s: key %q: %s", v.Rule, v.Key, v.Detail) }

// Check returns all violations of the history, by key. If the result is empty, a correct store can have that history.
func (h *History) Check() []Violation {
	c := h.gather()
	for _, key := range c.sorted {
		c.register(key, c.keys[key])
	}
	return c.found
}

// Overtaken returns the writes whose timestamp is not above that of every write, of any key, that was acknowledged
// before they began. If the timestamps of all clients are of one common time, the result must be empty. The history
// must have timestamps.
func (h *History) Overtaken() (found []Violation) {
	var acknowledged, begun []*Write
	for i := range h.Writes {
		switch w := &h.Writes[i]; w.Outcome {
		case Acknowledged:
			acknowledged = append(acknowledged, w)
			begun = append(begun, w)
		case Unknown, Cleared:
			begun = append(begun, w)
		}
	}
	slices.SortFunc(acknowledged, func(a, b *Write) int { return cmp.Compare(a.End, b.End) })
	slices.SortFunc(begun, func(a, b *Write) int { return cmp.Compare(a.Begin, b.Begin) })
	var highest *Write
	for _, w := range begun {
		for len(acknowledged) > 0 && acknowledged[0].End < w.Begin {
			if highest == nil || acknowledged[0].High > highest.High {
				highest = acknowledged[0]
			}
			acknowledged = acknowledged[1:]
		}
		if highest != nil && w.Low <= highest.High {
			found = append(found, Violation{Overtaken, w.Key, fmt.Sprintf(
				"%s began after %s of key %q was acknowledged", describe(w), describe(highest), highest.Key)})
		}
	}
	return found
}

// gather sorts all writes and observations by key. It also finds violations of the rules Invented and Disordered.
func (h *History) gather() *checker {
	c := &checker{keys: map[string]*register{}, sites: map[string]int{}, joins: h.Joins}
	for i := range h.Writes {
		w := &h.Writes[i]
		c.site(w.Site)
		k := c.keys[w.Key]
		if k == nil {
			k = &register{values: map[string]*Write{}}
			c.keys[w.Key] = k
			c.sorted = append(c.sorted, w.Key)
		}
		k.writes = append(k.writes, w)
		if !w.Delete {
			k.values[w.Value] = w
		}
	}
	sort.Strings(c.sorted)
	for i := range h.Reads {
		r := &h.Reads[i]
		c.observe(r.Key, r.Value, r.Found, false, observation{site: c.site(r.Site), begin: r.Begin, end: r.End})
	}
	for i := range h.Listings {
		c.listing(&h.Listings[i])
	}
	return c
}

type checker struct {
	keys   map[string]*register
	sorted []string
	sites  map[string]int
	joins  []Instant
	found  []Violation
}

// register has all writes and observations of one key, which is treated as a register that holds one value.
type register struct {
	writes []*Write
	values map[string]*Write
	seen   []observation
}

// observation is what the answer of one call says about one key.
type observation struct {
	begin, end Instant
	site       int
	live       bool
	shown      *Write // nil: absent, or (live) a value that was not shown
	floor      floor  // when it began
}

// floor is the lowest timestamp that a register can have, and the write from which that is known.
type floor struct {
	low int64
	by  *Write
}

func (c *checker) site(name string) int {
	n, ok := c.sites[name]
	if !ok {
		n = len(c.sites)
		c.sites[name] = n
	}
	return n
}

func (c *checker) violation(r Rule, key, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: r, Key: key, Detail: fmt.Sprintf(format, args...)})
}

// observe adds an observation of a key. If found is true, the answer has the key, with the given value, or with any
// value if anyValue is true.
func (c *checker) observe(key, value string, found, anyValue bool, o observation) {
	k := c.keys[key]
	if k == nil {
		if found {
			c.violation(Invented, key, "nobody ever wrote the key")
		}
		return
	}
	o.live = found
	if found && !anyValue {
		if o.shown = k.values[value]; o.shown == nil {
			c.violation(Invented, key, "nobody wrote the value %.60q", value)
			return
		}
	}
	k.seen = append(k.seen, o)
}

// listing adds what a listing says about every key within its bounds, as far as its pages go.
func (c *checker) listing(l *Listing) {
	keys := c.sorted
	keys = keys[sort.SearchStrings(keys, l.From):]
	if l.To != "" {
		keys = keys[:sort.SearchStrings(keys, l.To)]
	}
	before := func(a, b string) bool { return a < b }
	if l.Reverse {
		keys = slices.Clone(keys)
		slices.Reverse(keys)
		before = func(a, b string) bool { return a > b }
	}
	site := c.site(l.Site)
	last, any := "", false
	// What lies between the last item and the place where a page ended was looked
	// at by that page, not by the next.
	var gap Instant
	if len(l.Pages) > 0 {
		gap = l.Pages[0].Begin
	}
	for i := range l.Pages {
		p := &l.Pages[i]
		absent := func(key string) {
			c.observe(key, "", false, false, observation{site: site, begin: gap, end: p.End})
		}
		for _, item := range p.Items {
			switch {
			case any && !before(last, item.Key):
				c.violation(Disordered, item.Key, "listed after %q", last)
				continue
			case item.Key < l.From || l.To != "" && item.Key >= l.To:
				c.violation(Disordered, item.Key, "listed between %q and %q", l.From, l.To)
				continue
			}
			last, any = item.Key, true
			for len(keys) > 0 && before(keys[0], item.Key) {
				absent(keys[0])
				keys = keys[1:]
			}
			if len(keys) > 0 && keys[0] == item.Key {
				keys = keys[1:]
			}
			c.observe(item.Key, item.Value, true, l.KeysOnly, observation{site: site, begin: p.Begin, end: p.End})
			gap = p.Begin
		}
		if p.Last {
			for _, key := range keys {
				absent(key)
			}
			return
		}
	}
}

// The kinds of moments in a key's history, in the order of moments with the same Instant. A call that ends at the
// Instant at which another call begins does not count as earlier.
const (
	begins = iota
	ends
	acknowledged
	joins
)

type moment struct {
	at   Instant
	what int
	i    int
}

// register checks all observations of one key, in the order of time.
func (c *checker) register(key string, k *register) {
	var moments []moment
	for i, o := range k.seen {
		moments = append(moments, moment{o.begin, begins, i}, moment{o.end, ends, i})
	}
	for i, w := range k.writes {
		if w.Outcome == Acknowledged {
			moments = append(moments, moment{w.End, acknowledged, i})
		}
	}
	for _, at := range c.joins {
		moments = append(moments, moment{at, joins, 0})
	}
	slices.SortFunc(moments, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what))
	})
	floors := make([]floor, len(c.sites))
	raise := func(site int, f floor) {
		if f.by != nil && (floors[site].by == nil || f.low > floors[site].low) {
			floors[site] = f
		}
	}
	for _, m := range moments {
		switch m.what {
		case begins:
			k.seen[m.i].floor = floors[k.seen[m.i].site]
		case ends:
			o := &k.seen[m.i]
			raise(o.site, c.judge(key, k, o))
		case acknowledged:
			w := k.writes[m.i]
			raise(c.sites[w.Site], floor{w.Low, w})
		case joins:
			for _, f := range slices.Clone(floors) {
				for site := range floors {
					raise(site, f)
				}
			}
		}
	}
}

// judge finds the writes that explain an observation, and reports a violation if none does. The result is the lowest
// timestamp that the register can have from then on.
func (c *checker) judge(key string, k *register, o *observation) floor {
	explains := func(w *Write) bool {
		return w.Outcome != Refused && w.Begin < o.end && (o.floor.by == nil || w.High >= o.floor.low)
	}
	if w := o.shown; w != nil {
		if explains(w) {
			return floor{w.Low, w}
		}
		switch {
		case w.Outcome == Refused:
			c.violation(Invented, key, "%s was shown at %s, but it was refused", describe(w), o)
		case w.Begin >= o.end:
			c.violation(Invented, key, "%s was shown at %s, before it was begun", describe(w), o)
		default:
			c.violation(o.floor.rule(), key, "%s was shown at %s, but before that %s was acknowledged or shown",
				describe(w), o, describe(o.floor.by))
		}
		return floor{}
	}
	// Some put, or some deletion: at least the oldest one that may be it.
	if !o.live && o.floor.by == nil {
		return floor{} // nothing was there at first
	}
	var oldest floor
	for _, w := range k.writes {
		if w.Delete != o.live && explains(w) && (oldest.by == nil || w.Low < oldest.low) {
			oldest = floor{w.Low, w}
		}
	}
	if oldest.by == nil {
		what := "it was absent"
		if o.live {
			what = "it was listed"
		}
		if o.floor.by == nil {
			c.violation(Invented, key, "%s at %s, and nobody had put it", what, o)
			return floor{}
		}
		c.violation(o.floor.rule(), key,
			"%s at %s, but before that %s was acknowledged or shown, and nothing newer explains it", what, o, describe(o.floor.by))
	}
	return oldest
}

func (f floor) rule() Rule {
	if f.by.Delete {
		return Undeleted
	}
	return Lost
}

func (o *observation) String() string { return fmt.Sprintf("%d to %d", o.begin, o.end) }

func describe(w *Write) string {
	what := fmt.Sprintf("the value %.60q", w.Value)
	if w.Delete {
		what = "a deletion"
	}
	stamp := fmt.Sprint(w.Low)
	if w.High != w.Low {
		stamp = fmt.Sprintf("%d to %d", w.Low, w.High)
	}
	return fmt.Sprintf("%s (timestamp %s, written at %d to %d, %s)", what, stamp, w.Begin, w.End, w.Outcome)
}
