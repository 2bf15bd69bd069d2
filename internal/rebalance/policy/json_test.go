package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// An input that is stored and read back gives the same decisions, which can be stored as well.
func TestInputsCanBeReplayed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := drawn(t)
		in.Policy, in.Now = p, now
		for i := range in.Ranges {
			r := &in.Ranges[i]
			key := func(k int) []byte { return append(append([]byte(nil), r.Start...), 0xff, byte(k)) }
			if n := r.Stats.Rows; n > 0 && rapid.IntRange(0, 3).Draw(t, "quanta") > 0 {
				for k := range int64(10) {
					q := counter.Quantum{Rows: n*(k+1)/10 - n*k/10}
					if k > 0 {
						q.Key = key(int(k))
					}
					q.Oldest = rapid.Int64Range(0, 100).Draw(t, "oldest")
					q.Newest = q.Oldest + rapid.Int64Range(0, 10).Draw(t, "takes")
					r.Quanta = append(r.Quanta, q)
				}
				r.Small = now.Add(-time.Duration(rapid.IntRange(0, 10).Draw(t, "small")) * time.Hour)
			}
			if rapid.Bool().Draw(t, "newest") {
				r.Newest = &policy.Newest{}
				for k := range rapid.IntRange(0, 20).Draw(t, "keys") {
					r.Newest.Keys = append(r.Newest.Keys, key(k))
					r.Newest.Written = append(r.Newest.Written, now.Add(time.Duration(k)*time.Second).UnixMicro())
				}
			}
		}
		want := policy.Decide(*in)
		stored, err := json.Marshal(in)
		require.NoError(t, err)
		var read policy.Input
		require.NoError(t, json.Unmarshal(stored, &read))
		require.Equal(t, want, policy.Decide(read))
		stored, err = json.Marshal(want)
		require.NoError(t, err)
		var again []policy.Decision
		require.NoError(t, json.Unmarshal(stored, &again))
		require.Equal(t, want, again)
	})
}

// A roll needs the newest keys: of the range that is appended to, and of those through which the appends have come.
func TestARollNeedsTheNewestKeys(t *testing.T) {
	p := small()
	p.Planner = policy.Even
	in := layout(old(600), old(900, appends(5), ago(40)), old(900, appends(5), ago(0)))
	in.Policy, in.Now = p, now
	ds := policy.Decide(*in)
	need := ds[len(ds)-1]
	require.Equal(t, policy.Need, need.Kind)
	require.Equal(t, [3]int{2, 2, 1}, [3]int{need.From, need.Appended, need.Oldest})

	newest := &policy.Newest{}
	in.Ranges[2].Newest = newest
	ds = policy.Decide(*in)
	require.Equal(t, policy.NextUnknown, ds[len(ds)-1].Why, "no keys")

	for k := range 100 {
		newest.Keys = append(newest.Keys, []byte{'0', '0', '3', byte(k)})
		newest.Written = append(newest.Written, now.Add(time.Duration(k-100)*time.Second).UnixMicro())
	}
	ds = policy.Decide(*in)
	roll := ds[len(ds)-1]
	require.Equal(t, policy.Roll, roll.Kind, roll.Text)
	require.NotEmpty(t, roll.Cuts)
	require.Zero(t, roll.Stay)
	require.Zero(t, roll.Copies)
}

// Merges and refreshes leave nothing where it is.
func TestMergesAndRefreshesStayNowhere(t *testing.T) {
	for kind, in := range map[policy.Kind]*policy.Input{
		policy.Merge:   layout(old(100), old(100), old(300)),
		policy.Refresh: layout(old(500, func(r *policy.Range) { r.Stats.Dead = 60_000 })),
	} {
		in.Policy, in.Now = small(), now
		ds := policy.Decide(*in)
		require.Len(t, ds, 1)
		require.Equal(t, kind, ds[0].Kind)
		require.Equal(t, -1, ds[0].Stay)
		require.Empty(t, ds[0].Cuts)
		require.Equal(t, int64(500), ds[0].Rows)
		require.Equal(t, int64(500), ds[0].Copies)
	}
}
