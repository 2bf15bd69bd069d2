package mapclient

import (
	"sync"
	"time"
)

// Counts are counters of a client of the network form.
type Counts struct {
	// Polls of map clocks; Retries are second tries of a poll, Failures the polls
	// that failed twice.
	Polls, Retries, Failures int64
	// Renewals of a bucket's leases without reading its root; RootReads are those that read
	// it.
	Renewals, RootReads int64
	// Refused are the requests for leases that failed.
	Refused int64
	// Bumps of map clocks; BumpFailures are those that were not acknowledged.
	Bumps, BumpFailures int64
}

type counters struct {
	mu sync.Mutex
	Counts
}

// add increments one of the counters.
func (c *counters) add(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// Counts returns the counters; all are zero in the embedded form.
func (c *Client) Counts() Counts {
	if c.net == nil {
		return Counts{}
	}
	c.net.counts.mu.Lock()
	defer c.net.counts.mu.Unlock()
	return c.net.counts.Counts
}

// Timed is how the leases of a client over a network stand.
type Timed struct {
	Length time.Duration
	// Left is how long those last that end first, unless they are renewed, of so many map clocks that are polled; 0: it has
	// none.
	Left   time.Duration
	Clocks int
}

// Leases returns how the leases stand; zero in the embedded form, where they are counted.
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
