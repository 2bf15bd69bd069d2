package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
)

// grows gives quanta times: all are old, but the newest are those from from to to, each step later than the one before
// (of 0: all at the same time).
func grows(r *Range, from, to int, step int64) {
	for i := range r.Quanta {
		q := &r.Quanta[i]
		q.Oldest, q.Newest = int64(1000+i*7919%100), int64(1200)
		if i >= from && i < to {
			q.Oldest = 10_000 + int64(i)*10*step
			q.Newest = q.Oldest + 9
		}
	}
}

// What grows at one place is cut right beside it, whatever the planner; what is full stays.
func TestGrowthAtOnePlace(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		name     string
		from, to int
		step     int64
		sizes    []int64
		stay     int
	}{
		{"a prefix below others, ascending", 0, 18, 1, []int64{144, 866}, 1},
		{"a prefix within others, ascending", 40, 58, 1, []int64{464, 546}, 1},
		{"ascending, near the top", 90, 120, 1, []int64{960, 50}, 0},
		{"the lowest keys, descending", 0, 18, -1, []int64{8, 1002}, none},
		{"within others, descending", 100, 118, -1, []int64{800, 210}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, planner := range []string{"even", "genetic"} {
				r := counted(1010)
				grows(r, c.from, c.to, c.step)
				d := cut(planner, r, toSplit(1010, 2))
				if c.stay == none { // the rest is still too large
					require.Equal(t, int64(8), sizes(r, &d)[0])
					require.LessOrEqual(t, slices.Max(sizes(r, &d)), int64(1000))
				} else {
					require.Equal(t, c.sizes, sizes(r, &d))
					require.Equal(t, c.stay, d.Stay)
				}
				require.Contains(t, d.Text, "at one place")
				require.Len(t, d.Streams, 1)
				require.Equal(t, int(c.step), d.Streams[0].Dir)
				require.GreaterOrEqual(t, d.Streams[0].Share, 0.8)
			}
		})
	}
}

// Two streams are cut apart.
func TestTwoStreamsInOneRange(t *testing.T) {
	r := counted(1010)
	grows(r, 20, 40, 1)
	other := *r
	other.Quanta = slices.Clone(r.Quanta)
	grows(&other, 80, 100, 1)
	copy(r.Quanta[80:100], other.Quanta[80:100])
	for i := range 20 { // both at the same time
		r.Quanta[80+i].Oldest, r.Quanta[80+i].Newest = r.Quanta[20+i].Oldest, r.Quanta[20+i].Newest
	}
	d := cut("even", r, toSplit(1010, 2))
	require.Equal(t, []int64{320, 480, 210}, sizes(r, &d))
	require.Len(t, d.Streams, 2)
	require.Equal(t, 1, d.Stay, "the largest")
}

// What takes less than a fifth of the newest rows is no stream beside one that takes nearly all.
func TestALittleElsewhereIsNoStream(t *testing.T) {
	r := counted(1010)
	grows(r, 40, 58, 1)
	for i := range 2 {
		r.Quanta[100+i].Oldest, r.Quanta[100+i].Newest = r.Quanta[45+i].Oldest, r.Quanta[45+i].Newest
	}
	found := streams(r.Quanta)
	require.Len(t, found, 1)
	require.InDelta(t, 0.9, found[0].Share, 0.03)
}

// What is far too large after appends is cut into full parts: nothing will come to them.
func TestAppendsThatWereNotSeen(t *testing.T) {
	r := counted(5000)
	for i := range r.Quanta {
		r.Quanta[i].Oldest = int64(1000 + 10*i)
		r.Quanta[i].Newest = r.Quanta[i].Oldest + 9
	}
	d := cut("genetic", r, toSplit(5000, 9))
	require.Equal(t, []int64{896, 896, 896, 896, 896, 520}, sizes(r, &d))
}

