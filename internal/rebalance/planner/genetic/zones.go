package genetic

import "github.com/evenkeel/evenkeel/internal/rebalance/grid"

// A gene is one range of a candidate plan. It reaches from start, which is the index of a key at which ranges may
// begin, to the start of the next gene. Several genomes (candidate plans) may share a gene, so a gene is not changed
// any more once it is part of one.
type gene struct {
	start int32
	fresh bool // the range never keeps an id
	keep  bool // the range keeps an id; computed by settle from the other fields
	// wall is true if the gene is not a range but an interval of keys that the search leaves as it is, from start up to
	// the next gene. The last gene is a wall.
	wall bool
}

// freeze decides which partitions the search may change; all others stay as they are. The search may change
//   - partitions that break a limit, now or at the horizon of the forecast,
//   - partitions that one of the first candidate plans changes, and
//   - the neighbours of these partitions, one on each side.
//
// So a bucket of 100,000 partitions with a few bad ones is a small problem. In exchange the search may miss the best
// plan.
func (s *search) freeze() {
	g, lim := s.g, &s.g.Limits
	n := len(g.Layout.Partitions)
	bad := make([]bool, n)
	for _, d := range s.seeds[1:] {
		for i, piece := range d {
			first, last := g.Owner[piece.Start], g.Owner[d.End(g, i)-1]
			if piece.Keep && piece.Start == g.First[first] && d.End(g, i) == g.First[first+1] {
				continue
			}
			for p := first; p <= last; p++ {
				bad[p] = true
			}
		}
	}
	for p := range int32(n) {
		start, end := g.First[p], g.First[p+1]
		writes := g.WritesIn(start, end)
		if lim.MaxWritesPerS > 0 && writes > lim.MaxWritesPerS ||
			float64(g.RowsIn(start, end))+g.GrowthIn(start, end)*lim.HorizonS > float64(lim.MaxRows) {
			bad[p] = true
		}
	}
	s.frozen = make([]bool, n)
	for p := range bad {
		s.frozen[p] = !bad[p] && (p == 0 || !bad[p-1]) && (p+1 == n || !bad[p+1])
		if s.frozen[p] {
			s.base.Add(g.First[p], g.First[p+1], true)
		}
	}
}

// encode returns those ranges of the plan d that the search may change, in the form of genes (a gene is one range of a
// candidate plan). The result is nil if the search may change nothing.
func (s *search) encode(d grid.Draft) []gene {
	var genes []gene
	active := false
	for i, piece := range d {
		p := s.g.Owner[piece.Start]
		if s.frozen[p] {
			if len(genes) == 0 || !genes[len(genes)-1].wall {
				genes = append(genes, gene{start: piece.Start, wall: true})
			}
			continue
		}
		active = true
		_, within := d.Within(s.g, i)
		genes = append(genes, gene{start: piece.Start, fresh: within && !piece.Keep})
	}
	if !active {
		return nil
	}
	if !genes[len(genes)-1].wall {
		genes = append(genes, gene{start: int32(s.g.N), wall: true})
	}
	s.settle(genes)
	return genes
}

// sameOwner returns the index after the last range that starts in the same old partition as range number i. The
// parameter genes has the ranges of a candidate plan, in which ranges of one partition are neighbours.
func (s *search) sameOwner(genes []gene, i int) int {
	owner := s.g.Owner[genes[i].start]
	for i++; i < len(genes)-1 && s.g.Owner[genes[i].start] == owner; i++ {
	}
	return i
}

// inside reports whether range number i of a candidate plan lies within one old partition, so that it may keep the id
// of that partition. The argument genes has the ranges of the plan.
func (s *search) inside(genes []gene, i int) bool {
	return genes[i+1].start <= s.g.First[s.g.Owner[genes[i].start]+1]
}

// settle decides which ranges of a candidate plan keep the id of an old partition, and sets their field keep. For each
// partition it is the largest of the ranges that may keep the id, and the first of equally large ones.
func (s *search) settle(genes []gene) {
	for i := 0; i < len(genes)-1; {
		end := s.sameOwner(genes, i)
		best := -1
		for k := i; k < end; k++ {
			genes[k].keep = false
			if genes[k].wall || genes[k].fresh || !s.inside(genes, k) {
				continue
			}
			if best < 0 || s.g.RowsIn(genes[k].start, genes[k+1].start) > s.g.RowsIn(genes[best].start, genes[best+1].start) {
				best = k
			}
		}
		if best >= 0 {
			genes[best].keep = true
		}
		i = end
	}
}

// decode returns a plan for the whole bucket, in the short form of planners. The argument genes has the ranges that the
// search may change. All other partitions stay as they are today.
func (s *search) decode(genes []gene) grid.Draft {
	var d grid.Draft
	for i := range genes {
		if !genes[i].wall {
			d = append(d, grid.Piece{Start: genes[i].start, Keep: genes[i].keep})
			continue
		}
		end := int32(s.g.N)
		if i+1 < len(genes) {
			end = genes[i+1].start
		}
		for start := genes[i].start; start < end; {
			p := s.g.Owner[start]
			d = append(d, grid.Piece{Start: start, Keep: true})
			start = s.g.First[p+1]
		}
	}
	return d
}
