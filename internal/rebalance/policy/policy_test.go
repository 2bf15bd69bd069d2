package policy_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// small is the default policy for 1,000 rows: min 250, target 600.
func small() policy.Policy { return policy.Default(1000) }

// old is a range that has been there for long, of so many rows, just counted.
func old(rows int64, change ...func(*policy.Range)) policy.Range {
	r := policy.Range{
		Created: now.Add(-24 * time.Hour), Small: now.Add(-24 * time.Hour),
		Stats: counter.Stats{
			Known: true, Rows: rows, Bytes: rows * 100, Recounted: now.Add(-time.Second), RecountedRows: rows,
			Top: []byte("x"), Spread: 1,
		},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func stale(r *policy.Range) { r.Stats.Recounted = now.Add(-2 * time.Hour) }
func young(r *policy.Range) { r.Created = now.Add(-time.Minute) }

// nearly is almost small for an hour.
func nearly(r *policy.Range) { r.Small = now.Add(-58 * time.Minute) }

func within(r *policy.Range) { r.Small = now.Add(-45 * time.Minute) }

// dead is a range with so many tombstones.
func dead(n int64) func(*policy.Range) { return func(r *policy.Range) { r.Stats.Dead = n } }

// Small for some minutes, or since now.
func lately(r *policy.Range) { r.Small = now.Add(-5 * time.Minute) }
func just(r *policy.Range)   { r.Small = now }
func some(r *policy.Range)   { r.Small = now.Add(-12 * time.Minute) }
func appends(perS float64) func(*policy.Range) {
	return func(r *policy.Range) {
		r.Stats.PutsPerS, r.Stats.AppendsPerS, r.Stats.AppendShare, r.Stats.GrowthRowsPerS, r.Stats.Spread = perS, perS, 1,
			perS, 0.1
	}
}

// puts is a range that so many puts per second, of new keys, go to.
func puts(perS float64) func(*policy.Range) {
	return func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = perS, perS }
}

// large is a range with rows of so many bytes.
func large(bytes int64) func(*policy.Range) {
	return func(r *policy.Range) { r.Stats.Bytes = r.Stats.Rows * bytes }
}

// asked is a range with so many reads per second, for minutes, by turns for the given keys.
func asked(perS float64, keys ...string) func(*policy.Range) {
	return func(r *policy.Range) {
		r.Stats.ReadsPerS = perS
		for i := 0; i < 64 && len(keys) > 0; i++ {
			at := now.Add(-time.Duration(64-i) * 10 * time.Second).UnixMilli()
			r.Stats.Asked = append(r.Stats.Asked, counter.Asked{Key: []byte(keys[i%len(keys)]), At: at})
		}
	}
}

// ago is when the last put was, of as many as there are rows.
func ago(seconds int) func(*policy.Range) {
	return func(r *policy.Range) {
		r.Stats.LastPut, r.Stats.Puts = now.Add(-time.Duration(seconds)*time.Second), r.Stats.Rows
	}
}

func layout(ranges ...policy.Range) *policy.Input {
	for i := range ranges {
		if i > 0 {
			ranges[i].Start = fmt.Appendf(nil, "%03d", i)
		}
		if i+1 < len(ranges) {
			ranges[i].End = fmt.Appendf(nil, "%03d", i+1)
		}
	}
	return &policy.Input{Ranges: ranges}
}

// partOf makes a layout a part of a bucket that has more ranges.
func partOf(in *policy.Input) *policy.Input {
	in.Ranges[0].Start = []byte("000")
	return in
}

// judge judges a layout.
func judge(p policy.Policy, in *policy.Input, at time.Time) []policy.Decision {
	in.Policy, in.Now = p, at
	return policy.Judge(in)
}

// show is the decisions in short: ranges, kind, reason, parts or ranges ahead.
func show(all []policy.Decision) (out []string) {
	for _, v := range all {
		s := fmt.Sprintf("%d-%d %s: %s", v.From, v.To, v.Kind, v.Why)
		if v.Parts > 0 {
			s += fmt.Sprintf(" in %d", v.Parts)
		}
		if v.Kind == policy.Merge && len(v.Cuts) > 0 {
			s += fmt.Sprintf(" in %d", len(v.Cuts)+1)
		}
		if v.Ahead > 0 {
			s += fmt.Sprintf(" ahead %d", v.Ahead)
		}
		out = append(out, s)
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*policy.Policy)
		l      *policy.Input
		want   []string
	}{
		{"nothing to do", nil, layout(old(300), old(1000), old(600)),
			[]string{"0-1 none: within limits", "1-2 none: within limits", "2-3 none: within limits"}},
		{"a small bucket", nil, layout(old(3)), []string{"0-1 none: within limits"}},
		{"an empty one", nil, layout(old(0)), []string{"0-1 none: within limits"}},
		{"one row too many", nil, layout(old(1001)), []string{"0-1 split: rows in 2"}},
		{"five times too many", nil, layout(old(5000)), []string{"0-1 split: rows in 8"}},
		{"too many, as it is counted", nil, layout(old(1001, stale)), []string{"0-1 recount: suspect"}},
		{"its recounts are in vain", nil, layout(old(1001, stale, func(r *policy.Range) {
			r.Stats.Recounted, r.Stats.Fruitless = now.Add(-10*time.Minute), 5
		})), []string{"0-1 none: waiting for a recount"}},
		{"but not for ever", nil, layout(old(1001, stale, func(r *policy.Range) { r.Stats.Fruitless = 50 })),
			[]string{"0-1 recount: suspect"}},
		{"a recount of the future", nil, layout(old(1001, func(r *policy.Range) {
			r.Stats.Recounted, r.Stats.Fruitless = now.Add(time.Hour), 9
		})), []string{"0-1 split: rows in 2"}},
		{"may be too many", nil, layout(old(850, stale, func(r *policy.Range) { r.Stats.AtMost = 1001 })),
			[]string{"0-1 recount: suspect"}},
		{"may be too many, and was counted", nil, layout(old(850, func(r *policy.Range) { r.Stats.AtMost = 1001 })),
			[]string{"0-1 none: within limits"}},
		{"far from too many", nil, layout(old(750, stale, func(r *policy.Range) { r.Stats.AtMost = 5001 })),
			[]string{"0-1 none: within limits"}},
		{"not known", nil, layout(old(1, func(r *policy.Range) { r.Stats.Known = false }), old(5000, stale)),
			[]string{"0-1 recount: unknown", "1-2 recount: suspect"}},
		{"will have too many, but not before the next judgement", nil,
			layout(old(900, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 2, 3 })),
			[]string{"0-1 none: within limits"}},
		{"will have too many before the next judgement", nil,
			layout(old(950, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 2, 3 })),
			[]string{"0-1 split: forecast in 2"}},
		{"grows fast while small", nil, layout(old(60, func(r *policy.Range) { r.Stats.GrowthRowsPerS = 100 })),
			[]string{"0-1 none: within limits"}},
		{"grows fast, and is not so small", func(p *policy.Policy) { p.GrowBy = 8 },
			layout(old(700, puts(24))), []string{"0-1 split: forecast in 4"}},
		{"grows fast, nobody knows where, and is too large", nil,
			layout(old(1500, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS, r.Stats.Spread = 24, 24, 0 })),
			[]string{"0-1 split: rows in 5"}},
		{"the first range was filled within seconds: more may come, or not", nil, layout(old(1500, puts(150))),
			[]string{"0-1 none: a burst, perhaps"}},
		{"no more comes", nil, layout(old(1500, puts(150), ago(5))), []string{"0-1 split: rows in 3"}},
		{"more comes", nil, layout(old(3500, puts(100), ago(1))), []string{"0-1 split: rows in 32"}},
		{"in a bucket that has been cut it is believed", nil, partOf(layout(old(1500, puts(150)))),
			[]string{"0-1 split: rows in 5"}},
		{"grows faster than anything could be moved", nil,
			layout(old(700, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 100, 100 })),
			[]string{"0-1 split: forecast in 3"}},
		{"nothing is forecast of a rush", func(p *policy.Policy) { p.GrowBy = 0 }, partOf(layout(old(700, puts(40)))),
			[]string{"0-1 split: forecast in 2"}},
		{"nor of what has just begun", func(p *policy.Policy) { p.GrowBy = 0 }, layout(old(700, puts(30))),
			[]string{"0-1 split: forecast in 2"}},
		{"a burst is not believed for longer than it has lasted", nil,
			layout(old(600, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 600, 600 })),
			[]string{"0-1 none: within limits"}},
		{"but it is in a bucket that has filled ranges, of which this is a part", nil, partOf(
			layout(old(600, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 600, 600 }))),
			[]string{"0-1 split: forecast in 2"}},
		{"and so is a load there that lasts", nil, partOf(
			layout(old(600, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 14, 14 }))),
			[]string{"0-1 split: forecast in 2"}},
		{"elsewhere it is not", nil,
			layout(old(600, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 14, 14 })),
			[]string{"0-1 none: within limits"}},
		{"grows as fast, by what is put in one place", nil,
			layout(old(200, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS, r.Stats.Spread = 100, 100, 0.5 })),
			[]string{"0-1 none: within limits"}},
		{"grows before it can be moved", func(p *policy.Policy) { p.MovedPerS = 10 },
			layout(old(700, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 3, 3 })),
			[]string{"0-1 split: forecast in 2"}},
		{"grows, but is moved before", func(p *policy.Policy) { p.MovedPerS = 100 },
			layout(old(700, func(r *policy.Range) { r.Stats.GrowthRowsPerS, r.Stats.PutsPerS = 3, 3 })),
			[]string{"0-1 none: within limits"}},
		{"was counted when there was less, and grows all over", nil, layout(old(1500, func(r *policy.Range) {
			r.Stats.GrowthRowsPerS, r.Stats.PutsPerS, r.Stats.RecountedRows = 10, 10, 700
		})), []string{"0-1 split: rows in 5"}},
		{"was counted when there was less, and grows at one end", nil, layout(old(1500, func(r *policy.Range) {
			r.Stats.GrowthRowsPerS, r.Stats.PutsPerS, r.Stats.RecountedRows, r.Stats.Spread = 10, 10, 700, 0.2
		})), []string{"0-1 recount: suspect"}},
		{"was counted when there was next to nothing", nil, layout(old(1500, func(r *policy.Range) {
			r.Stats.GrowthRowsPerS, r.Stats.PutsPerS, r.Stats.RecountedRows = 10, 10, 20
		})), []string{"0-1 recount: suspect"}},
		{"a small one that grows", nil, layout(old(100, func(r *policy.Range) { r.Stats.GrowthRowsPerS = 0.1 }), old(300)),
			[]string{"0-1 none: fewer than min_rows, still growing", "1-2 none: within limits"}},
		{"has grown fast, until now", nil, layout(old(200, func(r *policy.Range) { r.Stats.GrowthRowsPerS = 100 })),
			[]string{"0-1 none: within limits"}},
		{"shrinks", nil, layout(old(999, func(r *policy.Range) { r.Stats.GrowthRowsPerS = -100 })),
			[]string{"0-1 none: within limits"}},
		{"moves", nil, layout(old(5000, func(r *policy.Range) { r.Moves = true }), old(10)),
			[]string{"0-1 none: moving", "1-2 none: moving"}},

		{"small ones", nil, layout(old(100), old(100), old(300)), []string{"0-3 merge: rows"}},
		{"as few as hold them, none left over", nil,
			layout(old(150), old(150), old(150), old(150), old(150), old(150), old(300)),
			[]string{"0-6 merge: rows in 2", "6-7 none: within limits"}},
		{"one more large move than the budget allows", func(p *policy.Policy) { p.Budget.Rows = 500 },
			layout(old(150), old(150), old(150), old(150), old(150), old(150), old(300)),
			[]string{"0-3 merge: rows", "3-4 none: budget spent", "4-5 none: budget spent", "5-6 none: budget spent",
				"6-7 none: within limits"}},
		{"what pays before long comes along", nil,
			layout(old(130), old(140), old(130), old(130), old(150, nearly), old(150, nearly), old(150, nearly), old(300)),
			[]string{"0-7 merge: rows in 2", "7-8 none: within limits"}},
		{"next to nothing is left in them", nil, layout(old(25, some), old(30, some), old(25, some), old(30, some)),
			[]string{"0-4 merge: rows"}},
		{"so much may come back", nil, layout(old(130, within), old(140, within), old(130, within), old(135, within)),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down", "2-3 none: cooling down",
				"3-4 none: cooling down"}},
		{"nor are they joined with more, which would not pay", nil,
			layout(old(300), old(20, some), old(20, some), old(20, some)),
			[]string{"0-1 none: within limits", "1-4 merge: rows"}},
		{"it pays soon: they wait together", nil,
			layout(old(25, lately), old(30, lately), old(28, just), old(25, lately)),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down", "2-3 none: cooling down",
				"3-4 none: cooling down"}},
		{"so they do for one that is being emptied", nil,
			layout(old(25, some), old(30, some), old(28, func(r *policy.Range) { r.Stats.DeletesPerS = 1 })),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down", "2-3 none: within limits"}},
		{"what has grown, but not for long", nil,
			layout(old(30, some), old(30, some, ago(3600), func(r *policy.Range) { r.Stats.GrowthRowsPerS = 1 })),
			[]string{"0-2 merge: rows"}},
		{"with the smaller neighbour", nil, layout(old(400), old(10), old(300)),
			[]string{"0-1 none: within limits", "1-3 merge: rows"}},
		{"of two that are as small with the lower one", nil, layout(old(300), old(10), old(300)),
			[]string{"0-2 merge: rows", "2-3 none: within limits"}},
		{"with none that would be too large", nil, layout(old(660), old(10), old(700)),
			[]string{"0-1 none: within limits", "1-2 none: no neighbour fits", "2-3 none: within limits"}},
		{"with none that grows", nil, layout(old(300, func(r *policy.Range) { r.Stats.GrowthRowsPerS = 1 }), old(10)),
			[]string{"0-1 none: within limits", "1-2 none: no neighbour fits"}},
		{"not what was just cut", nil, layout(old(200), old(200, within)),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down"}},
		{"what a split has made is not joined within the hour, however few rows it has", nil,
			layout(old(80, within), old(80, within)), []string{"0-1 none: cooling down", "1-2 none: cooling down"}},
		{"a merge before long saves a refresh", nil, layout(old(200), old(200, within, dead(60_000))),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down"}},
		{"unless there are far too many tombstones", nil, layout(old(300), old(100, within, dead(95_000))),
			[]string{"0-1 none: within limits", "1-2 refresh: dead"}},
		{"or it is not worth it for long", nil, layout(old(300), old(100, just, dead(60_000))),
			[]string{"0-1 none: within limits", "1-2 refresh: dead"}},
		{"not before it pays", nil, layout(old(10, lately), old(300)),
			[]string{"0-1 none: cooling down", "1-2 none: within limits"}},
		{"few rows pay sooner", nil, layout(old(8, lately), old(10, lately), old(7, lately), old(700)),
			[]string{"0-3 merge: rows", "3-4 none: within limits"}},
		{"what is empty costs nothing", nil, layout(old(0, lately), old(0, lately), old(900)),
			[]string{"0-2 merge: rows", "2-3 none: within limits"}},
		{"what is empty may have been cut ahead", nil, layout(old(0, just), old(0, just), old(900)),
			[]string{"0-1 none: cooling down", "1-2 none: cooling down", "2-3 none: within limits"}},
		{"nor is it joined with more at once", nil, layout(old(0, lately), old(0, lately), old(400)),
			[]string{"0-2 merge: rows", "2-3 none: within limits"}},
		{"not over a pin", nil, layout(old(10), old(300, func(r *policy.Range) { r.PinUntil = now.Add(time.Hour) })),
			[]string{"0-1 none: pinned", "1-2 none: within limits"}},
		{"over a pin that is over", nil, layout(old(10), old(300, func(r *policy.Range) { r.PinUntil = now })),
			[]string{"0-2 merge: rows"}},
		{"its own pin matters as well", nil, layout(old(300),
			old(10, func(r *policy.Range) { r.PinUntil = now.Add(time.Hour) })),
			[]string{"0-1 none: within limits", "1-2 none: pinned"}},
		{"by estimates", nil, layout(old(10, stale), old(300, stale)), []string{"0-2 merge: rows"}},
		{"not with a tail that is appended to", nil, layout(old(10), old(20, appends(1))),
			[]string{"0-1 none: appends", "1-2 none: appends"}},
		{"nor what was cut ahead of it", nil, layout(old(400, appends(1)), old(0), old(0)),
			[]string{"0-1 none: within limits", "1-2 none: cut ahead already", "2-3 none: cut ahead already"}},
		{"until the appends stop", nil, layout(old(400), old(0), old(0)),
			[]string{"0-1 none: within limits", "1-3 merge: rows"}},
		{"growth at one end", nil, layout(old(200, func(r *policy.Range) {
			r.Stats.GrowthRowsPerS, r.Stats.PutsPerS,
				r.Stats.Spread = 100, 100, 0.3
		})),
			[]string{"0-1 none: within limits"}},
		{"appends that have room already", nil, layout(old(900, appends(5)), old(0)),
			[]string{"0-1 none: cut ahead already", "1-2 none: cut ahead already"}},
		{"appends that fill what is cut ahead too soon", nil, layout(old(900, appends(50)), old(0), old(0)),
			[]string{"0-1 none: cut ahead already", "1-2 none: cut ahead already", "2-3 roll: appends ahead 3"}},
		{"appends that went on to a next range", func(p *policy.Policy) { p.Reserve = 0 }, layout(old(300), old(900, appends(60), ago(40)),
			old(900, appends(30), ago(10)), old(400, appends(100), ago(0)), old(0)),
			[]string{"0-1 none: within limits", "1-2 none: within limits", "2-3 none: within limits",
				"3-4 none: cut ahead already", "4-5 roll: appends ahead 4"}},
		{"two streams side by side", nil, layout(old(690, appends(5), ago(1)), old(700, appends(5), ago(0))),
			[]string{"0-1 roll: appends ahead 2", "1-2 roll: appends ahead 2"}},
		{"what is cut ahead is moving", nil, layout(old(900, appends(50)), old(0, func(r *policy.Range) { r.Moves = true })),
			[]string{"0-1 none: cut ahead already", "1-2 none: moving"}},

		{"appends with time to spare", nil, layout(old(300, appends(5))), []string{"0-1 none: within limits"}},
		{"appends, nearly full", nil, layout(old(700, appends(5))), []string{"0-1 roll: appends ahead 2"}},
		{"appends, stale is good enough", nil, layout(old(700, appends(5), stale)), []string{"0-1 roll: appends ahead 2"}},
		{"fast appends", nil, layout(old(300, appends(100))), []string{"0-1 roll: appends ahead 9"}},
		{"appends in the middle", nil, layout(old(700, appends(5)), old(300)),
			[]string{"0-1 roll: appends ahead 2", "1-2 none: within limits"}},
		{"appends to what is too large: rolled first", nil, layout(old(5000, appends(5))),
			[]string{"0-1 roll: appends ahead 2"}},
		{"then split", nil, layout(old(5000, appends(5)), old(0)),
			[]string{"0-1 split: rows in 8", "1-2 none: cut ahead already"}},
		{"when the appends have left it, or soon", nil, layout(old(5000, appends(5), ago(1)), old(0, young)),
			[]string{"0-1 none: cut ahead already", "1-2 none: cut ahead already"}},
		{"soon is within four times the lead", nil, layout(old(5000, appends(5), ago(1)),
			old(0, func(r *policy.Range) { r.Created = now.Add(-159 * time.Second) })),
			[]string{"0-1 none: cut ahead already", "1-2 none: cut ahead already"}},
		{"later is not soon", nil, layout(old(5000, appends(5), ago(1)),
			old(0, func(r *policy.Range) { r.Created = now.Add(-161 * time.Second) })),
			[]string{"0-1 split: rows in 8", "1-2 none: cut ahead already"}},
		{"at once if they have ended", nil, layout(old(5000, appends(5), ago(20)), old(0, young)),
			[]string{"0-1 split: rows in 8", "1-2 none: cut ahead already"}},
		{"a trickle of appends", nil, layout(old(999, appends(0.0001))), []string{"0-1 none: within limits"}},

		{"tombstones", nil, layout(old(500, func(r *policy.Range) { r.Stats.Dead = 60_000 })), []string{"0-1 refresh: dead"}},
		{"tombstones of a small bucket", nil, layout(old(5, func(r *policy.Range) { r.Stats.Dead = 60_000 })),
			[]string{"0-1 refresh: dead"}},
		{"tombstones go with a merge", nil, layout(old(5, func(r *policy.Range) { r.Stats.Dead = 60_000 }), old(300)),
			[]string{"0-2 merge: rows"}},
		{"tombstones of a young one", nil, layout(old(500, young, func(r *policy.Range) { r.Stats.Dead = 60_000 })),
			[]string{"0-1 refresh: dead"}},
		{"tombstones of what will be empty soon", nil, layout(old(500, func(r *policy.Range) {
			r.Stats.Dead, r.Stats.DeletesPerS = 60_000, 5
		})), []string{"0-1 none: about to be empty"}},
		{"tombstones of what is empty", nil, layout(old(0, func(r *policy.Range) { r.Stats.Dead = 13_000 })),
			[]string{"0-1 refresh: dead"}},
		{"tombstones of a queue", nil, layout(old(100, appends(5), func(r *policy.Range) {
			r.Stats.Dead, r.Stats.DeletesPerS = 26_000, 5
		})), []string{"0-1 roll: dead ahead 2"}},

		{"too many bytes", nil, layout(old(900, large(200<<10)), old(400, large(200<<10)), old(400)),
			[]string{"0-1 split: rows in 3", "1-2 none: within limits", "2-3 none: within limits"}},
		{"few rows, but large ones", nil, layout(old(200, large(200<<10)), old(200, large(200<<10))),
			[]string{"0-1 none: within limits", "1-2 none: within limits"}},
		{"few rows, and too many bytes together", nil, layout(old(120, large(200<<10)), old(240, large(200<<10))),
			[]string{"0-1 none: no neighbour fits", "1-2 none: within limits"}},
		{"bytes do not matter", func(p *policy.Policy) { p.MaxBytes = 0 }, layout(old(900, large(200<<10))),
			[]string{"0-1 none: within limits"}},

		{"load", nil, layout(old(900, asked(5000, "0001", "0002", "0003", "0004")), old(900)),
			[]string{"0-1 split: load in 4", "1-2 none: within limits"}},
		{"load with little else", nil, layout(old(900, asked(1100, "0001", "0002", "0003", "0004")), old(900)),
			[]string{"0-1 split: load in 3", "1-2 none: within limits"}},
		{"load that has just begun", nil, layout(old(900, asked(5000, "0001", "0002"), func(r *policy.Range) {
			for i := range r.Stats.Asked {
				r.Stats.Asked[i].At = now.Add(-time.Minute).UnixMilli()
			}
		})), []string{"0-1 none: within limits"}},
		{"one that may be full soon, with a load of which nothing is known", nil,
			layout(old(500, stale, asked(5000), puts(200))), []string{"0-1 recount: suspect"}},
		{"load of which nothing is known", nil, layout(old(900, asked(5000))), []string{"0-1 none: within limits"}},
		{"load that others share", nil, layout(old(900, asked(900, "0001", "0002")), old(900, asked(1100, "001", "0011")),
			old(900, asked(4000, "0021", "0022"))),
			[]string{"0-1 none: within limits", "1-2 none: within limits", "2-3 split: load in 4"}},
		{"load of one key", nil, layout(old(1, asked(5000, "0001"))), []string{"0-1 none: one key only"}},
		{"load of one key of many", nil, layout(old(900, asked(5000, "0001", "0001", "0001", "0001", "0002"))),
			[]string{"0-1 none: one popular key"}},
		{"load that begins at the lowest key", nil, layout(old(900), old(900, asked(5000, "001"))),
			[]string{"0-1 none: within limits", "1-2 none: one popular key"}},
		{"load of a small one", nil, layout(old(20, asked(5000, "0001", "0002", "0003", "0004"))),
			[]string{"0-1 split: load in 4"}},
		{"load of a stale one", nil, layout(old(900, stale, asked(5000, "0001", "0002", "0003", "0004"))),
			[]string{"0-1 recount: suspect"}},
		{"load of a young one", nil, layout(old(900, young, asked(5000, "0001", "0002"))),
			[]string{"0-1 none: cooling down"}},
		{"tombstones of a loaded one", nil, layout(old(900, asked(5000, "0001"), func(r *policy.Range) {
			r.Stats.Dead = 60_000
		})), []string{"0-1 refresh: dead"}},
		{"what is loaded is not merged", nil, layout(old(50, asked(400, "0001")), old(50, asked(400, "0011"))),
			[]string{"0-1 none: load", "1-2 none: no neighbour fits"}},
		{"three that would be loaded together", nil,
			layout(old(50, asked(200, "0001")), old(50, asked(200, "0011")), old(50, asked(200, "0021"))),
			[]string{"0-2 merge: rows", "2-3 none: no neighbour fits"}},
		{"what was loaded is merged", nil, layout(old(50, asked(200, "0001")), old(50, asked(200, "0011"))),
			[]string{"0-2 merge: rows"}},
		{"load by appends", func(p *policy.Policy) { p.MaxRows, p.TargetRows = 1e9, 1e9 }, layout(old(900, appends(5000))),
			[]string{"0-1 none: loaded by appends"}},

		{"the budget, largest first", func(p *policy.Policy) { p.Budget = policy.Budget{Moves: 4} },
			layout(old(1100), old(2000), old(1200)),
			[]string{"0-1 none: budget spent", "1-2 split: rows in 4", "2-3 none: budget spent"}},
		{"the budget is for all", func(p *policy.Policy) { p.Budget = policy.Budget{Rows: 1000} },
			&policy.Input{Rows: 900, Ranges: layout(old(1100)).Ranges}, []string{"0-1 none: budget spent"}},
		{"more than the whole budget, when nothing else is in flight",
			func(p *policy.Policy) { p.Budget = policy.Budget{Rows: 10, Moves: 1} },
			layout(old(9000), old(1100)), []string{"0-1 split: rows in 14", "1-2 none: budget spent"}},
		{"rolls are free", func(p *policy.Policy) { p.Budget = policy.Budget{Moves: 1} },
			&policy.Input{Moves: 1, Ranges: layout(old(1100), old(700, appends(5))).Ranges},
			[]string{"0-1 none: budget spent", "1-2 roll: appends ahead 2"}},
		{"at other hours", func(p *policy.Policy) {
			p.Budget.Hours = []policy.Hours{{From: 22 * time.Hour,
				To: 5 * time.Hour}}
		},
			layout(old(1100), old(1300), old(10), old(260)),
			[]string{"0-1 none: outside the hours", "1-2 split: rows in 2", "2-3 none: outside the hours",
				"3-4 none: outside the hours"}},
		{"at these hours", func(p *policy.Policy) {
			p.Budget.Hours = []policy.Hours{{From: 22 * time.Hour,
				To: 6 * time.Hour}}
		},
			layout(old(1100)), []string{"0-1 split: rows in 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := small()
			if c.change != nil {
				c.change(&p)
			}
			require.Equal(t, c.want, show(judge(p, c.l, now)))
		})
	}
}

// A pending verdict says when it will be acted on, and then it is.
func TestAPendingVerdictSaysWhen(t *testing.T) {
	none := func(*policy.Policy) {}
	for _, c := range []struct {
		why    policy.Why
		change func(*policy.Policy)
		in     *policy.Input
		after  time.Duration
		then   policy.Kind
	}{
		{policy.Cooling, none, layout(old(200), old(200, within)), 15 * time.Minute, policy.Merge},
		{policy.Cooling, none, layout(old(900, young, asked(5000, "0001", "0002"))), 29 * time.Minute, policy.Recount},
		{policy.Backing, none, layout(old(990, func(r *policy.Range) {
			r.Stats.AtMost, r.Stats.Recounted, r.Stats.Fruitless = 1200, now.Add(-3*time.Minute), 2
		})), time.Minute, policy.Recount},
		{policy.Pinned, none, layout(old(100), old(100, func(r *policy.Range) { r.PinUntil = now.Add(time.Hour) })),
			time.Hour, policy.Merge},
		{policy.OffHours, func(p *policy.Policy) {
			p.Budget.Hours = []policy.Hours{{From: 4 * time.Hour, To: 5 * time.Hour}, {From: 6 * time.Hour, To: 7 * time.Hour}}
		}, layout(old(100), old(100)), 53*time.Minute + 53*time.Second, policy.Merge},
	} {
		p := small()
		c.change(&p)
		d := judge(p, c.in, now)[0]
		require.Equal(t, c.why, d.Why, d.Text)
		require.Equal(t, now.Add(c.after), d.Until, c.why)
		require.Equal(t, c.why, judge(p, c.in, d.Until.Add(-time.Second))[0].Why, "a second before")
		require.Equal(t, c.then, judge(p, c.in, d.Until)[0].Kind, c.why)
	}
}

// A split by load copies what does not stay, and is not for rows that will come.
func TestCopiesOfASplitByLoad(t *testing.T) {
	d := judge(small(), layout(old(900, asked(5000, "0001", "0002", "0003", "0004")), old(900)), now)[0]
	require.Equal(t, [4]int64{4, 900, 675, 900}, [4]int64{int64(d.Parts), d.Rows, d.Copies, d.Grown})
}

// A load that pauses may have ended: that is seen within seconds, so its ranges are not cut meanwhile.
func TestALoadThatPauses(t *testing.T) {
	for seconds, want := range map[int]string{
		1: "0-1 split: forecast in 3", 3: "0-1 none: a burst, perhaps", 5: "0-1 none: within limits",
	} {
		ds := judge(small(), layout(old(900, puts(60), ago(seconds))), now)
		require.Equal(t, []string{want}, show(ds), "%d seconds after the last row", seconds)
	}
	require.Equal(t, []string{"0-1 split: rows in 3"}, show(judge(small(), layout(old(1500, puts(60), ago(5))), now)))
}

// drawn is a policy and a layout that anything may be wrong with.
func drawn(t *rapid.T) (policy.Policy, *policy.Input) {
	p := small()
	p.GrowBy = rapid.SampledFrom([]float64{0, 1, 8}).Draw(t, "grow by")
	p.Budget = policy.Budget{Moves: rapid.IntRange(0, 10).Draw(t, "moves"),
		Rows: rapid.Int64Range(0, 3000).Draw(t, "rows")}
	if rapid.Bool().Draw(t, "hours") {
		p.Budget.Hours = []policy.Hours{{From: time.Duration(rapid.IntRange(0, 23).Draw(t, "from")) * time.Hour,
			To: time.Duration(rapid.IntRange(0, 23).Draw(t, "to")) * time.Hour}}
	}
	ages := rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Minute, 10 * time.Minute, time.Hour, 100 * time.Hour})
	rates := rapid.SampledFrom([]float64{0, 0, 0, 0.01, 1, 30, 5000})
	var ranges []policy.Range
	calm := rapid.Bool().Draw(t, "calm") // else merges are rare
	for range rapid.IntRange(1, 12).Draw(t, "ranges") {
		if calm {
			r := old(rapid.SampledFrom([]int64{1, 20, 100, 249, 300, 400, 590}).Draw(t, "rows"))
			r.Stats.GrowthRowsPerS = rapid.SampledFrom([]float64{0, 0, 0, 0.5, 2}).Draw(t, "growth")
			if rapid.IntRange(0, 2).Draw(t, "pinned") == 0 {
				r.PinUntil = now.Add(time.Hour)
			}
			ranges = append(ranges, r)
			continue
		}
		r := old(rapid.SampledFrom([]int64{0, 1, 20, 100, 249, 250, 400, 600, 999, 1001, 1500, 9000}).Draw(t, "rows"))
		s := &r.Stats
		s.Known = rapid.IntRange(0, 5).Draw(t, "known") > 0
		s.PutsPerS, s.ReadsPerS = rates.Draw(t, "puts"), rates.Draw(t, "reads")
		s.AppendShare = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "share")
		s.AppendsPerS = s.PutsPerS * s.AppendShare
		s.GrowthRowsPerS = rates.Draw(t, "growth") * rapid.SampledFrom([]float64{-1, 1}).Draw(t, "sign")
		s.Dead = rapid.SampledFrom([]int64{0, 0, 70_000}).Draw(t, "dead")
		s.Fruitless = rapid.IntRange(0, 40).Draw(t, "fruitless")
		s.Recounted = now.Add(-ages.Draw(t, "recounted"))
		r.Created = now.Add(-ages.Draw(t, "created"))
		if rapid.IntRange(0, 4).Draw(t, "pinned") == 0 {
			r.PinUntil = now.Add(-ages.Draw(t, "pin"))
		}
		r.Moves = rapid.IntRange(0, 7).Draw(t, "moving") == 0
		ranges = append(ranges, r)
	}
	l := layout(ranges...)
	l.Moves, l.Rows = rapid.IntRange(0, 6).Draw(t, "in flight"), rapid.Int64Range(0, 2000).Draw(t, "rows in flight")
	return p, l
}

