package grid

import "github.com/evenkeel/evenkeel/rebalance"

// A Grid is a layout (a bucket's partitions with their sizes) in the form in which planners compute. The keys at which
// a range may begin have the positions 0 to N-1, in order; position N is plus infinity. Atom i is the interval of keys
// between the positions i and i+1, which no plan can cut:
//
//	position  0     1     2     3
//	key       ""    "f"   "m"   infinity    N = 3
//	atom         0     1     2
//	Rows      0     40    55    90          atom 1 has 55-40 = 15 rows
//
// Rows are kept as prefix sums, so the rows of a range are one subtraction.
//
// A grid does not change once made, and refers to its layout.
type Grid struct {
	Layout *rebalance.Layout
	// Limits are the limits of sizes that plans must keep. They have no minimum if the whole bucket has fewer rows than
	// the minimum.
	Limits rebalance.Limits
	// N is the number of atoms, which are the intervals of keys that no plan can cut.
	N int
	// Keys has the keys of the positions 0 to N-1, in ascending order.
	Keys []rebalance.Key
	// Rows[i] is the number of rows whose keys are below position i.
	Rows []int64
	// Owner[i] is the index of the partition in which atom i lies.
	Owner []int32
	// First[p] is the position at which partition p starts. First has one more element at the end, which is N.
	First []int32
	// Fewest is a lower bound for the number of ranges of any plan whose ranges are within the maximum number of rows.
	Fewest int64

	// writes and growth are prefix sums of writes per second and of rows gained per second. filled[i] is the number of
	// atoms below position i that have rows.
	writes, growth []float64
	filled         []int32
	askedMin       int64 // the minimum in the limits as given
}

// New returns the grid of a valid layout, which is the form of the layout that planners compute with. Time and
// memory are linear in the number of quanta, the measured intervals of keys in the layout.
func New(l *rebalance.Layout, limits rebalance.Limits) *Grid {
	n := len(l.Partitions)
	for i := range l.Partitions {
		n += len(l.Partitions[i].Quanta)
	}
	g := &Grid{
		Layout: l, Limits: limits, askedMin: limits.MinRows,
		Keys: make([]rebalance.Key, 0, n), Rows: make([]int64, 1, n+1), Owner: make([]int32, 0, n),
		First:  make([]int32, 0, len(l.Partitions)+1),
		writes: make([]float64, 1, n+1), growth: make([]float64, 1, n+1), filled: make([]int32, 1, n+1),
	}
	for i := range l.Partitions {
		p := &l.Partitions[i]
		g.First = append(g.First, int32(len(g.Keys)))
		rows := p.Rows()
		if len(p.Quanta) == 0 || p.Quanta[0].Key != p.Start {
			g.atom(int32(i), p.Start, 0, p, rows, len(p.Quanta) == 0)
		}
		for j, q := range p.Quanta {
			g.atom(int32(i), q.Key, q.Rows, p, rows, j == len(p.Quanta)-1)
		}
	}
	g.N = len(g.Keys)
	g.First = append(g.First, int32(g.N))
	capped := int64(0)
	for i := range g.N {
		capped += min(g.RowsIn(int32(i), int32(i)+1), limits.MaxRows)
	}
	g.Fewest = max(1, (capped+limits.MaxRows-1)/max(limits.MaxRows, 1))
	if g.Rows[g.N] < limits.MinRows {
		g.Limits.MinRows = 0
	}
	return g
}

// atom appends one atom to the grid: an interval of keys that no plan can cut. The atom begins at the given key, lies
// in the partition p with the index owner, and has the given number of rows. The parameter all is the number of rows of
// the partition, and last is true for the last atom of the partition.
func (g *Grid) atom(owner int32, key rebalance.Key, rows int64, p *rebalance.Partition, all int64, last bool) {
	// The writes and the growth of the partition are divided in proportion to rows. Without rows they go to the last
	// atom, since an empty partition is most likely filled by appends.
	share := 0.0
	if all > 0 {
		share = float64(rows) / float64(all)
	} else if last {
		share = 1
	}
	i := len(g.Keys)
	g.Keys = append(g.Keys, key)
	g.Owner = append(g.Owner, owner)
	g.Rows = append(g.Rows, g.Rows[i]+rows)
	g.writes = append(g.writes, g.writes[i]+share*p.WritesPerS)
	g.growth = append(g.growth, g.growth[i]+share*p.GrowthRowsPerS)
	filled := g.filled[i]
	if rows > 0 {
		filled++
	}
	g.filled = append(g.filled, filled)
}

