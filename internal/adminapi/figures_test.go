package adminapi

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/heat"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// seenRange is a range of a bucket as a look finds it.
func seenRange(start, end string, s counter.Stats) *balancer.Seen {
	x := &balancer.Seen{Range: policy.Range{Stats: s}, Verdict: policy.Decision{Kind: policy.None, Why: policy.Within}}
	x.Start, x.End = []byte(start), []byte(end)
	return x
}

// Bars have the sums of neighbouring ranges, each bar of the same power of two of them but the last one, and there are
// more than half as many as there may be.
func TestBarsSumUpTheirRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	for most := 1; most < 9; most++ {
		for n := range 70 {
			b := newBars(most, 100, 10)
			var all []*balancer.Seen
			for i := range n {
				s := counter.Stats{
					Known: r.IntN(2) == 0, Rows: []int64{0, 9, 10, 11, 99, 100, 101}[r.IntN(7)], Bytes: r.Int64N(99),
					Dead: r.Int64N(99), PutsPerS: float64(r.IntN(9)), DeletesPerS: float64(r.IntN(9)),
					ReadsPerS: float64(r.IntN(9)),
				}
				x := seenRange(fmt.Sprintf("%03d", i), fmt.Sprintf("%03d", i+1), s)
				x.Moves = r.IntN(3) == 0
				x.Verdict.Kind = []policy.Kind{policy.None, policy.Split}[r.IntN(2)]
				x.Verdict.Why = []policy.Why{policy.Within, policy.Moving, policy.Pinned}[r.IntN(3)]
				all = append(all, x)
				b.add(x)
			}
			require.LessOrEqual(t, len(b.bars), most)
			got := len(b.bars)
			require.True(t, n <= most && got == n || 2*got >= most, "%d of %d for %d", got, most, n)
			each, at := 0, 0
			for i := range b.bars {
				bar := &b.bars[i]
				if i == 0 {
					each = bar.Ranges
					require.True(t, len(b.bars) == 1 || each&(each-1) == 0, "a power of two, not %d", each)
				}
				require.True(t, bar.Ranges == each || i == len(b.bars)-1 && bar.Ranges < each)
				var want Bar
				of := all[at : at+bar.Ranges]
				at += bar.Ranges
				want.Start, want.End = of[0].Start, of[len(of)-1].End
				for _, x := range of {
					s := &x.Stats
					want.Ranges++
					want.Rows, want.Bytes, want.Dead = want.Rows+s.Rows, want.Bytes+s.Bytes, want.Dead+s.Dead
					want.Writes, want.Reads = want.Writes+s.PutsPerS+s.DeletesPerS, want.Reads+s.ReadsPerS
					want.Largest = max(want.Largest, s.Rows)
					for _, c := range []struct {
						n   *int
						yes bool
					}{
						{&want.Moving, x.Moves}, {&want.Unknown, !s.Known}, {&want.Over, s.Rows == 101},
						{&want.Under, s.Known && s.Rows < 10}, {&want.Waiting, x.Verdict.Kind == policy.None &&
							x.Verdict.Why == policy.Pinned},
					} {
						if c.yes {
							*c.n++
						}
					}
				}
				require.Equal(t, &want, bar)
			}
			require.Equal(t, n, at)
		}
	}
}

