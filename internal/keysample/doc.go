// Package keysample has samples of the keys of a partition, from which the number of its rows is estimated.
//
// The hash of a key alone decides whether the key is in a Sample: it is if the hash is below a limit. So writes that
// are reported twice, overwrites and deletions do no harm, and the samples of many clients merge into one in any order.
// A full sample lowers its limit. What is left stands for all keys: for 2^64/limit keys each.
//
// A Sample is inside of the public type counter.Sample, which shows nothing of it: Of leads to it. Package counter
// records keys into samples; package countbook merges them and reads off the estimates.
//
// Samples are stored and sent. So their encoding is here as well, with the Encoder and the Decoder of all counts.
package keysample
