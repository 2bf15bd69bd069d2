// Package faulttest makes each call of a store fail in turn. A test repeats one operation over package faultstore. In
// each run another call fails, in each way that the contract of stores allows. If the code under test reports success,
// the operation must have had its effect. If the code reports a failure, the operation must have had no effect.
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

// Way is one way in which calls of a store fail.
type Way struct {
	Name string
	faultstore.Fault
	// Times is the number of successive calls that fail.
	Times int
	// Only lists the operations that can fail in the way. nil stands for all operations.
	Only []faultstore.Op
}

var writes = []faultstore.Op{
	faultstore.Put, faultstore.Delete, faultstore.Remove, faultstore.Swap, faultstore.WriteNode, faultstore.DeleteNode,
}

// Ways returns all ways in which calls fail. In ways with Times 1, the caller may retry after Unavailable and Timeout,
// and must not retry after other errors.
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

// Passing reports whether a single retry by the caller succeeds.
func (w *Way) Passing() bool {
	return w.Times == 1 && (w.Kind == store.Unavailable || w.Kind == store.Timeout)
}

// Case says which calls of a store fail: calls of the operation Op, from call number Nth on, in the way Way. If Way is
// nil, no call fails.
type Case struct {
	Op  faultstore.Op
	Nth int
	Way *Way
}

// String returns the case as text, e.g. "put 3 late". EVENKEEL_FAULT takes the text to run only that case.
func (c Case) String() string { return fmt.Sprintf("%s %d %s", c.Op, c.Nth, c.Way.Name) }

// Store wraps the store inner so that the calls of the case fail. At first the faults are off.
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

// Injected returns the number of failures that were injected so far.
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

// Sample is the number of cases so far. With the race detector only one case of five is run, as the race detector makes
// cases up to 40 times slower. make test also runs all cases without the race detector.
type Sample int

// Skips counts a case, and reports whether the case is to be left out.
func (s *Sample) Skips() bool {
	*s++
	return race.Enabled && *s%5 != 1
}

// Each runs f for each case: each of the first calls[op] calls of each operation, and each way to fail. Each stops at
// the first case that fails the test. With the race detector, Each runs a sample of the cases. EVENKEEL_FAULT chooses a
// single case.
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
