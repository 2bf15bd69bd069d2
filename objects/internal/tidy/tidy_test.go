package tidy

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestWhatIsDue(t *testing.T) {
	rules := Rules{Grace: time.Hour, Settled: 24 * time.Hour, Unmark: true}
	null := Version{Rank: Live, Null: true, Proven: -1}
	keptNull := Version{Rank: Kept, Null: true, Proven: -1}
	noted := Version{Rank: Live, Null: true, Note: true, Proven: -1}
	marker := Version{Rank: Live, Null: true, Marker: true, Proven: -1}
	old := marker
	old.Age = 24 * time.Hour
	versioned := Version{Rank: Live, Proven: -1}
	ashes := func(proven time.Duration) Version { return Version{Rank: Burned, Null: true, Proven: proven} }
	for _, c := range []struct {
		name  string
		group []Version
		more  bool
		want  []Step
	}{
		{"one version", []Version{null}, false, nil},
		{"an older null version", []Version{null, null}, false, []Step{{Do: Supersede, Version: 1, By: 0}}},
		{"all older ones, by the newest", []Version{keptNull, marker, null, keptNull}, false,
			[]Step{{Do: Supersede, Version: 1, By: 0}, {Do: Supersede, Version: 2, By: 0}, {Do: Supersede, Version: 3, By: 0}}},
		{"nothing relies on what has a note", []Version{noted, null, null}, false, []Step{{Do: Supersede, Version: 2, By: 1}}},
		{"what has a note may be superseded", []Version{null, noted}, false, []Step{{Do: Supersede, Version: 1, By: 0}}},
		{"versions stay, and supersede nothing", []Version{versioned, null, versioned, null}, false,
			[]Step{{Do: Supersede, Version: 3, By: 1}}},
		{"a burned one supersedes nothing", []Version{ashes(0), null}, false, nil},
		{"burned by somebody", []Version{ashes(-1)}, false, []Step{{Do: Prove}}},
		{"within the grace", []Version{ashes(time.Hour - 1)}, false, nil},
		{"behind the grace", []Version{ashes(time.Hour)}, false, []Step{{Do: Finish}}},
		{"tags without a row", []Version{{Tags: true, Age: time.Hour, Proven: -1}, null}, false, []Step{{Do: Finish}}},
		{"young ones", []Version{{Tags: true, Age: time.Hour - 1, Proven: -1}, null}, false, nil},
		{"with a note", []Version{{Tags: true, Note: true, Age: time.Hour, Proven: -1}, null}, false, nil},
		{"tags of a version", []Version{{Rank: Live, Tags: true, Age: time.Hour, Proven: -1}}, false, nil},
		{"a note without a row", []Version{{Note: true, Proven: -1}, null}, false, nil},
		{"a proof without a row", []Version{{Note: true, Proven: time.Hour}, null}, false, []Step{{Do: Finish}}},
		{"a young one", []Version{{Note: true, Proven: time.Hour - 1}, null}, false, nil},
		{"a young marker", []Version{marker}, false, nil},
		{"a marker that hides nothing", []Version{old}, false, []Step{{Do: Unmark}}},
		{"a marker with older versions that were not looked at", []Version{old}, true, nil},
		{"a marker above ashes", []Version{old, ashes(0)}, false, nil},
		{"a marker below a version", []Version{versioned, old}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.group, false, c.more, rules)) })
	}
	expires := Rules{Of: []Rule{{Expire: 2 * time.Hour}, {Expire: time.Hour}, {Expire: 1, MinSize: 1}, {Expire: 1, Below: -1}}}
	versioned.Age, noted.Age, old.Age = time.Hour, time.Hour, time.Hour
	young := versioned
	young.Age--
	step := []Step{{Do: Expire}}
	require.Equal(t, step, Decide([]Version{versioned, versioned}, false, false, expires))
	require.Equal(t, []Step{{Do: Prove}, {Do: Expire, Version: 1}},
		sorted(Decide([]Version{ashes(-1), versioned}, false, false, expires)), "what is burned hides nothing")
	require.Empty(t, Decide([]Version{young, versioned}, false, false, expires), "only the newest counts")
	require.Empty(t, Decide([]Version{old, versioned}, false, false, expires), "it is hidden")
	require.Empty(t, Decide([]Version{noted}, false, false, expires))
	require.Empty(t, Decide([]Version{versioned}, true, false, expires), "a newer one is not in sight")
	require.Empty(t, Decide([]Version{old}, false, false, Rules{}), "markers that users see stay")
}

