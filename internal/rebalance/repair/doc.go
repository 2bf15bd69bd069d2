// Package repair checks what a store holds: the directory and the list of buckets,
// the maps, and the rows of every partition. It says what is wrong and mends what
// can be mended safely.
//
// It may run while clients write and ranges move. What it sees is then never one
// moment, so whatever looks wrong is looked at again in an order in which the
// protocol leaves one explanation only:
//
//   - A partition only ever loses ranges, once the swap that made it is done. So a
//     row is outside of its partition's ranges if it was seen, then a root read at
//     Serial gives its key to others, and then it is still there.
//   - A marker is left behind if it was seen, then a root says that its range is
//     settled and swept, and then it is still there.
//   - A partition or node is nobody's if it was listed, and a root read at Serial
//     after that does not name it (and, for a node, is of its epoch or a later one).
//   - A name, and what the list of buckets says of it, must be in step unless
//     somebody is at work; so they are looked at twice, some time apart, and must
//     not have changed in between.
//   - A partition that is nobody's is removed only if each of its rows was found where
//     the map says, as new or newer: where a store was restored the map and the rows
//     are not of one moment, and it may hold what is nowhere else (see Options.Adopt).
//
// Age is never judged by the time at which a row was written, but for one proof: rows
// that are newer than every map which does not name their partition.
package repair
