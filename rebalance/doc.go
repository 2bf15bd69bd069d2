// Package rebalance plans how to divide an ordered set of rows again: which ranges of keys to split and which to merge,
// so that every range keeps its limits and the fewest rows move.
//
// It is for programs that keep rows in partitions by ranges of keys, in a database, an index or files. Some partitions
// grow, others become empty. Each change copies rows, and a choice for one range limits the choices for its neighbours:
// a small range may take rows from the next one, which is too small afterwards, and so on along a chain of any length.
// So a plan is made for all ranges at once. The package only computes. Whoever uses it measures the sizes before, and
// carries out the moves afterwards.
//
// evenkeel's own balancer decides range by range when to split and when to merge, and lets a planner of this package
// choose the cuts of a split. Plans for whole buckets are made by `rebalancer plan`, by the console and by other
// programs.
//
// # Use
//
// The input is a Layout: the partitions of a bucket, with their rows at points within them (quanta). Limits say how
// large ranges may be, and an Objective says which of two plans is better. The planners are in package
// rebalance/planner:
//
//	layout, limits, err := rebalance.DecodeLayout(file) // or made by the program
//	if err != nil {
//		return err // all faults of the file, with their places
//	}
//	p, err := planner.New("auto", planner.Options{Seed: 1, Generations: 1000})
//	if err != nil {
//		return err
//	}
//	plan, err := p.Plan(ctx, &layout, limits, rebalance.Objective{Kind: rebalance.Rows})
//	if err != nil {
//		return err
//	}
//	for _, m := range plan.Moves {
//		copyRows(m.From, m.To, m.Start, m.End)
//	}
//
// A quantum is what was measured: so many rows from this key up to the next quantum's key. More quanta allow better
// cuts, and planning takes longer. A hundred for each partition are plenty.
//
// # Rules
//
// Every plan keeps these rules, and Check holds a plan to them:
//
//   - Cuts lie at keys of quanta or at today's starts, nowhere else: keys between two quanta were never measured.
//   - A partition keeps at most one contiguous part of its own range, and never receives keys. So a range that spans
//     two of today's partitions goes to a new partition, and all its rows move.
//   - The start of a pinned partition stays a cut.
//   - No range holds more than Limits.MaxRows if it can be divided.
//
// Since no partition receives keys, a program can fill a new partition beside the old one, then switch, and it can
// begin again at any time before. The other limits are aims: a planner comes as near to them as it can, and Plan.Notes
// say in sentences which ones the plan does not meet.
//
// # Promises
//
// Optimality: under the objective Rows, the planner "exact" returns a plan than which none is better. Under Full, it
// does so for layouts for which this takes no more than about a second, and says so in a note if it does not. Every
// plan of package rebalance/planner has a lower bound of the rows that any plan must move (Plan.Optimality), so that
// the plans of other planners can be judged, too.
//
// Determinism: the same layout, limits, objective, planner and seed give the same plan.
//
// Errors: Validate and DecodeLayout return all faults as Problems, each with its place. A plan for a valid layout fails
// only because its context ends.
//
// Units: sizes and costs are in rows, rates are per second, and horizons are in seconds. A row may stand for anything
// that can be counted, as a kilobyte. Numbers of rows are whole and at most MaxCount. Keys are bytes, compared
// bytewise.
//
// Concurrency: everything may be used from several goroutines at once as long as nobody changes the values passed in.
// The package is pure: it does no I/O, and uses no clock and no random numbers.
//
// # Sources
//
// That ranges split when they are large and merge when they are small is usual since F. Chang et al., "Bigtable: A
// Distributed Storage System for Structured Data" (2006). To weigh better sizes against the rows that move for them is
// an idea of A. Adya et al., "Slicer: Auto-Sharding for Datacenter Applications" (2016). Both decide range by range.
// That plans for all ranges can be optimal in linear time is due to the order of the keys: see package
// rebalance/planner.
package rebalance
