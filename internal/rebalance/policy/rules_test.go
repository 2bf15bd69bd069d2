package policy

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// The other limits follow from the maximum.
func TestDefaultLimits(t *testing.T) {
	for most, want := range map[int64][4]int64{
		1: {0, 1, 2, 20}, 2: {0, 1, 2, 40}, 5: {1, 3, 2, 100}, 15: {3, 10, 3, 300}, 1000: {250, 666, 200, 20_000},
		100_000: {25_000, 66_666, 20_000, 2_000_000},
	} {
		p := Default(most)
		require.Equal(t, want, [4]int64{p.MinRows, p.TargetRows, p.EarlyRows, p.Budget.Rows}, "%d", most)
	}
}

// Limits in bytes lower those in rows, all by the same share, as far as they go.
func TestLimitsOfLargeRows(t *testing.T) {
	p := Policy{MaxRows: 1000, MinRows: 250, TargetRows: 600, EarlyRows: 200}
	for _, c := range []struct {
		most, rows, bytes int64
		want              [4]int64
	}{
		{0, 100, 1 << 40, [4]int64{1000, 250, 600, 200}}, {-1, 100, 1 << 40, [4]int64{1000, 250, 600, 200}},
		{1000, 0, 1000, [4]int64{1000, 250, 600, 200}}, {1000, 100, 0, [4]int64{1000, 250, 600, 200}},
		{1000, 100, 100, [4]int64{1000, 250, 600, 200}}, {1000, 100, 200, [4]int64{500, 125, 300, 100}},
		{1000, 1, 10, [4]int64{100, 25, 60, 20}}, {1, 1000, 1, [4]int64{1000, 250, 600, 200}},
		{1, 1000, 2, [4]int64{500, 125, 300, 100}}, {1, 1, 1000, [4]int64{1, 0, 1, 2}},
	} {
		p.MaxBytes = c.most
		q := p.sized(&counter.Stats{Rows: c.rows, Bytes: c.bytes})
		require.Equal(t, c.want, [4]int64{q.MaxRows, q.MinRows, q.TargetRows, q.EarlyRows}, "%+v", c)
	}
}

// Rows are moved from the first moment of the hours up to the last one, also over midnight, on any day; else it is said
// when they begin.
func TestHours(t *testing.T) {
	midnight := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	h := func(hours ...int) (all []Hours) {
		for i := 0; i < len(hours); i += 2 {
			all = append(all, Hours{time.Duration(hours[i]) * time.Hour, time.Duration(hours[i+1]) * time.Hour})
		}
		return all
	}
	for _, c := range []struct {
		hours []Hours
		open  []int // hours of the day
	}{
		{nil, []int{0, 1, 4, 5, 12, 21, 22, 23}}, {h(22, 5), []int{0, 1, 4, 22, 23}}, {h(5, 22), []int{5, 12, 21}},
		{h(0, 24), []int{0, 1, 4, 5, 12, 21, 22, 23}}, {h(5, 5), []int{0, 1, 4, 5, 12, 21, 22, 23}},
		{h(0, 1, 12, 13), []int{0, 12}},
	} {
		for _, hour := range []int{0, 1, 4, 5, 12, 21, 22, 23} {
			for _, within := range []time.Duration{0, time.Hour - 1} {
				at := midnight.Add(time.Duration(hour)*time.Hour + within).In(time.FixedZone("east", 3600))
				j := &judge{Policy: &Policy{Budget: Budget{Hours: c.hours}}, Input: &Input{Now: at}}
				require.Equal(t, slices.Contains(c.open, hour), j.open(), "%v at %v", c.hours, at)
				if j.open() {
					continue
				}
				until := j.opens()
				j.Input.Now = until.Add(-1)
				require.False(t, j.open())
				j.Input.Now = until
				require.True(t, j.open())
				require.Less(t, until.Sub(at), 24*time.Hour)
			}
		}
	}
}

// A range grows all over if its newest keys lie all over; one that is too large also if that is unknown, unless it is
// appended to.
func TestGrowthAllOver(t *testing.T) {
	j := &judge{Policy: &Policy{MaxRows: 1000, Spread: 0.75, AppendShare: 0.7}}
	for _, c := range []struct {
		rows          int64
		spread, share float64
		want          bool
	}{
		{10, 0.75, 1, true}, {10, 0.74, 0, false}, {1000, 0, 0, false}, {1001, 0, 0, true}, {1001, 0, 0.69, true},
		{1001, 0, 0.7, false}, {1001, 0.1, 0, false},
	} {
		require.Equal(t, c.want, j.spreads(&counter.Stats{Rows: c.rows, Spread: c.spread, AppendShare: c.share}), "%+v", c)
	}
}

