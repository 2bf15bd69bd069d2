package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// A Stream is a place at which a range grows: a run of quanta that have new rows only. If a range grows at one place,
// as with counters below a prefix, reversed times or a leading date, halving it moves each row about once: one half
// never grows again, the other is soon full. So the cut goes beside the place that grows.
type Stream struct {
	// Start and End bound its rows, which are where it came from; empty: the bounds of the range.
	Start, End []byte
	// Dir is 1 where keys ascend, -1 where they descend, 0 where they come in no order.
	Dir int
	// Share of the newest rows of the range.
	Share float64
}

// run is a stream with its quanta.
type run struct {
	Stream
	from, to int
}

const (
	// recent is the share of the rows that is looked at: the newest eighth, fewestNewest at least.
	recent       = 8
	fewestNewest = 16
	// mostStreams are told apart in one range. More look like growth everywhere: cutting them all apart would copy the
	// whole range.
	mostStreams = 2
	// enough is the least share of the newest rows that streams have together, each that of one of them.
	enough, each = 0.8, 0.2
	// inOrder is by how much quanta that follow each other in time must outnumber the others for a direction.
	inOrder = 0.6
	// overhead is the cost of a move's swaps and waits, as a share of the maximum.
	overhead = 0.01
	// local is the share of the growth from which a part may be smaller than the minimum: it will not be for long.
	local = 0.75
	// dense is by how many times denser than its rows the growth of a part must be to be cut off before the range is
	// full: it is not by chance.
	dense = 1.5
	// few parts are as well cut off one by one, where the growth is.
	few = 3
	// slowFor is for how many times Lead a part has room for slow streams.
	slowFor = 20
)

// newest returns about how many of the newest rows each quantum has; nil: that is unknown.
func newest(q []counter.Quantum) (rows []float64, sum float64) {
	var order []int
	all := int64(0)
	oldest, latest := int64(math.MaxInt64), int64(0)
	for i := range q {
		if q[i].Rows == 0 {
			continue
		}
		if q[i].Oldest <= 0 || q[i].Newest < q[i].Oldest {
			return nil, 0
		}
		oldest, latest = min(oldest, q[i].Oldest), max(latest, q[i].Newest)
		all += q[i].Rows
		order = append(order, i)
	}
	if all < 2*fewestNewest || oldest == latest {
		return nil, 0
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(q[b].Oldest, q[a].Oldest) })
	since, n := int64(0), int64(0)
	for _, i := range order {
		if since = q[i].Oldest; n >= max(fewestNewest, all/recent) {
			break
		}
		n += q[i].Rows
	}
	rows = make([]float64, len(q))
	for i := range q {
		switch x := &q[i]; {
		case x.Rows == 0 || x.Newest <= since:
		case x.Oldest >= since:
			rows[i] = float64(x.Rows)
		default: // as if they had come evenly
			rows[i] = max(1, float64(x.Rows)*float64(x.Newest-since)/float64(x.Newest-x.Oldest))
		}
		sum += rows[i]
	}
	return rows, sum
}

// streams returns the places at which a range grows, if these are few and small, and take nearly all that comes.
func streams(q []counter.Quantum) (found []run) {
	came, sum := newest(q)
	if sum == 0 {
		return nil
	}
	share, had := 0.0, int64(0)
	for i := 0; i < len(q); i++ {
		if came[i] == 0 || 2*came[i] < float64(q[i].Rows) {
			continue
		}
		s := run{from: i}
		n, here := 0.0, int64(0)
		gap := 0
		for k := i; k < len(q) && gap <= 1; k++ {
			switch {
			case came[k] > 0 && 2*came[k] >= float64(q[k].Rows):
				s.to, gap = k+1, 0
			case q[k].Rows > 0:
				gap++
			}
		}
		for k := s.from; k < s.to; k++ {
			n += came[k]
			here += q[k].Rows
		}
		i = s.to - 1
		if s.Share = n / sum; s.Share < each {
			continue
		}
		s.Dir = direction(q[s.from:s.to])
		s.Start = q[s.from].Key
		if s.to < len(q) {
			s.End = q[s.to].Key
		}
		found = append(found, s)
		share += s.Share
		had += here
	}
	if share < enough || len(found) > mostStreams || 2*had > rows(q) {
		return nil
	}
	return found
}

// direction tells in which order the rows of a run of quanta came.
func direction(q []counter.Quantum) int {
	up, down := 0, 0
	last := int64(0)
	for i := range q {
		if q[i].Rows == 0 {
			continue
		}
		at := q[i].Oldest/2 + q[i].Newest/2
		switch {
		case last == 0 || at == last:
		case at > last:
			up++
		default:
			down++
		}
		last = at
	}
	// Few differ where many rows have the same time.
	if n := up + down; n == 0 || n < 3 && len(q) < 8 || math.Abs(float64(up-down)) < inOrder*float64(n) {
		return 0
	}
	if up > down {
		return 1
	}
	return -1
}

