package countbook

import (
	"time"

	"github.com/evenkeel/evenkeel/counter"
)

// Taken has the numbers of writes and reads of a partition up to some moment, weighted by age: a request counts 1 when
// it is new, and 1/e after a minute. The method Since computes the number of requests between two moments from two
// values of Taken.
type Taken struct{ Writes, Reads float32 }

// TakenOf returns the numbers of writes and reads of the partition, weighted by their age, at the moment for which the
// estimates s hold.
func TakenOf(s *counter.Stats) Taken { return Taken{s.WritesTaken, s.ReadsTaken} }

// Since estimates the numbers of writes and reads within the duration `over`, which ends at the moment of t. `before`
// is the value of Taken at the start of this duration. The estimate is exact if the requests came evenly. For a
// duration of up to ten seconds the error is at most 8 %.
func (t Taken) Since(before Taken, over time.Duration) (writes, reads float64) {
	if over <= 0 {
		return 0, 0
	}
	old, weight := decay(over.Milliseconds(), fast), faded(over, fast)
	between := func(now, before float32) float64 { return max(0, float64(now)-float64(before)*old) / weight }
	return between(t.Writes, before.Writes), between(t.Reads, before.Reads)
}

// Faded returns the value that t would have after another duration d without requests, since the numbers fade with age.
func (t Taken) Faded(d time.Duration) Taken {
	left := float32(decay(max(0, d.Milliseconds()), fast))
	return Taken{t.Writes * left, t.Reads * left}
}

// taken returns the number of events up to the time `at`, weighted by age: an event counts 1 when it happens, and 1/e
// after one time constant.
func (r *rate) taken(at time.Time, constant time.Duration) float64 {
	if r.since == 0 {
		return 0
	}
	return r.perS * constant.Seconds() * decay(max(at.UnixMilli(), r.at)-r.at, constant)
}
