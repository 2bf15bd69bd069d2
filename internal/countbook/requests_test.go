package countbook

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/store"
)

// A state keeps 64 requests: each with the chance that it has by how many it stands for, and after five minutes a third
// of that. The same deltas give the same sample, and equal requests have chances of their own.
func TestRequestsThatAStateKeeps(t *testing.T) {
	race.Skip(t)
	start := time.Unix(1_700_000_000, 0)
	var kept, heavy, old float64
	for n := range 30 {
		s, again := NewState(), NewState()
		for i := range 100 {
			at := start.Add(time.Duration(i/50) * 5 * time.Minute)
			if i == 50 { // it was not quiet meanwhile
				s.Apply(&counter.Delta{Reads: 1e6, Sample: noKeys()}, start, at)
				again.Apply(&counter.Delta{Reads: 1e6, Sample: noKeys()}, start, at)
			}
			for _, weight := range []int64{4, 40} {
				d := counter.Delta{Puts: weight, Deletes: weight, Reads: 2 * weight, Sample: noKeys()}
				for k := range 4 {
					d.Asked = append(d.Asked, fmt.Appendf(nil, "%02d of %d in %d/%d", weight, k, i, n))
				}
				s.Apply(&d, at.Add(-time.Second), at)
				again.Apply(&d, at.Add(-time.Second), at)
			}
		}
		require.Equal(t, again, s)
		require.Len(t, s.asked, 64)
		for _, x := range s.asked {
			kept++
			if x.Key[0] == '4' {
				heavy++
			}
			if x.At == start.UnixMilli() {
				old++
			}
		}
		got := s.Stats(store.Partition{}, 1, start.Add(5*time.Minute)).Asked
		require.Len(t, got, 64)
		require.True(t, slices.IsSortedFunc(got, func(a, b counter.Asked) int { return cmp.Compare(a.At, b.At) }))
	}
	require.InDelta(t, 40./44, heavy/kept, 0.04)
	require.InDelta(t, 1/(1+math.E), old/kept, 0.06)

	chances := map[float64]bool{} // without what age and weight add
	for _, key := range []string{"k", "another"} {
		s := NewState()
		for i := range 6 { // the same key, which differs by its place, the writes before it, or the time
			at := start.Add(time.Duration(i/2) * time.Second)
			puts := int64(i % 2)
			d := counter.Delta{Reads: 50 - puts, Puts: puts, Asked: [][]byte{[]byte(key), []byte(key)}, Sample: noKeys()}
			s.Apply(&d, at.Add(-time.Second), at)
		}
		for _, x := range s.asked {
			rank := x.rank - float64(x.At)/1000/300 - math.Log(25)
			chances[math.Round(1e6*rank)] = true
		}
	}
	require.Len(t, chances, 2*12)
}

// A state keeps requests where ten come per second, of whatever kind, and as long as they do.
func TestRequestsOfQuietPartitionsAreNotKept(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		puts, deletes, reads int64
		want                 int
	}{{12, 0, 0, 1}, {0, 12, 0, 1}, {0, 0, 12, 1}, {4, 4, 4, 1}, {3, 3, 3, 0}} {
		s := NewState()
		d := counter.Delta{Puts: c.puts, Deletes: c.deletes, Reads: c.reads, Asked: [][]byte{[]byte("k")}, Sample: noKeys()}
		s.Apply(&d, start.Add(-time.Second), start)
		stats := func(at time.Time) []counter.Asked { return s.Stats(store.Partition{}, 1, at).Asked }
		require.Len(t, stats(start), c.want, "%+v", c)
		require.Empty(t, stats(start.Add(10*time.Minute)), "%+v", c)

		var whole, summary State // one request is encoded as many are
		require.NoError(t, whole.UnmarshalBinary(must(s.AppendBinary(nil))))
		require.NoError(t, summary.UnmarshalSummary(must(s.AppendSummary(nil))))
		require.Equal(t, s.asked, whole.asked)
		require.Equal(t, s.asked, summary.asked)

		s.Apply(&counter.Delta{Reads: 1, Sample: noKeys()}, start.Add(time.Hour), start.Add(time.Hour))
		require.Empty(t, s.asked)
	}
}
