// Package counter knows how large partitions are without reading them.
//
// Every client has a Recorder: it adds up in memory what the client's
// acknowledged writes did to each partition, and hands it to a Backend about
// once a second. It never delays a write and never fails one. A Backend merges
// what all clients say and is the Source of Stats.
//
// A count is an estimate: a client that dies takes its last second with it, and
// a backend may lose everything. So a count only raises suspicion. A Recount, a
// throttled scan of one partition, decides; its result corrects the estimate
// (Backend.Correct). Where no recount lies under an estimate, or where writes
// are known to be missing from it, Stats.Known is false.
//
// What makes overwrites, deletions and writes told twice harmless is a sample
// of keys (see Sample): a key is in it or not by its hash alone, each with the
// time of its last write, so that it holds which keys there are and not how
// often they were written. It serves as the count of distinct keys and as the
// places where a partition can be cut, too.
package counter
