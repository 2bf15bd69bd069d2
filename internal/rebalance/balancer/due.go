package balancer

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// fading is the pause between two checks of a range that is left as it is because of appends to it or to a neighbour.
//
// The policy assumes that appends go on for some minutes after the last row.
const fading = 2 * time.Minute

// again says when the ranges of the decision d are checked again, if nothing is written to them meanwhile. There are
// three cases:
//   - If yes is true and at is a time, the ranges are checked at that time.
//   - If yes is true and at is zero, the ranges are checked at the next interval.
//   - If yes is false, the ranges wait for the next check of all buckets.
func again(in *policy.Input, d *policy.Decision) (at time.Time, yes bool) {
	if d.Kind != policy.None {
		return at, true
	}
	if !d.Until.IsZero() {
		return d.Until, true
	}
	p := &in.Policy
	near := in.Ranges[max(0, d.From-1):min(len(in.Ranges), d.To+1)]
	// soonest sets at to the first of the times of near that are still to come.
	soonest := func(of func(*policy.Range) time.Time) {
		for i := range near {
			if t := of(&near[i]); t.After(in.Now) && (at.IsZero() || t.Before(at)) {
				at = t
			}
		}
	}
	switch d.Why {
	case policy.Within, policy.Growing, policy.OneKey, policy.NoCut, policy.Lonely:
		return at, false
	case policy.Rolled, policy.AtTail, policy.Appends, policy.NextUnknown:
		return in.Now.Add(fading), true
	case policy.Cooling:
		soonest(func(r *policy.Range) time.Time { return r.Created.Add(p.Cool) })
	case policy.Pinned:
		soonest(func(r *policy.Range) time.Time { return r.PinUntil })
	case policy.Backing:
		near = in.Ranges[d.From:d.To]
		soonest(func(r *policy.Range) time.Time {
			pause := p.Recount << min(max(r.Stats.Fruitless, 0), 30)
			if pause <= 0 || pause > p.MaxRecount {
				pause = p.MaxRecount
			}
			return r.Stats.Recounted.Add(pause)
		})
	}
	return at, true
}

// youngFor is how long a bucket counts as young after its first put. The rates of its ranges are not known yet. A young
// bucket is checked sooner, since appends may fill a range.
const youngFor = 5 * time.Second

// begins reports whether a bucket may be about to grow fast, so that it should be checked sooner. The result is true if
//   - the bucket was not checked lately, or
//   - the bucket had never got a row before its last check, or
//   - the bucket got its first rows less than 5 seconds ago (youngFor), and is not known to grow everywhere.
func (b *Balancer) begins(id store.BucketID) bool {
	seen, known := b.seen.Peek(id)
	return !known || seen.blank || b.o.Now().Sub(seen.begun) < youngFor && !seen.spread
}
