package s3api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCutsOfAnHour: an asker may make exactly the allowance, and each hour as many more.
func TestCutsOfAnHour(t *testing.T) {
	const allowance = 100
	start := time.Date(2024, 2, 29, 23, 0, 0, 0, time.UTC)
	var c cutCounts
	for _, step := range []struct {
		asker string
		after time.Duration // since start
		n     int
		retry int // of the refusal; 0: there is none
	}{
		{"a", 0, 100, 0},
		{"a", 0, 1, 37}, // 36 s for each cut
		{"a", 0, 100, 3601},
		{"b", 0, 101, 37},
		{"b", 0, 100, 0},
		{"a", 34500 * time.Millisecond, 1, 2},
		{"a", 36 * time.Second, 1, 0},
		{"a", 36 * time.Second, 1, 37},
		{"a", 30*time.Minute + 36*time.Second, 51, 37},
		{"a", 30*time.Minute + 36*time.Second, 50, 0},
		{"a", 100 * time.Hour, 100, 0},
	} {
		refusal := c.take(asker{key: step.asker}, step.n, allowance, start.Add(step.after))
		require.Equal(t, step.retry == 0, refusal == nil, "%+v: %v", step, refusal)
		if refusal != nil {
			require.Equal(t, "SlowDown", refusal.Code)
			require.Equal(t, step.retry, refusal.RetryAfter, "%+v", step)
			require.Contains(t, refusal.Message, "more than 100 cuts in an hour")
		}
	}
}

// TestCountedAskersAreBounded: the 10,001st is refused, until the count of another has run out.
func TestCountedAskersAreBounded(t *testing.T) {
	start := time.Date(2024, 2, 29, 23, 0, 0, 0, time.UTC)
	var c cutCounts
	take := func(key string, n int, after time.Duration) *Error {
		return c.take(asker{key: key}, n, 3600, start.Add(after))
	}
	for i := range 10_000 {
		n := 2
		if i == 0 {
			n = 1
		}
		require.Nil(t, take(fmt.Sprint(i), n, 0))
	}
	refusal := take("one more", 1, 0)
	require.NotNil(t, refusal)
	require.Contains(t, refusal.Message, "Too many clients")
	require.Len(t, c.by, 10_000)
	require.Nil(t, take("7", 1, 0), "who is counted goes on")
	require.NotNil(t, take("one more", 1, time.Second-1))
	require.Nil(t, take("one more", 1, time.Second), "the first one's has run out")
	require.Len(t, c.by, 10_000)
	require.NotContains(t, c.by, asker{key: "0"})
	require.Nil(t, take("another", 1, time.Hour))
	require.Len(t, c.by, 1)
}