// Whatever is asked: each range has one verdict with its reason, and none breaks a
// promise.
func TestVerdictsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, l := drawn(t)
		at := 0
		moves, rows, begun := l.Moves, l.Rows, 0
		for _, v := range judge(p, l, now) {
			require.Equal(t, at, v.From)
			require.Greater(t, v.To, v.From)
			at = v.To
			require.NotEmpty(t, v.Why)
			require.True(t, v.Text != "" || v.Why == policy.Within, "%v", v)
			moved := v.Kind == policy.Split || v.Kind == policy.Merge || v.Kind == policy.Refresh
			sum, part := int64(0), int64(0)
			for i := v.From; i < v.To; i++ {
				r := &l.Ranges[i]
				sum += r.Stats.Rows
				if v.Kind != policy.None {
					require.False(t, r.Moves)
				}
				if !moved {
					continue
				}
				require.True(t, r.Stats.Known)
				if v.Kind == policy.Split {
					require.LessOrEqual(t, now.Sub(r.Stats.Recounted), p.Fresh, "only what was counted")
				}
				if v.Why == policy.Load {
					require.False(t, r.Created.Add(p.Cool).After(now), "cooling down")
				}
				stays := slices.ContainsFunc(v.Cuts, func(cut []byte) bool { return bytes.Equal(cut, r.Start) })
				if i > v.From && !stays {
					require.False(t, r.PinUntil.After(now), "joined over a pin")
				}
				if stays {
					part = 0
				}
				if part += r.Stats.Rows; v.Kind == policy.Merge {
					require.LessOrEqual(t, part, p.TargetRows)
				}
			}
			switch v.Kind {
			case policy.Split:
				require.GreaterOrEqual(t, v.Parts, 2)
				require.LessOrEqual(t, int64(v.Parts), sum)
				require.LessOrEqual(t, sum/int64(v.Parts), p.MaxRows)
				require.Less(t, v.Copies, sum)
			case policy.Merge:
				require.Greater(t, v.To-v.From, 1+len(v.Cuts))
			case policy.Roll:
				require.GreaterOrEqual(t, v.Ahead, 1)
				require.Equal(t, v.Down, v.From < v.Appended)
				for i := min(v.Appended, v.From); i <= max(v.Appended, v.From); i++ {
					require.True(t, i == v.Appended || l.Ranges[i].Stats.Rows == 0)
				}
			case policy.Recount, policy.None:
				require.Equal(t, v.From+1, v.To)
			}
			if moved {
				begun++
				merged := v.To - v.From + 1 + len(v.Cuts)
				n := map[policy.Kind]int{policy.Split: v.Parts, policy.Merge: merged, policy.Refresh: 2}[v.Kind]
				if v.Kind == policy.Merge && v.Copies == 0 {
					n = 1
				}
				moves += n
				rows += v.Copies
			}
		}
		require.Equal(t, len(l.Ranges), at)
		if begun > 1 || begun == 1 && l.Moves+int(l.Rows) > 0 {
			require.True(t, p.Budget.Moves == 0 || moves <= p.Budget.Moves)
			require.True(t, p.Budget.Rows == 0 || rows <= p.Budget.Rows)
		}
	})
}

