// Package mapcodec has the maps of buckets as bytes, and as lists for fast lookups. Package partmap says what a map
// means; this package says how its parts are written.
//
// The root, the index nodes and the segments of a map have the same frame: a kind, a format version and a checksum.
// Unseal opens the frame, and a Decoder reads what is inside. The first error stays, so that a reader of many fields
// looks at the error once.
//
// Every list of ranges or nodes is a list of keys first of all. Its decoded form is Cuts, in which a search touches few
// cache lines and allocates nothing. A Segment adds where each range lies, an Index the node below each key. Package
// mapclient keeps both in its cache.
//
// The package is pure: it does no I/O and does not use the time.
package mapcodec
