package cut_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/cut"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/planner"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

var ctx = context.Background()

// small is the default policy for 1,000 rows: min 250, target 600.
func small() policy.Policy { return policy.Default(1000) }

// key is the n-th key of the i-th range.
func key(i, n int) []byte { return fmt.Appendf(nil, "%02d/%04d", i, n) }

// ranges makes a zone of ranges with so many rows each, in quanta of 8.
func ranges(rows ...int) *cut.Zone {
	z := &cut.Zone{}
	for i, n := range rows {
		r := cut.Range{}
		if i > 0 {
			r.Start = fmt.Appendf(nil, "%02d", i)
			z.Ranges[i-1].End = r.Start
		}
		for at := 0; at < n; at += 8 {
			q := counter.Quantum{Key: key(i, at), Rows: int64(min(8, n-at))}
			if at == 0 {
				q.Key = nil
			}
			r.Quanta = append(r.Quanta, q)
		}
		r.Stats.Rows = int64(n)
		z.Ranges = append(z.Ranges, r)
	}
	return z
}

func split(rows int64, parts int) *policy.Verdict {
	return &policy.Verdict{Kind: policy.Split, From: 0, To: 1, Parts: parts, Rows: rows, Grown: rows, Why: policy.Rows, Text: "too many"}
}

// sizes are the rows of the parts of a move.
func sizes(z *cut.Zone, m *cut.Move) []int64 {
	out := []int64{0}
	k := 0
	for i := m.From - z.First; i < m.To-z.First; i++ {
		for n, q := range z.Ranges[i].Quanta {
			at := q.Key
			if n == 0 {
				at = z.Ranges[i].Start
			}
			for k < len(m.Cuts) && string(m.Cuts[k]) <= string(at) {
				k++
				out = append(out, 0)
			}
			out[k] += q.Rows
		}
	}
	return out
}

func one(t *testing.T, c cut.Cutter, z *cut.Zone, v *policy.Verdict) cut.Move {
	t.Helper()
	p := small()
	moves, err := c.Cut(ctx, z, v, &p)
	require.NoError(t, err)
	require.Len(t, moves, 1)
	return moves[0]
}

func TestEvenParts(t *testing.T) {
	z := ranges(1200)
	m := one(t, cut.Even{}, z, split(1200, 3))
	require.Equal(t, []int64{400, 400, 400}, sizes(z, &m))
	require.Equal(t, 2, m.Stay, "of equals the last")
	require.Equal(t, int64(800), m.Copies)
	require.Equal(t, move.Goal{Cuts: [][]byte{key(0, 400), key(0, 800)}, Stay: 2, Rows: 1200, Copies: 800}, m.Goal())

	// All rows in one quantum: nowhere to cut.
	z.Ranges[0].Quanta = []counter.Quantum{{Rows: 1200}}
	p := small()
	moves, err := cut.Even{}.Cut(ctx, z, split(1200, 2), &p)
	require.NoError(t, err)
	require.Empty(t, moves)
}

func genetic(t require.TestingT) cut.Cutter {
	c, err := planner.Cutter("genetic", 1)
	require.NoError(t, err)
	return c
}

// Where rows grow all over, a quarter leaves: of all cuts that keep the minimum it
// moves the fewest rows over a whole load.
func TestAQuarterLeaves(t *testing.T) {
	z := ranges(1010)
	m := one(t, genetic(t), z, split(1010, 2))
	require.InDelta(t, 256, m.Copies, 16)
	require.Equal(t, int64(1010), m.Rows)
}

// What is foreseen is kept room for: parts that are within the limits at the horizon,
// small as they are today.
func TestPartsForWhatIsForeseen(t *testing.T) {
	z := ranges(240)
	v := split(240, 8)
	v.Grown, v.Why = 4800, policy.Forecast
	for name, c := range map[string]cut.Cutter{"even": cut.Even{}, "genetic": genetic(t)} {
		m := one(t, c, z, v)
		for _, n := range sizes(z, &m) {
			require.LessOrEqual(t, n, int64(50), "%s: twenty times as many are foreseen", name)
			require.GreaterOrEqual(t, n, int64(8))
		}
	}
}

