package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// parts returns into how many ranges one should be cut (1: it stays), how many rows it will have at the horizon, and
// why. count: it is worth a recount, since it may have to be cut soon.
func (j *judge) parts(s *counter.Stats) (n, grown int64, why Why, text string, count bool) {
	grown = s.Rows
	soon := s.Rows // when the next decision takes effect
	lead := j.lead(max(s.Rows, min(j.spreading, together*j.MaxRows)))
	if g := j.growing(s); g > 0 && j.spreads(s) {
		// A load goes on for a share of the time that it has lasted: nobody knows more. Of one that has filled a range
		// already much is believed.
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
			// The parts can be cut when this move has ended, and have room until that takes effect.
			most = max(most, min(2*g*lead.Seconds(), j.RushBy*float64(s.Rows)))
		}
		soon += int64(min(g*lead.Seconds(), early))
		grown += int64(min(g*max(j.Horizon, lead).Seconds(), most))
		count = float64(s.Rows)+g*lead.Seconds() > float64(j.MaxRows) && s.Rows >= j.MaxRows/3
	}
	grown = max(grown, soon)
	n = max(1, ceil(grown, j.TargetRows))
	switch {
	case s.Rows > j.MaxRows:
		return max(n, 2), grown, Rows, fmt.Sprintf("%d rows, more than %s", s.Rows, j.most()), true
	case soon > j.MaxRows && s.Rows >= j.EarlyRows:
		return max(n, 2), grown, Forecast, fmt.Sprintf("%d rows and %.1f more per second: %d within %v", s.Rows,
			j.growing(s), soon, lead.Round(100*time.Millisecond)), true
	}
	return 1, grown, "", "", count
}

// bursts reports whether a bucket that has never been cut has filled its range too fast to tell whether more will come:
// it is over its limit in any case, and the first cut is for what is there if the load has ended, else for a rush.
func (j *judge) bursts(s *counter.Stats) bool {
	whole := len(j.Ranges) == 1 && len(j.Ranges[0].Start) == 0 && len(j.Ranges[0].End) == 0
	return whole && s.Rows > j.MaxRows && j.spreads(s) && float64(s.Rows) < j.growing(s)*min(j.Lead*4/5, tells).Seconds()
}

// most is the limit for people.
func (j *judge) most() string {
	if j.MaxRows < j.Input.Policy.MaxRows {
		return fmt.Sprintf("%d, which have max_bytes", j.MaxRows)
	}
	return fmt.Sprintf("max_rows (%d)", j.MaxRows)
}

// spreads reports whether a range grows all over. One that is too large is cut in any case: growth is then taken to be
// everywhere unless it is known where.
func (j *judge) spreads(s *counter.Stats) bool {
	return s.Spread >= j.Spread || s.Rows > j.MaxRows && s.Spread == 0 && s.AppendShare < j.AppendShare
}

const (
	// believed is how long a load is expected to go on, as a share of the time that it has lasted; less would come too
	// late, more cuts what ends before.
	believed = 0.5
	// seen is the share of the time which moves take that a rush must have lasted to be believed.
	seen = 1. / 3
	// begun is that of a fast load that has not filled a range yet.
	begun = 1. / 2
	// nearly is the share of the maximum that such a load brings while a move takes.
	nearly = 0.8
	// together is how many full ranges of a bucket have to be moved at the same time: those that grow alike.
	together = 4
)

// lead is Lead plus the time to move so many rows.
func (j *judge) lead(rows int64) time.Duration {
	if j.MovedPerS <= 0 {
		return j.Lead
	}
	return j.Lead + time.Duration(float64(rows)/j.MovedPerS*float64(time.Second))
}

// ceil is a/b rounded up.
func ceil(a, b int64) int64 { return (a + b - 1) / max(b, 1) }

// Growth returns how many rows per second a range gains, or loses (negative): the mean of the last hour, but not more
// than is put or deleted at present.
func Growth(s *counter.Stats, now time.Time) float64 {
	j := judge{Input: &Input{Now: now}}
	if g := j.growing(s); g > 0 {
		return g
	}
	return max(min(s.GrowthRowsPerS, 0), -s.DeletesPerS)
}

// growing is how many rows per second a range gains: the slow rate shows growth that lasts, the fast one that it has
// not ended, and so does the time of the last put, at once.
func (j *judge) growing(s *counter.Stats) float64 {
	if j.silent(s) {
		return 0
	}
	g := min(s.GrowthRowsPerS, s.PutsPerS)
	if s.Puts > 0 {
		// The slow rate lags behind a load that comes back: at least this share of the puts was of new keys.
		g = max(g, s.PutsPerS*min(1, float64(s.Rows-s.RecountedRows)/float64(s.Puts)))
	}
	return max(0, g)
}

// silent reports whether a range gets no puts any more.
func (j *judge) silent(s *counter.Stats) bool { return j.without(s, ended) }

// without reports whether a range has got no puts for so long, although its rate, which fades slowly, says that some
// were to come.
func (j *judge) without(s *counter.Stats, long time.Duration) bool {
	if s.LastPut.IsZero() {
		return false
	}
	since := j.Now.Sub(s.LastPut)
	missed := s.PutsPerS * fades.Seconds() * math.Expm1(min(since.Minutes()/fades.Minutes(), 100))
	return since > long && missed > missing
}

const (
	// A load has ended when for so long no put has come, and so many did not come. It pauses when twice no counts of it
	// have come: then it is soon seen whether it has ended.
	ended  = 4 * time.Second
	pauses = 2 * countDelay
	// tells is after how long it is seen whether a load that has filled the first range was a burst of some seconds:
	// that is waited for, but not for the next interval.
	tells   = 16 * time.Second
	missing = 5
	// fades is the time constant of Stats.PutsPerS.
	fades = time.Minute
)
