package counter

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// A State is all that is known of one partition. It is a pure value: backends
// keep states and say what the time is. A State is not safe for concurrent use.
// The zero State is of no use: see NewState.
type State struct {
	// generation is that of the Book in which it was last corrected; 0: never.
	generation uint64
	base       baseline

	puts, deletes, putBytes int64 // since there is a State
	applied                 int64 // Unix milliseconds of the newest delta
	lastPut                 int64 // and of the newest one with puts
	past                    [pastPoints]past
	dead                    float64 // tombstones at deadMs, fading with deadFade
	deadMs                  int64   // Unix milliseconds

	putRate, deleteRate, readRate rate // fast
	growth                        rate // slow, rows

	// share of the last puts that were above the highest key, and how many were seen.
	share, shareOf float64

	// asked is a sample of the requests.
	asked []asked

	top    []byte
	blind  bool // since the last recount
	sample Sample
	// lean: of the sample there is only its limit.
	lean bool
	// now is what the sample says, so that Stats needs no sample.
	now summary
}

// summary is what a sample says about its partition.
type summary struct {
	rows, distinct int64
	there, bytes   int64 // sampled keys that are there, and the bytes of their rows
	spread         int64 // in thousandths
	// then are the keys that the last recount saw, changed those that came or went since.
	then, changed int64
	// fades is the time of the oldest write that expire has something to do with, Unix
	// microseconds; 0: none.
	fades int64
}

// baseline is what the last recount found.
type baseline struct {
	at            time.Time // when it began
	rows, bytes   int64
	markers       int64
	puts, deletes int64  // the State's own counts then
	fruitless     int64  // recounts in a row that found nothing to do
	from, to      uint64 // hashes of its bounds
}

// past is a moment from which the counts of puts and deletes are remembered.
type past struct {
	at            int64 // Unix milliseconds
	puts, deletes int64
}

const (
	pastPoints = 8
	pastStep   = 10 * time.Second
	// deadFade is the time constant with which tombstones are taken to vanish:
	// about what Cassandra's default grace and a compaction take.
	deadFade = 10 * 24 * time.Hour
	// deletedFor is how long a sample remembers a deleted key against writes that
	// are told late.
	deletedFor = 10 * time.Minute
)

// NewState is what is known of a partition of which nothing is known.
func NewState() *State { return &State{sample: newSample()} }

// Apply takes in a delta of the time between two moments.
func (s *State) Apply(d *Delta, from, at time.Time) {
	over := min(max(at.Sub(from), 0), 24*time.Hour)
	before := s.now.rows
	s.remember(at)
	s.applied = max(s.applied, at.UnixMilli())
	if s.puts += d.Puts; d.Puts > 0 {
		s.lastPut = max(s.lastPut, at.UnixMilli())
	}
	s.deletes += d.Deletes
	s.putBytes += d.PutBytes
	s.dead = s.deadAt(at) + float64(d.Deletes)
	s.deadMs = max(s.deadMs, at.UnixMilli())
	s.putRate.add(float64(d.Puts), over, at, fast)
	s.deleteRate.add(float64(d.Deletes), over, at, fast)
	s.readRate.add(float64(d.Reads), over, at, fast)
	s.shares(d)
	s.ask(d, at)
	if bytes.Compare(d.Top, s.top) > 0 {
		s.top = bytes.Clone(d.Top)
	}
	s.blind = s.blind || d.Blind
	if s.Needs(d, at) {
		s.sample.merge(&d.Sample)
		s.expire(at)
		s.sum()
	} else {
		s.now.rows = s.rows()
	}
	s.growth.add(float64(s.now.rows-before), over, at, slow)
}

// Needs reports whether a delta until a moment reads or changes the sample: a Lean state must
// have got its sample before Apply then.
func (s *State) Needs(d *Delta, at time.Time) bool {
	return d.Sample.n > 0 || d.Sample.below < s.sample.below || s.now.fades != 0 && s.now.fades < fadedAt(at)
}

// fadedAt is the time before which writes of deleted keys have faded.
func fadedAt(at time.Time) int64 { return at.Add(-deletedFor).UnixMicro() }

// sum brings the summary up to date.
func (s *State) sum() {
	distinct := s.now.tally(&s.sample)
	s.now.rows = s.rows()
	s.now.distinct = int64(float64(distinct) * s.sample.scale())
	s.now.spread = int64(1000 * s.sample.spread())
}

// tally counts what a sample has, but for rows and spread, and returns how many different keys
// of it were put since the last recount.
func (m *summary) tally(s *Sample) (distinct int) {
	m.there, m.bytes, m.then, m.changed, m.fades = 0, 0, 0, 0, 0
	for i := range s.slots {
		x := &s.slots[i]
		if x.hash == 0 {
			continue
		}
		here, before := x.is&present != 0, x.is&counted != 0
		if here {
			m.there++
			m.bytes += int64(x.bytes)
		} else if at := max(1, int64(x.at)); (!before || x.is&written != 0) && (m.fades == 0 || at < m.fades) {
			m.fades = at
		}
		if before {
			m.then++
		}
		if here != before {
			m.changed++ // overwrites, and keys that came and went, add no noise
		}
		if x.is&written != 0 {
			distinct++
		}
	}
	return distinct
}

