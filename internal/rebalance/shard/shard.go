// Package shard divides the buckets of a shared store among the processes that move ranges: each bucket belongs to one
// of Count shards, and each shard has one process at a time that moves its buckets.
package shard

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/store"
)

// Count is the number of shards. All processes of a store must agree on it, so it is a constant.
const Count = 16

// Of returns the shard of a bucket, from 0 to Count-1: the second hexadecimal digit of its id, which is random.
func Of(id store.BucketID) int { return int(id[0]) % Count }

// Set is a set of shards, one bit each.
type Set uint16

// All is the set of all shards.
const All Set = 1<<Count - 1

// Only returns the set of one shard.
func Only(n int) Set { return 1 << n }

// Has reports whether a shard is in the set.
func (s Set) Has(n int) bool { return s&Only(n) != 0 }

// Bucket reports whether the shard of a bucket is in the set.
func (s Set) Bucket(id store.BucketID) bool { return s.Has(Of(id)) }

// Len returns the number of shards in the set.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// List returns the shards of the set, ascending.
func (s Set) List() []int {
	list := []int{}
	for n := range Count {
		if s.Has(n) {
			list = append(list, n)
		}
	}
	return list
}
