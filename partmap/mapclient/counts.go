package mapclient

import "sync/atomic"

// Counts is what a client of the network form has done so far.
type Counts struct {
	// Polls of map clocks; Retries are second tries of a poll, Failures the polls
	// that failed twice.
	Polls, Retries, Failures int64
	// Renewals of a bucket's leases without reading its root; RootReads are those
	// that had to.
	Renewals, RootReads int64
	// Refused is how often nobody got a lease that asked for one.
	Refused int64
	// Bumps of map clocks; BumpFailures are those that were not acknowledged.
	Bumps, BumpFailures int64
}

type counters struct {
	polls, retries, pollFailures, renewals, roots, refused, bumps, bumpFailures atomic.Int64
}

// Counts tells what the client has done so far. In the embedded form all is zero.
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
