// Package partmap is the map of a bucket, the dynamic distribution table: which
// partition holds which range of keys, and how far each move has come.
//
// A map is a persistent tree. The root, one small record per bucket, is the
// only thing that ever changes in place, by compare-and-swap; index nodes and
// segments below it are immutable and written before the root that names them.
// So a reader never sees half a change, caches need no invalidation, and a swap
// rewrites one path.
//
// Lookup is on decoded nodes (Segment, Index, Cuts), which mapclient caches.
// Changes are data: an Edit gathers replacements of entries and the steps of
// batches of moves, and makes a Change: the nodes to write and the root to swap
// in. Validate reports everything that is wrong with a map.
//
// The package is pure: it does no I/O and never asks for the time.
package partmap
