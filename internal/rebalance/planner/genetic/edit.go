package genetic

import (
	"math/rand"
	"slices"
	"sort"
)

// An editor makes random changes to a candidate plan, for one mutation of the genetic search. It works on a copy of the
// plan's ranges (genes). It prefers ranges that break a limit, since fully random changes nearly always make a plan
// worse.
type editor struct {
	*search
	rng   *rand.Rand
	genes []gene

	bad []int32 // starts of ranges that break a limit
}

// done ends the changes of a candidate plan. It decides which ranges keep the id of an old partition, and returns the
// ranges (genes) of the changed plan. The editor must not be used afterwards.
func (e *editor) done() []gene {
	e.settle(e.genes)
	return e.genes
}

// look finds the ranges of the candidate plan that break a limit, now or at the horizon of the forecast, and stores
// their starts in e.bad. It also stores in e.tally the sums of all ranges, from which scores are computed.
func (e *editor) look() {
	lim := &e.g.Limits
	e.tally = e.count(e.genes)
	for i := range e.genes {
		c := &e.genes[i]
		if c.wall {
			continue
		}
		end := e.genes[i+1].start
		rows, writes := e.g.RowsIn(c.start, end), e.g.WritesIn(c.start, end)
		if rows > lim.MaxRows || rows < lim.MinRows || lim.MaxWritesPerS > 0 && writes > lim.MaxWritesPerS ||
			float64(rows)+e.g.GrowthIn(c.start, end)*lim.HorizonS > float64(lim.MaxRows) {
			e.bad = append(e.bad, c.start)
		}
	}
}

// wander makes one or a few random changes to a candidate plan, whether they make the plan better or worse. Without
// such changes the search would stop at the first local optimum.
func (e *editor) wander() {
	for {
		if i := e.pick(); i >= 0 {
			e.edit(i)
		}
		// Mostly one edit: after many, the bad one hides the good ones.
		if e.rng.Intn(5) < 3 {
			return
		}
	}
}

// climb tries a number of random changes of a candidate plan, and keeps those that make the plan better. Without climb,
// a large plan would need about one generation for each of its ranges.
func (e *editor) climb(tries int) {
	// The gain of a change follows from the ranges around the change alone. So thousands of changes cost no more than
	// one evaluation of the whole plan.
	part := editor{search: e.search, rng: e.rng}
	for range tries {
		i := e.pick()
		if i < 0 {
			return
		}
		low, high := e.around(i)
		part.genes = append(append(part.genes[:0], e.genes[low:high]...), gene{start: e.genes[high].start, wall: true})
		part.edit(i - low)
		if e.rng.Intn(4) == 0 { // some changes only pay together
			part.edit(min(i-low, len(part.genes)-2))
		}
		part.done()

		saved := e.tally
		over, under, cost := e.tally.Counts(e.o.Weights)
		for k := low; k < high; k++ {
			c := &e.genes[k]
			e.tally.Remove(c.start, e.genes[k+1].start, c.keep)
		}
		for k := range part.genes[:len(part.genes)-1] {
			c := &part.genes[k]
			e.tally.Add(c.start, part.genes[k+1].start, c.keep)
		}
		over2, under2, cost2 := e.tally.Counts(e.o.Weights)
		if over2 < over || over2 == over && (under2 < under || under2 == under && cost2 < cost) {
			e.genes = slices.Replace(e.genes, low, high, part.genes[:len(part.genes)-1]...)
		} else {
			e.tally = saved
		}
	}
}

// around returns the ranges of a candidate plan that a change of range number i can affect: those with indexes from low
// to below high. These are all ranges that start in the same old partitions as range i and its neighbours.
func (e *editor) around(i int) (low, high int) {
	// Only one range of each partition keeps its id.
	low, high = i, i+1
	if low > 0 && !e.genes[low-1].wall {
		low--
	}
	if !e.genes[high].wall {
		high++
	}
	owner := func(k int) int32 { return e.g.Owner[e.genes[k].start] }
	for low > 0 && !e.genes[low-1].wall && owner(low-1) == owner(low) {
		low--
	}
	for !e.genes[high].wall && owner(high) == owner(high-1) {
		high++
	}
	return low, high
}