// retally brings up to date what a summary of form 1 does not have.
func (s *State) retally() {
	var m summary
	m.tally(&s.sample)
	s.now.then, s.now.changed, s.now.fades = m.then, m.changed, m.fades
}

// remembered is over how many puts the share of appends is measured.
const (
	remembered = 64
	leastPuts  = 8
)

// shares takes in how many puts were appends. A share is measured by puts and not by
// time, so that it means the same where there are few.
func (s *State) shares(d *Delta) {
	if d.Puts == 0 {
		return
	}
	n, above := float64(d.Puts), float64(d.Above)
	if bytes.Compare(d.Top, s.top) > 0 && (d.Puts == 1 || len(s.top) == 0 && d.Above < d.Puts) {
		// A client that has just begun does not know what its first put is above.
		above++
	}
	above = min(above, n)
	old := math.Exp(-n / remembered)
	if s.shareOf < remembered {
		old = s.shareOf / (s.shareOf + n)
	}
	s.share = s.share*old + above/n*(1-old)
	s.shareOf = min(s.shareOf+n, 2*remembered)
}

// remember keeps some counts of the past few minutes, for a recount that begins
// before it ends.
func (s *State) remember(at time.Time) {
	now := at.UnixMilli()
	if newest := s.past[0].at; newest != 0 && now < newest+pastStep.Milliseconds() {
		return
	}
	copy(s.past[1:], s.past[:])
	s.past[0] = past{now, s.puts, s.deletes}
}

// countsAt returns the counts at a time, or at the last remembered moment before it: then the
// writes between the two count as newer than the time.
func (s *State) countsAt(at time.Time) (puts, deletes int64) {
	if s.applied <= at.UnixMilli() {
		return s.puts, s.deletes
	}
	for _, p := range s.past {
		if p.at != 0 && p.at <= at.UnixMilli() {
			return p.puts, p.deletes
		}
	}
	return s.base.puts, s.base.deletes
}

func (s *State) deadAt(at time.Time) float64 {
	return s.dead * decay(max(0, at.UnixMilli()-s.deadMs), deadFade)
}

// expire forgets keys that were deleted some time ago, unless the last recount
// saw them: then that they are gone is still news.
func (s *State) expire(at time.Time) {
	oldest := store.Timestamp(fadedAt(at))
	gone := func(x *slot) bool { return x.is&(present|counted|written) == 0 && x.at < oldest }
	for i := range s.sample.slots {
		if x := &s.sample.slots[i]; x.hash != 0 && x.is&present == 0 && x.at < oldest {
			// It was put and deleted since the recount: of no more account.
			x.is &^= written
		}
	}
	for i := range s.sample.slots {
		if x := &s.sample.slots[i]; x.hash != 0 && gone(x) {
			s.sample.filter(len(s.sample.slots), s.sample.below, func(x *slot) bool { return !gone(x) })
			return
		}
	}
}

// Correct takes in the result of a recount, which is exact for the moment at
// which it began, give or take the writes that went on meanwhile. Keys written
// since then, as far as they are sampled, count on top of it; those that the
// recount has seen already do so only once.
func (s *State) Correct(c *Count, generation uint64) {
	started := c.Started
	if newest := time.UnixMilli(s.applied); newest.Sub(started.Add(c.Took)) > mostBehind {
		// All that is known by now counts as seen: else it would count twice, in each recount.
		started = newest.Add(2 * startSlack)
	}
	puts, deletes := s.countsAt(started)
	old := s.sample
	s.sample = c.Sample.clone()
	if s.sample.below == 0 { // of a count that was not made by a Recount
		s.sample = newSample()
	}
	s.sample.lower(old.below)
	// A little earlier than it began: writes carry their clients' clocks.
	since := store.Timestamp(started.Add(-startSlack).UnixMicro())
	for i := range old.slots {
		x := &old.slots[i]
		if x.hash != 0 && x.at < since {
			s.sample.known(x.hash, x.at)
		}
		if x.hash != 0 && x.at >= since {
			s.sample.set(x.hash, old.keyOf(x), x.at, x.bytes, x.is&(present|written))
		}
	}
	s.sample.bound()
	fruitless := int64(0)
	if c.Fine {
		fruitless = s.base.fruitless + 1
	}
	s.base = baseline{
		at: c.Started, rows: c.Rows, bytes: c.Bytes, markers: c.Markers,
		puts: puts, deletes: deletes, fruitless: fruitless, from: hashOf(c.Start), to: hashOf(c.End),
	}
	s.generation, s.blind, s.lean = generation, false, false
	if bytes.Compare(c.Top, s.top) > 0 {
		s.top = bytes.Clone(c.Top)
	}
	s.sum()
}

