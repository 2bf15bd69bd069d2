package history

import (
	"cmp"
	"math"
	"slices"
)

// Call is one call about a thing whose state is an S.
type Call[S comparable] struct {
	Begin, End Instant
	// Then returns the states that the call may leave behind where it finds the given one.
	// None: there it could not have had its answer.
	Then func(S) []S
}

// searched bounds the states that a search visits, and so its time and memory. A right
// history of n calls takes little more than n.
const searched = 1 << 16

// Ordered searches an order of all calls in which each takes effect at one moment between
// its beginning and its end, the first of them on the given state. If decided is false,
// the search was given up.
func Ordered[S comparable](first S, calls []Call[S]) (explained, decided bool) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b Call[S]) int { return cmp.Compare(a.Begin, b.Begin) })
	s := search[S]{calls: calls, done: make([]byte, (len(calls)+7)/8), seen: map[visit[S]]struct{}{}}
	explained = s.from(first, len(calls))
	return explained, explained || len(s.seen) < searched
}

// search is that of Wing and Gong, with the visited states kept, as Lowe has it.
type search[S comparable] struct {
	calls []Call[S] // by their beginnings
	done  []byte    // a bit for each call that has taken effect
	seen  map[visit[S]]struct{}
}

// visit is what the rest of a search depends on.
type visit[S comparable] struct {
	done  string
	state S
}

// from searches an order of the calls that are left, of which there are so many.
func (s *search[S]) from(state S, left int) bool {
	if left == 0 {
		return true
	}
	here := visit[S]{string(s.done), state}
	if _, again := s.seen[here]; again || len(s.seen) == searched {
		return false
	}
	s.seen[here] = struct{}{}
	// The next call is one that began before any of those left had ended.
	end := Instant(math.MaxInt64)
	for i := range s.left() {
		if s.calls[i].Begin > end {
			break
		}
		end = min(end, s.calls[i].End)
	}
	for i := range s.left() {
		c := &s.calls[i]
		if c.Begin > end {
			break
		}
		s.done[i/8] |= 1 << (i % 8)
		for _, next := range c.Then(state) {
			if s.from(next, left-1) {
				return true
			}
		}
		s.done[i/8] &^= 1 << (i % 8)
	}
	return false
}

// left yields the calls that have not taken effect.
func (s *search[S]) left() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range s.calls {
			if s.done[i/8]&(1<<(i%8)) == 0 && !yield(i) {
				return
			}
		}
	}
}
