// Command planners compares ways to plan splits and merges of ranges, on situations that are drawn at random from fixed
// seeds: one range, a window of neighbouring ranges, and many windows that are coupled (by one budget of rows, by waves
// of moves that must not meet, or by the load on nodes). The measure of a plan is its total cost by package
// rebalance, in rows, beside a lower bound.
//
//	go run ./bench/planners                    # all situations, 5 seeds: some minutes
//	go run ./bench/planners -situation nodes -seeds 2
//
// bench/results/planners.md has the table.
package main
