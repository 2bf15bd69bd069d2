package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// A search ends early enough for what comes after it, which takes no longer than what
// came before, if generations take no longer than the longest so far.
func TestTimeLimitCoversEverything(t *testing.T) {
	t.Parallel()
	r := seed.New(t)
	for range 1000 {
		began := time.Unix(1000, 0)
		clock := began
		limit := time.Duration(1+r.IntN(5000)) * time.Millisecond
		x := timer{now: func() time.Time { return clock }, began: began, limit: limit}
		before, generation := time.Duration(r.Int64N(int64(limit))), 1+time.Duration(r.Int64N(int64(limit)/20))
		clock = clock.Add(before)
		n := 0
		for ; !x.over(); n++ {
			clock = clock.Add(generation)
		}
		if n > 1 { // the first generation can't be foreseen
			require.LessOrEqual(t, clock.Add(before).Sub(began), limit)
		}
		if spare := limit - 2*before - limit/20 - 3*generation; spare > 0 {
			require.GreaterOrEqual(t, time.Duration(n)*generation, spare, "the time is made use of")
		}
		require.True(t, before*2 < limit || n == 0)
	}
}
