package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
)

// A Stream is a place at which a range grows: a run of neighbouring rows that are all new. Examples are keys with a
// rising number below a prefix, keys that begin with a reversed time, or keys that begin with a date.
//
// A split in the middle of a range that grows at one place helps little: the rows are moved, but one half never grows
// again, and the other half is soon full. So the range is cut beside the place that grows:
//
//	old old old [new new new] old old        a range, and the stream in it
//	old old old  new new new | old old       keys ascend: cut right above
//	old old old | new new new  old old       keys descend: cut right below
type Stream struct {
	// Start and End are the bounds of the stream's rows, which lie where new keys have come so far. An empty Start or
	// End is the bound of the range.
	Start, End []byte
	// Dir is the direction of the stream: 1 if keys ascend with time, -1 if keys descend, 0 if keys come in no order.
	Dir int
	// Share is the share of the newest rows of the range that belong to the stream, from 0 to 1.
	Share float64
}

// run is a place where a range grows (a Stream), as a part of the range's rows. The rows are known as a list of quanta,
// which are runs of neighbouring rows. The stream consists of the quanta from the index `from` to below the index `to`.
type run struct {
	Stream
	from, to int
}

const (
	// recent sets how many rows of a range count as newest: 1/8 of all rows, but at least 16 rows (fewestNewest).
	recent       = 8
	fewestNewest = 16
	// mostStreams is the maximum number of places of growth (streams) that are told apart in one range. Growth at more
	// places counts as growth everywhere, since to cut all the places apart would copy the whole range.
	mostStreams = 2
	// enough is the least share of the newest rows that all places of growth (streams) of a range must have together.
	// each is the least share that a single place must have.
	enough, each = 0.8, 0.2
	// inOrder is the least majority of quanta (runs of rows) that follow each other in one direction over those in the
	// other direction, as a share of all quanta. With a smaller majority, new keys count as unordered.
	inOrder = 0.6
	// overhead is the fixed cost of a move, apart from its rows, for swaps and waits. The unit is the cost to copy the
	// maximum number of rows.
	overhead = 0.01
	// local is the least share of a range's growth that a part of the range must have to be cut off with fewer rows
	// than the minimum. The part will soon grow.
	local = 0.75
	// dense is the least ratio of a part's share of the growth to its share of the rows, if the part is to be cut off
	// before the range is full. A lower ratio may be chance.
	dense = 1.5
	// few is the number of parts up to which a range is better cut one part at a time, at the place that grows.
	few = 3
	// slowFor is the time, as a multiple of Policy.Lead, for which both parts must have room if a cut beside a slowly
	// growing place is left out.
	slowFor = 20
)

// newest returns an estimate of how many of a range's newest rows lie in each of its quanta. q are these quanta, which
// are runs of neighbouring rows. sum is the sum of the estimates. The result rows is nil if
//   - the times at which the rows were written are unknown or all the same, or
//   - the range has few rows.
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
	var since, n int64
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
		default: // as if the rows had come evenly over time
			rows[i] = max(1, float64(x.Rows)*float64(x.Newest-since)/float64(x.Newest-x.Oldest))
		}
		sum += rows[i]
	}
	return rows, sum
}

// streams returns the places at which a range grows. q are the quanta of the range, which are runs of neighbouring
// rows. The result is nil if
//   - there are more than two such places, or
//   - these places hold more than half of all rows, or
//   - these places get less than 80 % of the new rows.
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

// direction returns the order in which new rows came to some neighbouring quanta, which are runs of rows. The result is
// 1 if keys ascend with time, -1 if keys descend, and 0 if keys come in no order.
func direction(q []counter.Quantum) int {
	up, down := 0, 0
	last := int64(0)
	for i := range q {
		if q[i].Rows == 0 {
			continue
		}
		at := q[i].Oldest/2 + q[i].Newest/2
		switch {
		case last == 0:
		case at > last:
			up++
		case at < last:
			down++
		}
		last = at
	}
	// Where many rows have the same time, few quanta differ in time, and they do not count.
	n := up + down
	if n == 0 || n < 3 && len(q) < 8 {
		return 0
	}
	switch most := inOrder * float64(n); {
	case float64(up-down) >= most:
		return 1
	case float64(down-up) >= most:
		return -1
	}
	return 0
}

// beside sets the keys at which the decision d cuts range r, if the range grows at one or two places. The result is
// false if no cut was found. The cut lies right above a place whose new keys ascend, and right below a place whose new
// keys descend. So new keys have room up to the next old row. If keys come in no order, the method half finds the cut.
// The largest part stays in its partition.
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
	at = p.fewer(r, at)
	at = p.full(q, at, found[0].Dir)
	if len(at) == 0 {
		return false
	}
	d.Streams = cut
	d.cut(q, at)
	d.Text += "; it grows at one place, beside which it is cut"
	return true
}

// fewer returns the cuts in `at` without one of them, if range r grows slowly and has room for long without the first
// or the last cut. Otherwise it returns all of them. The cuts lie beside the places where the range grows; each is the
// index of the quantum (run of rows) before which it lies.
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

// full returns the given cuts with additional ones, so that no part of a range has more rows than the maximum. The
// parameters are:
//   - q: the quanta of the range, which are runs of rows
//   - at: the given cuts, each as the index of the quantum before which it lies
//   - dir: 1 where keys ascend, -1 where keys descend
func (p *Policy) full(q []counter.Quantum, at []int, dir int) (out []int) {
	// Parts that growth has passed get no more rows, so these parts are made as full as possible.
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

// half cuts range r in two if the range grows in one region but in no order of keys, for example below the date of the
// day. Of all cuts, half takes the cut that gains the most room for growth per row moved. The result is false if no cut
// was found.
func (p *Policy) half(r *Range, d *Decision) bool {
	// The room of a cut is the sum of -ln(rows/max) over both parts, each weighted by the part's share of the growth.
	// The room tells about how many times a part can double. For even growth the room is the entropy of the shares,
	// which determines the number of splits of a load.
	at, denser := p.place(r.Quanta)
	if at == 0 || r.Stats.Spread >= p.Spread && (denser < dense || d.Parts > few) {
		return false
	}
	d.cut(r.Quanta, []int{at})
	d.Text += "; where it grows goes to a partition of its own"
	return true
}

// place returns where the method half cuts a range with the quanta q, which are runs of rows. The results are:
//   - at: the index of the quantum before which the cut lies, or 0 if there is no cut
//   - denser: the share of the new rows that one of the two parts gets, divided by its share of all rows
//
// For example, denser is 2 if a part with 40 % of the rows gets 80 % of the new rows.
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
			continue // a part that does not grow would stay too small
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
