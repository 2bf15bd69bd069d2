// Package fsck checks what a store holds: the directory and the list of buckets,
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
//
// Age is never judged by the time at which a row was written.
package fsck
