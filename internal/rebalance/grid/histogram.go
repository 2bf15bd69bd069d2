package grid

import (
	"fmt"

	"github.com/evenkeel/evenkeel/rebalance"
)

// A Bin is one bar of a histogram: it counts the ranges whose numbers of rows lie in one interval, such as "1,000 -
// 2,000". Before counts the ranges before a plan, and After those after it.
type Bin struct {
	Label  string `json:"label"`
	Before int    `json:"before"`
	After  int    `json:"after"`
}

// steps is the number of bars of a histogram between the minimum and the maximum number of rows of a range.
const steps = 5

// Histogram returns how many ranges have how many rows, before the plan p and after it. It has these bars:
//   - empty ranges,
//   - ranges under the minimum number of rows (if there is a minimum),
//   - five steps within the limits,
//   - ranges over the maximum, and
//   - ranges over twice the maximum.
func Histogram(l *rebalance.Layout, limits rebalance.Limits, p *rebalance.Plan) []Bin {
	type edge struct {
		most  int64 // the highest number of rows in the bin
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
	if limits.MaxRows < rebalance.MaxCount/2 {
		edges = append(edges, edge{2 * limits.MaxRows, "over " + commas(limits.MaxRows)})
	}
	edges = append(edges, edge{rebalance.MaxCount, "over " + commas(edges[len(edges)-1].most)})

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
