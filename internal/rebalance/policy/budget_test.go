package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Of merges those come first that copy the fewest rows for each range that they save: a budget saves the most so.
func TestMergesThatSaveTheMostPerRow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	in := policy.Input{Now: now, Policy: policy.Default(1000)}
	in.Policy.Budget.Rows = 500
	for i, rows := range []int64{240, 240, 900, 100, 100, 100, 100, 900} {
		r := policy.Range{
			End: fmt.Appendf(nil, "%d", i+1), Created: now.Add(-48 * time.Hour), Small: now.Add(-24 * time.Hour),
			Stats: counter.Stats{Known: true, Rows: rows, AtMost: rows},
		}
		if i > 0 {
			r.Start = in.Ranges[i-1].End
		}
		in.Ranges = append(in.Ranges, r)
	}
	in.Ranges[len(in.Ranges)-1].End = nil
	merged := map[string]policy.Why{}
	for _, d := range policy.Decide(in) {
		if d.Kind == policy.Merge || d.Why == policy.Spent {
			merged[fmt.Sprint(d.Kind, " ", d.From, "-", d.To)] = d.Why
		}
	}
	require.Equal(t, policy.Rows, merged["merge 3-7"], "%v", merged)
	require.Equal(t, policy.Spent, merged["none 0-1"], "%v", merged)
}
