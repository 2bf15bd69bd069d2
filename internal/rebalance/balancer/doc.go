// Package balancer keeps buckets in shape. It reads the counts of their partitions, lets internal/rebalance/policy
// decide, counts partitions exactly where a decision needs that, and submits moves.
//
//	counters ── Written ──> agenda ──> window ── policy.Decide ──> recount ──> Correct, and the agenda
//	 due times ─────────────┘ ↑                              └──> goals ────> Mover.Submit
//	 everything, each hour ───┘
//
// The agenda holds the buckets to look at, and the places in them: ranges that were written to, that a recount or a
// move has changed, or whose time has come. Each second the buckets that are new or grow fast are looked at first. At
// each interval follow the buckets with ranges that are due; then, a few at once, the buckets of the hourly look at
// everything. A slow bucket does not hold up the others. Of a large bucket only windows are read and decided about: the
// ranges that are due, and their neighbours. So the work follows the changes, not the size of the store.
//
// A balancer keeps no state that matters: the process that leads next finds everything in the map and in the counters.
package balancer
