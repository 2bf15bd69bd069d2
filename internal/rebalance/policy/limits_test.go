package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// Where growth has passed, parts are as full as a forecast fills them; only the part at the end where keys come next
// has room. What fits is not cut.
func TestPartsBesideAStreamAreFull(t *testing.T) {
	p := &Policy{MaxRows: 100}
	most := int(math.Floor(forecast.Fill * 100))
	for _, dir := range []int{1, 0, -1} {
		for n := 1; n < 500; n++ {
			ones := make([]int64, n)
			for i := range ones {
				ones[i] = 1
			}
			q := quanta(ones...)
			cuts := p.full(q, nil, dir)
			if n <= 100 {
				require.Empty(t, cuts)
				continue
			}
			from, small := 0, 0
			var parts []int
			for _, to := range append(cuts, n) {
				parts = append(parts, to-from)
				if to-from != most {
					small++
				}
				from = to
			}
			require.LessOrEqual(t, small, 1, "%v", parts)
			require.Len(t, parts, (n+most-1)/most)
			last := len(parts) - 1
			if dir < 0 {
				last = 0
			}
			require.Equal(t, n-most*(len(parts)-1), parts[last], "%v of keys in direction %d", parts, dir)
		}
	}
	require.Equal(t, []int{1, 2, 3}, p.full(quanta(60, 60, 60, 60), []int{2}, 1), "the cut that is there stays")
	require.Equal(t, []int{1}, p.full(quanta(60, 40), []int{1}, 1))
}

// Of few rows, or of rows that came all at once or at unknown times, it is not known which are the newest.
func TestNewestRows(t *testing.T) {
	const known, unknown = true, false
	for _, c := range []struct {
		times []int64 // rows, oldest and newest of each quantum
		known bool
	}{
		{[]int64{15, 1, 10, 16, 11, 20}, unknown}, {[]int64{16, 1, 10, 16, 11, 20}, known},
		{[]int64{50, 7, 7, 50, 7, 7}, unknown}, {[]int64{50, 7, 7, 50, 7, 8}, known},
		{[]int64{100, 0, 10}, unknown}, {[]int64{100, 5, 4}, unknown}, {[]int64{100, 5, 6, 0, 0, 0}, known},
		{nil, unknown},
	} {
		var q []counter.Quantum
		for i := 0; i < len(c.times); i += 3 {
			q = append(q, counter.Quantum{Rows: c.times[i], Oldest: c.times[i+1], Newest: c.times[i+2]})
		}
		came, sum := newest(q)
		require.Equal(t, c.known, came != nil, "%v", c.times)
		require.Equal(t, c.known, sum > 0)
	}
}

// The keys that were asked for are those from the start of the range up to its end, which is not in it.
func TestRequestsOfARange(t *testing.T) {
	require.Equal(t, "b c x", joinKeys(askedFor(strings.Fields("y x a b z c y")...).asked()))
	r := askedFor("z", "a")
	r.Start, r.End = nil, nil
	require.Equal(t, "a z", joinKeys(r.asked()))
}

// judgeOf is a judge of ranges with these counters, with the default policy for a thousand rows.
func judgeOf(stats ...counter.Stats) *judge {
	p := Default(1000)
	j := &judge{Policy: &p, Input: &Input{Policy: p, Now: time.Unix(1e9, 0)}, of: make([]*Decision, len(stats))}
	for i, s := range stats {
		start, end := fmt.Appendf(nil, "%03d", i), fmt.Appendf(nil, "%03d", i+1)
		j.Ranges = append(j.Ranges, Range{Stats: s, Start: start, End: end})
		j.traffic += requests(&s)
		j.rows += s.Rows
	}
	j.neighbours()
	return j
}

// What people read has the figures from which a decision follows, and the setting of its limit.
func TestTextsHaveTheirFigures(t *testing.T) {
	busy := counter.Stats{Known: true, Rows: 1, ReadsPerS: 1000, PutsPerS: 400, DeletesPerS: 100}
	d, yes := judgeOf(busy, counter.Stats{Rows: 100, ReadsPerS: 500}).load(0)
	require.True(t, yes)
	require.Equal(t, "1500 reads and writes per second, 75 % of the bucket's, but it is one key only", d.Text)

	j := judgeOf()
	require.Equal(t, "max_rows (1000)", j.most())
	j.Policy = j.sized(&counter.Stats{Rows: 100, Bytes: 20 << 20})
	require.Equal(t, "500, which have max_bytes", j.most())
}

