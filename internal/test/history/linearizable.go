package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// More rules, of Linearizable.
const (
	// Unordered: no order of the calls explains the key, in which each takes effect
	// at one moment between its beginning and its end.
	Unordered Rule = "unordered"
	// Undecided: the search was given up. It proves nothing.
	Undecided Rule = "undecided"
)

// Register is what a key is held to by Linearizable.
type Register uint8

const (
	// LastWins: a read shows the write before it. This is demanded where all
	// timestamps come from one source.
	LastWins Register = iota
	// HighestWins: a read shows the write with the highest timestamp of all before
	// it. This is demanded where timestamps come from several clocks. The bounds of
	// each write's timestamp have to be one and the same, and no two writes of a key
	// may share one.
	HighestWins
)

// Linearizable searches, for each key, an order of all calls in which every read
// shows what the register then holds. It sees more than Check, which judges each
// answer by what is known for sure: two answers may be right one by one and not
// together. A write of unknown outcome may take effect at any moment after it was
// begun, or never. All of the history has to be of one site.
//
// A key whose search is given up is a violation of its own.
func (h *History) Linearizable(kind Register) []Violation {
	c := h.gather()
	if len(c.sites) > 1 {
		c.violation(Undecided, "", "the history is of %d sites: take one at a time", len(c.sites))
		return c.found
	}
	for _, key := range c.sorted {
		k := c.keys[key]
		calls := k.calls(kind)
		switch explained, decided := Ordered(nil, calls); {
		case !decided:
			c.violation(Undecided, key, "not decided: %d calls", len(calls))
		case !explained:
			c.violation(Unordered, key, "no order explains its %d calls:%s", len(calls), k.timeline())
		}
	}
	return c.found
}

// calls are the operations of a key. The state is the *Write that its register holds.
func (k *register) calls(kind Register) (calls []Call[*Write]) {
	seen := map[*Write]bool{}
	for _, o := range k.seen {
		seen[o.shown] = true
		calls = append(calls, Call[*Write]{o.begin, o.end, func(held *Write) []*Write {
			if live := held != nil && !held.Delete; live != o.live || o.shown != nil && o.shown != held {
				return nil
			}
			return []*Write{held}
		}})
	}
	keysOnly := slices.ContainsFunc(k.seen, func(o observation) bool { return o.live && o.shown == nil })
	for _, w := range k.writes {
		end := w.End
		switch {
		case w.Outcome == Refused:
			continue
		case w.Outcome == Unknown && !w.Delete && !seen[w] && !keysOnly:
			// In any order that explains the rest it may as well be left out: no read
			// comes between it and what replaced it.
			continue
		case w.Outcome == Unknown:
			end = math.MaxInt64
		}
		calls = append(calls, Call[*Write]{w.Begin, end, func(held *Write) []*Write {
			if kind == HighestWins && held != nil && held.Low > w.Low {
				return []*Write{held}
			}
			return []*Write{w}
		}})
	}
	return calls
}

// timeline tells the calls of a key, as far as that is readable.
func (k *register) timeline() string {
	const most = 60
	type line struct {
		at   Instant
		text string
	}
	var lines []line
	for _, w := range k.writes {
		lines = append(lines, line{w.Begin, "write of " + describe(w)})
	}
	for _, o := range k.seen {
		what := "nothing"
		switch {
		case o.shown != nil:
			what = fmt.Sprintf("%.60q", o.shown.Value)
		case o.live:
			what = "some value"
		}
		lines = append(lines, line{o.begin, fmt.Sprintf("read of %s at %d to %d", what, o.begin, o.end)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for i, l := range lines {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(lines)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s", l.text)
	}
	return b.String()
}
