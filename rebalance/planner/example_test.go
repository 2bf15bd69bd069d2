package planner_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// A planner finds the layout that respects the limits and moves the fewest rows. Here
// one partition is too large, and the one behind it nearly empty.
func ExampleNew() {
	l := &rebalance.Layout{Bucket: "photos", Partitions: []rebalance.Partition{
		{ID: "p1", Quanta: []rebalance.Quantum{{Key: "", Rows: 40_000}, {Key: "f", Rows: 50_000}, {Key: "k", Rows: 30_000}}},
		{ID: "p2", Start: "m", Quanta: []rebalance.Quantum{{Key: "m", Rows: 5_000}}},
	}}
	limits := rebalance.Limits{MaxRows: 100_000, MinRows: 25_000, TargetRows: 60_000}
	p, err := planner.New("genetic", planner.Options{Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := p.Plan(context.Background(), l, limits, rebalance.Objective{Kind: rebalance.Rows})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range plan.Ranges {
		fmt.Printf("%s from %q: %d rows\n", r.ID, r.Start, r.Rows)
	}
	for _, m := range plan.Moves {
		fmt.Printf("move %d rows from %s to %s\n", m.Rows, m.From, m.To)
	}
	fmt.Printf("at least %d rows have to move\n", plan.Optimality.LowerBound)
	// Output:
	// p1 from "": 90000 rows
	// new-1 from "k": 35000 rows
	// move 30000 rows from p1 to new-1
	// move 5000 rows from p2 to new-1
	// at least 35000 rows have to move
}