// Growth everywhere, growth of which no times are known, and what a copy brought are no streams.
func TestNoStreams(t *testing.T) {
	spread := counted(1010)
	for i := range spread.Quanta {
		spread.Quanta[i].Oldest, spread.Quanta[i].Newest = int64(1+i*7919%500), int64(900+i*104729%100)
	}
	copied := counted(1010)
	for i := range copied.Quanta {
		copied.Quanta[i].Oldest, copied.Quanta[i].Newest = 5, 5
	}
	many := counted(1010)
	grows(many, 0, 0, 0)
	for i := 5; i < len(many.Quanta); i += 12 {
		many.Quanta[i].Oldest, many.Quanta[i].Newest = 10_000, 10_009
	}
	timeless, backwards, empty := counted(1010), counted(1010), counted(1010)
	for _, r := range []*Range{timeless, backwards, empty} {
		grows(r, 40, 58, 1)
	}
	timeless.Quanta[3].Oldest = 0
	backwards.Quanta[3].Newest = backwards.Quanta[3].Oldest - 1
	empty.Quanta[3] = counter.Quantum{Key: key(24)}
	require.Len(t, streams(empty.Quanta), 1, "without rows there are no times")
	for name, q := range map[string][]counter.Quantum{
		"one without times": timeless.Quanta, "one that ends before it begins": backwards.Quanta,
		"everywhere": spread.Quanta, "unknown": counted(1010).Quanta, "copied": copied.Quanta, "ten": many.Quanta,
		"few rows": counted(16).Quanta, "none": nil,
	} {
		require.Empty(t, streams(q), name)
	}
}

// Two slow streams are cut apart once: above the upper one an empty range would be of no use for long.
func TestTwoSlowStreams(t *testing.T) {
	p := Default(1000)
	for _, c := range []struct {
		perS float64
		at   []int
		want []int
	}{
		{0.4, []int{70, 120}, []int{70}},      // room for 450 rows is filled in 19 min
		{0.4, []int{20, 120}, []int{20, 120}}, // above the cut there would be too many
		{2, []int{70, 120}, []int{70, 120}},   // fast
		{0.4, []int{6, 70}, []int{70}},        // descending: the lowest is left out
		{0.4, []int{70}, []int{70}},           // one stream
	} {
		r := counted(1010)
		r.Stats.PutsPerS = c.perS
		require.Equal(t, c.want, p.fewer(r, c.at), "%v", c.at)
	}
}

// A range that seems to grow all over, but in which some streams grow, is cut where they do; one that grows by chance is
// not.
func TestSomeStreamsThatLookLikeGrowthEverywhere(t *testing.T) {
	r := counted(1010)
	r.Stats.Spread = 0.9
	from := 0
	for _, to := range []int{84, 105, len(r.Quanta)} { // three, each from the lowest to the highest, in the same time
		for k := from; k < to; k++ {
			at := int64(1000 * (k - from) / (to - from))
			if to > 84 {
				at = 750 + at/4 // younger
			}
			at *= 100
			r.Quanta[k].Oldest, r.Quanta[k].Newest = 1+at, 100+at
		}
		from = to
	}
	p := Default(1000)
	d := Decision{Rows: 1010, Parts: 2}
	require.True(t, p.half(r, &d))
	require.Len(t, d.Cuts, 1)
	size := sizes(r, &d)[0]
	require.InDelta(t, 750, size, 20, "what grows most has most of the room")
	d.Parts = few + 1
	require.False(t, p.half(r, &d), "a rush needs more parts")
	for k := range r.Quanta {
		r.Quanta[k].Oldest, r.Quanta[k].Newest = int64(1+k*7919%500), int64(900+k*104729%3300)
	}
	require.False(t, p.half(r, &Decision{Rows: 1010, Parts: 2}))
}

// Of a load that has just begun the newest keys know the rate.
func TestRateOfTheNewestKeys(t *testing.T) {
	now := time.Unix(1000, 0)
	n := &Newest{}
	require.Zero(t, n.rate(now))
	for i := range 300 {
		n.Keys = append(n.Keys, []byte{1})
		n.Written = append(n.Written, now.Add(-3*time.Second+time.Duration(i)*10*time.Millisecond).UnixMicro())
	}
	require.InDelta(t, 100, n.rate(now), 1e-9)
	require.InDelta(t, 300, n.rate(now.Add(-time.Hour)), 1e-9, "within a second at least")
}
