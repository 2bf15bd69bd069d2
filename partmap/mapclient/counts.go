package mapclient

import "sync"

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