// Thin makes a state smaller whose partition is at rest. Of 256 sampled keys it keeps some fifty, each of which stands for
// more rows, and of the sampled requests none. The limit of a sample never rises, so the partition keeps the coarser
// sample when it is written to again. A Lean state does not change.
func (s *State) Thin() {
	if !s.Thick() {
		return
	}
	s.sample.thin()
	s.asked = nil
	s.sum()
}

// Thick reports whether Thin makes the state smaller.
func (s *State) Thick() bool {
	n, _ := s.sample.rests()
	return !s.lean && (n < s.sample.n || len(s.asked) > 0)
}

const (
	startSlack = time.Second
	// mostBehind is for how long writes may be newer than the end of a count, since they went on until the
	// correction; if they are newer, the clock of who counted is behind those of the writers.
	mostBehind = time.Minute
)

// rows estimates the live rows.
//
// Where every put is a new key and every delete hits one, the count of writes is exact. Where
// it differs by more than 2.5 standard deviations from the estimate by the sample, the sample
// is right: of n sampled keys that came or went, each stands for scale keys, which gives a
// deviation of sqrt(n) * scale. No more rows can have come than puts, nor gone than deletes.
func (s *State) rows() int64 {
	puts, deletes := s.puts-s.base.puts, s.deletes-s.base.deletes
	simple := s.base.rows + puts - deletes
	if s.blind {
		return max(0, simple)
	}
	scale := s.sample.scale()
	sampled := float64(s.base.rows) + float64(s.now.there-s.now.then)*scale
	if scale > 1 && simple >= 0 {
		const sigmas = 2.5
		noise := math.Sqrt(float64(s.now.changed+1)) * scale
		if math.Abs(float64(simple)-sampled) <= sigmas*noise {
			return simple
		}
	}
	return max(0, min(int64(sampled), s.base.rows+puts), s.base.rows-deletes)
}

// Stats says what is known at a time, in a book's generation.
func (s *State) Stats(p store.Partition, generation uint64, now time.Time) Stats {
	rows := s.now.rows
	perRow := 0.0
	switch {
	case s.now.there > 0:
		perRow = float64(s.now.bytes) / float64(s.now.there)
	case s.base.rows > 0:
		perRow = float64(s.base.bytes) / float64(s.base.rows)
	}
	st := Stats{
		Partition:      p,
		Known:          s.generation != 0 && s.generation == generation,
		Rows:           rows,
		AtMost:         s.base.rows + s.puts - s.base.puts,
		Bytes:          s.base.bytes + int64(float64(rows-s.base.rows)*perRow),
		Dead:           int64(s.deadAt(now)),
		Markers:        s.base.markers,
		Distinct:       s.now.distinct,
		PutsPerS:       s.putRate.get(now, fast),
		DeletesPerS:    s.deleteRate.get(now, fast),
		ReadsPerS:      s.readRate.get(now, fast),
		GrowthRowsPerS: s.growth.get(now, slow),
		Spread:         float64(s.now.spread) / 1000,
		Top:            bytes.Clone(s.top),
		Recounted:      s.base.at,
		RecountedRows:  s.base.rows,
		Fruitless:      int(s.base.fruitless),
		Puts:           s.puts,
		taken: Taken{
			float32(s.putRate.taken(now, fast) + s.deleteRate.taken(now, fast)), float32(s.readRate.taken(now, fast)),
		},
		from: s.base.from,
		to:   s.base.to,
	}
	if s.lastPut > 0 {
		st.LastPut = time.UnixMilli(s.lastPut)
	}
	st.Bytes = max(0, st.Bytes)
	st.Asked = s.requests(&st)
	if s.shareOf >= leastPuts {
		st.AppendShare = s.share
		st.AppendsPerS = st.PutsPerS * s.share
	}
	return st
}

// Quanta says where the rows lie: they are spread over the sampled keys, each of
// which stands for as many. The first quantum begins at the range's start.
func (s *State) Quanta() []Quantum {
	rows, keys := s.now.rows, s.sample.present()
	if rows <= 0 || len(keys) == 0 {
		return nil
	}
	out := make([]Quantum, 0, len(keys))
	n := int64(len(keys))
	for i, key := range keys {
		from, to := rows*int64(i)/n, rows*int64(i+1)/n
		if i == 0 {
			key = nil // the rows below the first sampled key lie in its quantum
		}
		if to > from {
			out = append(out, Quantum{Key: slices.Clone(key), Rows: to - from})
		} else if i == 0 {
			out = append(out, Quantum{})
		}
	}
	return out
}

// Hint is what clients should know of the partition.
func (s *State) Hint(p store.PartitionID) Hint {
	return Hint{Partition: p, Below: s.sample.below, Top: bytes.Clone(s.top)}
}
