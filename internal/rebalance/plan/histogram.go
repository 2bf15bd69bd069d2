package plan

import "fmt"

// A Bin of a histogram counts ranges whose rows lie in an interval.
type Bin struct {
	Label  string `json:"label"`
	Before int    `json:"before"`
	After  int    `json:"after"`
}

// steps are how many bins the rows within the limits are divided into.
const steps = 5

// Histogram counts the ranges of a layout and of its plan by their rows: empty,
// under the minimum, in five steps within the limits, over the maximum, and over
// twice that. Bins that limits without a minimum do not have are left out.
func Histogram(l *Layout, limits Limits, p *Plan) []Bin {
	type edge struct {
		most  int64 // the last count of the bin
		label string
	}
	edges := []edge{{0, "empty"}}
	low := int64(1)
	if limits.MinRows > 1 {
		edges = append(edges, edge{limits.MinRows - 1, "under " + commas(limits.MinRows)})
		low = limits.MinRows
	}
	for i := int64(1); i <= steps; i++ {
		width := limits.MaxRows - low + 1
		most := low - 1 + width/steps*i + width%steps*i/steps
		from := edges[len(edges)-1].most + 1
		if most >= from {
			edges = append(edges, edge{most, fmt.Sprintf("%s - %s", commas(from), commas(most))})
		}
	}
	if limits.MaxRows < MaxCount/2 {
		edges = append(edges, edge{2 * limits.MaxRows, "over " + commas(limits.MaxRows)})
	}
	edges = append(edges, edge{MaxCount, "over " + commas(edges[len(edges)-1].most)})

	bins := make([]Bin, len(edges))
	for i := range edges {
		bins[i].Label = edges[i].label
	}
	find := func(rows int64) *Bin {
		for i := range edges {
			if rows <= edges[i].most {
				return &bins[i]
			}
		}
		return &bins[len(bins)-1]
	}
	for i := range l.Partitions {
		find(l.Partitions[i].Rows()).Before++
	}
	for i := range p.Ranges {
		find(p.Ranges[i].Rows).After++
	}
	return bins
}