// beside cuts a range beside the streams in it: right above one that ascends, right below one that descends. So a
// stream has a range of its own, with room up to the next old row, which is rolled when it is full; and what is full
// stays where it is.
func (p *Policy) beside(r *Range, d *Decision) bool {
	q := r.Quanta
	found := streams(q)
	if len(found) == 0 {
		return p.half(r, d)
	}
	var at []int
	var cut []Stream
	for _, s := range found {
		cut = append(cut, s.Stream)
		switch {
		case s.Dir > 0 && s.to < len(q):
			at = append(at, s.to)
		case s.Dir < 0 && s.from > 0:
			if q[s.from-1].Rows == 0 && s.from > 1 {
				at = append(at, s.from-1)
			}
			at = append(at, s.from)
		case s.Dir < 0:
			at = append(at, 1)
		case s.Dir == 0:
			return p.half(r, d)
		}
	}
	slices.Sort(at)
	at = p.fewer(r, slices.Compact(at))
	at = p.full(q, at, found[0].Dir)
	if len(at) == 0 {
		return false
	}
	d.Streams = cut
	d.cut(q, at)
	d.Text += "; it grows at one place, beside which it is cut"
	return true
}

// fewer leaves out the cut at the end of the outermost of several streams that are slow: the parts have room for long.
func (p *Policy) fewer(r *Range, at []int) []int {
	n := len(at)
	if n < 2 {
		return at
	}
	long := func(part []counter.Quantum) bool {
		n := rows(part)
		return n <= p.TargetRows && float64(p.MaxRows-n) > r.Stats.PutsPerS*slowFor*p.Lead.Seconds()
	}
	switch q := r.Quanta; {
	case long(q[at[n-2]:]) && long(q[:at[n-2]]):
		return at[:n-1]
	case long(q[:at[1]]) && long(q[at[1]:]):
		return at[1:]
	}
	return at
}

// full adds cuts such that no part has more than the maximum. Where a stream has passed nothing will come: all parts
// are as full as can be but the one at its end.
func (p *Policy) full(q []counter.Quantum, at []int, dir int) (out []int) {
	from := 0
	for k := range len(at) + 1 {
		to := len(q)
		if k < len(at) {
			to = at[k]
		}
		if n := rows(q[from:to]); n > p.MaxRows {
			most := max(1, int64(forecast.Fill*float64(p.MaxRows)))
			below := int64(0)
			next := most
			if dir < 0 {
				next = n - (n-1)/most*most
			}
			for i := from; i < to; i++ {
				if below > 0 && below+q[i].Rows > next {
					out = append(out, i)
					next = below + most
				}
				below += q[i].Rows
			}
		}
		if k < len(at) {
			out = append(out, to)
		}
		from = to
	}
	return out
}

// half cuts a range in two where its growth is local but in no order, as below the date of the day: of all cuts the one
// that gains the most room for growth per row moved.
//
// Room is -ln(rows/max) of each part, weighted by its share of the growth: about how many times it can double. For even
// growth that is the entropy of the shares, which determines the number of splits of a load.
func (p *Policy) half(r *Range, d *Decision) bool {
	at, denser := p.place(r.Quanta)
	if at == 0 || r.Stats.Spread >= p.Spread && (denser < dense || d.Parts > few) {
		return false
	}
	d.cut(r.Quanta, []int{at})
	d.Text += "; where it grows goes to a partition of its own"
	return true
}

// place returns where half cuts, 0 for nowhere, and by how many times denser the growth of a part is than its rows.
func (p *Policy) place(q []counter.Quantum) (at int, denser float64) {
	came, sum := newest(q)
	if sum == 0 {
		return 0, 0
	}
	all := rows(q)
	best := 0.0
	low, grown := int64(0), 0.0
	for k := 1; k < len(q); k++ {
		low += q[k-1].Rows
		grown += came[k-1] / sum
		high := all - low
		if low <= 0 || high <= 0 || max(low, high) > p.MaxRows {
			continue
		}
		if low < p.MinRows && grown < local || high < p.MinRows && 1-grown < local {
			continue // what does not grow would stay too small
		}
		gain := -grown*math.Log(float64(low)/float64(p.MaxRows)) - (1-grown)*math.Log(float64(high)/float64(p.MaxRows))
		if gain /= float64(min(low, high)) + overhead*float64(p.MaxRows); gain > best {
			best, at = gain, k
			share := float64(low) / float64(all)
			denser = max(grown/share, (1-grown)/(1-share))
		}
	}
	return at, denser
}