// The rows of a range that has keys of several prefixes are divided as a sample of its keys is; the sums stay.
func TestRangesAreSharedAmongPrefixes(t *testing.T) {
	stats := counter.Stats{Rows: 100, Bytes: 1000, PutsPerS: 6, DeletesPerS: 4, ReadsPerS: 20}
	for _, x := range []struct {
		prefix, start, end string
		quanta             []counter.Quantum
		want               map[string]float64 // share by prefix
	}{
		// The first quantum ends at a/1.
		{"", "", "", quanta("", 1, "a/1", 1, "b/1", 2), map[string]float64{"a/": .5, "b/": .5}},
		{"", "", "", quanta("a/1", 5), map[string]float64{"a/": 1}},
		{"", "", "", quanta("x", 1, "x", 3, "y", 4), map[string]float64{"x": .5, "y": .5}},
		{"a/", "", "", quanta("a/b/1", 1, "a/b/2", 1, "a/c/1", 1, "b/1", 1),
			map[string]float64{"a/b/": .5, "a/c/": .25}},
		{"a/", "", "", quanta("b", 1, "c", 1), map[string]float64{}},
		{"", "b", "d", quanta("b", 9, "a", 1, "b", 1, "c", 2, "d", 4), map[string]float64{"b": 1. / 3, "c": 2. / 3}},
		{"", "b/", "d", nil, map[string]float64{"b/": 1}},
		{"a/", "a/b/c", "", quanta("Z", 1), map[string]float64{"a/b/": 1}},
		{"a/", "A", "", nil, map[string]float64{}},
		{"", "b/", "", quanta("b/", 0), map[string]float64{"b/": 1}},
	} {
		u := levels{prefix: x.prefix, delimiter: "/", all: map[string]*Prefix{}}
		u.share(seenRange(x.start, x.end, stats), x.quanta)
		got := map[string]float64{}
		for name, p := range u.all {
			require.Equal(t, name, string(p.Prefix))
			require.Equal(t, strings.HasSuffix(name, "/"), p.More)
			got[name] = p.Rows / 100
			require.InDelta(t, got[name], p.Bytes/1000, 1e-9)
			require.InDelta(t, got[name], p.Writes/10, 1e-9)
			require.InDelta(t, got[name], p.Reads/20, 1e-9)
		}
		require.InDeltaMapValues(t, x.want, got, 1e-9, "%+v", x)
	}
}

// quanta returns a sample of keys, each with its number of rows.
func quanta(list ...any) (out []counter.Quantum) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, counter.Quantum{Key: []byte(list[i].(string)), Rows: int64(list[i+1].(int))})
	}
	return out
}

// A range is of one prefix alone if all keys that it may have are.
func TestRangesOfOnePrefix(t *testing.T) {
	for _, x := range []struct {
		prefix, start, end string
		alone              bool
	}{
		{"", "a/", "a/x", true}, {"", "a/1", "a0", true}, {"", "a/1", "a00", false}, {"", "a/1", "", false},
		{"", "a", "a/", false}, {"", "", "a", false}, {"a/", "a/b/", "a/b0", true}, {"a/", "a/b", "a/b/", false},
		{"a/", "a/", "a/b", false}, {"a/", "A", "b", false}, {"a", "a/b/", "a/b/c", true}, {"a", "a/b/", "a0", true},
		{"", "\xff\xff", "", true},
	} {
		u := levels{prefix: x.prefix, delimiter: "/"}
		if strings.HasPrefix(x.start, "\xff") {
			u.delimiter = "\xff"
		}
		require.Equal(t, x.alone, u.alone([]byte(x.start), []byte(x.end)), "%+v", x)
	}
	u := levels{prefix: "p/", delimiter: "//"}
	for key, want := range map[string]string{
		"p/a//b//c": "p/a//", "p/a/b": "p/a/b", "p///b": "p///", "q": "p/", "p/": "p/", "": "p/",
	} {
		require.Equal(t, want, u.of([]byte(key)), key)
	}
}

// Beyond a number of prefixes, the figures of further ones are only in the sum of all.
func TestTooManyPrefixes(t *testing.T) {
	u := levels{delimiter: "/", all: map[string]*Prefix{}}
	x := seenRange("", "", counter.Stats{Rows: 3})
	const more = 5
	for i := range mostPrefixes + more {
		u.add(fmt.Sprint(i, "/"), x, 1)
		u.add("0/", x, 1) // it is there
	}
	require.Len(t, u.all, mostPrefixes+1)
	require.Equal(t, more, u.dropped)
	rows := 0.0
	for _, p := range u.all {
		rows += p.Rows
	}
	require.Equal(t, 3.0*2*(mostPrefixes+more), rows)
	require.Equal(t, 3.0*more, u.all[""].Rows)
	require.Empty(t, u.all[""].Prefix)
}

