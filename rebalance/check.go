package rebalance

import (
	"fmt"
	"sort"
)

// Check returns all faults of the plan p, or nil if it has none. A fault is e.g. that two ranges have the same start.
// The parameters l and limits are the layout and the limits for which the plan was made. Every plan of a planner is
// checked, to find bugs of the planner.
func Check(l *Layout, limits Limits, p *Plan) Problems {
	// For this reason Check shares no code with planners.
	c := checker{l: l, p: p, partition: map[string]int{}, kept: map[string]int{}}
	for i := range l.Partitions {
		c.partition[l.Partitions[i].ID] = i
	}
	c.flatten()
	if c.tiling() {
		c.pins()
		c.ranges(limits)
		c.moves()
	}
	return c.problems
}

type checker struct {
	l         *Layout
	p         *Plan
	problems  Problems
	partition map[string]int // the index of each partition in the layout, by its id
	kept      map[string]int // the index of the plan's range that keeps an old id, by this id

	keys  []Key   // keys at which cuts may lie, in order
	sums  []int64 // number of rows below each key, and of all rows at the end
	atoms []int   // number of atoms with rows below each key
}

func (c *checker) add(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{path, fmt.Sprintf(format, args...)})
}

func (c *checker) flatten() {
	c.sums, c.atoms = []int64{0}, []int{0}
	put := func(k Key, rows int64) {
		n := len(c.keys)
		c.keys = append(c.keys, k)
		c.sums = append(c.sums, c.sums[n]+rows)
		c.atoms = append(c.atoms, c.atoms[n]+int(min(rows, 1)))
	}
	for i := range c.l.Partitions {
		q := c.l.Partitions[i].Quanta
		if len(q) == 0 || q[0].Key != c.l.Partitions[i].Start {
			put(c.l.Partitions[i].Start, 0)
		}
		for _, q := range q {
			put(q.Key, q.Rows)
		}
	}
}

// find returns the index of the key k in the sorted list of keys at which ranges may begin, and true. If k is not in
// the list, find returns the index of the next higher key, and false.
func (c *checker) find(k Key) (int, bool) {
	i := sort.Search(len(c.keys), func(i int) bool { return c.keys[i] >= k })
	return i, i < len(c.keys) && c.keys[i] == k
}

// tiling checks that the ranges of the plan cover all keys without gap or overlap, and that each range begins at a key
// at which ranges may begin. It records the faults, and returns true if there are none.
func (c *checker) tiling() bool {
	before := len(c.problems)
	if c.p.Bucket != c.l.Bucket {
		c.add("bucket", "is %q, the layout's is %q", c.p.Bucket, c.l.Bucket)
	}
	if len(c.p.Ranges) == 0 {
		c.add("partitions", "there must be at least one")
	}
	for i, r := range c.p.Ranges {
		path := fmt.Sprintf("partitions[%d].start", i)
		switch {
		case i == 0 && r.Start != "":
			c.add(path, "is %q: no partition holds the keys below it", r.Start)
		case i > 0 && r.Start <= c.p.Ranges[i-1].Start:
			c.add(path, "is %q, not above the start before it, %q", r.Start, c.p.Ranges[i-1].Start)
		}
		if _, ok := c.find(r.Start); !ok {
			c.add(path, "is %q: neither the key of a quantum nor a start of the layout", r.Start)
		}
	}
	return len(c.problems) == before
}

func (c *checker) pins() {
	starts := make(map[Key]bool, len(c.p.Ranges))
	for _, r := range c.p.Ranges {
		starts[r.Start] = true
	}
	for i, p := range c.l.Partitions {
		if p.Pinned && !starts[p.Start] {
			c.add("partitions", "none starts at %q, which partitions[%d] of the layout pins", p.Start, i)
		}
	}
}

// end returns the key at which range number i of the plan ends. An empty key is plus infinity.
func (c *checker) end(i int) Key {
	if i+1 < len(c.p.Ranges) {
		return c.p.Ranges[i+1].Start
	}
	return ""
}