func TestDeleteMarkersThatHideNothingAreRemovedByARule(t *testing.T) {
	old := Version{Rank: Live, Marker: true, Age: 24 * time.Hour, Proven: -1}
	null, noted := old, old
	null.Null, noted.Note = true, true
	unmark, expire := Rule{Unmark: true}, Rule{Expire: 24 * time.Hour}
	for _, c := range []struct {
		name     string
		group    []Version
		rules    Rules
		unmarked bool
	}{
		{"without a rule", []Version{old}, Rules{}, false},
		{"without a rule, and users do not see it", []Version{old}, Rules{Unmark: true}, false},
		{"a null one that users do not see", []Version{null}, Rules{Unmark: true}, true},
		{"by its rule", []Version{old}, Rules{Of: []Rule{unmark}}, true},
		{"by its age", []Version{old}, Rules{Of: []Rule{expire}}, true},
		{"too young for the rule", []Version{old}, Rules{Of: []Rule{{Expire: 25 * time.Hour}}}, false},
		{"something older may still come", []Version{old}, Rules{Settled: 25 * time.Hour, Of: []Rule{unmark, expire}}, false},
		{"a rule for sizes", []Version{old}, Rules{Of: []Rule{{Unmark: true, MinSize: 1}, {Expire: 1, Below: 9}}}, false},
		{"with a note", []Version{noted}, Rules{Of: []Rule{unmark}}, false},
		{"above another one", []Version{old, old}, Rules{Of: []Rule{unmark, expire}}, false},
		{"an object", []Version{{Rank: Live, Age: 1, Proven: -1}}, Rules{Of: []Rule{unmark}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := []Step(nil)
			if c.unmarked {
				want = []Step{{Do: Unmark}}
			}
			require.Equal(t, want, Decide(c.group, false, false, c.rules))
		})
	}
	one := Rules{Of: []Rule{unmark}}
	require.Empty(t, Decide([]Version{old}, true, false, one), "it is not the newest")
	require.Empty(t, Decide([]Version{old}, false, true, one), "something older is there")
}

func TestWhatIsNoncurrentExpires(t *testing.T) {
	// aged returns versions of so many hours.
	aged := func(hours ...int) (group []Version) {
		for _, h := range hours {
			age := time.Duration(h) * time.Hour
			group = append(group, Version{Rank: Live, Age: age, Over: age, Proven: -1})
		}
		return group
	}
	with := func(group []Version, at int, f func(*Version)) []Version {
		f(&group[at])
		return group
	}
	lapse := func(version, by, enough int) Step { return Step{Do: Lapse, Version: version, By: by, Enough: enough} }
	days := []Rule{{Noncurrent: 10 * time.Hour}}
	three := []Rule{{Noncurrent: 10 * time.Hour, Newer: 2}}
	for _, c := range []struct {
		name  string
		group []Version
		rules []Rule
		want  []Step
	}{
		{"no rule", aged(20, 30), nil, nil},
		{"the newest one never does", aged(90), days, nil},
		{"as long as the one above is young", aged(10, 90), days, nil},
		{"once that is older than the days and the margin", aged(11, 90), days, []Step{lapse(1, 0, 0)}},
		{"each because of the one above it, the oldest first", aged(5, 11, 12, 13), days, []Step{lapse(3, 2, 2), lapse(2, 1, 1)}},
		{"kept ones, too", with(aged(11, 90), 1, func(v *Version) { v.Rank = Kept }), days, []Step{lapse(1, 0, 0)}},
		{"burned ones make nothing noncurrent", with(aged(20, 30), 0, func(v *Version) { v.Rank, v.Proven = Burned, 0 }), days, nil},
		{"nor do those with a note", with(aged(5, 20, 30), 1, func(v *Version) { v.Note = true }), days, nil},
		{"a note does not save", with(aged(20, 30), 1, func(v *Version) { v.Note = true }), days, []Step{lapse(1, 0, 0)}},
		{"below a delete marker", with(aged(20, 30), 0, func(v *Version) { v.Marker = true }), days, []Step{lapse(1, 0, 0)}},
		{"since the object was hidden", with(aged(20, 30), 0, func(v *Version) { v.Marker, v.Over = true, time.Hour }), days, nil},
		{"so many newer ones stay", aged(20, 21, 22), three, nil},
		{"and no more", aged(20, 21, 22, 23, 24), three, []Step{lapse(4, 3, 1), lapse(3, 2, 0)}},
		{"by one that is here for the margin", aged(0, 21, 22, 23), three, nil},
		{"any rule is enough", aged(20, 21), append(three, days...), []Step{lapse(1, 0, 0)}},
		{"too small for the rule", aged(20, 30), []Rule{{Noncurrent: 1, MinSize: 1}}, nil},
		{"too large", with(aged(20, 30), 1, func(v *Version) { v.Size = 5 }), []Rule{{Noncurrent: 1, Below: 5}}, nil},
		{"of a size that fits", with(aged(20, 30), 1, func(v *Version) { v.Size = 5 }), []Rule{{Noncurrent: 1, MinSize: 5, Below: 6}},
			[]Step{lapse(1, 0, 0)}},
		{"superseded before", with(with(aged(20, 30), 0, func(v *Version) { v.Null = true }), 1, func(v *Version) { v.Null = true }), days,
			[]Step{{Do: Supersede, Version: 1, By: 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Decide(c.group, false, false, Rules{Grace: time.Hour, Margin: time.Hour, Of: c.rules}))
		})
	}
	many := aged(make([]int, 5*MostNewer)...)
	for i := range many {
		many[i].Over = time.Hour
	}
	steps := Decide(many, true, true, Rules{Of: []Rule{{Noncurrent: 1, Newer: MostNewer}}})
	require.Len(t, steps, len(many)-MostNewer-1, "behind others, too")
	for i, s := range steps {
		at := len(many) - 1 - i
		require.Equal(t, lapse(at, at-1, at-1-MostNewer), s)
	}
}

