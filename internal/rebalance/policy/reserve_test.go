package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// filled is a range that a stream has filled and left.
func filled(r *policy.Range) {
	appends(0)(r)
	r.Stats.Puts = r.Stats.Rows
}

// fast is a range to which ten rows per second are appended.
func fast(r *policy.Range) {
	appends(10)(r)
	r.Stats.Puts, r.Stats.LastPut = r.Stats.Rows, now
}

func top(key string) func(*policy.Range) {
	return func(r *policy.Range) { r.Stats.Top = []byte(key) }
}

// reserved is how many ranges a policy wants ahead of ten rows per second: an hour's, and a quarter more.
const reserved = 50

// A stream that has filled ranges has a reserve of an hour at its rate; others have what comes soon.
func TestReserve(t *testing.T) {
	empties := func(n int, rest ...policy.Range) *policy.Input {
		for range n {
			rest = append(rest, old(0))
		}
		return layout(rest...)
	}
	for _, c := range []struct {
		name   string
		l      *policy.Input
		at     int
		decide string
	}{
		{"a stream that has filled two ranges", layout(old(900, filled), old(900, filled), old(800, fast)), 2,
			fmt.Sprint("2-3 roll: appends ahead ", reserved)},
		{"one that has filled one range", layout(old(900, filled), old(800, fast)), 1, "1-2 roll: appends ahead 2"},
		{"one that came to ranges of others", layout(old(900), old(900), old(800, fast)), 2, "2-3 roll: appends ahead 2"},
		{"with a reserve already", empties(41, old(900, filled), old(900, filled), old(800, fast)), 2,
			"2-3 none: cut ahead already"},
		{"what is used up is replaced", empties(39, old(900, filled), old(900, filled), old(800, fast)), 41,
			fmt.Sprint("41-42 roll: appends ahead ", reserved-39)},
		{"a slow stream", layout(old(900, filled), old(900, filled), old(990, fast, appends(0.5))), 2,
			"2-3 roll: appends ahead 2"},
		{"keys with a time in them", layout(old(900, filled), old(900, filled),
			old(800, fast, top(fmt.Sprintf("%d-x", now.Unix())))), 2, "2-3 roll: appends ahead 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ds := judge(small(), c.l, now)
			for i := range ds {
				if ds[i].From == c.at {
					require.Equal(t, c.decide, show(ds[i : i+1])[0])
				}
			}
		})
	}
	p := small()
	p.Reserve = 1000 * time.Hour
	ds := judge(p, layout(old(900, filled), old(900, filled), old(800, fast)), now)
	require.LessOrEqual(t, ds[2].Ahead, 96, "it is bounded")
	require.Greater(t, ds[2].Ahead, 90)
}

// A reserve is cut where keys count rows; where gaps between them are like times, it would fit the present rate only.
func TestReserveOfNumbersThatCount(t *testing.T) {
	for _, c := range []struct {
		name string
		key  func(i int) string
		want int
	}{
		{"numbers in a row", func(i int) string { return fmt.Sprintf("%08d", i) }, reserved},
		{"numbers like times", func(i int) string { return fmt.Sprintf("%012d", 10_000*(i/8)+i%8) }, 2},
		{"numbers that end soon", func(i int) string { return fmt.Sprintf("%08d", 99_991_000+i) }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := layout(old(900, filled), old(900, filled), old(800, fast))
			for i := range in.Ranges {
				in.Ranges[i].Start, in.Ranges[i].End = []byte(c.key(900*i)), []byte(c.key(900*(i+1)))
			}
			in.Ranges[0].Start, in.Ranges[2].End = nil, nil
			n := &policy.Newest{}
			for i := range 800 {
				n.Keys = append(n.Keys, []byte(c.key(1800+i)))
				n.Written = append(n.Written, now.Add(-time.Duration(800-i)*100*time.Millisecond).UnixMicro())
			}
			in.Ranges[2].Newest = n
			in.Policy, in.Now = small(), now
			d := policy.Decide(*in)[2]
			require.Equal(t, policy.Roll, d.Kind, "%v", d)
			require.Len(t, d.Cuts, c.want, "%v", d)
		})
	}
}

// A stream that has just come to the next range has not left what is cut ahead of it: of some puts counters can't say
// yet that they are appends.
func TestAReserveOutlastsTheStepToTheNextRange(t *testing.T) {
	next := old(9, func(r *policy.Range) {
		r.Stats.Puts, r.Stats.PutsPerS, r.Stats.GrowthRowsPerS, r.Stats.Spread, r.Stats.LastPut = 9, 9, 0.1, 0, now
	})
	l := layout(old(900, filled), old(900, fast), next)
	for range 40 {
		l.Ranges = append(l.Ranges, old(0))
	}
	for _, d := range judge(small(), layout(l.Ranges...), now)[3:] {
		require.Equal(t, policy.Rolled, d.Why, "%v", d)
	}
}

