package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
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

// Linearizable decides, for each key, whether an order of all calls exists in which every
// read shows what the register then holds. It sees more than Check, which judges each
// answer by what is known for sure: two answers may be right one by one and not
// together. A write of unknown outcome may take effect at any moment after it was
// begun, or never. All of the history has to be of one site.
//
// HighestWins is decided in time that grows with the square of a key's calls, LastWins
// by a search: a key that it does not decide within patience (0: no bound) is a violation
// of its own.
func (h *History) Linearizable(kind Register, patience time.Duration) []Violation {
	c := h.gather()
	if len(c.sites) > 1 {
		c.violation(Undecided, "", "the history is of %d sites: take one at a time", len(c.sites))
		return c.found
	}
	for _, key := range c.sorted {
		calls := c.keys[key].calls(kind)
		if kind == HighestWins {
			if r := highest(calls); r != nil {
				c.violation(Unordered, key, "no order of its %d calls explains one:%s\namong:%s", len(calls),
					timeline([]porcupine.Operation{*r}), timeline(calls))
			}
			continue
		}
		calls, free := withoutFree(calls)
		switch porcupine.CheckOperationsTimeout(lastWins(free), calls, patience) {
		case porcupine.Illegal:
			c.violation(Unordered, key, "no order explains its %d calls:%s", len(calls), timeline(calls))
		case porcupine.Unknown:
			c.violation(Undecided, key, "not decided within %v: %d calls", patience, len(calls))
		}
	}
	return c.found
}

// answer is what a read said.
type answer struct {
	live  bool
	shown *Write // nil: absent or, where live, a value that was not shown
	end   int64
}

// shows reports whether a register that holds w (nil: nothing) answers so.
func (a answer) shows(w *Write) bool {
	switch {
	case a.shown != nil:
		return w == a.shown
	case a.live:
		return w != nil && !w.Delete
	}
	return w == nil || w.Delete
}

// calls are the operations of a key. The input of a write is a *Write, that of a
// read nil.
func (k *register) calls(kind Register) (calls []porcupine.Operation) {
	seen := map[*Write]bool{}
	for _, o := range k.seen {
		seen[o.shown] = true
		calls = append(calls, porcupine.Operation{
			Call: int64(o.begin), Return: int64(o.end), Output: answer{o.live, o.shown, int64(o.end)},
		})
	}
	keysOnly := slices.ContainsFunc(k.seen, func(o observation) bool { return o.live && o.shown == nil })
	for _, w := range k.writes {
		ret := int64(w.End)
		switch {
		case w.Outcome == Refused:
			continue
		case w.Outcome == Unknown && !w.Delete && !seen[w] && !keysOnly:
			// In any order that explains the rest it may as well be left out: no read
			// comes between it and what replaced it.
			continue
		case w.Outcome == Unknown, w.Outcome == Cleared && kind == HighestWins:
			ret = math.MaxInt64
		}
		calls = append(calls, porcupine.Operation{Input: w, Call: int64(w.Begin), Return: ret})
	}
	return calls
}

// withoutFree takes the deletions of unknown outcome out of a key's calls, and returns when they were begun, in order.
// Any of them can take the place of any other that was begun before, so a search that tries each goes through all of
// their orders. The model uses them instead, the earliest first.
func withoutFree(calls []porcupine.Operation) (others []porcupine.Operation, free []int64) {
	for _, c := range calls {
		if w, ok := c.Input.(*Write); ok && w.Delete && c.Return == math.MaxInt64 {
			free = append(free, c.Call)
			continue
		}
		others = append(others, c)
	}
	slices.Sort(free)
	return others, free
}

// lasting is the state of a register whose last write wins.
type lasting struct {
	held *Write
	free int // how many free deletions have taken effect
}

// lastWins is the model of a register with free deletions, which were begun at those times. What one deletes is seen
// by nobody but reads that find nothing, so it may as well take effect right before the first of them. What comes
// behind it in the order must not have ended before it was begun.
func lastWins(free []int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lasting{} },
		Step: func(state, input, output any) (bool, any) {
			s, end := state.(lasting), int64(math.MaxInt64)
			w, ok := input.(*Write)
			if !ok {
				end = output.(answer).end
			} else if w.Outcome != Unknown {
				end = int64(w.End)
			}
			if ok {
				s.held = w
			} else if !output.(answer).shows(s.held) {
				if output.(answer).live || s.free == len(free) {
					return false, state
				}
				s.held, s.free = nil, s.free+1
			}
			return s.free == 0 || end >= free[s.free-1], s
		},
	}
}

// timeline tells the calls of a key, as far as that is readable.
func timeline(calls []porcupine.Operation) string {
	const most = 60
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for i, c := range calls {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(calls)-most)
			break
		}
		if w, ok := c.Input.(*Write); ok {
			fmt.Fprintf(&b, "\n  write of %s", describe(w))
			continue
		}
		a := c.Output.(answer)
		what := "nothing"
		switch {
		case a.shown != nil:
			what = fmt.Sprintf("%.60q", a.shown.Value)
		case a.live:
			what = "some value"
		}
		fmt.Fprintf(&b, "\n  read of %s at %d to %d", what, c.Call, c.Return)
	}
	return b.String()
}
