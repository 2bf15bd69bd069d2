package mapclient

import (
	"sync"
	"time"
)

// Counts are counters of a Client since its start. They count only in the network form, in which several
// processes share a store.
type Counts struct {
	// Polls counts polls of map clocks, Retries second tries of a poll, and Failures polls that failed twice.
	Polls, Retries, Failures int64
	// Renewals counts renewals of the leases of a bucket without a read of its root, and RootReads reads of
	// roots.
	Renewals, RootReads int64
	// Refused counts requests for a lease that failed.
	Refused int64
	// Bumps counts bumps of map clocks, and BumpFailures bumps that were not acknowledged.
	Bumps, BumpFailures int64
}

type counters struct {
	mu sync.Mutex
	Counts
}

// add increments n, which must point to one of the counters c. It is safe for concurrent use.
func (c *counters) add(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Counts returns the counters of the client. All are zero in the embedded form, in which one process has the
// store to itself.
func (c *Client) Counts() Counts {
	if c.net == nil {
		return Counts{}
	}
	c.net.counts.mu.Lock()
	defer c.net.counts.mu.Unlock()
	return c.net.counts.Counts
}

// Timed is the state of the leases of a Client of the network form, in which leases end after a fixed time.
type Timed struct {
	// Length is the length of a lease.
	Length time.Duration
	// Left is the time until the first of the present leases ends, unless it is renewed; 0 if there are no
	// leases. Clocks is the number of polled map clocks on which leases depend.
	Left   time.Duration
	Clocks int
}

// Leases returns the state of the client's leases. The result is zero in the embedded form, in which leases do
// not end by themselves.
func (c *Client) Leases() (t Timed) {
	n := c.net
	if n == nil {
		return t
	}
	t.Length = n.lease
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.clocks {
		p := k.latest.Load()
		if !k.polling || p == nil {
			continue
		}
		_, most := n.now().Since(p.sent)
		if left := max(0, n.lease-most); t.Clocks == 0 || left < t.Left {
			t.Left = left
		}
		t.Clocks++
	}
	return t
}