// A range whose newest rows all lie below the others is cut beside them.
func TestGrowthAtOneEnd(t *testing.T) {
	for _, c := range []cut.Cutter{cut.Even{}, genetic(t)} {
		z := ranges(1010)
		z.Ranges[0].Earlier = z.Ranges[0].Quanta[13:] // 104 rows came below
		m := one(t, c, z, split(1010, 2))
		require.Equal(t, 1, m.Stay, "what was there stays")
		require.LessOrEqual(t, m.Copies, int64(8), "what comes next lies lower still")
		require.Contains(t, m.Text, "low end")

		inside := append([]counter.Quantum{{Rows: 8}}, z.Ranges[0].Quanta[14:]...) // the same, but a few were there
		inside[0].Key, z.Ranges[0].Earlier = nil, inside
		inside[1].Key = key(0, 16)
		m = one(t, c, z, split(1010, 2))
		require.Equal(t, 1, m.Stay)
		require.LessOrEqual(t, m.Copies, int64(130))
		require.Contains(t, m.Text, "low end")

		z.Ranges[0].Earlier = z.Ranges[0].Quanta[:110] // 130 rows came above
		m = one(t, c, z, split(1010, 2))
		require.Equal(t, 0, m.Stay)
		require.LessOrEqual(t, m.Copies, int64(130))
		require.Contains(t, m.Text, "high end")

		var thin []counter.Quantum // a tenth of the rows came, all over
		for i, q := range z.Ranges[0].Quanta {
			if i%10 > 0 {
				thin = append(thin, q)
			}
		}
		z.Ranges[0].Earlier, z.Ranges[0].Stats.Spread = thin, 0.9
		m = one(t, c, z, split(1010, 2))
		require.GreaterOrEqual(t, m.Copies, int64(250))
		require.Equal(t, "too many", m.Text)
	}
}

// The minimum holds for parts that do not grow.
func TestMergesJoinWhatTheyName(t *testing.T) {
	for _, c := range []cut.Cutter{cut.Even{}, genetic(t)} {
		z := ranges(700, 100, 200, 900)
		z.First = 7
		z.Ranges[0].Fixed, z.Ranges[3].Fixed = true, true
		v := &policy.Verdict{Kind: policy.Merge, From: 8, To: 10, Rows: 300, Why: policy.Rows, Text: "too few"}
		m := one(t, c, z, v)
		require.Equal(t, cut.Move{From: 8, To: 10, Start: []byte("01"), End: []byte("03"), Stay: -1, Rows: 300, Copies: 300, Why: policy.Rows, Text: "too few"}, m)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	p := small()
	for _, c := range []cut.Cutter{cut.Even{}, genetic(t)} {
		z := ranges(1200, 100)
		v := split(1200, 2)
		v.From, v.To = 1, 3
		_, err := c.Cut(ctx, z, v, &p)
		require.ErrorContains(t, err, "ranges 1 up to 3")
		z.Ranges[0].Fixed = true
		_, err = c.Cut(ctx, z, split(1200, 2), &p)
		require.ErrorContains(t, err, "fixed")
		z = ranges(10, 20)
		z.Ranges[1].Pinned = true
		_, err = c.Cut(ctx, z, &policy.Verdict{Kind: policy.Merge, From: 0, To: 2}, &p)
		require.ErrorContains(t, err, "pinned")
		_, err = c.Cut(ctx, z, &policy.Verdict{Kind: policy.Roll, From: 0, To: 1}, &p)
		require.ErrorContains(t, err, "roll")
	}
}

// drawn is a zone that anything may be odd about, with a verdict about some of it.
func drawn(t *rapid.T) (*cut.Zone, *policy.Verdict) {
	var rows []int
	for range rapid.IntRange(1, 6).Draw(t, "ranges") {
		rows = append(rows, rapid.SampledFrom([]int{0, 1, 7, 60, 249, 300, 700, 1001, 1500, 6000}).Draw(t, "rows"))
	}
	z := ranges(rows...)
	z.First = rapid.IntRange(0, 3).Draw(t, "first")
	for i := range z.Ranges {
		r := &z.Ranges[i]
		r.Pinned = rapid.IntRange(0, 4).Draw(t, "pinned") == 0
		r.Fixed = rapid.IntRange(0, 4).Draw(t, "fixed") == 0
		r.Stats.GrowthRowsPerS = rapid.SampledFrom([]float64{-1, 0, 0.1, 5}).Draw(t, "growth")
		if n := len(r.Quanta); n > 0 && rapid.Bool().Draw(t, "earlier") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			r.Earlier = r.Quanta[from:rapid.IntRange(from, n).Draw(t, "to")]
		}
	}
	v := &policy.Verdict{Kind: policy.Split, Why: policy.Rows, Text: "a test"}
	i := rapid.IntRange(0, len(rows)-1).Draw(t, "from")
	to := i + 1
	if rapid.Bool().Draw(t, "merge") && to < len(rows) {
		v.Kind = policy.Merge
		to = rapid.IntRange(i+2, len(rows)).Draw(t, "to")
	}
	for k := i; k < to; k++ {
		z.Ranges[k].Fixed = false
		z.Ranges[k].Pinned = z.Ranges[k].Pinned && k == i
		v.Rows += z.Ranges[k].Rows()
	}
	v.From, v.To = z.First+i, z.First+to
	v.Grown = v.Rows * rapid.SampledFrom([]int64{1, 1, 3, 20}).Draw(t, "grown")
	if v.Kind == policy.Split {
		v.Why = rapid.SampledFrom([]policy.Why{policy.Rows, policy.Forecast, policy.Bytes, policy.Load}).Draw(t, "why")
		v.Parts = rapid.IntRange(2, 40).Draw(t, "parts")
	}
	return z, v
}