// bounds returns the bounds of range number i of the plan, as indexes in the list of keys at which ranges may begin.
// The range reaches from the key with the index `from` up to the key with the index `to`.
func (c *checker) bounds(i int) (from, to int) {
	from, _ = c.find(c.p.Ranges[i].Start)
	to = len(c.keys)
	if i+1 < len(c.p.Ranges) {
		to, _ = c.find(c.p.Ranges[i+1].Start)
	}
	return from, to
}

func (c *checker) ranges(limits Limits) {
	fresh := map[string]bool{}
	for i, r := range c.p.Ranges {
		path := fmt.Sprintf("partitions[%d]", i)
		from, to := c.bounds(i)
		if rows := c.sums[to] - c.sums[from]; rows != r.Rows {
			c.add(path+".rows", "is %d, the layout has %d there", r.Rows, rows)
		}
		if c.sums[to]-c.sums[from] > limits.MaxRows && c.atoms[to]-c.atoms[from] > 1 {
			c.add(path+".rows", "is %d, over max_rows %d, and can be divided", r.Rows, limits.MaxRows)
		}
		old, isOld := c.partition[r.ID]
		switch {
		case r.ID == "":
			c.add(path+".id", "is empty")
		case !isOld && fresh[r.ID]:
			c.add(path+".id", "%q is the id of another range too", r.ID)
		case !isOld:
			fresh[r.ID] = true
		default:
			if j, twice := c.kept[r.ID]; twice {
				c.add(path+".id", "%q is kept by partitions[%d] already: an old id keeps one contiguous part", r.ID, j)
			}
			c.kept[r.ID] = i
			start, end := c.old(old)
			if r.Start < start || !atMost(c.end(i), end) {
				c.add(path+".id", "%q receives keys: it held [%q, %q) and would hold [%q, %q)",
					r.ID, start, end, r.Start, c.end(i))
			}
		}
	}
}

// atMost reports whether a, the end of a range, is at most b, the end of another range. An empty end is plus infinity.
func atMost(a, b Key) bool { return b == "" || (a != "" && a <= b) }

func (c *checker) old(i int) (start, end Key) {
	if i+1 < len(c.l.Partitions) {
		end = c.l.Partitions[i+1].Start
	}
	return c.l.Partitions[i].Start, end
}

// moves checks the moves of the plan. The plan must have a move for each piece of today's ranges that goes to another
// partition, and no other move.
func (c *checker) moves() {
	var want []Move
	var rows int64
	i := 0
	for j := range c.p.Ranges {
		start := c.p.Ranges[j].Start
		for {
			from := &c.l.Partitions[i]
			_, oldEnd := c.old(i)
			end := c.end(j)
			done := atMost(end, oldEnd)
			if !done {
				end = oldEnd
			}
			if from.ID != c.p.Ranges[j].ID {
				a, _ := c.find(start)
				b := len(c.keys)
				if end != "" {
					b, _ = c.find(end)
				}
				m := Move{From: from.ID, To: c.p.Ranges[j].ID, Start: start, End: end, Rows: c.sums[b] - c.sums[a]}
				rows += m.Rows
				want = append(want, m)
			}
			if end == oldEnd && i+1 < len(c.l.Partitions) {
				i++
			}
			if done {
				break
			}
			start = end
		}
	}
	if len(want) != len(c.p.Moves) {
		c.add("moves", "are %d, must be %d: one for each part of an old range that changes its partition",
			len(c.p.Moves), len(want))
		return
	}
	for k, m := range c.p.Moves {
		path := fmt.Sprintf("moves[%d]", k)
		if m.Reason.Text == "" {
			c.add(path+".reason", "is empty")
		}
		m.Reason = Reason{}
		if m != want[k] {
			c.add(path, "is %+v, must be %+v", m, want[k])
		}
	}
	if c.p.RowsMoved != rows {
		c.add("rows_moved", "is %d, the moves have %d", c.p.RowsMoved, rows)
	}
}
