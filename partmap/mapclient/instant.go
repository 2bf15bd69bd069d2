package mapclient

import "time"

// instant is one moment on both clocks of a process. A suspended machine stops
// the monotonic one, a step turns the wall clock: so a lease is over with the
// first of them, a wait only with both.
type instant struct {
	mono time.Duration // since some moment before
	wall time.Duration // since 1970
}

// leaseOver reports whether a lease counted from since has run out at now.
func leaseOver(since, now instant, lease time.Duration) bool {
	return now.mono-since.mono >= lease || now.wall-since.wall >= lease
}

// waitLeft is how much of a wait counted from since there is left at now; the
// wait is over when nothing is.
func waitLeft(since, now instant, wait time.Duration) time.Duration {
	return wait - min(now.mono-since.mono, now.wall-since.wall)
}

// waitFor is how long a mover waits for leases: with a margin for clocks that run
// at different speeds, and for what lies between a look at the clock and the
// act that it allows.
func waitFor(lease time.Duration) time.Duration {
	return lease + lease/100 + 100*time.Millisecond
}