// What was merged is not split again as long as it grows as it did, and what was
// split for its rows is not merged again.
func TestNothingGoesBackAndForth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, l := drawn(t)
		p.Budget, p.LoadPerS = policy.Budget{}, 0
		for i := range l.Ranges {
			l.Ranges[i].Stats.AppendShare, l.Ranges[i].Stats.AppendsPerS = 0, 0
		}
		for _, v := range judge(p, l, now) {
			later := now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			switch v.Kind {
			case policy.Merge:
				p.GrowBy = 0 // what it will be is not what it is
				cuts := v.Cuts
				for i := v.From; i < v.To; {
					m := old(0)
					m.Stats.Recounted = later
					for ; i < v.To && (len(cuts) == 0 || !bytes.Equal(l.Ranges[i].Start, cuts[0])); i++ {
						m.Stats.Rows += l.Ranges[i].Stats.Rows
						m.Stats.GrowthRowsPerS += max(0, l.Ranges[i].Stats.GrowthRowsPerS)
					}
					cuts = cuts[min(1, len(cuts)):]
					m.Stats.Rows += int64(m.Stats.GrowthRowsPerS * later.Sub(now).Seconds())
					require.NotEqual(t, policy.Split, judge(p, layout(m), later)[0].Kind)
				}
			case policy.Split:
				if v.Why != policy.Rows || l.Ranges[v.From].Stats.GrowthRowsPerS > 0 {
					continue
				}
				var parts []policy.Range
				for i := range v.Parts {
					n := int64(v.Parts)
					part := old(v.Rows*int64(i+1)/n - v.Rows*int64(i)/n)
					parts = append(parts, part)
				}
				for _, again := range judge(p, layout(parts...), now) {
					require.Equal(t, policy.None, again.Kind)
				}
			}
		}
	})
}
