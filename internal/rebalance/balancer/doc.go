// Package balancer keeps buckets in shape. It reads what counters say about their partitions, has
// internal/rebalance/policy decide, counts partitions exactly where that matters, and submits moves.
//
//	counters ── Written ──> agenda ──> window ── policy.Decide ──> recount ──> Correct, and the agenda
//	 due times ─────────────┘ ↑                              └──> goals ────> Mover.Submit
//	 everything, each hour ───┘
//
// The agenda says which buckets are looked at, and where in them: what was written to, what has changed by a recount or
// a move, and what waits for a time. Buckets that are new or grow fast come first, each second; then those that are
// due, at each interval; then, a few at once, those of the hourly look at everything. A slow one does not hold up the
// others. Of a large bucket only windows are read and decided about: the ranges that are due and their neighbours. So
// work follows what changed, not what is there.
//
// It keeps no state that matters: the process that leads next finds everything in the map and in the counters.
package balancer
