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

// The rules that Linearizable enforces.
const (
	// Unordered is broken by a key whose calls no order explains, in which each call takes effect at one moment between
	// its beginning and its end.
	Unordered Rule = "unordered"
	// Undecided means that the search for an order was given up. It proves nothing.
	Undecided Rule = "undecided"
)

// Register is the rule by which Linearizable checks the reads of a key.
type Register uint8

const (
	// LastWins means that a read shows the last write before the read. This holds where all timestamps come from one
	// source.
	LastWins Register = iota
	// HighestWins means that a read shows the write with the highest timestamp of all writes before the read. This
	// holds where timestamps come from several clocks. The two bounds of each write's timestamp must be equal, and no
	// two writes of a key may have the same timestamp.
	HighestWins
)

// Linearizable checks, for each key, whether an order of all calls exists in which every read shows what the register
// then holds. It finds more than Check, which checks each answer by what is known for sure: two answers may be right
// one by one, but not together. A write of unknown outcome may take effect at any moment after it began, or never. The
// history must be of one site.
//
// For HighestWins the time grows with the square of a key's calls. For LastWins the method searches for an order. If
// the search for a key is not done within patience (0: no limit), the result has the violation Undecided.
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

// answer is what a read of a key showed.
type answer struct {
	live  bool
	shown *Write // nil: absent or, where live, a value that was not shown
	end   int64
}

// shows reports whether a register that holds the write w, or nothing if w is nil, gives the answer a.
func (a answer) shows(w *Write) bool {
	switch {
	case a.shown != nil:
		return w == a.shown
	case a.live:
		return w != nil && !w.Delete
	}
	return w == nil || w.Delete
}

// calls returns the operations of a key, for the search. The input of a write is a *Write, and that of a read is nil.
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

// withoutFree removes the deletions of unknown outcome from a key's calls. free has the times at which they began, in
// order. Each of these deletions can replace any other one that began earlier, so a search that tries each of them
// would try all their orders. The model of lastWins uses them instead, the earliest first.
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

// lasting is the state of a register that holds the value of the last write.
type lasting struct {
	held *Write
	free int // how many free deletions have taken effect
}

// lastWins returns the model of a register with free deletions, which are deletions of unknown outcome. free has the
// times at which they began. Only reads that find nothing can notice such a deletion, so the deletion takes effect
// right before the first of these reads. A call that comes after the deletion in the order must not have ended before
// the deletion began.
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

// timeline returns the first 60 calls of a key as text, one per line.
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
