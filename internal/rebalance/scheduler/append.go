package scheduler

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/forecast"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Append describes rows that clients will append in the future, e.g. 1,000 rows per second for an hour. An operator
// asks to cut empty ranges for these rows in advance (Presplit).
type Append struct {
	// RowsPerSecond is the number of rows that will be appended per second. ForS is the number of seconds for which
	// rows will be appended.
	RowsPerSecond float64 `json:"rows_per_second"`
	ForS          float64 `json:"for_s"`
	// MaxRows is the maximum number of rows of a partition, at least 10. The cuts leave room for nine tenths of MaxRows
	// in each partition.
	MaxRows int64 `json:"max_rows,omitempty"`
	// Like are sample keys in ascending order, below the new keys. If Like is empty, the highest keys of the bucket are
	// the sample.
	Like keytext.Keys `json:"like,omitempty"`
}

// rows returns the total number of rows that will be appended, which is the rate multiplied by the time.
func (a *Append) rows() float64 { return a.RowsPerSecond * a.ForS }

// Learned describes how the keys of a bucket grow, as derived from sample keys, e.g. by a number or a time in the keys.
type Learned struct {
	// Method is the method of the forecast: number, clock or calendar. How describes the growth of the keys for people.
	Method forecast.Method `json:"method"`
	How    string          `json:"how"`
	// Sure is the certainty of the forecast of the next keys, from 0 to 1.
	Sure float64 `json:"sure"`
	// Keys is the number of existing keys from which the forecast of the next keys was made.
	Keys int `json:"from_keys"`
	// Each is the number of rows for which the cuts leave room in each partition.
	Each int64 `json:"rows_each"`
	// Late is the number of rows by which the first cut comes later than wanted, because the keys of the present hour
	// or day come in no order.
	Late int64 `json:"late_rows,omitempty"`
}

const (
	// mostAhead is the maximum number of partitions that one request of an operator prepares for future rows.
	mostAhead = 4000
	// learnFrom is the maximum number of keys from which a forecast of the next keys is made.
	learnFrom = 5000
)

// length returns the time for which rows will be appended, for texts. The result is at most 1e9 seconds.
func (a *Append) length() time.Duration {
	return time.Duration(min(a.ForS, 1e9) * float64(time.Second))
}

// Check returns an InvalidArgument error if a value of the Append is not valid, or if the rows need more than 4,000
// partitions (mostAhead).
func (a *Append) Check() error {
	switch {
	case !(a.RowsPerSecond > 0) || math.IsInf(a.RowsPerSecond, 0):
		return invalid("the rate of appends has to be above 0, not %v rows per second", a.RowsPerSecond)
	case !(a.ForS > 0):
		return invalid("for how long rows are to be appended has to be above 0, not %v", a.length())
	case a.MaxRows < 10:
		return invalid("a partition has to have room for 10 rows at least, not %d", a.MaxRows)
	}
	if n := a.rows() / (forecast.Fill * float64(a.MaxRows)); n > mostAhead {
		return invalid("%.3g rows per second for %v would need %.0f partitions of %d rows: more than %d are not prepared at "+
			"once; give a shorter time, and ask again before it is over",
			a.RowsPerSecond, a.length(), math.Ceil(n), a.MaxRows, mostAhead)
	}
	return nil
}

// appends plans cuts for the future rows that a describes, beyond the highest key of the bucket. If a has sample keys
// (Like), the cuts lie beyond the sample keys instead.
func (p *planner) appends(a *Append) error {
	if err := a.Check(); err != nil {
		return err
	}
	each := forecast.Fill * float64(a.MaxRows)
	want := forecast.Options{
		First: each, Each: each, N: max(1, int(math.Ceil(a.rows()/each))),
		RowsPerSecond: a.RowsPerSecond, Now: time.Now(),
	}
	if len(a.Like) > 0 {
		f, err := forecast.Ahead(a.Like, want)
		if err != nil {
			return unforeseen(err)
		}
		p.learned(f, len(a.Like), each)
		return p.presplit(f.Cuts)
	}
	recent, ranges, err := p.recent(&want)
	if err != nil {
		return err
	}
	if len(recent) == 0 {
		return invalid("the bucket is empty, so nothing can be learned from its keys: give keys like those to come (--like), " +
			"or the cuts themselves (--at-file)")
	}
	c, err := p.g.count(p.ctx, p.root.Bucket, &ranges[0], nil)
	if err != nil {
		return err
	}
	want.First = max(0, each-float64(c.rows))
	f, cuts, err := p.between(recent, ranges[1:], want, a.rows())
	if err != nil {
		return err
	}
	p.learned(f, len(recent), each)
	if len(cuts) == 0 {
		p.note("cuts lie ahead already, for all of these rows")
		return nil
	}
	// The ranges above that of the highest key are empty.
	rows := c.rows
	for i := range ranges {
		rg := &ranges[i]
		n := 0
		for n < len(cuts) && rg.Contains(cuts[n]) {
			n++
		}
		if n > 0 {
			if err := p.settled(rg); err != nil {
				return err
			}
			below := make([]int64, n+1)
			below[0] = rows
			p.add(move.Goal{Start: rg.Start, End: rg.End, Cuts: cuts[:n:n], PinUntil: p.pin}, below)
			cuts = cuts[n:]
		}
		rows = 0
	}
	return nil
}

