package planner_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// The same layout by each planner. A chain of ranges is to be divided, of which one is too large and three are too
// small.
func ExampleNew() {
	l := &rebalance.Layout{Bucket: "photos"}
	for i, rows := range []int64{150, 90, 15, 60, 10, 12, 95} {
		p := rebalance.Partition{ID: fmt.Sprintf("p%d", i), Start: rebalance.Key(rune('a' + i))}
		for k := range int64(5) {
			key := p.Start + rebalance.Key(rune('0'+k))
			p.Quanta = append(p.Quanta, rebalance.Quantum{Key: key, Rows: rows / 5})
		}
		l.Partitions = append(l.Partitions, p)
	}
	l.Partitions[0].Start = ""
	limits := rebalance.Limits{MaxRows: 100, MinRows: 25, TargetRows: 60}
	for _, name := range planner.Names() {
		p, err := planner.New(name, planner.Options{Seed: 1, Generations: 100})
		if err != nil {
			log.Fatal(err)
		}
		plan, err := p.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d rows move to %d ranges, %.0f %% more than needed\n", name, plan.RowsMoved, len(plan.Ranges),
			100*plan.Optimality.Gap)
	}
	// Output:
	// exact: 119 rows move to 7 ranges, 0 % more than needed
	// greedy: 155 rows move to 5 ranges, 30 % more than needed
	// genetic: 119 rows move to 7 ranges, 0 % more than needed
	// auto: 119 rows move to 7 ranges, 0 % more than needed
}
