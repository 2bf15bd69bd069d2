// Package crashtest is what the crash matrices of movers share: a mover that kills
// itself with -9 at one failpoint and comes to all of them, and what there has to
// be in the end. A matrix adds a store, and clients that go on meanwhile.
//
// A plain split does not come to every point. So on the way of a Mover
//
//   - the answer to one swap of the root is lost though it was applied, and another
//     swap is lost itself;
//   - a writer whose lease ran out long ago puts and deletes in the source of each
//     range when it has been copied: the comparison has something to mend;
//   - somebody begins to delete the bucket in the middle of its move, and dies;
//   - another bucket was left behind in the same way, and its map has nodes that no
//     root names (see Leave).
package crashtest
