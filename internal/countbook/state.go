package countbook

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A State has everything that is known about one partition: its counts of rows and requests, its rates, its last
// recount and a sample of its keys. A State does no I/O and reads no clock: backends store states and pass the time. It
// is not safe for concurrent use. The zero State is not usable: see NewState.
type State struct {
	// generation is the generation of the Book at the time of the last recount; 0 means that there was no recount, or
	// that the counts are known to be wrong.
	generation uint64
	base       baseline

	puts, deletes, putBytes int64 // since there is a State
	applied                 int64 // Unix milliseconds of the newest delta
	lastPut                 int64 // Unix milliseconds of the newest delta with puts
	past                    [pastPoints]past
	dead                    float64 // tombstones at deadMs, fading with deadFade
	deadMs                  int64   // Unix milliseconds

	putRate, deleteRate, readRate rate // fast
	growth                        rate // slow, rows

	// share is the fraction of appends among the last puts, 0 to 1. shareOf is the number of puts on which this
	// fraction is based.
	share, shareOf float64

	// asked is a sample of the requests to the partition.
	asked []asked

	top    []byte
	blind  bool // since the last recount
	sample keysample.Sample
	// lean is true if the sample is not loaded, except for its limit.
	lean bool
	// now is the summary of the sample: numbers that follow from the sample, so that Stats works without it.
	now summary
}

// summary has the numbers about a partition that are computed from its sample of keys. They are stored apart from the
// sample, so that they can be read without it.
type summary struct {
	rows, distinct int64
	there, bytes   int64 // sampled keys that are not deleted, and the bytes of their rows
	spread         int64 // in thousandths
	// then is the number of sampled keys that the last recount saw. changed is the number of sampled keys that were
	// added or deleted since.
	then, changed int64
	// fades is the time, in Unix microseconds, of the oldest deletion in the sample with which expire has still to
	// deal; 0 means that there is none.
	fades int64
}

// baseline is the result of the last recount of a partition, to which later writes are added.
type baseline struct {
	at            time.Time // when it began
	rows, bytes   int64
	markers       int64
	puts, deletes int64  // the State's own counts at the recount
	fruitless     int64  // consecutive recounts after which nothing was done
	from, to      uint64 // hashes of the bounds of the range
}

// past has the numbers of puts and deletes of a partition up to a recent moment, `at`. A recount that takes long needs
// the numbers as of its beginning.
type past struct {
	at            int64 // Unix milliseconds
	puts, deletes int64
}

const (
	pastPoints = 8
	pastStep   = 10 * time.Second
	// deadFade is the time constant with which tombstones are assumed to vanish from a partition. It is about
	// Cassandra's default grace period plus the time until a compaction.
	deadFade = 10 * 24 * time.Hour
	// deletedFor is how long a sample of keys remembers a deleted key. Until then a late report of an older put does
	// not bring the key back.
	deletedFor = 10 * time.Minute
)

// NewState returns the State of a partition of which nothing is known yet: no rows, no recount and an empty sample of
// keys.
func NewState() *State { return &State{sample: keysample.New()} }

// Apply adds d to the counts of the partition. d has the requests that one client counted between the times `from` and
// `at`.
func (s *State) Apply(d *counter.Delta, from, at time.Time) {
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
		s.sample.Merge(keysample.Of(&d.Sample))
		s.expire(at)
		s.sum()
	} else {
		s.now.rows = s.rows()
	}
	s.growth.add(float64(s.now.rows-before), over, at, slow)
}

// Needs reports whether the sample of keys is needed in order to add the counts d of a client by Apply. A caller that
// has loaded the state without its sample (Lean) loads the sample then. The counts end at the time `at`. The result is
// true if
//   - d has sampled keys or a lower limit of hashes, or
//   - deleted keys must be forgotten.
func (s *State) Needs(d *counter.Delta, at time.Time) bool {
	keys := keysample.Of(&d.Sample)
	return keys.N > 0 || keys.Below < s.sample.Below || s.now.fades != 0 && s.now.fades < fadedAt(at)
}

// fadedAt returns the time, in Unix microseconds, that is deletedFor (some minutes) before the time `at`. A sample of
// keys forgets the keys that were deleted before the returned time.
func fadedAt(at time.Time) int64 { return at.Add(-deletedFor).UnixMicro() }

// sum computes the summary of the partition anew: the numbers that follow from the sample of keys.
func (s *State) sum() {
	distinct := s.now.tally(&s.sample)
	s.now.rows = s.rows()
	s.now.distinct = int64(float64(distinct) * s.sample.Scale())
	s.now.spread = int64(1000 * s.sample.Spread())
}

