package cassandrastore

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAgeOfRepairs: a table is as old as the part of its ring that was repaired longest ago, and a part without a
// repair is named.
func TestAgeOfRepairs(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	const grace = 10 * 24 * time.Hour
	type repair struct {
		from, to int64
		days     int
	}
	for name, c := range map[string]struct {
		repairs []repair // the newest first
		says    string
	}{
		"nothing is known":       {nil, "no repair within 30 days of 100 % of its ranges"},
		"all at once":            {[]repair{{5, 5, 7}}, ""},
		"around the end":         {[]repair{{10, -10, 1}, {-10, 10, 2}}, ""},
		"too long ago":           {[]repair{{0, 0, 9}}, "repaired 9.0 days ago, and tombstones are kept for 10.0 days"},
		"a part too long ago":    {[]repair{{100, 0, 1}, {0, 0, 9}}, "the range from token 0 to 100 was repaired 9.0 days ago"},
		"what was repaired anew": {[]repair{{0, 0, 1}, {100, 0, 9}}, ""},
		"a part never": {
			[]repair{{math.MinInt64, 0, 1}}, "of 50 % of its ranges, the first one from token 0 to 9223372036854775807",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := wholeRing()
			for _, p := range c.repairs {
				at := now.Add(-time.Duration(p.days) * 24 * time.Hour)
				r.repaired(fmt.Sprintf("(%d,%d]", p.from, p.to), at)
			}
			what := r.problem(now, grace)
			if c.says == "" {
				require.Empty(t, what)
			} else {
				require.Contains(t, what, c.says)
			}
		})
	}
	r := wholeRing()
	for _, text := range []string{"", "(a,5]", "(5,a]", "5", "(1,2,3]"} {
		r.repaired(text, now)
	}
	r.repaired("(0,0]", time.Time{})
	require.Len(t, r.left, 1, "what is not understood is no repair")
}

// A repair whose options are not known to make all replicas equal is none.
func TestRepairsThatDoNotCount(t *testing.T) {
	usual := map[string]string{"incremental": "false", "primaryRange": "true", "pullRepair": "false", "previewKind": "NONE",
		"paxosOnly": "false", "jobThreads": "1", "dataCenters": ""}
	require.True(t, equalizes(usual))
	for name, value := range map[string]string{
		"pullRepair": "true", "previewKind": "REPAIRED", "paxosOnly": "true", "of a later version": "false",
	} {
		options := maps.Clone(usual)
		options[name] = value
		require.False(t, equalizes(options), name)
	}
}