func TestFourDigits(t *testing.T) {
	for v, want := range map[float64]float64{
		0: 0, heat.Unknown: heat.Unknown, 1: 1, 10: 10, 10_000: 10_000, 12_344: 12_340, 12_346: 12_350, 99_999: 100_000,
		1.23456: 1.235, 0.00123456: 0.001235, 123.44: 123.4, 1234.4: 1234, 1234.6: 1235,
		9999.6: 10_000, -12_346: -12_350,
		0.1: 0.1, 1.1: 1.1, 1e12 + 1: 1e12,
	} {
		require.Equal(t, want, digits(v), "%v", v)
	}
}

// A move is in a picture if it goes on within its time and its keys; what only touches it is not.
func TestMovesWithinAPicture(t *testing.T) {
	at := func(s int64) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return time.Unix(s, 0)
	}
	for _, x := range []struct {
		began, ended int64
		start, end   string
		within       bool
	}{
		{10, 20, "", "", true}, {1, 10, "", "", false}, {1, 11, "", "", true}, {20, 30, "", "", false},
		{19, 30, "", "", true}, {1, 0, "", "", true}, {20, 0, "", "", false}, {0, 15, "", "", true},
		{0, 10, "", "", false},
		{0, 20, "", "", false}, {1, 99, "", "", true},
		{10, 20, "c", "d", false}, {10, 20, "b\xff", "d", true}, {10, 20, "a", "b", false},
		{10, 20, "a", "b\x00", true},
		{10, 20, "b", "c", true}, {10, 20, "", "b", false}, {10, 20, "c", "", false}, {10, 20, "b", "", true},
	} {
		e := &heat.Event{Began: at(x.began), Ended: at(x.ended), Start: []byte(x.start), End: []byte(x.end)}
		require.Equal(t, x.within, within(e, &heat.Window{From: at(10), To: at(20), Start: "b", End: "c"}), "%+v", x)
	}
	e := &heat.Event{Began: at(10), Ended: at(20), Start: []byte("x")}
	require.True(t, within(e, &heat.Window{From: at(10), To: at(20), Start: "b"}), "there is no end")
}

// Each process has one element, with the shards that it leads; shards of nobody share one.
func TestSharesOfProcesses(t *testing.T) {
	one := &engine.Holder{ID: uuid.UUID{1}, Name: "one", Admin: "http://one"}
	two := &engine.Holder{ID: uuid.UUID{2}, Admin: "http://two"}
	require.Equal(t, []Share{
		{Name: "one", Admin: "http://one", Shards: []int{0, 3}},
		{Shards: []int{1, 5}},
		{Name: two.ID.String(), Admin: "http://two", Shards: []int{2, 4}, Here: true},
	}, shares([]*engine.Holder{one, nil, two, one, two, nil}, []int{4}))
	require.Empty(t, shares(nil, []int{1}))
}

// What is asked for is taken as it is meant, and the first wrong parameter is told.
func TestParameters(t *testing.T) {
	p := func(values ...string) *params {
		q := &params{Values: map[string][]string{}}
		for i := 0; i < len(values); i += 2 {
			q.Set(values[i], values[i+1])
		}
		return q
	}
	for text, want := range map[string]int{"": 50, "0": 50, "1": 1, "49": 49, "199": 199, "200": 200, "201": 200,
		"18446744073709551615": 200} {
		q := p("limit", text)
		require.Equal(t, want, q.limit("limit", 50, 200))
		require.NoError(t, q.err)
	}
	usual := time.Unix(1, 0)
	for text, want := range map[string]time.Time{
		"": usual, "7": time.Unix(7, 0), "-7": time.Unix(-7, 0),
		"2026-03-01T12:00:00+01:00": time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
	} {
		q := p("from", text)
		require.True(t, want.Equal(q.time("from", usual)))
		require.NoError(t, q.err)
	}
	q := p("a", "x", "b", "-1", "c", "noon")
	q.number("a")
	q.number("b")
	q.time("c", usual)
	require.ErrorContains(t, q.err, `a is "x", not a number`)
	q.err = nil
	q.number("b")
	require.Error(t, q.err)
	q.err = nil
	q.time("c", usual)
	require.ErrorContains(t, q.err, `c is "noon"`)
}