// tally counts the keys of the sample s, e.g. how many are not deleted, and stores the numbers in the summary (except
// rows, distinct and spread). The result distinct is the number of sampled keys that were put since the last recount.
func (m *summary) tally(s *keysample.Sample) (distinct int) {
	m.there, m.bytes, m.then, m.changed, m.fades = 0, 0, 0, 0, 0
	for i := range s.Slots {
		x := &s.Slots[i]
		if x.Hash == 0 {
			continue
		}
		here, before := x.Is&keysample.Present != 0, x.Is&keysample.Counted != 0
		if here {
			m.there++
			m.bytes += int64(x.Bytes)
		} else if at := max(1, int64(x.At)); (!before || x.Is&keysample.Written != 0) && (m.fades == 0 || at < m.fades) {
			m.fades = at
		}
		if before {
			m.then++
		}
		if here != before {
			m.changed++ // overwrites, and keys that came and went, add no noise
		}
		if x.Is&keysample.Written != 0 {
			distinct++
		}
	}
	return distinct
}

// retally computes three fields of the summary (then, changed and fades) from the sample of keys. They are missing in
// counts that an older program has encoded.
func (s *State) retally() {
	var m summary
	m.tally(&s.sample)
	s.now.then, s.now.changed, s.now.fades = m.then, m.changed, m.fades
}

// These constants are for the fraction of appends among all puts. Appends are puts above the highest key.
const (
	// remembered is the number of puts over which the fraction of appends is measured. leastPuts is the number of puts
	// from which on the fraction is reported.
	remembered = 64
	leastPuts  = 8
)

