// Package crashtest has what the crash tests of moves share. A mover, which is a process that moves ranges of keys,
// kills itself (kill -9) at one failpoint. Over all runs the mover meets every failpoint. The package also knows which
// entries must exist at the end. Each test adds a store, and clients that go on meanwhile.
//
// A plain split does not meet every failpoint. So while a Mover works,
//
//   - the answer to one swap of the map's root is lost although the swap was applied, and another swap is lost itself;
//   - a writer whose lease ended long ago puts and deletes entries in the source of each range after the range was
//     copied, so that the comparison of source and copy finds differences;
//   - a client begins to delete the bucket in the middle of its move, and dies;
//   - another bucket was left behind in the same way, and its map has nodes that no root names (see Leave).
package crashtest
