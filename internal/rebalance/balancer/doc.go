// Package balancer keeps buckets in shape by itself: it looks at what counters say
// of their partitions, asks internal/rebalance/policy what is to be done, counts exactly
// where that matters, and has a manager do it.
//
//	counters ── Written, Stats ──> look ── policy.Judge ──> recount ──> Correct, and look again
//	                                                    └─> goals ────> Scheduler.Submit
//
// Looks are made at an interval, at what was written to since the last one; in
// between at buckets that are new or grow fast, or of which a recount or a move has
// just ended; and now and then at everything. Nothing is remembered that matters: whoever leads next finds it all in
// the map and in the counters.
package balancer
