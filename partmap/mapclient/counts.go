package mapclient

import "sync/atomic"

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
	polls, retries, pollFailures, renewals, roots, refused, bumps, bumpFailures atomic.Int64
}

// Counts returns the counters; all are zero in the embedded form.
func (c *Client) Counts() Counts {
	if c.net == nil {
		return Counts{}
	}
	n := &c.net.counts
	return Counts{
		Polls: n.polls.Load(), Retries: n.retries.Load(), Failures: n.pollFailures.Load(),
		Renewals: n.renewals.Load(), RootReads: n.roots.Load(), Refused: n.refused.Load(),
		Bumps: n.bumps.Load(), BumpFailures: n.bumpFailures.Load(),
	}
}