// A range is without puts after a time in which more than five were to come, by a rate that fades within a minute.
func TestWithoutPuts(t *testing.T) {
	now := time.Unix(1e9, 0)
	j := &judge{Input: &Input{Now: now}}
	for _, c := range []struct {
		perS float64
		ago  time.Duration
		want bool
	}{
		{0.0480, time.Minute, false}, {0.0486, time.Minute, true}, // 1.718 minutes' worth
		{100, 4 * time.Second, false}, {100, 4*time.Second + 1, true},
	} {
		s := &counter.Stats{PutsPerS: c.perS, LastPut: now.Add(-c.ago)}
		require.Equal(t, c.want, j.without(s, 4*time.Second), "%+v", c)
	}
	require.False(t, j.without(&counter.Stats{PutsPerS: 100}, 4*time.Second), "of none it is not known when it came")
}

// The only range of a bucket has had a burst if it was filled within 16 s, or within four fifths of the lead.
func TestBursts(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		lead, filled float64 // seconds
		want         bool
	}{{10, 7.9, true}, {10, 8.1, false}, {20, 15.9, true}, {20, 16.1, false}, {40, 15.9, true}, {40, 16.1, false}} {
		p := Default(1000)
		p.Lead = time.Duration(c.lead * float64(time.Second))
		s := &counter.Stats{Rows: 2000, Spread: 1, PutsPerS: 2000 / c.filled, GrowthRowsPerS: 2000 / c.filled}
		j := &judge{Policy: &p, Input: &Input{Now: now, Ranges: make([]Range, 1)}}
		require.Equal(t, c.want, j.bursts(s), "%+v", c)
		j.Ranges[0].Start = []byte("a")
		require.False(t, j.bursts(s), "of a bucket that has been cut")
	}
}

// What a range gains while a merge should last is by its slow rate, unless its last put was long ago.
func TestGrowthUntilTheNextMerge(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := Policy{Cool: 30 * time.Minute, Horizon: time.Minute}
	for _, c := range []struct {
		perS float64
		last time.Time
		want float64
	}{
		{2, time.Time{}, 3600}, {2, now.Add(-p.Cool), 3600}, {2, now.Add(-p.Cool - 1), 0}, {-1, now, 0},
	} {
		r := Range{Stats: counter.Stats{GrowthRowsPerS: c.perS, LastPut: c.last}}
		require.InDelta(t, c.want, (&judge{Policy: &p, Input: &Input{Now: now, Ranges: []Range{r}}}).grown(0), 1e-9, "%+v", c)
	}
}

// Who appends slower than the least rate is not rolled for, and nobody where shares of appends can't be reached.
func TestNoRolls(t *testing.T) {
	for _, c := range []struct {
		rows        int64
		share, rate float64
		want        bool
	}{
		{1000, 0.7, 0.001, true}, {1000, 1, 5, true}, {1000, 1.01, 5, false}, {1000, 0.7, 0.0009, false},
		{600, 0.7, 5, true}, {599, 0.7, 5, false}, // full in 80 s
	} {
		p := Default(1000)
		p.AppendShare = c.share
		in := Input{Policy: p, Ranges: []Range{{Stats: counter.Stats{Known: true, Rows: c.rows}}}}
		j := &judge{Policy: &p, Input: &in, of: make([]*Decision, 1)}
		j.roll(0, c.rate, 1)
		require.Equal(t, c.want, j.of[0] != nil, "%+v", c)
	}
}

// A stream is proven by two ranges behind it that were filled: by appends, or, where keys descend, at one place.
func TestProvenStreams(t *testing.T) {
	p := Default(1000)
	filled := func(rows int64, share, spread float64) Range {
		return Range{Stats: counter.Stats{Rows: rows, AppendShare: share, Spread: spread}}
	}
	up, down, next := filled(900, 0.7, 0.1), filled(900, 0.69, 0.74), filled(1, 0, 0)
	for _, c := range []struct {
		ranges []Range
		i, dir int
		want   bool
	}{
		{[]Range{up, up, next}, 2, 1, true}, {[]Range{up, next}, 1, 1, false}, {[]Range{next, up, next}, 2, 1, false},
		{[]Range{up, filled(900, 0.69, 0.1), next}, 2, 1, false}, {[]Range{up, filled(0, 1, 0.1), next}, 2, 1, false},
		{[]Range{next, down, down}, 0, -1, true}, {[]Range{next, down}, 0, -1, false},
		{[]Range{next, down, filled(900, 0, 0.75)}, 0, -1, false}, {[]Range{next, down, filled(900, 0, 0)}, 0, -1, false},
		{[]Range{next, down, filled(900, 0.7, 0.5)}, 0, -1, false}, {[]Range{next, filled(0, 0, 0.5), down}, 0, -1, false},
	} {
		j := &judge{Policy: &p, Input: &Input{Ranges: c.ranges}}
		require.Equal(t, c.want, j.proven(c.i, c.dir), "%+v", c)
	}
}