// A merge pays once the ranges too many have been there as long as its copies cost; ranges that are not small are not
// too many, and of small ones alone one is needed.
func TestWhenAMergePays(t *testing.T) {
	for _, c := range []struct {
		rows  []int64
		small []time.Duration
		want  time.Duration
	}{
		// 600 rows cost 6 x 30 min x 0.6 = 108 min.
		{[]int64{100, 500}, []time.Duration{70 * time.Minute, 0}, 38 * time.Minute},
		{[]int64{100, 500}, []time.Duration{108 * time.Minute, 99 * time.Hour}, 0},
		{[]int64{350, 250}, []time.Duration{0, 0}, 108 * time.Minute},
		{[]int64{249, 351}, []time.Duration{0, 99 * time.Hour}, 108 * time.Minute},
		// 400 rows cost 72 min, and each range has been small for an hour at least.
		{[]int64{200, 200}, []time.Duration{30 * time.Minute, 62 * time.Minute}, 30 * time.Minute},
		{[]int64{200, 200}, []time.Duration{61 * time.Minute, 70 * time.Minute}, 2 * time.Minute},
		{[]int64{200, 200}, []time.Duration{61 * time.Minute, 99 * time.Hour}, 0},
		{[]int64{200, 200}, []time.Duration{59 * time.Minute, 99 * time.Hour}, time.Minute},
		// Nothing to copy: after a tenth of Cool, or the time in which appends reach what was cut ahead of them.
		{[]int64{0, 0}, []time.Duration{0, time.Hour}, 3 * time.Minute},
		{[]int64{0, 0}, []time.Duration{3 * time.Minute, time.Hour}, 0},
	} {
		var stats []counter.Stats
		sum := int64(0)
		for _, n := range c.rows {
			stats, sum = append(stats, counter.Stats{Known: true, Rows: n}), sum+n
		}
		j := judgeOf(stats...)
		for i, d := range c.small {
			if d > 0 {
				j.Ranges[i].Small = j.Now.Add(-d)
			}
		}
		require.InDelta(t, c.want, j.due(0, len(stats), sum), float64(time.Second), "%+v", c)
	}
}

// Tombstones have no limit unless one is set: then a range that takes and loses rows gets no empty ranges for them.
func TestQueuesWithoutALimitOfTombstones(t *testing.T) {
	queue := counter.Stats{
		Known: true, Rows: 10, Dead: 40_000, PutsPerS: 1, AppendsPerS: 1, AppendShare: 1, DeletesPerS: 1,
		Top: []byte("x"),
	}
	j := judgeOf(queue)
	j.roll(0, 1, 1)
	require.NotNil(t, j.of[0])
	require.Equal(t, Dead, j.of[0].Why)
	for _, none := range []int64{0, -1} {
		j = judgeOf(queue)
		j.MaxDead = none
		j.roll(0, 1, 1)
		require.Nil(t, j.of[0])
	}
}

// An empty range is one cut ahead as far as the rows of some hours, or of two decisions, reach; and two beyond.
func TestHowFarAheadEmptyRangesLie(t *testing.T) {
	for _, c := range []struct {
		perS  float64
		empty int // the number of empty ranges that are taken for such
	}{
		{0.1, 4}, {12.4, 4}, {12.6, 6}, // 80 s of two decisions; the reserve of an hour is for two ranges and more
	} {
		for ranges := 1; ranges < 10; ranges++ {
			stats := []counter.Stats{{
				Known: true, Rows: 900, AppendsPerS: c.perS, AppendShare: 1, PutsPerS: c.perS, Spread: 0.1,
				Top: []byte("x"),
			}}
			stats = append(stats, make([]counter.Stats, ranges)...)
			j := judgeOf(stats...)
			j.Reserve = 0
			require.Equal(t, ranges <= c.empty, j.ahead(ranges), "%d at %v", ranges, c.perS)
		}
	}
}

// A fast load that has lasted for half of the time of a move is expected to go on: its range is cut early, by how many
// rows come meanwhile.
func TestFastLoadsAreCutEarly(t *testing.T) {
	for _, c := range []struct {
		rows  int64
		perS  float64
		grown int64
	}{
		{500, 20, 1000},   // 800 rows within the 40 s of a move are not more than 0.8 of a range
		{500, 21, 2180},   // 840 are: twice of them are expected
		{420, 21, 840},    // it has lasted for 20 s only
		{500, 24.9, 2492}, // for more than 20 s
		{500, 25, 1000},
	} {
		j := judgeOf(counter.Stats{Known: true, Rows: c.rows, PutsPerS: c.perS, GrowthRowsPerS: c.perS, Spread: 1})
		_, grown, _, _, _ := j.parts(&j.Ranges[0].Stats)
		require.Equal(t, c.grown, grown, "%+v", c)
	}
}

