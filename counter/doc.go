// Package counter estimates the sizes of partitions without reading them.
//
// Every client has a Recorder. The Recorder adds up the acknowledged writes of the client to each partition, in memory.
// About once a second it flushes the sums to a Backend. It never delays or fails a write. A Backend merges the flushes
// of all clients and is the Source of Stats.
//
// A count is an estimate: a client that dies loses its last second, and a backend may lose everything. So a decision
// needs a recount, which is a throttled scan of one partition. Its result corrects the estimate (Backend.Correct).
// Stats.Known is false if there was no recount, or if writes are known to be missing.
//
// Overwrites, deletions and repeated reports of a write do no harm, since counting is based on a sample of keys (see
// Sample). The hash of a key alone decides whether the key is sampled, and each sampled key has the time of its last
// write. The sample also gives the number of distinct keys, and places for cuts.
package counter
