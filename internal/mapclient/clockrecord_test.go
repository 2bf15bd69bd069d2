package mapclient

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestClockRecordsAgainstAList compares a clock, bumped and written and read, with
// the plain list of all its bumps.
func TestClockRecordsAgainstAList(t *testing.T) {
	rng := seed.New(t)
	for range 20 {
		var all []store.BucketID
		var c mapClock
		var v store.Version
		for range rng.IntN(60) {
			group := make([]store.BucketID, 1+rng.IntN(3)*rng.IntN(20))
			if rng.IntN(30) == 0 {
				group = make([]store.BucketID, ringSize+rng.IntN(10))
			}
			for i := range group {
				group[i] = store.BucketID{byte(rng.IntN(100))}
			}
			all = append(all, group...)
			v = record.Next(v)
			var err error
			c, err = decodeClock(encodeClock(v, c.bumped(group...)))
			require.NoError(t, err)
			require.EqualValues(t, len(all), c.value)
			require.Equal(t, all[max(0, len(all)-ringSize):], c.ring)
			for range 50 {
				since := rng.IntN(len(all) + 3)
				id := store.BucketID{byte(rng.IntN(110))}
				reached := max(since, len(all)-ringSize)
				named := reached < len(all) && slices.Contains(all[reached:], id)
				if got := c.names(id, uint64(since)); got != named {
					t.Fatalf("%d bumps: bucket %d is named after %d: %v", len(all), id[0], since, got)
				}
				if got := c.mayConcern(id, uint64(since)); got != (named || since < len(all)-ringSize) {
					t.Fatalf("%d bumps: bucket %d may be bumped after %d: %v", len(all), id[0], since, got)
				}
			}
		}
	}
}

func TestDamagedClocks(t *testing.T) {
	v := record.Next(store.Version{})
	rec := encodeClock(v, mapClock{}.bumped(store.BucketID{1}, store.BucketID{2}))
	for i := range rec.Blob {
		bad := store.Record{Version: v, Blob: slices.Clone(rec.Blob)}
		bad.Blob[i] ^= 1
		_, err := decodeClock(bad)
		require.Equal(t, store.Corrupt, store.KindOf(err))
	}
	for n := range rec.Blob {
		_, err := decodeClock(store.Record{Version: v, Blob: rec.Blob[:n]})
		require.Equal(t, store.Corrupt, store.KindOf(err))
	}
	_, err := decodeClock(store.Record{Version: record.Next(v), Blob: rec.Blob})
	require.Equal(t, store.Unavailable, store.KindOf(err), "torn: read it again")
	for _, payload := range [][]byte{nil, make([]byte, 7), make([]byte, 9), make([]byte, 8+16),
		make([]byte, 8+16*(ringSize+1))} {
		_, err := decodeClock(record.Seal(clockForm, v, payload))
		require.Equal(t, store.Corrupt, store.KindOf(err), "a payload of %d bytes", len(payload))
	}
}

func TestInitClocks(t *testing.T) {
	ctx, s := context.Background(), memstore.New()
	for _, n := range []int{-1, 0, MaxClocks + 1} {
		require.ErrorIs(t, InitClocks(ctx, s, n), store.InvalidArgument)
	}
	_, _, err := readClock(ctx, s, 0, store.Local)
	require.Equal(t, store.Unavailable, store.KindOf(err), "missing is not zero")
	require.NoError(t, InitClocks(ctx, s, 3))
	_, v, err := readClock(ctx, s, 1, store.Local)
	require.NoError(t, err)
	require.NoError(
		t, s.Swap(ctx, store.Clocks, clockKey(1), v, encodeClock(record.Next(v), mapClock{}.bumped(store.BucketID{9}))),
	)
	require.NoError(t, InitClocks(ctx, s, 5))
	for number := range uint32(5) {
		c, _, err := readClock(ctx, s, number, store.Serial)
		require.NoError(t, err)
		require.Equal(t, number == 1, c.value == 1, "what exists stays as it is")
	}
	_, _, err = readClock(ctx, s, 5, store.Local)
	require.ErrorIs(t, err, store.NotFound)
}

func TestLeasesAndWaits(t *testing.T) {
	const s = time.Second
	at := func(mono, wall time.Duration) wait.Instant {
		return wait.Instant{Mono: mono, Wall: time.Unix(0, int64(wall))}
	}
	for _, c := range []struct {
		now  wait.Instant
		over bool
		left time.Duration
	}{
		{at(10*s, 20*s), false, 3 * s},
		{at(12*s, 22*s), false, s},
		{at(13*s, 23*s), true, 0},
		{at(13*s, 22*s), true, s},       // set back a little
		{at(12*s, 23*s), true, s},       // suspended a little
		{at(10*s, 99*s), true, 3 * s},   // suspended, or set forward
		{at(99*s, 10*s), true, 13 * s},  // set back far
		{at(12*s, 10*s), false, 13 * s}, // set back far just now
		{at(13*s-1, 23*s-1), false, 1},
	} {
		since := at(10*s, 20*s)
		require.Equal(t, c.over, leaseOver(since, c.now, 3*s), "%v", c.now)
		require.Equal(t, c.left, waitLeft(since, c.now, 3*s), "%v", c.now)
	}
	require.Equal(t, 3130*time.Millisecond, WaitFor(3*s))
}

// A clock remembers the last 256 bumps: 4 KiB, which each poll reads.
func TestRingSize(t *testing.T) {
	var c mapClock
	for i := range 300 {
		c = c.bumped(store.BucketID{byte(i), byte(i >> 8)})
	}
	require.EqualValues(t, 300, c.value)
	require.Len(t, c.ring, 256)
	require.Equal(t, store.BucketID{44, 0}, c.ring[0])
}
