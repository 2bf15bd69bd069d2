package policy

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Judge returns the decisions about all ranges of an input, but without the keys at which ranges are cut. Judge is the
// first half of Decide, for callers that need no cuts. The result has no decision of the kind Need.
func Judge(in *Input) []Decision {
	j := judge{Policy: &in.Policy, Input: in, of: make([]*Decision, len(in.Ranges)),
		made: make([]Decision, 0, len(in.Ranges))}
	for i := range in.Ranges {
		s := &in.Ranges[i].Stats
		j.traffic += requests(s)
		j.rows += s.Rows
		if j.growing(s) > 0 && j.spreads(s) {
			j.spreading += s.Rows
		}
	}
	j.traffic = max(j.traffic, in.Traffic)
	if n := len(in.Ranges); n > 0 && (len(in.Ranges[0].Start) > 0 || len(in.Ranges[n-1].End) > 0) {
		j.rows = max(j.rows, j.MaxRows+1) // a bucket with ranges beyond these has filled one
	}
	j.neighbours()
	j.rolls()
	for i := range in.Ranges {
		if j.of[i] != nil {
			continue
		}
		if d, done := j.one(i); done {
			j.set(d)
		}
	}
	j.merges()
	for i := range in.Ranges {
		if j.of[i] != nil {
			continue
		}
		d, dead := j.refresh(i) // also of a range that is too small to stay, but grows
		if !dead {
			d = j.stays(i)
		}
		j.set(d)
	}
	j.spend()
	out := make([]Decision, 0, len(j.of))
	for i := 0; i < len(j.of); i = j.of[i].To {
		out = append(out, *j.of[i])
	}
	return out
}

// stays returns the decision to leave range i as it is for now. The reason of the decision is Within (the limits), or
// Growing if the range has fewer rows than the minimum.
func (j *judge) stays(i int) Decision {
	s := &j.Ranges[i].Stats
	least := j.sized(s).MinRows
	if s.Rows >= least || len(j.Ranges) == 1 || emptying(s, j.Horizon) { // one alone is a small bucket
		return j.none(i, Within, "")
	}
	if g := j.growing(s); g >= s.GrowthRowsPerS {
		return j.none(i, Growing, "%d rows of %d, and %.2f more per second", s.Rows, least, g)
	}
	return j.none(i, Growing, "%d rows of %d, and %.2f more per second, as a mean of the last hour", s.Rows, least,
		s.GrowthRowsPerS)
}

// judge is the state of one call of Judge, which decides about all ranges of a bucket. The embedded Policy has the
// limits of ranges. While a range with large rows is judged, the method limits replaces it by a policy with fewer rows
// per range.
type judge struct {
	*Policy
	*Input
	traffic float64 // requests per second of the bucket
	// rows is the number of rows of the bucket. spreading is the number of rows in those ranges that grow all over, and
	// not at one place.
	rows, spreading int64
	of              []*Decision // the decision about each range, nil if not made yet
	made            []Decision  // the decisions that of points to
	// below and above have one entry for each range: the index of the nearest lower range, and of the nearest higher
	// range, that has rows or is appended to. Without such a range the index is -1 in below, and the number of ranges
	// in above.
	below, above []int
}

// set records d as the decision about all of its ranges, which are those with the indexes d.From to d.To-1.
func (j *judge) set(d Decision) {
	j.made = append(j.made, d) // pointers to earlier decisions stay valid
	for i := d.From; i < d.To; i++ {
		j.of[i] = &j.made[len(j.made)-1]
	}
}

// decision returns a decision of kind k about range i alone. The parameter why is the reason of the decision. format
// and args make the text for people, as in fmt.Sprintf.
func (j *judge) decision(k Kind, i int, why Why, format string, args ...any) Decision {
	return Decision{Kind: k, From: i, To: i + 1, Rows: j.Ranges[i].Stats.Rows, Why: why,
		Text: fmt.Sprintf(format, args...)}
}

// none returns a decision to do nothing about range i. The parameter why is the reason. format and args make the text
// for people, as in fmt.Sprintf.
func (j *judge) none(i int, why Why, format string, args ...any) Decision {
	return j.decision(None, i, why, format, args...)
}