// Ranges that grow at one place, as exact counts show, are cut beside it: or beyond it if it is
// an end.
func TestGrowthThatCountersDidNotSee(t *testing.T) {
	filling := func(quanta []counter.Quantum, change func(j *judge)) (Decision, bool, *judge) {
		n := rows(quanta)
		s := counter.Stats{
			Known: true, Rows: n, RecountedRows: n, PutsPerS: 5, GrowthRowsPerS: 5, Spread: 0.1, Top: []byte("k99"),
		}
		j := judgeOf(counter.Stats{Known: true, Rows: 500}, s, counter.Stats{Known: true, Rows: 500})
		j.Ranges[1].Quanta = quanta
		j.Ranges[1].Stats.Recounted = j.Now.Add(-time.Second)
		if change != nil {
			change(j)
		}
		d, yes := j.filling(1)
		return d, yes, j
	}
	r := counted(900)
	const wide = 18
	n := len(r.Quanta)
	grows(r, n/2, n/2+wide, 1)
	d, yes, _ := filling(r.Quanta, nil)
	require.True(t, yes)
	require.Equal(t, Decision{
		Kind: Split, From: 1, To: 2, Rows: 900, Why: Forecast, Text: d.Text, Parts: 2, Copies: 450, Grown: 900,
	}, d)
	require.Contains(t, d.Text, "rows and 5.0 more per second at one place")
	_, yes, _ = filling(r.Quanta, func(j *judge) { j.Ranges[1].Stats.PutsPerS = 0 })
	require.False(t, yes, "it does not grow")

	// At the upper end, empty ranges are cut beyond it; at the lower end of descending keys, before it.
	for _, dir := range []int64{1, -1} {
		r := counted(900)
		from := n - wide
		if dir < 0 {
			from = 0
		}
		grows(r, from, from+wide, dir)
		d, yes, j := filling(r.Quanta, nil)
		require.True(t, yes)
		require.Equal(t, Roll, d.Kind, "%+v", d)
		require.Equal(t, dir < 0, d.Down)
		require.Equal(t, *j.of[1], d)
	}
}

// What grows at one place is looked at from a fifth of the maximum on, and counted once more when it has grown by a two
// hundredth, or the count is old; unless the last count showed no place to cut.
func TestWhenGrowthAtOnePlaceIsCounted(t *testing.T) {
	for _, c := range []struct {
		rows, counted int64
		ago           time.Duration
		spread        float64
		want          Kind // none: no decision
	}{
		{200, 100, time.Minute, 0.1, Recount}, {199, 100, time.Minute, 0.1, None}, {200, 100, time.Minute, 0.75, None},
		{900, 896, 30 * time.Minute, 0.1, None}, {900, 895, 30 * time.Minute, 0.1, Recount},
		{900, 896, time.Hour - 1, 0.1, None}, {900, 896, time.Hour, 0.1, Recount},
		{1000, 996, 30 * time.Minute, 0.1, None}, {1001, 1000, 30 * time.Minute, 0.1, Recount},
	} {
		s := counter.Stats{
			Known: true, Rows: c.rows, RecountedRows: c.counted, PutsPerS: 20, GrowthRowsPerS: 20, Spread: c.spread,
			Puts: 100,
		}
		j := judgeOf(s)
		j.Ranges[0].Stats.Recounted = j.Now.Add(-c.ago)
		d, yes := j.filling(0)
		require.Equal(t, c.want != None, yes, "%+v: %v", c, d)
		if yes {
			require.Equal(t, c.want, d.Kind, "%+v", c)
		}
	}
}

