// Package sharding compares ways to assign items to shards. It measures how many items stay on their shard when a shard
// is added, how even the shards are, how long an assignment takes, and what is lost, above all the order of items. The
// package compares hashing with ranges of keys, which is evenkeel's way.
//
// All ways are deterministic: a seed determines the names of items and shards, and so all results of hashing. No other
// package of evenkeel uses the code.
package sharding
