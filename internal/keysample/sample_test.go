package keysample

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Keys are ordered by the bytes that follow what all have in common, then by the rest: the order is that of whole keys,
// and the spread is the one that follows from it.
func TestKeysOfASampleAreInOrder(t *testing.T) {
	r := seed.New(t)
	part := func(most int) []byte {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = []byte{0, 0, 'a', 'b', 0xff}[r.IntN(5)]
		}
		return b
	}
	for range race.Fewer(1000) {
		common := part(12)
		s := New()
		for range r.IntN(600) {
			key := append(bytes.Clone(common), part(1+r.IntN(20))...)
			s.Write(Hash(key), key, store.Timestamp(r.IntN(200)), 1, Flags(r.IntN(4)))
		}
		want := s.Present()
		var got [][]byte
		for _, x := range s.ordered(nil) {
			got = append(got, s.KeyOf(&s.Slots[x.slot]))
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i], "key %d", i)
		}
		require.InDelta(t, spreadByKeys(&s, want), s.Spread(), 1e-12)
	}
}

// spreadByKeys is the spread of a sample with these keys, by its definition.
func spreadByKeys(s *Sample, keys [][]byte) float64 {
	at := map[string]store.Timestamp{}
	var times []store.Timestamp
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Hash != 0 && x.Is&Present != 0 {
			at[string(s.KeyOf(x))] = x.At
			times = append(times, x.At)
		}
	}
	if len(times) < 32 {
		return 0
	}
	slices.Sort(times)
	n := max(16, len(times)/4)
	limit, oldest := times[len(times)-n], times[0]
	newer, all := 0, 0
	for _, x := range times {
		if x >= limit {
			all++
		}
		if x > oldest {
			newer++
		}
	}
	if min(n, newer) < 16 {
		return 0
	}
	most, seen := 0.0, 0
	for i, key := range keys {
		if at[string(key)] >= limit {
			seen++
		}
		most = max(most, math.Abs(float64(seen)/float64(all)-float64(i+1)/float64(len(keys))))
	}
	return max(0, 1-most)
}