// The rate of a stream is that of all its puts since it left the range before, with half of the second between two
// counts; but no more than four times the appends that are seen.
func TestRateOfAStream(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		ago  []int   // seconds since the last put to each range
		puts []int64 // to each
		seen float64
		want float64
	}{
		{[]int{10, 0}, []int64{1000, 105}, 9, 10},
		{[]int{3, 0}, []int64{1000, 35}, 9, 10},
		{[]int{2, 0}, []int64{1000, 35}, 9, 9}, // too short a time
		{[]int{19, 3, 0}, []int64{1000, 160, 35}, 9, 10},
		{[]int{40, 10, 0}, []int64{1000, 5000, 105}, 9, 10}, // the last ten seconds are enough
		{[]int{10, 0}, []int64{1000, 105}, 2, 8},
	} {
		var stats []counter.Stats
		var stream []int
		for i := range c.ago {
			stats = append(stats, counter.Stats{
				Known: true, Rows: 500, Puts: c.puts[i], AppendsPerS: c.seen,
				LastPut: now.Add(-time.Duration(c.ago[i]) * time.Second),
			})
			stream = append(stream, i)
		}
		require.InDelta(t, c.want, judgeOf(stats...).rate(stream), 1e-9, "%+v", c)
	}
}

// Rows that came over a long time count as new by the part of that time that is new.
func TestNewRowsOfALongTime(t *testing.T) {
	q := quanta(100, 100, 100, 1000, 50)
	for i, times := range [][2]int64{{21, 30}, {11, 20}, {5, 9}, {1, 25}, {1, 5}} {
		q[i].Oldest, q[i].Newest = times[0], times[1]
	}
	came, sum := newest(q)
	require.InDeltaSlice(t, []float64{100, 100, 100, 1000 * 20. / 24, 0}, came, 1e-9)
	require.InDelta(t, 300+1000*20./24, sum, 1e-9)
}

// A row or less is not cut, however fast it grows; an empty range has no growth by a factor.
func TestOneRow(t *testing.T) {
	d := &Decision{}
	require.Zero(t, d.growth(&Range{}))
	require.Equal(t, 7.0, (&Decision{Grown: 7}).growth(&Range{Stats: counter.Stats{Rows: 1}}))
	p := Default(1)
	p.MaxBytes = 0
	one := counter.Stats{Known: true, Rows: 1, PutsPerS: 100, GrowthRowsPerS: 100, Spread: 1}
	j := judgeOf(one, counter.Stats{Known: true, Rows: 5})
	j.Policy = &p
	p.EarlyRows = 1
	d2, yes := j.one(0)
	require.True(t, yes)
	require.Equal(t, OneKey, d2.Why)
}

// A range with as many rows as the least is refreshed by itself; one with fewer waits for a merge.
func TestTombstonesOfSmallRanges(t *testing.T) {
	for rows, want := range map[int64]bool{249: false, 250: true} {
		j := judgeOf(counter.Stats{Known: true, Rows: rows, Dead: 1e6}, counter.Stats{Known: true, Rows: 900})
		d, yes := j.one(0)
		require.Equal(t, want, yes, "%v", d)
		if yes {
			require.Equal(t, Refresh, d.Kind)
		}
	}
}

// Of merges side by side that became one the text says so, once.
func TestMergesSideBySideAreOne(t *testing.T) {
	var stats []counter.Stats
	for range 9 {
		stats = append(stats, counter.Stats{Known: true, Rows: 200, Recounted: time.Unix(1e9, 0)})
	}
	j := judgeOf(stats...)
	in := Input{Policy: Default(1000), Now: j.Now, Ranges: j.Ranges}
	for i := range in.Ranges {
		in.Ranges[i].Small = j.Now.Add(-99 * time.Hour)
	}
	d := Decide(in)
	require.Len(t, d, 1)
	require.Equal(t, Merge, d[0].Kind)
	require.Len(t, d[0].Cuts, 2)
	require.Equal(t, 1, strings.Count(d[0].Text, "; and so are others beside it"))
}

// A stream goes on behind a quantum without new rows, and ends behind two.
func TestGapsOfAStream(t *testing.T) {
	for gap, want := range map[int]int{0: 1, 1: 1, 2: 2} {
		r := counted(1000)
		grows(r, 60, 80, 1)
		for i := 70; i < 70+gap; i++ {
			r.Quanta[i].Oldest, r.Quanta[i].Newest = 1000, 1200
		}
		require.Len(t, streams(r.Quanta), want, "%d quanta without", gap)
	}
}

// A cut beside a place that grows in no order says so.
func TestTextOfACutInNoOrder(t *testing.T) {
	r := counted(1010)
	grows(r, 0, 0, 0)
	for i := 1; i < 60; i += 3 {
		r.Quanta[i].Oldest, r.Quanta[i].Newest = 10_000, 10_009
	}
	r.Stats.Spread = 0.3
	p, d := Default(1000), toSplit(1010, 2)
	require.True(t, p.half(r, &d))
	require.Contains(t, d.Text, "; where it grows goes to a partition of its own")
	require.Len(t, d.Cuts, 1)
}