// sized returns the policy for a range with large rows, which may have fewer of them. The parameter s has the counters
// of the range, which have the mean size of its rows. If MaxRows such rows exceed MaxBytes bytes, all limits in rows
// are lowered in proportion. If not, the result is p itself.
func (p *Policy) sized(s *counter.Stats) *Policy {
	if p.MaxBytes <= 0 || s.Rows <= 0 || s.Bytes <= 0 {
		return p
	}
	most := float64(p.MaxBytes) / float64(s.Bytes) * float64(s.Rows)
	if most >= float64(p.MaxRows) {
		return p
	}
	q, share := *p, most/float64(p.MaxRows)
	lower := func(n *int64, least int64) { *n = max(least, int64(share*float64(*n))) }
	lower(&q.MaxRows, 1)
	lower(&q.MinRows, 0)
	lower(&q.TargetRows, 1)
	lower(&q.EarlyRows, 2)
	return &q
}

// limits makes the judge use the policy for large rows while it judges range i, if the range has large rows. That
// policy allows fewer rows in a range (see sized). The returned function restores the former policy.
func (j *judge) limits(i int) func() {
	all := j.Policy
	j.Policy = all.sized(&j.Ranges[i].Stats)
	return func() { j.Policy = all }
}

// one returns the decision about range i alone, without regard to its neighbours. The boolean result is false if the
// range needs nothing by itself. The range may then still be merged with neighbours.
func (j *judge) one(i int) (Decision, bool) {
	defer j.limits(i)()
	r := &j.Ranges[i]
	s := &r.Stats
	if r.Moves {
		return j.none(i, Moving, "it moves at present"), true
	}
	if !s.Known {
		return j.recount(i, Unknown, "its size is not known"), true
	}
	if v, yes := j.filling(i); yes {
		return v, true
	}
	want, grown, why, text, count := j.parts(s)
	if want > 1 {
		switch {
		case s.Rows <= 1:
			return j.none(i, OneKey, "%s, but it is one key only", text), true
		case j.bursts(s), j.without(s, pauses) && !j.silent(s):
			return j.none(i, Bursts, "%s, but it may have been a burst: how long it lasts will be seen soon", text), true
		case !j.fresh(s):
			return j.recount(i, Suspect, "%s, as it is counted", text), true
		}
		v := j.decision(Split, i, why, "%s", text)
		v.Parts = int(min(want, s.Rows))
		v.Copies, v.Grown = s.Rows-s.Rows/int64(v.Parts), grown
		return v, true
	}
	// An estimate errs by some percent: a range that may be too large, and nearly is by estimate, is counted.
	if s.AtMost > j.MaxRows && s.Rows > j.MaxRows/10*8 && !j.fresh(s) {
		return j.recount(i, Suspect, "%d rows, as it is counted, but there may be %d", s.Rows, s.AtMost), true
	}
	loaded, hot := j.load(i)
	if hot && loaded.Kind != None {
		return loaded, true
	}
	if count && !j.fresh(s) {
		if v := j.recount(i, Suspect, "%d rows, and growing", s.Rows); v.Kind == Recount {
			return v, true
		}
	}
	if s.Rows >= j.MinRows || hot { // a small range is merged instead, which also removes its tombstones
		if v, dead := j.refresh(i); dead {
			return v, true
		}
	}
	return loaded, hot
}

// purged reports whether all rows of a range were deleted at once, and no row was put since. The parameter s has the
// counters of the range.
func purged(s *counter.Stats) bool {
	// Such a delete adds a large number of tombstones to the counters (counter.RemovedDeletes). Half of that number is
	// enough for a true result, since the count of deletes fades with time.
	return s.Rows == 0 && s.Puts == 0 && s.Dead >= counter.RemovedDeletes/2
}

