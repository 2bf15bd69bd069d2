package tidy

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsDue(t *testing.T) {
	rules := Rules{Grace: time.Hour, Settled: 24 * time.Hour}
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
		{"an older null version", []Version{null, null}, false, []Step{{Supersede, 1, 0}}},
		{"all older ones, by the newest", []Version{keptNull, marker, null, keptNull}, false,
			[]Step{{Supersede, 1, 0}, {Supersede, 2, 0}, {Supersede, 3, 0}}},
		{"nothing relies on what has a note", []Version{noted, null, null}, false, []Step{{Supersede, 2, 1}}},
		{"what has a note may be superseded", []Version{null, noted}, false, []Step{{Supersede, 1, 0}}},
		{"versions stay, and supersede nothing", []Version{versioned, null, versioned, null}, false,
			[]Step{{Supersede, 3, 1}}},
		{"a burned one supersedes nothing", []Version{ashes(0), null}, false, nil},
		{"burned by somebody", []Version{ashes(-1)}, false, []Step{{Do: Prove}}},
		{"within the grace", []Version{ashes(time.Hour - 1)}, false, nil},
		{"behind the grace", []Version{ashes(time.Hour)}, false, []Step{{Do: Finish}}},
		{"tags without a row", []Version{{Tags: true, Age: time.Hour}, null}, false, []Step{{Do: Finish}}},
		{"young ones", []Version{{Tags: true, Age: time.Hour - 1}, null}, false, nil},
		{"with a note", []Version{{Tags: true, Note: true, Age: time.Hour}, null}, false, nil},
		{"tags of a version", []Version{{Rank: Live, Tags: true, Age: time.Hour, Proven: -1}}, false, nil},
		{"a note without a row", []Version{{Note: true}, null}, false, nil},
		{"a young marker", []Version{marker}, false, nil},
		{"a marker that hides nothing", []Version{old}, false, []Step{{Do: Unmark}}},
		{"a marker with older versions that were not looked at", []Version{old}, true, nil},
		{"a marker above ashes", []Version{old, ashes(0)}, false, nil},
		{"a marker below a version", []Version{versioned, old}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.group, false, c.more, rules)) })
	}
	expires := Rules{Settled: -1, Expire: time.Hour}
	versioned.Age, noted.Age, old.Age = time.Hour, time.Hour, time.Hour
	young := versioned
	young.Age--
	step := []Step{{Do: Expire}}
	require.Equal(t, step, Decide([]Version{versioned, versioned}, false, false, expires))
	require.Equal(t, []Step{{Prove, 0, 0}, {Do: Expire, Version: 1}},
		sorted(Decide([]Version{ashes(-1), versioned}, false, false, expires)), "what is burned hides nothing")
	require.Empty(t, Decide([]Version{young, versioned}, false, false, expires), "only the newest counts")
	require.Empty(t, Decide([]Version{old, versioned}, false, false, expires), "it is hidden")
	require.Empty(t, Decide([]Version{noted}, false, false, expires))
	require.Empty(t, Decide([]Version{versioned}, true, false, expires), "a newer one is not in sight")
	require.Empty(t, Decide([]Version{old}, false, false, Rules{Settled: -1}), "markers that users see stay")
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
