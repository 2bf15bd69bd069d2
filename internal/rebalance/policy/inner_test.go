package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
)

// Splits of ranges that are too large come first, then refreshes, then other splits.
func TestUrgency(t *testing.T) {
	for want, all := range [][]Decision{
		{{Kind: Split, Why: Rows}},
		{{Kind: Refresh, Why: Rows}, {Kind: Refresh}},
		{{Kind: Split, Why: Load}, {Kind: Split, Why: Forecast}},
		{{Kind: Merge, Why: Rows}},
	} {
		for i := range all {
			require.Equal(t, want, urgency(&all[i]), "%+v", all[i])
		}
	}
}

// A range takes appends of its own as long as it has room, or the next one has taken more
// puts than came since the last count; not if its last put is long before the last one.
func TestAppendsOfItsOwn(t *testing.T) {
	j := &judge{Policy: &Policy{MaxRows: 1000, Cool: 20 * time.Second}}
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		rows, puts int64 // of the range, of the next
		ago        time.Duration
		perS       float64
		want       bool
	}{
		{699, 0, 0, 0, true}, {700, 0, 0, 0, false}, {699, 41, 0, 0, true}, {700, 40, 0, 0, false}, {700, 41, 0, 0, true},
		{699, 41, 2 * time.Second, 0, true}, {699, 41, 2*time.Second + 1, 0, false},
		{699, 41, 8 * time.Second, 0.5, true}, {699, 41, 8*time.Second + 1, 0.5, false}, // three of its puts later
		{699, 41, 22 * time.Second, 0.01, true}, {699, 41, 22*time.Second + 1, 0.01, false},
	} {
		s := &counter.Stats{Rows: c.rows, LastPut: now.Add(-c.ago), PutsPerS: c.perS}
		next := &counter.Stats{Puts: c.puts, PutsPerS: 10}
		require.Equal(t, c.want, j.own(s, next, &counter.Stats{LastPut: now}), "%+v", c)
	}
}
