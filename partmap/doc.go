// Package partmap has the map of a bucket. The map records which partition holds which range of keys, and in which
// phase each move of a range is.
//
// A map is a persistent tree:
//
//	root           one small record per bucket, swapped by compare-and-swap
//	index nodes    immutable; each names index nodes or segments below it; absent in small maps
//	segments       immutable; each is a run of entries, one entry per range
//
// Only the root changes in place. New index nodes and segments are written before the root that names them. So a reader
// never sees half a change, cached nodes never become stale, and a swap rewrites only the paths from the root to the
// changed entries.
//
// Find returns the range of a key with its partition, Ranges walks over the ranges in order, and Validate reports every
// problem of a map. All of them take the root, and a Reader for the nodes below it.
//
// New makes a map. An Edit collects replacements of entries and steps of moves. Both return a Change: the nodes to
// write, and the root to swap in. The caller writes them, to whatever store it uses.
//
// The package is pure: it does no I/O and does not use the time.
package partmap
