// Package shard divides the buckets of a shared store among processes. Each bucket belongs to one of Count shards. Each
// shard has one process at a time that moves the ranges of its buckets, and one that cleans its buckets.
package shard

import (
	"math/bits"

	"github.com/evenkeel/evenkeel/store"
)

// Count is the number of shards. It is a constant, since all processes of a store must agree on it.
const Count = 16

// Of returns the shard of a bucket, from 0 to Count-1. The shard is the second hexadecimal digit of the bucket's id,
// which is random.
func Of(id store.BucketID) int { return int(id[0]) % Count }

// Set is a set of shards: bit n is set if shard n is in the set.
type Set uint16

// All is the set of all shards.
const All Set = 1<<Count - 1

// Only returns the set that holds only shard n.
func Only(n int) Set { return 1 << n }

// Has reports whether shard n is in the set.
func (s Set) Has(n int) bool { return s&Only(n) != 0 }

// Bucket reports whether the shard of a bucket is in the set.
func (s Set) Bucket(id store.BucketID) bool { return s.Has(Of(id)) }

// Len returns the number of shards in the set.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// List returns the shards of the set in ascending order.
func (s Set) List() []int {
	list := []int{}
	for n := range Count {
		if s.Has(n) {
			list = append(list, n)
		}
	}
	return list
}
