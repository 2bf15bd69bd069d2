package plannertest

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/rebalance"
)

// A Verdict is the quality of a plan by the rows objective, computed from the definition of that objective. A lower
// value is better, and the first field that differs decides.
type Verdict struct {
	OverMax, UnderMin int
	RowsMoved         int64
	Ranges            int
	Squares           [2]uint64 // 128 bits, the high half first
}

// Square adds the square of n to Squares.
func (v *Verdict) Square(n int64) {
	u := uint64(n)
	if n < 0 {
		u = -u
	}
	high, low := bits.Mul64(u, u)
	var carry uint64
	v.Squares[1], carry = bits.Add64(v.Squares[1], low, 0)
	v.Squares[0], _ = bits.Add64(v.Squares[0], high, carry)
}

// Less reports whether v is better than w.
func (v Verdict) Less(w Verdict) bool {
	a, b := [...]uint64{uint64(v.OverMax), uint64(v.UnderMin), uint64(v.RowsMoved), uint64(v.Ranges), v.Squares[0],
		v.Squares[1]},
		[...]uint64{uint64(w.OverMax), uint64(w.UnderMin), uint64(w.RowsMoved), uint64(w.Ranges), w.Squares[0],
			w.Squares[1]}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// An Oracle finds the best plan for a small layout by brute force. It tries every set of cuts, and for each set every
// choice of which part, if any, keeps each old id. It shares no code with the planners.
type Oracle struct {
	limits rebalance.Limits
	keys   []rebalance.Key
	rows   []int64 // of the atom from each key to the next
	owner  []int   // partition of each atom
	start  []int   // atom at which each partition starts
	pinned []bool
	ids    []string
}

// NewOracle returns an oracle for the layout l.
func NewOracle(l *rebalance.Layout, limits rebalance.Limits) *Oracle {
	o := &Oracle{limits: limits}
	var all int64
	for i, p := range l.Partitions {
		o.start = append(o.start, len(o.keys))
		o.pinned = append(o.pinned, p.Pinned)
		o.ids = append(o.ids, p.ID)
		atoms := p.Quanta
		if len(atoms) == 0 || atoms[0].Key > p.Start {
			atoms = append([]rebalance.Quantum{{Key: p.Start}}, atoms...)
		}
		for _, q := range atoms {
			o.keys, o.rows, o.owner = append(o.keys, q.Key), append(o.rows, q.Rows), append(o.owner, i)
			all += q.Rows
		}
	}
	if all < limits.MinRows {
		o.limits.MinRows = 0
	}
	return o
}

// Best returns the best verdict that any plan can get.
func (o *Oracle) Best() Verdict {
	best, found := Verdict{}, false
	var must uint
	for p, s := range o.start {
		if s > 0 && o.pinned[p] {
			must |= 1 << (s - 1)
		}
	}
	for cuts := uint(0); cuts < 1<<(len(o.keys)-1); cuts++ {
		if cuts&must != must {
			continue
		}
		bounds := []int{0}
		for i := 1; i < len(o.keys); i++ {
			if cuts&(1<<(i-1)) != 0 {
				bounds = append(bounds, i)
			}
		}
		bounds = append(bounds, len(o.keys))
		o.eachKeep(bounds, 0, make([]int, len(bounds)-1), func(keeps []int) {
			if v := o.judge(bounds, keeps); !found || v.Less(best) {
				best, found = v, true
			}
		})
	}
	return best
}

// eachKeep calls f with every choice of which range keeps the id of partition p, and of the partitions after p.
// keeps[i] is 0, or 1 plus the number of the partition whose id range i keeps.
func (o *Oracle) eachKeep(bounds []int, p int, keeps []int, f func([]int)) {
	if p == len(o.start) {
		f(keeps)
		return
	}
	o.eachKeep(bounds, p+1, keeps, f)
	for i := range keeps {
		if o.owner[bounds[i]] == p && o.owner[bounds[i+1]-1] == p {
			keeps[i] = p + 1
			o.eachKeep(bounds, p+1, keeps, f)
			keeps[i] = 0
		}
	}
}

func (o *Oracle) judge(bounds, keeps []int) Verdict {
	var v Verdict
	for i, kept := range keeps {
		var rows int64
		filled := 0
		for a := bounds[i]; a < bounds[i+1]; a++ {
			rows += o.rows[a]
			if o.rows[a] > 0 {
				filled++
			}
		}
		if rows > o.limits.MaxRows && filled > 1 {
			v.OverMax++
		}
		if rows < o.limits.MinRows && (kept == 0 || !o.pinned[kept-1]) {
			v.UnderMin++
		}
		if kept == 0 {
			v.RowsMoved += rows
		}
		v.Ranges++
		v.Square(rows - o.limits.TargetRows)
	}
	return v
}

// Judge returns the verdict on the plan p, which must be a valid plan.
func (o *Oracle) Judge(p *rebalance.Plan) Verdict {
	var bounds, keeps []int
	for _, r := range p.Ranges {
		for a, k := range o.keys {
			if k == r.Start {
				bounds = append(bounds, a)
			}
		}
		kept := 0
		for i, id := range o.ids {
			if id == r.ID {
				kept = i + 1
			}
		}
		keeps = append(keeps, kept)
	}
	return o.judge(append(bounds, len(o.keys)), keeps)
}