// shares updates the fraction of appends (puts above the highest key) by new puts. The parameter d has the counts of
// one client.
func (s *State) shares(d *counter.Delta) {
	// The fraction is measured over about the last 64 puts, and not over a time, so that it means the same for a
	// partition with few puts.
	if d.Puts == 0 {
		return
	}
	n, above := float64(d.Puts), float64(d.Above)
	if bytes.Compare(d.Top, s.top) > 0 && (d.Puts == 1 || len(s.top) == 0 && d.Above < d.Puts) {
		// A client that has just begun does not know the highest key before its first put.
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

// remember stores the present numbers of puts and deletes of the partition with the time `at`, at most once per
// pastStep (10 s). A recount that takes some minutes needs, when it ends, the numbers as of its beginning.
func (s *State) remember(at time.Time) {
	now := at.UnixMilli()
	if newest := s.past[0].at; newest != 0 && now < newest+pastStep.Milliseconds() {
		return
	}
	copy(s.past[1:], s.past[:])
	s.past[0] = past{now, s.puts, s.deletes}
}

// countsAt returns the numbers of puts and deletes of the partition that were counted up to the time `at`. The numbers
// are stored only every 10 s, so the result may be that of a slightly earlier time.
func (s *State) countsAt(at time.Time) (puts, deletes int64) {
	// Writes after that moment then count as newer than `at`.
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

// deadAt returns the estimated number of tombstones in the partition at the time `at`. Tombstones vanish by compaction,
// so the number fades within days.
func (s *State) deadAt(at time.Time) float64 {
	return s.dead * decay(max(0, at.UnixMilli()-s.deadMs), deadFade)
}

// expire drops keys from the sample that were deleted more than deletedFor before the time `at`. It keeps keys that the
// last recount saw, since the deletion of such a key changes the number of rows.
func (s *State) expire(at time.Time) {
	oldest := store.Timestamp(fadedAt(at))
	gone := func(x *keysample.Slot) bool {
		return x.Is&(keysample.Present|keysample.Counted|keysample.Written) == 0 && x.At < oldest
	}
	for i := range s.sample.Slots {
		if x := &s.sample.Slots[i]; x.Hash != 0 && x.Is&keysample.Present == 0 && x.At < oldest {
			// The key was put and deleted since the recount: the put no longer matters.
			x.Is &^= keysample.Written
		}
	}
	for i := range s.sample.Slots {
		if x := &s.sample.Slots[i]; x.Hash != 0 && gone(x) {
			s.sample.Filter(len(s.sample.Slots), s.sample.Below, func(x *keysample.Slot) bool { return !gone(x) })
			return
		}
	}
}

// Correct replaces the estimate for the partition by the result c of a recount. The estimate is then exact for the
// moment at which the recount began. Sampled keys that were written since that moment are added, and a key that the
// recount has seen counts only once. The parameter generation is the present generation of the Book.
//
// If c is a size that was stored beside the rows (see Keep), it corrects only counts without any recount. All writes in
// these counts are newer than the stored size.
func (s *State) Correct(c *counter.Count, generation uint64) {
	if !c.Counted.IsZero() && !s.base.at.IsZero() {
		return
	}
	started, at := c.Started, c.Started
	if newest := time.UnixMilli(s.applied); newest.Sub(started.Add(c.Took)) > mostBehind {
		// All writes that are known by now count as seen by the recount. Otherwise they would count twice, in each
		// recount.
		started = newest.Add(2 * startSlack)
	}
	puts, deletes := s.countsAt(started)
	// since is a little earlier than the start, because writes carry the time of their clients' clocks.
	since := store.Timestamp(started.Add(-startSlack).UnixMicro())
	if !c.Counted.IsZero() {
		at, puts, deletes, since = c.Counted, 0, 0, 0
	}
	old := s.sample
	s.sample = keysample.Of(&c.Sample).Clone()
	if s.sample.Below == 0 { // c was not made by a Recount
		s.sample = keysample.New()
	}
	s.sample.Lower(old.Below)
	for i := range old.Slots {
		x := &old.Slots[i]
		if x.Hash != 0 && x.At < since {
			s.sample.Known(x.Hash, x.At)
		}
		if x.Hash != 0 && x.At >= since {
			s.sample.Set(x.Hash, old.KeyOf(x), x.At, x.Bytes, x.Is&(keysample.Present|keysample.Written))
		}
	}
	s.sample.Bound()
	fruitless := int64(0)
	if c.Fine {
		fruitless = s.base.fruitless + 1
	}
	from, to := bounds(c)
	s.base = baseline{
		at: at, rows: c.Rows, bytes: c.Bytes, markers: c.Markers,
		puts: puts, deletes: deletes, fruitless: fruitless, from: from, to: to,
	}
	// After a loss the sample lacks the older keys, so only the counts of writes can be used: the state is blind.
	s.generation, s.blind, s.lean = generation, !c.Counted.IsZero(), false
	if bytes.Compare(c.Top, s.top) > 0 {
		s.top = bytes.Clone(c.Top)
	}
	s.sum()
}

// Thin makes the state of a partition without requests smaller, to save memory in a backend. It drops the sampled
// requests, and all but about fifty of 256 sampled keys. The estimates become coarser, and stay so even if the
// partition is written to later. A state that was loaded without its sample (see Lean) does not change.
func (s *State) Thin() {
	if !s.Thick() {
		return
	}
	s.sample.Thin()
	s.asked = nil
	s.sum()
}

// Thick reports whether Thin would make the state of the partition smaller. A backend calls it to find partitions
// without requests whose states take more memory than they need.
func (s *State) Thick() bool {
	n, _ := s.sample.Rests()
	return !s.lean && (n < s.sample.N || len(s.asked) > 0)
}

const (
	// startSlack is the difference that is allowed, at the start of a recount, between the clocks of clients and the
	// clock of the recount.
	startSlack = time.Second
	// mostBehind is the longest time by which a write may be newer than the end of a recount. Writes go on until the
	// result of the recount arrives (Correct). If a write is even newer, the clock of the process that counted is
	// behind the clocks of the writers.
	mostBehind = time.Minute
)

// rows returns an estimate of the number of live rows of the partition. It is based on the last recount, the writes
// that were counted since, and the sample of keys.
func (s *State) rows() int64 {
	// There are two ways to estimate the number. The first counts writes, and is exact if every put is of a new key and
	// every delete hits a key. The second extrapolates the sampled keys.
	//
	// If the two results differ by more than 2.5 standard deviations, the second is right, else the first. Each of the
	// n sampled keys that were added or deleted stands for scale keys, so the deviation is sqrt(n) * scale. The result
	// is at most the rows of the last recount plus all later puts, and at least these rows less all later deletes.
	puts, deletes := s.puts-s.base.puts, s.deletes-s.base.deletes
	simple := s.base.rows + puts - deletes
	if s.blind {
		return max(0, simple)
	}
	scale := s.sample.Scale()
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

// Stats returns the estimates for p, the state's partition, at the time `now`. generation is the present generation of
// the Book. If the last recount is of an older generation, the estimates are not trusted (Known is false).
func (s *State) Stats(p store.Partition, generation uint64, now time.Time) counter.Stats {
	rows := s.now.rows
	perRow := 0.0
	switch {
	case s.now.there > 0:
		perRow = float64(s.now.bytes) / float64(s.now.there)
	case s.base.rows > 0:
		perRow = float64(s.base.bytes) / float64(s.base.rows)
	}
	st := counter.Stats{
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
		WritesTaken:    float32(s.putRate.taken(now, fast) + s.deleteRate.taken(now, fast)),
		ReadsTaken:     float32(s.readRate.taken(now, fast)),
		From:           s.base.from,
		To:             s.base.to,
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

// Quanta estimates how the rows of the partition are distributed over its keys. A Quantum is an interval of
// neighbouring keys with its number of rows. Each Quantum of the result reaches from one sampled key to the next, and
// all have about the same number of rows. The first one begins at the start of the partition. The result is nil if no
// rows or no keys are known.
func (s *State) Quanta() []counter.Quantum {
	rows, keys := s.now.rows, s.sample.Present()
	if rows <= 0 || len(keys) == 0 {
		return nil
	}
	out := make([]counter.Quantum, 0, len(keys))
	n := int64(len(keys))
	for i, key := range keys {
		from, to := rows*int64(i)/n, rows*int64(i+1)/n
		if i == 0 {
			key = nil // the rows below the first sampled key lie in its quantum
		}
		if to > from || i == 0 {
			out = append(out, counter.Quantum{Key: slices.Clone(key), Rows: to - from})
		}
	}
	return out
}

// Hint returns what clients are told about this state's partition, whose id is p: the limit of the hashes of keys that
// they need to sample, and the highest key.
func (s *State) Hint(p store.PartitionID) counter.Hint {
	return counter.Hint{Partition: p, Below: s.sample.Below, Top: bytes.Clone(s.top)}
}
