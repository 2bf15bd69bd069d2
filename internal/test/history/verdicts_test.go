package history

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// plain is a register without free deletions.
func plain(overwrites func(held, w *Write) bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return (*Write)(nil) },
		Step: func(state, input, output any) (bool, any) {
			held := state.(*Write)
			if w, ok := input.(*Write); ok {
				if held == nil || overwrites(held, w) {
					return true, w
				}
				return true, held
			}
			return output.(answer).shows(held), held
		},
	}
}

// A search with the plain definition of a register finds the same as highest, which does not search, and as the search
// without free deletions.
func TestVerdictsAreThoseOfAPlainSearch(t *testing.T) {
	highestWins := plain(func(held, w *Write) bool { return w.Low >= held.Low })
	plainLastWins := plain(func(_, _ *Write) bool { return true })
	r := seed.New(t)
	explained := map[string]int{}
	for range 40_000 {
		var calls []porcupine.Operation
		var puts []*Write
		long := 1 + r.IntN(12)
		interval := func() porcupine.Operation {
			begin := int64(r.IntN(30))
			return porcupine.Operation{Call: begin, Return: begin + int64(r.IntN(long))}
		}
		stamps := r.Perm(20) // no two writes share a timestamp
		deletes := 2 + r.IntN(2)
		for i := range r.IntN(6) {
			c := interval()
			w := &Write{Low: int64(stamps[i]) - 5, Delete: r.IntN(deletes) == 0, End: Instant(c.Return),
				Outcome: Acknowledged}
			if r.IntN(2) == 0 { // few contradict the order in which they were begun
				w.Low += 20 * c.Call
			}
			if c.Input = w; r.IntN(3) == 0 {
				c.Return, w.Outcome = math.MaxInt64, Unknown
			}
			if !w.Delete {
				puts = append(puts, w)
			}
			calls = append(calls, c)
		}
		for range 1 + r.IntN(5) {
			c := interval()
			switch n := r.IntN(8); {
			case n < 3 && len(puts) > 0:
				c.Output = answer{true, puts[r.IntN(len(puts))], c.Return}
			case n < 7:
				c.Output = answer{end: c.Return}
			default:
				c.Output = answer{live: true, end: c.Return}
			}
			calls = append(calls, c)
		}
		search := func(m porcupine.Model, calls []porcupine.Operation) bool {
			verdict := porcupine.CheckOperationsTimeout(m, calls, time.Minute)
			require.NotEqual(t, porcupine.Unknown, verdict)
			return verdict == porcupine.Ok
		}
		others, free := withoutFree(calls)
		last, high := search(plainLastWins, calls), search(highestWins, calls)
		require.Equal(t, last, search(lastWins(free), others), "last wins:%s", timeline(calls))
		require.Equal(t, high, highest(calls) == nil, "highest wins:%s", timeline(calls))
		explained[fmt.Sprint("last ", last)]++
		explained[fmt.Sprint("highest ", high)]++
		if len(free) > 0 && last != search(plainLastWins, others) {
			explained["free deletions matter"]++
		}
	}
	for _, what := range []string{"last true", "last false", "highest true", "highest false"} {
		require.Greater(t, explained[what], 4_000, "%v", explained)
	}
	require.Greater(t, explained["free deletions matter"], 400, "%v", explained)
}
