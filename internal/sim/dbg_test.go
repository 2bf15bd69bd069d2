package sim_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/evenkeel/evenkeel/internal/sim"
)

func TestDbg(t *testing.T) {
	if os.Getenv("DBG") == "" {
		t.Skip()
	}
	seeds(t, 1, func(seed uint64) bool {
		c := sim.Random(seed)
		for _, m := range mistakes {
			if m.name == os.Getenv("DBG") {
				m.on(&c.Mistakes)
			}
		}
		f, _ := os.Create("/tmp/trace.txt")
		c.Trace = func(s string) { fmt.Fprintln(f, s) }
		r := run(t, c)
		fmt.Fprintf(f, "%+v\n%+v\n", c.Kill, r)
		return true
	})
}