// edit makes one random change to range number i of the candidate plan, or to the cuts beside the range: it moves,
// removes or adds a cut, or changes whether the range may keep an id.
func (e *editor) edit(i int) {
	switch e.rng.Intn(7) {
	case 0, 1:
		e.shift(i)
	case 2:
		e.join(i)
	case 3:
		e.cut(i, e.anywhere(i))
	case 4:
		e.divide(i)
	case 5:
		e.genes[i].fresh = !e.genes[i].fresh
	case 6:
		e.even(i)
	}
}

// pick returns the index of a random range of the candidate plan, to be changed. In half of the cases it picks a range
// that breaks a limit. It returns -1 if it finds no range.
func (e *editor) pick() int {
	if len(e.bad) > 0 && e.rng.Intn(2) == 0 {
		start := e.bad[e.rng.Intn(len(e.bad))]
		i := sort.Search(len(e.genes), func(i int) bool { return e.genes[i].start >= start })
		if i < len(e.genes) && e.genes[i].start == start && !e.genes[i].wall {
			return i
		}
	}
	for range 8 {
		if i := e.rng.Intn(len(e.genes)); !e.genes[i].wall {
			return i
		}
	}
	return -1
}

// loose reports whether the cut at the start of range number i of the candidate plan may be moved or removed.
func (e *editor) loose(i int) bool {
	if i == 0 || e.genes[i].wall || e.genes[i-1].wall {
		return false
	}
	p := e.g.Owner[e.genes[i].start]
	return !e.g.Pinned(p) || e.g.First[p] != e.genes[i].start
}

// shift moves the cut at the start of range number i of the candidate plan to a random place. Mostly the place is near;
// sometimes it is anywhere between the cuts before and after.
func (e *editor) shift(i int) {
	if !e.loose(i) {
		return
	}
	low, high := e.genes[i-1].start+1, e.genes[i+1].start-1
	at := e.genes[i].start
	if e.rng.Intn(4) > 0 {
		reach := int32(1 + e.rng.Intn(4))
		low, high = max(low, at-reach), min(high, at+reach)
	}
	if low < high {
		e.genes[i].start = low + e.rng.Int31n(high-low+1)
	}
}

// join merges range number i of the candidate plan with the next range: it removes the cut between the two, if the cut
// may be removed.
func (e *editor) join(i int) {
	if e.loose(i + 1) {
		e.genes = append(e.genes[:i+1], e.genes[i+2:]...)
	}
}

// anywhere returns a random place for a new cut within range number i of the candidate plan. If no cut may lie within
// the range, it returns the start of the range.
func (e *editor) anywhere(i int) int32 {
	start, end := e.genes[i].start, e.genes[i+1].start
	if end-start < 2 {
		return start
	}
	return start + 1 + e.rng.Int31n(end-start-1)
}

// divide cuts range number i of the candidate plan into two to four ranges with about the same number of rows.
func (e *editor) divide(i int) {
	// Single cuts can't always make three ranges, one after the other: after a cut into halves, the minimum may forbid
	// to cut either half again.
	start, end := e.genes[i].start, e.genes[i+1].start
	parts := int64(2 + e.rng.Intn(3))
	if int64(end-start) < parts {
		return
	}
	for a := parts - 1; a > 0; a-- {
		if at := e.fraction(start, end, a, parts); at < e.genes[i+1].start {
			e.cut(i, at)
		}
	}
}

// cut divides range number i of the candidate plan at the position `at` within it. If the position is not above the
// start of the range, nothing changes.
func (e *editor) cut(i int, at int32) {
	if at <= e.genes[i].start {
		return
	}
	second := e.genes[i]
	second.start = at
	e.genes = slices.Insert(e.genes, i+1, second)
}

// fraction returns a position between start and end, such that about the share a/b of the rows between them lies below
// it. For a=1 and b=2 it is the middle. A position is the index of a key at which ranges may begin.
func (e *editor) fraction(start, end int32, a, b int64) int32 {
	rows := e.g.RowsIn(start, end)
	want := rows/b*a + rows%b*a/b
	n := sort.Search(int(end-start), func(n int) bool { return e.g.RowsIn(start, start+int32(n)) >= want })
	return min(max(start+int32(n), start+1), end-1)
}

// even moves the cut between range number i of the candidate plan and the range before it, so that both have about the
// same number of rows.
func (e *editor) even(i int) {
	if !e.loose(i) {
		return
	}
	low, high := e.genes[i-1].start, e.genes[i+1].start
	if high-low > 2 {
		e.genes[i].start = e.fraction(low, high, 1, 2)
	}
}
