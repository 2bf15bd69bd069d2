// Package repair checks a store: the names of buckets, the partition maps (which partition has which keys), and the
// rows of every partition. It reports problems and repairs those that can be repaired safely.
//
// The check may run while clients write and ranges move. Then its reads are not of one moment. So everything that looks
// wrong is checked again, in an order of reads that leaves only one explanation:
//
//   - After the change of the map that made it, a partition only loses ranges (I4 in docs/protocol.md). So a row is
//     outside its partition's ranges if it was read, then a map read at Serial gives its key to other partitions, and
//     then the row is still there.
//   - A deletion marker was left behind if it was read, then a map says that the move of its range has ended and that
//     its markers are removed, and then the marker is still there.
//   - A partition or map node is an orphan if it was listed and a root of the map, read at Serial after that, does not
//     name it (and, for a node, is of its epoch or a later one).
//   - A name and its line in the list of buckets must agree, unless they are being changed. So both are read twice,
//     with a pause, and must be the same both times.
//   - An orphan partition is removed only if each of its rows was found where the map says, as new or newer. In a
//     restored store the map and the rows are not of one moment, and the partition may hold rows that are nowhere else
//     (see Options.Adopt).
//
// The time at which a row was written proves one thing only: a row newer than every map that does not name its
// partition shows that the partition was made later than the map.
package repair