func sorted(steps []Step) []Step {
	slices.SortFunc(steps, func(a, b Step) int { return a.Version - b.Version })
	return steps
}

func TestWhatIsDueForAnUpload(t *testing.T) {
	rules := Rules{Grace: time.Hour, Abandon: 24 * time.Hour}
	open := Upload{Open: true, Claimed: -1, Proven: -1, VersionProven: -1}
	claimed, old := open, open
	claimed.Claimed, old.Age = time.Hour-1, 24*time.Hour
	ended := func(proven time.Duration, v Rank, versionProven time.Duration) Upload {
		return Upload{Claimed: 0, Proven: proven, Version: v, VersionProven: versionProven}
	}
	strays := func(v Rank, proven time.Duration) Upload {
		return Upload{Claimed: 0, Proven: time.Hour, Version: v, Strays: true, VersionProven: proven}
	}
	completed := claimed
	completed.Version = Live
	stale := claimed
	stale.Claimed = time.Hour
	for _, c := range []struct {
		name string
		u    Upload
		want Do
	}{
		{"an open one", open, 0},
		{"too old", old, Settle},
		{"somebody completes or aborts it", claimed, 0},
		{"somebody began to, and did not end", stale, Settle},
		{"completed, but still open", completed, Settle},
		{"ended by somebody", ended(-1, 0, -1), Settle},
		{"ended, and somebody may still complete it", ended(time.Hour-1, 0, -1), 0},
		{"ended, and nobody completed it", ended(time.Hour, 0, -1), Condemn},
		{"completed when nobody looked", ended(time.Hour, Live, -1), Settle},
		{"completed", ended(time.Hour, Kept, -1), Free},
		{"completed, and another one may come", strays(Kept, -1), Condemn},
		{"that is burned, and read by somebody", strays(Kept, time.Hour-1), 0},
		{"completed once", strays(Kept, time.Hour), Free},
		{"completed, and deleted by somebody", ended(time.Hour, Burned, -1), Condemn},
		{"condemned, and read by somebody", ended(time.Hour, Burned, time.Hour-1), 0},
		{"condemned", ended(time.Hour, Burned, time.Hour), Finish},
		{"condemned, and its row is removed", ended(time.Hour, 0, time.Hour), Finish},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, DecideUpload(c.u, rules)) })
	}
	require.Zero(t, DecideUpload(old, Rules{Grace: time.Hour}), "no rule for old ones")
}

func TestEachStepHasItsWords(t *testing.T) {
	seen := map[string]bool{}
	for d := Do(0); d <= Free; d++ {
		require.NotEmpty(t, d.Why())
		require.False(t, seen[d.String()] || seen[d.Why()], d.String())
		seen[d.String()], seen[d.Why()] = true, true
	}
	require.Equal(t, "free", Free.String())
}

// Before Next nothing is due in a group in which nothing is due now, and then something is.
func TestNothingIsDueBeforeNext(t *testing.T) {
	r := seed.New(t)
	rules := Rules{Grace: 10 * time.Hour, Settled: 30 * time.Hour, Unmark: true}
	waits, never := 0, 0
	for range 100_000 {
		group := make([]Version, 1+r.IntN(3))
		for i := range group {
			group[i] = Version{
				Rank: Rank(r.IntN(4)), Marker: r.IntN(2) == 0, Null: r.IntN(2) == 0, Note: r.IntN(4) == 0, Tags: r.IntN(4) == 0,
				Age: time.Duration(r.IntN(40)) * time.Hour, Proven: time.Duration(r.IntN(14)-1) * time.Hour,
			}
			if v := &group[i]; v.Rank.Seen() || v.Rank == 0 && !v.Note {
				v.Proven = -1
			}
		}
		behind, more := r.IntN(4) == 0, r.IntN(4) == 0
		later := func(d time.Duration) []Step {
			aged := slices.Clone(group)
			for i := range aged {
				if aged[i].Age += d; aged[i].Proven >= 0 {
					aged[i].Proven += d
				}
			}
			return Decide(aged, behind, more, rules)
		}
		if len(later(0)) > 0 {
			continue
		}
		if next, ok := Next(group, behind, more, rules); ok {
			waits++
			require.Empty(t, later(next-1), "%+v", group)
			require.NotEmpty(t, later(next), "%+v", group)
		} else {
			never++
			require.Empty(t, later(1000*time.Hour), "%+v", group)
		}
	}
	require.NotZero(t, waits)
	require.NotZero(t, never)
}
