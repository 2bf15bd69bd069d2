package mapclient

import (
	"time"

	"github.com/evenkeel/evenkeel/store/wait"
)

// A suspended machine stops its monotonic clock, a step turns its wall clock: so a
// lease is over with the first of them, a wait only with both.

// leaseOver reports whether a lease counted from since has run out at now.
func leaseOver(since, now wait.Instant, lease time.Duration) bool {
	_, most := now.Since(since)
	return most >= lease
}

// waitLeft is how much of a wait counted from since there is left at now; the
// wait is over when nothing is.
func waitLeft(since, now wait.Instant, full time.Duration) time.Duration {
	least, _ := now.Since(since)
	return full - least
}

// waitFor is how long a mover waits for leases: with a margin for clocks that run
// at different speeds, and for what lies between a look at the clock and the
// act that it allows.
func waitFor(lease time.Duration) time.Duration {
	return lease + lease/100 + 100*time.Millisecond
}
