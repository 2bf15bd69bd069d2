package balancer

import (
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// fading is the pause between two checks of a range that is left as it is because of appends to the range or to a
// neighbour. Appends are assumed to go on for some minutes after the last row.
const fading = 2 * time.Minute

// again returns the time of the next check of the ranges of the decision d, even if nothing is written to these ranges.
// If the result at is zero, the ranges are checked at the next interval. The result yes is false if the ranges can wait
// until all buckets are checked.
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

// youngFor is the time after the first put to a bucket during which the rates of the bucket are not known yet. Appends
// may fill a range within that time.
const youngFor = 5 * time.Second

// begins reports whether a bucket got its first rows only moments ago, after it was new or empty. A new bucket may grow
// fast, so it is checked sooner. Whether the bucket grows at one place is not known yet.
func (b *Balancer) begins(id store.BucketID) bool {
	seen, known := b.seen.Peek(id)
	return !known || seen.blank || b.o.Now().Sub(seen.begun) < youngFor && !seen.spread
}
