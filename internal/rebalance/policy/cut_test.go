package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// key is the n-th key of a range.
func key(n int) []byte { return fmt.Appendf(nil, "%04d", n) }

// counted makes a range of so many rows, in quanta of 8.
func counted(rows int) *Range {
	r := &Range{Stats: counter.Stats{Rows: int64(rows)}}
	for at := 0; at < rows; at += 8 {
		q := counter.Quantum{Key: key(at), Rows: int64(min(8, rows-at))}
		if at == 0 {
			q.Key = nil
		}
		r.Quanta = append(r.Quanta, q)
	}
	return r
}

func toSplit(rows int64, parts int) Decision {
	return Decision{Kind: Split, To: 1, Parts: parts, Rows: rows, Grown: rows, Why: Rows, Text: "too many"}
}

// sizes are the rows of the parts of a split.
func sizes(r *Range, d *Decision) []int64 {
	out := []int64{0}
	k := 0
	for _, q := range r.Quanta {
		for k < len(d.Cuts) && string(d.Cuts[k]) <= string(q.Key) {
			k++
			out = append(out, 0)
		}
		out[k] += q.Rows
	}
	return out
}

// planned is the default policy for 1,000 rows (min 250, target 600) with a planner.
func planned(name string) *Policy {
	p := Default(1000)
	p.Planner = name
	return &p
}

// cut finds the cuts of a split.
func cut(planner string, r *Range, d Decision) Decision {
	planned(planner).split(r, &d)
	return d
}

func TestEvenParts(t *testing.T) {
	r := counted(1200)
	d := cut("even", r, toSplit(1200, 3))
	require.Equal(t, []int64{400, 400, 400}, sizes(r, &d))
	require.Equal(t, 2, d.Stay, "of equals the last")
	require.Equal(t, int64(800), d.Copies)
	require.Equal(t, [][]byte{key(400), key(800)}, d.Cuts)

	r.Quanta = []counter.Quantum{{Rows: 1200}}
	d = cut("even", r, toSplit(1200, 2))
	require.Equal(t, None, d.Kind)
	require.Equal(t, NoCut, d.Why)
	require.Empty(t, d.Cuts)
}

// A range of which it is not known where its rows lie is counted before it is cut.
func TestNothingIsCutBlindly(t *testing.T) {
	r := counted(1200)
	r.Quanta = nil
	d := cut("genetic", r, toSplit(1200, 2))
	require.Equal(t, Recount, d.Kind)
	require.Equal(t, Suspect, d.Why)
	require.Empty(t, d.Cuts)
}

// Of a range that grows everywhere a quarter leaves: of all cuts that keep the minimum it moves the fewest rows over
// a whole load.
func TestAQuarterLeaves(t *testing.T) {
	d := cut("genetic", counted(1010), toSplit(1010, 2))
	require.InDelta(t, 256, d.Copies, 16)
	require.Equal(t, int64(1010), d.Rows)
	require.NotNil(t, d.Gap)
}

// The parts keep the limits at the horizon, small as they are today.
func TestPartsForForecastGrowth(t *testing.T) {
	for _, planner := range []string{"even", "genetic"} {
		r := counted(240)
		d := toSplit(240, 8)
		d.Grown, d.Why = 4800, Forecast
		d = cut(planner, r, d)
		for _, n := range sizes(r, &d) {
			require.LessOrEqual(t, n, int64(50), "%s: twenty times as many are forecast", planner)
			require.GreaterOrEqual(t, n, int64(8))
		}
	}
}

// Streams are those beside which a range is cut: not one in no order, for which it is cut in equal parts.
func TestStreamsThatAreNotCutBeside(t *testing.T) {
	r := counted(6000)
	grows(r, 0, 95, 0)
	d := cut("even", r, toSplit(6000, 2))
	require.Equal(t, []int64{3000, 3000}, sizes(r, &d))
	require.Empty(t, d.Streams)
}

// Splits keep the map's rules, and package move, given the same goal, moves exactly the rows that they say.
func TestSplitsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := planned(rapid.SampledFrom(Planners()).Draw(t, "planner"))
		r := counted(rapid.SampledFrom([]int{1, 7, 60, 249, 300, 700, 1001, 1500, 6000}).Draw(t, "rows"))
		s := &r.Stats
		s.GrowthRowsPerS = rapid.SampledFrom([]float64{-1, 0, 0.1, 5}).Draw(t, "growth")
		if n := len(r.Quanta); rapid.Bool().Draw(t, "times") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			step := rapid.SampledFrom([]int64{-1, 0, 1}).Draw(t, "step")
			grows(r, from, rapid.IntRange(from, n).Draw(t, "to"), step)
		}
		d := toSplit(s.Rows, rapid.IntRange(2, 40).Draw(t, "parts"))
		d.Grown *= rapid.SampledFrom([]int64{1, 1, 3, 20}).Draw(t, "grown")
		d.Why = rapid.SampledFrom([]Why{Rows, Forecast}).Draw(t, "why")
		again := d
		p.split(r, &d)
		p.split(r, &again)
		require.Equal(t, d, again, "the same again is the same")
		require.NotEmpty(t, d.Text)
		if len(r.Quanta) == 1 {
			require.Equal(t, None, d.Kind)
			return
		}
		require.NotEmpty(t, d.Cuts, "what was decided is done")
		places := map[string]bool{}
		for _, q := range r.Quanta[1:] {
			places[string(q.Key)] = true
		}
		for _, c := range d.Cuts {
			require.True(t, places[string(c)], "%q is no place for a cut", c)
		}
		parts := sizes(r, &d)
		for _, n := range parts {
			require.Positive(t, n)
		}
		if len(d.Streams) > 0 {
			for _, n := range parts {
				require.LessOrEqual(t, n, p.MaxRows)
			}
		}
		view := move.View{Ranges: []partmap.Range{{Entry: partmap.Entry{Partition: store.PartitionID{1}}}}}
		n := 100
		verdict, made, err := (&move.Goal{Cuts: d.Cuts, Stay: d.Stay}).
			Judge(&view, time.Unix(0, 0), func() store.PartitionID {
				n++
				return store.PartitionID{byte(n), byte(n >> 8), 1}
			})
		require.NoError(t, err)
		require.Equal(t, move.Ready, verdict)
		copies, rows := int64(0), int64(0)
		for k, part := range made.Parts {
			rows += parts[k]
			if !part.To.IsZero() {
				copies += parts[k]
			}
		}
		require.Equal(t, copies, d.Copies)
		require.Equal(t, rows, d.Rows)
	})
}
