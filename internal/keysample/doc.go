// Package keysample has samples of the keys of a partition, from which the number of its rows is estimated.
//
// The hash of a key alone decides whether the key is in a Sample: the Sample has the keys whose hashes are below a
// limit. So writes that are reported twice, overwrites and deletions do no harm, and the samples of many clients merge
// into one in any order. A full sample lowers its limit. The keys that are left stand for all keys: each for 2^64/limit
// keys.
//
// The public type counter.Sample contains a Sample, but does not show it to programs. The function Of returns it.
// Package counter records keys into samples. Package countbook merges the samples and computes the estimates.
//
// Samples are stored and sent. So their encoding is here as well, with the Encoder and the Decoder of all counts.
package keysample
