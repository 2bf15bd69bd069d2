package mapclient

import (
	"sync"
	"time"
)

// Counts are counters of a Client since its start, such as the number of its reads of roots. They count only if several
// processes share a store (the network form), and are zero otherwise.
type Counts struct {
	// Polls counts polls, which are regular reads of map clocks. Retries counts second tries of a poll, and Failures
	// polls that failed twice.
	Polls, Retries, Failures int64
	// Renewals counts how often a poll has renewed the leases on a bucket's map without a read of the root. RootReads
	// counts reads of roots.
	Renewals, RootReads int64
	// Refused counts failed requests for a lease on a bucket's map.
	Refused int64
	// Bumps counts raises of map clocks, which tell other processes of changed maps. BumpFailures counts raises that
	// were not acknowledged.
	Bumps, BumpFailures int64
}

type counters struct {
	mu sync.Mutex
	Counts
}

// add increments n, which must point to a field of the counters c. It is safe for concurrent use.
func (c *counters) add(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Counts returns the counters of the client since its start. All are zero in the embedded form, in which a single
// process has the store to itself.
func (c *Client) Counts() Counts {
	if c.net == nil {
		return Counts{}
	}
	c.net.counts.mu.Lock()
	defer c.net.counts.mu.Unlock()
	return c.net.counts.Counts
}

// Timed says how long the leases of a Client still last, for reports. A lease is the right to use a cached map. It ends
// by itself after a fixed time if several processes share the store.
type Timed struct {
	// Length is how long a lease lasts, by default 3 s.
	Length time.Duration
	// Left is the time until the first of the present leases ends if it is not renewed, or 0 if no lease is held.
	// Clocks is the number of polled map clocks (counters in the store) on which leases depend.
	Left   time.Duration
	Clocks int
}

// Leases returns how long the client's leases still last, for reports. A lease is the right to use a cached map. The
// result is zero in the embedded form, in which leases do not end by themselves.
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
