package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// parts returns the number of ranges into which a range with the counters s should be cut, and the reason. The results
// are:
//   - n: the number of ranges, or 1 if the range should not be cut
//   - grown: the number of rows that the range is expected to have at the end of the forecast
//   - why and text: the reason for the cut
//   - count: true if the range, if not cut, may have to be cut soon, so that an exact count is worth its cost
func (j *judge) parts(s *counter.Stats) (n, grown int64, why Why, text string, count bool) {
	grown = s.Rows
	soon := s.Rows // when the next decision takes effect
	lead := j.lead(max(s.Rows, min(j.spreading, together*j.MaxRows)))
	if g := j.growing(s); g > 0 && j.spreads(s) {
		// A load is expected to go on for a share of the time that it has lasted: nothing else is known. A load that
		// has filled a range already is expected to go on for longer.
		lasted := float64(s.Rows) / g
		early, most := believed*float64(s.Rows), min(j.GrowBy, 1)*float64(s.Rows)
		switch {
		case j.rows > j.MaxRows:
			early, most = max(early, most), j.GrowBy*float64(s.Rows)
			if j.GrowBy > 0 && g*lead.Seconds() > float64(j.MaxRows) && lasted > seen*lead.Seconds() {
				// Moves could not keep up with this growth later: the range is cut now, while it is small.
				most = max(most, j.RushBy*float64(s.Rows))
			}
		case j.GrowBy > 0 && g*lead.Seconds() > nearly*float64(j.MaxRows) && lasted > begun*lead.Seconds():
			// The parts can be cut again when this move has ended, and have room until that second cut takes effect.
			most = max(most, min(2*g*lead.Seconds(), j.RushBy*float64(s.Rows)))
		}
		soon += int64(min(g*lead.Seconds(), early))
		grown += int64(min(g*max(j.Horizon, lead).Seconds(), most))
		count = float64(s.Rows)+g*lead.Seconds() > float64(j.MaxRows) && s.Rows >= j.MaxRows/3
	}
	grown = max(grown, soon)
	n = ceil(grown, j.TargetRows)
	switch {
	case s.Rows > j.MaxRows:
		return max(n, 2), grown, Rows, fmt.Sprintf("%d rows, more than %s", s.Rows, j.most()), count
	case soon > j.MaxRows && s.Rows >= j.EarlyRows:
		return max(n, 2), grown, Forecast, fmt.Sprintf("%d rows and %.1f more per second: %d within %v", s.Rows,
			j.growing(s), soon, lead.Round(100*time.Millisecond)), count
	}
	return 1, grown, "", "", count
}

// bursts reports whether the first cut of a new bucket must wait for some seconds. This is so if its only range, whose
// counters are s, has exceeded its limit very fast.
func (j *judge) bursts(s *counter.Stats) bool {
	// More rows may come, but nobody knows yet how many. After the wait, the cut suits the present rows, or leaves
	// room for many more.
	whole := len(j.Ranges) == 1 && len(j.Ranges[0].Start) == 0 && len(j.Ranges[0].End) == 0
	return whole && s.Rows > j.MaxRows && j.spreads(s) && float64(s.Rows) < j.growing(s)*min(j.Lead*4/5, tells).Seconds()
}

// most returns the maximum number of rows of a range as text for people. The text names the setting that sets the
// maximum, e.g. "max_rows (1000)".
func (j *judge) most() string {
	if j.MaxRows < j.Input.Policy.MaxRows {
		return fmt.Sprintf("%d, which have max_bytes", j.MaxRows)
	}
	return fmt.Sprintf("max_rows (%d)", j.MaxRows)
}

// spreads reports whether a range grows all over, and not at one place. The parameter s has the counters of the range.
// If the range has more rows than the maximum, the result is also true for growth at an unknown place.
func (j *judge) spreads(s *counter.Stats) bool {
	// Such a range must be cut in any case.
	return s.Spread >= j.Spread || s.Rows > j.MaxRows && s.Spread == 0 && s.AppendShare < j.AppendShare
}

