package mapclient

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/wait"
)

// A process has two clocks, and both may be wrong. The monotonic clock stops while the machine is suspended;
// the wall clock may be set. So a lease ends as soon as one of the clocks says so, and a wait ends only when
// both say so.

// leaseOver reports whether a lease has ended at the instant `now`. lease is the length of the lease, and `since` the
// instant at which the lease began. The lease ends as soon as one of the machine's two clocks says so.
func leaseOver(since, now wait.Instant, lease time.Duration) bool {
	_, most := now.Since(since)
	return most >= lease
}

// waitLeft returns the rest of a wait at the instant `now`. full is the length of the wait, and `since` the instant at
// which the wait began. A result of 0 or less means that the wait is over, by both clocks of the machine.
func waitLeft(since, now wait.Instant, full time.Duration) time.Duration {
	least, _ := now.Since(since)
	return full - least
}

// WaitFor returns how long a mover waits until all leases of the given length have surely ended. The result is the
// length of a lease, plus 1 % of it, plus commontime.Settled (100 ms).
func WaitFor(lease time.Duration) time.Duration {
	// The margin allows for clocks that run at different speeds, and for the time between the check of a lease and its
	// use. It also allows for timestamps: writes that were acknowledged under those leases, in any data centre, have
	// timestamps below all timestamps that are drawn after the wait.
	return lease + lease/100 + commontime.Settled
}
