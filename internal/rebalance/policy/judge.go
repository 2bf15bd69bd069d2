package policy

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Judge decides what should be done about each range, without the cuts; see Decide.
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
		j.rows = max(j.rows, j.MaxRows+1) // a bucket with more ranges than these has filled one
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
		d, dead := j.refresh(i) // also of one that is too small to stay, but grows
		if !dead {
			d = j.stays(i)
		}
		j.set(d)
	}
	j.spend()
	n := 0
	for i := 0; i < len(j.of); i = j.of[i].To {
		n++
	}
	out := make([]Decision, 0, n)
	for i := 0; i < len(j.of); i = j.of[i].To {
		out = append(out, *j.of[i])
	}
	return out
}

// stays is the verdict on a range that nothing speaks against, for now.
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

type judge struct {
	*Policy
	*Input
	traffic float64 // of the bucket, per second
	// rows of the bucket, and of its ranges that grow all over.
	rows, spreading int64
	of              []*Decision // of each range
	made            []Decision  // what of points to
	// below and above are the nearest ranges with rows, of each.
	below, above []int
}

func (j *judge) set(d Decision) {
	j.made = append(j.made, d) // the memory of former ones stays where it is
	for i := d.From; i < d.To; i++ {
		j.of[i] = &j.made[len(j.made)-1]
	}
}

func (j *judge) decision(k Kind, i int, why Why, format string, args ...any) Decision {
	return Decision{Kind: k, From: i, To: i + 1, Rows: j.Ranges[i].Stats.Rows, Why: why,
		Text: fmt.Sprintf(format, args...)}
}

func (j *judge) none(i int, why Why, format string, args ...any) Decision {
	return j.decision(None, i, why, format, args...)
}

// sized is the policy for ranges with rows as large as in one: MaxBytes limits them, too.
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

// limits has the limits be those of a range until the function is called that it returns.
func (j *judge) limits(i int) func() {
	all := j.Policy
	j.Policy = all.sized(&j.Ranges[i].Stats)
	return func() { j.Policy = all }
}

// one decides about a range alone; false: nothing is decided, and it may be merged.
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
	if s.Rows >= j.MinRows || hot { // a small one is merged, which does the same
		if v, dead := j.refresh(i); dead {
			return v, true
		}
	}
	return loaded, hot
}

// purged reports whether a range had rows that were deleted at once, and has had none since. What is deleted fades.
func purged(s *counter.Stats) bool {
	return s.Rows == 0 && s.Puts == 0 && s.Dead >= counter.RemovedDeletes/2
}

// refresh rewrites a partition with too many tombstones, unless it will have no rows before it has twice as many: then
// it is merged or refreshed for nothing.
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

// emptying reports whether a range will have no rows within a time.
func emptying(s *counter.Stats, within time.Duration) bool {
	return s.Rows > 0 && s.DeletesPerS > 2*s.PutsPerS && float64(s.Rows) < s.DeletesPerS*within.Seconds()
}

// mostDead is how many tombstones a range may have for a while, if it is got rid of for nothing then.
func (p *Policy) mostDead() int64 { return 2*p.MaxDead - p.MaxDead/8 }

// fresh reports whether the last recount is good enough to cut by: it is young, and little has changed since, or all
// growth is spread, which leaves cuts where they are. So a load that is faster than recounts is cut all the same.
func (j *judge) fresh(s *counter.Stats) bool {
	if s.Recounted.IsZero() || j.Now.Sub(s.Recounted) > j.Fresh {
		return false
	}
	grew := s.Rows > s.RecountedRows && s.RecountedRows >= max(s.Rows/3, j.EarlyRows/2)
	return !changed(s) || grew && s.Spread >= j.Spread && s.GrowthRowsPerS > 0
}

// utc is a time as it is read back.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }

// changed reports whether the rows differ by more than a fifth from the last recount.
func changed(s *counter.Stats) bool {
	return max(s.Rows-s.RecountedRows, s.RecountedRows-s.Rows) > s.Rows/5
}

// maxFruitless is the number of recounts in a row that led to nothing, after which an estimate counts as wrong even if it
// says that much has changed.
const maxFruitless = 3

// cooling returns how long a range must wait for decisions that are not urgent.
func (j *judge) cooling(r *Range) time.Duration { return r.Created.Add(j.Cool).Sub(j.Now) }

// recount decides on a recount, unless the last one led to nothing and is too recent.
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
