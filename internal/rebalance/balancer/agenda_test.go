package balancer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

func bucketOf(n int) store.BucketID { return store.BucketID{byte(n >> 8), byte(n)} }

func partOf(bucket, n int) store.Partition {
	return store.Partition{Bucket: bucketOf(bucket), ID: store.PartitionID{byte(n >> 8), byte(n)}}
}

// Buckets that change fast come first, then those that are due, in the order in which they became it, and at last
// those that only a scan looks at; of these there are a few at once.
func TestHotBucketsComeFirst(t *testing.T) {
	a, now := newAgenda(1), time.Unix(1000, 0)
	take := func() (id store.BucketID) {
		v := a.take(func() time.Time { return now })
		if v == nil {
			return bucketOf(0)
		}
		defer a.done(v, false, false, now)
		return v.id
	}
	for i := range 100 {
		a.everything(bucketOf(1000+i), now)
	}
	a.look(partOf(1, 1), time.Time{})
	a.turn(now, false)
	require.Zero(t, a.late(now))
	a.turn(now, true)
	now = now.Add(time.Second)
	a.look(partOf(2, 1), time.Time{})
	a.look(partOf(3, 1), time.Time{})
	a.hurry(bucketOf(3))
	a.turn(now, true)
	now = now.Add(time.Second)
	require.Equal(t, 2*time.Second, a.late(now))
	require.Equal(t, bucketOf(3), take())
	require.Equal(t, bucketOf(1), take())
	require.Equal(t, time.Second, a.late(now))
	require.Equal(t, bucketOf(2), take())
	require.Zero(t, a.late(now))

	var scans []*visit
	for v := a.take(time.Now); v != nil; v = a.take(time.Now) {
		require.True(t, v.scan && v.whole)
		scans = append(scans, v)
	}
	require.Len(t, scans, ScansAtOnce)
	a.look(partOf(1099, 1), time.Time{})
	a.turn(now, true)
	require.Equal(t, bucketOf(1099), take(), "one that is due does not wait for the scan")
	require.Equal(t, 100, a.remaining(), "it is still to be looked at as a whole")
	require.Nil(t, a.take(time.Now))
	for _, v := range scans {
		a.done(v, false, false, now)
	}
	for range 100 - ScansAtOnce {
		require.NotEqual(t, bucketOf(0), take())
	}
	require.Zero(t, a.remaining())
	require.True(t, a.idle())
	require.Empty(t, a.of, "nothing is kept of what need not be looked at")
	require.Zero(t, a.parts)
}

// A bucket is looked at by one look at a time; what comes meanwhile, and what a look in vain was for, is looked at
// later.
func TestOneLookAtATime(t *testing.T) {
	a, now := newAgenda(1), time.Unix(1000, 0)
	clock := func() time.Time { return now }
	a.look(partOf(1, 1), time.Time{})
	a.look(partOf(1, 2), now.Add(time.Minute))
	a.turn(now, true)
	v := a.take(clock)
	require.False(t, v.whole)
	require.Equal(t, map[store.PartitionID]bool{partOf(1, 1).ID: true}, v.parts)
	a.look(partOf(1, 3), time.Time{})
	a.changed(v.id, span{Bounds: store.Bounds{Start: []byte("a")}})
	a.everything(v.id, now)
	a.turn(now, true)
	require.Nil(t, a.take(clock))
	a.done(v, false, true, now)
	a.turn(now, false)
	v = a.take(clock)
	require.False(t, v.whole || v.scan, "what has changed does not wait for a look at everything")
	require.Len(t, v.spans, 1)
	a.done(v, false, false, now)
	v = a.take(clock)
	require.True(t, v.whole && v.scan)
	a.done(v, false, true, now)
	require.Zero(t, a.remaining(), "a look in vain does not hold up a scan")
	a.turn(now, true)
	v = a.take(clock)
	require.True(t, v.whole)
	require.False(t, v.scan)
	a.done(v, false, false, now)
	a.turn(now, true)
	require.Nil(t, a.take(clock))

	a.look(partOf(1, 1), time.Time{})
	a.turn(now, true)
	v = a.take(clock)
	a.everything(v.id, now)
	a.done(v, true, false, now)
	require.Zero(t, a.remaining(), "a scan need not come back to what was just looked at")
	require.Nil(t, a.take(clock))

	a.look(partOf(1, 2), now.Add(time.Minute))
	a.look(partOf(1, 2), now.Add(time.Hour))
	a.turn(now.Add(time.Minute-1), true)
	require.Nil(t, a.take(clock), "not yet")
	now = now.Add(time.Minute)
	a.turn(now, true)
	require.Len(t, a.take(clock).parts, 1, "the earlier time holds")
}

// Partitions beyond the bound are looked at with all of their bucket.
func TestAnAgendaIsBounded(t *testing.T) {
	a, now := newAgenda(1), time.Unix(1000, 0)
	const others = partitionsKept - 10 // of other buckets
	a.parts = others
	for i := range 12 {
		a.look(partOf(1, i), time.Time{})
	}
	require.Less(t, a.parts, others+10)
	a.turn(now, true)
	require.True(t, a.take(func() time.Time { return now }).whole)
	for range spansKept + 1 {
		a.changed(bucketOf(2), span{})
	}
	a.turn(now, false)
	v := a.take(func() time.Time { return now })
	require.True(t, v.whole)
	require.LessOrEqual(t, len(v.spans), 1)
}

// What is decided says when to look again.
func TestWhenToLookAgain(t *testing.T) {
	now := time.Unix(100_000, 0)
	in := &policy.Input{Now: now, Policy: policy.Default(1000), Ranges: []policy.Range{
		{Created: now.Add(-time.Minute)},
		{Created: now.Add(-20 * time.Minute), PinUntil: now.Add(time.Hour),
			Stats: counter.Stats{Recounted: now.Add(-time.Minute), Fruitless: 2}},
		{Created: now.Add(-time.Hour), PinUntil: now.Add(-time.Hour)},
		{Created: now.Add(-5 * time.Minute)},
	}}
	for why, want := range map[policy.Why]time.Duration{
		policy.Cooling: 10 * time.Minute, policy.Pinned: time.Hour, policy.Backing: 3 * time.Minute,
		policy.Rolled: fading, policy.AtTail: fading, policy.Appends: fading, policy.NextUnknown: fading,
	} {
		at, yes := again(in, &policy.Decision{Kind: policy.None, From: 1, To: 2, Why: why})
		require.True(t, yes)
		require.Equal(t, now.Add(want), at, why)
	}
	for _, why := range []policy.Why{policy.Within, policy.Growing, policy.OneKey, policy.NoCut, policy.Lonely} {
		_, yes := again(in, &policy.Decision{Kind: policy.None, From: 1, To: 2, Why: why})
		require.False(t, yes, why)
	}
	for _, d := range []policy.Decision{
		{Kind: policy.None, Why: policy.Moving}, {Kind: policy.None, Why: policy.Spent}, {Kind: policy.Split},
		{Kind: policy.None, Why: policy.Backing}, {Kind: policy.None, Why: policy.OffHours}, {Kind: policy.Recount},
	} {
		d.From, d.To = 3, 4
		at, yes := again(in, &d)
		require.True(t, yes)
		require.Zero(t, at, "at the next interval: %v", d)
	}
}