// refresh returns the decision to copy the rows of range i to a new partition, if the present one has too many
// tombstones (marks of deleted rows). There are too many tombstones if
//   - the partition has more than MaxDead, or
//   - the range is empty and the partition has more than a quarter of MaxDead, or
//   - all rows of the range were deleted at once.
//
// If the range will soon be empty, the decision is to wait, since nothing has to be copied then. It waits only as long
// as rows and tombstones together are fewer than mostDead. The boolean result is false if there are not too many
// tombstones, or if MaxDead is 0.
func (j *judge) refresh(i int) (Decision, bool) {
	s := &j.Ranges[i].Stats
	empty := s.Rows == 0 && s.PutsPerS == 0 // nothing is copied
	if j.MaxDead > 0 && purged(s) {
		return j.decision(Refresh, i, Dead, "all its rows were deleted at once: reads pass over them until it is rewritten"), true
	}
	if j.MaxDead <= 0 || s.Dead <= j.MaxDead && (!empty || s.Dead <= j.MaxDead/4) {
		return Decision{}, false
	}
	if s.Rows+s.Dead < j.mostDead() && emptying(s, j.Cool) {
		return j.none(i, Emptying, "%d tombstones, but its %d rows are being deleted", s.Dead, s.Rows), true
	}
	v := j.decision(Refresh, i, Dead, "%d tombstones, more than %d", s.Dead, j.MaxDead)
	v.Copies = s.Rows
	return v, true
}

// emptying reports whether a range will soon have no rows left, at its present rate of deletes. s are the counters of
// the range. The parameter `within` is the duration that counts as soon.
func emptying(s *counter.Stats, within time.Duration) bool {
	return s.Rows > 0 && s.DeletesPerS > 2*s.PutsPerS && float64(s.Rows) < s.DeletesPerS*within.Seconds()
}

// mostDead returns the number of tombstones that a partition may have for a while, which is nearly twice MaxDead. It
// applies where the tombstones will soon go away cheaply, by a merge or the delete of all rows.
func (p *Policy) mostDead() int64 { return 2*p.MaxDead - p.MaxDead/8 }

// fresh reports whether the last exact count of a range can be used to cut the range. s are the counters of the range.
// The count must be at most Policy.Fresh old, and one of two conditions must hold:
//   - Few rows have changed since the count.
//   - The range grows evenly, and had at least a third of its present rows when it was counted. Even growth leaves the
//     best cuts where they are.
func (j *judge) fresh(s *counter.Stats) bool {
	// The second condition is for a range that grows too fast to be counted again: it is cut all the same.
	if s.Recounted.IsZero() || j.Now.Sub(s.Recounted) > j.Fresh {
		return false
	}
	grew := s.Rows > s.RecountedRows && s.RecountedRows >= max(s.Rows/3, j.EarlyRows/2)
	return !changed(s) || grew && s.Spread >= j.Spread && s.GrowthRowsPerS > 0
}

// utc returns the time t in UTC, without the reading of a monotonic clock. Such a time is unchanged after it was
// written as JSON and read back.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }

// changed reports whether the estimated number of rows of a range differs from the last exact count by more than a
// fifth of the estimate. s are the counters of the range.
func changed(s *counter.Stats) bool {
	return max(s.Rows-s.RecountedRows, s.RecountedRows-s.Rows) > s.Rows/5
}

// maxFruitless limits the early exact counts of a range, which follow large changes of its estimate. After three counts
// in a row that led to no action, changes of the estimate lead to no more early counts.
//
// The estimate is then known to be wrong.
const maxFruitless = 3

// recount returns the decision to count the rows of range i exactly, for the reason why. If the reason is Suspect and
// the last exact count is too recent, the decision is to do nothing. Each count in a row that led to no action doubles
// the time for which a count is too recent. A count is made at once if the estimate has changed by more than a fifth
// since (but see maxFruitless). The parameters format and args make the text for people, as in fmt.Sprintf.
func (j *judge) recount(i int, why Why, format string, args ...any) Decision {
	s := &j.Ranges[i].Stats
	pause := j.Recount << min(max(s.Fruitless, 0), 30)
	if pause <= 0 || pause > j.MaxRecount {
		pause = j.MaxRecount
	}
	wait := !changed(s) || s.Fruitless >= maxFruitless
	if next := s.Recounted.Add(pause); why == Suspect && wait && !s.Recounted.IsZero() && next.After(j.Now) &&
		!j.Now.Before(s.Recounted) {
		d := j.none(i, Backing, "%s; the last recount found %d rows, the next one is due in %v",
			fmt.Sprintf(format, args...), s.RecountedRows, next.Sub(j.Now).Round(time.Second))
		d.Until = utc(next)
		return d
	}
	return j.decision(Recount, i, why, format, args...)
}