// Whatever is asked: the moves keep to the map's rules, and package migrate, asked
// for the same, moves exactly the rows that they say.
func TestMovesKeepTheRules(t *testing.T) {
	names := planner.Cutters()
	rapid.Check(t, func(t *rapid.T) {
		z, v := drawn(t)
		p := small()
		p.MaxBytes = rapid.SampledFrom([]int64{0, 50_000}).Draw(t, "max bytes")
		for i := range z.Ranges {
			z.Ranges[i].Stats.Bytes = z.Ranges[i].Rows() * 100
		}
		c, err := planner.Cutter(rapid.SampledFrom(names).Draw(t, "cutter"), 1)
		require.NoError(t, err)
		moves, err := c.Cut(ctx, z, v, &p)
		require.NoError(t, err)
		again, err := c.Cut(ctx, z, v, &p)
		require.NoError(t, err)
		require.Equal(t, moves, again, "the same again is the same")
		if v.Kind == policy.Merge || v.Rows >= 2 && len(z.Ranges[v.From-z.First].Quanta) > 1 {
			require.NotEmpty(t, moves, "what was decided is done")
		}
		at := z.First
		for _, m := range moves {
			require.GreaterOrEqual(t, m.From, at)
			require.Greater(t, m.To, m.From)
			at = m.To
			from, to := m.From-z.First, m.To-z.First
			require.Equal(t, z.Ranges[from].Start, m.Start)
			require.Equal(t, z.Ranges[to-1].End, m.End)
			cuts := map[string]bool{}
			for _, c := range m.Cuts {
				cuts[string(c)] = true
			}
			places := map[string]bool{}
			var view move.View
			for i := from; i < to; i++ {
				r := &z.Ranges[i]
				require.False(t, r.Fixed, "a fixed range is left alone")
				if i > from {
					places[string(r.Start)] = true
					require.True(t, !r.Pinned || cuts[string(r.Start)], "a pinned start stays a cut")
				}
				for k, q := range r.Quanta {
					places[string(q.Key)] = k > 0 || places[string(q.Key)]
				}
				rg := partmap.Range{Entry: partmap.Entry{Start: r.Start, Partition: store.PartitionID{byte(i + 1)}}, End: r.End}
				if r.Pinned {
					rg.PinUntil = 1 << 40
				}
				view.Ranges = append(view.Ranges, rg)
			}
			for c := range cuts {
				require.True(t, places[c], "%q is no place for a cut", c)
			}
			parts := sizes(z, &m)
			for _, n := range parts {
				require.True(t, n > 0 || v.Kind == policy.Merge)
			}
			goal := m.Goal()
			n := 100
			verdict, made, err := goal.Judge(&view, time.Unix(0, 0), func() store.PartitionID { n++; return store.PartitionID{byte(n), byte(n >> 8), 1} })
			require.NoError(t, err)
			require.Equal(t, move.Ready, verdict)
			copies, rows := int64(0), int64(0)
			for k, part := range made.Parts {
				rows += parts[k]
				if !part.To.IsZero() {
					copies += parts[k]
				}
			}
			require.Equal(t, copies, m.Copies)
			require.Equal(t, rows, m.Rows)
			require.NotEmpty(t, m.Text)
		}
	})
}

func TestTrail(t *testing.T) {
	id := func(n int) store.PartitionID { return store.PartitionID{byte(n)} }
	trail := cut.NewTrail(2)
	asked := 0
	note := func(n int, rows int64) {
		trail.Note(id(n), rows, func() []counter.Quantum {
			asked++
			return []counter.Quantum{{Rows: rows}}
		})
	}
	for rows := range int64(1000) {
		note(1, rows)
	}
	require.Less(t, asked, 40, "asked for at each tenth only")
	got := trail.Earlier(id(1), 1000)
	require.Len(t, got, 1)
	require.InDelta(t, 900, got[0].Rows, 60)
	require.Nil(t, trail.Earlier(id(1), 500), "that was forgotten")
	note(1, 300)
	require.Nil(t, trail.Earlier(id(1), 300), "it shrank: nothing is known of before")
	require.NotNil(t, trail.Earlier(id(1), 350))
	note(2, 100)
	note(3, 100)
	require.Nil(t, trail.Earlier(id(1), 350), "the oldest is forgotten")
	trail.Forget(id(2))
	trail.Forget(id(2))
	require.Nil(t, trail.Earlier(id(2), 200))
	require.NotNil(t, trail.Earlier(id(3), 200))
}