// A range that is too large and appended to is cut ahead of its keys; without a forecast it is split. What is within
// its limit is only left alone then.
func TestRollsThatBecomeSplits(t *testing.T) {
	now := time.Unix(1e9, 0)
	known, unknown := &Newest{}, &Newest{}
	for i := range 300 {
		known.Keys = append(known.Keys, fmt.Appendf(nil, "%08d", i))
		known.Written = append(known.Written, now.Add(time.Duration(i-300)*time.Second/20).UnixMicro())
	}
	for _, c := range []struct {
		rows   int64
		newest *Newest
		want   Kind
	}{{1100, known, Roll}, {1100, unknown, Split}, {900, known, Roll}, {900, unknown, None}, {1000, unknown, None}} {
		r := counted(int(c.rows))
		r.Stats = counter.Stats{
			Known: true, Rows: c.rows, RecountedRows: c.rows, Recounted: now, AppendsPerS: 20, PutsPerS: 20,
			AppendShare: 1, Puts: 1000, LastPut: now, Spread: 0.1, Top: []byte("00000299"),
		}
		r.Newest = c.newest
		ds := Decide(Input{Now: now, Policy: Default(1000), Ranges: []Range{*r}})
		require.Equal(t, c.want, ds[0].Kind, "%+v", ds)
		if c.want != None {
			require.NotEmpty(t, ds[0].Cuts)
		}
	}
}

// A small range with too many tombstones is refreshed, unless a merge before long makes that unnecessary.
func TestTombstonesBeforeAMerge(t *testing.T) {
	j := judgeOf()
	most := j.mostDead()
	for _, c := range []struct {
		dead  int64
		small time.Duration // the merge pays after an hour and twelve minutes, and each has been small for an hour
		want  Kind
	}{
		{most - 1, 59 * time.Minute, None}, {most, 59 * time.Minute, Refresh}, {most + 1, 59 * time.Minute, Refresh},
		{most - 1, 0, Refresh}, {j.MaxDead, 0, None}, {most, 99 * time.Hour, Merge},
	} {
		in := Input{Policy: Default(1000), Now: time.Unix(1e9, 0)}
		for i, dead := range []int64{c.dead, 0} {
			in.Ranges = append(in.Ranges, Range{
				Start: fmt.Appendf(nil, "%03d", i), End: fmt.Appendf(nil, "%03d", i+1), Small: in.Now.Add(-c.small),
				Stats: counter.Stats{Known: true, Rows: 200, Dead: dead, Recounted: in.Now, RecountedRows: 200},
			})
		}
		require.Equal(t, c.want, Decide(in)[0].Kind, "%+v", c)
	}
}

// An empty range beside a place that grows was cut for the keys that come next, also if it is the first or the last.
func TestEmptyRangesAtBothEnds(t *testing.T) {
	grows := counter.Stats{Known: true, Rows: 300, PutsPerS: 5, GrowthRowsPerS: 5, Spread: 0.1}
	quiet := counter.Stats{Known: true, Rows: 300, Spread: 0.1}
	for _, c := range []struct {
		beside counter.Stats
		want   bool
	}{{grows, true}, {quiet, false}} {
		require.Equal(t, c.want, judgeOf(counter.Stats{Known: true}, c.beside).ahead(0))
		require.Equal(t, c.want, judgeOf(c.beside, counter.Stats{Known: true}).ahead(1))
	}
}

// Parts have as nearly the same numbers of rows as their quanta allow: a cut lies at the nearer of two quanta.
func TestCutsAtTheNearerQuantum(t *testing.T) {
	for _, c := range []struct {
		rows []int64
		want []int
	}{
		{[]int64{4, 3, 3}, []int{1}}, {[]int64{3, 3, 4}, []int{2}}, {[]int64{2, 1, 7}, []int{2}},
		{[]int64{7, 1, 2}, []int{1}}, {[]int64{4, 2, 4}, []int{2}},
	} {
		require.Equal(t, c.want, even(quanta(c.rows...), 2), "%v", c.rows)
	}
	require.Equal(t, []int{1, 2}, even(quanta(10, 10, 10), 3))
	require.Equal(t, []int{1, 2}, even(quanta(10, 14, 1), 3), "the nearer one is cut already")
}
