package mapclient

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/partmap"
)

// instant is one moment on both clocks of a process. A suspended machine stops
// the monotonic one, a step turns the wall clock: so a lease is over with the
// first of them, a wait only with both.
type instant struct {
	mono time.Duration // since some moment before
	wall time.Duration // since 1970
}

// instants reads both clocks. Those that are nil are the machine's: both of them are
// read at once, which is one call for two.
func instants(wall func() time.Time, mono func() time.Duration) func() instant {
	begin := time.Now()
	if wall == nil && mono == nil {
		return func() instant {
			now := time.Now()
			return instant{mono: now.Sub(begin), wall: time.Duration(now.UnixNano())}
		}
	}
	if wall == nil {
		wall = time.Now
	}
	if mono == nil {
		mono = func() time.Duration { return time.Since(begin) }
	}
	return func() instant { return instant{mono: mono(), wall: time.Duration(wall().UnixNano())} }
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

// waitUnder is how long a mover waits for leases below a root. The wait in the
// phase marking comes between the last plain delete in a source, which no put into
// the destination meets, and the first such put. It lasts for as long as the wall
// clocks of two clients may differ, too: then a put that begins after the delete
// has ended has the higher timestamp. Clients' clocks are within skew of the
// servers', and a tenth of that further away until it is noticed.
func waitUnder(r *partmap.Root, lease, skew time.Duration) time.Duration {
	wait := waitFor(lease)
	if slices.ContainsFunc(r.Batches, func(b partmap.Batch) bool { return b.Phase == partmap.Marking }) {
		wait += clocksApart(skew)
	}
	return wait
}

// clocksApart is how far the clocks of two clients may differ.
func clocksApart(skew time.Duration) time.Duration { return 2 * (skew + skew/steadyFraction) }

// ClocksApart is how far the wall clocks of any two clients of the store may be from
// each other before one of them stops writing; 0 in the embedded form, which has one.
func (c *Client) ClocksApart() time.Duration {
	if c.net == nil {
		return 0
	}
	return clocksApart(c.net.maxSkew)
}
