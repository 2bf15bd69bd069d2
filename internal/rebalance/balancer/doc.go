// Package balancer keeps buckets in shape. It reads what counters say about their partitions, has
// internal/rebalance/policy decide, counts partitions exactly where that matters, and submits moves.
//
//	counters ── Written, Stats ──> look ── policy.Decide ──> recount ──> Correct, and look again
//	                                                     └─> goals ────> Mover.Submit
//
// It looks at an interval at all buckets that were written to; in between at buckets that are new or grow fast, or of
// which a recount or a move has just ended; and every hour at everything. It keeps no state that matters: the process
// that leads next finds everything in the map and in the counters.
package balancer
