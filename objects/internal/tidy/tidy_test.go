package tidy

import (
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
		{"a note without a row", []Version{{Note: true}, null}, false, nil},
		{"a young marker", []Version{marker}, false, nil},
		{"a marker that hides nothing", []Version{old}, false, []Step{{Do: Unmark}}},
		{"a marker with older versions that were not looked at", []Version{old}, true, nil},
		{"a marker above ashes", []Version{old, ashes(0)}, false, nil},
		{"a marker below a version", []Version{versioned, old}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.group, c.more, rules)) })
	}
	require.Empty(t, Decide([]Version{old}, false, Rules{Settled: -1}), "markers that users see stay")
}
