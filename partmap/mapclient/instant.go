package mapclient

import (
	"time"

	"github.com/evenkeel/evenkeel/store/commontime"
	"github.com/evenkeel/evenkeel/store/wait"
)

// The monotonic clock stops while the machine is suspended; the wall clock may be set. So a lease
// ends when either clock says so, and a wait when both do.

// leaseOver reports whether a lease that counts from since has ended.
func leaseOver(since, now wait.Instant, lease time.Duration) bool {
	_, most := now.Since(since)
	return most >= lease
}

// waitLeft returns the rest of a wait that counts from since; 0 or less: it has ended.
func waitLeft(since, now wait.Instant, full time.Duration) time.Duration {
	least, _ := now.Since(since)
	return full - least
}

// WaitFor returns how long a mover waits for leases. The margin is for clocks that run at different
// speeds, for the time between the check of a lease and the use of it, and for timestamps: what was
// acknowledged under those leases, in any data centre, is below all that are drawn after the wait.
func WaitFor(lease time.Duration) time.Duration {
	return lease + lease/100 + commontime.Settled
}