// learned records in the plan how the keys grow by the forecast f, for the operator. keys is the number of keys from
// which the forecast was made. The parameter each is the number of rows for which the cuts leave room in each
// partition.
func (p *planner) learned(f *forecast.Forecast, keys int, each float64) {
	p.plan.Learned = &Learned{Method: f.Method, How: f.How, Sure: f.Sure, Keys: keys, Each: int64(each), Late: int64(f.Late)}
	p.note("learned from %d keys: %s", keys, f.How)
	if f.Late >= 1 {
		p.note("the first cut comes some %.0f rows late: the keys of the present hour or day come in no order", f.Late)
	}
}

// unforeseen adds advice for the operator to the error of a forecast, if the next keys can't be forecast. It returns
// any other error as it is.
func unforeseen(err error) error {
	if _, ok := errors.AsType[*forecast.Unpredictable](err); ok {
		return invalid("%w. Give the cuts themselves (--at-file), or other keys to learn from (--like)", err)
	}
	return err
}

// recent returns the highest keys of the bucket in ascending order, at most 5,000 (learnFrom). The times at which they
// were written are stored in o, the options of the forecast. The result ranges has the range with the highest key, and
// all ranges above.
func (p *planner) recent(o *forecast.Options) (keys [][]byte, ranges []partmap.Range, err error) {
	// No key lies above this one.
	rg, err := p.holding(bytes.Repeat([]byte{0xff}, store.MaxKeyBytes))
	for found := true; err == nil && found && len(keys) < learnFrom; rg, found, err = p.g.maps.RangeBefore(p.ctx, p.root, rg.Start) {
		if err := p.settled(&rg); err != nil {
			if len(keys) > 0 {
				break // enough to learn from, perhaps
			}
			return nil, nil, err
		}
		none := len(keys) == 0
		newest := store.SliceOptions{Reverse: true, Timestamps: true}
		err = p.g.rows(p.ctx, p.root.Bucket, &rg, newest, func(r *store.Row) bool {
			keys = append(keys, bytes.Clone(r.Key))
			o.Written = append(o.Written, int64(r.Timestamp))
			return len(keys) < learnFrom
		})
		if err != nil {
			return nil, nil, err
		}
		if none {
			ranges = append(ranges, rg)
		}
	}
	slices.Reverse(keys)
	slices.Reverse(o.Written)
	slices.Reverse(ranges)
	return keys, ranges, err
}

// between returns a forecast of the next keys, and the cuts (keys at which to make empty ranges) that are needed for
// them. Existing empty ranges count; one of them is divided if too many rows would come into it. The parameters are:
//   - recent: the highest keys of the bucket
//   - ahead: the existing empty ranges above these keys
//   - want: the settings of the forecast
//   - total: the number of rows to come
func (p *planner) between(
	recent [][]byte, ahead []partmap.Range, want forecast.Options, total float64,
) (f *forecast.Forecast, cuts [][]byte, err error) {
	if len(ahead) == 0 {
		if f, err = forecast.Ahead(recent, want); err != nil {
			return nil, nil, unforeseen(err)
		}
		return f, f.Cuts, nil
	}
	// Rows are measured in cuts that are finer than wanted: as fine as can be forecast.
	for _, parts := range []float64{16, 4, 1} {
		fine := want
		fine.Each = want.Each / parts
		fine.First = math.Mod(want.First, fine.Each)
		fine.N = min(forecast.MostCuts, int(2*max(total, want.First)/fine.Each)+2) // each cut may be for fewer rows
		if f, err = forecast.Ahead(recent, fine); err == nil {
			cuts = divide(f, ahead, want.First, want.Each, total)
			f.Late = max(0, f.Rows[0]-want.First)
			return f, cuts, nil
		}
	}
	return nil, nil, unforeseen(err)
}

// divide chooses the cuts (keys at which to make empty ranges) for the next rows, from the closely spaced cuts of the
// forecast f. The other parameters are:
//   - there: the existing empty ranges for these rows, which are cut already
//   - first: the number of rows for which the range with the highest key has room
//   - each: the number of rows for which each of the other ranges has room
//   - total: the number of the next rows
func divide(f *forecast.Forecast, there []partmap.Range, first, each, total float64) (cuts [][]byte) {
	next := 0 // fine cut
	last := 0.0
	take := func(rows float64) {
		at := max(next, sort.Search(len(f.Rows), func(i int) bool { return f.Rows[i] > rows })-1)
		if next = at + 1; at < len(f.Cuts) {
			cuts, last = append(cuts, f.Cuts[at]), f.Rows[at]
		}
	}
	room := first
	for ; len(there) > 0; there = there[1:] {
		at := sort.Search(len(f.Cuts), func(i int) bool { return bytes.Compare(f.Cuts[i], there[0].Start) >= 0 })
		if at == len(f.Cuts) {
			break
		}
		rows := f.Rows[at]
		if at > 0 && !bytes.Equal(f.Cuts[at], there[0].Start) {
			rows = (rows + f.Rows[at-1]) / 2
		}
		const enough = 0.1 // a tenth of a partition more than each is not worth a cut
		if more := math.Ceil((rows-last-room)/each - enough); more > 0 {
			// The gap is divided into the number of parts that is needed, all of the same size.
			from, scale := last, (rows-last)/(room+more*each)
			for i := range int(more) {
				if next < at {
					take(min(f.Rows[at-1], from+scale*(room+float64(i)*each)))
				}
			}
		}
		next, last, room = max(next, at), max(last, rows), each
		if next < len(f.Cuts) && bytes.Equal(f.Cuts[next], there[0].Start) {
			next++
		}
	}
	for last+room < total && next < len(f.Cuts) {
		take(last + room)
		room = each
	}
	return cuts
}
