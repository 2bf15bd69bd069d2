// Package faulttest makes each call of a store fail in turn. A test repeats one operation
// over package faultstore; in each run another call fails, in each way that the contract
// of stores allows. If the code under test reports success, the operation must have had
// its effect; if it reports a failure, it must have had none.
package faulttest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// Way is one way in which calls fail.
type Way struct {
	Name string
	faultstore.Fault
	// Times is how many calls in a row fail.
	Times int
	// Only are the operations that fail so; nil: all.
	Only []faultstore.Op
}

var writes = []faultstore.Op{
	faultstore.Put, faultstore.Delete, faultstore.Remove, faultstore.Swap, faultstore.WriteNode, faultstore.DeleteNode,
}

// Ways returns all ways. With Times 1, callers may retry after Unavailable and Timeout,
// and must not after other errors.
func Ways() []Way {
	return []Way{
		{"refused", faultstore.Fault{Ending: faultstore.Refused, Kind: store.Unavailable}, 1, nil},
		{"answer lost", faultstore.Fault{Ending: faultstore.Lost, Kind: store.Timeout}, 1, nil},
		{"late", faultstore.Fault{Ending: faultstore.Late, Kind: store.Timeout}, 1, writes},
		{"refused for a while", faultstore.Fault{Ending: faultstore.Refused, Kind: store.Unavailable}, 5, nil},
		{"answers lost", faultstore.Fault{Ending: faultstore.Lost, Kind: store.Timeout}, 5, writes},
		{"dead data", faultstore.Fault{Ending: faultstore.Refused, Kind: store.TooMuchDeadData}, 1, nil},
		{"corrupt", faultstore.Fault{Ending: faultstore.Refused, Kind: store.Corrupt}, 1, nil},
	}
}

// Passing reports whether one retry succeeds.
func (w *Way) Passing() bool {
	return w.Times == 1 && (w.Kind == store.Unavailable || w.Kind == store.Timeout)
}

// Case is which calls of an operation fail: from number Nth on, as Way says. A nil Way: no
// call.
type Case struct {
	Op  faultstore.Op
	Nth int
	Way *Way
}

// String is what EVENKEEL_FAULT takes to run one case alone.
func (c Case) String() string { return fmt.Sprintf("%s %d %s", c.Op, c.Nth, c.Way.Name) }

// Store wraps a store so that the calls of the case fail. Its faults are off.
func (c Case) Store(inner store.Store) (store.Store, *faultstore.Faults) {
	s, f := faultstore.New(inner,
		faultstore.Options{MaxLate: 15, Choose: func(op faultstore.Op, nth int) faultstore.Fault {
			if c.Way != nil && op == c.Op && nth >= c.Nth && nth < c.Nth+c.Way.Times {
				return c.Way.Fault
			}
			return faultstore.Fault{}
		}})
	f.Enable(false)
	return s, f
}

// Injected returns the number of injected failures so far.
func Injected(f *faultstore.Faults) int {
	c := f.Counts()
	return c.Refused + c.Lost + c.Late
}

// Calls returns the number of calls so far, by operation.
func Calls(f *faultstore.Faults) map[faultstore.Op]int {
	calls := map[faultstore.Op]int{}
	for op := range faultstore.Acknowledge + 1 {
		calls[op] = f.Counts(op).Calls
	}
	return calls
}

// Sample counts cases. The race detector gets the first of each five: it makes them up to 40 times slower.
// make test also runs all of them without it.
type Sample int

// Skips counts a case and reports whether it is left out.
func (s *Sample) Skips() bool {
	*s++
	return race.Enabled && *s%5 != 1
}

// Each runs f for each of the first calls[op] calls of each operation and each way, until
// one of them fails the test; with the race detector, for a sample. EVENKEEL_FAULT chooses one case.
func Each(t *testing.T, calls map[faultstore.Op]int, f func(c Case)) {
	only, cases := os.Getenv("EVENKEEL_FAULT"), 0
	var sample Sample
	for op := range faultstore.Acknowledge + 1 {
		for _, w := range Ways() {
			if w.Only != nil && !slices.Contains(w.Only, op) {
				continue
			}
			for nth := 1; nth <= calls[op]; nth++ {
				c := Case{Op: op, Nth: nth, Way: &w}
				if only != "" && only != c.String() || only == "" && sample.Skips() {
					continue
				}
				cases++
				f(c)
				if t.Failed() {
					t.Logf("repeat this case alone with EVENKEEL_FAULT=%q", c)
					return
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}
