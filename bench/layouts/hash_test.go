package layouts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// The values of the published algorithm, which Guava computes too.
func TestJumpHash(t *testing.T) {
	for _, c := range []struct {
		key     uint64
		n, want int
	}{{1, 1, 0}, {42, 57, 43}, {0xdead10cc, 1, 0}, {0xdead10cc, 666, 361}, {256, 1024, 520}} {
		require.Equal(t, c.want, layouts.JumpHash(c.key, c.n), "%+v", c)
	}
	moved := 0
	for i := range 100_000 {
		key := fmt.Appendf(nil, "%d", i)
		was, is := layouts.HashBucket(key, 256), layouts.HashBucket(key, 257)
		if was != is {
			require.Equal(t, 256, is)
			moved++
		}
	}
	require.InDelta(t, 100_000/257, moved, 100)
}

func TestSnowflakes(t *testing.T) {
	g, err := layouts.NewGenerator(31, 30)
	require.NoError(t, err)
	at := time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC)
	id, err := g.Next(at)
	require.NoError(t, err)
	require.Equal(t, at, id.Time())
	require.EqualValues(t, 31<<5|30, id>>12&1023)
	last := id
	for i := range 10_000 { // more than a millisecond has, and a clock that goes back
		next, err := g.Next(at.Add(-time.Duration(i%3) * time.Second))
		require.NoError(t, err)
		require.Greater(t, next, last)
		last = next
	}
	require.Equal(t, at.Add(2*time.Millisecond), last.Time())
	back, err := layouts.SnowflakeOf(last.Key())
	require.NoError(t, err)
	require.Equal(t, last, back)
	_, err = g.Next(layouts.Epoch.Add(-1))
	require.Error(t, err)
	_, err = g.Next(layouts.Epoch.AddDate(70, 0, 0))
	require.Error(t, err)
	_, err = layouts.NewGenerator(32, 0)
	require.Error(t, err)
}
