package rebalance_test

import (
	"context"
	"fmt"
	"log"

	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/planner"
)

// The first partition is too large, and the one behind it nearly empty. The cut at "k" mends both: two of the three
// quanta of p1 stay where they are.
func Example() {
	layout, limits, err := rebalance.DecodeLayout([]byte(`{"bucket": "photos",
		"limits": {"max_rows": 100000, "min_rows": 25000},
		"partitions": [
			{"id": "p1", "start": "", "quanta": [
				{"key": "a", "rows": 40000}, {"key": "f", "rows": 50000}, {"key": "k", "rows": 30000}]},
			{"id": "p2", "start": "m", "quanta": [{"key": "m", "rows": 5000}]},
			{"id": "p3", "start": "s", "quanta": [{"key": "s", "rows": 70000}]}]}`))
	if err != nil {
		log.Fatal(err)
	}
	p, err := planner.New("exact", planner.Options{})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := p.Plan(context.Background(), &layout, limits, rebalance.Objective{Kind: rebalance.Rows})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range plan.Ranges {
		fmt.Printf("%s from %q: %d rows\n", r.ID, r.Start, r.Rows)
	}
	for _, m := range plan.Moves {
		fmt.Printf("move %d rows from %s to %s: %s\n", m.Rows, m.From, m.To, m.Reason)
	}
	fmt.Printf("%d rows move, and at least %d have to\n", plan.RowsMoved, plan.Optimality.LowerBound)
	// Output:
	// p1 from "": 90000 rows
	// new-1 from "k": 35000 rows
	// p3 from "s": 70000 rows
	// move 30000 rows from p1 to new-1: split: p1 has 120,000 rows, over max_rows 100,000
	// move 5000 rows from p2 to new-1: merge: p2 has 5,000 rows, under min_rows 25,000: joined with its neighbours
	// 35000 rows move, and at least 35000 have to
}

// What is wrong with a layout is said at once, with the places.
func ExampleValidate() {
	l := &rebalance.Layout{Partitions: []rebalance.Partition{
		{ID: "p1", Quanta: []rebalance.Quantum{{Key: "b", Rows: 10}, {Key: "a", Rows: -1}}},
		{ID: "p1", Start: "m"},
	}}
	for _, problem := range rebalance.Validate(l, rebalance.Limits{MaxRows: 100}) {
		fmt.Println(problem)
	}
	// Output:
	// partitions[0].quanta[1].key: is "a", below the key before it, "b": quanta must be in the order of their keys
	// partitions[0].quanta[1].rows: is negative: -1
	// partitions[1].id: "p1" is the id of partitions[0] too
}
