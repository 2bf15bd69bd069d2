package policysim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A tally counts the rows that partitions hold, the copies, the tombstones, and the time for which one is too large.
func TestTally(t *testing.T) {
	s := read(t, "days: 1", "max_rows: 10", "policy: {max_dead: 4}", "tenants: [{kind: random}]")
	begin := time.Unix(1_700_000_000, 0)
	now := begin
	f := newFaults(s, func() time.Duration { return now.Sub(begin) }, func(time.Duration) {})
	x := newTally(memstore.New(), f, begin, func() time.Time { return now })
	bucket := store.BucketID{1}
	x.bucket(bucket, x.group(&s.Tenants[0]))
	from, to := store.Partition{Bucket: bucket, ID: store.PartitionID{1}}, store.Partition{Bucket: bucket, ID: store.PartitionID{2}}
	ctx := context.Background()
	at := store.Timestamp(0)
	put := func(p store.Partition, cell []byte, keys string) {
		for _, k := range keys {
			at++
			require.NoError(t, x.Put(ctx, p, store.Row{Key: []byte(string(k)), Value: cell, Timestamp: at}))
		}
	}
	entry := store.EntryCell(value)
	put(from, entry, "abcdefghijklmn")
	put(from, entry, "abc")
	require.InDelta(t, 1.4, x.groups[0].Worst, 1e-9, "writes of what is there are no rows")
	now = begin.Add(5 * time.Minute)
	put(to, cells.Copied(entry), "hijklmn")
	require.Equal(t, int64(7), x.groups[0].Moved)
	require.NoError(t, x.Remove(ctx, from, store.Bounds{Start: []byte("h")}, at+1))
	require.Equal(t, 5*time.Minute, x.groups[0].LongestOver)
	require.Equal(t, 5*time.Minute, x.groups[0].LongestFar)
	for _, k := range "abcdef" {
		require.NoError(t, x.Delete(ctx, from, []byte(string(k)), at+2))
	}
	put(to, cells.Marker(), "h")
	require.InDelta(t, 1.5, x.groups[0].Tombstones, 1e-9)
	x.finish(bucket, []partmap.Range{
		{Entry: partmap.Entry{Partition: from.ID}}, {Entry: partmap.Entry{Start: []byte("h"), Partition: to.ID}},
	}, now)
	r := x.report()
	require.Equal(t, int64(1+6), r.Total.Rows)
	require.Equal(t, int64(2), r.Total.Partitions)
	require.Equal(t, int64(1), r.Total.Ideal)
}

// What is undone within an hour is counted, once per decision.
func TestUndone(t *testing.T) {
	s := read(t, "days: 1", "tenants: [{kind: random}]")
	begin := time.Unix(1_700_000_000, 0)
	x := newTally(memstore.New(), newFaults(s, nil, nil), begin, func() time.Time { return begin })
	bucket := store.BucketID{1}
	x.bucket(bucket, x.group(&s.Tenants[0]))
	decide := func(at time.Duration, d policy.Decision, starts ...string) {
		in := &policy.Input{Now: begin.Add(at)}
		for i, start := range starts {
			r := policy.Range{Start: []byte(start)}
			if i+1 < len(starts) {
				r.End = []byte(starts[i+1])
			}
			in.Ranges = append(in.Ranges, r)
		}
		d.To = len(starts)
		x.decided(bucket, in, []policy.Decision{d})
	}
	split := func(cuts ...string) policy.Decision {
		d := policy.Decision{Kind: policy.Split}
		for _, c := range cuts {
			d.Cuts = append(d.Cuts, []byte(c))
		}
		return d
	}
	merge := policy.Decision{Kind: policy.Merge}
	decide(0, split("f", "m"), "")
	decide(30*time.Minute, merge, "", "f", "m")
	require.Equal(t, 1, x.groups[0].SplitsUndone)
	decide(80*time.Minute, split("g", "k"), "")
	require.Equal(t, 1, x.groups[0].MergesUndone)
	decide(150*time.Minute, merge, "", "g", "k")
	require.Equal(t, 1, x.groups[0].SplitsUndone, "an hour later it is no flapping")
	decide(151*time.Minute, policy.Decision{Kind: policy.Roll, Cuts: [][]byte{[]byte("x")}}, "")
	decide(152*time.Minute, merge, "", "x")
	require.Equal(t, 1, x.groups[0].SplitsUndone, "a cut ahead is no split")
	r := x.report()
	require.InDelta(t, 2.0/6, r.Total.Undone, 1e-9)
}