// RowsIn returns the number of rows between two keys, given as positions of the grid: from start to below end. A
// position is the index of a key at which ranges may begin.
func (g *Grid) RowsIn(start, end int32) int64 { return g.Rows[end] - g.Rows[start] }

// WritesIn returns the writes per second to the keys between two positions of the grid: from start to below end. A
// position is the index of a key at which ranges may begin.
func (g *Grid) WritesIn(start, end int32) float64 { return g.writes[end] - g.writes[start] }

// GrowthIn returns how many rows per second are gained between two positions of the grid: from start to below end. A
// position is the index of a key at which ranges may begin.
func (g *Grid) GrowthIn(start, end int32) float64 { return g.growth[end] - g.growth[start] }

// Divisible reports whether a range can be cut so that both halves have rows. A range that cannot be divided may have
// more rows than the maximum. The range reaches from position start to position end of the grid; a position is the
// index of a key at which ranges may begin.
func (g *Grid) Divisible(start, end int32) bool { return g.filled[end]-g.filled[start] > 1 }

// Pinned reports whether in every plan a range must begin at the start of the partition with the given index.
func (g *Grid) Pinned(partition int32) bool { return g.Layout.Partitions[partition].Pinned }

// A Draft is a plan in the short form in which planners compute: only its ranges, in the order of their keys. The
// bounds of the ranges are positions of a Grid: a position is the index of a key at which ranges may begin. The first
// range starts at position 0.
type Draft []Piece

// A Piece is one range of a Draft, which is a plan in the making. It begins at Start, which is a position of the grid:
// the index of a key at which ranges may begin. It ends where the next piece starts.
type Piece struct {
	Start int32
	// Keep is true if the range keeps the id of the old partition around it, so that its rows do not move. The range
	// must lie within this one partition, and no other range may keep the id.
	Keep bool
}

// End returns the position at which range number i of the draft (a plan in the making) ends. A position is the index,
// in the grid g, of a key at which ranges may begin.
func (d Draft) End(g *Grid, i int) int32 {
	if i+1 < len(d) {
		return d[i+1].Start
	}
	return int32(g.N)
}

// Within returns the old partition that contains the whole of range number i of the draft (a plan in the making). The
// result partition is its index. The result ok is false if the range has keys of several old partitions.
func (d Draft) Within(g *Grid, i int) (partition int32, ok bool) {
	p := g.Owner[d[i].Start]
	return p, d.End(g, i) <= g.First[p+1]
}

// Today returns the plan that changes nothing, as a draft (the short form of a plan): every partition stays as it is.
// Planners compare their plans with it.
func (g *Grid) Today() Draft {
	d := make(Draft, len(g.Layout.Partitions))
	for p := range d {
		d[p] = Piece{Start: g.First[p], Keep: true}
	}
	return d
}

// KeepLargest decides which ranges of the draft, a plan in the making, keep the id of an old partition, so that their
// rows need not move. Of the ranges that lie within one old partition, the one with the most rows keeps the id. With
// the same ranges, no other choice moves fewer rows.
func (d Draft) KeepLargest(g *Grid) {
	best := -1
	for i := range d {
		d[i].Keep = false
		p, ok := d.Within(g, i)
		if !ok {
			continue
		}
		if best < 0 || g.Owner[d[best].Start] != p {
			best = i
		} else if g.RowsIn(d[i].Start, d.End(g, i)) > g.RowsIn(d[best].Start, d.End(g, best)) {
			d[best].Keep = false
			best = i
		}
		d[best].Keep = true
	}
}
