// Package partmap is the map of a bucket: which partition holds which range of keys, and
// in which phase each move is.
//
// A map is a persistent tree. Its root, one small record per bucket, is the only part that
// changes in place, by compare-and-swap. Index nodes and segments below it are immutable
// and are written before the root that names them. So a reader never sees half a change,
// cached nodes never become stale, and a swap rewrites one path.
//
// Lookups use decoded nodes (Segment, Index, Cuts), which package mapclient caches. An Edit
// collects replacements of entries and steps of moves, and makes a Change: the nodes to
// write and the root to swap in. Validate reports every problem of a map.
//
// The package is pure: it does no I/O and does not use the time.
package partmap