// A recount is good enough for two minutes, while the rows differ by a fifth at most, or grow all over.
func TestFresh(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := Default(1000)
	for _, c := range []struct {
		ago          time.Duration
		rows, before int64
		spread, perS float64
		want         bool
	}{
		{2 * time.Minute, 900, 900, 0, 0, true}, {2*time.Minute + 1, 900, 900, 0, 0, false},
		{0, 1000, 800, 0, 0, true}, {0, 1000, 799, 0, 0, false}, {0, 1000, 1200, 0, 0, true}, {0, 1000, 1201, 1, 1, false},
		{0, 1000, 333, 0.75, 1, true}, {0, 1000, 332, 0.75, 1, false}, {0, 1000, 333, 0.74, 1, false},
		{0, 1000, 333, 0.75, 0, false}, {0, 150, 100, 1, 1, true}, {0, 150, 99, 1, 1, false}, // half of EarlyRows
	} {
		s := &counter.Stats{
			Recounted: now.Add(-c.ago), Rows: c.rows, RecountedRows: c.before, Spread: c.spread, GrowthRowsPerS: c.perS,
		}
		require.Equal(t, c.want, (&judge{Policy: &p, Input: &Input{Now: now}}).fresh(s), "%+v", c)
	}
	require.False(t, (&judge{Policy: &p, Input: &Input{}}).fresh(&counter.Stats{}), "it was never counted")
}

func TestCeil(t *testing.T) {
	for a := range int64(50) {
		for b := int64(1); b < 10; b++ {
			require.EqualValues(t, math.Ceil(float64(a)/float64(b)), ceil(a, b))
		}
	}
}

// The most popular key is one that no other is asked for more often than.
func TestPopular(t *testing.T) {
	draw := seed.New(t)
	for range 500 {
		keys := make([][]byte, draw.IntN(12))
		often := map[string]int{}
		for i := range keys {
			keys[i] = []byte{'a' + byte(draw.IntN(4))}
			often[string(keys[i])]++
		}
		slices.SortFunc(keys, bytes.Compare)
		most := 0
		for _, n := range often {
			most = max(most, n)
		}
		key, n := popular(keys)
		require.Equal(t, most, n)
		require.Equal(t, often[string(key)], n)
	}
}

// Where the next keys can't be forecast, a range that is full is cut right beside its newest key, and one that is not
// is left alone.
func TestRollsOfKeysInNoOrder(t *testing.T) {
	draw := seed.New(t)
	n := &Newest{}
	for i := range 300 {
		n.Keys = append(n.Keys, fmt.Appendf(nil, "k%016x", draw.Uint64()))
		n.Written = append(n.Written, int64(i))
	}
	slices.SortFunc(n.Keys, bytes.Compare)
	for _, c := range []struct {
		rows int64
		down bool
		cut  []byte
		text string
	}{
		{799, false, nil, "can't be forecast"},
		{800, false, append(bytes.Clone(n.Keys[299]), 0), "cut right above the highest key: "},
		{800, true, n.Keys[0], "cut right below the lowest key: "},
	} {
		in := Input{Now: time.Unix(1e9, 0), Policy: Default(1000)}
		in.Ranges = []Range{{Newest: n, Stats: counter.Stats{Rows: c.rows, Puts: 1000}}}
		d := Decision{Kind: Roll, To: 1, Rows: c.rows, Why: Appends, Rate: 5, Ahead: 2, Down: c.down}
		in.roll(&d)
		require.Contains(t, d.Text, c.text)
		if c.cut == nil {
			require.Equal(t, NextUnknown, d.Why)
			continue
		}
		require.Equal(t, [][]byte{c.cut}, d.Cuts)
		require.Equal(t, c.down, d.Stay == 1)
	}
}

// Growth at one place, in no order, gets a partition of its own as late as possible: when the range would be full
// before the next decision takes effect.
func TestGrowthInNoOrder(t *testing.T) {
	now := time.Unix(1e9, 0)
	for rows, want := range map[int]bool{920: false, 960: false, 961: true} {
		r := counted(rows)
		grows(r, 0, 0, 0)
		for i := 1; i < 60; i += 3 {
			r.Quanta[i].Oldest, r.Quanta[i].Newest = 10_000, 10_009
		}
		r.Stats.Known, r.Stats.Spread, r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = true, 0.3, 1, 1
		r.Stats.Recounted, r.Stats.RecountedRows = now, int64(rows)
		p := Default(1000)
		j := &judge{Policy: &p, Input: &Input{Now: now, Ranges: []Range{*r}}, of: make([]*Decision, 1)}
		d, yes := j.filling(0)
		require.Equal(t, want, yes, "%d rows: %v", rows, d)
		if yes {
			require.Equal(t, [2]any{Split, Forecast}, [2]any{d.Kind, d.Why})
		}
	}
}

// A split that is decided has its cuts, such that the parts keep the limits that its rows have.
func TestADecidedSplitHasCuts(t *testing.T) {
	now := time.Unix(1e9, 0)
	for size, most := range map[int64]int64{100: 1000, 200 << 10: 512} {
		r := counted(1010)
		r.Stats.Known, r.Stats.Spread, r.Stats.Bytes = true, 1, 1010*size
		r.Stats.Recounted, r.Stats.RecountedRows = now, 1010
		ds := Decide(Input{Now: now, Policy: Default(1000), Ranges: []Range{*r}})
		require.Equal(t, Split, ds[0].Kind)
		require.NotEmpty(t, ds[0].Cuts)
		for _, n := range sizes(r, &ds[0]) {
			require.LessOrEqual(t, n, most)
		}
	}
}
