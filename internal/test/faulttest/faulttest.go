// Package faulttest lets each call of a store fail in turn: a test runs the same thing
// again and again over package faultstore, and in each run another call fails, in each
// of the ways in which the contract of stores lets it. What the caller under test
// reports as done must have been done, what it reports as failed must not have been.
package faulttest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
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

// Ways returns all ways. Of those with Times 1 the errors Unavailable and Timeout may
// be repeated, the others may not.
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

// Passing reports whether the one failure goes by if the call is repeated.
func (w *Way) Passing() bool {
	return w.Times == 1 && (w.Kind == store.Unavailable || w.Kind == store.Timeout)
}

// Case says which calls fail: from number Nth of an operation on, as Way says. A nil
// Way: none.
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

// Injected is how many calls failed so far because they were made to.
func Injected(f *faultstore.Faults) int {
	c := f.Counts()
	return c.Refused + c.Lost + c.Late
}

// Calls are how many calls there were so far of each operation.
func Calls(f *faultstore.Faults) map[faultstore.Op]int {
	calls := map[faultstore.Op]int{}
	for op := range faultstore.Acknowledge + 1 {
		calls[op] = f.Counts(op).Calls
	}
	return calls
}

// Each runs f for each of the first calls[op] calls of each operation and each way, until
// one of them fails the test. EVENKEEL_FAULT chooses one case.
func Each(t *testing.T, calls map[faultstore.Op]int, f func(c Case)) {
	only, cases := os.Getenv("EVENKEEL_FAULT"), 0
	for op := range faultstore.Acknowledge + 1 {
		for _, w := range Ways() {
			if w.Only != nil && !slices.Contains(w.Only, op) {
				continue
			}
			for nth := 1; nth <= calls[op]; nth++ {
				c := Case{Op: op, Nth: nth, Way: &w}
				if only != "" && only != c.String() {
					continue
				}
				cases++
				f(c)
				if t.Failed() {
					t.Logf("EVENKEEL_FAULT=%q", c)
					return
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}
