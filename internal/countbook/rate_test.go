package countbook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A load that comes back is measured as fast as the first one, if nothing is left of what was; single events are not a
// load.
func TestARateAfterSilence(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	after := func(silence time.Duration, n float64, seconds int) float64 {
		var r rate
		at := begin
		for range 300 {
			at = at.Add(time.Second)
			r.add(10, time.Second, at, fast)
		}
		at = at.Add(silence)
		for range seconds {
			at = at.Add(time.Second)
			r.add(n, time.Second, at, fast)
		}
		return r.get(at, fast)
	}
	require.InDelta(t, 20, after(time.Hour, 20, 10), 0.5)
	require.InDelta(t, 10, after(time.Minute, 20, 30), 0.5, "something is left of what was")
	require.Less(t, after(time.Hour, 1, 3), 0.1, "single events are not a load")
}
