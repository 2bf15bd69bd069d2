package commontime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPace: looks are frequent while writes wait and looks help, and seldom otherwise.
func TestPace(t *testing.T) {
	writes, waits := int64(0), int64(0)
	p := pace{pause: slowest}
	next := func(wait int64, better bool, servers int) time.Duration {
		writes, waits = writes+100, waits+wait
		return p.next(writes, waits, better, servers)
	}
	require.Equal(t, slowest, next(0, true, 1), "nobody waits")
	require.Equal(t, quick, next(20, true, 1), "one in five waits")
	require.Equal(t, quickest, next(21, true, 1), "more than one in five")
	require.Equal(t, quickest, next(20, true, 1), "some still wait")
	require.Equal(t, 2*quickest, next(100, false, 1), "they wait, but the last look did not help")
	require.Equal(t, 4*quickest, next(1, false, 1))
	require.Equal(t, quickest, next(100, true, 1), "it helps again")
	require.Equal(t, quickest*3/2, next(0, true, 1))
	require.Equal(t, quickest*9/4, next(0, false, 1), "nobody waits: more seldom by and by")
	require.Equal(t, 7*perServer, next(100, true, 7), "more servers, fewer looks at each")
	for range 20 {
		next(100, false, 1)
	}
	require.Equal(t, slowest, p.pause, "never more seldom than that")
}
