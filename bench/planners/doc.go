// Command planners compares ways to plan, on situations drawn at random from fixed seeds: one range, a window of
// neighbours, and what couples many windows (one budget of rows, waves of moves that must not meet, load on nodes).
// Each plan is judged by the total cost of package plan, in rows, beside a lower bound.
//
//	go run ./bench/planners                    # all situations, 5 seeds: some minutes
//	go run ./bench/planners -situation nodes -seeds 2
//
// bench/results/planners.md has the table.
package main