const (
	// believed is the time for which a load is expected to go on, as a share of the time that the load has lasted. With
	// a smaller share, cuts would come too late. With a larger share, ranges would be cut for loads that end early.
	believed = 0.5
	// seen is the time for which a very fast load on a bucket that has filled a range must have lasted to be forecast,
	// as a share of the time that moves take (see lead).
	seen = 1. / 3
	// begun is the time for which a fast load on a bucket that has not filled one range yet must have lasted to be
	// forecast, as a share of the time that moves take (see lead).
	begun = 1. / 2
	// nearly is the number of rows, as a share of the maximum, that a load must bring during one move to count as fast.
	nearly = 0.8
	// together is the number of full ranges of a bucket that are assumed to move at the same time, since ranges that
	// grow alike are full at the same time.
	together = 4
)

// lead returns the time until ranges that the next decision cuts take puts. It is Policy.Lead plus the time to move the
// given number of rows, which are moved before that decision.
func (j *judge) lead(rows int64) time.Duration {
	if j.MovedPerS <= 0 {
		return j.Lead
	}
	return j.Lead + time.Duration(float64(rows)/j.MovedPerS*float64(time.Second))
}

// ceil returns a/b, rounded up to a whole number. A b of 0 or less counts as 1 in the division.
func ceil(a, b int64) int64 { return (a + b - 1) / max(b, 1) }

// Growth returns the number of rows per second that a range gains. The result is negative if the range loses rows. The
// parameter s has the counters of the range. The result follows from the mean of the last hour, and the present rates
// of puts and of deletes bound it: it is at most the rate of puts, and at least minus the rate of deletes. It may
// exceed the mean if a load has just come back.
func Growth(s *counter.Stats, now time.Time) float64 {
	j := judge{Input: &Input{Now: now}}
	if g := j.growing(s); g > 0 {
		return g
	}
	return max(min(s.GrowthRowsPerS, 0), -s.DeletesPerS)
}

// growing returns the number of rows per second that a range gains, or 0 if it gains none. The parameter s has the
// counters of the range.
func (j *judge) growing(s *counter.Stats) float64 {
	// Two of the rates are combined: GrowthRowsPerS changes slowly and shows that growth lasts, and PutsPerS changes
	// fast and shows an end of the growth. A long time since the last put shows the end at once.
	if j.silent(s) {
		return 0
	}
	g := min(s.GrowthRowsPerS, s.PutsPerS)
	if s.Puts > 0 {
		// The slow rate lags behind a load that comes back. At least this share of the puts was of new keys.
		g = max(g, s.PutsPerS*min(1, float64(s.Rows-s.RecountedRows)/float64(s.Puts)))
	}
	return max(0, g)
}

// silent reports whether the puts to a range have ended: none came for some seconds, although several were due by the
// earlier rate. s are the counters of the range.
func (j *judge) silent(s *counter.Stats) bool { return j.without(s, ended) }

// without reports whether the puts to a range have ended. The parameter s has the counters of the range. The result is
// true if
//   - the last put is longer ago than the duration long, and
//   - at least 5 puts (missing) were due since then, by the earlier rate.
func (j *judge) without(s *counter.Stats, long time.Duration) bool {
	// The rate in s alone does not show an end, since it fades slowly after the last put.
	if s.LastPut.IsZero() {
		return false
	}
	since := j.Now.Sub(s.LastPut)
	missed := s.PutsPerS * fades.Seconds() * math.Expm1(min(since.Minutes()/fades.Minutes(), 100))
	return since > long && missed > missing
}

const (
	// ended is the time without puts after which a load has ended, if at least 5 puts (missing) were due in that time.
	// pauses is a shorter time without puts, two reports of counters. After that time a decision waits until it is
	// known whether the load has ended.
	ended  = 4 * time.Second
	pauses = 2 * countDelay
	// tells is the age of a load from which the load no longer counts as a burst of some seconds. A decision may wait
	// until a load on the first range of a bucket has that age.
	tells = 16 * time.Second
	// missing is the number of puts that must have been due, by the earlier rate, before a time without puts shows an
	// end of the load.
	missing = 5
	// fades is the time in which the rate counter.Stats.PutsPerS falls to 1/e of its value when puts end.
	fades = time.Minute
)
