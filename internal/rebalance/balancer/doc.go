// Package balancer keeps the ranges of buckets within limits of size and load. It reads the counts of partitions, lets
// internal/rebalance/policy decide, counts partitions exactly where a decision needs an exact count (a recount), and
// submits moves of rows.
//
//	counters ── Written ──> agenda ──> window ── policy.Decide ──> recount ──> Correct, and the agenda
//	 due times ─────────────┘ ↑                              └──> goals ────> Mover.Submit
//	 everything, each hour ───┘
//
// The agenda is the queue of buckets to check, with the places to check in each bucket: ranges that were written to,
// ranges that a recount or a move has changed, and ranges whose time has come. Each second the buckets that are new or
// grow fast are checked first. At each interval the buckets with ranges that are due follow. At last come the buckets
// of the hourly check of everything, a few at once. A slow bucket does not hold up the others. Of a large bucket only
// windows are read and decided about, which are the ranges that are due and their neighbours. So the work follows the
// changes, not the size of the store.
//
// A balancer keeps no state that matters: the process that leads next finds everything in the maps of the buckets and
// in the counters.
package balancer
