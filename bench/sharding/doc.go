// Package sharding compares ways to assign items to shards: how many items stay
// where they are when a shard is added, how even shards are, what an assignment
// takes, and what is lost, order above all. Schemes that hash are compared with
// ranges of keys, which is what evenkeel does.
//
// A scheme is deterministic: a seed draws the items' names and the shards', and
// with them all that hashing makes of them. Nothing here is for use elsewhere in
// evenkeel.
package sharding
