package plan

// A Grid is a layout cut into its smallest parts, which is what planners
// compute on. Positions 0 to N-1 are the keys at which a cut may lie, in order;
// position N is plus infinity. The atom i lies between the positions i and i+1.
// Sums over atoms are kept as prefix sums, so that a range's rows are one
// subtraction.
//
// A grid is immutable once made, and refers to its layout.
type Grid struct {
	Layout *Layout
	// Limits are those in force: no minimum if the bucket has fewer rows.
	Limits Limits
	// N is how many atoms there are.
	N int
	// Keys are the keys of the positions 0 to N-1.
	Keys []Key
	// Rows[i] are the rows below position i.
	Rows []int64
	// Owner[i] is the partition of atom i.
	Owner []int32
	// First[p] is the position of partition p's start; one more entry holds N.
	First []int32
	// Fewest is a number of ranges that no plan within the maximum can do without.
	Fewest int64

	// writes and growth are prefix sums per second, filled[i] is how many atoms
	// below position i have rows.
	writes, growth []float64
	filled         []int32
	askedMin       int64 // the minimum that the limits name
}

// NewGrid makes the grid of a valid layout. Time and memory are linear in its
// quanta.
func NewGrid(l *Layout, limits Limits) *Grid {
	n := len(l.Partitions)
	for i := range l.Partitions {
		n += len(l.Partitions[i].Quanta)
	}
	g := &Grid{
		Layout: l, Limits: limits, askedMin: limits.MinRows,
		Keys: make([]Key, 0, n), Rows: make([]int64, 1, n+1), Owner: make([]int32, 0, n),
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

// atom appends one atom of a partition of so many rows. Writes and growth are
// spread like rows; where there are none, they fall on the last atom, for what
// is empty now most likely fills by appends.
func (g *Grid) atom(owner int32, key Key, rows int64, p *Partition, all int64, last bool) {
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

// RowsIn returns the rows between two positions.
func (g *Grid) RowsIn(start, end int32) int64 { return g.Rows[end] - g.Rows[start] }

// WritesIn returns the writes per second between two positions.
func (g *Grid) WritesIn(start, end int32) float64 { return g.writes[end] - g.writes[start] }

// GrowthIn returns the rows gained per second between two positions.
func (g *Grid) GrowthIn(start, end int32) float64 { return g.growth[end] - g.growth[start] }

// Divisible says whether some cut between two positions leaves rows on both
// sides. What is not divisible may exceed the maximum.
func (g *Grid) Divisible(start, end int32) bool { return g.filled[end]-g.filled[start] > 1 }

// Pinned says whether a partition's start must stay a cut.
func (g *Grid) Pinned(partition int32) bool { return g.Layout.Partitions[partition].Pinned }

// A Draft is a plan in the coordinates of a grid: its ranges in order, the first
// of which starts at position 0.
type Draft []Piece

// A Piece is one range of a draft, up to the start of the next.
type Piece struct {
	Start int32
	// Keep says that the piece keeps the id of the old partition it lies in. It
	// must lie within one, and be the only one to keep that id.
	Keep bool
}

// End returns the position at which piece i ends.
func (d Draft) End(g *Grid, i int) int32 {
	if i+1 < len(d) {
		return d[i+1].Start
	}
	return int32(g.N)
}

// Within returns the old partition in which piece i lies altogether, if there is
// one.
func (d Draft) Within(g *Grid, i int) (partition int32, ok bool) {
	p := g.Owner[d[i].Start]
	return p, d.End(g, i) <= g.First[p+1]
}

// Today returns the draft that changes nothing.
func (g *Grid) Today() Draft {
	d := make(Draft, len(g.Layout.Partitions))
	for p := range d {
		d[p] = Piece{Start: g.First[p], Keep: true}
	}
	return d
}

// KeepLargest lets, in each old partition, the piece with the most rows keep the
// id. It moves the fewest rows that the draft's cuts allow.
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