// Where a stream has ended, one empty range stays for when it goes on: to join it would copy rows.
func TestAnEmptyRangeStaysAtTheEndOfAStream(t *testing.T) {
	for _, c := range []struct {
		name string
		l    *policy.Input
		want []string
	}{
		{"many are joined to one", layout(old(400, filled), old(0), old(0), old(0)),
			[]string{"0-1 none: within limits", "1-4 merge: rows"}},
		{"one stays", layout(old(400, filled), old(0)), []string{"0-1 none: within limits", "1-2 none: cut ahead already"}},
		{"but few rows are joined", layout(old(100, filled), old(0)), []string{"0-2 merge: rows"}},
		{"within the bucket none stays", layout(old(400, filled), old(0), old(900)),
			[]string{"0-2 merge: rows", "2-3 none: within limits"}},
		{"nor below, within the bucket", layout(old(900), old(0), old(400, func(r *policy.Range) { r.Stats.Spread = 0.2 })),
			[]string{"0-1 none: within limits", "1-3 merge: rows"}},
		{"nor below, where the bucket goes on",
			partOf(layout(old(0), old(400, func(r *policy.Range) { r.Stats.Spread = 0.2 }))), []string{"0-2 merge: rows"}},
		{"below what descended", layout(old(0), old(400, func(r *policy.Range) { r.Stats.Spread = 0.2 })),
			[]string{"0-1 none: cut ahead already", "1-2 none: within limits"}},
		{"what was emptied does not stay", layout(old(400, filled), old(0, func(r *policy.Range) { r.Stats.Puts = 900 })),
			[]string{"0-2 merge: rows"}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, show(judge(small(), c.l, now))) })
	}
}

// The range between what was cut ahead before and the next cuts becomes as full as the others, at whatever rate the
// former were cut.
func TestCutsGoOnWhereOthersEnd(t *testing.T) {
	for _, start := range []int{2000, 2050, 2111, 2190} {
		in := layout(old(900, fast), old(0))
		key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
		in.Ranges[0].End, in.Ranges[1].Start = key(start), key(start)
		in.Ranges[1].End = nil
		n := &policy.Newest{}
		for i := 1000; i < 1900; i++ {
			n.Keys, n.Written = append(n.Keys, key(i)), append(n.Written, now.Add(time.Duration(i-1900)*time.Second).UnixMicro())
		}
		in.Ranges[0].Newest, in.Policy, in.Now = n, small(), now
		in.Ranges[0].Stats.AppendsPerS, in.Ranges[0].Stats.PutsPerS = 20, 20
		d := policy.Decide(*in)[1]
		require.Equal(t, policy.Roll, d.Kind, "%v", d)
		var first int
		_, err := fmt.Sscanf(string(append(d.Cuts[0], "00000000"[len(d.Cuts[0]):]...)), "%d", &first)
		require.NoError(t, err)
		require.InDelta(t, 930-930/32, first-start, 930/32+5, "%d", start)
	}
}

// While more ranges are cut ahead, none of those that are there is one too many, however far away it is: after counters
// were away the rate of the last range is not that of the stream.
func TestARollLeavesWhatIsAhead(t *testing.T) {
	ranges := []policy.Range{old(900, filled), old(900, appends(0.2), ago(300)), old(890, appends(0.71), ago(0))}
	for range 11 {
		ranges = append(ranges, old(0))
	}
	ds := judge(small(), layout(ranges...), now)
	require.Equal(t, "13-14 roll: appends ahead 4", show(ds)[13])
	for _, d := range ds[3:13] {
		require.Equal(t, policy.Rolled, d.Why, "range %d", d.From)
	}
}

// Of a load that has just begun counters know little, and perhaps of a part of a second only: the newest keys say
// whether it will fill the range before long.
func TestAppendsThatHaveJustBegun(t *testing.T) {
	for perS, want := range map[int]policy.Kind{170: policy.Roll, 5: policy.None} {
		in := layout(old(20, appends(10), ago(1)))
		in.Policy, in.Now = small(), now
		require.Equal(t, policy.Need, policy.Decide(*in)[0].Kind)
		newest := &policy.Newest{}
		for k := range 2 * perS {
			newest.Keys = append(newest.Keys, fmt.Appendf(nil, "key-%09d", k))
			newest.Written = append(newest.Written, now.Add(time.Duration(k-2*perS)*time.Second/time.Duration(perS)).UnixMicro())
		}
		in.Ranges[0].Newest = newest
		d := policy.Decide(*in)[0]
		require.Equal(t, want, d.Kind, d.Text)
		if want == policy.Roll {
			require.Len(t, d.Cuts, 15, "one, and one for each 1,000 rows that come within 80 seconds")
		}
	}
	require.Equal(t, []string{"0-1 none: appends"}, show(judge(small(), layout(old(50, appends(10), ago(1))), now)))
}
